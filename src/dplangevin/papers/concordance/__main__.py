"""Print docs/papers.md."""

from dplangevin.papers.concordance import render_concordance

if __name__ == "__main__":
    print(render_concordance(), end="")
