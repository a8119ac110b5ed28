"""Try every feature with everything, and write docs/support.md (a few minutes)."""

from __future__ import annotations

from support._page import PAGE, render_page
from support._trials import FEATURES, ROWS, cell


def main() -> None:
    """Write the page."""
    cells = {}
    for row, trial in ROWS.items():
        for feature in FEATURES:
            cells[row, feature] = cell(trial, feature)
        print(row, flush=True)
    PAGE.write_text(render_page(cells), encoding="utf-8")


if __name__ == "__main__":
    main()
