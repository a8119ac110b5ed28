"""Standard errors and confidence intervals that count both the sampling of the records and the privacy noise.

Objective perturbation releases theta with sum_i grad loss_i(theta) + Lambda theta + b = 0 exactly, whatever the data,
where b is noise of a known law. Linearised at the population's coefficients theta_0, with H the Hessian of the sum,

    theta + Lambda H^-1 theta - theta_0  ~  -H^-1 (sum_i grad loss_i(theta_0) + b),

so the left side, free of the ridge's bias, has covariance H^-1 (J + Var b) H^-1. A stated share of the budget releases
H with noise. J = H for the logistic loss (the model's likelihood); for squared and Huber losses with errors that do not
depend on x, J = H sum h'^2 / sum h'', two scalars that are released with H. All the rest is post-processing.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._rng import generator
from dplangevin.data import Dataset
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators._intervals import half_width
from dplangevin.mechanisms import Release, run
from dplangevin.mechanisms.curvature import Curvature, curvature_groups, release_curvature
from dplangevin.planner import Recipe, choose
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.privacy.theorems.noisy_sums import NoisySums, calibrated_sums
from dplangevin.privacy.theorems.objective_perturbation import calibrated_objective_perturbation
from dplangevin.problem import Clipped, Huber, Logistic, Loss, Problem, Squared, WholeSpace
from dplangevin.schedules import ObjectivePerturbationSchedule

Floats = NDArray[np.float64]

DEFAULT_SHARE = 0.15
SQUARED_CLIP = 0.5  # residuals beyond a quarter of the target's range are cut off
LONGEST = 1000.0  # norm of the coefficients, for rows of norm 1, beyond which no interval is meant to hold
MOST_DOUBT = 1 / 3  # a coefficient whose curvature is within 3 noises of 0 gets an infinite standard error
WORDS = (
    "confidence intervals assume independent records, a correct linear model, no clipped rows and, for squared and "
    "Huber losses, errors that do not depend on x; the guarantee assumes none of this"
)


@dataclass(frozen=True, kw_only=True)
class IntervalPlan:
    """The plan of a fit and that of its curvature: charged together, run one after the other."""

    plan: Plan
    curvature: NoisySums
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        both = self.plan.guarantee + self.curvature.guarantee
        _check.put(self, guarantee=replace(both, release="draw + noisy-answers", at_delta=self.plan.delta))


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """What is known of the coefficients (features first, then the intercept): all of it released or public.

    Parameters
    ----------
    centre : the estimate without the ridge's bias, the middle of every interval.
    sampling, noise : standard deviations of the error by sampling and by privacy noise; infinite where the curvature
        in a coefficient's direction is lost in its own noise.
    dimension : None for Gaussian noise, else the dimension of exp(-|z| / scale) noise.
    """

    centre: Floats
    sampling: Floats
    noise: Floats
    dimension: int | None

    @property
    def standard_errors(self) -> Floats:
        """sqrt(sampling^2 + noise^2)."""
        return np.hypot(self.sampling, self.noise)

    def intervals(self, level: float = 0.95) -> Floats:
        """[low, high] of each coefficient, by the law of normal error plus the plan's noise."""
        width = half_width(level, self.sampling, self.noise, self.dimension)
        return np.column_stack([self.centre - width, self.centre + width])

    def rescaled(self, factor: float, shift: float = 0.0) -> Uncertainty:
        """For coefficients times `factor`, and the last one (the intercept) moved by `shift`."""
        centre = factor * self.centre
        centre[-1] += shift
        return replace(
            self, centre=centre, sampling=abs(factor) * self.sampling, noise=abs(factor) * self.noise
        )


class WithIntervals:
    """The methods of an estimator that was fitted with `intervals`."""

    uncertainty_: Uncertainty

    @property
    def standard_errors_(self) -> Floats:
        """Standard errors of the coefficients, then of the intercept where there is one.

        They belong to the middles of the intervals: coef_ itself is shrunk a little by the ridge.
        """
        return self.uncertainty_.standard_errors

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """[low, high] for each coefficient, then for the intercept where there is one.

        A row is infinite where the records say too little about a coefficient at this budget.
        """
        if not hasattr(self, "uncertainty_"):
            raise InvalidParameter(
                "confidence intervals need a fit with intervals=True (or a share of the budget): what they rest on "
                "is released, and paid for, by fit."
            )
        return self.uncertainty_.intervals(level)


