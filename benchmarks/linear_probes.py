"""Linear probes on wide rows: default fits against full-batch DP gradient descent that is tuned on the test set.

Usage: python benchmarks/linear_probes.py cells [--columns 256,768] [--classes 10,100] [--seeds 3] [--search]
       python benchmarks/linear_probes.py kinds [--only heavy,blocks] [--classes 10] [--seeds 3] [--tables 9100]
       python benchmarks/linear_probes.py public [--columns 256] [--public-rows 1000] [--seeds 2] [--tables 9100]
       python benchmarks/linear_probes.py cliff --columns 250,262,1000 [--seeds 4]
       python benchmarks/linear_probes.py images [--features raw,convolutions,scattering:3] [--seeds 2] [--choose]
       python benchmarks/linear_probes.py cost [--seeds 5]

cells: 12 tables of synthetic embeddings (unit rows; class means and noise have amplitudes k^-a) at epsilon 1 and 4,
delta = 1e-6, replace-one. DP gradient descent has momentum .9, slopes clipped to norm 1/4, and the best of 16 pairs
(steps, rate) by its accuracy ON THE TEST SET: all 16 with the first noise, the best three with every noise. The pairs
that were found are part of the cells; --search looks for them again. The standard error of a difference is of what
the same test rows say, and of the noise seeds.
kinds: the same, for tables unlike those: other spectra, classes of unequal frequency, rows off the origin, heavy tails.
public: default fits of rows as they are and in the coordinates of a public sample of the same distribution.
cliff: correlated logistic tables with these numbers of features; the excess of the mean log-loss, on the training rows
over its minimum there and on fresh rows over that of the true probabilities. images: Fashion-MNIST (the Debian package
dataset-fashion-mnist) at delta = 1e-5, add-remove, and digits; --choose tests on a sixth of the training images.
cost: seconds and memory beside scikit-learn. One line of JSON per result.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import _image_features as features
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, xlogy

from dplangevin import DPLogisticRegression
from dplangevin.accounting import conversions as cv

Singles = NDArray[np.float32]
N_TEST, DELTA = 4_000, 1e-6
STEPS, RATES, CLIP, MOMENTUM, N_FINALISTS = (10, 20, 40, 100), (4.0, 16.0, 64.0, 256.0), 0.25, 0.9, 3
FRESH = 9100  # seeds of tables


Pair = tuple[int, float]


class Cell(NamedTuple):
    """A table of synthetic embeddings; the separation gives a linear discriminant about 91% without privacy.

    tuned : the best pairs (steps, rate) of descent on the test set at epsilon 1 and 4.
    """

    decay: float
    columns: int
    classes: int
    rows: int
    separation: float
    tuned: tuple[Pair, Pair] | None = None


CELLS = (
    Cell(0.25, 256, 10, 20_000, 0.793, ((10, 256.0), (100, 16.0))),
    Cell(0.5, 256, 10, 50_000, 0.733, ((100, 64.0), (100, 256.0))),
    Cell(1.0, 256, 10, 20_000, 0.857, ((100, 64.0), (100, 256.0))),
    Cell(0.5, 256, 100, 50_000, 1.003, ((100, 64.0), (100, 256.0))),
    Cell(0.5, 768, 10, 20_000, 0.458, ((40, 64.0), (100, 64.0))),
    Cell(1.0, 768, 10, 50_000, 0.458, ((100, 256.0), (100, 256.0))),
    Cell(0.25, 768, 100, 50_000, 0.580, ((100, 16.0), (40, 256.0))),
    Cell(0.5, 768, 100, 50_000, 0.580, ((100, 64.0), (100, 256.0))),
    Cell(0.25, 2_048, 10, 50_000, 0.286, ((100, 16.0), (40, 256.0))),
    Cell(0.5, 2_048, 10, 20_000, 0.286, ((100, 16.0), (40, 256.0))),
    Cell(1.0, 2_048, 10, 50_000, 0.286, ((100, 64.0), (100, 256.0))),
    Cell(0.5, 2_048, 100, 50_000, 0.392, ((40, 64.0), (100, 256.0))),
)


class Split(NamedTuple):
    """Training rows and labels, test rows and labels, and the number of classes."""

    X: Singles
    y: NDArray[np.int64]
    X_test: Singles
    y_test: NDArray[np.int64]
    classes: int


def embed(cell: Cell, seed: int) -> Split:
    """Return unit rows around class means of norm `separation`; noise of norm about 4 falls off like the means do."""
    rng = np.random.default_rng(seed)
    amplitudes = np.arange(1, cell.columns + 1) ** -cell.decay
    means = rng.standard_normal((cell.classes, cell.columns)) * amplitudes
    means *= cell.separation / np.linalg.norm(means, axis=1, keepdims=True)
    y = rng.integers(0, cell.classes, cell.rows + N_TEST)
    X = rng.standard_normal((len(y), cell.columns), dtype=np.float32)
    X *= (4 * amplitudes / np.linalg.norm(amplitudes)).astype(np.float32)
    X += means[y].astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    n = cell.rows
    return Split(X[:n], y[:n], X[n:], y[n:], cell.classes)


KINDS = (
    "even", "stepped", "imbalanced", "off-centre", "heavy", "unaligned", "two-level", "exponential", "blocks"
)  # fmt: skip


def embed_kind(kind: str, seed: int, classes: int = 10) -> Split:
    """Return unit rows of 256 columns, amplitudes k^-1/2 but for one property; 20,000, or 30,000 of 100 classes.

    even: equal amplitudes; stepped: 1 for 24 columns and .15 for the others; imbalanced: frequencies as 1 / k;
    off-centre: all rows moved by the same vector of half their norm; heavy: noise of a row times a Student t of 3
    degrees of freedom; unaligned: means have equal amplitudes. The separation is the same in units of the noise.
    """
    rows, separation = (20_000, 0.2) if classes == 10 else (30_000, 0.3)
    rng = np.random.default_rng(seed)
    k = np.arange(256)
    amplitudes = {
        "even": np.ones(256),
        "stepped": np.where(k < 24, 1, 0.15),
        "two-level": np.where(k < 128, 1, 0.4),
        "exponential": np.exp(-k / 40),
        "blocks": np.ones(256),
    }.get(kind, (k + 1) ** -0.5)
    spread = 4 * amplitudes / np.linalg.norm(amplitudes)
    means = rng.standard_normal((classes, 256)) * (1.0 if kind == "unaligned" else spread / 4)
    means *= separation * math.sqrt(256) / np.linalg.norm(means / spread, axis=1, keepdims=True)
    shares = 1 / np.arange(1, classes + 1) if kind == "imbalanced" else np.ones(classes)
    y = rng.choice(classes, rows + N_TEST, p=shares / shares.sum())
    X = rng.standard_normal((len(y), 256)) * spread
    if kind == "heavy":
        X *= np.abs(rng.standard_t(3, (len(y), 1)))
    X += means[y]
    if kind == "blocks":
        root = np.linalg.cholesky(0.2 * np.eye(16) + 0.8)
        X = (X.reshape(-1, 16, 16) @ root.T).reshape(-1, 256)
    if kind == "off-centre":
        X += 2 * rng.standard_normal(256) / 16
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return Split(X[:rows], y[:rows], X[rows:], y[rows:], classes)


def run_kinds(kinds: list[str], classes: int, seeds: int, with_peer: bool, first: int) -> None:
    """Measure tables of these kinds, beside the class shares, models without privacy, and tuned descent."""
    from sklearn.linear_model import LogisticRegression

    for kind in kinds:
        split = embed_kind(kind, first + 50 + KINDS.index(kind), classes)
        counts = np.bincount(split.y, minlength=classes)
        plain = LogisticRegression(C=1e3, fit_intercept=False, max_iter=300).fit(split.X, split.y)
        shares = np.log(counts / counts.sum())
        report(
            part="kinds",
            kind=kind,
            constant=round(100 * float((split.y_test == counts.argmax()).mean()), 2),
            constant_loss=round(-float(shares[split.y_test].mean()), 3),
            discriminant=round(fit_discriminant(split), 2),
            logistic=round(accuracy(split, plain.coef_.T), 2),
            logistic_loss=round(log_loss(split, plain.coef_.T), 3),
        )
        for epsilon in (0.5, 1.0, 4.0):
            fits = [fit_default(split, epsilon, seed) for seed in range(seeds)]
            report(
                part="kinds",
                kind=kind,
                classes=classes,
                epsilon=epsilon,
                default=[round(fit[0], 2) for fit in fits],
                loss=round(float(np.mean([log_loss(split, fit[2].coef_.T) for fit in fits])), 3),
                steps=fits[0][2].n_iter_,
            )
            if with_peer:
                peer = compare_with_descent(split, epsilon, [fit[2] for fit in fits], None, seeds)
                report(part="kinds", kind=kind, classes=classes, epsilon=epsilon, what="tuned", **peer)


def log_loss(split: Split, coefficients: Any) -> float:
    """Return the mean log-loss on the test rows."""
    scores = split.X_test @ np.asarray(coefficients, np.float32)
    return float((logsumexp(scores, axis=1) - scores[np.arange(len(scores)), split.y_test]).mean())


def find_correct(split: Split, coefficients: Any, intercepts: Any = 0.0) -> NDArray[np.bool_]:
    """Return which test rows have the largest score for their class."""
    scores = split.X_test @ np.asarray(coefficients, np.float32) + intercepts
    return np.asarray(np.argmax(scores, axis=1) == split.y_test)


def accuracy(split: Split, coefficients: Any, intercepts: Any = 0.0) -> float:
    """Return the percentage of test rows whose largest score is that of their class."""
    return 100 * float(find_correct(split, coefficients, intercepts).mean())


def fit_default(split: Split, epsilon: float, seed: int, **options: Any) -> tuple[float, float, Any]:
    """Return the accuracy of a default fit, its processor seconds, and the model."""
    stated = {"delta": DELTA, "data_norm": 1.0, "classes": list(range(split.classes)), "fit_intercept": False}
    model = DPLogisticRegression(epsilon=epsilon, random_state=seed, **(stated | options))
    start = time.process_time()
    model.fit(split.X, split.y)
    return accuracy(split, model.coef_.T, model.intercept_), time.process_time() - start, model


def fit_discriminant(split: Split) -> float:
    """Return the accuracy of the linear discriminant without privacy, with the better of two ridges on the test set."""
    shares = np.bincount(split.y, minlength=split.classes) / len(split.y)
    means = np.stack([split.X[split.y == k].mean(axis=0) for k in range(split.classes)]).astype(float)
    within = (split.X.T @ split.X).astype(float) / len(split.X) - (means.T * shares) @ means
    values, vectors = np.linalg.eigh(within)
    found = []
    for ridge in (1e-3, 1e-2):
        W = (vectors / (values + ridge * values.mean())) @ (vectors.T @ means.T)
        found.append(accuracy(split, W, np.log(shares) - np.einsum("pk,kp->k", W, means) / 2))
    return max(found)


def descend(
    split: Split, mu: float, changed: float, pair: Pair, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which test rows full-batch DP gradient descent with momentum gets right; `changed` records differ."""
    steps, rate = pair
    one_hot = np.eye(split.classes, dtype=np.float32)[split.y]
    W = velocity = np.zeros((split.X.shape[1], split.classes), np.float32)
    noise = np.float32(changed * CLIP * math.sqrt(steps) / mu)
    for _ in range(steps):
        slopes = split.X @ W
        slopes -= slopes.max(axis=1, keepdims=True)
        np.exp(slopes, out=slopes)
        slopes /= slopes.sum(axis=1, keepdims=True)
        slopes -= one_hot
        lengths = np.sqrt(np.einsum("ij,ij->i", slopes, slopes))
        slopes *= np.minimum(1, CLIP / np.maximum(lengths, 1e-12))[:, None]
        gradient = split.X.T @ slopes + noise * rng.standard_normal(W.shape, dtype=np.float32)
        velocity = np.float32(MOMENTUM) * velocity + gradient / np.float32(len(split.X))
        W = W - np.float32(rate) * velocity
    return find_correct(split, W)


