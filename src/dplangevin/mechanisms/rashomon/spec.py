"""Specs of private draws and chains of a Rashomon set, and their privacy. Proofs: docs/theory/rashomon.md.

F is m-strongly convex on a convex set, and neighbours' objectives differ by a Delta-Lipschitz function. The score of a
draw moves by at most Delta times its distance to a minimiser, which is at most sqrt(2 f / m): draws near the set
lose little, and the excess of every data set is stochastically below that of a cone, whose law is known:

    c(s) ~ s^(p - 1) exp(-beta max(s - psi, 0)),     a(s) = min(D, sqrt(2 s / m)),  b(s) = min(D, a(s) + Delta / m)
    k = log(1 + E_c[exp(beta min(Delta a + e, s - psi)) - 1; s > psi])
    lam = beta min(Delta b + e, (s - psi + Delta b)+)
    delta(eps) <= E_c[1 - exp(eps - k - lam)]+,      e the error of the computed minimum.

Proof, and exact laws that come within a few percent of it: docs/theory/rashomon.md, section 6. All expectations are
computed as upper sums: the integrands do not decrease with s, so every cell takes the value at its right end.

The score h(F - F*) is a nondecreasing 1-Lipschitz function of F - F*, so one exact draw of exp(-beta h) has bounded
range beta (oscillation + e), e the largest error of the computed F*. The proximal chain's distance to that law
follows from two data-independent numbers: the start's log density ratio w and a Poincare constant C. K draws compose
through k * guarantee. With delta > 0 strong convexity gives much more (`local_range`).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from scipy.special import logsumexp

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting import proximal_certificate as chain
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Profile
from dplangevin.accounting.plan import COMMON_ASSUMPTIONS, Capabilities, Spec, Theorem
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import (
    DRAW_TIERS,
    EXACT_ARITHMETIC_ASSUMPTION,
    PUBLIC_PARAMETERS_ASSUMPTION,
    DrawTier,
    check_chain_fields,
    exponential_guarantee,
    mean_gradient_sensitivity,
    ramp_sensitivity,
    sup_norm_cost,
    threshold_sensitivity,
    transfer_sup_norm,
    transfer_total_variation,
)
from dplangevin.mechanisms.langevin.spec import (
    sgld_last_iterate_guarantee,
    sgld_trajectory_guarantee,
)
from dplangevin.mechanisms.options import with_constants_options
from dplangevin.mechanisms.perturbation.spec import (
    SOLVER_CONVERGES,
    check_minimizer_conditions,
    tolerance_or_default,
    total_ridge,
)
from dplangevin.problem.constants import Constants

_INNER_CELLS, _OUTER_CELLS, _NODES = 600, 3000, 6
_PROFILE_POINTS = 150
_PROFILE_RANGE = (1e-2, 1e-25)
"""Deltas between which the profile has most of its points: the curve falls steeply there."""
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class LocalRange:
    """One draw of the flat score, by the public numbers that its guarantee depends on.

    Parameters
    ----------
    dimension : p. inverse_temperature : beta. threshold : psi.
    strong_convexity : m of every data set's F. gradient_sensitivity : Delta, of the MEAN gradient.
    diameter : D of the set; infinity is allowed. minimum_error : e, a bound on the error of the computed minimum.

    Examples
    --------
    >>> draw = LocalRange(dimension=20, inverse_temperature=3.11e5, threshold=1e-3, strong_convexity=1.0,
    ...                   gradient_sensitivity=2 / 30_000, diameter=2.0)
    >>> draw.delta(1.0) < 1e-6, round(draw.tail_mass(0.0), 3)  # (1, 1e-6), and 94% of the draws in the set
    (True, 0.064)
    """

    dimension: int
    inverse_temperature: float
    threshold: float
    strong_convexity: float
    gradient_sensitivity: float
    diameter: float = math.inf
    minimum_error: float = 0.0

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            dimension=_check.check_count,
            inverse_temperature=_check.check_positive,
            threshold=_check.check_positive,
            strong_convexity=_check.check_positive,
            gradient_sensitivity=_check.check_positive,
            minimum_error=_check.check_nonnegative,
        )
        _check.set_frozen(self, diameter=_check.check_positive("diameter", self.diameter, infinite=True))

    def _distance_from_own(self, excess: Floats) -> Floats:
        """Return a(s): how far a point of this excess may be from the minimiser of its own data set."""
        return np.minimum(self.diameter, np.sqrt(2 * excess / self.strong_convexity))

    def _distance_from_neighbour(self, excess: Floats) -> Floats:
        """Return b(s): the same from the minimiser of a neighbour, which is at most Delta / m away."""
        apart = self.gradient_sensitivity / self.strong_convexity
        return np.minimum(self.diameter, np.sqrt(2 * excess / self.strong_convexity) + apart)

    @cached_property
    def _cells(self) -> tuple[Floats, Floats]:
        """The cone law of the excess: right ends of cells, and upper bounds on the logarithms of their masses.

        The law is that of the threshold psi + e. Its masses are relative to psi^p / p, divided by the total.
        """
        p, beta = self.dimension, self.inverse_temperature
        flat = self.threshold + self.minimum_error
        reach = float(self.gradient_sensitivity * self._distance_from_neighbour(np.array(flat)))
        first = max(0.0, flat - reach - 2 * self.minimum_error)
        inner = np.linspace(first, flat, _INNER_CELLS + 1)
        with np.errstate(divide="ignore"):
            powers = p * (np.log(inner) - math.log(flat))
        inside = np.exp(powers[1:]) - np.exp(powers[:-1])
        last = 60.0 + 4 * p
        t = last * np.linspace(0.0, 1.0, _OUTER_CELLS + 1) ** 1.5  # finer near the threshold
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = np.diff(t)[:, None] / 2
        points = t[:-1, None] + half * (nodes + 1)
        x = beta * flat
        logs = (p - 1) * np.log1p(points / x) - points + np.log(half * weights) + math.log(p / x)
        outside = logsumexp(logs, axis=1)
        # beyond the last cell (1 + t/x)^(p-1) e^-t falls at least as fast as e^-(1 - (p-1)/(x + last)) t
        decay = 1 - (p - 1) / (x + last)
        rest = (p - 1) * math.log1p(last / x) - last + math.log(p / x) - math.log(decay)
        with np.errstate(divide="ignore"):
            masses = np.concatenate([[p * math.log(first / flat) if first > 0 else -np.inf], np.log(inside)])
        masses = np.concatenate([masses, outside])
        total = float(logsumexp(np.append(masses, rest)))
        ends = np.concatenate([[first], inner[1:], flat + t[1:] / beta])
        return ends, np.append(masses, rest) - total + math.log(_ROUNDING)

    @cached_property
    def normaliser_bound(self) -> float:
        """k, a bound on the log ratio of the normalising constants of neighbours."""
        ends, logs = self._cells
        beta, delta = self.inverse_temperature, self.gradient_sensitivity
        excess = np.maximum(ends - self.threshold, 0.0)
        own = delta * self._distance_from_own(ends) + self.minimum_error
        exponents = beta * np.minimum(own, excess)
        with np.errstate(over="ignore"):
            total = float(np.sum(np.exp(logs[:-1]) * np.expm1(exponents)))
        # beyond the last cell the exponent lies below its tangent, of slope at most beta Delta / (2 m a) d s
        last = float(ends[-1])
        distance = float(self._distance_from_own(np.array(last)))
        slope = delta / (self.strong_convexity * distance) if distance < self.diameter else 0.0
        x = beta * (self.threshold + self.minimum_error)
        decay = 1 - (self.dimension - 1) / (x + beta * (last - self.threshold))
        if not slope < 0.5 * decay:
            raise AssumptionFailed(
                "the sensitivity is too large for a local bound; use the bounded range of the score."
            )
        total += math.exp(float(logs[-1]) + float(exponents[-1])) * decay / (decay - slope)
        return math.log1p(total) * _ROUNDING

    @cached_property
    def _losses(self) -> Floats:
        """k + lam at the right ends of the cells; infinite beyond the last one."""
        ends, _ = self._cells
        beta, delta = self.inverse_temperature, self.gradient_sensitivity
        shift = delta * self._distance_from_neighbour(ends)
        local = np.minimum(shift + self.minimum_error, np.maximum(ends - self.threshold + shift, 0.0))
        return np.append(self.normaliser_bound + beta * local * _ROUNDING, np.inf)

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, in both directions, for every pair of neighbours."""
        _, logs = self._cells
        gains = -np.expm1(np.minimum(epsilon - self._losses, 0.0))
        return min(1.0, float(np.exp(logs) @ gains))

    def profile(self) -> Profile:
        """Return the whole curve, on a grid of epsilons up to where delta is that of the last cell."""
        epsilons = float(self._losses[-2]) * np.linspace(0.0, 1.0, _PROFILE_POINTS)
        for _ in range(2):
            deltas = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
            high, low = _PROFILE_RANGE
            steep = np.flatnonzero((deltas < high) & (deltas > low))
            if steep.size == 0:
                break
            ends = epsilons[max(steep[0] - 1, 0)], epsilons[min(steep[-1] + 1, epsilons.size - 1)]
            epsilons = np.unique(np.concatenate([epsilons, np.linspace(*ends, _PROFILE_POINTS)]))
        deltas = np.minimum.accumulate([self.delta(float(epsilon)) for epsilon in epsilons])
        return Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))

    def tail_mass(self, slack: float) -> float:
        """Bound the probability that the excess of a draw is above psi + slack, for every data set."""
        p, x = self.dimension, self.inverse_temperature * (self.threshold + self.minimum_error)
        t = self.inverse_temperature * _check.check_nonnegative("slack", slack)
        edges = t + (60.0 + 4 * p) * np.linspace(0.0, 1.0, 401) ** 1.5
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        half = np.diff(edges)[:, None] / 2
        points = edges[:-1, None] + half * (nodes + 1)
        logs = (p - 1) * np.log1p(points / x) - points + np.log(half * weights) + math.log(p / x)
        decay = 1 - (p - 1) / (x + edges[-1])
        rest = (p - 1) * math.log1p(edges[-1] / x) - edges[-1] + math.log(p / x / decay)
        beyond = float(logsumexp(np.append(logs.ravel(), rest)))
        # the whole outer mass, for the denominator, is at least what lies beyond
        if slack == 0:
            return 1 / (1 + math.exp(-beyond)) * _ROUNDING
        return min(1.0, math.exp(beyond) / (1 + self._outer_mass()) * _ROUNDING)

    def _outer_mass(self) -> float:
        """Return B / A: the mass above the threshold over that below."""
        tail = self.tail_mass(0.0) / _ROUNDING
        return tail / (1 - tail) if tail < 1 else math.inf


