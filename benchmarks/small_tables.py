"""Default classifiers of a few hundred rows, as a user fits them, beside the class shares and a fit without privacy.

Usage: python benchmarks/small_tables.py [--splits 8] [--tables NAME ...]

Prints the Markdown table of ACCURACY.md, section "Few rows". Columns are standardised and the norm is the 90% quantile
of the row lengths, as if both were public. Each split has 70% of the rows for training, and one seed of noise.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dplangevin import DPLogisticRegression

Floats = NDArray[np.float64]
EPSILONS, DELTAS = (0.5, 1.0, 3.0), (1e-5, 0.0)
GENERATED = (
    # name, rows, columns, standard deviation of the scores, their mean, correlation of the columns
    ("strong", 600, 8, 2.0, 0.3, 0.0),
    ("correlated", 1200, 30, 1.0, 0.0, 0.3),
    ("no signal", 800, 15, 0.0, 0.0, 0.3),
    ("no signal, 30%", 700, 6, 0.0, -0.85, 0.2),
    ("8% positives", 1500, 10, 1.5, -2.5, 0.0),
)


def tables() -> Iterator[tuple[str, Floats, NDArray[np.int64]]]:
    """Yield name, rows and labels of each table."""
    yield "breast cancer", *datasets.load_breast_cancer(return_X_y=True)
    wine, kind = datasets.load_wine(return_X_y=True)
    yield "wine, class 1", wine, (kind == 1).astype(int)
    yield "wine, three classes", wine, kind
    yield "iris, three classes", *datasets.load_iris(return_X_y=True)
    images, digits = datasets.load_digits(return_X_y=True)
    for one, other in ((3, 8), (4, 9), (1, 7)):
        rows = (digits == one) | (digits == other)
        yield f"digits {one} and {other}", images[rows], (digits[rows] == one).astype(int)
    rng = np.random.default_rng(909)
    for name, n, p, deviation, mean, correlation in GENERATED:
        X = np.sqrt(1 - correlation) * rng.standard_normal((n, p))
        X += np.sqrt(correlation) * rng.standard_normal((n, 1))
        scores = X @ (rng.standard_normal(p) + (0.5 if correlation else 0.0))
        scores = deviation * scores / scores.std() + mean
        yield name, X, (rng.random(n) < 1 / (1 + np.exp(-scores))).astype(int)


def measure(X: Floats, y: NDArray[np.int64], epsilon: float, delta: float, splits: int) -> Floats:
    """Return accuracy and log-loss, less that of the exact class shares, of each split."""
    classes, norm = np.unique(y), float(np.quantile(np.linalg.norm(X, axis=1), 0.9))
    results = []
    for seed in range(splits):
        order = np.random.default_rng(100 + seed).permutation(len(X))
        train, test = np.split(order, [round(0.7 * len(X))])
        shares = np.bincount(y[train], minlength=len(classes)) / len(train)
        model = DPLogisticRegression(
            epsilon=epsilon, delta=delta, data_norm=norm, classes=list(classes), random_state=seed
        ).fit(X[train], y[train])
        loss = log_loss(y[test], model.predict_proba(X[test]), labels=classes)
        results.append((model.score(X[test], y[test]), loss + np.log(shares[y[test]]).mean()))
    return np.array(results)


def main() -> None:
    """Print a row for each table, delta and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--tables", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS)
    print(f"| table | rows x columns | largest class | not private | delta | {cells} |")
    print("|" + "---|" * (5 + len(EPSILONS)))
    for name, rows, y in tables():
        if options.tables and name not in options.tables:
            continue
        X = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-9)
        X = X[:, rows.std(axis=0) > 0]
        n = round(0.7 * len(X))
        plain = [
            LogisticRegression(max_iter=2000)
            .fit(X[order[:n]], y[order[:n]])
            .score(X[order[n:]], y[order[n:]])
            for order in (
                np.random.default_rng(100 + seed).permutation(len(X)) for seed in range(options.splits)
            )
        ]
        for delta in DELTAS:
            texts = []
            for epsilon in EPSILONS:
                found = measure(X, y, epsilon, delta, options.splits)
                error = found[:, 1].std(ddof=1) / np.sqrt(len(found))
                texts.append(f"{found[:, 0].mean():.1%} / {found[:, 1].mean():+.3f} ± {error:.3f}")
            shape = f"{n} x {X.shape[1]}"
            largest = np.bincount(y).max() / len(y)
            print(
                f"| {name} | {shape} | {largest:.1%} | {np.mean(plain):.1%} | {delta:g} | {' | '.join(texts)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
