"""The papers' figures and tables, redrawn: one module per figure.

A figure is a module of this package with `TITLE` (one line) and `draw(output: Path, *, quick: bool) -> str`. It writes
`NAME.svg` (or `.png`) and `NAME.csv` into the directory `output` and returns a short text on what agrees with the paper
and what does not; `reproduce_figure` writes that text to `NAME.txt`. `quick` draws the same picture with fewer points
and repetitions (seconds), for tests. To add a figure, write the module and add its line to FIGURES.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from dplangevin import _files
from dplangevin.errors import InvalidParameter

# name on the command line -> module of this package, imported only when it is drawn
FIGURES: dict[str, str] = {
    "clock": "clock",
    "tightness": "tightness",
    "plateau": "plateau",
    "erm-rates": "erm_rates",
    "sco-rates": "sco_rates",
    "rashomon-rates": "rashomon_rates",
    "tables": "tables",
    "drift": "drift",
    "split-regimes": "split_regimes",
    "packing": "packing",
    "counting-error": "counting_error",
    "langevin-steps": "langevin_steps",
    "public-mirror-descent": "public_mirror_descent",
}


def figure_module(name: str) -> ModuleType:
    """Return the module of a figure."""
    if name not in FIGURES:
        raise InvalidParameter(f"there is no figure {name!r}; choose among: {', '.join(sorted(FIGURES))}.")
    return importlib.import_module(f"{__name__}.{FIGURES[name]}")


def reproduce_figure(name: str, output: Path, *, quick: bool = False) -> str:
    """Draw one figure into the directory `output`, with its numbers and its text; return the text."""
    module = figure_module(name)
    output.mkdir(parents=True, exist_ok=True)
    text: str = module.draw(output, quick=quick)
    _files.write_text(output / f"{name}.txt", text.rstrip() + "\n")
    return text