@dataclass(frozen=True, kw_only=True)
class RashomonSpec(Spec):
    """Independent draws of exp(-beta h(F - F*)) on the set, with h flat up to the threshold psi.

    h(a) = max(a - psi, 0), or with a ramp tau > 0: 0 up to psi, (a - psi)^2 / (2 tau) up to psi + tau, then
    a - psi - tau/2. F* is F at a computed minimiser.

    Parameters
    ----------
    n_models : K, number of draws. threshold : psi. ramp : tau, 0 for the sharp threshold.
    inverse_temperature : beta.
    tolerance : largest gradient norm of the SUM of losses (with the ridge) at the computed minimiser, modulo the
        normal cone; a run that misses it releases nothing. Not used on a grid.
    max_excess : a bound on sup F - inf F over the set (see problem.problem.max_excess); a run refuses a problem with
        a larger one.
    tier : "exact", "certified" (proximal chain, total variation) or "pure" (proximal chain, density everywhere).
    step_size, n_steps : of the proximal chain; 0 for exact draws.
    target_epsilon : the epsilon at which a certified guarantee is exact; elsewhere it is interpolated upwards.
    grid : 0, or points per axis of a public grid that replaces the set; F* is then the minimum over the grid, exactly,
        and neither convexity nor a ridge is needed (exact draws of the sharp threshold).
    excess_cap : certified chains sample the law on {F <= F* + psi + excess_cap}, a set so small that they converge
        quickly; what the law puts beyond it counts as total variation. Infinity: the whole set.
    """

    mechanism: ClassVar[str] = "rashomon"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True)
    n_models: int
    threshold: float
    inverse_temperature: float
    tolerance: float
    max_excess: float
    ramp: float = 0.0
    tier: DrawTier = "exact"
    step_size: float = 0.0
    n_steps: int = 0
    target_epsilon: float = 1.0
    excess_cap: float = math.inf
    grid: int = 0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        _check_common_fields(self)
        _check.set_frozen(self, tier=_check.check_choice("tier", self.tier, DRAW_TIERS))
        _check.validate_fields(self, max_excess=_check.check_scale, target_epsilon=_check.check_positive)
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("draw",)))
        check_chain_fields(self, "exact draws have")
        _check.set_frozen(
            self, excess_cap=_check.check_positive("excess_cap", self.excess_cap, infinite=True)
        )
        _check.set_frozen(self, grid=_check.check_count("grid", self.grid, minimum=0))
        if self.grid == 1 or (self.grid and (self.tier != "exact" or self.ramp)):
            raise InvalidParameter(
                "grid must be 0, or at least 2 points per axis with tier='exact' and ramp=0."
            )
        if math.isfinite(self.excess_cap) and (self.tier != "certified" or self.ramp > 0):
            raise InvalidParameter("excess_cap is for certified chains of the sharp threshold; leave it out.")


