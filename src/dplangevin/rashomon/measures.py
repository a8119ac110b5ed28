"""Measures of how much released models differ on public inputs, fairness gaps among them; no private record is read.

Rows of every array are models, columns are inputs. Over sampled models a range is an inner estimate: models that were
not drawn may lie outside.

Counts have shape [models, groups, labels, decisions]. From public records they are exact; `private_counts` releases
noisy counts of private records under a stated guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, gammaln, xlogy

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumNoise, calibrate_noisy_sums
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.problem.constants import ADJACENCIES

_NUMBERS_PER_BLOCK = 4_000_000  # numbers per block of inputs


def rashomon_capacity(probabilities: ArrayLike, tolerance: float = 1e-6, max_steps: int = 100_000) -> Floats:
    """Return the Rashomon capacity 2^C per input, the number of classes that the models effectively leave open.

    For an input, model k predicts the distribution P_k over c classes. C is the capacity in bits of the channel
    "model -> class", the largest mutual information over all distributions of the model. The result is 1 when the
    models agree and c when each class is certain under some model. With two classes the channel's rows lie on a
    segment, so the two extreme models alone carry the capacity.

    Parameters
    ----------
    probabilities : [models, inputs, classes].
    tolerance : largest error of C, in bits.
    max_steps : of the Blahut-Arimoto algorithm.

    References
    ----------
    Hsu and Calmon (2022), definition 3; Blahut (1972) and Arimoto (1972).

    Examples
    --------
    >>> agree, split = [[0.5, 0.5]], [[1.0, 0.0]]
    >>> rashomon_capacity([agree, agree]).tolist(), rashomon_capacity([split, [[0.0, 1.0]]]).round(5).tolist()
    ([1.0], [2.0])
    """
    tables = _check_distributions(probabilities)
    bits = _check.check_positive("tolerance", tolerance)
    if tables.shape[2] == 2:
        index, last = np.arange(tables.shape[1]), tables[:, :, 1]
        tables = np.stack([tables[last.argmin(axis=0), index], tables[last.argmax(axis=0), index]])
    size = max(1, _NUMBERS_PER_BLOCK // (tables.shape[0] * tables.shape[2]))
    parts = [
        _blahut_arimoto(tables[:, first : first + size], bits * np.log(2), max_steps)
        for first in range(0, tables.shape[1], size)
    ]
    return np.clip(np.exp(np.concatenate(parts)), 1.0, float(tables.shape[2]))


def _blahut_arimoto(tables: Floats, tolerance: float, max_steps: int) -> Floats:
    """Return C in nats by Blahut-Arimoto on all inputs; stop at the duality gap max_k D_k - sum_k r_k D_k."""
    models, inputs, _ = tables.shape
    result, remaining = np.zeros(inputs), np.arange(inputs)
    weights = np.full((models, inputs), 1 / models)
    entropy = np.sum(xlogy(tables, tables), axis=2)
    for _ in range(max_steps):
        mixture = np.einsum("ki,kic->ic", weights, tables)
        with np.errstate(divide="ignore"):
            logs = np.where(mixture > 0, np.log(mixture), 0.0)
        divergence = entropy - np.einsum("kic,ic->ki", tables, logs)
        lower, upper = np.sum(weights * divergence, axis=0), divergence.max(axis=0)
        done = upper - lower <= tolerance
        result[remaining[done]] = np.maximum(0.5 * (lower + upper)[done], 0.0) * (upper[done] > 1e-14)
        if done.all():
            return result
        keep = ~done
        remaining, tables, entropy = remaining[keep], tables[:, keep], entropy[:, keep]
        divergence, weights = divergence[:, keep], weights[:, keep]
        weights = weights * np.exp(divergence - divergence.max(axis=0))
        weights /= weights.sum(axis=0)
    raise AssumptionFailed(
        f"the capacity did not converge to {tolerance / np.log(2):g} bits in {max_steps} steps; raise tolerance or "
        "max_steps."
    )


def _check_distributions(probabilities: ArrayLike) -> Floats:
    try:
        tables = np.asarray(probabilities, float)
    except (TypeError, ValueError):
        tables = np.zeros(0)
    if tables.ndim != 3 or 0 in tables.shape or tables.shape[2] < 2:
        raise InvalidParameter(
            "capacity needs probabilities[models, inputs, classes] with two classes or more, got shape "
            f"{list(tables.shape)}; a model without predict_proba has no capacity."
        )
    sums = tables.sum(axis=2)
    if not np.all(tables >= 0) or not np.allclose(sums, 1.0, atol=1e-6):
        raise InvalidParameter(
            "the probabilities of each model and input must not be negative and add up to 1."
        )
    return np.asarray(tables / sums[:, :, None])


def interval_capacity(low: ArrayLike, high: ArrayLike) -> Floats:
    """Return C in bits for two classes when the probability of one ranges over [low, high].

    Models inside the range add nothing to it:

    C = (a h(b) - b h(a)) / (b - a) + log2(1 + 2^((h(a) - h(b)) / (b - a))), h the binary entropy.

    Examples
    --------
    >>> interval_capacity([0.2, 0.05, 0.3], [0.7, 0.4, 0.3]).round(6).tolist()
    [0.191238, 0.14226, 0.0]
    """
    a, b = np.asarray(low, float), np.asarray(high, float)
    width = np.maximum(b - a, 1e-7)  # narrower ranges leave less than 1e-12 bits open
    first, second = (-(xlogy(p, p) + xlogy(1 - p, 1 - p)) / np.log(2) for p in (a, b))
    bits = (a * second - b * first) / width + np.logaddexp2(0.0, (first - second) / width)
    return np.asarray(np.where(b - a > 1e-7, np.maximum(bits, 0.0), 0.0))


@dataclass(frozen=True, kw_only=True)
class ScoreSpread:
    """Per input: mean, standard deviation, viable range [low, high] and central interval of the models' scores."""

    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    interval: tuple[Floats, Floats]
    level: float

    @property
    def width(self) -> Floats:
        """Width high - low: how much the score depends on the choice of model."""
        return np.asarray(self.high - self.low)


