"""Langevin diffusion as a noisy gradient method (SGLD): trajectory, averages, checkpoints or last iterate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import Draw, Fit, FitMechanism
from dplangevin.mechanisms.run_state import RunState
from dplangevin.problem import Problem
from dplangevin.samplers.problem_potential import ProblemPotential
from dplangevin.samplers.sgld import LangevinRun, geometric_weights, sgld
from dplangevin.schedules import LangevinSchedule

Floats = NDArray[np.float64]
Stop = Callable[[int, Floats], bool]


class LangevinMechanism(FitMechanism[LangevinSchedule]):
    """theta <- project(theta - eta beta grad F + N(0, 2 eta I)), exactly as the plan's schedule says.

    On a set with a boundary this is the projected (reflected) diffusion's discretisation; on the whole space the free
    one.

    Parameters
    ----------
    stop : stop(step, theta) may look at every iterate and end the run early, for plans with release="trajectory": they
        are charged in full whenever they stop. After a crash it is asked about the steps after the last saved one.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023), Lemma C.1 and section F; Bok, Su and Altschuler (2024).
    """

    family = LangevinSchedule

    def __init__(self, stop: Stop | None = None) -> None:
        self.stop = stop

    def check(self, schedule: LangevinSchedule, problem: Problem) -> None:
        """Stopping rules see every iterate."""
        if self.stop is not None and schedule.release != "trajectory":
            raise InvalidParameter(
                f"stop looks at every iterate, but the promise is for release={schedule.release!r}; plan with "
                "release='trajectory'."
            )

    def draw(self, run: Fit[LangevinSchedule]) -> Draw:
        """Walk, and release what the schedule says."""
        schedule, data, rng = run.schedule, run.data, run.rng
        made = _run(schedule, data, self.stop, run.saved, rng)
        iterates = {step: theta[:, 0] for step, theta in made.iterates.items()}
        value = made.last[:, 0]
        if schedule.release == "average":
            assert made.average is not None
            value = made.average[:, 0]
        elif schedule.release == "checkpoints":
            value = iterates[schedule.checkpoints[-1]]
        return Draw(value=value, n_steps=made.n_steps, iterates=iterates)


def _run(
    schedule: LangevinSchedule,
    data: Dataset,
    stop: Stop | None,
    saved: RunState | None,
    rng: np.random.Generator,
) -> LangevinRun:
    problem, steps = data.problem, schedule.n_steps
    weights = None
    if schedule.release == "average":
        weights = np.ones(steps)
        if schedule.weights == "geometric":
            rate = np.asarray(schedule.step_size).item() * np.asarray(schedule.inverse_temperature).item()
            weights = geometric_weights(rate, problem.ridge, steps)
    keep = {
        "trajectory": tuple(range(1, steps + 1)),
        "checkpoints": schedule.checkpoints,
        "last-iterate": (steps,),
        "average": (),
    }[schedule.release]
    return sgld(
        ProblemPotential(data, 1.0),
        problem.constraint.project(np.zeros((problem.dimension, 1))),
        schedule.step_size,
        schedule.inverse_temperature,
        steps,
        rng,
        project=problem.constraint.project,
        weights=weights,
        keep=keep,
        **langevin_position(saved, rng),
        stop=None if stop is None else lambda step, theta: stop(step, theta[:, 0].copy()),
    )


def langevin_position(saved: RunState | None, rng: np.random.Generator) -> dict[str, Any]:
    """Where sgld begins and how it is saved; the generator is put where it stood."""
    if saved is None:
        return {}
    found = saved.position()
    if found is not None:
        saved.restore(rng)
    begin = None if found is None else LangevinRun(**found)
    return {"resume": begin, "after": partial(saved.after, rng=rng)}