@dataclass(frozen=True, kw_only=True)
class RashomonChainSpec(Spec):
    """Chains theta <- project(theta - eta beta grad h(F - F*)(theta) + N(0, 2 eta I)), n_models of them.

    The noise of the chains is what makes them private. They start at 0 and stop after a number of steps drawn
    uniformly and publicly from n_steps/2, ..., n_steps - 1.

    Parameters
    ----------
    n_models, threshold, inverse_temperature, tolerance, ramp : as in RashomonSpec.
    full_lipschitz : a bound on L_F, the Lipschitz constant of the full F on the set, regulariser included.
    interior_minimizers : every data set's minimiser is a zero of the gradient; required for the sharp threshold
        (ramp = 0).
    step_size : eta; eta beta is the learning rate. n_steps : the maximum number of steps of a chain.
    release : "last-iterate", the last points; "trajectory", every point of every chain.
    """

    mechanism: ClassVar[str] = "rashomon-chain"
    capabilities: ClassVar[Capabilities] = Capabilities()
    n_models: int
    threshold: float
    inverse_temperature: float
    tolerance: float
    full_lipschitz: float
    step_size: float
    n_steps: int
    ramp: float = 0.0
    interior_minimizers: bool = False
    release: Literal["last-iterate", "trajectory"] = "last-iterate"

    def __post_init__(self) -> None:
        _check_common_fields(self)
        _check.validate_fields(
            self, full_lipschitz=_check.check_scale, step_size=_check.check_scale, n_steps=_check.check_count
        )
        _check.set_frozen(
            self, release=_check.check_choice("release", self.release, ("last-iterate", "trajectory"))
        )

    @property
    def tier(self) -> str:
        """Always "process": the chains are private by their own noise."""
        return "process"