def run_pair(split: Split, mu: float, changed: float, pair: Pair, seed: int) -> NDArray[np.bool_]:
    """Return which test rows are right after descent with this pair and noise."""
    return descend(split, mu, changed, pair, np.random.default_rng([FRESH, *map(int, pair), seed]))


def search_pair(split: Split, mu: float, changed: float, seeds: int) -> Pair:
    """Return the best pair (steps, rate) on the test set."""
    pairs = [(steps, rate) for steps in STEPS for rate in RATES]
    first = {pair: float(run_pair(split, mu, changed, pair, 0).mean()) for pair in pairs}

    def mean(pair: Pair) -> float:
        others = [run_pair(split, mu, changed, pair, seed).mean() for seed in range(1, seeds)]
        return float(np.mean([first[pair], *others]))

    return max(sorted(pairs, key=lambda pair: -first[pair])[:N_FINALISTS], key=mean)


def compare_with_descent(
    split: Split, epsilon: float, models: list[Any], pair: Pair | None, seeds: int
) -> dict[str, Any]:
    """Return accuracies of tuned descent, how far the models are ahead of it, and the standard error of that."""
    mu = cv.gdp_mu(epsilon, DELTA)
    pair = pair or search_pair(split, mu, 2.0, seeds)
    ours = 100 * np.stack([find_correct(split, model.coef_.T, model.intercept_) for model in models])
    theirs = 100 * np.stack([run_pair(split, mu, 2.0, pair, seed) for seed in range(seeds)])
    ahead = ours.mean(axis=0) - theirs.mean(axis=0)
    of_noise = sum(runs.mean(axis=1).var(ddof=1) / len(runs) for runs in (ours, theirs) if len(runs) > 1)
    return {
        "pair": pair,
        "accuracy": [round(float(run.mean()), 2) for run in theirs],
        "ahead": round(float(ahead.mean()), 2),
        "standard_error": round(math.sqrt(ahead.var() / len(ahead) + of_noise), 2),
    }


