"""choose: a calibrated plan from public quantities only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.planner import rules
from dplangevin.planner.recipe import Recipe
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.calibrate import least_noise
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.theorems.objective_perturbation import calibrated_objective_perturbation
from dplangevin.privacy.theorems.output_perturbation import calibrated_output_perturbation
from dplangevin.privacy.theorems.sufficient_statistics import calibrated_sufficient_statistics
from dplangevin.problem import (
    Ball,
    Clipped,
    DataBounds,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Problem,
    SmoothedHinge,
    SmoothedPinball,
    Softmax,
    Squared,
    WholeSpace,
)
from dplangevin.schedules import NoisyGradientSchedule, Schedule

MODELS = tuple(rules.SHAPES)
MECHANISMS = (
    "auto",
    "noisy-gd",
    "noisy-sgd",
    "output-perturbation",
    "objective-perturbation",
    "sufficient-statistics",
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The public side of a fit. Regression targets are scaled to [-1, 1] before they get here."""

    model: str
    n: int
    n_features: int
    epsilon: float
    delta: float
    adjacency: str
    data_norm: float
    fit_intercept: bool
    target_bounds: tuple[float, float] | None = None
    n_classes: int | None = None
    radius: float | None = None
    alpha: float | None = None
    mechanism: str = "auto"
    theorem: str | None = None
    weight_bound: float = 1.0
    transition: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        _check.put(self, model=_check.choice("model", self.model, MODELS))
        _check.put(self, mechanism=_check.choice("mechanism", self.mechanism, MECHANISMS))
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ("replace-one", "add-remove")))
        _check.put(self, n=_check.count("n", self.n), epsilon=_check.positive("epsilon", self.epsilon))
        _check.put(self, weight_bound=_check.positive("weight_bound", self.weight_bound))
        if self.delta != 0:
            _check.open_unit("delta", self.delta)
        if self.radius is not None:
            _check.put(self, radius=_check.positive("radius", self.radius))
        if self.alpha is not None:
            _check.put(self, alpha=_check.nonnegative("alpha", self.alpha))

    @property
    def sides(self) -> int:
        """s: records that differ between neighbours."""
        return 2 if self.adjacency == "replace-one" else 1

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        outputs = (self.n_classes or 1) if self.model == "multinomial" else 1
        return (self.n_features + int(self.fit_intercept)) * outputs

    def loss(self, bound: float | None) -> Loss:
        """The model's loss with this clip of the slope."""
        if self.model == "multinomial":
            return Softmax(n_classes=self.n_classes or 2, slope_clip=bound)
        if self.model == "huber":
            return Huber(transition=self.transition or 0.2)
        if self.model == "quantile":
            return SmoothedPinball(quantile=self.quantile or 0.5, width=0.2)
        if self.model == "poisson":
            top = (self.target_bounds or (0.0, 1.0))[1]
            return Clipped(Poisson(target_bound=top), bound or max(1.0, 0.5 * top))
        plain: Loss = {"logistic": Logistic(), "ridge": Squared(), "svc": SmoothedHinge(width=1.0)}[
            self.model
        ]
        needed = bound is not None and bound < plain.slope_bound
        return Clipped(plain, bound) if needed and bound is not None else plain

    def problem(self, bound: float | None, ridge: float) -> Problem:
        """The problem with this clip and ridge; a stated alpha or radius wins."""
        labels: dict[str, Any] = {"target": self.target_bounds or (-1.0, 1.0)}
        if self.model in ("logistic", "svc", "multinomial"):
            labels = {"classes": self.n_classes or 2}
        return Problem(
            loss=self.loss(bound),
            bounds=DataBounds(data_norm=self.data_norm, weight_bound=self.weight_bound, **labels),
            n=self.n,
            n_features=self.n_features,
            constraint=WholeSpace() if self.radius is None else Ball(self.radius),
            ridge=ridge if self.alpha is None else self.alpha,
            fit_intercept=self.fit_intercept,
            adjacency=self.adjacency,  # type: ignore[arg-type]
        )


