"""Whitened objective perturbation: a noisy second moment, coordinates, weights of rows, one tilted minimisation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Dataset
from dplangevin.families._minimise import Objective, minimise
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.perturbation._noise import perturbation
from dplangevin.families.whitened.excess import two_digits
from dplangevin.families.whitened.geometry import Spectrum, spectrum
from dplangevin.families.whitened.sums import second_moment
from dplangevin.families.whitened_objective.excess import expected_excess
from dplangevin.families.whitened_objective.rows import whitened_rows
from dplangevin.families.whitened_objective.schedule import WhitenedObjectiveSchedule
from dplangevin.planner.rules import PURE_EDGE
from dplangevin.samplers.wishart import wishart_difference

Floats = NDArray[np.float64]
POWER = 0.25
"""Of the spectrum: short of 1/2, since a ridge on wholly whitened coefficients weighs on the long directions, which
tend to matter most; ill-conditioned tables hardly notice."""


class WhitenedObjective(FitMechanism[WhitenedObjectiveSchedule]):
    """T q with q the perturbed minimiser in the coordinates that a noisy second moment gives.

    Noise goes on the moment, on the objective and on its minimiser. What is made of the moment (directions that count
    as resolved, T) is post-processing.
    """

    family = WhitenedObjectiveSchedule

    def draw(self, run: Fit[WhitenedObjectiveSchedule]) -> Draw:
        """Moment, coordinates, minimiser."""
        schedule, problem = run.schedule, run.data.problem
        moment = look(schedule, run.data, run.rng)
        found = resolved(schedule, moment)
        basis = coordinates(found)
        q = minimised(schedule, run.data, basis, run.rng)
        theta = basis @ q.reshape(problem.n_columns, -1)
        # Neither the moment nor the coordinates leave: which doubles they can be depends on the exact sum.
        beside = {"resolved": found.resolved.astype(float)}
        excess = expected_excess(schedule, problem, found, q, POWER)
        return Draw(
            value=theta.ravel(),
            beside=beside if excess is None else beside | {"excess_risk": two_digits(excess)},
        )


def look(schedule: WhitenedObjectiveSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
    """The noisy second moment of rows in units of the largest one. Labels and sample weights play no part."""
    exact = data.summed(second_moment, None) / data.problem.n
    noise = wishart_difference(data.problem.n_columns, schedule.moment_density_scale, rng)
    return np.asarray((exact + exact.T) / 2 + noise)


def resolved(schedule: WhitenedObjectiveSchedule, moment: Floats) -> Spectrum:
    """What stands out of the noise; post-processing. `spectrum` takes the deviation of noise with the same edge."""
    size = len(moment)
    return spectrum(
        moment, schedule.moment_density_scale * PURE_EDGE * (size + 1) / math.sqrt(2 * size), False
    )


def coordinates(found: Spectrum) -> Floats:
    """T = U e^-power / R with R^2 = sum e^(1 - 2 power): rows have the expected squared length of the largest one."""
    size = math.sqrt(float((found.values ** (1 - 2 * POWER)).sum()))
    return np.asarray(found.vectors * found.values**-POWER / size)


def minimised(
    schedule: WhitenedObjectiveSchedule, data: Dataset, basis: Floats, rng: np.random.Generator
) -> Floats:
    """The perturbed minimiser q over rows T' x."""
    problem = data.problem
    tilt = perturbation("gamma", problem.dimension, schedule.density_scale, rng)
    objective = Objective(data=whitened_rows(data, basis), ridge=problem.n * schedule.ridge, tilt=tilt)
    blur = perturbation("gamma", problem.dimension, schedule.release_density_scale, rng)
    return minimise(objective, schedule.tolerance, schedule.iterations, schedule.reach) + blur
