"""The papers' figures and tables, redrawn.

A figure is a function `draw_name(output: Path, *, quick: bool) -> str` and a line in FIGURES with its title. It writes
`NAME.svg` (or `.png`) and `NAME.csv` into the directory `output` and returns a short text on what agrees with the paper
and what does not; `reproduce_figure` writes that text to `NAME.txt`. `quick` draws the same picture with fewer points
and repetitions (seconds), for tests.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from dplangevin import _files
from dplangevin.errors import InvalidParameter


@dataclass(frozen=True)
class GalleryFigure:
    """A figure of the gallery.

    Parameters
    ----------
    function : what draws it, as "module:function" of this package; imported only when it is drawn.
    title : one line, with the paper and the place in it.
    """

    function: str
    title: str


FIGURES: dict[str, GalleryFigure] = {
    "clock": GalleryFigure(
        "langevin:draw_clock",
        "Ganesh, Thakurta and Upadhyay (2022): privacy and risk along the clock of Langevin diffusion",
    ),
    "tightness": GalleryFigure(
        "noisy_descent:draw_tightness",
        "Chourasia, Ye and Shokri (2021), Figure 2: tightness of the bound, three orders",
    ),
    "plateau": GalleryFigure(
        "noisy_descent:draw_plateau",
        "Altschuler and Talwar (2022), Figure 1: growth, then a plateau, with a lower bound",
    ),
    "erm-rates": GalleryFigure(
        "tables:draw_erm_rates",
        "Ganesh, Thakurta and Upadhyay (2022), Table 1, and (2023), Table 2, empirical risk: measured slopes",
    ),
    "sco-rates": GalleryFigure(
        "tables:draw_sco_rates",
        "Ganesh, Thakurta and Upadhyay (2022), Table 1, population risk: measured slopes where each term rules",
    ),
    "rashomon-rates": GalleryFigure(
        "tables:draw_rashomon_rates",
        "Ganesh, Thakurta and Upadhyay (2023), Table 2: the four cells of Rashomon draws",
    ),
    "tables": GalleryFigure(
        "tables:draw_tables",
        "Ganesh, Thakurta and Upadhyay (2022), Table 1, and (2023), Table 2: every cell run, with its bound",
    ),
    "drift": GalleryFigure(
        "langevin:draw_drift",
        "Ganesh, Thakurta and Upadhyay (2022), Appendix H: drift against Brownian motion, and no convergence",
    ),
    "split-regimes": GalleryFigure(
        "langevin:draw_split_regimes",
        "Ganesh, Thakurta and Upadhyay (2022), Appendix I: short- and long-term bounds, and one that replaces both",
    ),
    "packing": GalleryFigure(
        "lower_bounds:draw_packing",
        "Ganesh, Thakurta and Upadhyay (2022), Theorem G.1: the non-convex lower-bound instance",
    ),
    "counting-error": GalleryFigure(
        "lower_bounds:draw_counting_error",
        "Ganesh (2022), Chapter 2: L-infinity error of k counting queries",
    ),
    "langevin-steps": GalleryFigure(
        "langevin:draw_langevin_steps",
        "Ganesh (2022), Chapter 3: steps of Langevin samplers, proved and needed",
    ),
    "public-mirror-descent": GalleryFigure(
        "public_mirror_descent:draw_public_mirror_descent",
        "Ganesh (2022), Figure 4.1: private mirror descent with the public loss as mirror map",
    ),
}
"""The figures, by their names on the command line."""


def find_figure(name: str) -> GalleryFigure:
    """Return a figure by its name."""
    if name not in FIGURES:
        raise InvalidParameter(f"there is no figure {name!r}; choose among: {', '.join(sorted(FIGURES))}.")
    return FIGURES[name]


def reproduce_figure(name: str, output: Path, *, quick: bool = False) -> str:
    """Draw one figure into the directory `output`, with its numbers and its text; return the text."""
    module, _, function = find_figure(name).function.partition(":")
    draw = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    output.mkdir(parents=True, exist_ok=True)
    text: str = draw(output, quick=quick)
    _files.write_text(output / f"{name}.txt", text.rstrip() + "\n")
    return text
