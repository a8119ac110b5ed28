"""Run the exponential, Gibbs and iterated exponential mechanisms with the sampler that the spec names.

Which exact sampler applies is decided from the public problem only, never from its data.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import make_generator
from dplangevin.accounting.guarantee import NotPrivate
from dplangevin.data.dataset import Dataset
from dplangevin.data.kernels import second_moments
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exponential.spec import DrawSpec, IteratedExponentialSpec
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput
from dplangevin.mechanisms.newton import hessian_sum
from dplangevin.problem import Ball, Box, Problem, RecordLoss, is_proved
from dplangevin.problem.problem import max_norm
from dplangevin.sampling.envelopes import Anchor, sample_active_ball, sample_elliptical_envelope
from dplangevin.sampling.langevin import (
    approximate_minimizer,
    run_hit_and_run,
    run_mala,
    run_overdamped,
    run_underdamped,
    sample_certified_start,
)
from dplangevin.sampling.log_concave import sample_adaptive_rejection
from dplangevin.sampling.potential import ProblemPotential
from dplangevin.sampling.rejection import (
    run_proximal_chain,
    sample_cell_envelope,
    sample_finite_grid,
    sample_quadratic_gaussian,
    sample_tangent_envelope,
)
from dplangevin.sampling.supports import BoxSupport, ConvexSupport, LensSupport, support_of

ExactMethod = Literal["grid", "line", "gaussian", "logistic", "cells", "tangents"]
MAX_GRID_POINTS = 1_000_000
MAX_CELLS_PER_AXIS = {1: 100_000, 2: 401, 3: 55}
"""Maximum number of cells per axis of a piecewise envelope, by the number of parameters."""
MAX_ENVELOPE_SLACK = 14.0
"""Maximum height of a cell's envelope above the log density: beyond it almost every proposal is rejected."""


def choose_exact_method(problem: Problem, grid: int = 0) -> ExactMethod:
    """Return the name of an exact sampler of exp(-beta F) for this problem, or raise AssumptionFailed with a remedy.

    "grid": any loss, on a public grid of at most a million points. "line": one parameter and a convex loss (adaptive
    rejection). "gaussian": a loss that is quadratic on the whole set. "logistic": elliptical or active-ball envelope,
    with a ridge. "cells": a nonconvex loss of up to three parameters, from the Lipschitz constants of F and grad F.
    "tangents": a convex loss of up to three parameters, with corners or without.
    """
    if not math.isfinite(problem.constants.diameter):
        raise AssumptionFailed(
            "no exact draw: the parameter set is unbounded. Constrain the parameter to a ball or box."
        )
    if not isinstance(problem.constraint, Ball | Box):
        raise AssumptionFailed(
            f"no exact draw is known on the {problem.constraint.name}; use a ball or a box."
        )
    if grid:
        if grid**problem.dimension > MAX_GRID_POINTS:
            raise InvalidParameter(
                f"grid = {grid} points on each of {problem.dimension} axes are more than {MAX_GRID_POINTS} in all; "
                "take fewer, or another tier for so many parameters."
            )
        return "grid"
    if problem.constants.value_oscillation is not None:
        raise AssumptionFailed(
            f"no exact draw: the {problem.loss.name} loss is known by clipped values only, and nothing bounds them "
            "between two points. State grid=, a number of points per axis."
        )
    if not problem.constants.convex:
        if problem.dimension in MAX_CELLS_PER_AXIS:
            return "cells"
        raise AssumptionFailed(
            "no exact draw: the loss is not convex, and the piecewise envelope covers up to three parameters only. "
            "State grid= (few parameters), or use Langevin diffusion."
        )
    if problem.dimension == 1:
        return "line"
    if problem.ridge > 0 and _is_quadratic(problem):
        return "gaussian"
    if problem.ridge > 0 and problem.loss.ball_envelope and isinstance(problem.constraint, Ball):
        return "logistic"
    if problem.dimension in MAX_CELLS_PER_AXIS:
        return "tangents"
    raise AssumptionFailed(
        f"no exact draw is known for the {problem.loss.name} loss with ridge = {problem.ridge:g} on the "
        f"{problem.constraint.name} in {problem.dimension} dimensions; use tier='pure' or 'certified'."
    )