def report(**found: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(found), flush=True)


def run_cells(
    columns: list[int], classes: list[int], seeds: int, with_peer: bool, is_searched: bool, first: int
) -> None:
    """Measure the cells with these numbers of columns and classes."""
    for number, cell in enumerate(CELLS):
        if cell.columns not in columns or cell.classes not in classes:
            continue
        split = embed(cell, first + number)
        stated = {"part": "cells", **cell._asdict()}
        del stated["tuned"]
        report(**stated, what="discriminant", accuracy=round(fit_discriminant(split), 2))
        for epsilon, pair in zip((1.0, 4.0), cell.tuned or (None, None), strict=True):
            fits = [fit_default(split, epsilon, seed) for seed in range(seeds)]
            report(
                **stated,
                epsilon=epsilon,
                what="default",
                accuracy=[round(fit[0], 2) for fit in fits],
                seconds=round(float(np.mean([fit[1] for fit in fits])), 2),
                steps=fits[0][2].n_iter_,
            )
            if with_peer:
                models = [fit[2] for fit in fits]
                peer = compare_with_descent(split, epsilon, models, None if is_searched else pair, seeds)
                report(**stated, epsilon=epsilon, what="tuned", **peer)


def whiten_publicly(sample: Singles) -> Any:
    """Return a function of rows: coordinates that are white in a public sample, and then norm 1.

    The floor under its eigenvalues is their mean.
    """
    values, vectors = np.linalg.eigh(sample.T.astype(float) @ sample / len(sample))
    basis = (vectors / np.sqrt(np.maximum(values, 0) + values.mean())).astype(np.float32)
    return lambda rows: features.to_unit_rows(rows @ basis)


