"""Table 1 of Ganesh, Thakurta and Upadhyay (2022) and Table 2 of (2023): measured slopes, and every cell run.

Ganesh, Thakurta and Upadhyay (2022), Table 1, rows ERM, and (2023), Table 2: measured slopes.

Ganesh, Thakurta and Upadhyay (2022), Table 1, rows SCO: measured slopes of excess population risk.

Ganesh, Thakurta and Upadhyay (2023), Table 2: the four cells, each measured where one of its terms dominates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammainc, gammaincc, gammaln, ndtri

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.accounting.conversions import gdp_mu, zcdp_delta
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.exponential.sampler_plans import plan_iterated, plan_sampler
from dplangevin.mechanisms.exponential.spec import log_sobolev_constant, threshold_sensitivity
from dplangevin.mechanisms.exponential.tiers import plan_stages
from dplangevin.mechanisms.langevin.temperatures import choose_langevin_run
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon.planning import plan_rashomon
from dplangevin.papers.gallery import _draw
from dplangevin.papers.gallery._draw import RateRow, slopes_figure
from dplangevin.problem import Ball, Box, DataBounds, Logistic, Mean, Problem, Sigmoid
from dplangevin.problem.constants import Constants
from dplangevin.problem.risk import (
    langevin_convex_population_excess,
    langevin_strongly_convex_excess,
    regularized_exponential_ridge,
    regularized_gibbs_ridge,
)
from dplangevin.sampling.log_concave import sample_gamma_below, sample_unit_directions
from dplangevin.sampling.potential import ProblemPotential

DELTA, RADIUS, FAIL = 1e-6, 0.5, 1e-6


def draw_erm_rates(output: Path, *, quick: bool) -> str:
    """Measure the excess empirical risk of every row on an instance that its bound covers, with fitted slopes."""
    repeats = 200 if quick else 2000
    figure, fitted = slopes_figure(erm_rows(), repeats, start=(20_000, 8, 0.25))
    _draw.save_figure(figure, output / "erm-rates.svg")
    _draw.write_table(output / "erm-rates.csv", *fitted.table())
    return (
        "Each row is measured on an instance that its bound is about (a cone |theta|, a quadratic, a pit in a plateau, "
        f"a thresholded cone) in a ball of diameter 1, by exact draws or fine Euler steps, {repeats} repetitions a "
        "point. Slopes are fitted on a log-log scale from n = 20,000, p = 8, epsilon = 0.25 upwards.\n"
        f"{fitted.sentences()}\n"
        "Agrees: the powers, up to the logarithms that the table prints (the iterated mechanism's p^2 + p log n is "
        "nearer to p at small p; mu grows a little slower than epsilon; and the "
        "cone's diffusion saturates in p where p / beta is no longer small against the radius).\n"
        "Differs: the constants that the text leaves open decide what is private. beta = epsilon n / (L |C|) as "
        "printed is 2 epsilon-DP under replacement; the draws here use epsilon n / (2 L |C|). In the second table's "
        "(epsilon, delta) column beta must be proportional to epsilon^2, and the row holds only for thresholds up to "
        "about L^2/(M n^2), with minimisers in the interior."
    )


def erm_rows() -> tuple[RateRow, ...]:
    """Return the rows of the tables."""
    return (
        RateRow("ERM convex, eps", cone_exponential, (-1, 1, -1)),
        RateRow("ERM m-SC, eps (iterated)", iterated_exponential, (-2, 2, -2)),
        RateRow("ERM non-convex, eps", worst_plateau, (-1, 1, -1)),
        RateRow("ERM convex, (eps, delta)", cone_diffusion, (-1, 0.5, -1)),
        RateRow("ERM m-SC, (eps, delta)", strongly_convex_diffusion, (-2, 1, -2)),
        RateRow("Rashomon, eps", thresholded_gibbs, (-1, 1, -1)),
    )


def cone_exponential(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = |theta|: the radius has density r^{p-1} e^{-beta r} on [0, R]."""
    beta = epsilon * n / (2 * 2 * RADIUS)
    radii = sample_gamma_below(p, np.full(repeats, beta * RADIUS), rng) / beta
    return float(np.mean(radii))


