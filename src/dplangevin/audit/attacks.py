"""Attacks by scores on canaries, of many runs or of one, and what they prove about the claim of an audit.

In a one-run audit each canary is included by a fair coin, and the coins are guessed from a single run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr, ndtri
from scipy.stats import beta, binom

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_integers, bisect_safe_side, expand_bracket
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee, NotPrivate
from dplangevin.accounting.parts import Approximate, Gaussian, PrivacyPart, Pure
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Problem

Records = tuple[Floats, Floats]
Score = Callable[[Floats], Floats]
_TILT_SINE = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
    """Two neighbouring data sets (X, y), and optionally a score of released vectors.

    Parameters
    ----------
    name : of the canary.
    first, second : the data sets.
    score : maps released vectors [runs, dimension] to [runs]; None learns a direction from runs that do not certify.
    """

    name: str
    first: Records
    second: Records
    score: Score | None = None


@dataclass(frozen=True)
class _CanaryBuilder:
    """Builds pairs of neighbouring data sets for one problem."""

    problem: Problem

    @property
    def label_low(self) -> float:
        return self.problem.bounds.label_range[0]

    @property
    def label_high(self) -> float:
        return self.problem.bounds.label_range[1]

    def longest_row(self, *entries: float) -> Floats:
        """Return a row of the largest admissible norm in the direction of these first entries."""
        row = np.zeros(self.problem.n_features)
        row[: len(entries)] = entries[: len(row)]
        length = float(np.linalg.norm(row))
        return row * (self.problem.bounds.data_norm / length if length else 0.0)

    def blank_records(self) -> Records:
        """Return rows of zeros whose labels cancel."""
        count = self.problem.n - 1
        labels = np.where(np.arange(count) % 2, self.label_low, self.label_high)
        return np.zeros((count, self.problem.n_features)), labels

    def repeated_records(self, row: Floats, label: float) -> Records:
        count = self.problem.n - 1
        return np.tile(row, (count, 1)), np.full(count, label)

    def build_pair(
        self,
        name: str,
        others: Records,
        one: tuple[Floats, float],
        other: tuple[Floats, float],
        at: int | None = None,
    ) -> Canary:
        """Return the pair of `others` with record `one` and with record `other` (add-remove: without it).

        at : index of the differing record; None puts it last.
        """
        position = len(others[1]) if at is None else at

        def with_record(record: tuple[Floats, float]) -> Records:
            return np.insert(others[0], position, record[0], axis=0), np.insert(
                others[1], position, record[1]
            )

        second = with_record(other) if self.problem.adjacency == "replace-one" else others
        return Canary(name=name, first=with_record(one), second=second)


def make_canaries(problem: Problem) -> tuple[Canary, ...]:
    """Return the named canaries of a problem; a longest row is one of the largest admissible norm.

    worst-direction : a longest row whose label is exchanged, among rows of zeros; in the first batch.
    last-batch : the same record at the end, in the last of cyclic batches.
    mislabelled : a wrong label among correctly labelled longest rows in every coordinate.
    blank : a longest row against a row of zeros (replace-one only).
    common-drift : the others move theta so that both versions of the record have gradients at the clipping bound.
    corner : the others push theta into a corner of the set, the record pulls it out.
    """
    if not isinstance(problem, Problem):
        raise InvalidParameter(f"problem must be a Problem, got {type(problem).__name__}.")
    builder = _CanaryBuilder(problem)
    low, high, along = builder.label_low, builder.label_high, builder.longest_row(1.0)
    diagonal = builder.longest_row(*np.ones(problem.n_features))
    spread = np.array(
        [
            builder.longest_row(*np.eye(problem.n_features)[i % problem.n_features])
            for i in range(problem.n - 1)
        ]
    )
    spread = spread.reshape(problem.n - 1, problem.n_features)
    tilt = math.sqrt(1 - _TILT_SINE**2)
    drift = builder.longest_row(0.0, 1.0) if problem.n_features > 1 else along
    above, below = (
        builder.longest_row(tilt, sign * _TILT_SINE) if problem.n_features > 1 else along for sign in (1, -1)
    )
    pairs = [
        builder.build_pair("worst-direction", builder.blank_records(), (along, high), (along, low), at=0),
        builder.build_pair("last-batch", builder.blank_records(), (along, high), (along, low)),
        builder.build_pair(
            "mislabelled", (spread, np.full(problem.n - 1, high)), (along, low), (along, high)
        ),
        builder.build_pair(
            "common-drift", builder.repeated_records(drift, high), (above, low), (below, high)
        ),
        builder.build_pair(
            "corner", builder.repeated_records(diagonal, high), (diagonal, low), (diagonal, high)
        ),
    ]
    if problem.adjacency == "replace-one":
        pairs.append(
            builder.build_pair(
                "blank", builder.blank_records(), (along, high), (np.zeros(problem.n_features), high)
            )
        )
    return tuple(pairs)


def are_neighbors(first: Records, second: Records) -> bool:
    """Return whether two data sets differ in at most one record (replaced, added or removed)."""
    longer, shorter = (first, second) if len(first[1]) >= len(second[1]) else (second, first)
    rows, others = (np.column_stack([X, y]) for X, y in (longer, shorter))
    if rows.shape[1] != others.shape[1]:
        return False
    if len(rows) == len(others):
        return int(np.sum(np.any(rows != others, axis=1))) <= 1
    if len(rows) != len(others) + 1:
        return False
    differs = np.flatnonzero(np.any(rows[:-1] != others, axis=1))
    return differs.size == 0 or bool(np.array_equal(np.delete(rows, differs[0], axis=0), others))


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Lower bounds on the privacy loss of a run, and whether they refute its claim.

    Parameters
    ----------
    epsilon_lower : no claim of (epsilon, delta) with a smaller epsilon holds, with the stated confidence.
    mu_lower : no claim of mu-GDP with a smaller mu holds, with the same confidence.
    refuted : whether the claim itself is false, with the same confidence. One test decides: the best threshold against
        the claim's whole trade-off curve, which for a GDP claim is the test on mu.
    delta, confidence, runs : of the audit; confidence 1 where densities were integrated instead of sampled.
    method, canary : method of the attack, and the pair of neighbouring data sets.
    claimed : the claim as JSON data (None when nothing was claimed).
    exact_ratio : exact value over claimed value (in mu, or in epsilon), where the exact distribution is known.
    tested : size and power (FPR and TPR) of the deciding test, both rounded to the safe side.
    measured, allowed : points (size, power) measured, and allowed by the claim, for plots.
    """

    epsilon_lower: float
    mu_lower: float
    delta: float
    confidence: float
    runs: int
    refuted: bool
    method: str = "many-run"
    canary: str = ""
    claimed: dict[str, Any] | None = None
    exact_ratio: float | None = None
    tested: tuple[float, float] = (1.0, 0.0)
    measured: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    allowed: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    @property
    def claimed_epsilon(self) -> float | None:
        """The claimed epsilon at the audit's delta."""
        return None if self.claimed is None else float(self.claimed["epsilon"])

    @property
    def claimed_mu(self) -> float | None:
        """The claimed mu, when the claim is Gaussian."""
        return None if self.claimed is None else self.claimed["mu"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "mu_lower": self.mu_lower,
            "delta": self.delta,
            "confidence": self.confidence,
            "runs": self.runs,
            "refuted": self.refuted,
            "method": self.method,
            "canary": self.canary,
            "claimed": self.claimed,
            "exact_ratio": self.exact_ratio,
            "tested": {"false_positive_rate": self.tested[0], "true_positive_rate": self.tested[1]},
        }