def _check_common_fields(spec: RashomonSpec | RashomonChainSpec) -> None:
    _check.set_frozen(spec, n_models=_check.check_count("n_models", spec.n_models))
    _check.set_frozen(spec, threshold=_check.check_nonnegative("threshold", spec.threshold))
    _check.set_frozen(spec, ramp=_check.check_nonnegative("ramp", spec.ramp))
    beta = _check.check_scale("inverse_temperature", spec.inverse_temperature)
    _check.set_frozen(
        spec, inverse_temperature=beta, tolerance=_check.check_positive("tolerance", spec.tolerance)
    )


@with_constants_options("smoothness strong_convexity diameter dimension")
def read_rashomon_options(
    constants: Constants,
    *,
    n_models: int,
    threshold: float,
    inverse_temperature: float,
    max_excess: float | None = None,
    ramp: float = 0.0,
    tolerance: float | None = None,
) -> RashomonSpec:
    """Read the options of exact draws of exp(-inverse_temperature h(F - F*)), with h flat up to the threshold."""
    if max_excess is None:  # a bound on sup F - inf F from the Lipschitz constant of the full F
        full_lipschitz = constants.lipschitz + constants.strong_convexity * constants.diameter
        max_excess = full_lipschitz * constants.diameter
    return RashomonSpec(
        n_models=n_models,
        threshold=threshold,
        inverse_temperature=inverse_temperature,
        tolerance=tolerance_or_default(constants, tolerance),
        max_excess=max_excess,
        ramp=ramp,
    )


