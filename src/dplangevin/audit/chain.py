"""Exact laws of noisy gradient descent in one and two dimensions, on any data set, by exact kernels."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from dplangevin._arrays import Floats
from dplangevin.audit.canaries import Canary, Records
from dplangevin.audit.density import from_tests
from dplangevin.audit.result import AuditResult
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.exact_walk import _tests, exact_law
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan

_TAIL = 9.0
_MOST_NODES = 400
_TURNS = (0.0, 0.15, -0.15, 0.5, -0.5)  # from the direction in which the means differ


def chain_attack(
    plan: Plan, canary: Canary, claim: Guarantee | tuple[float, float] | None, *, delta: float
) -> AuditResult:
    """Compare the last iterate on the two data sets of a canary, without sampling.

    Full batches, constant schedules, released last iterate; one dimension (with or without a set that is an interval
    around 0) or two dimensions without a set. Tests are half lines or half planes in five directions; their
    probabilities are exact given the law one step earlier, which is propagated by Gauss-Legendre quadrature.
    """
    schedule = _checked(plan)
    laws = _line if plan.problem.dimension == 1 else _plane
    sizes, powers = laws(plan, schedule, canary)
    return from_tests(sizes, powers, claim, delta=delta, canary=canary.name)


def _checked(plan: Plan) -> NoisyGradientSchedule:
    schedule, problem = plan.schedule, plan.problem
    fits = (
        isinstance(schedule, NoisyGradientSchedule)
        and schedule.sampling == "full"
        and schedule.constant
        and schedule.release == "last-iterate"
        and not schedule.momentum
        and schedule.start_scale == 0
        and math.isfinite(schedule.n_steps)
        and (problem.dimension == 1 or (problem.dimension == 2 and math.isinf(plan.constants.diameter)))
    )
    if not fits:
        raise InvalidParameter(
            "method='density' needs plain full-batch noisy gradient descent from 0 with a constant schedule and a "
            "last-iterate release, in one dimension, or in two without a constraint; use method='many-run'."
        )
    assert isinstance(schedule, NoisyGradientSchedule)
    return schedule


class _Step:
    """theta -> theta - eta (gradient sum / n + ridge theta) on one data set, for columns of points."""

    def __init__(self, plan: Plan, schedule: NoisyGradientSchedule, records: Records) -> None:
        self.problem, self.step = plan.problem, float(np.max(schedule.step_size))
        self.data = ArrayDataset(*records, plan.problem)

    def __call__(self, points: Floats) -> Floats:
        gradient = self.data.gradient_sum(self.problem.loss, points) / self.problem.n
        return np.asarray(points - self.step * (gradient + self.problem.ridge * points))

    def on_line(self, points: Floats) -> Floats:
        """The same for numbers."""
        return np.asarray(self(points[None, :])[0])


def _window(steps: tuple[_Step, _Step], plan: Plan, noise: float, count: int) -> Floats:
    """Half sides of a box around 0 that holds both paths up to nine standard deviations of the largest spread."""
    factor = min(1.0, abs(1 - steps[0].step * plan.constants.strong_convexity))
    spread = noise * math.sqrt(min(count, 1 / (1 - factor**2) if factor < 1 else count))
    reach = np.zeros(steps[0].problem.dimension)
    for step in steps:
        theta = np.zeros((len(reach), 1))
        for _ in range(count):
            theta = step(theta)
            reach = np.maximum(reach, np.abs(theta[:, 0]))
    return reach + _TAIL * spread


def _line(plan: Plan, schedule: NoisyGradientSchedule, canary: Canary) -> tuple[Floats, Floats]:
    steps = tuple(_Step(plan, schedule, records) for records in (canary.first, canary.second))
    noise, count = steps[0].step * float(np.max(schedule.noise_std)), int(schedule.n_steps)
    width = plan.constants.diameter
    if math.isinf(width):
        width = 2 * float(_window((steps[0], steps[1]), plan, noise, count)[0])
    first, second = (exact_law([(1.0, step.on_line)], noise, width, count) for step in steps)
    powers, sizes = _tests(first, second)
    return sizes, powers


def _plane(plan: Plan, schedule: NoisyGradientSchedule, canary: Canary) -> tuple[Floats, Floats]:
    steps = tuple(_Step(plan, schedule, records) for records in (canary.first, canary.second))
    noise, count = steps[0].step * float(np.max(schedule.noise_std)), int(schedule.n_steps)
    half = _window((steps[0], steps[1]), plan, noise, count)
    sizes, powers = [], []
    before = [_before_last(step, noise, half, count) for step in steps]
    centres = [step(points) for step, (points, _) in zip(steps, before, strict=True)]
    cuts = np.linspace(-1.0, 1.0, 201) * float(np.linalg.norm(half))
    gap = centres[1] @ before[1][1] - centres[0] @ before[0][1]
    for turn in _TURNS:
        angle = math.atan2(gap[1], gap[0]) + turn
        along = np.array([math.cos(angle), math.sin(angle)])
        tails = [
            masses @ ndtr(((along @ centre)[:, None] - cuts) / noise)
            for centre, (_, masses) in zip(centres, before, strict=True)
        ]
        for one, other in ((tails[0], tails[1]), (1 - tails[0], 1 - tails[1])):
            sizes += [one, other]
            powers += [other, one]
    return np.concatenate(sizes), np.concatenate(powers)


def _before_last(step: _Step, noise: float, half: Floats, count: int) -> tuple[Floats, Floats]:
    """Points [2, N] and masses [N] of the law one step before the end; the Gaussian kernel is a product."""
    points, masses = np.zeros((2, 1)), np.ones(1)
    axes = []
    for side in half:
        nodes = math.ceil(3 * 2 * side / noise) + 30
        if nodes > _MOST_NODES:
            raise InvalidParameter(
                f"the law is too wide for exact kernels ({nodes} nodes a side, at most {_MOST_NODES}); use fewer "
                "steps or method='many-run'."
            )
        x, w = np.polynomial.legendre.leggauss(nodes)
        axes.append((side * x, side * w))
    (x, wx), (y, wy) = axes
    grid = np.stack(np.meshgrid(x, y, indexing="ij")).reshape(2, -1)
    for _ in range(count - 1):
        centre = step(points)
        kernels = [
            np.exp(-0.5 * ((nodes[:, None] - centre[i]) / noise) ** 2)
            / (noise * math.sqrt(2 * math.pi))
            * w[:, None]
            for i, (nodes, w) in enumerate(((x, wx), (y, wy)))
        ]
        masses = ((kernels[0] * masses) @ kernels[1].T).ravel()
        points = grid
        if abs(float(masses.sum()) - 1) > 1e-7:
            raise ArithmeticError(f"a step of the chain loses mass {abs(float(masses.sum()) - 1):.1e}")
    return points, masses