_N_CURVE_POINTS = 64
_MIN_DELTA = 1e-7


def as_guarantee(
    claim: Guarantee | tuple[float, float] | None, adjacency: str = "replace-one"
) -> Guarantee | None:
    """Return the claim as a Guarantee; a pair (epsilon, delta) claims that pair and nothing more."""
    if claim is None or isinstance(claim, Guarantee):
        return claim
    if isinstance(claim, NotPrivate):
        raise InvalidParameter(f"claim has no guarantee ({claim.reason}); pass claim=None to only measure.")
    try:
        epsilon, delta = claim
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"claim must be a Guarantee or a pair (epsilon, delta), got {claim!r}."
        ) from None
    epsilon = _check.check_nonnegative("the epsilon of claim", epsilon)
    part: PrivacyPart = Pure(value=epsilon)
    if delta != 0:
        part = Approximate(value=epsilon, slack=_check.check_open_unit("the delta of claim", delta))
    return _claimed_guarantee(part, adjacency, delta)


def gaussian_claim(mu: float, delta: float, adjacency: str = "replace-one") -> Guarantee:
    """Return the claim of mu-GDP, reported at delta; it bounds every test, and is tested by mu."""
    return _claimed_guarantee(
        Gaussian(mu=_check.check_positive("mu", mu)), adjacency, _check.check_open_unit("delta", delta)
    )


