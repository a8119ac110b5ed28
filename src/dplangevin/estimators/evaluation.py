"""Budgeted evaluation: scores and choices of models on private records, each with its cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._intervals import half_width, proportion_interval
from dplangevin.estimators._metrics import (
    ReliabilityBin,
    area_under_curve,
    bin_edges,
    histogram,
    losses,
    reliability,
)
from dplangevin.estimators._pipeline import learned_steps
from dplangevin.mechanisms.noisy_sums import SumsRelease, release_best, release_sums
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.spender import Spender
from dplangevin.privacy.theorems.noisy_max import calibrated_max
from dplangevin.privacy.theorems.noisy_sums import NoisySums, SumNoise, calibrated_sums
from dplangevin.problem.constants import ADJACENCIES, Adjacency

__all__ = ["PrivateScore", "PrivateSelection", "learned_steps", "private_score", "private_selection"]

METRICS = ("accuracy", "log-loss", "squared-error", "auc", "calibration")
PER_RECORD = ("accuracy", "log-loss", "squared-error")
LOG_LOSS_CAP = 5.0
GRID = 2**16  # losses are whole multiples of cap / GRID, so that integer noise can be used
MOMENT_SHARE = 0.2  # of the budget, for the second moment of a loss


@dataclass(frozen=True, kw_only=True)
class PrivateScore:
    """A released score.

    Parameters
    ----------
    value : the noisy metric. interval : covers the metric on the population with probability `level`, counting both
        the sampling of the records and the noise.
    guarantee : what computing it cost the people in X, y. The model's own guarantee is separate.
    seeded : the noise came from a user's seed; whoever knows it can undo the noise.
    cap : per-record losses were cut off here. table : the reliability table of metric="calibration".
    """

    metric: str
    value: float
    interval: tuple[float, float]
    level: float
    guarantee: Guarantee
    seeded: bool
    cap: float | None = None
    table: tuple[ReliabilityBin, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrivateSelection:
    """The index of the chosen model, and what choosing cost (fitting the models is not counted here)."""

    index: int
    metric: str
    guarantee: Guarantee
    seeded: bool


def private_score(
    model: Any,
    X: Any,
    y: Any,
    *,
    metric: str = "accuracy",
    epsilon: float,
    delta: float = 0.0,
    adjacency: str = "replace-one",
    cap: float | None = None,
    bins: int | Sequence[float] | None = None,
    level: float = 0.95,
    max_rows_per_person: int = 1,
    ledger: Spender | None = None,
    random_state: Any = None,
) -> PrivateScore:
    """Score a fitted model on private records under a stated guarantee.

    accuracy, log-loss and squared-error release one noisy sum of losses in [0, cap] (two sums under add-remove, where
    the number of records is private); auc and calibration release one noisy histogram of scores by label.

    Parameters
    ----------
    model : fitted, with predict (accuracy, squared-error), predict_proba (log-loss, calibration) and classes_.
    metric : "accuracy", "log-loss", "squared-error", "auc" or "calibration" (the last two for two classes).
    epsilon, delta : the promise; with delta > 0 Gaussian noise is used where it is smaller.
    adjacency : "replace-one" (the number of records is public) or "add-remove".
    cap : per-record loss beyond which it is cut off; 5 for log-loss, must be stated for squared-error.
    bins : number of bins (32 for auc, 10 for calibration), or public edges from 0 to 1.
    level : of the interval.
    max_rows_per_person : the promise covers all rows of a person who owns at most so many.
    ledger : a Spender that is charged before the records are read.
    random_state : None draws from the operating system; a seed voids the promise against those who know it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2))
    >>> y = X[:, 0] + 0.3 * rng.standard_normal(4000) > 0
    >>> model = LogisticRegression().fit(X[:2000], y[:2000])
    >>> score = private_score(model, X[2000:], y[2000:], epsilon=0.5, random_state=0)
    >>> bool(score.interval[0] < 0.88 < score.interval[1]), round(score.guarantee.epsilon(), 6)
    (True, 0.5)
    """
    _check.choice("metric", metric, METRICS)
    _check.open_unit("level", level)
    kind = _check.choice("adjacency", adjacency, ADJACENCIES)
    cap = _cap(metric, cap)
    edges = bin_edges((10 if metric == "calibration" else 32) if bins is None else bins)
    _check_model(model, metric)
    labels = _labels(X, y)
    plan = _plan(metric, len(edges) - 1, epsilon, delta, kind, max_rows_per_person)
    plan = plan.with_assumptions(*_words(model, random_state, kind, metric, cap))

    def sums() -> list[NDArray[np.float64]]:
        if metric in PER_RECORD:
            return _loss_sums(losses(model, X, labels, metric, cap), plan)
        return [histogram(model, X, labels, edges)]

    release = release_sums(plan, sums, random_state, ledger=ledger)
    table: tuple[ReliabilityBin, ...] = ()
    if metric in PER_RECORD:
        value, interval = _mean_loss(release, len(labels), cap, level)
    elif metric == "auc":
        value, interval = area_under_curve(release.values[0], *_noise(plan), level)
    else:
        value, interval, table = reliability(release.values[0], edges, *_noise(plan), level)
    return PrivateScore(
        metric=metric,
        value=value,
        interval=interval,
        level=level,
        guarantee=plan.guarantee.group(max_rows_per_person),
        seeded=release.seeded,
        cap=cap if metric in ("log-loss", "squared-error") else None,
        table=table,
    )


def private_selection(
    models: Sequence[Any],
    X: Any,
    y: Any,
    *,
    metric: str = "accuracy",
    epsilon: float,
    adjacency: str = "replace-one",
    cap: float | None = None,
    max_rows_per_person: int = 1,
    ledger: Spender | None = None,
    random_state: Any = None,
) -> PrivateSelection:
    """Choose one of a few fitted models by its score on private records, with pure epsilon in all.

    The model with the best metric is the likeliest; the chosen one is worse than the best by more than
    2 unit log(n_models / t) / epsilon records (half of it under add-remove) with probability at most t.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.linspace(-1, 1, 400)[:, None]
    >>> y = X[:, 0] > 0
    >>> models = [DummyClassifier().fit(X, y), LogisticRegression().fit(X, y)]
    >>> private_selection(models, X, y, epsilon=1.0, random_state=0).index
    1
    """
    _check.choice("metric", metric, PER_RECORD)
    kind = _check.choice("adjacency", adjacency, ADJACENCIES)
    cap = _cap(metric, cap)
    candidates = list(models)
    if len(candidates) < 2:
        raise InvalidParameter(f"models must hold at least two models, got {len(candidates)}.")
    for model in candidates:
        _check_model(model, metric)
    labels = _labels(X, y)
    words = [words for model in candidates for words in _words(model, random_state, kind, metric, cap)]
    unit = _unit(metric)
    plan = calibrated_max(
        candidates=len(candidates),
        unit=unit,
        epsilon=epsilon,
        adjacency=kind,
        rows_per_person=max_rows_per_person,
        assumptions=tuple(dict.fromkeys(words)),
    )

    def totals() -> NDArray[np.float64]:
        # 1 - loss >= 0: under add-remove a record moves every total upwards, which the proof uses. Whole numbers
        # add up exactly, so that no rounding moves a total further than the unit.
        gains = (1 - losses(model, X, labels, metric, cap) for model in candidates)
        return np.array([np.rint(unit * gain).sum() for gain in gains])

    release = release_best(plan, totals, random_state, ledger=ledger)
    return PrivateSelection(
        index=int(release.values[0][0]),
        metric=metric,
        guarantee=plan.guarantee.group(max_rows_per_person),
        seeded=release.seeded,
    )


def _unit(metric: str) -> int:
    return 1 if metric in ("accuracy", "auc", "calibration") else GRID


def _plan(metric: str, bins: int, epsilon: float, delta: float, adjacency: Adjacency, rows: int) -> NoisySums:
    """The noise of the metric's sums: of the two kinds, the smaller one."""
    groups: list[tuple[int, float, float]]
    pair = 1 if adjacency == "replace-one" else 2  # add-remove: wrong and right, since n is private
    unit = _unit(metric)
    if metric == "accuracy":
        groups = [(pair, unit, 1.0)]
    elif metric in PER_RECORD:
        groups = [(pair, unit, 1 - MOMENT_SHARE), (1, unit, MOMENT_SHARE)]
    else:
        groups = [(2 * bins, unit, 1.0)]
    noises: list[SumNoise] = ["geometric"] if delta == 0 else ["geometric", "gaussian"]
    offers = [
        calibrated_sums(
            groups, epsilon=epsilon, delta=delta, noise=noise, adjacency=adjacency, rows_per_person=rows
        )
        for noise in noises
    ]
    return min(offers, key=lambda plan: _noise(plan)[0])


