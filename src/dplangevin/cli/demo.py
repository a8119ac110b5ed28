"""`dplangevin demo`: a private model beside the plain one, and epsilon against the number of steps."""

from __future__ import annotations

import math
from typing import Any

STEPS = (10, 100, 1_000, 10_000, 100_000, 1_000_000, math.inf)
DELTA = 1e-6
STATED: dict[str, Any] = {"data_norm": 1.0, "fit_intercept": False, "classes": ["<=50K", ">50K"]}
PUBLIC: dict[str, Any] = {"n": 10_000, "lipschitz": 1.0, "step_size": 1.0}
PROBLEMS: dict[str, dict[str, Any]] = {
    "Logistic regression with a ridge of 0.01: strongly convex; noise 0.012": {
        **PUBLIC, "smoothness": 0.26, "strong_convexity": 0.01, "noise_std": 0.012,
    },
    "The same without the ridge, kept in a ball of radius 1: convex; noise 0.04": {
        **PUBLIC, "smoothness": 0.25, "diameter": 2.0, "noise_std": 0.04,
    },
}  # fmt: skip
MODEL = """\
1. A private model. 30,000 synthetic adults, who earns more than 50K? The schema (ranges and categories) is
public; mechanism, steps and noise follow from n, the number of features and epsilon, so nothing is tuned.
"""
FIRST = f"""\
2. What running longer costs. Noisy gradient descent on 10,000 records. When every iterate is published,
each step costs privacy (plain composition). When only the last iterate is,
the run forgets, and from some point on more steps cost nothing.
The lower bound is what some run with these numbers really leaks.

Epsilon at delta = {DELTA:g} (a neighbour replaces one record):
"""
NEXT = """\
Try next
  dplangevin account --n 10000 --lipschitz 1 --smoothness 0.26 \\
      --strong-convexity 0.01 --step-size 1 --noise-std 0.012 \\
      --steps inf --delta 1e-6 --plot epsilon.html
  dplangevin calibrate --n 10000 --lipschitz 1 --smoothness 0.26 \\
      --strong-convexity 0.01 --step-size 1 --steps inf \\
      --epsilon 1 --delta 1e-6
  dplangevin plan --n 30000 --p 20 --epsilon 0.5
  dplangevin --help           and docs/tutorials/own_table.md
(in a source checkout the command is .venv/bin/dplangevin)
"""


def _models(out: Any) -> None:
    """Accuracy at several budgets beside scikit-learn without privacy, and the promise in words."""
    from rich.table import Table
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    from dplangevin import DPLogisticRegression
    from dplangevin.datasets import income
    from dplangevin.estimators import SchemaEncoder

    people, schema = income()
    rows, labels = SchemaEncoder(schema).transform(people), people["income"].to_numpy()
    fitted: list[tuple[str, Any]] = [
        (f"private, epsilon = {epsilon:g}", DPLogisticRegression(epsilon=epsilon, delta=DELTA, **STATED))
        for epsilon in (0.1, 0.5, 1.0)
    ]
    fitted.append(("private, pure epsilon = 1", DPLogisticRegression(epsilon=1.0, delta=0.0, **STATED)))
    fitted.append(
        ("not private (scikit-learn)", LogisticRegression(C=100.0, fit_intercept=False, max_iter=1000))
    )
    table = Table("model", "accuracy", "log-loss", title_justify="left")
    for name, model in fitted:
        model.fit(rows[:25_000], labels[:25_000])
        loss = log_loss(labels[25_000:], model.predict_proba(rows[25_000:]))
        table.add_row(name, f"{model.score(rows[25_000:], labels[25_000:]):.3f}", f"{loss:.3f}")
    out.print(table)
    promise = fitted[2][1].privacy_
    out.print(
        f"The promise at epsilon = 1: whoever sees the model, and knows everything about the other people, can tell "
        f"whether one person's record was replaced only as well as epsilon = {promise.epsilon():.3g}, delta = "
        f"{DELTA:g} allow ({promise.theorem}, {promise.adjacency}).\n",
        soft_wrap=True,
    )


def demo() -> None:
    """Fit a private model beside the plain one, then show how epsilon stops growing with the number of steps."""
    from rich.console import Console

    from dplangevin.report import curve, text

    out = Console(highlight=False)
    out.print(MODEL, soft_wrap=True)
    _models(out)
    out.print(FIRST, soft_wrap=True)
    for title, problem in PROBLEMS.items():
        out.print(text.steps_table(title, curve.rows(problem, STEPS, DELTA)))
        level = curve.plateau(problem, DELTA)
        out.print("" if level is None else text.plateau_words(level, math.inf) + "\n")
    out.print(NEXT, soft_wrap=True, markup=False)
