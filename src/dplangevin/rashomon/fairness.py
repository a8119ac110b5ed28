"""Fairness gaps of equally good models: how much the choice of model decides who is treated worse.

Counts have shape [models, groups, labels, decisions]. From public records they are exact; `private_counts` buys noisy
ones under a stated guarantee, with the noisy sums that private_score uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.mechanism import NoisySums
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule, SumNoise
from dplangevin.families.noisy_answers.theorems.noisy_sums import calibrated_sums
from dplangevin.families.run_state import StatePath
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Price
from dplangevin.privacy.spender import Spender
from dplangevin.problem.constants import ADJACENCIES


@dataclass(frozen=True, kw_only=True)
class FairnessRange:
    """Gaps of every model, in [0, 1]. `guarantee` is None when only public records were read.

    demographic_parity : largest difference between groups of the share decided positively.
    equalised_odds : the same within each true label, the larger of the two; None without labels.
    """

    groups: tuple[str, ...]
    demographic_parity: Floats
    equalised_odds: Floats | None
    guarantee: Guarantee | None = None

    @property
    def used_private_data(self) -> bool:
        """Whether private records were read (at the cost in `guarantee`)."""
        return self.guarantee is not None


def fairness_range(
    counts: ArrayLike, groups: Sequence[str], guarantee: Guarantee | None = None
) -> FairnessRange:
    """The gaps read off counts[models, groups, labels, decisions]; one label means that labels are not known.

    References: Dwork et al. (2012) for parity; Hardt, Price and Srebro (2016) for equalised odds.

    Examples
    --------
    >>> counts = np.array([[[[8, 2]], [[5, 5]]]])  # one model, two groups, no labels: 20% and 50% positive
    >>> round(float(fairness_range(counts, ["a", "b"]).demographic_parity[0]), 3)
    0.3
    """
    table = np.maximum(np.asarray(counts, float), 0.0)
    if (
        table.ndim != 4
        or table.shape[1] != len(groups)
        or table.shape[2] not in (1, 2)
        or table.shape[3] != 2
    ):
        raise InvalidParameter(
            f"counts must have shape [models, {len(groups)}, 1 or 2, 2], got {list(np.shape(counts))}."
        )
    if len(groups) < 2:
        raise InvalidParameter(f"a fairness gap needs two groups or more, got {len(groups)}.")
    odds = None if table.shape[2] == 1 else _gap(table).max(axis=1)
    return FairnessRange(
        groups=tuple(groups),
        demographic_parity=_gap(table.sum(axis=2, keepdims=True))[:, 0],
        equalised_odds=odds,
        guarantee=guarantee,
    )


def _gap(table: Floats) -> Floats:
    """Largest minus smallest positive rate over groups, per model and label; groups without records do not count."""
    total = table.sum(axis=3)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(total > 0, table[..., 1] / total, np.nan)
    seen = np.isfinite(rate)
    high = np.where(seen, rate, -np.inf).max(axis=1)
    low = np.where(seen, rate, np.inf).min(axis=1)
    return np.asarray(np.where(seen.sum(axis=1) >= 2, high - low, 0.0))


def public_counts(
    decisions: ArrayLike, members: ArrayLike, groups: Sequence[Any], labels: ArrayLike | None = None
) -> Floats:
    """Counts of decisions[models, records] (True is the positive one) by group and, where given, true label.

    Records of a group that is not listed count as the first one.
    """
    positive = np.asarray(decisions, bool)
    if positive.ndim != 2:
        raise InvalidParameter(f"decisions must have shape [models, records], got {list(positive.shape)}.")
    cells, width = _cells(positive.shape[1], members, groups, labels)
    counts = [np.bincount(2 * cells + row, minlength=2 * width) for row in positive.astype(np.intp)]
    return np.array(counts, float).reshape(len(positive), len(groups), -1, 2)


def _cells(
    records: int, members: ArrayLike, groups: Sequence[Any], labels: ArrayLike | None
) -> tuple[NDArray[np.intp], int]:
    given = np.asarray(members)
    if given.shape != (records,):
        raise InvalidParameter(f"members must name the group of each of the {records} records.")
    place = np.zeros(records, np.intp)
    for index, group in enumerate(groups):
        place[given == group] = index
    if labels is None:
        return place, len(groups)
    truth = np.asarray(labels)
    if truth.shape != (records,):
        raise InvalidParameter(f"labels must have one entry for each of the {records} records.")
    return 2 * place + truth.astype(bool), 2 * len(groups)


def private_counts(
    decisions: ArrayLike,
    members: ArrayLike,
    groups: Sequence[Any],
    labels: ArrayLike | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: str = "replace-one",
    max_rows_per_person: int = 1,
    ledger: Spender | None = None,
    random_state: Any = None,
    state: StatePath = None,
) -> tuple[Floats, Guarantee]:
    """Noisy counts of private records and what they cost; the budget is shared by the models.

    Each model has one histogram to which a record adds 1 once. The groups are public.
    """
    positive = np.asarray(decisions, bool)
    if positive.ndim != 2:
        raise InvalidParameter(f"decisions must have shape [models, records], got {list(positive.shape)}.")
    cells = 2 * len(groups) * (1 if labels is None else 2)
    sums = _sums(len(positive), cells, epsilon, delta, adjacency, max_rows_per_person).with_assumptions(
        "the models were given beforehand: what drawing them revealed is not counted here",
        "the list of groups is public; records of other groups count as the first",
    )
    plan = Price(schedule=sums, delta=delta)
    release = NoisySums().run(
        plan,
        lambda: [table.ravel() for table in public_counts(positive, members, groups, labels)],
        random_state,
        ledger=ledger,
        state=state,
        rows_per_person=max_rows_per_person,
    )
    shape = (len(positive), len(groups), cells // (2 * len(groups)), 2)
    return np.array(release.values).reshape(shape), plan.guarantee.group(max_rows_per_person)


def _sums(
    models: int, cells: int, epsilon: float, delta: float, adjacency: str, rows: int
) -> NoisySumsSchedule:
    if adjacency not in ADJACENCIES:
        raise InvalidParameter(f"adjacency must be one of {', '.join(ADJACENCIES)}; got {adjacency!r}.")
    noises: list[SumNoise] = ["geometric"] if delta == 0 else ["geometric", "gaussian"]
    groups = [(cells, 1, 1 / models)] * models
    plans = [
        calibrated_sums(
            groups, epsilon=epsilon, delta=delta, noise=noise, adjacency=adjacency, rows_per_person=rows
        )
        for noise in noises
    ]
    # standard deviation of one answer: about sqrt(2) scale for geometric noise
    return min(
        plans, key=lambda plan: plan.groups[0].scale * (1 if plan.noise == "gaussian" else math.sqrt(2))
    )
