"""Default fits of every model against a constant released with the same budget, on tables where little can be learned.

Usage: python benchmarks/against_constant.py [--seeds 20] [--rows 300,1000,3000] [--models ridge,svc] >> cells.jsonl
       python benchmarks/against_constant.py --show cells.jsonl

Eight columns, replace-one; every seed draws a new table, new noise and 4,000 new rows, on which both losses are taken.
The constant is a noisy mean (squares, counts), noisy shares (classes), a quantile by the exponential mechanism
(quantile, Huber), or the better class by its noisy share (hinge).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from loaders import Floats
from rare_labels import holm_rejections
from scipy.special import expit, softmax, xlogy
from scipy.stats import norm

from dplangevin import (
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
)
from dplangevin.accounting import conversions as cv

KINDS = ("skewed", "wide", "noise", "heavy", "off-center", "collinear")
MODELS = ("logistic", "svc", "multinomial", "ridge", "huber", "quantile", "poisson", "additive")
EPSILONS, DELTAS = (0.1, 0.5, 1.0, 8.0), (1e-6, 0.0)
N_COLUMNS, N_TEST, FRESH = 8, 4_000, 32_501
QUANTILE, SHARES, SHARE = 0.8, (0.8, 0.14, 0.05, 0.01), 0.12
SIGNAL = 0.5
"""Standard deviation of the scores, over that of the errors where there are errors."""


class Table:
    """Rows in [-1, 1]^p, scores of standard deviation SIGNAL (0 without signal), and how far bounds are too wide."""

    def __init__(self, kind: str, n: int, rng: np.random.Generator) -> None:
        shape = (n + N_TEST, N_COLUMNS)
        Z = rng.standard_normal(shape)
        if kind == "skewed":
            Z = np.minimum(np.exp(Z), 20.0)
        elif kind == "heavy":
            Z = np.clip(rng.standard_t(2.5, size=shape), -20, 20)
        elif kind == "collinear":
            Z = 0.98 * Z[:, :1] + 0.2 * Z
        scores = (Z - Z.mean(axis=0)) / Z.std(axis=0) @ rng.standard_normal(N_COLUMNS)
        self.scores = 0.0 * scores if kind == "noise" else SIGNAL * scores / scores.std()
        X = np.clip(Z / (20.0 if kind in ("skewed", "heavy") else 4.0), -1, 1)
        self.X = 0.25 * X + 0.7 if kind == "off-center" else X
        self.kind, self.n, self.width = kind, n, 10.0 if kind == "wide" else 1.0
        errors = rng.standard_t(2, size=len(X)) if kind == "heavy" else rng.standard_normal(len(X))
        self.numbers = np.clip(0.1 * (self.scores + errors) + (0.7 if kind == "off-center" else 0.0), -1, 1)

    @property
    def data_norm(self) -> float:
        return float(self.width * N_COLUMNS**0.5)


def noisy(
    value: Floats, sensitivity: float, sensitivity1: float, epsilon: float, delta: float, rng: Any
) -> Floats:
    """Return sums with the noise that their L2 or L1 sensitivity needs."""
    if delta:
        return np.asarray(
            value + sensitivity / cv.gdp_mu(epsilon, delta) * rng.standard_normal(np.shape(value))
        )
    return np.asarray(value + rng.laplace(scale=sensitivity1 / epsilon, size=np.shape(value)))


def noisy_quantile(y: Floats, level: float, low: float, high: float, epsilon: float, rng: Any) -> float:
    """Return a quantile by the exponential mechanism: uniform within an interval between neighbours."""
    edges = np.concatenate([[low], np.sort(y), [high]])
    scores = -np.abs(np.arange(len(y) + 1) - level * len(y)) * epsilon / 2 + np.log(
        np.maximum(np.diff(edges), 1e-300)
    )
    at = rng.choice(len(scores), p=softmax(scores))
    return float(rng.uniform(edges[at], edges[at + 1]))


def noisy_shares(y: Floats, n_classes: int, epsilon: float, delta: float, rng: Any) -> Floats:
    """Return positive shares of the classes from noisy counts."""
    counts = np.maximum(
        noisy(np.bincount(y.astype(int), minlength=n_classes), 2**0.5, 2.0, epsilon, delta, rng), 0.5
    )
    return np.asarray(counts / counts.sum())


def log_loss(y: Floats, probabilities: Floats) -> float:
    return float(-np.log(np.clip(probabilities[np.arange(len(y)), y.astype(int)], 1e-12, 1)).mean())


def deviance(y: Floats, means: Floats) -> float:
    """Return half the mean Poisson deviance."""
    means = np.maximum(means, 1e-12)
    return float(np.mean(xlogy(y, y / means) - y + means))


def hinge(y: Floats, scores: Floats) -> float:
    """Return the hinge loss with the quadratic corner of the estimator."""
    gap = np.maximum(1 - (2 * y - 1) * scores, 0.0)
    return float(np.where(gap > 1, gap - 0.5, gap**2 / 2).mean())


def squares(y: Floats, predicted: Floats) -> float:
    return float(np.mean((y - predicted) ** 2))


def huber(y: Floats, predicted: Floats, transition: float = 0.2) -> float:
    distance = np.abs(y - predicted)
    return float(
        np.where(distance <= transition, distance**2 / 2, transition * (distance - transition / 2)).mean()
    )


def pinball(y: Floats, predicted: Floats) -> float:
    return float(np.maximum(QUANTILE * (y - predicted), (QUANTILE - 1) * (y - predicted)).mean())


def compare(model: str, kind: str, n: int, epsilon: float, delta: float, seed: int) -> tuple[float, float]:
    """Return the loss of a default fit and of the private constant on new rows."""
    cell = [FRESH, MODELS.index(model), KINDS.index(kind), n, int(100 * epsilon), int(delta > 0), seed]
    rng = np.random.default_rng(cell)
    table = Table(kind, n, rng)
    X, new, budget = table.X[:n], table.X[n:], (epsilon, delta)
    common: dict[str, Any] = {
        "data_norm": table.data_norm,
        "epsilon": epsilon,
        "delta": delta,
        "random_state": rng,
    }
    if model in ("logistic", "svc"):
        y = (rng.random(len(table.X)) < expit(np.log(SHARE / (1 - SHARE)) + table.scores)).astype(float)
        share = noisy_shares(y[:n], 2, *budget, rng)
        if model == "logistic":
            fit = DPLogisticRegression(classes=[0, 1], **common).fit(X, y[:n])
            constant = np.broadcast_to(share, (N_TEST, 2))
            return log_loss(y[n:], fit.predict_proba(new)), log_loss(y[n:], constant)
        fit = DPLinearSVC(classes=[0, 1], **common).fit(X, y[:n])
        # the best constant score u in [-1, 1] has the slope s (1 + u) (negatives) - (1 - u) (positives) = 0
        return hinge(y[n:], fit.decision_function(new)), hinge(y[n:], np.full(N_TEST, share[1] - share[0]))
    if model == "multinomial":
        logits = np.log(SHARES) + np.outer(table.scores, [0.0, 1.0, -1.0, 2.0])
        y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1).astype(float)
        fit = DPLogisticRegression(classes=[0, 1, 2, 3], **common).fit(X, y[:n])
        constant = np.broadcast_to(noisy_shares(y[:n], 4, *budget, rng), (N_TEST, 4))
        return log_loss(y[n:], fit.predict_proba(new)), log_loss(y[n:], constant)
    if model == "poisson":
        top = 10.0 * table.width
        rate = (6.0 if kind == "off-center" else 1.5) * np.exp(
            table.scores - SIGNAL**2 / 2 * (kind != "noise")
        )
        if kind == "heavy":
            rate *= rng.gamma(0.5, 2.0, len(rate))
        y = np.clip(rng.poisson(np.minimum(rate, 1e6)), 0, top).astype(float)
        fit = DPPoissonRegressor(target_bounds=(0, top), **common).fit(X, y[:n])
        mean = float(np.clip(noisy(y[:n].sum(), top, top, *budget, rng) / n, 0.5 / n, top))
        return deviance(y[n:], fit.predict(new)), deviance(y[n:], np.full(N_TEST, mean))
    y, bound = table.numbers, table.width
    common["target_bounds"] = (-bound, bound)
    if model in ("huber", "quantile"):
        level = QUANTILE if model == "quantile" else 0.5
        constant = np.full(N_TEST, noisy_quantile(y[:n], level, -bound, bound, epsilon, rng))
        loss: Callable[[Floats, Floats], float] = pinball if model == "quantile" else huber
        estimator: Any = (
            DPQuantileRegressor(quantile=QUANTILE, **common)
            if model == "quantile"
            else DPHuberRegressor(transition=0.2, **common)
        )
        return loss(y[n:], estimator.fit(X, y[:n]).predict(new)), loss(y[n:], constant)
    mean = float(np.clip(noisy(y[:n].sum(), 2 * bound, 2 * bound, *budget, rng) / n, -bound, bound))
    if model == "ridge":
        fit = DPRidge(**common).fit(X, y[:n])
    else:
        del common["data_norm"]
        columns = {f"x{j}": {"range": [-table.width, table.width]} for j in range(N_COLUMNS)}
        fit = DPAdditiveRegressor(schema={"columns": columns, "missing": "never"}, **common).fit(X, y[:n])
    return squares(y[n:], fit.predict(new)), squares(y[n:], np.full(N_TEST, mean))


def measure(models: list[str], kinds: list[str], rows: list[int], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the cells: mean losses, and the mean and standard error of their differences."""
    for n in rows:
        for model in models:
            for kind in kinds:
                for delta in DELTAS:
                    for epsilon in EPSILONS:
                        pairs = [compare(model, kind, n, epsilon, delta, seed) for seed in range(seeds)]
                        fits, constants = np.array(pairs).T
                        yield {
                            "model": model, "kind": kind, "n": n, "epsilon": epsilon, "delta": delta,
                            "fit": fits.mean(), "constant": constants.mean(), "difference": (fits - constants).mean(),
                            "error": (fits - constants).std(ddof=1) / seeds**0.5,
                        }  # fmt: skip