def _claimed_guarantee(part: PrivacyPart, adjacency: str, delta: float) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=_check.check_choice("adjacency", adjacency, ("replace-one", "add-remove")),
        release="stated by the user",
        theorem="none: a claim to be tested",
        reference="",
        at_delta=delta,
    )


@dataclass(frozen=True, kw_only=True)
class TradeOffCurve:
    """The largest power that a claim allows a test of each size, in either direction.

    From (eps, delta) for every eps: power <= min over eps of delta + e^eps size and of
    1 - e^-eps (1 - delta - size). A mu-GDP claim allows Phi(Phi^-1(size) + mu). A finite grid of eps is weaker than
    the whole profile, so it allows more, never less (Dong, Roth and Su 2022, proposition 2.4 and section 2.4).
    """

    epsilons: Floats
    deltas: Floats
    mu: float | None

    def power(self, size: ArrayLike) -> Floats:
        """Return the largest power (TPR) allowed at this size (FPR)."""
        alpha = np.asarray(size, float)
        if self.mu is not None:
            return np.asarray(ndtr(ndtri(alpha) + self.mu))
        column, deltas = alpha[..., None], self.deltas
        with np.errstate(over="ignore"):
            first = deltas + np.exp(self.epsilons) * column
            second = 1 - np.exp(-self.epsilons) * (1 - deltas - column)
        return np.asarray(np.clip(np.minimum(first, second).min(axis=-1), 0.0, 1.0))


def trade_off_curve(claim: Guarantee) -> TradeOffCurve:
    """Return the trade-off curve of a guarantee."""
    mu = claim.mu
    if mu is not None:
        return TradeOffCurve(epsilons=np.zeros(0), deltas=np.zeros(0), mu=mu)
    max_epsilon = claim.epsilon(0.0)
    if not math.isfinite(max_epsilon):
        max_epsilon = claim.epsilon(max(_MIN_DELTA, 2 * claim.extra_delta))
    if not math.isfinite(max_epsilon):
        max_epsilon = 50.0
    grid = np.linspace(0.0, max_epsilon, _N_CURVE_POINTS)
    grid = np.unique(np.concatenate([grid, _reported_epsilon(claim)]))
    return TradeOffCurve(epsilons=grid, deltas=np.array([claim.delta(float(eps)) for eps in grid]), mu=None)


def _reported_epsilon(claim: Guarantee) -> Floats:
    """Return the epsilon at the claim's own delta, so that the grid contains it."""
    delta: Any = claim.at_delta
    epsilon = claim.epsilon(delta) if delta else math.inf
    return np.array([epsilon] if math.isfinite(epsilon) else [])


Gain = Callable[[Floats, Floats], Floats]
_N_CUTS = 250
CHOOSING_STRIDE = 3
"""Every third run chooses the test; the others certify it."""


