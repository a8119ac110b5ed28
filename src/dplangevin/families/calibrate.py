"""calibrate: the least noise, or the most steps, for a guarantee; rounded to the private side and certified again."""

from __future__ import annotations

from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.families.noisy_gradient.calibrate import PATIENT, QUICK, descend, least_noise, most_steps
from dplangevin.families.noisy_gradient.options import described
from dplangevin.families.other_runs import Described, described_other
from dplangevin.privacy.plan import Price, certify
from dplangevin.privacy.registry import option_names, options_named
from dplangevin.privacy.target import Target, target


def calibrate(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rdp: tuple[float, float] | None = None,
    mu: float | None = None,
    zcdp: float | None = None,
    theorem: str | None = None,
    steps: int | float | None = None,
    **options: object,
) -> Price:
    """The price with the least noise that meets the target, or, given noise_std and no steps, the most steps.

    The target is (epsilon, delta), or rdp = (order, value), or mu, or zcdp; with those delta only says where epsilon is
    reported (default 1e-6). Other options are those of `account`, mechanism included; steps may be infinity. For other
    mechanisms than noisy gradients the number that is found is left out: density_scale, sigma, scale or
    inverse_temperature.

    Examples
    --------
    >>> from dplangevin import calibrate
    >>> plan = calibrate(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                  steps=float("inf"), epsilon=1.0, delta=1e-6)
    >>> round(plan.schedule.noise_std, 6), plan.guarantee.theorem
    (0.011919, 'optimal-shift')
    """
    mechanism = options.get("mechanism")
    without_steps = mechanism in option_names()
    wanted = target(epsilon=epsilon, delta=delta, rdp=rdp, mu=mu, zcdp=zcdp, pure=without_steps)
    if without_steps:
        return _other(wanted, theorem, options if steps is None else {**options, "steps": steps})
    noise = options.pop("noise_std", None)
    if steps is None and noise is None:
        raise InvalidParameter("give steps to get the least noise_std, or noise_std to get the most steps.")
    if steps is not None and noise is not None:
        raise InvalidParameter("noise_std and steps are both given, so nothing is left to find; use account.")
    start = 1.0 if noise is None else noise
    constants, schedule = described({"noise_std": start, "steps": 1 if steps is None else steps, **options})
    if steps is None:
        return most_steps(constants, schedule, wanted, theorem)
    return least_noise(constants, schedule, wanted, theorem)


def _other(wanted: Target, theorem: str | None, options: dict[str, object]) -> Price:
    """The least noise (or the highest inverse temperature) of a mechanism without steps."""
    _, knob = options_named(str(options["mechanism"]))
    if options.get(knob.name) is not None:
        raise InvalidParameter(f"{knob.name} is what calibrate finds; leave it out, or use account.")

    def run(factor: float) -> Described:
        return described_other({**options, knob.name: knob.at(factor)})

    def cost(factor: float) -> float:
        return wanted.cost(certify(*run(factor), delta=wanted.delta, theorem=theorem))

    high, rounds = 1.0, 0
    spent = cost(high)
    while not spent <= wanted.goal:
        high, rounds = high * (4 if rounds < 6 else 100), rounds + 1
        if rounds > 25:  # a factor of 1e41; sizes beyond 1e60 are refused
            raise CalibrationFailed(f"no {knob.name} reaches {wanted}; change the bounds or the target.")
        spent = cost(high)
    numeric = knob.patient or options.get("p", 2) not in (1, 2)
    constants, schedule = run(descend(cost, high, spent, wanted.goal, PATIENT if numeric else QUICK))
    return Price(schedule=schedule, delta=wanted.delta, theorem=theorem, constants=constants)  # type: ignore[arg-type]
