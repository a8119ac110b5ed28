"""Choose temperatures, time, steps and weights of a Langevin run from its risk bounds (public quantities only).

Three runs are known for (epsilon, delta), each with an explicit bound on the expected excess of F over its minimum:

    average     constant beta, the uniform average is released (Theorems F.1 and F.4)
    weighted    strongly convex F: beta rises as e^(m B / 2), B the integral of beta, and the average has the weights
                e^(m B) dB (Theorems F.2 and F.5 with the best temperatures in place of powers of t)
    last        strongly convex F: the last iterate, near the stationary law exp(-beta F)

The first two are covered by the guarantee of the whole path, so that a run may be stopped at any time. Proofs:
docs/theory/langevin_and_gibbs.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import find_root
from dplangevin.accounting.registry import find_theorem
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import gibbs_temperature, mean_gradient_sensitivity
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.problem import Problem, risk
from dplangevin.problem.problem import full_lipschitz, max_norm

LangevinOutput = Literal["average", "weighted", "last"]
LANGEVIN_OUTPUTS: tuple[LangevinOutput, ...] = ("average", "weighted", "last")
DEFAULT_START_DISTANCE = 4.0
"""Assumed distance to the minimiser (rows of norm 1) where the set does not bound it; enters utility only."""
PREFERRED_STEPS, MAX_STEPS = 2_000, 20_000
RELATIVE_RATES = (0.05, 0.1, 0.2, 0.35, 0.5)
"""Learning rates a M that are tried, the smallest first: a smaller one has a smaller bound and needs more steps."""


@dataclass(frozen=True, kw_only=True)
class LangevinChoice:
    """A calibrated run with its bounds; everything in it is public.

    Parameters
    ----------
    spec, theorem : the run, and the theorem that certifies it.
    output : "average", "weighted" or "last". statement : of the paper that the risk bound follows.
    excess_risk : bound on the expected excess of F over its minimum on the set.
    stability : uniform stability of the released point: the expected mean loss of new records exceeds that of the
        records by at most this much.
    """

    spec: LangevinSpec
    theorem: str
    output: LangevinOutput
    statement: str
    excess_risk: float
    stability: float

    @property
    def holds_at_any_time(self) -> bool:
        """Whether the guarantee covers every iterate, so that the run may be stopped whenever one likes."""
        return self.output != "last"

    def describe(self) -> tuple[str, ...]:
        """Return the choices and bounds in sentences."""
        spec = self.spec
        betas, etas = np.atleast_1d(spec.inverse_temperature), np.atleast_1d(spec.time_step)
        beta = f"{betas[0]:.4g}" if betas.size == 1 else f"{betas[0]:.4g} rising to {betas[-1]:.4g}"
        eta = f"{etas[0]:.3g}" if etas.size == 1 else f"{etas[0]:.3g} falling to {etas[-1]:.3g}"
        released = {
            "average": "the average of the iterates is released",
            "weighted": "an average with geometric weights is released",
            "last": "the last iterate is released",
        }[self.output]
        anytime = (
            "the guarantee covers every iterate: with release='trajectory' it holds whenever the run is stopped"
            if self.holds_at_any_time
            else "the guarantee is for the last iterate only; a run to be stopped early releases an average"
        )
        return (
            f"Langevin diffusion: beta = {beta}, time T = {spec.total_time:.4g}, {spec.n_steps} steps of eta = "
            f"{eta}; {released}",
            f"{self.statement} of Ganesh, Thakurta and Upadhyay (2022): excess risk at most {self.excess_risk:.3g}, "
            f"uniform stability {self.stability:.3g}",
            anytime,
        )


def max_start_distance(problem: Problem) -> float:
    """Return the largest distance from the start (0, projected) to a point of the set; assumed if it is unbounded."""
    radius = max_norm(problem.constraint, problem.dimension)
    return radius if math.isfinite(radius) else DEFAULT_START_DISTANCE / problem.row_norm


def choose_langevin_run(
    problem: Problem,
    mu: float,
    *,
    population: bool = False,
    outputs: Iterable[LangevinOutput] = LANGEVIN_OUTPUTS,
) -> LangevinChoice:
    """Return the run with the smallest bound under mu-GDP: on the excess risk, or with the stability added to it.

    Parameters
    ----------
    problem : convex and smooth.
    population : choose time and steps for new records.
    outputs : the kinds of run to consider; "weighted" and "last" need a ridge.
    """
    _check_convex_and_smooth(problem)
    builders = {"average": _choose_average, "weighted": _choose_weighted, "last": _choose_last}
    choices = [
        choice for output in outputs if (choice := builders[output](problem, mu, population)) is not None
    ]
    if not choices:
        raise AssumptionFailed(
            "no Langevin run is known for this problem: it has no ridge, or needs too many steps."
        )
    return min(choices, key=lambda choice: choice.excess_risk + population * choice.stability)


def _check_convex_and_smooth(problem: Problem) -> None:
    if not problem.constants.convex or not math.isfinite(problem.constants.smoothness):
        raise AssumptionFailed(
            "the risk bounds of Langevin diffusion need a convex and smooth loss; smooth the loss, or make a Plan of a "
            "LangevinSpec yourself."
        )


def choose_stated_run(
    problem: Problem,
    mu: float,
    *,
    inverse_temperature: float | None = None,
    time: float | None = None,
    n_steps: int | None = None,
) -> LangevinChoice:
    """Return a run at constant temperature whose average is released, with what is not stated chosen.

    The whole path is (Delta beta sqrt(T / 2))-GDP: beta or T follows from mu where the other is stated; without either
    T = D^2 / (2 p), as Theorem F.1 takes. Steps are chosen so that the learning rate is small. What is stated is
    refused where it costs more than mu.
    """
    _check_convex_and_smooth(problem)
    constants = problem.constants
    distance, sensitivity = max_start_distance(problem), mean_gradient_sensitivity(constants)
    beta = (
        None
        if inverse_temperature is None
        else _check.check_scale("inverse_temperature", inverse_temperature)
    )
    if time is None:
        length = (
            distance**2 / (2 * problem.dimension) if beta is None else 2 * (mu / (sensitivity * beta)) ** 2
        )
    else:
        length = _check.check_scale("time", time)
    if beta is None:
        beta = mu / (sensitivity * math.sqrt(length / 2))
    spent = sensitivity * beta * math.sqrt(length / 2)
    if spent > mu * (1 + 1e-9):
        raise CalibrationFailed(
            f"inverse temperature {beta:g} for time {length:g} costs {spent:.4g}-GDP, above {mu:.4g}; lower one of "
            "them, or leave one out."
        )
    if n_steps is None:
        n_steps, _ = _choose_steps(length * beta, constants.smoothness)
    count = _check.check_count("n_steps", n_steps)
    spec = LangevinSpec(inverse_temperature=beta, time=length, n_steps=count, release="average")
    rate = length * beta / count
    if not rate * constants.smoothness < 1:
        needed = math.ceil(2 * length * beta * constants.smoothness)
        raise InvalidParameter(
            f"n_steps = {count} makes the learning rate beta T / n_steps = {rate:.3g}, not below 1/M = "
            f"{1 / constants.smoothness:.3g}; take {needed} steps or more, a smaller beta, or less time."
        )
    excess = risk.sgld_average_excess(problem.dimension, beta, distance, rate, count, constants.smoothness)
    stability = _average_stability(problem, np.full(count, rate), np.ones(count))
    return LangevinChoice(
        spec=spec,
        theorem="composition",
        output="average",
        statement="Theorem F.1",
        excess_risk=excess,
        stability=stability,
    )


def _choose_average(problem: Problem, mu: float, population: bool) -> LangevinChoice | None:
    """Choose constant beta and the total learning time S = a K: the bound is D^2 / (2 S) + p / (beta (1 - a M)).

    Under mu-GDP beta = 2 mu^2 / (Delta^2 S). Best for the records at S = D mu / (Delta sqrt p), that is
    T = S / beta = D^2 / (2 p); earlier for new records, since the stability grows with S.
    """
    constants, distance = problem.constants, max_start_distance(problem)
    sensitivity = mean_gradient_sensitivity(constants)
    longest = distance * mu / (sensitivity * math.sqrt(problem.dimension))
    best: LangevinChoice | None = None
    for total in longest * np.geomspace(1e-3 if population else 0.3, 1.2, 60 if population else 20):
        n_steps, rate = _choose_steps(float(total), constants.smoothness)
        beta = 2 * mu**2 / (sensitivity**2 * rate * n_steps)
        excess = risk.sgld_average_excess(
            problem.dimension, beta, distance, rate, n_steps, constants.smoothness
        )
        stability = _average_stability(problem, np.full(n_steps, rate), np.ones(n_steps))
        if best is None or excess + population * stability < best.excess_risk + population * best.stability:
            spec = LangevinSpec(
                inverse_temperature=beta, time_step=rate / beta, n_steps=n_steps, release="average"
            )
            best = LangevinChoice(
                spec=spec,
                theorem="composition",
                output="average",
                statement="Theorem F.4" if population else "Theorem F.1",
                excess_risk=excess,
                stability=stability,
            )
    return best


def _choose_steps(total: float, smoothness: float) -> tuple[int, float]:
    """Return (n_steps, learning rate) with n_steps rate = total: small rates while the steps stay affordable."""
    for relative_rate in RELATIVE_RATES:
        n_steps = max(10, math.ceil(total * smoothness / relative_rate))
        if n_steps <= PREFERRED_STEPS:
            break
    return n_steps, total / n_steps


def _choose_weighted(problem: Problem, mu: float, population: bool) -> LangevinChoice | None:
    """Choose the number of steps of the weighted average with the best temperatures, beta_t ~ (1 - a m)^(-t / 2).

    Among all temperatures with a given cost, the sum of a_t beta_t, these minimise the noise term of the bound, the sum
    of w_t / beta_t with the weights w_t ~ (1 - a m)^-(t + 1).
    """
    constants, m = problem.constants, problem.constants.strong_convexity
    if not m > 0:
        return None
    distance, sensitivity = max_start_distance(problem), mean_gradient_sensitivity(constants)
    best: LangevinChoice | None = None
    for total in np.geomspace(0.05, 30.0, 40) / m:
        n_steps, rate = _choose_steps(float(total), constants.smoothness)
        if n_steps > MAX_STEPS:
            break
        shrink = 1 - rate * m
        relative = shrink ** (np.arange(n_steps - 1, -1, -1) / 2)
        betas = relative * (2 * mu**2 / (sensitivity**2 * rate * float(relative.sum())))
        if not betas.min() > 1e-12 * betas.max():
            break
        excess = risk.sgld_average_excess(
            problem.dimension, betas, distance, rate, n_steps, constants.smoothness, m
        )
        stability = _average_stability(problem, np.full(n_steps, rate), relative**2)
        if best is None or excess + population * stability < best.excess_risk + population * best.stability:
            spec = LangevinSpec(
                inverse_temperature=tuple(betas.tolist()),
                time_step=tuple((rate / betas).tolist()),
                n_steps=n_steps,
                release="average",
                weights="geometric",
            )
            best = LangevinChoice(
                spec=spec,
                theorem="composition",
                output="weighted",
                statement="Theorem F.5" if population else "Theorem F.2",
                excess_risk=excess,
                stability=stability,
            )
    return best


def _choose_last(problem: Problem, mu: float, population: bool) -> LangevinChoice | None:
    """Choose the last iterate of a run that is long enough to be close to the stationary law exp(-beta F).

    More steps cost little more privacy, so that the run is lengthened while the bound on its risk falls by a tenth.
    """
    constants, m = problem.constants, problem.constants.strong_convexity
    if not m > 0 or constants.projection_error > 0:
        return None
    best: LangevinChoice | None = None
    for shrinkage in (1e2, 1e3, 1e4, 1e6, 1e8):
        for relative_rate in RELATIVE_RATES:
            rate = relative_rate / constants.smoothness
            n_steps = math.ceil(math.log(shrinkage) / -math.log1p(-rate * m))
            if n_steps <= PREFERRED_STEPS:
                break
        if best is not None and n_steps > MAX_STEPS:
            break
        choice = _calibrate_last(problem, mu, rate, n_steps, population)
        if best is not None and choice.excess_risk > 0.9 * best.excess_risk:
            break
        best = choice
    return best


def _calibrate_last(
    problem: Problem, mu: float, rate: float, n_steps: int, population: bool
) -> LangevinChoice:
    """Return the run of n_steps at this learning rate whose last iterate is mu-GDP."""
    constants, theorem = problem.constants, find_theorem("optimal-shift", LangevinSpec)

    def make_spec(log_beta: float) -> LangevinSpec:
        beta = math.exp(log_beta)
        return LangevinSpec(inverse_temperature=beta, time_step=rate / beta, n_steps=n_steps)

    def log_overspend(log_beta: float) -> float:
        return math.log((theorem.certify(constants, make_spec(log_beta)).mu or math.inf) / mu)

    guess = math.log(gibbs_temperature(constants, mu))
    try:
        root = float(find_root(log_overspend, guess - 12, guess + 12, xtol=1e-12))
    except ValueError:
        raise CalibrationFailed(
            "no inverse temperature meets the target; choose epsilon closer to 1."
        ) from None
    while log_overspend(root) > 0:
        root -= 1e-9
    excess = risk.sgld_last_excess(
        problem.dimension,
        math.exp(root),
        max_start_distance(problem),
        rate,
        n_steps,
        constants.smoothness,
        constants.strong_convexity,
        full_lipschitz(problem),
    )
    return LangevinChoice(
        spec=make_spec(root),
        theorem=theorem.name,
        output="last",
        statement="Lemma D.2, Corollary E.2" if population else "Lemma D.2, Theorem D.1",
        excess_risk=excess,
        stability=risk.gibbs_stability(constants.lipschitz, constants.strong_convexity, problem.n),
    )


def _average_stability(problem: Problem, rates: Floats, weights: Floats) -> float:
    """Return L times the mean distance of two coupled runs on neighbours, over the points that steps lead to.

    With the same noise, and a_t M <= 1, the distance obeys d_(t+1) <= (1 - a_t m) d_t + 2 a_t L / n (Lemmas E.1, F.3).
    """
    lipschitz, m = problem.constants.lipschitz, problem.constants.strong_convexity
    distances, distance = np.empty(len(rates)), 0.0
    for step, rate in enumerate(rates.tolist()):
        distance = (1 - rate * m) * distance + rate * 2 * lipschitz / problem.n
        distances[step] = distance
    return lipschitz * float(weights @ distances / weights.sum())