def interval_share(intervals: Any) -> float:
    """The share of the budget that intervals=False, True or a number asks for."""
    if isinstance(intervals, bool | np.bool_):
        return DEFAULT_SHARE if intervals else 0.0
    return _check.open_unit("intervals", intervals)


def fit_epsilon(epsilon: float, delta: float, share: float) -> float:
    """The epsilon left to the fit: 1 - share of mu^2 (of epsilon when delta = 0)."""
    if delta == 0:
        return (1 - share) * epsilon
    return cv.gdp_epsilon(math.sqrt(1 - share) * cv.gdp_mu(epsilon, delta), delta)


def plan_with_intervals(
    share: float, options: dict[str, Any], *, rows: int = 1, weighted: bool = False
) -> tuple[Recipe, IntervalPlan]:
    """The recipe and the joint plan for the planner's options, whose (epsilon, delta) pays for both.

    What has no interval is refused; nothing here depends on the data.
    """
    mechanism, epsilon, delta = options["mechanism"], options["epsilon"], options["delta"]
    if mechanism not in ("auto", "objective-perturbation"):
        raise InvalidParameter(
            f"intervals need objective perturbation, whose noise law is exact; got mechanism={mechanism!r}. "
            "Leave mechanism='auto'."
        )
    if weighted or options["weight_bound"] != 1:
        raise InvalidParameter(
            "intervals need equally weighted records; leave sample_weight and weight_bound out."
        )
    if rows > 1 and delta > 0:
        raise InvalidParameter(
            f"intervals for max_rows_per_person={rows} are offered with a pure promise only; set delta=0."
        )
    left = fit_epsilon(epsilon, delta, share)
    recipe = choose(**(options | {"mechanism": "objective-perturbation", "epsilon": left}))
    recipe = recipe_for_intervals(recipe, left, options["alpha"])
    return recipe, interval_plan(recipe.plan, epsilon)


@lru_cache(maxsize=64)
def recipe_for_intervals(recipe: Recipe, epsilon: float, alpha: float | None) -> Recipe:
    """The recipe with a consistent loss (logistic slopes are not clipped) and a ridge small enough to be undone.

    The ridge Lambda = 10 M / epsilon spends about a tenth of epsilon on the determinant; its bias is removed later.
    """
    problem, delta = recipe.plan.problem, recipe.plan.delta
    if problem is None or not isinstance(problem.constraint, WholeSpace):
        raise InvalidParameter("intervals need an unconstrained fit; leave radius out.")
    loss = _consistent(problem.loss)
    curvature = loss.curvature_bound * problem.row_norm**2
    ridge = 10 * curvature / epsilon / problem.n if alpha is None else alpha
    problem = replace(problem, loss=loss, ridge=ridge)
    schedule = calibrated_objective_perturbation(
        problem.constants, epsilon=epsilon, delta=delta, reach=LONGEST / problem.row_norm
    )
    plan = Plan(problem=problem, schedule=schedule, delta=delta)
    return replace(
        recipe,
        plan=plan,
        reasons=(
            f"objective perturbation with {schedule.noise} noise: the law of its error is exact, for intervals",
            f"slopes are bounded by {loss.slope_bound:.3g}; ridge alpha = {problem.ridge:.3g} per sample, whose bias "
            "the intervals remove",
            "the rest of the budget pays for the curvature at the released point",
        ),
    )


def _consistent(loss: Loss) -> Loss:
    plain = loss.loss if isinstance(loss, Clipped) else loss
    if isinstance(plain, Logistic):
        return plain
    if isinstance(plain, Squared):
        return Clipped(plain, SQUARED_CLIP)
    if isinstance(plain, Huber):
        return plain
    raise InvalidParameter(
        f"intervals are proved for two-class logistic, squared and Huber losses, not for the {plain.name} loss; "
        "set intervals=False."
    )


