"""The planner's clipping rule on data not used in its development, compared with a clip that jumps.

Usage: python benchmarks/validation.py [--seeds 10]

Tables are generated: power-law spectra, heavy tails, flipped labels, binary columns, in sizes and signal strengths the
planner was not developed with. Prints the mean test log-loss (logistic) or R2 (ridge) over noise seeds for the
planner as shipped, for a clip that jumps from its least value to 1 at signal 100, and for the model without privacy.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from unittest import mock

import numpy as np
from accuracy import _figures
from loaders import Floats
from sklearn.linear_model import LogisticRegression, Ridge

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner import rules
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped, ModelDefaults

EPSILONS = (0.1, 0.5, 1.0, 4.0)
# name: rows, columns, decay of the spectrum, degrees of freedom (0: signs), rate of flipped labels, size of theta
TABLES = {
    "flat-noisy": (3_000, 12, 0.0, 30, 0.20, 4.0),
    "steep": (8_000, 30, 1.0, 30, 0.00, 8.0),
    "heavy-tails": (8_000, 30, 0.5, 3, 0.05, 6.0),
    "signs": (15_000, 60, 0.5, 0, 0.10, 5.0),
    "strong": (2_000, 8, 0.5, 30, 0.00, 15.0),
    "large": (60_000, 25, 0.7, 5, 0.05, 6.0),
}


def jump(defaults: ModelDefaults, signal: float, pure: bool = False) -> float | None:
    """Return the clip of the first rule."""
    return None if defaults.min_clip is None else defaults.min_clip if signal < 100 else 1.0


def table(name: str, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Return rows of norm at most 1 with a constant column, labels and targets, all from a fixed seed."""
    n, p, decay, freedom, flipped, size = TABLES[name]
    rng = np.random.default_rng(seed + sum(map(ord, name)))
    size_all = (n + 20_000, p)
    raw = rng.choice([-1.0, 1.0], size_all) if freedom == 0 else rng.standard_t(freedom, size_all)
    raw *= np.arange(1, p + 1) ** -decay
    raw /= np.quantile(np.linalg.norm(raw, axis=1), 0.9) * math.sqrt(2)
    X = np.column_stack([raw, np.full(len(raw), math.sqrt(0.5))])
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    theta = rng.standard_normal(p + 1)
    theta *= size / np.linalg.norm(theta)
    logits = X @ theta
    labels = (rng.random(len(X)) < 1 / (1 + np.exp(-logits))) ^ (rng.random(len(X)) < flipped)
    targets = np.clip(logits / size * 2 + 0.3 * rng.standard_normal(len(X)), -1, 1)
    return X, labels.astype(float), targets


def measure(name: str, model: str, epsilon: float, delta: float, seeds: int) -> float:
    """Return the mean log-loss or R2 on the last 20,000 rows."""
    X, labels, targets = table(name)
    y, n = (labels if model == "logistic" else targets), len(X) - 20_000
    plan = plan_fit(
        model=model,
        n=n,
        n_features=X.shape[1],
        epsilon=epsilon,
        delta=delta,
        adjacency="replace-one",
        data_norm=1.0,
        fit_intercept=False,
    ).plan
    data, loss = ArrayDataset(X[:n], y[:n], plan.problem), plan.problem.loss
    bound = loss.bound if isinstance(loss, Clipped) else 1.0
    results = []
    for seed in range(seeds):
        scores = X[n:] @ run_plan(plan, data, seed).value
        results.append(
            _figures(scores[:, None], y[n:], bound)[1]
            if model == "logistic"
            else 1 - float(((scores - y[n:]) ** 2).mean() / y[n:].var())
        )
    return float(np.mean(results))


def without_privacy(name: str, model: str) -> float:
    """Return the same figure for scikit-learn."""
    X, labels, targets = table(name)
    n = len(X) - 20_000
    if model == "ridge":
        return float(Ridge(alpha=1e-3, fit_intercept=False).fit(X[:n], targets[:n]).score(X[n:], targets[n:]))
    fitted = LogisticRegression(C=1e4, fit_intercept=False, max_iter=1000).fit(X[:n], labels[:n])
    return _figures((X[n:] @ fitted.coef_[0])[:, None], labels[n:], 1.0)[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="noise seeds per cell")
    seeds = parser.parse_args().seeds
    clips: dict[str, Callable[..., float | None]] = {"planner": rules.choose_clip, "jump": jump}
    for model, delta in (("logistic", 1e-5), ("logistic", 0.0), ("ridge", 1e-5)):
        figure = "log-loss" if model == "logistic" else "R2"
        print(f"### {model}, {figure}, {'delta = 1e-5' if delta else 'pure'}, replace-one\n")
        print(
            "| data | not private | " + " | ".join(f"epsilon {e:g}: planner / jump" for e in EPSILONS) + " |"
        )
        print("|---" * (2 + len(EPSILONS)) + "|")
        for name in TABLES:
            cells = []
            for epsilon in EPSILONS:
                figures = []
                for clip in clips.values():
                    with mock.patch.object(rules, "choose_clip", clip):
                        figures.append(measure(name, model, epsilon, delta, seeds))
                cells.append(" / ".join(f"{value:.4f}" for value in figures))
            print(f"| {name} | {without_privacy(name, model):.4f} | {' | '.join(cells)} |", flush=True)
        print()


if __name__ == "__main__":
    main()