def box_lipschitz(problem: Problem) -> float:
    """Return the Lipschitz constant of F on the bounding box of the set, whose corners may lie outside the set."""
    corner = max_norm(problem.constraint, problem.dimension)
    if isinstance(problem.constraint, Ball):
        corner *= math.sqrt(problem.dimension)
    return problem.constants.lipschitz + problem.ridge * corner


def envelope_slack(problem: Problem, inverse_temperature: float, cells: int) -> float:
    """Return how far the envelope with `cells` per axis lies above the log density at the centre of a cell."""
    radius = problem.constants.diameter * math.sqrt(problem.dimension) / (2 * cells)
    flat = box_lipschitz(problem) * radius
    return inverse_temperature * min(flat, problem.constants.smoothness * radius**2 / 2)


def choose_cells_per_axis(problem: Problem, inverse_temperature: float) -> int:
    """Return the fewest cells per axis whose envelope is within 1 of the log density, or the allowed maximum."""
    most, slack = MAX_CELLS_PER_AXIS[problem.dimension], math.inf
    for cells in sorted({min(most, round(8 * 1.25**k)) for k in range(60)}):
        slack = envelope_slack(problem, inverse_temperature, cells)
        if slack <= 1:
            return cells
    if slack > MAX_ENVELOPE_SLACK:
        raise AssumptionFailed(
            f"no exact draw: at inverse temperature {inverse_temperature:.4g} an envelope of {most} cells per axis "
            "would reject almost every proposal. Lower epsilon, state grid=, or smooth the loss."
        )
    return most


def _is_quadratic(problem: Problem) -> bool:
    """Return whether no residual can reach the point where the loss stops being (score - y)^2 / 2."""
    low, high = problem.bounds.label_range
    residual = problem.row_norm * max_norm(problem.constraint, problem.dimension) + max(abs(low), abs(high))
    return problem.loss.quadratic_radius >= residual


def sample_gibbs(
    spec: DrawSpec,
    data: Dataset,
    rng: np.random.Generator,
    size: int = 1,
    support: ConvexSupport | None = None,
) -> Floats:
    """Return `size` independent draws [p, size] on the problem's set, or on `support` inside it.

    Exact draws on a part of the set are known for one parameter only.
    """
    problem = data.problem
    potential = ProblemPotential(data, spec.inverse_temperature)
    if spec.tier != "exact":
        support = support or support_of(problem.constraint, problem.dimension)
        start = sample_certified_start(potential, support, size, rng)
        return run_proximal_chain(potential, support, start, spec.step_size, spec.n_steps, rng).theta
    method = choose_exact_method(problem, spec.grid)
    inside = support or support_of(problem.constraint, problem.dimension)
    if method == "line":
        low, high = (float(inside.project(np.array([[end]]))[0, 0]) for end in (-1e300, 1e300))
        return sample_adaptive_rejection(potential, low, high, size, rng).theta
    if support is not None:
        raise AssumptionFailed(
            "exact draws on a part of the set need one parameter; use tier='pure' or 'certified'."
        )
    if method == "grid":
        return sample_on_grid(potential, inside, spec.grid, size, rng)
    if method == "cells":
        return _sample_cells(potential, inside, size, rng)
    if method == "tangents":
        return sample_tangent_envelope(potential, inside, *_bounding_box(inside), size, rng).theta
    if method == "gaussian":
        return _sample_gaussian(potential, inside, size, rng)
    return _sample_logistic(potential, inside, size, rng)


def grid_points(support: ConvexSupport, per_axis: int) -> Floats:
    """Return the public grid: per_axis points on each axis of the bounding box, restricted to the support."""
    low, high = _bounding_box(support)
    axes = [np.linspace(a, b, per_axis) for a, b in zip(low, high, strict=True)]
    points = np.array(list(itertools.product(*axes))).T
    return np.ascontiguousarray(points[:, support.contains(points)])


def _bounding_box(support: ConvexSupport) -> tuple[Floats, Floats]:
    if isinstance(support, BoxSupport):
        return support.low, support.high
    side = np.full(support.dimension, support.diameter / 2)
    return -side, side