def choose(**options: Any) -> Recipe:
    """The recipe for a model on n rows under (epsilon, delta); delta = 0 asks for a pure promise.

    Options are the fields of `Request`. Raises when the asked mechanism cannot give the asked promise.

    Examples
    --------
    >>> recipe = choose(model="logistic", n=30_000, n_features=20, epsilon=1.0, delta=1e-6, adjacency="replace-one",
    ...                 data_norm=1.0, fit_intercept=False)
    >>> recipe.plan.schedule.n_steps, bool(recipe.plan.guarantee.epsilon() <= 1.0)
    (189, True)
    """
    request = Request(**options)
    mechanism = request.mechanism
    if mechanism == "auto":
        mechanism = "objective-perturbation" if request.delta == 0 else "noisy-gd"
        if mechanism == "objective-perturbation" and request.radius is not None:
            mechanism = "output-perturbation"
    if mechanism in ("noisy-gd", "noisy-sgd", "sufficient-statistics") and request.delta == 0:
        raise InvalidParameter(
            f"mechanism={mechanism!r} adds Gaussian noise and cannot promise pure epsilon; state a delta, or use "
            "mechanism='objective-perturbation' or 'output-perturbation'."
        )
    builder = {
        "noisy-gd": _noisy_gd,
        "noisy-sgd": _noisy_sgd,
        "objective-perturbation": _objective,
        "output-perturbation": _output,
        "sufficient-statistics": _statistics,
    }[mechanism]
    return builder(request)


def _recipe(request: Request, problem: Problem, schedule: Schedule, risk: float, *reasons: str) -> Recipe:
    plan = Plan(problem=problem, schedule=schedule, delta=request.delta, theorem=request.theorem)
    if not plan.guarantee.epsilon(request.delta) <= request.epsilon:
        raise CalibrationFailed(
            f"theorem {plan.guarantee.theorem} gives epsilon = {plan.guarantee.epsilon(request.delta):.6g} for this "
            f"plan, above {request.epsilon:.6g}; leave theorem out."
        )
    return Recipe(model=request.model, plan=plan, reasons=reasons, predicted_excess_risk=risk)


def _clip(request: Request, mu: float) -> tuple[float | None, float, float]:
    shape = rules.SHAPES[request.model]
    snr = rules.signal_to_noise(request.n, request.dimension, mu, request.sides)
    bound = None if math.isnan(shape.large_clip) else rules.clip(shape, snr)
    return bound, snr, shape.reach


def _noisy_gd(request: Request) -> Recipe:
    mu = cv.gdp_mu(request.epsilon, request.delta)
    bound, snr, reach = _clip(request, mu)
    problem = request.problem(bound, 0.0)
    curvature = rules.SHAPES[request.model].curvature
    if math.isnan(curvature):
        curvature = problem.loss.curvature_bound
    slope = problem.loss.slope_bound
    way = rules.descent(request.n, mu, request.sides, snr, curvature, reach, slope)
    scale = problem.row_norm**2 * request.weight_bound
    size = 1 / (scale / way.step_size + problem.ridge)
    schedule = NoisyGradientSchedule(
        step_size=size,
        noise_scale=problem.constants.gradient_sensitivity
        * math.sqrt(way.n_steps)
        / (request.n * mu)
        * (1 + 4e-9),
        n_steps=way.n_steps,
        release="average",
        average_from=way.n_steps // 3,
        momentum=True,
    )
    risk = request.dimension * (request.sides * slope / (request.n * mu)) ** 2 * curvature * way.n_steps
    return _recipe(
        request,
        problem,
        schedule,
        risk,
        f"signal to noise n mu / (s p) = {snr:.3g} with mu = {mu:.4g}: slopes are clipped at {slope:.3g}",
        f"{way.n_steps} accelerated full-batch steps of size {size:.3g}, mean of the last two thirds",
    )