def _noise(plan: NoisySums, group: int = 0) -> tuple[float, int | None]:
    """Standard deviation of the noise on one answer, and its law for `half_width`."""
    scale = plan.groups[group].scale
    if plan.noise == "gaussian":
        return scale, None
    half = 1 / (2 * scale)  # two-sided geometric, sd = 1 / (sqrt 2 sinh half), close to Laplace
    return math.sqrt(2) * math.exp(-half) / -math.expm1(-2 * half), 1


def _loss_sums(shares: NDArray[np.float64], plan: NoisySums) -> list[NDArray[np.float64]]:
    unit = plan.groups[0].unit
    first = np.rint(unit * shares)
    sums = [np.array([first.sum(), (unit - first).sum()][: plan.groups[0].answers])]
    if len(plan.groups) == 2:
        sums.append(np.array([np.rint(unit * shares**2).sum()]))
    return sums


def _mean_loss(release: SumsRelease, n: int, cap: float, level: float) -> tuple[float, tuple[float, float]]:
    """The noisy mean of the losses and its interval; accuracy is 1 - the share of wrong answers."""
    plan = release.plan
    assert isinstance(plan, NoisySums)
    unit, first = plan.groups[0].unit, release.values[0] / plan.groups[0].unit
    size = float(n) if len(first) == 1 else max(float(first.sum()), 1.0)
    share = min(max(float(first[0]) / size, 0.0), 1.0)
    sd, dimension = _noise(plan)
    noise = sd / unit / size * (1.0 if len(first) == 1 else math.hypot(share, 1 - share))
    if len(plan.groups) == 1:
        low, high = proportion_interval(share, size, noise, dimension, level)
        return 1 - share, (1 - high, 1 - low)
    doubt = _noise(plan, 1)[0] / unit / size
    second = float(release.values[1][0]) / unit / size + doubt  # rather too much than too little
    variance = min(max(second - share**2, doubt**2), share * (1 - share) + doubt)
    width = float(half_width(level, math.sqrt(variance / size), noise, dimension))
    return cap * share, (cap * max(share - width, 0.0), cap * min(share + width, 1.0))


