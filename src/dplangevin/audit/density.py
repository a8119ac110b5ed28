"""Density audit: distributions that can be integrated are compared without sampling.

Covers given log densities, and noisy gradient descent in one and two dimensions by exact kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp, ndtr

from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import Plan
from dplangevin.audit.attacks import (
    AuditResult,
    Canary,
    Records,
    allowed_points,
    as_guarantee,
    check_audit_delta,
    mu_bound,
    trade_off_curve,
)
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.walk_laws import compute_walk_law, half_line_tests

LogDensity = Callable[[Floats], Floats]
_NODES_PER_CELL = 4
_CELLS_PER_SIDE = {1: 20_000, 2: 500}
_ROUNDING_SLACK = 1e-9


def density_attack(
    first: LogDensity,
    second: LogDensity,
    box: Sequence[tuple[float, float]],
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    canary: str = "",
) -> AuditResult:
    """Compare two distributions given by log densities (up to a constant) on an interval or a rectangle.

    The box is divided into cells whose masses are integrated by Gauss-Legendre rules with four nodes per side; the
    tests are unions of cells in the order of their mass ratio. Exact up to quadrature error.

    Parameters
    ----------
    first, second : log densities of points [count, dimension] -> [count].
    box : (low, high) of each of the one or two coordinates; it must contain the support of both
        distributions.
    claim : a Guarantee, a pair (epsilon, delta), or None. delta : of the reported epsilon. canary : name to report.

    Examples
    --------
    >>> result = density_attack(lambda x: -abs(x[:, 0]), lambda x: -abs(x[:, 0] - 1), [(-40.0, 41.0)], (1.0, 0.0),
    ...                         delta=0.0)
    >>> round(result.epsilon_lower, 6), result.refuted
    (1.0, False)
    """
    if len(box) not in _CELLS_PER_SIDE:
        raise InvalidParameter(f"box must have one or two sides, got {len(box)}; use method='many-run'.")
    p, q = _cell_masses(first, box), _cell_masses(second, box)
    tests = [np.array([[0.0], [0.0]])]
    for one, other in ((p, q), (q, p)):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(other > 0, one / other, np.where(one > 0, np.inf, 0.0))
        order = np.argsort(-ratio, kind="stable")
        tests.append(np.array([np.cumsum(other[order]), np.cumsum(one[order])]))
    sizes, powers = np.concatenate(tests, axis=1)
    return audit_known_tests(sizes, powers, claim, delta=delta, canary=canary)


def _cell_masses(density: LogDensity, box: Sequence[tuple[float, float]]) -> Floats:
    """Return the probabilities of the cells of the box."""
    cells = _CELLS_PER_SIDE[len(box)]
    x, w = np.polynomial.legendre.leggauss(_NODES_PER_CELL)
    sides = []
    for low, high in box:
        if not low < high:
            raise InvalidParameter(f"box has a side from {low!r} to {high!r}; low must be below high.")
        width = (high - low) / cells
        centers = low + width * (np.arange(cells) + 0.5)
        sides.append(centers[:, None] + width / 2 * x[None, :])
    if len(box) == 1:
        values, weights = density(sides[0].reshape(-1, 1)).reshape(cells, _NODES_PER_CELL), np.log(w)
        logs = logsumexp(values + weights, axis=1)
    else:
        points = np.stack(np.meshgrid(sides[0].ravel(), sides[1].ravel(), indexing="ij"), axis=-1)
        square = density(points.reshape(-1, 2)).reshape(cells, _NODES_PER_CELL, cells, _NODES_PER_CELL)
        logs = logsumexp(square + np.log(w)[None, :, None, None] + np.log(w), axis=(1, 3)).ravel()
    if np.isnan(logs).any():
        raise InvalidParameter("a log density is NaN inside the box.")
    return np.asarray(np.exp(logs - logsumexp(logs)))


def audit_known_tests(
    sizes: Floats,
    powers: Floats,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    canary: str = "",
) -> AuditResult:
    """Return the audit result of a family of tests with known size and power."""
    guarantee = as_guarantee(claim)
    delta = check_audit_delta(delta, guarantee)
    size, power = (
        np.clip(value, 0, 1)
        for value in (sizes * (1 + _ROUNDING_SLACK) + 1e-14, powers * (1 - _ROUNDING_SLACK))
    )
    with np.errstate(divide="ignore"):
        epsilons = np.log(np.maximum(power - delta, 0.0)) - np.log(size)
    curve = None if guarantee is None else trade_off_curve(guarantee)
    index, refuted = int(np.argmax(epsilons)), False
    if curve is not None:
        above = power - curve.power(size)
        index = int(np.argmax(above))
        refuted = bool(above[index] > 0)
    shown_indices = np.argsort(sizes)[:: max(1, len(sizes) // 100)]
    return AuditResult(
        epsilon_lower=max(0.0, float(np.max(epsilons))),
        mu_lower=max(0.0, _max_mu(size, power)),
        delta=delta,
        confidence=1.0,
        runs=0,
        refuted=refuted,
        method="density",
        canary=canary,
        claimed=None if guarantee is None else guarantee.to_dict(delta),
        tested=(float(size[index]), float(power[index])),
        measured=tuple((float(sizes[i]), float(powers[i])) for i in shown_indices),
        allowed=allowed_points(curve),
    )


def _max_mu(size: Floats, power: Floats) -> float:
    """Return the largest mu of the tests whose rates are well above the rounding slack."""
    is_clear = (size > 1e3 * _ROUNDING_SLACK) & (power < 1 - 1e3 * _ROUNDING_SLACK) & (power > size)
    return float(np.max(mu_bound(size[is_clear], power[is_clear]))) if is_clear.any() else -math.inf


_TAIL_DEVIATIONS = 9.0
_MAX_NODES = 400
_TEST_ANGLES = (0.0, 0.15, -0.15, 0.5, -0.5)  # from the direction in which the means differ


def exact_law_attack(
    plan: Plan, canary: Canary, claim: Guarantee | tuple[float, float] | None, *, delta: float
) -> AuditResult:
    """Compare the last iterate on the two data sets of a canary, without sampling.

    Covers full batches, constant step size and noise, and a released last iterate, in one dimension (with or without
    projection on an interval around 0) or in two dimensions without projection. Tests are half lines or half planes in
    five directions; their probabilities are exact given the distribution one step earlier, which is propagated by
    Gauss-Legendre quadrature.
    """
    spec = _check_plan(plan)
    compute_tests = _line_tests if plan.problem.dimension == 1 else _plane_tests
    sizes, powers = compute_tests(plan, spec, canary)
    return audit_known_tests(sizes, powers, claim, delta=delta, canary=canary.name)


def _check_plan(plan: Plan) -> NoisyGradientSpec:
    spec, problem = plan.spec, plan.problem
    is_supported = (
        isinstance(spec, NoisyGradientSpec)
        and spec.sampling == "full"
        and spec.is_constant
        and spec.release == "last-iterate"
        and not spec.momentum
        and spec.start_scale == 0
        and math.isfinite(spec.n_steps)
        and (problem.dimension == 1 or (problem.dimension == 2 and math.isinf(plan.constants.diameter)))
    )
    if not is_supported:
        raise InvalidParameter(
            "method='density' needs plain full-batch noisy gradient descent from 0 with constant step size and noise "
            "and a last-iterate release, in one dimension, or in two without a constraint; use method='many-run'."
        )
    assert isinstance(spec, NoisyGradientSpec)
    return spec


class _GradientStep:
    """The map theta -> theta - eta (gradient sum / n + ridge theta) on one data set, for columns of points."""

    def __init__(self, plan: Plan, spec: NoisyGradientSpec, records: Records) -> None:
        self.problem, self.step = plan.problem, float(np.max(spec.step_size))
        self.data = ArrayDataset(*records, plan.problem)

    def __call__(self, points: Floats) -> Floats:
        gradient = self.data.gradient_sum(self.problem.loss, points) / self.problem.n
        return np.asarray(points - self.step * (gradient + self.problem.ridge * points))

    def apply_to_line(self, points: Floats) -> Floats:
        """Apply the step to an array of numbers."""
        return np.asarray(self(points[None, :])[0])


def _window_half_widths(
    steps: tuple[_GradientStep, _GradientStep], plan: Plan, noise: float, count: int
) -> Floats:
    """Return half widths of a box around 0 that contains both paths and nine standard deviations around them."""
    factor = min(1.0, abs(1 - steps[0].step * plan.constants.strong_convexity))
    spread = noise * math.sqrt(min(count, 1 / (1 - factor**2) if factor < 1 else count))
    max_coordinates = np.zeros(steps[0].problem.dimension)
    for step in steps:
        theta = np.zeros((len(max_coordinates), 1))
        for _ in range(count):
            theta = step(theta)
            max_coordinates = np.maximum(max_coordinates, np.abs(theta[:, 0]))
    return max_coordinates + _TAIL_DEVIATIONS * spread


def _line_tests(plan: Plan, spec: NoisyGradientSpec, canary: Canary) -> tuple[Floats, Floats]:
    steps = tuple(_GradientStep(plan, spec, records) for records in (canary.first, canary.second))
    noise, count = steps[0].step * float(np.max(spec.noise_std)), int(spec.n_steps)
    width = plan.constants.diameter
    if math.isinf(width):
        width = 2 * float(_window_half_widths((steps[0], steps[1]), plan, noise, count)[0])
    first, second = (compute_walk_law([(1.0, step.apply_to_line)], noise, width, count) for step in steps)
    powers, sizes = half_line_tests(first, second)
    return sizes, powers


def _plane_tests(plan: Plan, spec: NoisyGradientSpec, canary: Canary) -> tuple[Floats, Floats]:
    steps = tuple(_GradientStep(plan, spec, records) for records in (canary.first, canary.second))
    noise, count = steps[0].step * float(np.max(spec.noise_std)), int(spec.n_steps)
    half_widths = _window_half_widths((steps[0], steps[1]), plan, noise, count)
    sizes, powers = [], []
    laws_before_last = [_law_before_last_step(step, noise, half_widths, count) for step in steps]
    centers = [step(points) for step, (points, _) in zip(steps, laws_before_last, strict=True)]
    cuts = np.linspace(-1.0, 1.0, 201) * float(np.linalg.norm(half_widths))
    gap = centers[1] @ laws_before_last[1][1] - centers[0] @ laws_before_last[0][1]
    for turn in _TEST_ANGLES:
        angle = math.atan2(gap[1], gap[0]) + turn
        along = np.array([math.cos(angle), math.sin(angle)])
        tails = [
            masses @ ndtr(((along @ center)[:, None] - cuts) / noise)
            for center, (_, masses) in zip(centers, laws_before_last, strict=True)
        ]
        for one, other in ((tails[0], tails[1]), (1 - tails[0], 1 - tails[1])):
            sizes += [one, other]
            powers += [other, one]
    return np.concatenate(sizes), np.concatenate(powers)


def _law_before_last_step(
    step: _GradientStep, noise: float, half_widths: Floats, count: int
) -> tuple[Floats, Floats]:
    """Return points [2, N] and masses [N] of the distribution one step before the end."""
    points, masses = np.zeros((2, 1)), np.ones(1)
    axes = []
    for side in half_widths:
        nodes = math.ceil(3 * 2 * side / noise) + 30
        if nodes > _MAX_NODES:
            raise InvalidParameter(
                f"the distribution is too wide for exact kernels ({nodes} nodes per side, at most "
                f"{_MAX_NODES}); use fewer "
                "steps or method='many-run'."
            )
        x, w = np.polynomial.legendre.leggauss(nodes)
        axes.append((side * x, side * w))
    (x, wx), (y, wy) = axes
    grid = np.stack(np.meshgrid(x, y, indexing="ij")).reshape(2, -1)
    for _ in range(count - 1):
        center = step(points)
        kernels = [
            np.exp(-0.5 * ((nodes[:, None] - center[i]) / noise) ** 2)
            / (noise * math.sqrt(2 * math.pi))
            * w[:, None]
            for i, (nodes, w) in enumerate(((x, wx), (y, wy)))
        ]
        masses = ((kernels[0] * masses) @ kernels[1].T).ravel()
        points = grid
        if abs(float(masses.sum()) - 1) > 1e-7:
            raise ArithmeticError(f"a step of the chain loses mass {abs(float(masses.sum()) - 1):.1e}")
    return points, masses
