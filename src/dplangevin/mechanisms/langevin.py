"""Langevin diffusion as a noisy gradient method (SGLD): trajectory, averages, checkpoints or last iterate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms._charged import charged
from dplangevin.mechanisms._perturbed import checked
from dplangevin.mechanisms.release import Release
from dplangevin.mechanisms.run_state import SAVE_EVERY, RunState, StatePath
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.samplers.problem_potential import ProblemPotential
from dplangevin.samplers.sgld import LangevinRun, geometric_weights, sgld
from dplangevin.schedules import LangevinSchedule

Floats = NDArray[np.float64]
Stop = Callable[[int, Floats], bool]


class LangevinMechanism:
    """theta <- project(theta - eta beta grad F + N(0, 2 eta I)), exactly as the plan's schedule says.

    On a set with a boundary this is the projected (reflected) diffusion's discretisation; on the whole space the free
    one.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2023), Lemma C.1 and section F; Bok, Su and Altschuler (2024).
    """

    def run(
        self,
        plan: Plan,
        data: Dataset,
        random_state: object = None,
        *,
        stop: Stop | None = None,
        ledger: Spender | None = None,
        state: StatePath = None,
        save_every: float = SAVE_EVERY,
    ) -> Release:
        """Run the plan and release what it covers.

        stop(step, theta) may look at every iterate and end the run early, for plans with release="trajectory": they
        are charged in full whenever they stop. With `state`, a file, an interrupted run goes on from the last saved
        step; stop is asked about the steps after it.
        """
        schedule = checked(plan, data, LangevinSchedule)
        if stop is not None and schedule.release != "trajectory":
            raise InvalidParameter(
                f"stop looks at every iterate, but the promise is for release={schedule.release!r}; plan with "
                "release='trajectory'."
            )
        keeper = RunState.at(state, plan, save_every=save_every)

        def make(rng: np.random.Generator, seeded: bool) -> Release:
            made = _run(schedule, data, stop, keeper, rng)
            iterates = {step: theta[:, 0] for step, theta in made.iterates.items()}
            value = made.last[:, 0]
            if schedule.release == "average":
                assert made.average is not None
                value = made.average[:, 0]
            elif schedule.release == "checkpoints":
                value = iterates[schedule.checkpoints[-1]]
            return Release(value=value, plan=plan, seeded=seeded, n_steps=made.n_steps, iterates=iterates)

        return charged(plan, data, make, random_state, ledger, keeper)


def _run(
    schedule: LangevinSchedule,
    data: Dataset,
    stop: Stop | None,
    keeper: RunState | None,
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
        **langevin_position(keeper, rng),
        stop=None if stop is None else lambda step, theta: stop(step, theta[:, 0].copy()),
    )


def langevin_position(keeper: RunState | None, rng: np.random.Generator) -> dict[str, Any]:
    """Where sgld begins and how it is saved; the generator is put where it stood."""
    if keeper is None:
        return {}
    found = keeper.position()
    if found is not None:
        keeper.restore(rng)
    begin = None if found is None else LangevinRun(**found)
    return {"resume": begin, "after": partial(keeper.after, rng=rng)}
