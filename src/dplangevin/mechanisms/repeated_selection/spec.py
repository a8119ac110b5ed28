"""Spec of repeat-and-select, and its privacy profile from that of one attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, expand_bracket
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Profile, RenyiCurve
from dplangevin.accounting.plan import (
    ANSWER_ASSUMPTIONS,
    Capabilities,
    Theorem,
    noise_assumptions,
    round_up,
)
from dplangevin.accounting.pld import lower_hull
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec

RepetitionLaw = Literal["poisson", "geometric", "logarithmic"]
REPETITION_LAWS: tuple[RepetitionLaw, ...] = ("poisson", "geometric", "logarithmic")
MIN_POISSON_REPETITIONS = 5.0  # a Poisson number of this mean is 0 with probability 0.007


@dataclass(frozen=True, kw_only=True)
class RepeatedSelectionSpec(AnswerSpec):
    """K attempts, K from the stated law and secret; each is mu-GDP; the attempt with the largest score is released.

    Parameters
    ----------
    mu : of one attempt, its score included, for a person. repetitions : the mean of K.
    law : "poisson" (concentrated; K may be 0), "geometric" or "logarithmic" (K is at least 1, with long tails).
    rows_per_person : the most rows of a person, all of which the mu of an attempt covers.
    secure : attempts are exact; so is the number of them in every case.
    """

    mechanism: ClassVar[str] = "repeat-and-select"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, needs_no_problem=True)
    release: str = field(default="draw", init=False, repr=False)
    mu: float
    repetitions: float
    law: RepetitionLaw = "geometric"
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.set_frozen(
            self,
            mu=_check.check_scale("mu", self.mu),
            law=_check.check_choice("law", self.law, REPETITION_LAWS),
        )
        _check.validate_fields(self, repetitions=_check.check_positive)
        if not 1 <= self.repetitions <= 1e6:
            raise InvalidParameter(
                f"repetitions, their mean number, must be from 1 to a million; got {self.repetitions:g}."
            )
        if self.law == "poisson" and self.repetitions < MIN_POISSON_REPETITIONS:
            raise InvalidParameter(
                f"a Poisson number of mean {self.repetitions:g} is 0 too often; take repetitions >= "
                f"{MIN_POISSON_REPETITIONS:g}, or law='geometric'."
            )
        if self.law == "logarithmic" and self.repetitions == 1:
            raise InvalidParameter("a logarithmic number of mean 1 is always 1; take repetitions > 1.")
        _check.validate_fields(self, rows_per_person=_check.check_count)

    @property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial laws with this mean."""
        if self.law == "geometric":
            return 1 / self.repetitions

        def mean_repetitions(logarithm: float) -> float:  # as a function of log(1 / gamma)
            return math.expm1(logarithm) / logarithm

        return math.exp(
            -bisect_safe_side(lambda at: mean_repetitions(at) >= self.repetitions, 50.0, 1e-12, rounds=200)
        )


NEGATIVE_BINOMIAL_SHAPES = {"geometric": 1.0, "logarithmic": 0.0}
_WEIGHT_STEP = 2e-3
"""Relative width of the intervals of weights: it costs about twice this in epsilon."""
_MAX_CELLS, _MIN_WEIGHT = 10_000, 1e-40
_PROFILE_POINTS, _MIN_PROFILE_DELTA = 400, 1e-40
_MAX_PROFILE_MU = 20.0
"""Attempts beyond it are not private enough for a curve of moderate epsilons; their Renyi curve is used."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectionProfile:
    """Privacy profile of the best of K attempts as a combination of profiles of one attempt.

    docs/theory/selection.md, section 2: delta(eps) <= sum_k masses[k] delta_mu(eps - shifts[k]).
    """

    mu: float
    masses: Floats
    shifts: Floats

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at epsilon, in both directions."""
        terms = cv.gdp_delta(self.mu, epsilon - self.shifts, fast=True)
        return min(1.0, float(self.masses @ terms) * (1 + 1e-9))


