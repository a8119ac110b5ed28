"""Budgeted evaluation: scores and choices of models on private records, each with its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._held_out import held_out
from dplangevin.estimators._metrics import ReliabilityBin
from dplangevin.estimators._pipeline import learned_steps
from dplangevin.estimators._scoring import PER_RECORD, Scoring, scoring_conditions
from dplangevin.estimators._suits import check_suits
from dplangevin.families.noisy_answers.mechanism import NoisyMax, NoisySums
from dplangevin.families.noisy_answers.theorems.noisy_max import calibrated_max
from dplangevin.families.release import SEEDED, AnswersRelease
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.conditions import merge_conditions
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Price
from dplangevin.privacy.spender import Spender

__all__ = ["PrivateScore", "PrivateSelection", "learned_steps", "private_score", "private_selection"]


@dataclass(frozen=True, kw_only=True)
class PrivateScore:
    """A released score.

    Parameters
    ----------
    value : the noisy metric. interval : covers the metric on the population with probability `level`, counting both
        the sampling of the records and the noise.
    plan : the noise. guarantee : what computing it cost the people in X, y. The model's own guarantee is separate.
    seeded : the noise came from a user's seed; whoever knows it can undo the noise.
    cap : per-record losses were cut off here. table : the reliability table of metric="calibration".
    ledger_head : the head of the ledger's chain after the score was charged; None without a ledger.
    """

    metric: str
    value: float
    interval: tuple[float, float]
    level: float
    plan: Price
    guarantee: Guarantee
    seeded: bool
    cap: float | None = None
    table: tuple[ReliabilityBin, ...] = ()
    ledger_head: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class PrivateSelection:
    """The index of the chosen model, and what choosing cost (fitting the models is not counted here)."""

    index: int
    metric: str
    plan: Price
    guarantee: Guarantee
    seeded: bool
    ledger_head: str | None = field(default=None, repr=False)


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
    secure: bool = False,
    ledger: Spender | None = None,
    random_state: Any = None,
    state: StatePath = None,
) -> PrivateScore:
    """Score a fitted model on private records under a stated guarantee.

    accuracy, log-loss and squared-error release one noisy sum of losses in [0, cap] (two sums under add-remove, where
    the number of records is private); auc and calibration release one noisy histogram of scores by label.

    Parameters
    ----------
    model : fitted, with predict (accuracy, squared-error), predict_proba (log-loss, calibration) and classes_.
    X, y : arrays or a table; Parquet or Arrow files and the name of the label's column; Dask collections.
    metric : "accuracy", "log-loss", "squared-error", "auc" or "calibration" (the last two for two classes).
    epsilon, delta : the promise; with delta > 0 Gaussian noise is used where it is smaller.
    adjacency : "replace-one" (the number of records is public) or "add-remove".
    cap : per-record loss beyond which it is cut off; 5 for log-loss, must be stated for squared-error.
    bins : number of bins (32 for auc, 10 for calibration), or public edges from 0 to 1.
    level : of the interval. max_rows_per_person : the promise covers all rows of a person who owns at most so many.
    secure : exact noise on whole numbers from the operating system's generator; no random_state and no state then.
    ledger : a Spender, charged before the records are read. random_state : a seed voids the promise, see DPRidge.
    state : path of a private file from which the same call goes on after a crash, with its noise and its charge.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> model = DummyClassifier(strategy="constant", constant=1).fit([[0], [0]], [0, 1])
    >>> score = private_score(model, [[0]] * 1000, [0] * 300 + [1] * 700, epsilon=0.5, random_state=0)
    >>> bool(score.interval[0] < 0.7 < score.interval[1]), round(score.guarantee.epsilon(), 6)
    (True, 0.5)
    """
    _check.open_unit("level", level)
    scoring = Scoring(metric=metric, cap=cap, bins=bins, adjacency=adjacency)
    scoring.check(model)
    check_suits(model, X, y)
    records = held_out(X, y, counted=scoring.kind == "replace-one")
    plan = scoring.plan(
        epsilon, delta, max_rows_per_person, scoring.words(model), scoring_conditions(model), secure=secure
    )
    exact, rows = partial(scoring.sums, model, records), max_rows_per_person
    release = NoisySums().run(plan, exact, random_state, ledger=ledger, state=state, rows_per_person=rows)
    value, interval, table = scoring.read(release, len(records), level)
    return PrivateScore(
        metric=metric, value=value, interval=interval, level=level, plan=plan, guarantee=_promise(release, rows),
        seeded=release.seeded, cap=scoring.stated_cap, table=table, ledger_head=release.ledger_head,
    )  # fmt: skip


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
    secure: bool = False,
    ledger: Spender | None = None,
    random_state: Any = None,
    state: StatePath = None,
) -> PrivateSelection:
    """Choose one of a few fitted models by its score on private records, with pure epsilon in all.

    The chosen one is behind the best by more than 2 log(n_models / t) / epsilon records (half of it under add-remove)
    with probability at most t; for losses a record stands for one cap. Parameters are those of private_score.

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
    scoring = Scoring(metric=metric, cap=cap, adjacency=adjacency)
    if len(models) < 2:
        raise InvalidParameter(f"models must hold at least two models, got {len(models)}.")
    for model in models:
        scoring.check(model)
        check_suits(model, X, y)
    records = held_out(X, y, counted=scoring.kind == "replace-one")
    words = [words for model in models for words in scoring.words(model)]
    schedule = calibrated_max(
        candidates=len(models),
        unit=scoring.unit,
        epsilon=epsilon,
        adjacency=scoring.kind,
        rows_per_person=max_rows_per_person,
        assumptions=tuple(dict.fromkeys(words)),
        conditions=merge_conditions(*map(scoring_conditions, models)),
        secure=secure,
    )
    plan = Price(schedule=schedule, delta=0.0)
    exact, rows = partial(scoring.totals, models, records), max_rows_per_person
    release = NoisyMax().run(plan, exact, random_state, ledger=ledger, state=state, rows_per_person=rows)
    promise, index = _promise(release, rows), int(release.values[0][0])
    return PrivateSelection(
        index=index, metric=metric, plan=plan, guarantee=promise, seeded=release.seeded,
        ledger_head=release.ledger_head,
    )  # fmt: skip


def _promise(release: AnswersRelease, rows: int) -> Guarantee:
    """The promise to a person with so many rows, with what a seed does to it."""
    promise = release.guarantee.group(rows)
    return replace(promise, assumptions=(*promise.assumptions, SEEDED)) if release.seeded else promise