def score_spread(scores: ArrayLike, level: float = 0.9) -> ScoreSpread:
    """Return the spread of scores[models, inputs]; the interval omits (1 - level)/2 of the models on each side.

    [low, high] is the viable prediction range of Watson-Daniels, Parkes and Ustun (2023) over the given models.

    Examples
    --------
    >>> spread = score_spread([[0.2, 0.5], [0.4, 0.5]])
    >>> spread.mean.round(3).tolist(), spread.width.round(3).tolist()
    ([0.3, 0.5], [0.2, 0.0])
    """
    values = _models_by_inputs("scores", scores).astype(float)
    if not np.all(np.isfinite(values)):
        raise InvalidParameter("scores must be finite numbers.")
    side = (1 - _check.check_open_unit("level", level)) / 2
    return ScoreSpread(
        mean=values.mean(axis=0),
        std=values.std(axis=0),
        low=values.min(axis=0),
        high=values.max(axis=0),
        interval=(np.quantile(values, side, axis=0), np.quantile(values, 1 - side, axis=0)),
        level=level,
    )


def conflicted_inputs(decisions: ArrayLike, baseline: ArrayLike | None = None) -> NDArray[np.bool_]:
    """Return which inputs get another decision from some model than from the baseline (or from another model)."""
    table = _models_by_inputs("decisions", decisions)
    reference = table[0] if baseline is None else _check_baseline(baseline, table)
    return np.asarray(np.any(table != reference, axis=0))


def ambiguity(decisions: ArrayLike, baseline: ArrayLike | None = None) -> float:
    """Return the fraction of inputs whose decision depends on which of the models is deployed.

    Reference: Marx, Calmon and Ustun (2020), definition 2.

    Examples
    --------
    >>> ambiguity([[0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0]])
    0.5
    """
    return float(conflicted_inputs(decisions, baseline).mean())


def discrepancy(decisions: ArrayLike, baseline: ArrayLike | None = None) -> float:
    """Return the largest fraction of decisions that change when one model replaces the baseline (or another model).

    Reference: Marx, Calmon and Ustun (2020), definition 3.

    Examples
    --------
    >>> discrepancy([[0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0]])
    0.5
    """
    table = _models_by_inputs("decisions", decisions)
    if baseline is not None:
        return float(np.mean(table != _check_baseline(baseline, table), axis=1).max())
    return float(max(np.mean(table != row, axis=1).max() for row in table))


def disagreement(decisions: ArrayLike) -> Floats:
    """Return per input the probability that two models drawn without replacement decide differently.

    Examples
    --------
    >>> disagreement([[0, 1], [1, 1], [1, 1]]).round(4).tolist()
    [0.6667, 0.0]
    """
    table = _models_by_inputs("decisions", decisions)
    models = len(table)
    if models == 1:
        return np.zeros(table.shape[1])
    counts = np.stack([np.sum(table == value, axis=0) for value in np.unique(table)]).astype(float)
    return np.asarray(1 - np.sum(counts * (counts - 1), axis=0) / (models * (models - 1)))


def rashomon_ratio(
    parameters: ArrayLike, radius: float, threshold: float, inverse_temperature: float
) -> float:
    """Estimate the volume of the Rashomon set over that of the ball of this radius, from released draws [p, K].

    For an objective that is quadratic near its minimum the draws of exp(-beta max(F - F*, psi)) are spread like the
    set itself, an ellipsoid whose covariance is A / (p + 2), widened by the known factor E[F - F*] / (psi p / (p +
    2)). Exact for quadratics as K grows, and as psi tends to 0 for every smooth F; post-processing of the draws.

    Examples
    --------
    >>> corners = np.array([[0.1, -0.1, 0.0, 0.0], [0.0, 0.0, 0.2, -0.2]])
    >>> round(rashomon_ratio(corners, 1.0, 0.01, 1e9), 4)
    0.04
    """
    draws = np.asarray(parameters, float)
    if draws.ndim != 2 or draws.shape[1] <= draws.shape[0]:
        raise InvalidParameter(
            f"the ratio needs more draws than parameters, as an array [parameters, draws]; got shape {draws.shape}."
        )
    p, x = len(draws), inverse_temperature * threshold
    # with volumes s^(p/2): E[s] / psi for the law e^(-beta (s - psi)+), over p / (p + 2) inside the set
    tails = [
        math.exp(x + float(gammaln(k) + np.log(gammaincc(k, x))) - k * math.log(x)) if x < 600 else 0.0
        for k in (p / 2, p / 2 + 1)
    ]
    widening = (2 / (p + 2) + tails[1]) / (2 / p + tails[0]) * (p + 2) / p
    covariance = np.atleast_2d(np.cov(draws, bias=True))
    log_volume = float(np.linalg.slogdet(covariance * (p + 2) / widening)[1]) / 2
    return min(1.0, math.exp(log_volume - p * math.log(radius)))


