"""Everything that a report on one run shows, asked of the accountant once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplangevin.errors import DplangevinError
from dplangevin.families.account import account
from dplangevin.families.calibrate import calibrate
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems.composition import Composition
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Price, refusals, told
from dplangevin.privacy.registry import option_names, options_named
from dplangevin.report.curve import (
    Plateau,
    at_steps,
    composition_epsilon,
    describe,
    lower_bound,
    plateau,
    varies,
)

Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One run: its guarantee, what stands beside it, and why sharper theorems were refused."""

    guarantee: Guarantee
    epsilon: float
    delta: float
    noise_std: float | None = None
    steps: float | None = None
    calibrated: bool = False
    knob: tuple[str, float] | None = None
    """What was found, by name: noise_std, density_scale, sigma, scale or inverse_temperature."""
    rdp: tuple[tuple[float, float], ...] = ()
    """(order, Renyi divergence) where asked."""
    composition_epsilon: float | None = None
    composition_noise_std: float | None = None
    lower_bound_epsilon: float | None = None
    plateau: Plateau | None = None
    refusals: tuple[str, ...] = ()


def account_answer(
    options: Options, *, reasons: bool, with_lower_bound: bool, orders: Sequence[float] = ()
) -> Answer:
    """Account a run. `reasons` adds the plateau and the refusals, which take longer."""
    guarantee = account(**options)
    delta = guarantee.at_delta or 0.0
    asked = options.get("epsilon")
    epsilon = guarantee.epsilon(delta) if asked is None else float(asked)
    if options.get("mechanism") in option_names():
        return Answer(guarantee=guarantee, epsilon=epsilon, delta=delta, rdp=_renyi(guarantee, orders))
    return Answer(
        guarantee=guarantee,
        epsilon=epsilon,
        delta=delta,
        rdp=_renyi(guarantee, orders),
        steps=options["steps"],
        composition_epsilon=composition_epsilon(guarantee, options["steps"], delta),
        lower_bound_epsilon=lower_bound(options, delta) if with_lower_bound else None,
        **(_reasons(options, guarantee, delta) if reasons else {}),
    )


def _renyi(guarantee: Guarantee, orders: Sequence[float]) -> tuple[tuple[float, float], ...]:
    values = guarantee.rdp(np.asarray(orders)) if orders else ()
    return tuple((float(order), float(value)) for order, value in zip(orders, values, strict=True))


def calibration_answer(
    options: Options, *, reasons: bool, with_lower_bound: bool, orders: Sequence[float] = ()
) -> Answer:
    """Find the noise (or the number of steps) that a promise allows and account that run."""
    plan = calibrate(**options)
    delta = plan.guarantee.at_delta or 0.0
    if not isinstance(plan.schedule, NoisyGradientSchedule):
        return Answer(
            guarantee=plan.guarantee,
            epsilon=plan.guarantee.epsilon(delta),
            delta=delta,
            rdp=_renyi(plan.guarantee, orders),
            knob=_knob(plan, options["mechanism"]),
            calibrated=True,
        )
    noise_std, steps = _public(plan)
    run = {**options, "noise_std": noise_std, "steps": steps}
    return Answer(
        guarantee=plan.guarantee,
        epsilon=plan.guarantee.epsilon(delta),
        delta=delta,
        noise_std=noise_std,
        steps=steps,
        knob=("noise_std", noise_std),
        rdp=_renyi(plan.guarantee, orders),
        composition_epsilon=composition_epsilon(plan.guarantee, steps, delta),
        lower_bound_epsilon=lower_bound(run, delta) if with_lower_bound else None,
        composition_noise_std=_composition_noise({**options, "steps": steps}) if reasons else None,
        **(_reasons(run, plan.guarantee, delta) if reasons else {}),
        calibrated=True,
    )


def _knob(plan: Price, mechanism: str) -> tuple[str, float]:
    _, knob = options_named(mechanism)
    return knob.name, float(getattr(plan.schedule, knob.name))


def _public(plan: Price) -> tuple[float, float]:
    """Noise and number of steps of a plan; the command line asks for one noise, not one per step."""
    schedule = plan.schedule
    assert isinstance(schedule, NoisyGradientSchedule)
    assert isinstance(schedule.noise_std, float)
    return schedule.noise_std, schedule.n_steps


def _composition_noise(options: Options) -> float | None:
    asked = {name: value for name, value in options.items() if name != "noise_std"}
    try:
        return _public(calibrate(**{**asked, "theorem": Composition.name}))[0]
    except DplangevinError:
        return None


def _reasons(options: Options, guarantee: Guarantee, delta: float) -> dict[str, Any]:
    """The plateau, or what the sharper theorems missed: in this run, or in one of any number of steps."""
    level = plateau(options, delta)
    stays = guarantee.theorem == Composition.name or varies(options)
    run = options if stays else at_steps(options, math.inf, delta)
    if options.get("theorem") is not None or (level is not None and run is not options):
        return {"plateau": level}
    reasons = refusals(*describe(run))
    return {
        "plateau": level,
        "refusals": told({name: reasons[name] for name in reasons if name != Composition.name}),
    }