def run_public(columns: list[int], classes: list[int], n_public: int, seeds: int, first: int) -> None:
    """Measure the same tables with rows as they are and in public coordinates."""
    from sklearn.decomposition import PCA

    for number, cell in enumerate(CELLS):
        if cell.columns not in columns or cell.classes not in classes:
            continue
        split = embed(cell._replace(rows=cell.rows + n_public), first + 70 + number)
        transform = whiten_publicly(split.X[:n_public])
        components = PCA(whiten=True).fit(split.X[:n_public])
        split = split._replace(X=split.X[n_public:], y=split.y[n_public:])
        tables = {
            "rows": split,
            "public": split._replace(X=transform(split.X), X_test=transform(split.X_test)),
            "public, no floor": split._replace(
                X=features.to_unit_rows(components.transform(split.X)),
                X_test=features.to_unit_rows(components.transform(split.X_test)),
            ),
        }
        for epsilon in (1.0, 4.0):
            for name, table in tables.items():
                fits = [fit_default(table, epsilon, seed) for seed in range(seeds)]
                report(
                    part="public",
                    **cell._asdict(),
                    public_rows=n_public,
                    epsilon=epsilon,
                    what=name,
                    accuracy=[round(fit[0], 2) for fit in fits],
                    loss=round(float(np.mean([log_loss(table, fit[2].coef_.T) for fit in fits])), 3),
                )