def _models_by_inputs(name: str, values: ArrayLike) -> NDArray[Any]:
    table = np.asarray(values)
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidParameter(
            f"{name} must have shape [models, inputs] with at least one of each, got {list(table.shape)}."
        )
    return table


def _check_baseline(baseline: ArrayLike, table: NDArray[Any]) -> NDArray[Any]:
    reference = np.asarray(baseline)
    if reference.shape != table.shape[1:]:
        raise InvalidParameter(
            f"baseline must hold one decision per input ({table.shape[1]}), got shape {list(reference.shape)}."
        )
    return reference


@dataclass(frozen=True, kw_only=True)
class ModelValues:
    """One value per model of each named quantity: values[names, models]."""

    names: tuple[str, ...]
    values: Floats

    @property
    def minimum(self) -> Floats:
        """Smallest value over the models."""
        return np.asarray(self.values.min(axis=1))

    @property
    def maximum(self) -> Floats:
        """Largest value over the models."""
        return np.asarray(self.values.max(axis=1))

    @property
    def median(self) -> Floats:
        """Median over the models."""
        return np.asarray(np.median(self.values, axis=1))

    def sign_changes(self) -> tuple[str, ...]:
        """Return the names whose value is positive under one model and negative under another."""
        return tuple(
            name for name, a, b in zip(self.names, self.minimum, self.maximum, strict=True) if a < 0 < b
        )


def coefficient_values(coefficients: ArrayLike, names: Sequence[str]) -> ModelValues:
    """Return coefficients[models, columns] as values of named quantities.

    Examples
    --------
    >>> model_values = coefficient_values([[1.0, -0.5], [2.0, 0.5]], ["age", "hours"])
    >>> model_values.minimum.tolist(), model_values.maximum.tolist(), model_values.sign_changes()
    ([1.0, -0.5], [2.0, 0.5], ('hours',))
    """
    table = np.asarray(coefficients, float)
    if table.ndim != 2 or table.shape[1] != len(names) or 0 in table.shape:
        raise InvalidParameter(
            f"coefficients must have shape [models, {len(names)}], one column per name, got {list(table.shape)}."
        )
    return ModelValues(names=tuple(names), values=table.T.copy())


def model_reliance(
    mean_losses: Callable[[Any], Floats],
    X: Any,
    columns: Mapping[str, Sequence[Any]],
    n_shifts: int | None = None,
) -> ModelValues:
    """Compute the reliance of each model on each group of columns, on public records.

    The reliance of a model on a group of columns is its mean loss when those columns come from another record,
    divided by its mean loss; the range over equally good models is the model class reliance.

    Parameters
    ----------
    mean_losses : maps a table like X to the mean loss of every model, the labels staying with their rows.
    X : array or DataFrame. columns : the groups, each a list of column numbers (array) or names (DataFrame).
    n_shifts : cyclic shifts averaged over; None takes all n - 1, the exact e_switch of the reference.

    References
    ----------
    Fisher, Rudin and Dominici (2019), section 3.
    """
    rows = len(X)
    if rows < 2:
        raise InvalidParameter(
            f"model reliance exchanges columns between records: X needs two rows, got {rows}."
        )
    count = rows - 1 if n_shifts is None else min(_check.check_count("n_shifts", n_shifts), rows - 1)
    shifts = np.unique(np.linspace(1, rows - 1, count).round().astype(int))
    plain = np.asarray(mean_losses(X), float)
    if not np.all(plain > 0):
        raise InvalidParameter(
            "model reliance divides by the mean loss, which is 0 for some model; use another loss."
        )
    values = []
    for group in columns.values():
        switched = np.zeros_like(plain)
        for shift in shifts:
            switched += np.asarray(mean_losses(_exchange_columns(X, group, int(shift))), float)
        values.append(switched / len(shifts) / plain)
    return ModelValues(names=tuple(columns), values=np.array(values))


def _exchange_columns(X: Any, group: Sequence[Any], shift: int) -> Any:
    """Return X with the group's columns taken from the record `shift` rows further on."""
    other = X.copy()
    for column in group:
        if hasattr(X, "columns"):
            other[column] = np.roll(X[column].to_numpy(), -shift)
        else:
            other[:, column] = np.roll(X[:, column], -shift)
    return other


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