def sample_on_grid(
    potential: ProblemPotential,
    support: ConvexSupport,
    per_axis: int,
    size: int,
    rng: np.random.Generator,
    *,
    flat: float = 0.0,
) -> Floats:
    """Return draws of exp(-max(V - min V, flat)) on the public grid, min V over the grid; flat = 0 is exp(-V)."""
    points = grid_points(support, per_axis)
    blocks = np.array_split(points, max(1, points.shape[1] // 512), axis=1)
    scores = np.concatenate([potential.value(block) for block in blocks])
    if flat:
        scores = np.maximum(scores - scores.min() - flat, 0.0)
    return np.asarray(points[:, sample_finite_grid(scores, size, rng)])


def _sample_cells(
    potential: ProblemPotential, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    problem, beta = potential.problem, potential.inverse_temperature
    low, high = _bounding_box(support)
    cells = choose_cells_per_axis(problem, beta)
    lipschitz = beta * box_lipschitz(problem)
    return sample_cell_envelope(
        potential, support, low, high, cells, lipschitz, potential.smoothness, size, rng
    ).theta


def _sample_gaussian(
    potential: ProblemPotential, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    """Draw from N(minimiser, (beta H)^-1) conditioned on the set, on which F is quadratic."""
    problem = potential.problem
    matrix, cross = second_moments(potential.data)
    matrix = matrix / problem.n + problem.ridge * np.eye(problem.dimension)
    mean = np.linalg.solve(matrix, cross / problem.n)
    return sample_quadratic_gaussian(mean, potential.inverse_temperature * matrix, support, size, rng)


def _sample_logistic(
    potential: ProblemPotential, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    """Draw with the envelope around the minimiser, inside the ball or on its sphere.

    Both are exact, so choosing between them from the data does not change the law.
    """
    problem = potential.problem
    assert isinstance(problem.constraint, Ball)
    radius, ridge, norm = problem.constraint.radius, potential.strong_convexity, problem.row_norm
    anchor = approximate_minimizer(potential, support, 20_000)
    length = float(np.linalg.norm(anchor))
    if length > radius * (1 - 1e-9):
        anchor = anchor * (radius / length)
        if float(potential.gradient(anchor[:, None])[:, 0] @ anchor) < 0:
            hessian = logistic_hessian(potential, anchor)
            return sample_active_ball(
                potential, radius, Anchor(anchor, hessian, ridge, norm), size, rng
            ).theta
    hessian = logistic_hessian(potential, anchor)
    return sample_elliptical_envelope(
        potential, support, Anchor(anchor, hessian, ridge, norm), size, rng
    ).theta


def logistic_hessian(potential: ProblemPotential, theta: Floats) -> Floats:
    """Return the Hessian of the data term of V: beta / n sum weight s (1 - s) x x'."""
    return hessian_sum(potential.data, theta) * (potential.inverse_temperature / potential.problem.n)


class ExponentialMechanism(FitMechanism[DrawSpec]):
    """Draw theta ~ exp(-beta F) on the problem's set with the sampler tier of the spec; runs Gibbs specs too.

    References
    ----------
    McSherry and Talwar (2007); Ganesh, Thakurta and Upadhyay (2022), Algorithm 2; Gopi, Lee and Liu (2022).
    """

    supported_record_losses = "bounded values"

    def check_problem(self, spec: DrawSpec, problem: Problem) -> None:
        """Check that the tier has a sampler for this problem and that the loss has bounded values."""
        if spec.tier == "exact":
            if choose_exact_method(problem, spec.grid) == "cells":
                choose_cells_per_axis(problem, spec.inverse_temperature)
        else:
            support_of(problem.constraint, problem.dimension)
        if isinstance(problem.loss, RecordLoss):
            if not is_proved(problem.loss) and not problem.loss.has_clipped_values:
                raise InvalidParameter(
                    "values of a subclass of a loss of this library are not known to be bounded."
                )
        else:
            problem.loss.value(np.zeros((1, problem.loss.score_dimension)).squeeze(0), np.zeros(1))

    def execute(self, inputs: MechanismInput[DrawSpec]) -> MechanismOutput:
        """Return one draw, projected onto the set (rounding may have left it)."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        with _pad_runtime(spec.padding):
            value = sample_gibbs(spec, data, rng)[:, 0]
        return MechanismOutput(value=data.problem.constraint.project(value))


class IteratedExponentialMechanism(FitMechanism[IteratedExponentialSpec]):
    """Draw from a ball, then from smaller and smaller balls around the last draw, intersected with the first ball.

    The guarantee also covers the earlier draws, which are the release's iterates.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), Algorithm 3.
    """

    def check_problem(self, spec: IteratedExponentialSpec, problem: Problem) -> None:
        """Check that the set is a ball and that its intersections with smaller balls have a sampler."""
        if not isinstance(problem.constraint, Ball):
            raise InvalidParameter(
                f"the iterated mechanism runs on a ball, not on the {problem.constraint.name}; use Ball(radius)."
            )
        if spec.tier == "exact" and problem.dimension > 1:
            raise AssumptionFailed(
                "exact draws on a part of the ball need one parameter; use tier='pure' or 'certified'."
            )

    def execute(self, inputs: MechanismInput[IteratedExponentialSpec]) -> MechanismOutput:
        """Return the last stage's draw, with the earlier ones as iterates."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        constraint = data.problem.constraint
        assert isinstance(constraint, Ball)
        iterates: dict[int, Floats] = {}
        theta, support = np.zeros(data.problem.dimension), None
        with _pad_runtime(spec.padding):
            for number, stage in enumerate(spec.draws, 1):
                theta = constraint.project(sample_gibbs(stage, data, rng, support=support)[:, 0])
                iterates[number] = theta
                if number < len(spec.draws):
                    support = LensSupport(center=theta, outer=constraint.radius, inner=spec.radii[number - 1])
        return MechanismOutput(value=constraint.project(theta), n_steps=len(iterates), iterates=iterates)


@contextmanager
def _pad_runtime(seconds: float) -> Iterator[None]:
    """Make the enclosed block take at least `seconds` of wall time."""
    end = time.monotonic() + seconds
    try:
        yield
    finally:
        time.sleep(max(0.0, end - time.monotonic()))


UncertifiedSampler = Literal["mala", "hit-and-run", "overdamped", "underdamped"]
UNCERTIFIED_SAMPLERS: tuple[UncertifiedSampler, ...] = ("mala", "hit-and-run", "overdamped", "underdamped")


@dataclass(frozen=True, kw_only=True, eq=False)
class UncertifiedSamples:
    """The last points [p, k] of k chains. Their guarantee is NotPrivate: asking for its epsilon raises."""

    value: Floats
    guarantee: NotPrivate
    tier: str = "diagnosed"


def run_uncertified_chains(
    data: Dataset,
    *,
    inverse_temperature: float,
    sampler: UncertifiedSampler,
    n_steps: int,
    step_size: float | None = None,
    n_chains: int = 1,
    random_state: object = None,
) -> UncertifiedSamples:
    """Run chains towards exp(-beta F) from the projection of 0; step_size=None means 1 / (smoothness of beta F).

    MALA and hit-and-run have the correct stationary law; overdamped and underdamped Langevin (exact Gaussian steps,
    no constraint) have a biased one. For none of them is a number of steps proved here, so none has a guarantee.
    """
    _check.check_choice("sampler", sampler, UNCERTIFIED_SAMPLERS)
    problem, chains = data.problem, _check.check_count("n_chains", n_chains)
    potential = ProblemPotential(data, inverse_temperature)
    eta = 1 / potential.smoothness if step_size is None else _check.check_positive("step_size", step_size)
    rng, _ = make_generator(random_state)
    start = np.tile(problem.constraint.project(np.zeros(problem.dimension))[:, None], chains)
    support = support_of(problem.constraint, problem.dimension)
    if sampler == "mala":
        value = run_mala(potential, support, start, eta, n_steps, rng).theta
    elif sampler == "hit-and-run":
        value = run_hit_and_run(potential, support, start, n_steps, rng).theta
    elif sampler == "overdamped":
        value = run_overdamped(potential, start, eta, n_steps, rng)
    else:
        # friction 2 and inverse mass 1 in units where the largest curvature is 1
        mass = 1 / potential.smoothness
        value = run_underdamped(potential, start, 2.0, mass, eta * potential.smoothness / 2, n_steps, rng)[0]
    reason = (
        f"the {sampler} chain has no proved distance to its target, so its draws are for research only; use the exact, "
        "pure, certified or process tier to release one"
    )
    return UncertifiedSamples(value=value, guarantee=NotPrivate(reason))