class BinarySplit(NamedTuple):
    """Training rows and labels, and fresh rows with the true probabilities of the second class."""

    X: Any
    y: Any
    X_fresh: Any
    probabilities: Any


def correlated(kind: str, p: int, seed: int) -> BinarySplit:
    """Return 50,000 rows within the unit ball, and 10,000 fresh ones.

    Neighbours are correlated by .9, or amplitudes are k^-1/2.
    """
    rng = np.random.default_rng(seed)

    def sample(n: int) -> Any:
        X = rng.standard_normal((n, p))
        if kind == "neighbours":
            for j in range(1, p):
                X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(0.19) * X[:, j]
            return X
        return X * np.arange(1, p + 1) ** -0.5

    X = sample(50_000)
    coefficients = rng.standard_normal(p)
    spread = (X @ coefficients).std()
    y = (rng.random(len(X)) < expit(2 * (X @ coefficients) / spread)).astype(int)
    X_fresh = sample(10_000)
    probabilities = expit(2 * (X_fresh @ coefficients) / spread)
    unit = np.quantile(np.linalg.norm(X, axis=1), 0.9)
    for rows in (X, X_fresh):
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), unit)
    return BinarySplit(X, y, X_fresh, probabilities)


def run_cliff(columns: list[int], seeds: int, first: int) -> None:
    """Measure the excess log-loss of default fits with these numbers of features.

    On the training rows over the minimum there, which a wide model reaches only by fitting noise; and on fresh rows
    over that of the true probabilities.
    """
    from sklearn.linear_model import LogisticRegression

    for kind in ("neighbours", "decaying"):
        for p in columns:
            for seed in range(seeds):
                split = correlated(kind, p, first + seed)
                least = LogisticRegression(C=1e4, max_iter=200).fit(split.X, split.y)
                minimum = binary_loss(least, split.X, split.y)
                entropy = -np.mean(xlogy(split.probabilities, split.probabilities)) - np.mean(
                    xlogy(1 - split.probabilities, 1 - split.probabilities)
                )
                stated = {"part": "cliff", "kind": kind, "features": p, "seed": seed}
                fresh = binary_loss(least, split.X_fresh, split.probabilities) - entropy
                report(**stated, what="without privacy", fresh=round(fresh, 5))
                for epsilon in (1.0, 2.0, 4.0, 8.0):
                    model = DPLogisticRegression(
                        epsilon=epsilon, delta=DELTA, data_norm=1.0, classes=[0, 1], random_state=seed
                    )
                    start = time.process_time()
                    model.fit(split.X, split.y)
                    report(
                        **stated,
                        epsilon=epsilon,
                        same_rows=round(binary_loss(model, split.X, split.y) - minimum, 5),
                        fresh=round(binary_loss(model, split.X_fresh, split.probabilities) - entropy, 5),
                        seconds=round(time.process_time() - start, 1),
                    )


def binary_loss(model: Any, X: Any, y: Any) -> float:
    """Return the mean log-loss of a model of two classes; `y` are labels or probabilities of the second class."""
    scores = X @ model.coef_.ravel() + model.intercept_
    return float(np.mean(np.logaddexp(0, scores) - y * scores))