NO_DIAGNOSTICS_ASSUMPTION = (
    "nothing else about the draws that depends on the data is released: membership, training loss, acceptance, "
    "time"
)


def minimum_error(constants: Constants, tolerance: float) -> float:
    """Return e, a bound on the error of the computed minimum: tolerance^2 / (2 n Lambda) with Lambda = n ridge."""
    return tolerance**2 / (2 * constants.n * total_ridge(constants)) * (1 + 1e-12)


def start_scale(dimension: int, inverse_temperature: float, threshold: float, max_excess: float) -> float:
    """Return s: the chain starts on the set shrunk by s towards the minimiser, where F <= F* + s max_excess."""
    return min(1.0, max(threshold, dimension / inverse_temperature) / max_excess)


def start_log_ratio(dimension: int, inverse_temperature: float, threshold: float, max_excess: float) -> float:
    """Return w, the log density ratio of that start: p log(1/s) + beta (s max_excess - psi)+, for every data set.

    Examples
    --------
    >>> round(start_log_ratio(10, 300.0, 0.05, 2.0), 4)  # s = psi / excess: the whole start lies in the set
    36.8888
    """
    s = start_scale(dimension, inverse_temperature, threshold, max_excess)
    inside = inverse_temperature * max(s * max_excess - threshold, 0.0)
    return (dimension * math.log(1 / s) + inside) * (1 + 1e-12) + 1e-12


def poincare_bound(constants: Constants, inverse_temperature: float, plateau: float) -> float:
    """Bound the Poincare constant C of exp(-beta h) by diameter^2 / pi^2 or exp(beta plateau) / (beta m).

    The second bound is that of Holley and Stroock; plateau bounds the oscillation of h(a) - a: psi + tau/2 + e.
    """
    flat = chain.poincare_constant(0.0, constants.diameter)
    exponent, ridge = inverse_temperature * plateau, inverse_temperature * constants.strong_convexity
    return min(flat, math.exp(exponent) / ridge) if ridge > 0 and exponent < 50 else flat