def many_run_attack(
    first: ArrayLike,
    second: ArrayLike,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    confidence: float = 0.95,
    canary: str = "",
) -> AuditResult:
    """Bound epsilon and mu from below, given scores of independent runs on two neighbouring data sets.

    Every third run helps to choose a threshold and its direction; the others certify that one test with two one-sided
    Clopper-Pearson bounds at level (1 - confidence)/2 each, so that with the stated confidence the true size is at
    most FPR and the true power at least TPR. Then
    eps >= log((TPR - delta)/FPR), mu >= Phi^-1(TPR) - Phi^-1(FPR),
    and the claim is refuted when TPR exceeds the power that its trade-off curve allows at FPR.
    """
    guarantee = as_guarantee(claim)
    delta = check_audit_delta(delta, guarantee)
    _check.check_open_unit("confidence", confidence)
    a, b = np.asarray(first, float).ravel(), np.asarray(second, float).ravel()
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InvalidParameter("the mechanism returned a score that is not finite; nothing can be concluded.")
    curve = None if guarantee is None else trade_off_curve(guarantee)
    check_n_runs(min(len(a), len(b)), curve, confidence)
    choosing, certifying = (choosing_runs(a), choosing_runs(b)), (certifying_runs(a), certifying_runs(b))
    tail = (1 - confidence) / 2

    def best_test(gain: Gain) -> tuple[float, float]:
        return _certify_best_test(gain, choosing, certifying, tail)

    size, power = best_test(lambda fpr, tpr: _epsilon_bound(fpr, tpr, delta))
    epsilon = max(0.0, float(_epsilon_bound(np.array(size), np.array(power), delta)))
    size, power = best_test(mu_bound)
    mu = max(0.0, float(mu_bound(np.array(size), np.array(power))))
    refuted = False
    if curve is not None:
        size, power = best_test(lambda fpr, tpr: _claim_margin(fpr, tpr, curve))
        refuted = power > float(curve.power(size))
    return AuditResult(
        epsilon_lower=epsilon,
        mu_lower=mu,
        delta=delta,
        confidence=confidence,
        runs=len(a) + len(b),
        refuted=refuted,
        canary=canary,
        claimed=None if guarantee is None else guarantee.to_dict(delta),
        tested=(size, power),
        measured=_measured_points(*certifying),
        allowed=allowed_points(curve),
    )


def choosing_runs(values: Floats) -> Floats:
    """Return the runs that choose the test: the first, the fourth, ..."""
    return values[::CHOOSING_STRIDE]


def certifying_runs(values: Floats) -> Floats:
    """Return the runs that certify the test: all others."""
    return np.delete(values, np.s_[::CHOOSING_STRIDE], axis=0)


def check_audit_delta(delta: float, guarantee: Guarantee | None) -> float:
    """Check that the delta of an audit is in [0, 1) and not above the claim's, and return it."""
    if delta != 0:
        _check.check_open_unit("delta", delta)
    claimed_delta = None if guarantee is None else guarantee.at_delta
    if claimed_delta is not None and delta > claimed_delta:
        raise InvalidParameter(
            f"delta = {delta:g} is larger than the claim's {claimed_delta:g}: an audit there proves less than "
            "the claim states. "
            f"Audit at delta = {claimed_delta:g} or below."
        )
    return float(delta)


def runs_needed(claim: Guarantee | tuple[float, float] | None, confidence: float = 0.95) -> int:
    """Return the smallest number of runs, both data sets together, that could refute the claim.

    It assumes a perfect attack, which classifies every run correctly.

    Examples
    --------
    >>> runs_needed((1.0, 1e-5)), runs_needed((8.0, 1e-5))
    (36, 32998)
    """
    guarantee = as_guarantee(claim)
    return _runs_needed_for_curve(None if guarantee is None else trade_off_curve(guarantee), confidence)


