"""Whitened descent: moments, coordinates, weights of rows, descent, weights of iterates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dplangevin._progress import progress
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.moments.mechanism import symmetric_noise
from dplangevin.families.run_state import RunState
from dplangevin.families.whitened.excess import expected_excess, last_third, two_digits
from dplangevin.families.whitened.geometry import Geometry, first_look, second_look
from dplangevin.families.whitened.response import Path
from dplangevin.families.whitened.schedule import WhitenedSchedule
from dplangevin.families.whitened.shrinkage import shrink, shrink_tail
from dplangevin.families.whitened.sums import row_weights, screen, second_moment, turned_moment
from dplangevin.problem import Problem, WholeSpace

Floats = NDArray[np.float64]


@dataclass(kw_only=True)
class Walk:
    """Where a run stands: the noisy moments so far, the step, of how many, the point, the sums of the windows, and the
    last third of the iterates."""

    moments: Floats
    step: int
    steps: int
    theta: Floats
    previous: Floats
    totals: Floats
    iterates: dict[int, Floats] = field(default_factory=dict)


class WhitenedDescent(FitMechanism[WhitenedSchedule]):
    """Noisy second moments of the rows, then accelerated noisy descent in the coordinates they give.

    Noise goes on the moments and on the gradients, and nowhere else: whatever is made of them afterwards (coordinates,
    weights of rows, steps, means and weights of iterates) is post-processing, which the theorem, composition of all of
    them, covers. Nothing here may be used with a promise about the last iterate alone.
    """

    def check(self, schedule: WhitenedSchedule, problem: Problem) -> None:
        """Coordinates are stretched, so that balls and ridges would not stay what they are."""
        if problem.ridge or not isinstance(problem.constraint, WholeSpace):
            raise InvalidParameter(
                "whitened-gd fits without a ridge and on the whole space; leave alpha and radius out, or use "
                "noisy gradient descent."
            )

    def draw(self, run: Fit[WhitenedSchedule]) -> Draw:
        """Moments, descent, and the weighted mean of the iterates."""
        schedule, data, saved, rng = run.schedule, run.data, run.saved, run.rng
        if saved is None or (stands := saved.position()) is None:
            walk = begun(schedule, data.problem, looked(schedule, data, rng))
        else:
            saved.restore(rng)
            walk = Walk(**stands)
        geometry = coordinates(schedule, walk.moments)
        found = descend(schedule, data, geometry, walk, rng, saved)
        unit, basis, etas = (
            data.problem.row_norm,
            geometry.frame.basis,
            step_sizes(schedule, geometry, walk.steps),
        )
        # Neither the moments nor the coordinates leave: which doubles they can be depends on the exact sums.
        beside = {"resolved": geometry.spectrum.resolved.astype(float)}
        iterates = {t: q[:, 0] for t, q in walk.iterates.items()}
        excess = expected_excess(
            schedule, geometry, etas, walk.totals[-1][:, 0], iterates, walk.steps, data.problem
        )
        if excess is not None:
            beside["excess_risk"] = two_digits(excess)
        return Draw(value=(basis @ found).ravel() / unit, n_steps=walk.steps, beside=beside)


def begun(schedule: WhitenedSchedule, problem: Problem, moments: Floats) -> Walk:
    """A walk at 0."""
    start = np.zeros((problem.n_columns, problem.loss.score_dimension))
    sums = np.zeros((3, *start.shape))
    return Walk(moments=moments, step=0, steps=schedule.n_steps, theta=start, previous=start, totals=sums)


def looked(schedule: WhitenedSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
    """The noisy second moments, [looks, p, p]: each is a function of the records and of the ones before it."""
    exact = data.summed(second_moment) / data.problem.n
    found = blurred(schedule, exact, rng)[None]
    if schedule.looks == 2:
        turned = turned_moment(data, coordinates(schedule, found).frame, exact)
        found = np.concatenate([found, blurred(schedule, turned, rng)[None]])
    return found


def blurred(schedule: WhitenedSchedule, exact: Floats, rng: np.random.Generator) -> Floats:
    """A second moment with its noise."""
    noise = schedule.moment_noise_std * symmetric_noise(len(exact), rng)
    return np.asarray((exact + exact.T) / 2 + noise)


def coordinates(schedule: WhitenedSchedule, moments: Floats) -> Geometry:
    """The coordinates that these noisy moments give: post-processing.

    Room for long rows blurs the second look, which is for what the first one left unresolved: then there is none.
    """
    noise, fine, room = schedule.moment_noise_std, schedule.looks == 2, schedule.room
    if not (geometry := first_look(moments[0], noise, fine, room)).spectrum.resolved.all():
        room = 1.0
        geometry = first_look(moments[0], noise, fine, room)
    return geometry if len(moments) == 1 else second_look(geometry, moments[1], noise, room)


def step_sizes(schedule: WhitenedSchedule, geometry: Geometry, steps: int) -> Floats:
    """As long as the curvature allows, and no longer than keeps the noise of so many steps within the reach.

    Where an approach found large scores, coefficients are large, and the reach grows with the number of steps.
    """
    lengths = np.sqrt(np.einsum("ij,ij->j", geometry.frame.basis, geometry.frame.basis))
    each = geometry.frame.bound * schedule.whole * steps * schedule.n_steps
    return np.asarray(np.minimum(schedule.step_size / geometry.tops, 4 * schedule.reach / (each * lengths)))


def descend(
    schedule: WhitenedSchedule,
    data: Dataset,
    geometry: Geometry,
    walk: Walk,
    rng: np.random.Generator,
    saved: RunState | None = None,
) -> Floats:
    """q [p, K] after all steps from where the walk stands: the mean of the tail, shrunk where the schedule says so.

    The end of the approach, a released value, says how many steps follow; what these cost in all does not depend on it.
    """
    kept = screen(geometry.frame)
    short = kept is not None and kept.all_short
    weighted = data if short else data.reweighted(row_weights, geometry.frame, kept)
    for last in (schedule.approach, None):
        etas, path = step_sizes(schedule, geometry, walk.steps)[:, None], schedule.path(walk.steps)
        for _ in progress(range(walk.step, walk.steps if last is None else last), "whitened descent"):
            _step(schedule, weighted, geometry, walk, path, etas, rng)
            if walk.step == last:
                walk.steps = schedule.steps(float(np.sqrt((geometry.moments @ walk.theta**2).sum())))
            if saved is not None:
                saved.after(walk, rng)
    if not schedule.shrink:
        return np.asarray(walk.totals[-1])
    noise = geometry.frame.bound * schedule.noise(walk.steps - 1, walk.steps)
    known = (geometry, etas[:, 0], noise, 1 / schedule.step_size, path, data.problem.n)
    windows = walk.totals[:, :, 0]
    shrunk = shrink(windows, *known) if schedule.looks == 1 else shrink_tail(windows[-1], *known)
    return shrunk.value[:, None]


def _step(
    schedule: WhitenedSchedule,
    data: Dataset,
    geometry: Geometry,
    walk: Walk,
    path: Path,
    etas: Floats,
    rng: np.random.Generator,
) -> None:
    """One accelerated step with a noisy gradient, and its part in the means of the windows."""
    problem, basis, bound, t = data.problem, geometry.frame.basis, geometry.frame.bound, walk.step
    point = walk.theta + (t / (t + 3)) * (walk.theta - walk.previous)
    theta = (basis @ point).ravel() / problem.row_norm
    total = data.gradient_sum(problem.loss, theta[:, None]).reshape(point.shape)
    noise = schedule.noise(t, walk.steps) * rng.standard_normal(point.shape)
    noisy = basis.T @ total / (problem.row_norm * bound * problem.n) + noise
    walk.previous, walk.theta = walk.theta, point - etas * (bound * noisy)
    walk.step = t + 1
    if t >= last_third(walk.steps) - 2:
        walk.iterates[t] = walk.theta
    for total, window in zip(walk.totals, path.windows, strict=True):
        if window.first <= t < window.last:
            total += walk.theta / (window.last - window.first)
