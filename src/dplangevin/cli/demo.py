"""`dplangevin demo`: epsilon against the number of steps on two problems."""

from __future__ import annotations

import math
from typing import Any

STEPS = (10, 100, 1_000, 10_000, 100_000, 1_000_000, math.inf)
DELTA = 1e-6
PUBLIC: dict[str, Any] = {"n": 10_000, "lipschitz": 1.0, "step_size": 1.0}
PROBLEMS: dict[str, dict[str, Any]] = {
    "1. Logistic regression with a ridge of 0.01: strongly convex; noise 0.012": {
        **PUBLIC, "smoothness": 0.26, "strong_convexity": 0.01, "noise_scale": 0.012,
    },
    "2. The same without the ridge, kept in a ball of radius 1: convex; noise 0.04": {
        **PUBLIC, "smoothness": 0.25, "diameter": 2.0, "noise_scale": 0.04,
    },
}  # fmt: skip
FIRST = f"""\
Noisy gradient descent on 10,000 records. When every iterate is published,
each step costs privacy (plain composition). When only the last iterate is,
the run forgets, and from some point on more steps cost nothing.
The lower bound is what some run with these numbers really leaks.

Epsilon at delta = {DELTA:g} (a neighbour replaces one record):
"""
NEXT = """\
Try next
  dplangevin account --n 10000 --lipschitz 1 --smoothness 0.26 \\
      --strong-convexity 0.01 --step-size 1 --noise-scale 0.012 \\
      --steps inf --delta 1e-6 --plot epsilon.html
  dplangevin calibrate --n 10000 --lipschitz 1 --smoothness 0.26 \\
      --strong-convexity 0.01 --step-size 1 --steps inf \\
      --epsilon 1 --delta 1e-6
  dplangevin --help           and docs/tutorial.md
(in a source checkout the command is .venv/bin/dplangevin)
"""


def demo() -> None:
    """Show on two problems how epsilon stops growing with the number of steps."""
    from rich.console import Console

    from dplangevin.report import curve, text

    out = Console(highlight=False)
    out.print(FIRST, soft_wrap=True)
    for title, problem in PROBLEMS.items():
        out.print(text.steps_table(title, curve.rows(problem, STEPS, DELTA)))
        level = curve.plateau(problem, DELTA)
        out.print("" if level is None else text.plateau_words(level, math.inf) + "\n")
    out.print(NEXT, soft_wrap=True, markup=False)
