"""Private mirror descent whose mirror map and start come from public data (PDA-DPMD)."""

from __future__ import annotations

import hashlib

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.exact_gradient import public_row_grid, release_gradient, round_records
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.mirror_descent.mirror_map import MirrorMap
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec
from dplangevin.mechanisms.run_state import Position
from dplangevin.problem import Problem


class PublicMirrorDescent(FitMechanism[PublicMirrorSpec]):
    """Mirror descent with noisy private gradients and a public mirror map, from the public minimiser.

    Parameters
    ----------
    mirror : the mirror map, made from public data only (see `public_mirror_map`); it affects accuracy, not privacy.

    Privacy
    -------
    Only the private records are protected, with mu-GDP for all iterates together; the public data are not protected.

    References
    ----------
    Ganesh (2022), Chapter 4, Algorithm 1; Amid et al. (2022), Public data-assisted mirror descent (mode "mix").
    """

    def __init__(self, mirror: MirrorMap) -> None:
        self.mirror = mirror

    def check_problem(self, spec: PublicMirrorSpec, problem: Problem) -> None:
        """Refuse a mirror map of another dimension or on another constraint set."""
        if self.mirror.dimension != problem.dimension:
            raise InvalidParameter(
                f"the mirror map has {self.mirror.dimension} coordinates but the problem has {problem.dimension}; "
                "public and private features must have the same columns."
            )
        if self.mirror.constraint != problem.constraint:
            raise InvalidParameter(
                f"the mirror map is on the set {self.mirror.constraint!r} but the problem's set is "
                f"{problem.constraint!r}; make the map for the plan's problem."
            )
        if spec.secure:
            public_row_grid(problem)

    def _run_settings(self) -> tuple[object, ...]:
        """Return a hash of the map's values at one generic point: another map is another run."""
        start, point_offset = self.mirror.start, np.cos(np.arange(1.0, self.mirror.dimension + 1))
        point = self.mirror.constraint.project(start + point_offset)
        arrays = (start, self.mirror.gradient(point), self.mirror.step(point, point_offset))
        return (hashlib.sha256(b"".join(values.tobytes() for values in arrays)).hexdigest(),)

    def execute(self, inputs: MechanismInput[PublicMirrorSpec]) -> MechanismOutput:
        """Run the steps, and return the last iterate or the average."""
        spec, data, run_state, rng = inputs.spec, inputs.data, inputs.run_state, inputs.rng
        problem, start = data.problem, np.array(self.mirror.start)
        etas, noises = spec.per_step_values("step_size"), spec.per_step_values("noise_std")
        weights, draws = spec.per_step_values("mixing"), NoiseDraws.of(inputs)
        position = Position(step=0, theta=start, previous=start, total=np.zeros(problem.dimension))
        if run_state is not None and (fields := run_state.load_position()) is not None:
            position = Position(**fields)
            if inputs.repeats_noise:
                run_state.restore_generator(rng)
        if spec.secure:
            grid = public_row_grid(problem)
            data = round_records(data, grid)
        for t in iterate_with_progress(range(position.step, spec.n_steps), "mirror descent"):
            if spec.secure:
                noisy = problem.row_norm * release_gradient(
                    data,
                    grid,
                    position.theta.reshape(problem.n_columns, -1),
                    noises[t] / problem.row_norm,
                    divisor=problem.n,
                    source=draws.source,
                )
                noisy = noisy.ravel() + problem.ridge * position.theta
            else:
                gradient = data.gradient_sum(problem.loss, position.theta[:, None])[:, 0] / problem.n
                noise = noises[t] * rng.standard_normal(problem.dimension)
                noisy = gradient + problem.ridge * position.theta + noise
            position.theta = take_step(self.mirror, spec.mode, position.theta, noisy, etas[t], weights[t])
            position.step = t + 1
            if t >= spec.average_from:
                position.total += position.theta
            if run_state is not None:
                run_state.save_if_due(position, rng, now=spec.secure and position.step == spec.n_steps)
        value = position.theta
        if spec.release == "average" and spec.n_steps:
            value = position.total / (spec.n_steps - spec.average_from)
        return MechanismOutput(value=value, n_steps=spec.n_steps)


def take_step(
    mirror: MirrorMap, mode: str, theta: Floats, noisy: Floats, step_size: float | Floats, mixing: float = 1.0
) -> Floats:
    """Return one step of this mode from theta, or from each of its columns with its own step size."""
    if mode == "mirror":
        return mirror.step(theta, step_size * noisy)
    if mode == "mix":
        noisy = mixing * noisy + (1 - mixing) * mirror.gradient(theta)
    return mirror.constraint.project(theta - step_size * noisy)
