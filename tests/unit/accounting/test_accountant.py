"""account and calibrate: the right theorem, the private side, and errors that help."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from _registered import THEOREMS
from dplangevin.accounting.plan import certify_plan, explain_refusals
from dplangevin.errors import (
    AssumptionFailed,
    CalibrationFailed,
    DplangevinError,
    InvalidParameter,
    NotPrivateError,
)
from dplangevin.mechanisms.account import account, calibrate
from dplangevin.mechanisms.noisy_gradient.spec import parse_descent_options

STRONG: dict[str, Any] = {
    "n": 10_000,
    "lipschitz": 1.0,
    "smoothness": 0.26,
    "strong_convexity": 0.01,
    "step_size": 1.0,
}
CONVEX: dict[str, Any] = {
    "n": 10_000,
    "lipschitz": 1.0,
    "smoothness": 0.25,
    "diameter": 2.0,
    "step_size": 1.0,
}
BATCHES: dict[str, Any] = {
    "n": 1000,
    "lipschitz": 1.0,
    "smoothness": 0.25,
    "step_size": 0.1,
    "batch_size": 50,
}


def test_epsilon_stops_growing_with_iterations() -> None:
    values = [account(**STRONG, noise_std=0.012, n_steps=t, delta=1e-6) for t in (10, 1000, 10**6, math.inf)]
    epsilons = [g.epsilon() for g in values]
    assert epsilons == sorted(epsilons)
    assert epsilons[1] == pytest.approx(epsilons[3], rel=1e-3)
    assert values[2].composition is not None
    assert values[2].composition.epsilon() > 100 * epsilons[2]
    assert values[3].composition is None


def test_calibration_vectors() -> None:
    plan = calibrate(**STRONG, n_steps=math.inf, epsilon=1.0, delta=1e-6)
    assert plan.spec.noise_std == pytest.approx(0.01191928594, rel=1e-6)
    plain = calibrate(**STRONG, n_steps=1000, epsilon=1.0, delta=1e-6, theorem="composition")
    assert plain.spec.noise_std == pytest.approx(0.02671921535, rel=1e-6)
    bounded = calibrate(**CONVEX, n_steps=math.inf, epsilon=1.0, delta=1e-6, theorem="optimal-shift")
    assert bounded.spec.noise_std == pytest.approx(0.1689871556, rel=1e-6)
    for made in (plan, plain, bounded):
        assert 1 - 1e-6 < made.guarantee.epsilon() <= 1.0
    sharper = calibrate(**CONVEX, n_steps=math.inf, epsilon=1.0, delta=1e-6)
    assert sharper.spec.noise_std < bounded.spec.noise_std
    assert sharper.guarantee.epsilon() <= 1.0


@settings(max_examples=25, deadline=None)
@given(
    epsilon=st.floats(0.01, 20),
    log_delta=st.floats(-25, -2),
    steps=st.sampled_from([1, 17, 10_000, math.inf]),
    ridge=st.floats(1e-4, 0.2),
)
def test_calibration_is_on_the_private_side(
    epsilon: float, log_delta: float, steps: float, ridge: float
) -> None:
    delta = math.exp(log_delta)
    options = STRONG | {"strong_convexity": ridge, "smoothness": 0.25 + ridge}
    plan = calibrate(**options, n_steps=steps, epsilon=epsilon, delta=delta)
    assert epsilon * (1 - 1e-5) <= plan.guarantee.epsilon() <= epsilon
    again = account(**options, n_steps=steps, delta=delta, noise_std=plan.spec.noise_std)
    assert again.epsilon() <= epsilon


def test_most_steps_is_the_last_that_fits() -> None:
    plan = calibrate(**STRONG, noise_std=0.011, epsilon=1.0, delta=1e-6)
    steps = plan.spec.n_steps
    assert plan.guarantee.epsilon() <= 1.0
    assert account(**STRONG, noise_std=0.011, n_steps=steps + 1, delta=1e-6).epsilon() > 1.0
    assert calibrate(**STRONG, noise_std=0.012, epsilon=1.0, delta=1e-6).spec.n_steps == math.inf
    cyclic = calibrate(**BATCHES, sampling="cyclic", noise_std=0.3, epsilon=1.0, delta=1e-5)
    assert cyclic.spec.n_steps % 20 == 0  # whole epochs only: the bound is not monotone inside one
    assert cyclic.guarantee.epsilon() <= 1.0
    with pytest.raises(CalibrationFailed, match="one step"):
        calibrate(**STRONG, noise_std=1e-6, epsilon=1.0, delta=1e-6)


def test_sampled_runs_pick_a_valid_theorem_and_show_composition() -> None:
    poisson = account(
        **BATCHES, sampling="poisson", adjacency="add-remove", noise_std=0.2, n_steps=100, delta=1e-5
    )
    assert (
        poisson.epsilon()
        <= account(
            **BATCHES,
            sampling="poisson",
            adjacency="add-remove",
            noise_std=0.2,
            n_steps=100,
            delta=1e-5,
            theorem="composition",
        ).epsilon()
    )
    assert poisson.adjacency == "add-remove"
    long = account(
        **BATCHES, sampling="without-replacement", noise_std=0.4, n_steps=10**7, delta=1e-5, diameter=1.0
    )
    assert long.theorem in ("hidden-state-sgd", "block-sgd", "participation-start", "every-step-shift")
    assert long.composition is not None
    assert long.epsilon() < 4 < long.composition.epsilon()


def test_epsilon_instead_of_delta() -> None:
    g = account(**STRONG, noise_std=0.012, n_steps=100, epsilon=1.0)
    assert g.at_delta == pytest.approx(g.delta(1.0))
    assert g.epsilon() <= 1.0 + 1e-9


def test_fallback_names_the_reasons() -> None:
    options = STRONG | {"step_size": 9.0, "noise_std": 0.1, "n_steps": 5}
    constants, spec = parse_descent_options(**options, momentum=True)
    assert certify_plan(constants, spec, delta=1e-6).theorem == "composition"
    reasons = explain_refusals(constants, spec)
    assert "momentum" in reasons["optimal-shift"]
    assert set(reasons) | {"composition"} == set(THEOREMS)


def test_expansive_steps_are_refused_when_the_bound_is_pinned() -> None:
    options = {
        **BATCHES,
        "step_size": 9.0,
        "noise_std": 1.0,
        "n_steps": 20,
        "sampling": "shuffle",
        "delta": 1e-6,
    }
    with pytest.raises(AssumptionFailed, match="2/smoothness"):
        account(**options, theorem="shuffled-shift")
    assert account(**options).theorem == "composition"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_std": 0.0}, "noise_std"),
        ({"noise_std": -1.0}, "noise_std"),
        ({"noise_std": math.nan}, "noise_std"),
        ({"noise_std": math.inf}, "noise_std"),
        ({"noise_std": "much"}, "noise_std"),
        ({"lipschitz": 0.0}, "lipschitz"),
        ({"lipschitz": math.inf}, "lipschitz"),
        ({"step_size": -1.0}, "step_size"),
        ({"n_steps": 0}, "steps must"),
        ({"n_steps": 2.5}, "steps must"),
        ({"n": 0}, "n must"),
        ({"n": math.nan}, "n must"),
        ({"smoothness": 0.005}, "smoothness"),
        ({"diameter": -2.0}, "diameter"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": None}, "exactly one"),
        ({"epsilon": 1.0}, "exactly one"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"theorem": "magic"}, "optimal-shift"),
        ({"mechanism": "noisy-sgd"}, "sampling"),
        ({"mechanism": "noisy-gd", "sampling": "cyclic", "batch_size": 10}, "mechanism"),
        ({"batch_size": 10}, "sampling"),
        ({"sampling": "without-replacement", "batch_size": 10, "adjacency": "add-remove"}, "replace-one"),
        ({"sampling": "cyclic", "batch_size": 20_000}, "batch_size"),
        ({"sampling": "cyclic"}, "batch_size"),
        ({"release": "best"}, "release"),
        ({"release": "checkpoints"}, "checkpoints"),
        ({"release": "checkpoints", "checkpoints": (5, 3)}, "checkpoints"),
        ({"checkpoints": (5,)}, "checkpoints"),
        ({"step_size": (1.0, 2.0)}, "step_size"),
    ],
)
def test_bad_input_names_the_parameter(changes: dict[str, Any], words: str) -> None:
    options = STRONG | {"noise_std": 0.012, "n_steps": 100, "delta": 1e-6} | changes
    with pytest.raises(InvalidParameter, match=words):
        account(**options)


def test_nothing_is_promised_without_a_theorem() -> None:
    with pytest.raises(NotPrivateError, match="no theorem covers"):
        account(n=100, lipschitz=1.0, step_size=1.0, noise_std=1.0, n_steps=math.inf, delta=1e-6)
    with pytest.raises(CalibrationFailed, match="no theorem covers"):
        calibrate(n=100, lipschitz=1.0, step_size=1.0, n_steps=math.inf, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidParameter, match="steps"):
        calibrate(**STRONG, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidParameter, match="account"):
        calibrate(**STRONG, noise_std=1.0, n_steps=10, epsilon=1.0, delta=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 10**9),
    lipschitz=st.floats(1e-8, 1e8),
    noise=st.floats(1e-12, 1e12),
    step=st.floats(1e-9, 1e9),
    steps=st.one_of(st.integers(1, 10**12), st.just(math.inf)),
    smoothness=st.floats(1e-9, 1e9),
    ridge=st.floats(0, 1e9),
    delta=st.floats(1e-300, 0.999),
)
def test_any_numbers_give_a_number_or_a_clear_error(
    n: int,
    lipschitz: float,
    noise: float,
    step: float,
    steps: float,
    smoothness: float,
    ridge: float,
    delta: float,
) -> None:
    try:
        g = account(
            n=n,
            lipschitz=lipschitz,
            noise_std=noise,
            step_size=step,
            n_steps=steps,
            smoothness=smoothness,
            strong_convexity=ridge,
            delta=delta,
        )
    except DplangevinError:
        return
    epsilon = g.epsilon()
    assert epsilon >= 0
    mu = 2 * lipschitz / (n * noise)  # one step alone already costs this much
    from dplangevin.accounting.conversions import gdp_epsilon

    assert epsilon >= gdp_epsilon(mu, delta) * (1 - 1e-9)
