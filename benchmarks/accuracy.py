"""Accuracy of the default fits, nothing tuned on the data, compared with other libraries.

Usage: python benchmarks/accuracy.py [--data NAME ...] [--guarantee NAME ...] [--seeds 50] [--output FILE]

Prints Markdown tables. Every fit is planned from public quantities and run by the library's own mechanism. Data sets
with a fixed split are fitted with `seeds` noise seeds, the others on 10 splits with seeds / 10 each. "behind" names the
figures in which a peer is ahead by more than two standard errors of the difference; peers were measured over 10 seeds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import _cells as cells
import numpy as np
from loaders import FIXED, REGRESSION, Floats, Split, Unavailable, load
from scipy.special import expit, log_softmax

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Clipped

DELTA = 1e-5
SPLITS = 10
PEER_SEEDS = 10


def splits(name: str, seeds: int) -> Iterator[tuple[Split, range]]:
    """Yield the splits of a data set, each with its noise seeds."""
    if name in FIXED:
        yield load(name), range(seeds)
        return
    each = math.ceil(seeds / SPLITS)
    for seed in range(min(SPLITS, seeds)):
        yield load(name, seed), range(seed * each, (seed + 1) * each)


def classification(name: str, guarantee: str, epsilon: float, seeds: int, mechanism: str = "auto") -> Floats:
    """Return (accuracy %, log-loss) of every fit."""
    results = []
    for split, noise in splits(name, seeds):
        classes = int(split.y.max()) + 1
        plan = plan_fit(
            model="logistic" if classes == 2 else "multinomial",
            n_classes=classes,
            n=len(split.X),
            n_features=split.X.shape[1],
            epsilon=epsilon,
            delta=0.0 if guarantee == "pure" else DELTA,
            adjacency="add-remove" if guarantee == "add-remove" else "replace-one",
            data_norm=1.0,
            fit_intercept=False,
            mechanism=mechanism,
        ).plan
        data, loss = ArrayDataset(split.X, split.y, plan.problem), plan.problem.loss
        bound = loss.bound if isinstance(loss, Clipped) else 1.0
        for seed in noise:
            theta = run_plan(plan, data, seed).value.reshape(split.X.shape[1], -1)
            results.append(_figures(split.X_test @ theta, split.y_test, bound))
    return np.array(results)


def _figures(scores: Floats, labels: Floats, bound: float) -> tuple[float, float]:
    rows = np.arange(len(labels))
    if scores.shape[1] == 1:  # the link of a clipped slope: odds r(-z) / r(z)
        probabilities = np.minimum(bound, expit(np.column_stack([-scores, scores])))
        logs = np.log(probabilities / probabilities.sum(axis=1, keepdims=True))
    else:
        logs = log_softmax(scores, axis=1)
    hits = logs.argmax(axis=1) == labels if scores.shape[1] > 1 else (scores[:, 0] > 0) == (labels > 0)
    return 100 * float(hits.mean()), -float(logs[rows, labels.astype(int)].mean())


def regression(name: str, epsilon: float, seeds: int) -> Floats:
    """Return the test R2 of every fit."""
    results = []
    for split, noise in splits(name, seeds):
        plan = plan_fit(
            model="ridge",
            n=len(split.X),
            n_features=split.X.shape[1],
            epsilon=epsilon,
            delta=DELTA,
            adjacency="add-remove",
            data_norm=math.sqrt(split.X.shape[1]),
            fit_intercept=True,
        ).plan
        data = ArrayDataset(split.X, split.y, plan.problem)
        for seed in noise:
            theta = run_plan(plan, data, seed).value
            errors = split.X_test @ theta[:-1] + theta[-1] - split.y_test
            results.append(1 - float((errors**2).mean() / split.y_test.var()))
    return np.array(results)


def _error(values: Floats) -> Floats:
    return np.asarray(values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def find_losses(name: str, guarantee: str, index: int, values: Floats) -> str:
    """Return in which figures a peer is ahead beyond noise and rounding; empty when in none."""
    mean = values.mean(axis=0)
    slack = 2 * _error(values) * math.sqrt(1 + len(values) / PEER_SEEDS) + (0.005, 0.0005)
    peers = {"tuned": _entry(cells.TUNED.get((name, guarantee), ()), index)}
    if guarantee == "pure":
        peers["untuned"] = _entry(cells.UNTUNED.get(name, ()), index)
    ahead = []
    for who, (accuracy, loss) in peers.items():
        if accuracy is not None and mean[0] < accuracy - slack[0]:
            ahead.append(f"accuracy ({who})")
        if loss is not None and mean[1] > loss + slack[1]:
            ahead.append(f"log-loss ({who})")
    return ", ".join(ahead)


def _entry(pairs: cells.Pairs, index: int) -> cells.Pair:
    return pairs[index] if index < len(pairs) else (None, None)


def _pair(pair: cells.Pair) -> str:
    texts = [
        "" if pair[0] is None else f"{pair[0]:.2f}",
        "" if pair[1] is None else f"{pair[1]:.3f}",
    ]
    return " / ".join(text for text in texts if text)


def classification_table(name: str, guarantee: str, seeds: int) -> str:
    """Return the Markdown table of one data set under one guarantee."""
    lines = ["| epsilon | tuned peer | untuned peer | dplangevin | behind |", "|---|---|---|---|---|"]
    for index, epsilon in enumerate(cells.EPSILONS):
        values = classification(name, guarantee, epsilon, seeds)
        mean, error = values.mean(axis=0), _error(values)
        tuned = _pair(_entry(cells.TUNED.get((name, guarantee), ()), index))
        untuned = _pair(_entry(cells.UNTUNED.get(name, ()), index)) if guarantee == "pure" else ""
        ours = f"{mean[0]:.2f} ± {error[0]:.2f} / {mean[1]:.4f} ± {error[1]:.4f}"
        behind = find_losses(name, guarantee, index, values)
        lines.append(f"| {epsilon:g} | {tuned} | {untuned} | {ours} | {behind} |")
    return f"### {name}, {guarantee}\n\n" + "\n".join(lines)


def mechanism_table(name: str, mechanism: str, seeds: int) -> str:
    """Return the Markdown table of one mechanism beside the default fit, replace-one."""
    lines = [f"| epsilon | {mechanism} | default |", "|---|---|---|"]
    for epsilon in cells.EPSILONS:
        texts = []
        for which in (mechanism, "auto"):
            values = classification(name, "replace-one", epsilon, seeds, which)
            mean, error = values.mean(axis=0), _error(values)
            texts.append(f"{mean[0]:.2f} ± {error[0]:.2f} / {mean[1]:.4f} ± {error[1]:.4f}")
        lines.append(f"| {epsilon:g} | {' | '.join(texts)} |")
    return f"### {name}, {mechanism} beside the default fit, replace-one\n\n" + "\n".join(lines)


def regression_table(name: str, seeds: int) -> str:
    """Return the Markdown table of one regression data set, add-remove."""
    lines = ["| epsilon | Analyze Gauss | dplangevin |", "|---|---|---|"]
    for epsilon, peer in zip(cells.RIDGE_EPSILONS, cells.RIDGE_PEER[name], strict=True):
        values = regression(name, epsilon, seeds)
        lines.append(f"| {epsilon:g} | {peer:g} | {values.mean():.4f} ± {float(_error(values)):.4f} |")
    return f"### {name}, test R2, add-remove\n\n" + "\n".join(lines)


def tables(names: Sequence[str], guarantees: Sequence[str], seeds: int) -> Iterator[str]:
    """Yield every requested table; data sets that cannot be read are reported."""
    for name in names:
        try:
            if name in REGRESSION:
                yield regression_table(name, seeds)
                continue
            load(name)
            for guarantee in ("add-remove",) if name == "digits10" else guarantees:
                yield classification_table(name, guarantee, seeds)
        except Unavailable as reason:
            yield f"### {name}\n\nSkipped: {reason}."


def main() -> None:
    """Measure and print."""
    every = (*cells.CLASSIFICATION, *REGRESSION)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=every, default=every)
    parser.add_argument("--guarantee", nargs="+", choices=cells.GUARANTEES, default=cells.GUARANTEES)
    parser.add_argument("--seeds", type=int, default=50, help="fits per cell")
    parser.add_argument("--output", type=Path, help="also append the tables to this file")
    parser.add_argument("--mechanism", help="compare this mechanism with the default fit instead")
    options = parser.parse_args()
    texts = (
        tables(options.data, options.guarantee, max(options.seeds, 2))
        if options.mechanism is None
        else (mechanism_table(name, options.mechanism, max(options.seeds, 2)) for name in options.data)
    )
    for text in texts:
        print(text + "\n", flush=True)
        if options.output is not None:
            with options.output.open("a", encoding="utf-8") as file:
                file.write(text + "\n\n")


if __name__ == "__main__":
    main()