def iterated_exponential(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = |theta|^2 / 2 on the ball, by the stages of the iterated exponential mechanism."""
    lipschitz = 2 * RADIUS
    constants = Constants(
        n=n, lipschitz=lipschitz, smoothness=1.0, strong_convexity=1.0, diameter=2 * RADIUS, dimension=p
    )
    stages = plan_stages(constants, epsilon, FAIL, lipschitz).stages
    centres, radius = np.zeros((p, repeats)), RADIUS
    for stage in stages:
        centres = _gaussian_in_ball(centres, radius, stage.inverse_temperature, rng)
        radius = stage.radius
    return float(np.mean(np.sum(centres**2, axis=0)) / 2)


def _gaussian_in_ball(centres: Floats, radius: float, beta: float, rng: np.random.Generator) -> Floats:
    """Sample exp(-beta |theta|^2 / 2) on the balls of radius `radius` around the centres, by rejection.

    Around 0 (the first stage) the radius is drawn exactly; later balls contain nearly all of the mass.
    """
    p, repeats = centres.shape
    if not centres.any():
        squares = sample_gamma_below(p / 2, np.full(repeats, beta * radius**2 / 2), rng) * 2 / beta
        return np.asarray(np.sqrt(squares) * sample_unit_directions(p, repeats, rng))
    samples, pending = np.empty_like(centres), np.arange(repeats)
    while pending.size:
        proposals = rng.standard_normal((p, pending.size)) / math.sqrt(beta)
        inside = np.linalg.norm(proposals - centres[:, pending], axis=0) <= radius
        samples[:, pending[inside]] = proposals[:, inside]
        pending = pending[~inside]
    return samples


def worst_plateau(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = min(|theta|, x) with the worst plateau x: the expectation is an integral, no draws are needed."""
    beta = epsilon * n / (2 * 2 * RADIUS)

    def expected_loss(x: float) -> float:
        weight = _radial_integral(p, lambda r: -beta * min(r, x), x)
        return _radial_integral(p, lambda r: -beta * min(r, x), x, lambda r: min(r, x)) / weight

    levels = np.geomspace(p / beta, min(RADIUS, 200 * p / beta), 60)
    return max(expected_loss(float(x)) for x in levels)


def _radial_integral(
    p: int,
    log_weight: Callable[[float], float],
    knot: float,
    factor: Callable[[float], float] = lambda r: 1.0,
) -> float:
    """Integral of factor(r) r^{p-1} e^{log_weight(r)} / R^{p-1} over [0, R], split at the knot."""

    def integrand(r: float) -> float:
        return factor(r) * math.exp((p - 1) * math.log(max(r, 1e-300) / RADIUS) + log_weight(r))

    knot = min(knot, RADIUS)
    inner = quad(integrand, 0.0, knot, limit=200, epsabs=0.0, epsrel=1e-9)[0]
    return float(inner + quad(integrand, knot, RADIUS, limit=200, epsabs=0.0, epsrel=1e-9)[0])


def cone_diffusion(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """F = |theta|, start at distance R, T = R^2/(2p), beta = mu n / (L sqrt(2 T)): loss of the time average."""
    time = RADIUS**2 / (2 * p)
    beta = gdp_mu(epsilon, DELTA) * n / 100 / math.sqrt(2 * time)  # n / 100: the same slopes, fewer steps
    steps = int(min(20_000, max(200, 6 * time * beta**2 / p)))
    step, count = time / steps, max(20, repeats // 20)
    theta = np.zeros((count, p))
    theta[:, 0] = RADIUS
    total = np.zeros_like(theta)
    for _ in range(steps):
        norm = np.linalg.norm(theta, axis=1, keepdims=True)
        theta = theta * (1 - np.minimum(step * beta / np.maximum(norm, 1e-300), 1.0))
        theta += math.sqrt(2 * step) * rng.standard_normal(theta.shape)
        theta *= np.minimum(1.0, RADIUS / np.linalg.norm(theta, axis=1, keepdims=True))
        total += np.linalg.norm(theta, axis=1, keepdims=True)
    return float(np.mean(total[:, 0])) / steps


def strongly_convex_diffusion(
    n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator
) -> float:
    """F = |theta|^2 / 2 from distance R: exact Ornstein-Uhlenbeck steps, weights d e^{beta t}."""
    sensitivity = 2 * 2 * RADIUS / n
    beta, time, _ = langevin_strongly_convex_excess(p, gdp_mu(epsilon, DELTA), sensitivity, RADIUS, 1.0)
    steps = 400
    decay = math.exp(-beta * time / steps)
    spread = math.sqrt((1 - decay**2) / beta)
    theta = np.zeros((repeats, p))
    theta[:, 0] = RADIUS
    total, weights = np.zeros_like(theta), 0.0
    for k in range(1, steps + 1):
        theta = decay * theta + spread * rng.standard_normal(theta.shape)
        weight = math.exp(beta * time * (k / steps - 1))
        total, weights = total + weight * theta, weights + weight
    return float(np.mean(np.sum((total / weights) ** 2, axis=1)) / 2)


def thresholded_gibbs(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """Return a lower bound E F - F* - psi on the excess of exp(-beta max(|theta|, psi)), psi = p / (4 beta)."""
    beta = epsilon * n / (2 * 2 * RADIUS)
    psi = p / (4 * beta)
    weight = _radial_integral(p, lambda r: -beta * max(r, psi), psi)
    above = _radial_integral(p, lambda r: -beta * max(r, psi), psi, lambda r: max(r, psi))
    return above / weight - psi


def draw_sco_rates(output: Path, *, quick: bool) -> str:
    """Measure population risk where sampling error dominates (large epsilon) and where privacy does (small epsilon)."""
    repeats = 200 if quick else 2000
    figure, fitted = slopes_figure(sco_rows(), repeats, start=(4000, 8, 1.0))
    _draw.save_figure(figure, output / "sco-rates.svg")
    _draw.write_table(output / "sco-rates.csv", *fitted.table())
    bound = langevin_convex_population_excess(20, gdp_mu(1.0, DELTA), 30_000, 1.0, 2.0)
    return (
        "Excess population risk on linear losses -<theta, d> over a ball (convex) and |theta - d|^2 / 2 (strongly "
        f"convex), {repeats} repetitions a point or exact sums. Every bound of these rows is a sum of a sampling term "
        "and a privacy term; each is measured where it rules (n times 100 and epsilon scaled down, or epsilon up).\n"
        f"{fitted.sentences()}\n"
        "Agrees: n^-1/2 and n^-1 where sampling rules, the powers of the table where privacy rules (slopes lie between "
        "the two where both matter).\n"
        f"Differs: the bounds come without constants. With them, convex (epsilon, delta) risk is at most 2 L D "
        f"sqrt(p/(mu n)^2 + 1/n), {bound:.4f} at n = 30,000, p = 20, D = 2, (1, 1e-6). For the iterated mechanism the "
        "stability of the last stage is applied to a set that depends on the data: its population bound is indicative."
    )


def sco_rows() -> tuple[RateRow, ...]:
    """Return the rows of the table, each where one of its terms dominates."""
    return (
        RateRow("convex, eps, privacy rules", lambda n, p, e, k, rng: linear_pure(100 * n, p, e / 1000), (-1, 1, -1)),
        RateRow("convex, eps, sampling rules", lambda n, p, e, k, rng: linear_pure(n, p, 30 * e), (-0.5, 0, 0)),
        RateRow("convex, (eps, delta), privacy rules",
            lambda n, p, e, k, rng: linear_gibbs(100 * n, p, e / 400), (-1, 0.5, -1)),
        RateRow("m-SC, eps, privacy rules",
            lambda n, p, e, k, rng: quadratic_pure(100 * n, p, e / 12, k, rng), (-2, 2, -2)),
        RateRow("m-SC, sampling rules", lambda n, p, e, k, rng: quadratic_pure(n, p, 400 * e, k, rng), (-1, 0, 0)),
        RateRow("m-SC, (eps, delta), privacy rules",
            lambda n, p, e, k, rng: quadratic_gaussian(100 * n, p, e / 200, k, rng), (-2, 1, -2)),
    )  # fmt: skip


def linear_pure(n: int, p: int, epsilon: float) -> float:
    """Regularised exponential mechanism, beta = eps n / (2 L diam), ridge 2 L / (R sqrt n)."""
    return _worst_linear_excess(
        n, p, epsilon * n / (4 * RADIUS), regularized_exponential_ridge(1.0, RADIUS, n)
    )


def linear_gibbs(n: int, p: int, epsilon: float) -> float:
    """Gibbs law with an added ridge, beta = m mu^2 / Delta^2."""
    mu, sensitivity = gdp_mu(epsilon, DELTA), 2.0 / n
    ridge, _ = regularized_gibbs_ridge(p, mu, sensitivity, RADIUS, 2.0 / n)
    return _worst_linear_excess(n, p, ridge * (mu / sensitivity) ** 2, ridge)


def _worst_linear_excess(n: int, p: int, beta: float, ridge: float) -> float:
    """F = -<theta, mean d> + ridge |theta|^2 / 2, d = +-e_1: worst excess over the strength of the signal E d.

    The first coordinate has density e^{beta (a d - ridge a^2 / 2)} times an incomplete gamma function (the other
    coordinates, integrated over what the ball leaves them), so that its mean is a sum over a fine grid.
    """
    places = RADIUS * np.linspace(-1, 1, 4001)[1:-1]
    tail_mass = gammainc((p - 1) / 2, beta * ridge * (RADIUS**2 - places**2) / 2)
    base = np.log(np.maximum(tail_mass, 1e-300)) - beta * ridge * places**2 / 2
    quantiles = ndtri((np.arange(32) + 0.5) / 32) / math.sqrt(n)  # the mean of n signs, as a normal
    worst = 0.0
    for signal in np.geomspace(0.3 / math.sqrt(n), 0.9, 24):
        total = 0.0
        for noise in quantiles:
            logs = base + beta * places * (signal + noise)
            weights = np.exp(logs - logs.max())
            total += float(np.sum(weights * (RADIUS - places)) / np.sum(weights))
        worst = max(worst, float(signal) * total / len(quantiles))
    return worst


def quadratic_pure(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """Iterated exponential mechanism: the error of the sample mean and that of the draw add up."""
    return sampling_error(n) + iterated_exponential(n, p, epsilon, repeats, rng)


def quadratic_gaussian(n: int, p: int, epsilon: float, repeats: int, rng: np.random.Generator) -> float:
    """Return the risk of the weighted average of the diffusion; its privacy term dominates at these epsilon."""
    return sampling_error(n) + strongly_convex_diffusion(n, p, epsilon, repeats, rng)


def sampling_error(n: int) -> float:
    """Return E |mean of n - mean|^2 / 2 for points on the sphere of radius R/2."""
    return (RADIUS / 2) ** 2 / (2 * n)


LIPSCHITZ = 2 * RADIUS  # of |theta - d|^2 / 2 on the ball
ROWS = (
    RateRow("empirical, eps", lambda n, p, e, k, rng: cone_excess(n, p, e), (-1, 1, -1)),
    RateRow("empirical, (eps, delta)", lambda n, p, e, k, rng: curved_excess(n, p, e), (-2, 1, -2)),
    RateRow(
        "population, eps, privacy rules",
        lambda n, p, e, k, rng: pure_excess(100 * n, p, e / 100),
        (-1, 1, -1),
    ),
    RateRow(
        "population, eps, sampling rules", lambda n, p, e, k, rng: pure_excess(n, p, 1e6 * e), (-1, 0, 0)
    ),
    RateRow(
        "population, (eps, delta), privacy rules",
        lambda n, p, e, k, rng: sampling_error(100 * n) + curved_excess(100 * n, p, e / 200),
        (-2, 1, -2),
    ),
    RateRow(
        "population, (eps, delta), sampling rules",
        lambda n, p, e, k, rng: sampling_error(n) + curved_excess(n, p, 1e4 * e),
        (-1, 0, 0),
    ),
)


def draw_rashomon_rates(output: Path, *, quick: bool) -> str:
    """Compute the excess risk over the threshold of every cell; all are integrals, so `quick` has no effect."""
    figure, fitted = slopes_figure(ROWS, 0, start=(20_000, 8, 0.25))
    _draw.save_figure(figure, output / "rashomon-rates.svg")
    _draw.write_table(output / "rashomon-rates.csv", *fitted.table())
    largest = max_threshold(20_000)
    return (
        "Draws of exp(-beta max(F, F* + psi)) in a ball of diameter 1: F a cone |theta| (first cell) or |theta - d|^2 "
        "/ 2, by exact integrals. Population cells are sums; each term is measured where it rules.\n"
        f"{fitted.sentences()}\n"
        "Agrees: all powers of the table.\n"
        "Differs: in the (epsilon, delta) column beta is proportional to epsilon^2 and psi is Delta^2 / (8 M), Delta = "
        f"2 L / n: at n = 20,000 that is psi = {largest:.2g}, a set too small to be useful. For larger thresholds the "
        "cost by a log-Sobolev inequality is at least e (beta psi)^2 (zCDP), so that only draws which mostly miss the "
        "set are affordable; the draws of this library use bounded range instead. The terms psi + L "
        "sqrt(psi / m) of the population row are an upper bound: a quadratic has psi alone."
    )


def cone_excess(n: int, p: int, epsilon: float) -> float:
    """F = |theta|, psi = p / (4 beta): E max(F, psi) - psi."""
    beta = epsilon * n / (2 * 2 * RADIUS)
    psi = p / (4 * beta)
    return mean_score(p, beta, psi, RADIUS) - psi


def pure_excess(n: int, p: int, epsilon: float) -> float:
    """F = |theta - d|^2 / 2, psi = p / (8 beta): excess over psi for new records."""
    beta = epsilon * n / (2 * LIPSCHITZ * 2 * RADIUS)
    psi = p / (8 * beta)
    return sampling_error(n) + mean_score(p / 2, beta, psi, RADIUS**2 / 2) - psi


def curved_excess(n: int, p: int, epsilon: float) -> float:
    """The same at the temperature of Theorem 2.7 with its constants, psi = Delta^2 / (8 M)."""
    constants = _problem_constants(n)
    psi = max_threshold(n)
    steep = threshold_sensitivity(constants, psi, LIPSCHITZ, interior_minimizers=True)
    target = _largest_rho(epsilon)

    def over(log_beta: float) -> float:
        beta = math.exp(log_beta)
        return math.log((beta * steep) ** 2 / (2 * log_sobolev_constant(beta, 1.0, psi)) / target)

    beta = math.exp(float(brentq(over, -20.0, 80.0, xtol=1e-12)))
    return mean_score(p / 2, beta, psi, RADIUS**2 / 2) - psi


def max_threshold(n: int) -> float:
    """Return the threshold up to which the table's (epsilon, delta) column holds: Delta^2 / (8 M)."""
    return (2 * LIPSCHITZ / n) ** 2 / 8


def mean_score(shape: float, beta: float, psi: float, top: float) -> float:
    """Return E max(s, psi) for s of density s^(shape - 1) e^(-beta max(s, psi)) on [0, top]."""
    x, end = beta * psi, beta * top

    def part(a: float) -> float:  # of e^x x^-a times the integral of t^(a - 1) e^(-t) from x to the end
        upper = float(gammaincc(a, x) - gammaincc(a, end))
        return math.exp(x - a * math.log(x) + float(gammaln(a))) * upper

    inside = 1 / shape
    outside, weighted = part(shape), part(shape + 1)
    return psi * (inside + weighted) / (inside + outside)


def _problem_constants(n: int) -> Constants:
    return Constants(n=n, lipschitz=LIPSCHITZ, smoothness=1.0, strong_convexity=1.0, diameter=2 * RADIUS)


def _largest_rho(epsilon: float) -> float:
    """Return the largest rho whose zCDP curve meets (epsilon, DELTA)."""
    log_rho = brentq(lambda u: math.log(max(zcdp_delta(math.exp(u), epsilon), 1e-300) / DELTA), -60.0, 12.0)
    return float(np.exp(log_rho))


EPSILON, TABLE_DELTA, STRONG = 1.0, 1e-6, 0.5
_POPULATION = 40_000  # records that stand for new ones


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell: its plan at n records with a bound on the excess, what it is measured on, and the claimed powers of n."""

    name: str
    statement: str
    plan: Callable[[int], tuple[Plan, float]]
    problem: Callable[[int], Problem]
    claimed: str
    population: bool = False


def _logistic(ridge: float, loss: Logistic | Sigmoid | None = None) -> Callable[[int], Problem]:
    def make(n: int) -> Problem:
        return Problem(
            loss=loss or Logistic(),
            bounds=DataBounds(data_norm=1.0, classes=2),
            n=n,
            n_features=2,
            constraint=Ball(1.0) if loss is None else Box(-0.7, 0.7),
            ridge=ridge,
            fit_intercept=False,
        )

    return make


def _mean(n: int) -> Problem:
    return Problem(
        loss=Mean(),
        bounds=DataBounds(data_norm=0.5, target=(-1.0, 1.0)),
        n=n,
        n_features=2,
        constraint=Ball(0.5),
        ridge=1.0,
        fit_intercept=False,
    )


def cells() -> tuple[Cell, ...]:
    """Return the cells of both tables."""
    flat, strong, hilly = _logistic(0.0), _logistic(STRONG), _logistic(0.0, Sigmoid())

    def draw_models(
        make: Callable[[int], Problem], objective: str = "empirical", tier: str = "pure"
    ) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            planned = plan_sampler(make(n), EPSILON, 0.0, tier, objective=objective, verbose=False)  # type: ignore[arg-type]
            bound = planned.excess_risk if objective == "empirical" else planned.population_risk
            assert bound is not None
            return planned.plan, bound

        return plan

    def draw_in_stages(population: bool) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            planned = plan_iterated(strong(n), EPSILON, population=population)
            bound = planned.population_risk
            bound = planned.excess_risk if bound is None else bound
            assert bound is not None
            return planned.plan, bound

        return plan

    def run_diffusion(make: Callable[[int], Problem], population: bool) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            problem = make(n)
            kind = "weighted" if problem.ridge else "average"
            mu = gdp_mu(EPSILON, TABLE_DELTA) * (1 - 1e-7)
            choice = choose_langevin_run(problem, mu, population=population, outputs=[kind])  # type: ignore[list-item]
            certified = Plan(problem=problem, spec=choice.spec, delta=TABLE_DELTA, theorem=choice.theorem)
            return certified, choice.excess_risk + (choice.stability if population else 0.0)

        return plan

    def draw_good_models(delta: float, population: bool) -> Callable[..., object]:
        def plan(n: int) -> tuple[Plan, float]:
            # psi as small as the temperature allows: of order 1 / n pure, of order 1 / n^2 with delta > 0
            psi = 5.0 / n if delta == 0 else (60.0 / n) ** 2
            planned = plan_rashomon(_mean(n), threshold=psi, n_models=1, epsilon=EPSILON, delta=delta)
            beta = planned.spec.inverse_temperature
            bound = planned.population_risk if population else psi + 2 / beta
            assert bound is not None
            return planned.plan, bound

        return plan

    stated = (
        ("1: pure, convex, ERM", "Theorem D.1", draw_models(flat), flat, "-1", False),
        ("1: pure, strongly convex, ERM", "Theorem D.3", draw_in_stages(False), strong, "-2", False),
        ("1: pure, non-convex, ERM", "Theorem D.5", draw_models(hilly, tier="exact"), hilly, "-1", False),
        ("1: pure, convex, SCO", "Theorem E.4", draw_models(flat, "population"), flat, "-1/2, -1", True),
        ("1: pure, strongly convex, SCO", "Theorem E.6", draw_in_stages(True), strong, "-1, -2", True),
        ("1: (eps, delta), convex, ERM", "Theorem F.1", run_diffusion(flat, False), flat, "-1", False),
        (
            "1: (eps, delta), strongly convex, ERM",
            "Theorem F.2",
            run_diffusion(strong, False),
            strong,
            "-2",
            False,
        ),
        ("1: (eps, delta), convex, SCO", "Theorem F.4", run_diffusion(flat, True), flat, "-1/2, -1", True),
        (
            "1: (eps, delta), strongly convex, SCO",
            "Theorem F.5",
            run_diffusion(strong, True),
            strong,
            "-1, -2",
            True,
        ),
        ("2: pure, ERM", "Theorem 2.4", draw_good_models(0.0, False), _mean, "-1", False),
        ("2: (eps, delta), ERM", "Theorem 2.4", draw_good_models(TABLE_DELTA, False), _mean, "-2", False),
        ("2: pure, SCO", "Theorem 2.6", draw_good_models(0.0, True), _mean, "-1/2, -1", True),
        ("2: (eps, delta), SCO", "Theorem 2.6", draw_good_models(TABLE_DELTA, True), _mean, "-1/2, -1", True),
    )
    return tuple(
        Cell(name=name, statement=statement, plan=plan, problem=make, claimed=claimed, population=population)  # type: ignore[arg-type]
        for name, statement, plan, make, claimed, population in stated
    )


def make_records(problem: Problem, rng: np.random.Generator) -> ArrayDataset:
    """Return synthetic records of a problem: uniform rows, and logistic labels for a classifier."""
    n, half = problem.n, 0.35 if problem.bounds.classes is None else 0.7
    rows = rng.uniform(-half, half, (n, 2))
    labels = (
        np.zeros(n)
        if problem.bounds.classes is None
        else (rng.random(n) < 1 / (1 + np.exp(-3 * rows[:, 0]))) * 1.0
    )
    return ArrayDataset(rows, labels, problem)


def measure(cell: Cell, n: int, seeds: int) -> tuple[float, float, float]:
    """Return the mean excess over the minimum, on the records or on new ones, its bound, and its standard error."""
    plan, bound = cell.plan(n)
    rng = np.random.default_rng([n, 1])
    judge = ProblemPotential(make_records(cell.problem(_POPULATION), np.random.default_rng(2)), 1.0)
    least = minimum(judge, cell.problem(_POPULATION)) if cell.population else 0.0
    excesses = []
    for seed in range(seeds):
        data = make_records(plan.problem, rng)
        if not cell.population:
            judge = ProblemPotential(ArrayDataset(*_columns(data), cell.problem(n)), 1.0)
            least = minimum(judge, cell.problem(n))
        theta = run_plan(plan, data, seed).value.reshape(-1, 1)
        excesses.append(float(judge.value(theta)[0]) - least)
    return float(np.mean(excesses)), bound, float(np.std(excesses, ddof=1)) / math.sqrt(seeds)


def _columns(data: ArrayDataset) -> tuple[Floats, Floats]:
    blocks = list(data.blocks())
    return np.concatenate([b.rows for b in blocks]), np.concatenate([b.labels for b in blocks])


def minimum(score: ProblemPotential, problem: Problem) -> float:
    """Return the least value, by projected descent; on a grid first, where the loss is not convex."""
    theta = np.zeros((2, 1))
    if not problem.loss.convex:
        axis = np.linspace(-0.7, 0.7, 29)
        grid = np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
        theta = grid[:, [int(np.argmin(score.value(grid)))]]
    for _ in range(250):
        theta = problem.constraint.project((theta - score.gradient(theta))[:, 0])[:, None]
    return float(score.value(theta)[0])


def draw_tables(output: Path, *, quick: bool) -> str:
    """Run every cell at several n; write measured excess, bound and slopes."""
    sizes = (1000, 4000) if quick else (1000, 4000, 16_000)
    seeds = 8 if quick else 40
    rows: list[tuple[object, ...]] = []
    lines, worst = [], -math.inf
    figure, axes = _draw.make_figure(2, height=4.2)
    for i, cell in enumerate(iterate_with_progress(cells(), "cells")):
        pairs = [measure(cell, n, seeds) for n in sizes]
        slopes = [_slope(sizes, [pair[k] for pair in pairs]) for k in (0, 1)]
        rows += [(cell.name, cell.statement, n, *pair) for n, pair in zip(sizes, pairs, strict=True)]
        excess = max((measured - bound) / error for measured, bound, error in pairs)
        worst = max(worst, excess)
        ratio = max(measured / bound for measured, bound, _ in pairs)
        lines.append(
            f"  Table {cell.name} ({cell.statement}): measured {pairs[0][0]:.2g} to {pairs[-1][0]:.2g}, bound "
            f"{pairs[0][1]:.2g} to {pairs[-1][1]:.2g}, slope {slopes[0]:+.2f}, of the bound {slopes[1]:+.2f} "
            f"(claimed {cell.claimed}), largest ratio {ratio:.2f}"
        )
        axis = axes[int(cell.name[0]) - 1]
        colour = _draw.COLOURS[i % 7]
        axis.loglog(
            sizes, [p[1] for p in pairs], color=colour, linestyle=_draw.DASHES[i % 7], label=cell.name[3:]
        )
        axis.loglog(sizes, [max(p[0], 1e-9) for p in pairs], "o", color=colour, markersize=4)
    for number, axis in enumerate(axes, 1):
        axis.set(
            xlabel="number of records n",
            ylabel="excess risk (lines: bounds; dots: runs)",
            title=f"Table {number}",
        )
        axis.legend(frameon=False, fontsize=7)
    _draw.save_figure(figure, output / "tables.svg")
    _draw.write_table(
        output / "tables.csv", ["cell", "statement", "n", "measured", "bound", "standard error"], rows
    )
    return (
        f"(1, 1e-6) or pure 1; logistic regression with two parameters, a sigmoid loss, means; {seeds} runs a cell; "
        f"n = {sizes[0]:,} to {sizes[-1]:,}. ERM cells are measured on their records, SCO cells on {_POPULATION:,} "
        "others; where two powers are claimed the bound is a sum.\n" + "\n".join(lines) + "\n"
        f"Agrees: no measured excess is above its bound by more than {max(0.0, worst):.1f} standard errors."
    )


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    return (
        float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])
        if min(values) > 0
        else math.nan
    )