def _cap(metric: str, cap: float | None) -> float:
    if cap is not None:
        if metric not in ("log-loss", "squared-error"):
            raise InvalidParameter(f"cap has no meaning for metric={metric!r}; leave it out.")
        return _check.positive("cap", cap)
    if metric == "squared-error":
        raise InvalidParameter(
            "metric='squared-error' needs cap, a stated bound on one record's squared error, e.g. "
            "((high - low) / 4) ** 2: larger errors are cut off, and it is never measured from the data."
        )
    return LOG_LOSS_CAP if metric == "log-loss" else 1.0


def _check_model(model: Any, metric: str) -> None:
    needs = {"log-loss": ("predict_proba",), "calibration": ("predict_proba",)}.get(metric, ("predict",))
    for name in needs:
        if not hasattr(model, name):
            raise InvalidParameter(
                f"metric={metric!r} needs a fitted model with {name}, got {type(model).__name__}."
            )
    if metric in ("auc", "calibration") and len(getattr(model, "classes_", ())) != 2:
        raise InvalidParameter(f"metric={metric!r} needs a fitted classifier of two classes.")


def _labels(X: Any, y: Any) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if labels.ndim != 1 or len(labels) != rows or not rows:
        raise InvalidParameter("y must have one entry per row of X, and there must be at least one.")
    return labels


def _words(model: Any, random_state: Any, adjacency: str, metric: str, cap: float) -> tuple[str, ...]:
    words = [
        "the model was given beforehand: what its own fitting revealed is not counted here",
        "the model's answer for a record depends on no other record scored",
    ]
    if adjacency == "replace-one":
        words.append("the number of records scored is public")
    if metric in ("log-loss", "squared-error"):
        words.append(f"the loss of one record is cut off at {cap:g}")
    learned = learned_steps(model)
    if learned:
        words.append(
            f"{', '.join(learned)} learned from data outside any guarantee: unless that data is public, "
            "nothing is promised about the model itself"
        )
    if random_state is not None:
        words.append(
            "the noise came from random_state: the promise holds only against those who do not know it"
        )
    return tuple(words)