def sampler_error(constants: Constants, spec: RashomonSpec) -> float:
    """Bound the sampler's error of one draw for every data set: 0 if exact, else by tier.

    It is in total variation for the certified tier and in sup |density ratio - 1| for the pure tier.
    """
    if spec.tier == "exact":
        return 0.0
    assert constants.dimension is not None
    beta, psi = spec.inverse_temperature, spec.threshold
    ratio = start_log_ratio(constants.dimension, beta, psi, spec.max_excess)
    error = minimum_error(constants, spec.tolerance)
    rate = poincare_bound(constants, beta, psi + spec.ramp / 2 + error)
    if spec.tier == "pure":
        return chain.sup_norm_after(spec.n_steps, ratio, spec.step_size, rate, constants.diameter)
    beyond = 0.0
    if math.isfinite(spec.excess_cap):
        start = start_scale(constants.dimension, beta, psi, spec.max_excess) * spec.max_excess
        if not start <= (psi + spec.excess_cap) * (1 - 1e-12):
            raise InvalidParameter("excess_cap leaves out a part of the start; raise it.")
        rate = min(rate, capped_poincare_bound(constants, psi + spec.excess_cap + error))
        beyond = local_range(constants, spec).tail_mass(spec.excess_cap) * (1 + 1e-6)
    # a positive floor, so that underflow does not turn a certified draw into an exact one
    return max(chain.total_variation_after(spec.n_steps, ratio, spec.step_size, rate), 1e-300) + beyond


def capped_poincare_bound(constants: Constants, level: float) -> float:
    """Bound the Poincare constant of a log-concave law on {F <= F* + level}, of diameter 2 sqrt(2 level / m)."""
    return float(2 * math.sqrt(2 * level / constants.strong_convexity) / math.pi) ** 2 * (1 + 1e-12)


def local_range(constants: Constants, spec: RashomonSpec) -> LocalRange:
    """Return the numbers on which the local bound of one draw depends."""
    assert constants.dimension is not None
    return LocalRange(
        dimension=constants.dimension,
        inverse_temperature=spec.inverse_temperature,
        threshold=spec.threshold,
        strong_convexity=constants.strong_convexity,
        gradient_sensitivity=mean_gradient_sensitivity(constants),
        diameter=constants.diameter,
        minimum_error=minimum_error(constants, spec.tolerance),
    )


class RashomonDrawsTheorem(
    Theorem[RashomonSpec], name="rashomon-draws", proof="docs/theory/rashomon.md, section 1"
):
    """K draws of exp(-beta h(F - F*)), each of bounded range beta (oscillation + e), plus the sampler's error.

    On a public grid e = 0, whatever F: if F - F' = g, then F* - F'* lies between the smallest and the largest g.

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, diameter=2.0,
    ...                       dimension=20)
    >>> spec = RashomonSpec(n_models=5, threshold=0.05, inverse_temperature=1500.0, tolerance=1e-6,
    ...                     max_excess=2.1)
    >>> round(RashomonDrawsTheorem().certify(constants, spec).epsilon(0.0), 6)
    1.0
    """

    reference = "Ganesh, Thakurta and Upadhyay (2023), Theorem 2.1; bounded range: Durfee and Rogers (2019), section 4"

    def derive_guarantee(self, constants: Constants, spec: RashomonSpec) -> Guarantee:
        if spec.grid:  # the minimum over the grid is exact, and moves as F does at two of its points
            law = spec.n_models * exponential_guarantee(constants, spec.inverse_temperature)
            assumptions = (*constants.assumptions, NO_DIAGNOSTICS_ASSUMPTION, EXACT_ARITHMETIC_ASSUMPTION)
            return replace(
                law,
                theorem=self.name,
                reference=self.reference,
                assumptions=(*assumptions, PUBLIC_PARAMETERS_ASSUMPTION),
                at_delta=None,
            )
        check_convex_draws(self, constants, spec)
        law = exponential_guarantee(
            constants, spec.inverse_temperature, minimum_error(constants, spec.tolerance)
        )
        error = sampler_error(constants, spec)
        if spec.tier == "pure":
            guarantee = spec.n_models * transfer_sup_norm(law, error, keep_range=True)
        else:
            guarantee = add_total_variation(spec.n_models * law, spec, error)
        return state_draws(self, constants, spec, error, guarantee)


