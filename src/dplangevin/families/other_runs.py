"""The mechanisms without steps, for `account` and `calibrate`: from their options to what is accounted and executed.

Each has one number on which its privacy hangs, the knob: noise_scale (more is more private) or inverse_temperature
(less is more private).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dplangevin.errors import InvalidParameter
from dplangevin.families._minimiser import default_tolerance, total_ridge
from dplangevin.families.draws.schedule import ExponentialSchedule, GibbsSchedule
from dplangevin.families.noisy_answers.schedule import NoisyAnswersSchedule
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.families.rashomon.schedule import RashomonSchedule
from dplangevin.privacy.option_names import QUESTION, check_names
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

SOLVER_EPSILON = 0.01
"""What the inexact minimiser of objective perturbation costs, unless release_noise is stated."""


def objective_perturbation(
    *,
    n: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    dimension: int,
    noise_scale: float,
    hessian_rank: int = 1,
    noise: str = "gaussian",
    tolerance: float | None = None,
    release_noise: float | None = None,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """The minimiser of a randomly tilted objective, in units of the SUM of losses."""
    constants = _constants(
        n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension, hessian_rank
    )
    if tolerance is None:
        tilt = noise_scale * (dimension + math.sqrt(70 * dimension) + 35)
        tolerance = default_tolerance(constants, tilt) if strong_convexity > 0 else 1e-6
    if release_noise is None:
        ridge = total_ridge(constants) if strong_convexity > 0 else 1.0
        release_noise = 2 * tolerance / (ridge * SOLVER_EPSILON)
    return constants, ObjectivePerturbationSchedule(
        noise_scale=noise_scale,
        tolerance=tolerance,
        release_noise=release_noise,
        noise=noise,  # type: ignore[arg-type]
    )


def output_perturbation(
    *,
    n: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    noise_scale: float,
    dimension: int | None = None,
    noise: str = "gaussian",
    tolerance: float | None = None,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """The minimiser plus noise."""
    constants = _constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    if tolerance is None:
        tolerance = default_tolerance(constants) if strong_convexity > 0 else 1e-6
    return constants, OutputPerturbationSchedule(
        noise_scale=noise_scale,
        tolerance=tolerance,
        noise=noise,  # type: ignore[arg-type]
    )


def exponential(
    *,
    n: int,
    lipschitz: float,
    diameter: float,
    inverse_temperature: float,
    smoothness: float = math.inf,
    strong_convexity: float = 0.0,
    dimension: int | None = None,
    tier: str = "exact",
    step_size: float = 0.0,
    steps: int = 0,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """One draw of exp(-inverse_temperature F) on a bounded set."""
    constants = _constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    return constants, ExponentialSchedule(
        inverse_temperature=inverse_temperature,
        tier=tier,  # type: ignore[arg-type]
        step_size=step_size,
        n_steps=steps,
    )


def gibbs(
    *,
    n: int,
    lipschitz: float,
    strong_convexity: float,
    inverse_temperature: float,
    smoothness: float = math.inf,
    diameter: float = math.inf,
    dimension: int | None = None,
    tier: str = "exact",
    step_size: float = 0.0,
    steps: int = 0,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """One draw of exp(-inverse_temperature F) for a strongly convex F."""
    constants = _constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    return constants, GibbsSchedule(
        inverse_temperature=inverse_temperature,
        tier=tier,  # type: ignore[arg-type]
        step_size=step_size,
        n_steps=steps,
    )


def rashomon(
    *,
    n: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    diameter: float,
    dimension: int,
    models: int,
    threshold: float,
    inverse_temperature: float,
    excess: float | None = None,
    ramp: float = 0.0,
    tolerance: float | None = None,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """Exact draws of good models: exp(-inverse_temperature h(F - F*)), h flat up to the threshold."""
    constants = _constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    if tolerance is None:
        tolerance = default_tolerance(constants) if strong_convexity > 0 else 1e-6
    return constants, RashomonSchedule(
        n_models=models,
        threshold=threshold,
        inverse_temperature=inverse_temperature,
        tolerance=tolerance,
        # sup F - inf F over the set, from the slope of one loss and of the ridge
        excess=excess if excess is not None else (lipschitz + strong_convexity * diameter) * diameter,
        ramp=ramp,
    )


def counting(
    *,
    answers: int,
    noise_scale: float,
    changed: int | None = None,
    sensitivity: float = 1.0,
    p: float = 2.0,
    adjacency: str = "replace-one",
) -> tuple[None, NoisyAnswersSchedule]:
    """Answers plus generalised Gaussian noise of density exp(-(|x|_p / noise_scale)^p)."""
    return None, NoisyAnswersSchedule(
        answers=answers,
        changed=answers if changed is None else changed,
        sensitivity=sensitivity,
        p=p,
        sigma=noise_scale,
        adjacency=adjacency,  # type: ignore[arg-type]
    )


def _constants(
    n: int,
    lipschitz: float,
    adjacency: str,
    smoothness: float,
    strong_convexity: float,
    diameter: float,
    dimension: int | None,
    hessian_rank: int | None = None,
) -> Constants:
    return Constants(
        n=n,
        lipschitz=lipschitz,
        smoothness=smoothness,
        strong_convexity=strong_convexity,
        diameter=diameter,
        adjacency=adjacency,  # type: ignore[arg-type]
        dimension=dimension,
        hessian_rank=hessian_rank,
    )


Described = tuple[Constants | None, Schedule]
Builder = Callable[..., Described]

OTHER_MECHANISMS: dict[str, Builder] = {
    "objective-perturbation": objective_perturbation,
    "output-perturbation": output_perturbation,
    "exponential": exponential,
    "gibbs": gibbs,
    "rashomon": rashomon,
    "counting": counting,
}
_TEMPERED = ("exponential", "gibbs", "rashomon")


@dataclass(frozen=True)
class Knob:
    """The number on which a mechanism's privacy hangs."""

    name: str
    rising: bool

    def at(self, factor: float) -> float:
        """A value that is the more private the larger the factor."""
        return factor if self.rising else 1 / factor


def knob_of(mechanism: object) -> Knob:
    """noise_scale, or inverse_temperature for draws."""
    return Knob("inverse_temperature", False) if mechanism in _TEMPERED else Knob("noise_scale", True)


def described_other(options: Mapping[str, object]) -> Described:
    """The public values of a run without steps; errors name the option."""
    build = OTHER_MECHANISMS[str(options["mechanism"])]
    chosen = {name: value for name, value in options.items() if value is not None}
    try:
        return build(**check_names(chosen, build, QUESTION))
    except InvalidParameter as error:
        words = str(error).replace("n_steps", "steps").replace("n_models", "models")
        raise InvalidParameter(words.replace("sigma", "noise_scale")) from None
