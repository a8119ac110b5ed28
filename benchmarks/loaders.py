"""Data sets of the accuracy benchmark: rows of norm at most 1, with a constant column as intercept.

Every range and category list is treated as public knowledge. CSV files are read from the directory that the environment
variable DPLANGEVIN_DATA names; the rest comes with scikit-learn or is generated.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split

Floats = NDArray[np.float64]
FILES = {"adult": "adult.csv", "bank": "bank_marketing.csv", "randhie": "randhie.csv"}
FIXED = ("adult", "syn20", "syn100")
REGRESSION = ("syn10", "randhie", "diabetes")


class Split(NamedTuple):
    """Training and test rows."""

    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats


class Unavailable(Exception):
    """Raised when a data set cannot be read; the message says why."""


@cache
def table(name: str) -> pd.DataFrame:
    """Return a CSV file of the data directory."""
    folder = os.environ.get("DPLANGEVIN_DATA")
    if not folder:
        raise Unavailable(f"{name}: DPLANGEVIN_DATA does not name a directory with {FILES[name]}")
    path = Path(folder) / FILES[name]
    if not path.is_file():
        raise Unavailable(f"{name}: {FILES[name]} is not in the directory DPLANGEVIN_DATA names")
    return pd.read_csv(path, keep_default_na=name != "adult")


def unit_rows(features: Any) -> Floats:
    """Return rows with a constant column, scaled to norm 1."""
    rows = np.column_stack([features, np.ones(len(features))])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def to_range(features: Any, low: Any, high: Any) -> Any:
    """Map [low, high] to [-1, 1]."""
    return 2.0 * (features - low) / np.where(high > low, high - low, 1.0) - 1.0


def _adult() -> Split:
    data = table("adult")
    numbers = np.column_stack(
        [
            data.age / 90,
            data.education_num / 16,
            np.log1p(data.capital_gain) / np.log1p(99999),
            np.log1p(data.capital_loss) / np.log1p(4356),
            data.hours_per_week / 99,
        ]
    )
    names = ["workclass", "marital_status", "occupation", "relationship", "race", "sex"]
    rows = unit_rows(np.column_stack([numbers * 2.0 - 1.0, pd.get_dummies(data[names]).to_numpy(float)]))
    labels, train = (data.income == ">50K").to_numpy(int), (data.split == "train").to_numpy()
    return Split(rows[train], labels[train], rows[~train], labels[~train])


def _bank(seed: int) -> Split:
    data = table("bank")
    names = ["job", "marital", "education", "default", "housing", "loan", "contact", "month", "poutcome"]
    numbers = np.column_stack(
        [
            to_range(data.age, 18, 95),
            to_range(np.clip(data.balance, -5000, 20000), -5000, 20000),
            to_range(data.day, 1, 31),
            to_range(np.clip(data.campaign, 1, 20), 1, 20),
            to_range(np.clip(data.pdays, -1, 400), -1, 400),
            to_range(np.clip(data.previous, 0, 20), 0, 20),
        ]
    )
    rows = unit_rows(np.column_stack([numbers, pd.get_dummies(data[names]).to_numpy(float)]))
    return _split(rows, (data.y == "yes").to_numpy(int), seed)


def _synthetic(n: int, p: int) -> Split:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n + 10_000, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    weights = rng.standard_normal(p)
    weights *= 4.0 * np.sqrt(p) / np.linalg.norm(weights)
    labels = (rng.random(n + 10_000) < 1 / (1 + np.exp(-rows @ weights))).astype(int)
    return Split(rows[:n], labels[:n], rows[n:], labels[n:])


def _split(rows: Any, labels: Any, seed: int, stratify: bool = True) -> Split:
    X, X_test, y, y_test = train_test_split(
        rows, labels, test_size=0.25, random_state=seed, stratify=labels if stratify else None
    )
    return Split(X, y, X_test, y_test)


def _regression(name: str, seed: int) -> Split:
    """Return features in [-1, 1]^p without a constant column, target in [-1, 1]."""
    if name == "randhie":
        data = table("randhie")
        features = data.drop(columns="mdvis").to_numpy(float)
        features = to_range(features, features.min(0), features.max(0))
        target = 2.0 * np.log1p(data.mdvis.to_numpy(float)) / np.log1p(77) - 1.0
    elif name == "syn10":
        rng = np.random.default_rng(0)
        features = rng.uniform(-1, 1, (20_000, 10))
        weights = rng.standard_normal(10)
        weights /= np.abs(weights).sum()
        target = np.clip(features @ weights + 0.1 * rng.standard_normal(20_000), -1, 1)
    else:
        bunch = datasets.load_diabetes()
        features = to_range(bunch.data, bunch.data.min(0), bunch.data.max(0))
        target = to_range(bunch.target, 25, 346)
    return _split(features, target, seed, stratify=False)


def load(name: str, seed: int = 0) -> Split:
    """Return the split of a data set; the seed matters only where the split is random."""
    if name == "adult":
        return _adult()
    if name == "bank":
        return _bank(seed)
    if name == "syn20":
        return _synthetic(20_000, 20)
    if name == "syn100":
        return _synthetic(50_000, 100)
    if name in REGRESSION:
        return _regression(name, seed)
    if name == "breast_cancer":
        bunch = datasets.load_breast_cancer()
        return _split(
            unit_rows(to_range(bunch.data, bunch.data.min(0), bunch.data.max(0))), bunch.target, seed
        )
    if name in ("digits8", "digits10"):
        bunch = datasets.load_digits()
        labels = (bunch.target == 8).astype(int) if name == "digits8" else bunch.target
        return _split(unit_rows(bunch.data / 16), labels, seed)
    if name == "fair":
        raise Unavailable("fair: the data of statsmodels are not shipped with this benchmark")
    raise ValueError(f"unknown data set {name!r}")
