"""How the clipping rule of logistic regression was chosen: log-loss against the clip on random generated tables.

Usage: python benchmarks/clip_law.py [--set 1] [--tables 14] [--seeds 5] [--pure]

Set 1 was used to choose, set 2 to confirm. Tables differ in rows, columns, spectrum, tails, flipped labels and size of
the coefficients. For every rule the regret is the log-loss above that of the best of five fixed clips, in percent.
"""

from __future__ import annotations

import argparse
import math
from typing import Any
from unittest import mock

import numpy as np
from accuracy import _figures
from loaders import Floats

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner import rules
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped, ModelDefaults

CLIPS = (0.5, 0.6, 0.7, 0.85, 1.0)
EPSILONS = (0.3, 1.0, 3.0, 8.0)
HELD_OUT = 10_000


def shapes(chosen: int, tables: int) -> list[tuple[int, int, float, int, float, float]]:
    """Return rows, columns, decay of the spectrum, degrees of freedom (0: signs), flipped labels, size of theta."""
    rng, results = np.random.default_rng(chosen), []
    for _ in range(tables):
        p = int(rng.choice([6, 12, 25, 50, 90]))
        n = min(max(int(p * rng.choice([150, 400, 1000])), 1500), 40_000)
        decay, freedom = float(rng.choice([0, 0.3, 0.6, 1.0])), int(rng.choice([0, 3, 5, 30]))
        results.append(
            (n, p, decay, freedom, float(rng.choice([0, 0, 0.05, 0.15])), float(rng.choice([3, 6, 12, 25])))
        )
    return results


def table(shape: tuple[int, int, float, int, float, float], seed: int) -> tuple[Floats, Floats]:
    """Return rows of norm at most 1 with a constant column, and labels."""
    n, p, decay, freedom, flipped, size = shape
    rng = np.random.default_rng(seed)
    both = (n + HELD_OUT, p)
    raw = rng.choice([-1.0, 1.0], both) if freedom == 0 else rng.standard_t(freedom, both)
    raw *= np.arange(1, p + 1) ** -decay
    raw /= np.quantile(np.linalg.norm(raw, axis=1), 0.9) * math.sqrt(2)
    X = np.column_stack([raw, np.full(len(raw), math.sqrt(0.5))])
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    theta = rng.standard_normal(p + 1)
    theta *= size / np.linalg.norm(theta) * math.sqrt(p / 10)
    labels = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ theta))) ^ (rng.random(len(X)) < flipped)
    return X, labels.astype(float)


def measure(
    X: Floats, y: Floats, epsilon: float, delta: float, clip: float, seeds: int
) -> tuple[float, float]:
    """Return the signal-to-noise ratio, and the mean log-loss on the last rows with this clip."""
    n, observed = len(X) - HELD_OUT, [0.0]

    def fixed_clip(defaults: ModelDefaults, signal: float, pure: bool = False) -> float:
        observed[0] = signal
        return clip

    options: dict[str, Any] = {"adjacency": "replace-one", "data_norm": 1.0, "fit_intercept": False}
    with mock.patch.object(rules, "choose_clip", fixed_clip):
        plan = plan_fit(
            model="logistic", n=n, n_features=X.shape[1], epsilon=epsilon, delta=delta,
            mechanism="noisy-gd" if delta else "auto", **options,
        ).plan  # fmt: skip
    data, loss = ArrayDataset(X[:n], y[:n], plan.problem), plan.problem.loss
    bound = loss.bound if isinstance(loss, Clipped) else 1.0
    losses = [
        _figures((X[n:] @ run_plan(plan, data, s).value)[:, None], y[n:], bound)[1] for s in range(seeds)
    ]
    return observed[0], float(np.mean(losses))


def main() -> None:
    """Measure and print the regret of each rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", type=int, default=1, help="1 chose the rule, 2 confirmed it")
    parser.add_argument("--tables", type=int, default=14)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pure", action="store_true")
    arguments = parser.parse_args()
    cells: list[tuple[float, list[float]]] = []
    for i, shape in enumerate(shapes(arguments.set, arguments.tables)):
        X, y = table(shape, 1000 * arguments.set + i)
        for epsilon in EPSILONS:
            delta = 0.0 if arguments.pure else 1e-5
            results = [measure(X, y, epsilon, delta, clip, arguments.seeds) for clip in CLIPS]
            cells.append((results[0][0], [value for _, value in results]))
    print("| rule | mean regret, % | largest, % |\n|---|---|---|")
    rules_by_name = {
        f"sqrt(signal-to-noise / {u})": lambda s, u=u: math.sqrt(s / u) for u in (50, 100, 150, 200, 400)
    }
    rules_by_name |= {f"jump at {at}": lambda s, at=at: float(s >= at) for at in (50, 100)}
    for name, rule in rules_by_name.items():
        regrets = [100 * (np.interp(min(max(rule(s), 0.5), 1.0), CLIPS, v) / min(v) - 1) for s, v in cells]
        print(f"| {name} | {np.mean(regrets):.2f} | {np.max(regrets):.2f} |")


if __name__ == "__main__":
    main()