def _runs_needed_for_curve(curve: TradeOffCurve | None, confidence: float) -> int:
    tail = (1 - confidence) / 2

    def could_refute(count: int) -> bool:
        power = math.exp(math.log(tail) / count)
        size = -math.expm1(math.log(tail) / count)
        return power > (float(curve.power(size)) if curve is not None else size)

    high = expand_bracket(could_refute, 1, 2**50)
    if high is None:
        return 2**53
    per_side = high = bisect_integers(could_refute, high, high // 2)
    while per_side - math.ceil(per_side / CHOOSING_STRIDE) < high:
        per_side += 1 + (high - per_side + per_side // CHOOSING_STRIDE) // 2
    return 2 * per_side


def check_n_runs(per_side: int, curve: TradeOffCurve | None, confidence: float) -> None:
    """Check that a perfect attack with this many runs could refute the claim."""
    needed = _runs_needed_for_curve(curve, confidence)
    if 2 * per_side < needed:
        advice = (
            f"at least {needed:,} runs"
            if needed < 2**53
            else "a stronger method: no number of runs is enough"
        )
        raise InvalidParameter(
            f"{2 * per_side:,} runs are too few: even if every run were classified correctly, the claim could "
            "not be refuted "
            f"at confidence {confidence:g}. Use {advice}."
        )


def _certify_best_test(
    gain: Gain, choosing: tuple[Floats, Floats], certifying: tuple[Floats, Floats], tail: float
) -> tuple[float, float]:
    """Return (size, power) of the test that is best on the choosing runs, certified on the others."""
    best, best_test = -math.inf, (1, 0, 0.0)
    cuts = np.unique(np.quantile(np.concatenate(choosing), np.linspace(0.002, 0.998, _N_CUTS)))
    for sign in (1, -1):
        for order in (0, 1):
            rates = _confident_rates(sign * choosing[order], sign * choosing[1 - order], sign * cuts, tail)
            values = gain(*rates)
            index = int(np.argmax(values))
            if values[index] > best:
                best, best_test = float(values[index]), (sign, order, float(cuts[index]))
    sign, order, cut = best_test
    size, power = _confident_rates(
        sign * certifying[order], sign * certifying[1 - order], np.array([sign * cut]), tail
    )
    return float(size[0]), float(power[0])


def _confident_rates(
    positives: Floats, negatives: Floats, cuts: Floats, tail: float
) -> tuple[Floats, Floats]:
    """Return upper bounds on the size and lower bounds on the power of the tests {score > cut}."""
    n, m = len(positives), len(negatives)
    hits = n - np.searchsorted(np.sort(positives), cuts, side="right")
    alarms = m - np.searchsorted(np.sort(negatives), cuts, side="right")
    power = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1), n - hits + 1), 0.0)
    size = np.where(alarms < m, beta.ppf(1 - tail, alarms + 1, np.maximum(m - alarms, 1)), 1.0)
    return np.asarray(size), np.asarray(power)


def _epsilon_bound(size: Floats, power: Floats, delta: float) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(power - delta, 0.0)) - np.log(size)


def mu_bound(size: Floats, power: Floats) -> Floats:
    is_proper = (power > 0) & (size < 1)
    power, size = np.where(is_proper, power, 0.5), np.where(is_proper, size, 0.5)
    return np.where(is_proper, ndtri(power) - ndtri(size), -np.inf)


def _claim_margin(size: Floats, power: Floats, curve: TradeOffCurve) -> Floats:
    """Return by how much a test exceeds the claim, in standard deviations of a normal score; never NaN."""
    return mu_bound(np.clip(curve.power(size), 0.0, 1.0), power)


def _measured_points(first: Floats, second: Floats) -> tuple[tuple[float, float], ...]:
    """Return measured size and power of half-line tests, the second data set against the first, for plots."""
    if np.median(second) < np.median(first):
        first, second = -first, -second
    cuts = np.unique(np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 101)))
    size = 1 - np.searchsorted(np.sort(first), cuts, side="right") / len(first)
    power = 1 - np.searchsorted(np.sort(second), cuts, side="right") / len(second)
    return tuple((float(x), float(y)) for x, y in zip(size, power, strict=True))


def allowed_points(curve: TradeOffCurve | None) -> tuple[tuple[float, float], ...]:
    """Return the claim's curve at a few sizes, for plots."""
    if curve is None:
        return ()
    sizes = np.concatenate([np.geomspace(1e-6, 0.01, 25)[:-1], np.linspace(0.01, 1.0, 100)])
    return tuple((float(x), float(y)) for x, y in zip(sizes, curve.power(sizes), strict=True))