@lru_cache(maxsize=64)
def selection_profile(spec: RepeatedSelectionSpec) -> SelectionProfile:
    """Return the profile of the selection.

    An output with probability u of a better one has weight w(u) = G'(1 - u), G the generating function of K. For
    neighbours that probability is at most T(u) = Phi(Phi^-1(u) + mu), so its weight is at least w(T(u)). The bound is
    the f-divergence of phi(l) = max_u (w(u) - e^eps l w(T(u)))_+, a convex function of the likelihood ratio l.
    """
    heaviest, lightest = float(_weights(spec, np.zeros(1))[0]), float(_weights(spec, np.ones(1))[0])
    lightest = max(lightest, heaviest * _MIN_WEIGHT)
    n_points = 2 + min(_MAX_CELLS, math.ceil(math.log(heaviest / lightest) / _WEIGHT_STEP))
    u = np.clip(_better_probability(spec, np.geomspace(heaviest, lightest, n_points)), 0.0, 1.0)
    u[0], u[-1] = 0.0, 1.0
    u = np.maximum.accumulate(u)
    # In the cell [u_i, u_i+1] weights are at most that of u_i, those of the neighbour at least that of T(u_i+1).
    most = ndtr(ndtri(np.minimum(u[1:] * (1 + 1e-9), 1.0)) + spec.mu) * (1 + 1e-9)
    upper = _weights(spec, u[:-1]) * (1 + 1e-9)
    lower = _weights(spec, np.minimum(most, 1.0)) * (1 - 1e-9)
    # phi is the upper envelope of 0 and the lines upper - x lower, x = e^eps l: the hull of (lower, -upper).
    order = np.lexsort((-upper, lower))
    slopes, heights = np.append(lower[order], 0.0), np.append(upper[order], 0.0)
    order = np.lexsort((-heights, slopes))
    slopes, heights = slopes[order], heights[order]
    first = np.r_[True, np.diff(slopes) > 0]
    slopes, heights = slopes[first], heights[first]
    corner = lower_hull(slopes, -heights)
    falls, rises = np.diff(slopes[corner]), np.diff(heights[corner])
    used = rises > 0  # lines beyond the highest one lie below it for every x > 0
    places = rises[used] / falls[used]
    masses = falls[used] * places * (1 + 1e-9)
    return SelectionProfile(mu=spec.mu, masses=masses, shifts=np.log(places) + 1e-9)


def _weights(spec: RepeatedSelectionSpec, u: Floats) -> Floats:
    """Return G'(1 - u)."""
    mean, gamma = spec.repetitions, spec.gamma if spec.law != "poisson" else 0.0
    if spec.law == "poisson":
        return np.asarray(mean * np.exp(-mean * u))
    scale = gamma + (1 - gamma) * u
    if spec.law == "geometric":
        return np.asarray(gamma / scale**2)
    return np.asarray((1 - gamma) / math.log(1 / gamma) / scale)


def _better_probability(spec: RepeatedSelectionSpec, weight: Floats) -> Floats:
    """Return the u at which G'(1 - u) is the given weight, up to rounding: any increasing numbers are valid cells."""
    if spec.law == "poisson":
        return np.asarray(np.log(spec.repetitions / weight) / spec.repetitions)
    gamma = spec.gamma
    if spec.law == "geometric":
        scale = np.sqrt(gamma / weight)
    else:
        scale = (1 - gamma) / math.log(1 / gamma) / weight
    return np.asarray((scale - gamma) / max(1 - gamma, 1e-12))


class RepeatedSelectionTheorem(
    Theorem[RepeatedSelectionSpec], name="repeat and select", proof="docs/theory/selection.md, section 2"
):
    """Privacy profile of the best of K attempts, K from a Poisson or a truncated negative binomial law.

    An output of an attempt is released with its density times G'(1 - u), G the generating function of K and u the
    probability that an attempt is better. Both factors are bounded by the trade-off curve of one attempt. At every
    epsilon the smaller of this bound and that of the Renyi curve is used.

    Examples
    --------
    >>> spec = RepeatedSelectionSpec(mu=0.1, repetitions=10, adjacency="replace-one")
    >>> round(RepeatedSelectionTheorem().certify(None, spec).epsilon(1e-6), 3)
    0.596
    """

    holds_for_rounded_noise = True  # the proof is about any law of an attempt that is mu-GDP
    reference = "this project; Papernot and Steinke (2022), Theorems 2 and 6; Liu and Talwar (2019)"

    def derive_guarantee(self, constants: None, spec: RepeatedSelectionSpec) -> Guarantee:
        renyi = renyi_bound(spec)
        return Guarantee(
            parts=(renyi if spec.mu > _MAX_PROFILE_MU else _to_profile(selection_profile(spec), renyi),),
            adjacency=spec.adjacency,
            release=spec.release,
            theorem=self.name,
            reference=self.reference,
            conditions=spec.conditions,
            arithmetic="discrete-grid" if spec.secure else "real",
            rows_per_person=spec.rows_per_person,
            assumptions=(
                *spec.assumptions,
                *noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure),
                "the number of attempts is secret, and so is their running time",
            ),
        )


def _to_profile(selection: SelectionProfile, renyi: RenyiCurve) -> Profile:
    """Return the smaller of both bounds on a grid of epsilons."""

    def delta(epsilon: float) -> float:
        return min(selection.delta(epsilon), renyi.delta(epsilon))

    top = expand_bracket(lambda epsilon: delta(epsilon) <= _MIN_PROFILE_DELTA, 1.0, 1e4) or 1e4
    top = bisect_safe_side(lambda epsilon: delta(epsilon) <= _MIN_PROFILE_DELTA, top, 0.0, rounds=12)
    epsilons = np.linspace(0.0, top, _PROFILE_POINTS)
    deltas = np.minimum.accumulate([round_up(delta(float(epsilon))) for epsilon in epsilons])
    return Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(np.minimum(deltas, 1.0).tolist()))


