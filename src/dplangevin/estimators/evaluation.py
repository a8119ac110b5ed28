"""Private evaluation: scores and selection of models on private records, each with its own guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dplangevin import _check
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee, merge_conditions
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._held_out import ReliabilityBin, check_model_matches_table, open_held_out
from dplangevin.estimators._scoring import (
    PER_RECORD_METRICS,
    GroupColumn,
    Scoring,
    resolve_metric,
    scoring_conditions,
)
from dplangevin.estimators.call_context import find_learned_steps
from dplangevin.mechanisms.mechanism import SEEDED_MESSAGE, AnswersRelease, check_seed
from dplangevin.mechanisms.noisy_answers.mechanism import NoisyMax, NoisySums
from dplangevin.mechanisms.noisy_answers.spec import calibrate_noisy_max, plan_exact_noise
from dplangevin.mechanisms.run_state import CheckpointPath

__all__ = [
    "GroupScore",
    "PrivateScore",
    "PrivateSelection",
    "find_learned_steps",
    "private_score",
    "private_selection",
]


@dataclass(frozen=True, kw_only=True)
class GroupScore:
    """Released score of the records of one group, with its interval, and its reliability table if there is one."""

    value: float
    interval: tuple[float, float]
    table: tuple[ReliabilityBin, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrivateScore:
    """Released score of a model.

    Parameters
    ----------
    metric : that was released.
    value : the noisy metric.
    interval : covers the metric on the population with probability `level`, counting both sampling error and noise.
    plan : spec of the noise.
    guarantee : for the people in X, y; the guarantee of the model itself is separate.
    seeded : whether the noise came from a user's seed; whoever knows the seed can remove the noise.
    cap : bound at which per-record losses were clipped.
    table : reliability table of metric="calibration".
    groups : the score of each group of groups=, by its value; of all other cells under "".
    ledger_head : head of the ledger's chain after the score was charged; None without a ledger.
    """

    metric: str
    value: float
    interval: tuple[float, float]
    level: float
    plan: CertifiedSpec
    guarantee: Guarantee
    seeded: bool
    cap: float | None = None
    table: tuple[ReliabilityBin, ...] = ()
    groups: Mapping[str, GroupScore] = field(default_factory=dict)
    ledger_head: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class PrivateSelection:
    """Index of the selected model, and the guarantee of the selection (fitting the models is not counted here)."""

    index: int
    metric: str
    plan: CertifiedSpec
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
    target_range: tuple[float, float] | None = None,
    groups: tuple[str, Sequence[Any]] | None = None,
    level: float = 0.95,
    max_rows_per_person: int = 1,
    secure: bool | None = None,
    ledger: BudgetAccount | None = None,
    random_state: Any = None,
    checkpoint: CheckpointPath = None,
) -> PrivateScore:
    """Release the score of a fitted model on private records under a stated guarantee.

    accuracy, brier, log-loss, squared-error and absolute-error release one noisy sum of losses in [0, cap] (two sums
    under add-remove, where the number of records is private); auc, average_precision and calibration one noisy
    histogram of scores by label; recall, precision, f1 and balanced_accuracy the four counts of labels by predicted
    label; r2 sums of squared errors, targets and squared targets.

    Parameters
    ----------
    model : fitted, with predict (accuracy, squared-error), predict_proba (log-loss, calibration) and classes_.
    X, y : arrays or a table; Parquet or Arrow files and the name of the label column; Dask collections.
    metric : one of the names above, or scikit-learn's "roc_auc", "neg_log_loss", "neg_brier_score",
        "neg_mean_squared_error", "neg_mean_absolute_error", whose values are negative as there. brier, recall,
        precision, f1, balanced_accuracy and those of histograms are for two classes; the last class is positive.
    epsilon, delta : the guarantee; with delta > 0 Gaussian noise is used where it is smaller.
    adjacency : "replace-one" (the number of records is public) or "add-remove".
    cap : bound at which per-record losses are clipped; 5 for log-loss, must be stated for squared and absolute errors.
    bins : number of bins (10 for calibration, else 32), or public edges from 0 to 1.
    target_range : (low, high), the public range of the target, for r2; predictions are clipped to it too.
    groups : (column, values), a column of the table and the public list of its values: the score is released for each
        of them too, at the same cost. A record is in one group, so the sums of all groups move as little as those of
        one; the noise on each is that on all records, and a small group has a wide interval.
    level : of the interval (of each interval, with groups).
    max_rows_per_person : the guarantee covers all rows of a person who has at most this many.
    secure : None draws exact noise on integers (floating-point noise only where a scale is too large for it); True
        refuses what is not exact, and a seed; False allows floating-point noise.
    ledger : a BudgetAccount, charged before the records are read.
    random_state : a seed voids the guarantee against those who know it.
    checkpoint : path of a private file from which the same call resumes after a crash, with its noise and its charge.

    Privacy
    -------
    One release, charged before the records are read. It does not count what fitting the model cost; under add-remove
    the number of records is protected too.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> model = DummyClassifier(strategy="constant", constant=1).fit([[0], [0]], [0, 1])
    >>> score = private_score(model, [[0]] * 1000, [0] * 300 + [1] * 700, epsilon=0.5, random_state=0)
    >>> bool(score.interval[0] < 0.7 < score.interval[1]), round(score.guarantee.epsilon(), 6)
    (True, 0.5)
    """
    _check.check_open_unit("level", level)
    check_seed(secure, random_state)
    base_metric, sign = resolve_metric(metric)
    scoring = Scoring(
        metric=base_metric, cap=cap, bins=bins, adjacency=adjacency, target_range=target_range,
        groups=None if groups is None else GroupColumn.read(groups),
    )  # fmt: skip
    scoring.check_model(model)
    check_model_matches_table(model, X, y)
    records = open_held_out(X, y, count_is_public=scoring.checked_adjacency == "replace-one")
    scoring.check_groups(records)
    plan = plan_exact_noise(
        lambda exact: scoring.plan_release(
            epsilon,
            delta,
            max_rows_per_person,
            scoring.assumptions(model),
            scoring_conditions(model),
            secure=exact,
        ),
        secure,
    )
    exact, rows = partial(scoring.exact_sums, model, records), max_rows_per_person
    release = NoisySums().run(
        plan, exact, random_state, ledger=ledger, checkpoint=checkpoint, rows_per_person=rows
    )
    value, interval, table = scoring.interpret_release(release, len(records), level)
    by_group = scoring.interpret_groups(release, level)
    if sign < 0:
        value, interval = -value, (-interval[1], -interval[0])
        by_group = {name: (-v, (-i[1], -i[0]), t) for name, (v, i, t) in by_group.items()}
    return PrivateScore(
        metric=metric, value=value, interval=interval, level=level, plan=plan,
        guarantee=_guarantee_per_person(release, rows), seeded=release.seeded, cap=scoring.stated_cap,
        table=table, groups={name: GroupScore(value=v, interval=i, table=t) for name, (v, i, t) in by_group.items()},
        ledger_head=release.ledger_head,
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
    secure: bool | None = None,
    ledger: BudgetAccount | None = None,
    random_state: Any = None,
    checkpoint: CheckpointPath = None,
) -> PrivateSelection:
    """Select one of a few fitted models by its score on private records, under pure epsilon-DP.

    The selected model is worse than the best by more than 2 log(n_models / t) / epsilon records (half of it under
    add-remove) with probability at most t; for losses one record stands for one cap. Parameters are those of
    private_score.

    Privacy
    -------
    Report noisy max: pure epsilon-DP for the index alone, charged before the records are read. It does not count what
    fitting the models cost.

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
    base_metric, _ = resolve_metric(metric)
    if base_metric not in PER_RECORD_METRICS:
        raise InvalidParameter(
            f"metric={metric!r} is no mean over records; private_selection compares such means: "
            f"{', '.join(PER_RECORD_METRICS)}."
        )
    check_seed(secure, random_state)
    scoring = Scoring(metric=base_metric, cap=cap, adjacency=adjacency)
    if len(models) < 2:
        raise InvalidParameter(f"models must hold at least two models, got {len(models)}.")
    for model in models:
        scoring.check_model(model)
        check_model_matches_table(model, X, y)
    records = open_held_out(X, y, count_is_public=scoring.checked_adjacency == "replace-one")
    assumptions = [assumption for model in models for assumption in scoring.assumptions(model)]
    spec = plan_exact_noise(
        lambda exact: calibrate_noisy_max(
            candidates=len(models),
            unit=scoring.max_contribution,
            epsilon=epsilon,
            adjacency=scoring.checked_adjacency,
            rows_per_person=max_rows_per_person,
            assumptions=tuple(dict.fromkeys(assumptions)),
            conditions=merge_conditions(*map(scoring_conditions, models)),
            secure=exact,
        ),
        secure,
    )
    plan = CertifiedSpec(spec=spec, delta=0.0)
    exact_totals, rows = partial(scoring.exact_totals, models, records), max_rows_per_person
    release = NoisyMax().run(
        plan, exact_totals, random_state, ledger=ledger, checkpoint=checkpoint, rows_per_person=rows
    )
    guarantee, index = _guarantee_per_person(release, rows), int(release.values[0][0])
    return PrivateSelection(
        index=index, metric=metric, plan=plan, guarantee=guarantee, seeded=release.seeded,
        ledger_head=release.ledger_head,
    )  # fmt: skip


def _guarantee_per_person(release: AnswersRelease, rows_per_person: int) -> Guarantee:
    """Return the guarantee for a person with this many rows; a seed is added as an assumption."""
    guarantee = release.guarantee.group(rows_per_person)
    return (
        replace(guarantee, assumptions=(*guarantee.assumptions, SEEDED_MESSAGE))
        if release.seeded
        else guarantee
    )