@lru_cache(maxsize=64)
def interval_plan(plan: Plan, epsilon: float) -> IntervalPlan:
    """The plan together with a curvature release that takes what is left of (epsilon, plan.delta)."""
    problem, delta = plan.problem, plan.delta
    assert problem is not None
    if delta == 0:
        return _with_curvature(plan, problem, epsilon - plan.guarantee.epsilon(0.0), 0.0)
    goal, fit = cv.gdp_mu(epsilon, delta), cv.gdp_mu(plan.guarantee.epsilon(delta), delta)
    mu = 0.95 * math.sqrt(max(goal**2 - fit**2, 0.0))
    best: IntervalPlan | None = None
    for _ in range(6):
        if not mu > 0:
            break
        both = _with_curvature(plan, problem, cv.gdp_epsilon(mu, delta), delta)
        spent = both.guarantee.epsilon(delta)
        if spent <= epsilon:
            best = both
            if spent > 0.998 * epsilon:
                break
        fit_square = cv.gdp_mu(spent, delta) ** 2 - mu**2  # the fit as if it were Gaussian: nearly so
        mu = 0.999 * math.sqrt(max(goal**2 - fit_square, 0.0))
    if best is None:
        raise CalibrationFailed(
            f"nothing of epsilon = {epsilon:g} is left for the curvature; raise intervals or epsilon."
        )
    return best


def _with_curvature(plan: Plan, problem: Problem, epsilon: float, delta: float) -> IntervalPlan:
    curvature = calibrated_sums(
        curvature_groups(problem, dispersion=not isinstance(problem.loss, Logistic)),
        epsilon=epsilon,
        delta=delta,
        noise="gamma" if delta == 0 else "gaussian",
        adjacency=problem.adjacency,
    )
    return IntervalPlan(plan=plan, curvature=curvature)


def run_with_intervals(
    both: IntervalPlan, data: Dataset, random_state: Any, ledger: Spender | None
) -> tuple[Release, Uncertainty]:
    """Charge once, fit, release the curvature at the fitted point, and work out the uncertainty."""
    token = ledger.reserve(both) if ledger is not None else None
    rng, seeded = generator(random_state)
    release = replace(run(both.plan, data, rng), seeded=seeded)
    curvature = release_curvature(both.curvature, data, np.array(release.value), rng)
    if ledger is not None and token is not None:
        content = release.digest() + hashlib.sha256(curvature.matrix.tobytes()).hexdigest()
        ledger.commit(token, hashlib.sha256(content.encode()).hexdigest())
    return release, uncertainty(both, np.array(release.value), curvature)


def uncertainty(both: IntervalPlan, theta: Floats, curvature: Curvature) -> Uncertainty:
    """Post-processing: the estimate without the ridge's bias, and the two parts of its standard error."""
    problem, schedule = both.plan.problem, both.plan.schedule
    assert problem is not None
    assert isinstance(schedule, ObjectivePerturbationSchedule)
    doubts = [_deviation(both.curvature, group) for group in range(len(both.curvature.groups))]
    values, vectors = np.linalg.eigh(curvature.matrix)
    values = np.maximum(values, doubts[0])
    inverse = (vectors / values) @ vectors.T
    ridge = problem.n * problem.ridge
    removed = inverse @ theta
    reach = np.linalg.norm(inverse, axis=1)
    lost = doubts[0] * reach > MOST_DOUBT
    d = problem.dimension
    spread = schedule.noise_scale * (math.sqrt(d + 1) if schedule.noise == "gamma" else 1.0)
    noise = (spread * reach) ** 2 + (d + 1) * schedule.release_noise**2
    # The bias is removed with the noisy curvature: an error Lambda H^-1 Z H^-1 theta, Z isotropic and symmetric.
    wrong = (reach * float(np.linalg.norm(removed))) ** 2 + (inverse @ removed) ** 2
    noise += (ridge * doubts[0]) ** 2 / 2 * wrong
    sampling = np.sqrt(_dispersion(curvature, doubts) * np.diag(inverse))
    return Uncertainty(
        centre=theta + ridge * removed,
        sampling=np.where(lost, np.inf, sampling),
        noise=np.where(lost, np.inf, np.sqrt(noise)),
        dimension=d if schedule.noise == "gamma" else None,
    )


def _dispersion(curvature: Curvature, doubts: list[float]) -> float:
    """J = dispersion * H."""
    if curvature.slopes is None or curvature.bends is None:
        return 1.0
    return max(curvature.slopes, doubts[1]) / max(curvature.bends, doubts[2])


def _deviation(plan: NoisySums, group: int) -> float:
    """Standard deviation of the noise on one entry of a group."""
    chosen = plan.groups[group]
    return chosen.scale * (math.sqrt(chosen.answers + 1) if plan.noise == "gamma" else 1.0)