def one_run_attack(
    scores: ArrayLike,
    included: ArrayLike,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | None = None,
) -> AuditResult:
    """Bound epsilon from below with one score per canary, and whether each canary was included.

    The `guesses`/2 largest scores are guessed "in", the `guesses`/2 smallest "out" (default: a fifth of the canaries,
    at least 20). The claim must be for adding, removing or blanking a record. The number of guesses is fixed
    before the scores are seen.

    References
    ----------
    Steinke, Nasr and Jagielski (2023), Theorem 5.2.
    """
    guarantee = as_guarantee(claim)
    delta = check_audit_delta(delta, guarantee)
    values, coins = np.asarray(scores, float).ravel(), np.asarray(included, bool).ravel()
    if len(values) != len(coins):
        raise InvalidParameter(
            f"there are {len(values)} scores for {len(coins)} canaries; give one score per canary."
        )
    if not np.isfinite(values).all():
        raise InvalidParameter("a canary's score is not finite (NaN or infinity); nothing can be concluded.")
    n_guesses = (
        min(len(coins), max(20, len(coins) // 5))
        if guesses is None
        else _check.check_count("guesses", guesses)
    )
    if n_guesses > len(coins):
        raise InvalidParameter(
            f"guesses = {n_guesses} is more than the {len(coins)} canaries; guess at most all of them."
        )
    half = max(1, n_guesses // 2)
    _check_n_guesses(2 * half, len(coins), guarantee, delta, confidence)
    order = np.argsort(values, kind="stable")
    correct = int(np.sum(coins[order[-half:]]) + np.sum(~coins[order[:half]]))
    epsilon = one_run_epsilon(correct, 2 * half, len(coins), delta=delta, confidence=confidence)
    claimed = None if guarantee is None else guarantee.to_dict(delta)
    mu = cv.gdp_mu(epsilon, delta) if delta > 0 and epsilon > 0 else 0.0
    return AuditResult(
        epsilon_lower=epsilon,
        mu_lower=mu,
        delta=delta,
        confidence=confidence,
        runs=1,
        refuted=claimed is not None and epsilon > claimed["epsilon"],
        method="one-run",
        canary=f"{len(coins)} canaries, {correct} of {2 * half} guesses correct",
        claimed=claimed,
    )


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return the largest epsilon that `correct` out of `guesses` guesses refute; 0 when none.

    p-value of (eps, delta): Pr[B >= v] + 2 m delta max_i (1/i) Pr[v > B >= v - i], B ~ Bin(r, e^eps/(1 + e^eps)).

    Examples
    --------
    >>> round(one_run_epsilon(100, 100, 1000), 3), one_run_epsilon(50, 100, 1000)
    (3.493, 0.0)
    """
    _check.check_open_unit("confidence", confidence)
    significance = 1 - confidence

    def p_value(epsilon: float) -> float:
        probability = float(expit(epsilon))
        tail = float(binom.sf(correct - 1, guesses, probability))
        if delta == 0 or correct == 0:
            return tail
        tail_sums = np.cumsum(binom.pmf(correct - np.arange(1, correct + 1), guesses, probability))
        return tail + 2 * canaries * delta * float(np.max(tail_sums / np.arange(1, correct + 1)))

    if p_value(0.0) >= significance:
        return 0.0
    high = expand_bracket(lambda epsilon: p_value(epsilon) >= significance, 1.0, 700)
    if high is None:
        return math.inf
    low = high / 2 if high > 1 else 0.0
    return bisect_safe_side(lambda epsilon: p_value(epsilon) < significance, low, high)


def _check_n_guesses(
    guesses: int, canaries: int, guarantee: Guarantee | None, delta: float, confidence: float
) -> None:
    """Check that the claim could be refuted if every guess were correct."""
    claimed = 0.0 if guarantee is None else guarantee.epsilon(delta)
    if one_run_epsilon(guesses, guesses, canaries, delta=delta, confidence=confidence) > claimed:
        return
    needed = 2
    while one_run_epsilon(needed, needed, 5 * needed, delta=delta, confidence=confidence) <= claimed:
        needed *= 2
        if needed > 10**7:
            raise InvalidParameter(
                f"a one-run audit cannot refute epsilon = {claimed:.4g} at delta = {delta:g}; use method='many-run'."
            )
    raise InvalidParameter(
        f"{guesses} guesses are too few: even if all were correct, epsilon = {claimed:.4g} could not be refuted at "
        f"confidence {confidence:g}. Use about {needed} guesses ({5 * needed} canaries)."
    )