def renyi_bound(spec: RepeatedSelectionSpec) -> RenyiCurve:
    """Return the bound of Papernot and Steinke from the Renyi curve R(a) = a mu^2 / 2 of an attempt.

    With m the mean of K, at every order a > 1: Poisson: R(a) + m d + log(m) / (a - 1), where d is the attempt's delta
    at epsilon = log(1 + 1 / (a - 1)); truncated negative binomial of shape s and parameter g: R(a) + log(m) / (a - 1)
    + (1 + s) min_b ((1 - 1/b) R(b) + log(1 / g) / b).
    """
    orders = cv.ORDERS[cv.ORDERS > 1]
    single = orders * cv.square_ratio_up(spec.mu, 2)
    curve = single + math.log(spec.repetitions) / (orders - 1)
    if spec.law == "poisson":
        near = np.log1p(1 / (orders - 1))
        curve = curve + spec.repetitions * np.array([cv.rdp_delta(orders, single, e) for e in near])
    else:
        spent = np.min((1 - 1 / orders) * single - math.log(spec.gamma) / orders)
        curve = curve + (1 + NEGATIVE_BINOMIAL_SHAPES[spec.law]) * spent
    curve = np.minimum.accumulate(curve[::-1])[::-1]  # divergences grow with the order
    return RenyiCurve(orders=tuple(orders.tolist()), values=tuple(round_up(float(v)) for v in curve))


def calibrate_attempt_mu(epsilon: float, delta: float, spec: RepeatedSelectionSpec) -> float:
    """Return the largest mu of an attempt with which the whole search meets (epsilon, delta); 0 if there is none."""

    def meets_target(mu: float) -> bool:
        attempt = replace(spec, mu=mu)
        return min(selection_profile(attempt).delta(epsilon), renyi_bound(attempt).delta(epsilon)) <= delta

    mu = bisect_safe_side(meets_target, 0.0, cv.gdp_mu(epsilon, delta), rounds=24)
    # the certified curve is interpolated between its points, so it may be a little above
    while mu > 0 and RepeatedSelectionTheorem().certify(None, replace(spec, mu=mu)).epsilon(delta) > epsilon:
        mu = mu * (1 - 5e-4) if mu > 1e-9 else 0.0
    return mu


_N_CUTS = 300


def epsilon_lower_bound(constants: None, spec: RepeatedSelectionSpec, delta: float) -> float:
    """Return a lower bound on epsilon from attempts x ~ N(0, 1), or N(mu, 1) for the neighbour, that release x.

    Scores rank x above a first cut first, then x below a second cut, then the others: the event "x is below the second
    cut" has the largest ratio there, since better outputs are likelier for the neighbour. Without a first cut this is
    the best half-line.
    """
    mu, mean = spec.mu, spec.repetitions
    max_cut = 4 + math.sqrt(2 * math.log(mean + 1))
    tops = np.append(np.linspace(-max_cut - min(mu, 1e6), max_cut, _N_CUTS), np.inf)[:, None]
    cuts = np.linspace(-max_cut - min(mu, 1e6), max_cut + min(mu, 1e6), _N_CUTS)[None, :]
    first = (ndtr(-tops), ndtr(mu - tops))  # the probability of a better output, for both neighbours
    event = (ndtr(cuts), ndtr(cuts - mu))
    disjoint = tops >= cuts
    power, size = (
        _probability_above(spec, np.minimum(better + mass, 1.0)) - _probability_above(spec, better)
        for better, mass in zip(first, event, strict=True)
    )
    # differences lose digits: their error is subtracted from the power and added to the size
    gain = power * (1 - 1e-9) - 1e-12 - delta
    ratio = np.where(disjoint & (gain > 0), gain, 0.0) / (size * (1 + 1e-9) + 1e-12)
    best = float(np.max(ratio))
    return math.log(best) if best > 1 else 0.0


def _probability_above(spec: RepeatedSelectionSpec, probability: Floats) -> Floats:
    """Return the probability that at least one of K attempts is above, where each is with the given probability."""
    if spec.law == "poisson":
        return np.asarray(-np.expm1(-spec.repetitions * probability))
    gamma = spec.gamma
    if spec.law == "geometric":
        return np.asarray(probability / (gamma + (1 - gamma) * probability))
    return np.asarray(np.log1p((1 / gamma - 1) * probability) / math.log(1 / gamma))
