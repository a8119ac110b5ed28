"""Fairness gaps over equally good models: how much the choice of model decides which group is treated worse.

Counts have shape [models, groups, labels, decisions]. From public records they are exact; `private_counts` releases
noisy counts of private records under a stated guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin._arrays import Floats
from dplangevin.accounting.budget_account import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumNoise
from dplangevin.mechanisms.noisy_answers.theorem import calibrate_noisy_sums
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.problem.constants import ADJACENCIES


@dataclass(frozen=True, kw_only=True)
class FairnessRange:
    """Fairness gaps of every model, in [0, 1].

    Parameters
    ----------
    groups : names of the groups.
    demographic_parity : largest difference between groups of the positive rate, per model.
    equalized_odds : the same within each true label, the larger of the two; None without labels.
    guarantee : of the counts; None when only public records were read.
    """

    groups: tuple[str, ...]
    demographic_parity: Floats
    equalized_odds: Floats | None
    guarantee: Guarantee | None = None

    @property
    def used_private_data(self) -> bool:
        """Whether private records were read (at the cost in `guarantee`)."""
        return self.guarantee is not None


def fairness_range(
    counts: ArrayLike, groups: Sequence[str], guarantee: Guarantee | None = None
) -> FairnessRange:
    """Compute the gaps from counts[models, groups, labels, decisions]; one label means that labels are not known.

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
    odds = None if table.shape[2] == 1 else _rate_gap(table).max(axis=1)
    return FairnessRange(
        groups=tuple(groups),
        demographic_parity=_rate_gap(table.sum(axis=2, keepdims=True))[:, 0],
        equalized_odds=odds,
        guarantee=guarantee,
    )


def _rate_gap(table: Floats) -> Floats:
    """Return the largest minus the smallest positive rate over groups, per model and label; skip empty groups."""
    total = table.sum(axis=3)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(total > 0, table[..., 1] / total, np.nan)
    is_known = np.isfinite(rate)
    high = np.where(is_known, rate, -np.inf).max(axis=1)
    low = np.where(is_known, rate, np.inf).min(axis=1)
    return np.asarray(np.where(is_known.sum(axis=1) >= 2, high - low, 0.0))


def public_counts(
    decisions: ArrayLike, members: ArrayLike, groups: Sequence[Any], labels: ArrayLike | None = None
) -> Floats:
    """Count decisions[models, records] (True is positive) by group and, where given, true label.

    Records of a group that is not listed count as the first group.
    """
    positive = np.asarray(decisions, bool)
    if positive.ndim != 2:
        raise InvalidParameter(f"decisions must have shape [models, records], got {list(positive.shape)}.")
    cells, width = _cell_indices(positive.shape[1], members, groups, labels)
    counts = [np.bincount(2 * cells + row, minlength=2 * width) for row in positive.astype(np.intp)]
    return np.array(counts, float).reshape(len(positive), len(groups), -1, 2)


def _cell_indices(
    n_records: int, members: ArrayLike, groups: Sequence[Any], labels: ArrayLike | None
) -> tuple[NDArray[np.intp], int]:
    group_names = np.asarray(members)
    if group_names.shape != (n_records,):
        raise InvalidParameter(f"members must name the group of each of the {n_records} records.")
    group_indices = np.zeros(n_records, np.intp)
    for index, group in enumerate(groups):
        group_indices[group_names == group] = index
    if labels is None:
        return group_indices, len(groups)
    truth = np.asarray(labels)
    if truth.shape != (n_records,):
        raise InvalidParameter(f"labels must have one entry for each of the {n_records} records.")
    return 2 * group_indices + truth.astype(bool), 2 * len(groups)


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
    ledger: BudgetAccount | None = None,
    random_state: Any = None,
    checkpoint: CheckpointPath = None,
) -> tuple[Floats, Guarantee]:
    """Release noisy counts of private records, and return them with their guarantee.

    Each model has one histogram to which a record adds 1 once; the models share the budget equally. The groups are
    public.

    Privacy
    -------
    (epsilon, delta) for the counts of all models together; the models themselves must have been released before.
    """
    positive = np.asarray(decisions, bool)
    if positive.ndim != 2:
        raise InvalidParameter(f"decisions must have shape [models, records], got {list(positive.shape)}.")
    cells = 2 * len(groups) * (1 if labels is None else 2)
    sums = _calibrate_counts(
        len(positive), cells, epsilon, delta, adjacency, max_rows_per_person
    ).with_assumptions(
        "the models were released before: their own cost is not counted here",
        "the list of groups is public; records of other groups count as the first",
    )
    plan = CertifiedSpec(spec=sums, delta=delta)
    release = NoisySums().run(
        plan,
        lambda: [table.ravel() for table in public_counts(positive, members, groups, labels)],
        random_state,
        ledger=ledger,
        checkpoint=checkpoint,
        rows_per_person=max_rows_per_person,
    )
    shape = (len(positive), len(groups), cells // (2 * len(groups)), 2)
    return np.array(release.values).reshape(shape), plan.guarantee.group(max_rows_per_person)


def _calibrate_counts(
    models: int, cells: int, epsilon: float, delta: float, adjacency: str, rows: int
) -> NoisySumsSpec:
    if adjacency not in ADJACENCIES:
        raise InvalidParameter(f"adjacency must be one of {', '.join(ADJACENCIES)}; got {adjacency!r}.")
    noises: list[SumNoise] = ["geometric"] if delta == 0 else ["geometric", "gaussian"]
    groups = [(cells, 1, 1 / models)] * models
    plans = [
        calibrate_noisy_sums(
            groups, epsilon=epsilon, delta=delta, noise=noise, adjacency=adjacency, rows_per_person=rows
        )
        for noise in noises
    ]
    # standard deviation of one answer: about sqrt(2) scale for geometric noise
    return min(
        plans, key=lambda plan: plan.groups[0].scale * (1 if plan.noise == "gaussian" else math.sqrt(2))
    )
