"""Prints docs/papers.md."""

from dplangevin.papers.concordance import written

if __name__ == "__main__":
    print(written(), end="")