def show(lines: list[dict[str, Any]]) -> None:
    """Print the cells above the constant by 3 standard errors, the worst first, and the rest in a sentence."""
    z = np.array([line["difference"] / max(line["error"], 1e-300) for line in lines])
    rejected = holm_rejections(norm.sf(z))
    ratios = np.array([line["fit"] / line["constant"] for line in lines])
    print("| model | table | n | epsilon | delta | loss of the fit | of the constant | ratio | z |")
    print("|---|---|---|---|---|---|---|---|---|")
    for index in np.argsort(-ratios):
        if not z[index] > 3:
            continue
        line = lines[index]
        print(
            f"| {line['model']} | {line['kind']} | {line['n']} | {line['epsilon']:g} | {line['delta']:g} "
            f"| {line['fit']:.4f} | {line['constant']:.4f} | {ratios[index]:.3f} | {z[index]:+.1f}"
            f"{' (Holm)' if rejected[index] else ''} |"
        )
    print(
        f"\n{len(lines)} cells; above the private constant by 3 standard errors: {int((z > 3).sum())}, "
        f"by Holm at 5%: {int(rejected.sum())}; below it by 3: {int((z < -3).sum())}."
    )


def main() -> None:
    """Measure cells, a line of JSON for each, or print those above the constant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", default="300,1000,3000,30000")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--show", nargs="*", help="files of measured lines, to print")
    options = parser.parse_args()
    if options.show:
        show([json.loads(line) for name in options.show for line in Path(name).read_text().splitlines()])
        return
    warnings.simplefilter("ignore")
    rows = [int(n) for n in options.rows.split(",")]
    for line in measure(options.models.split(","), options.kinds.split(","), rows, options.seeds):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