def run_images(
    names: list[str], seeds: int, epsilons: list[float], is_choice: bool, inverse_ridges: list[float]
) -> None:
    """Measure Fashion-MNIST with these features, and digits.

    is_choice : fit to the first five sixths of the training images and test on the others, to choose features.
    inverse_ridges : also fit logistic regression without privacy, with each of these C.
    """
    for name in names:
        try:
            X, y = features.load(name)
        except FileNotFoundError as error:
            report(part="images", features=name, skipped=str(error))
            continue
        n = features.N_TRAIN[name.partition(":")[0]]
        fitted, end = (n * 5 // 6, n) if is_choice else (n, len(y))
        split = Split(X[:fitted], y[:fitted], X[fitted:end], y[fitted:end], 10)
        stated = {"part": "images", "features": name, "columns": X.shape[1], "is_choice": is_choice}
        for epsilon in epsilons:
            options = {"delta": 1e-5, "adjacency": "add-remove"}
            fits = [fit_default(split, epsilon, seed, **options) for seed in range(seeds)]
            report(
                **stated,
                epsilon=epsilon,
                accuracy=[round(fit[0], 2) for fit in fits],
                loss=round(float(np.mean([log_loss(split, fit[2].coef_.T) for fit in fits])), 3),
                seconds=round(float(np.mean([fit[1] for fit in fits])), 1),
                steps=fits[0][2].n_iter_,
            )
        fit_without_privacy(split, inverse_ridges, stated)


def fit_without_privacy(split: Split, inverse_ridges: list[float], stated: dict[str, Any]) -> None:
    """Report scikit-learn's logistic regression on the same features, standardised; each from the one before."""
    from sklearn.linear_model import LogisticRegression

    if not inverse_ridges:
        return
    spread = split.X.std(axis=0) + np.float32(1e-6)
    split = split._replace(X=split.X / spread, X_test=split.X_test / spread)
    model = LogisticRegression(max_iter=200, warm_start=True)
    for inverse_ridge in inverse_ridges:
        start = time.process_time()
        model.set_params(C=inverse_ridge).fit(split.X, split.y)
        report(
            **stated,
            what="without privacy",
            C=inverse_ridge,
            accuracy=round(accuracy(split, model.coef_.T, model.intercept_), 2),
            seconds=round(time.process_time() - start, 1),
            steps=int(model.n_iter_[0]),
        )


def read_memory(name: str) -> int:
    """Return a size of this process, in bytes (Linux)."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":")
    )
    return int(line.split()[1]) * 1024


def run_cost(turns: int) -> None:
    """Measure processor seconds in turns with scikit-learn, and the memory that the first fit adds to the rows.

    60,000 x 768 x 10, epsilon 1.
    """
    from sklearn.linear_model import LogisticRegression

    split = embed(Cell(0.5, 768, 10, 60_000, 0.458), FRESH)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is that of making the table
    before = read_memory("VmRSS")
    fit_default(split, 1.0, 0)
    added = read_memory("VmHWM") - before
    seconds: dict[str, list[float]] = {"default": [], "scikit_learn": []}
    for turn in range(turns):
        seconds["default"].append(round(fit_default(split, 1.0, turn)[1], 2))
        start = time.process_time()
        LogisticRegression().fit(split.X, split.y)
        seconds["scikit_learn"].append(round(time.process_time() - start, 2))
    report(part="cost", **seconds, added_memory_over_rows=round(added / split.X.nbytes, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=("cells", "kinds", "public", "cliff", "images", "cost"))
    parser.add_argument("--columns", default="256,768,2048")
    parser.add_argument("--classes", default="10,100")
    parser.add_argument("--features", default="digits,raw,convolutions,scattering:3")
    parser.add_argument("--epsilons", default="0.5,1,2.7", help="of images")
    parser.add_argument(
        "--choose", action="store_true", help="images: test on a sixth of the training images"
    )
    parser.add_argument("--without-privacy", default="", help="images: values of C of logistic regression")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--public-rows", type=int, default=1_000)
    parser.add_argument("--tables", type=int, default=FRESH, help="seed of the first table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--search", action="store_true", help="search the pairs (steps, rate) of cells again")
    parser.add_argument("--no-peer", action="store_true", help="leave DP gradient descent out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.part == "cells":
        columns, classes = ([int(v) for v in text.split(",")] for text in (options.columns, options.classes))
        peer = not options.no_peer
        run_cells(columns, classes, options.seeds, peer, options.search, options.tables)
    elif options.part == "public":
        columns, classes = ([int(v) for v in text.split(",")] for text in (options.columns, options.classes))
        run_public(columns, classes, options.public_rows, options.seeds, options.tables)
    elif options.part == "kinds":
        for number in map(int, options.classes.split(",")):
            run_kinds(options.only.split(","), number, options.seeds, not options.no_peer, options.tables)
    elif options.part == "cliff":
        run_cliff([int(v) for v in options.columns.split(",")], options.seeds, options.tables)
    elif options.part == "images":
        epsilons, ridges = (
            [float(v) for v in text.split(",") if v] for text in (options.epsilons, options.without_privacy)
        )
        run_images(options.features.split(","), options.seeds, epsilons, options.choose, ridges)
    else:
        run_cost(options.seeds)


if __name__ == "__main__":
    sys.exit(main())