class RashomonLocalTheorem(
    Theorem[RashomonSpec], name="rashomon-local", proof="docs/theory/rashomon.md, section 6"
):
    """K draws of the sharp threshold, each with the profile of `LocalRange`, plus the sampler's error.

    Strong convexity keeps most draws near the minimisers of both neighbours, where the objectives differ little.

    Examples
    --------
    >>> constants = Constants(n=30_000, lipschitz=1.0, smoothness=1.25, strong_convexity=1.0, diameter=2.0,
    ...                       dimension=20)
    >>> spec = RashomonSpec(n_models=1, threshold=1e-3, inverse_temperature=3.1e5, tolerance=1e-6, max_excess=4.0)
    >>> RashomonLocalTheorem().certify(constants, spec).epsilon(1e-6) < 1 < 41 < 3.1e5 * 2 / 30_000 * 2
    True
    """

    reference = "after Ganesh, Thakurta and Upadhyay (2023), section 2.1, whose open question it answers"

    def derive_guarantee(self, constants: Constants, spec: RashomonSpec) -> Guarantee:
        if spec.grid:
            raise self.refuse("the draws are on a grid, which is not convex", "Use rashomon-draws there.")
        check_convex_draws(self, constants, spec)
        if spec.ramp > 0:
            raise self.refuse("the threshold has a ramp", "Use ramp=0.")
        if not spec.threshold > 0:
            raise self.refuse("the threshold is 0", "State psi > 0.")
        profile, error = local_range(constants, spec).profile(), sampler_error(constants, spec)
        if spec.tier == "pure":
            # a density within a factor 1 +- z of the law's: delta(eps) <= (1 + z) delta(eps - log((1+z)/(1-z)))
            cost = sup_norm_cost(error)
            profile = replace(
                profile,
                epsilons=tuple((value + cost) * (1 + 1e-15) for value in profile.epsilons),
                deltas=tuple(min(1.0, value * (1 + error) * (1 + 1e-12)) for value in profile.deltas),
            )
        law = self.guarantee(constants, spec, (replace(profile, count=spec.n_models),))
        return state_draws(self, constants, spec, error, add_total_variation(law, spec, error))


def check_convex_draws(theorem: Theorem[RashomonSpec], constants: Constants, spec: RashomonSpec) -> None:
    """Raise AssumptionFailed unless draws on a convex set have a certified minimum and sampler."""
    check_minimizer_conditions(theorem, constants, spec.tolerance)
    if constants.dimension is None:
        raise theorem.refuse("the dimension is not known", "State it in the constants.")
    if spec.tier == "pure" and not sampler_error(constants, spec) < 1:
        raise theorem.refuse("the proximal chain is too short for its certificate", "Raise n_steps.")


def add_total_variation(law: Guarantee, spec: RashomonSpec, error: float) -> Guarantee:
    """Return the guarantee of all draws when certified chains take the place of exact draws, else the law's own."""
    if spec.tier != "certified":
        return law
    with np.errstate(over="ignore"):  # e^eps overflows where epsilon is too large to mean anything
        return transfer_total_variation(law, min(spec.n_models * error, 1.0), spec.target_epsilon)


def state_draws(
    theorem: Theorem[RashomonSpec],
    constants: Constants,
    spec: RashomonSpec,
    error: float,
    guarantee: Guarantee,
) -> Guarantee:
    """Return the guarantee with the theorem's name, conditions and assumptions, the sampler's error among them."""
    claims = {
        "exact": "every draw has exactly the target law",
        "certified": f"each draw is within total variation {error:.3g} of the law",
        "pure": f"each density is within a factor 1 +- {error:.3g} of the law's",
    }
    return replace(
        guarantee,
        theorem=theorem.name,
        reference=theorem.reference,
        conditions=(SOLVER_CONVERGES,),
        assumptions=(
            *constants.assumptions,
            f"sampler tier {spec.tier}: {claims[spec.tier]}",
            NO_DIAGNOSTICS_ASSUMPTION,
            EXACT_ARITHMETIC_ASSUMPTION,
            PUBLIC_PARAMETERS_ASSUMPTION,
        ),
        at_delta=None,
    )