def _noisy_sgd(request: Request) -> Recipe:
    mu = cv.gdp_mu(request.epsilon, request.delta)
    bound, _, _ = _clip(request, mu)
    problem = request.problem(bound, 0.0)
    size = min(request.n, max(request.n // 20, 64))
    poisson = request.adjacency == "add-remove"
    steps = 8 * math.ceil(request.n / size)
    curvature = problem.loss.curvature_bound if math.isfinite(problem.loss.curvature_bound) else 0.5
    schedule = NoisyGradientSchedule(
        step_size=1 / (curvature * problem.row_norm**2 * request.weight_bound + problem.ridge),
        noise_scale=1.0,
        n_steps=steps,
        batch_size=size,
        sampling="poisson" if poisson else "without-replacement",
        release="average",
        average_from=steps // 3,
        momentum=True,
    )
    found = least_noise(
        problem.constants,
        schedule,
        epsilon=request.epsilon,
        delta=request.delta,
        theorem="composition",
        problem=problem,
    )
    risk = (
        request.dimension
        * (request.sides * problem.loss.slope_bound / (request.n * mu)) ** 2
        * curvature
        * steps
    )
    sampled = "Poisson batches" if poisson else "batches without replacement"
    return _recipe(
        request, problem, found.schedule, risk, f"{steps} accelerated steps on {sampled} of about {size} rows"
    )


def _objective(request: Request) -> Recipe:
    shape = rules.SHAPES[request.model]
    snr = request.n * request.epsilon / (request.sides * request.dimension**1.5)
    bound = None if shape.small_clip is None else (shape.small_clip if snr < 50 else shape.large_clip)
    if request.model == "multinomial":
        bound = None  # a clipped softmax is not the gradient of a loss
    unit = 10 / 3 if shape.reach < 10 else 1.0
    total = rules.objective_ridge(request.dimension, request.epsilon, request.sides, request.n, unit)
    plain = request.problem(bound, 0.0)
    scale = plain.row_norm**2 * request.weight_bound
    rank = plain.constants.hessian_rank or 1
    while (
        0.99 * request.epsilon - rank * math.log1p(plain.loss.curvature_bound / total) < request.epsilon / 2
    ):
        total *= 1.1
    problem = request.problem(bound, total * scale / request.n)
    schedule = calibrated_objective_perturbation(
        problem.constants, epsilon=request.epsilon, delta=request.delta
    )
    risk = (
        request.dimension**2
        * (request.sides * problem.loss.slope_bound / request.epsilon) ** 2
        / (2 * total * request.n)
    )
    return _recipe(
        request,
        problem,
        schedule,
        risk,
        f"signal to noise n eps / (s p^1.5) = {snr:.3g}: slopes are clipped at {problem.loss.slope_bound:.3g}",
        f"ridge alpha = {problem.ridge:.3g} per sample; the perturbed objective is solved exactly",
    )


def _output(request: Request) -> Recipe:
    mu = request.epsilon if request.delta == 0 else cv.gdp_mu(request.epsilon, request.delta)
    bound, _, _ = _clip(request, mu if request.delta else 0.25 * mu)
    if request.model == "multinomial":
        bound = None
    problem = request.problem(bound, 1.0)
    curvature, slope, p = problem.loss.curvature_bound, problem.loss.slope_bound, request.dimension
    unit = request.sides * slope / (request.n * mu)
    square = unit**2 * (p * (p + 1) if request.delta == 0 else p)
    ridge = rules.output_ridge(square, curvature, 4.0) * problem.row_norm**2 * request.weight_bound
    problem = request.problem(bound, ridge)
    schedule = calibrated_output_perturbation(problem.constants, epsilon=request.epsilon, delta=request.delta)
    risk = (
        curvature
        / 2
        * square
        * (problem.row_norm**2 * request.weight_bound / max(problem.ridge, 1e-300)) ** 2
    )
    return _recipe(
        request,
        problem,
        schedule,
        risk,
        f"ridge alpha = {problem.ridge:.3g} per sample balances its bias against the noise it allows",
        f"the exact minimiser plus {schedule.noise} noise",
    )


def _statistics(request: Request) -> Recipe:
    if request.model != "ridge":
        raise InvalidParameter("mechanism='sufficient-statistics' is for the squared loss only; use DPRidge.")
    problem = request.problem(1.0, 0.0)
    schedule = calibrated_sufficient_statistics(
        problem.constants, epsilon=request.epsilon, delta=request.delta
    )
    risk = request.dimension * schedule.cross_noise**2 / (request.n**2 * problem.row_norm**2)
    return _recipe(
        request,
        problem,
        schedule,
        risk,
        f"noisy Gram matrix and cross moments, eigenvalues raised to {schedule.eigenvalue_floor:.3g}",
    )