class RashomonChainsTheorem(
    Theorem[RashomonChainSpec], name="rashomon-chains", proof="docs/theory/rashomon.md, section 4"
):
    """K chains with the gradient of the score: Gaussian composition over steps, or the convex last-iterate bound.

    Composition covers every point of every chain, so whole trajectories may be released under it.

    Sensitivity of the gradient: Delta + L_F (oscillation + e) / tau for a ramp; for the sharp threshold max{Delta,
    min(L_F, Delta + sqrt(2 M (psi + e)))}, which needs interior minimisers.
    """

    reference = "Ganesh, Thakurta and Upadhyay (2023), Theorem 2.3, corrected; Bok, Su and Altschuler (2024)"

    def derive_guarantee(self, constants: Constants, spec: RashomonChainSpec) -> Guarantee:
        check_minimizer_conditions(self, constants, spec.tolerance)
        beta, eta, steps = spec.inverse_temperature, spec.step_size, spec.n_steps
        score = score_constants(constants, spec)
        offers = [sgld_trajectory_guarantee(score, beta, eta, steps)]
        if spec.ramp > 0 and spec.release == "last-iterate":
            # any number of steps up to n_steps: the bound at the most steps covers the public stopping time
            with contextlib.suppress(AssumptionFailed):
                offers.append(sgld_last_iterate_guarantee(score, beta, eta, steps))
        best = min(offers, key=lambda g: g.mu or 0.0)
        return replace(
            spec.n_models * best,
            release=spec.release,
            theorem=self.name,
            reference=self.reference,
            conditions=(SOLVER_CONVERGES,),
            assumptions=(*constants.assumptions, NO_DIAGNOSTICS_ASSUMPTION, *COMMON_ASSUMPTIONS),
        )


def score_constants(constants: Constants, spec: RashomonChainSpec) -> Constants:
    """Return the constants of the score h(F - F*) whose gradient the chains follow, after checking its hypotheses."""
    error = minimum_error(constants, spec.tolerance)
    theorem, full = RashomonChainsTheorem(), spec.full_lipschitz
    half = constants.diameter / 2  # some point of the set is at least this far from 0
    least = constants.lipschitz + constants.strong_convexity * half
    if not full >= least * (1 - 1e-9):
        raise theorem.refuse(
            f"full_lipschitz = {full:g} is below lipschitz + ridge * diameter / 2 = {least:g}",
            "State that of the whole objective, ridge included (problem.problem.full_lipschitz).",
        )
    if spec.interior_minimizers and constants.strong_convexity * half < constants.lipschitz * (1 - 1e-9):
        raise theorem.refuse(
            "interior_minimizers=True, but the set is too small to contain the ball of radius lipschitz / ridge",
            "Raise the radius or alpha, or use route='pure'.",
        )
    if spec.ramp > 0:
        sensitivity = ramp_sensitivity(constants, spec.ramp, full, error)
        smoothness = constants.smoothness + full**2 / spec.ramp
    else:
        if not spec.interior_minimizers:
            raise theorem.refuse(
                "the trajectory route needs every data set's minimiser to be a zero of the gradient (radius at least "
                "lipschitz / ridge around 0); at a minimiser on the boundary one record changes the drift by up to L_F",
                "Raise the radius or alpha, or use route='pure', which needs no such hypothesis.",
            )
        sensitivity = threshold_sensitivity(constants, spec.threshold + error, full, True)
        smoothness = math.inf
    total = sensitivity * constants.n
    return replace(
        constants,
        lipschitz=max(constants.lipschitz, total),
        gradient_sensitivity=total,
        smoothness=smoothness,
        strong_convexity=0.0,
        hessian_rank=None,
    )
