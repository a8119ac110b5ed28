"""DP-SGD in its own words, and events of dp-accounting: the same cost as the same run stated otherwise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from dplangevin import account, calibrate
from dplangevin.accounting import Concentrated, Gaussian, Pure, guarantee_from_event
from dplangevin.accounting.parts import SampledGaussian
from dplangevin.cli.main import run_command_line
from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.mechanisms.noisy_gradient.spec import translate_dp_sgd_options

DELTA = 1e-5


def steps(rate: float, noise: float, count: int) -> Any:
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    return dp_event.SelfComposedDpEvent(step, count)


@pytest.mark.parametrize(("rate", "noise", "count"), [(0.01, 1.0, 300), (0.1, 2.0, 50), (1.0, 4.0, 10)])
def test_the_words_of_dp_sgd_cost_what_dp_accounting_computes(rate: float, noise: float, count: int) -> None:
    """Never below the exact value, and within the grid of the privacy loss of it."""
    guarantee = account(noise_multiplier=noise, sample_rate=rate, n_steps=count, delta=DELTA)
    theirs = PLDAccountant().compose(steps(rate, noise, count)).get_epsilon(DELTA)
    assert guarantee.epsilon() == pytest.approx(theirs, rel=2e-3)
    assert guarantee.epsilon() >= theirs * (1 - 1e-3)
    assert guarantee.adjacency == "add-remove"
    imported = guarantee_from_event(steps(rate, noise, count), delta=DELTA)
    assert imported.epsilon() == pytest.approx(guarantee.epsilon(), rel=1e-6)


def test_a_rate_is_the_same_run_as_its_batches() -> None:
    stated = account(noise_multiplier=1.5, n=1000, batch_size=20, epochs=3, delta=DELTA)
    by_rate = account(noise_multiplier=1.5, sample_rate=0.02, n_steps=150, delta=DELTA)
    in_units = account(
        n=1000, lipschitz=3.0, noise_std=1.5 * 3.0 / 20, step_size=0.7, n_steps=150, batch_size=20,
        sampling="poisson", adjacency="add-remove", delta=DELTA,
    )  # fmt: skip
    assert by_rate.epsilon() == pytest.approx(stated.epsilon(), rel=1e-9)
    assert in_units.epsilon() == pytest.approx(stated.epsilon(), rel=1e-9)


def test_rates_and_epochs_are_rounded_up() -> None:
    for rate in (1e-9, 1 / 3, 0.1, 1 - 1e-12):
        run = translate_dp_sgd_options({"sample_rate": rate, "noise_multiplier": 1.0, "epochs": 2.5})
        assert Fraction(rate) <= Fraction(run["batch_size"], run["n"]) <= Fraction(rate) + Fraction(1, 10**18)
        assert run["n_steps"] == math.ceil(2.5 / rate)


def test_calibration_finds_the_multiplier(capsys: pytest.CaptureFixture[str]) -> None:
    plan = calibrate(sample_rate=1.0, n_steps=20, epsilon=2.0, delta=DELTA)  # full batches: a closed form
    assert plan.guarantee.epsilon() <= 2.0
    words = ["--sample-rate", "1", "--epsilon", "2", "--delta", "1e-5", "-q"]
    assert run_command_line(["calibrate", "--epochs", "20", *words]) == 0
    multiplier = float(capsys.readouterr().out)
    assert multiplier == pytest.approx(plan.spec.noise_std * 1e18, rel=1e-9)
    assert account(noise_multiplier=multiplier, sample_rate=1.0, n_steps=20, delta=DELTA).epsilon() <= 2.0
    assert run_command_line(["calibrate", "--noise-multiplier", str(multiplier), *words]) == 0
    assert float(capsys.readouterr().out) == 20


WRONG = {
    "step_size plays no part": {"noise_multiplier": 1.0, "sample_rate": 0.1, "n_steps": 5, "step_size": 0.1},
    "lipschitz plays no part": {"noise_multiplier": 1.0, "sample_rate": 0.1, "n_steps": 5, "lipschitz": 1.0},
    "noise_multiplier is missing": {"sample_rate": 0.1, "n_steps": 5},
    "epochs or n_steps is missing": {"noise_multiplier": 1.0, "sample_rate": 0.1},
    "both given": {"noise_multiplier": 1.0, "sample_rate": 0.1, "n_steps": 5, "epochs": 1},
    "sample_rate is missing": {"noise_multiplier": 1.0, "epochs": 1},
    "at most 1": {"noise_multiplier": 1.0, "sample_rate": 1.1, "epochs": 1},
    "leave n and batch_size out": {"noise_multiplier": 1.0, "sample_rate": 0.1, "n": 10, "epochs": 1},
    "larger than n": {"noise_multiplier": 1.0, "n": 10, "batch_size": 11, "epochs": 1},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_refused_by_name(words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        account(delta=DELTA, **WRONG[words])


def test_events_become_parts() -> None:
    event = dp_event.ComposedDpEvent(
        [
            dp_event.NoOpDpEvent(),
            dp_event.GaussianDpEvent(2.0),
            dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(4.0), 3),
            steps(0.25, 1.5, 7),
            dp_event.ZCDpEvent(0.1),
        ]
    )
    parts = {type(part): part for part in guarantee_from_event(event).parts}
    assert parts[Gaussian].mu == pytest.approx(0.5)
    assert (parts[Pure].value, parts[Pure].count) == (pytest.approx(0.25), 3)
    sampled = parts[SampledGaussian]
    assert (sampled.rate, sampled.noise_multiplier, sampled.count) == (0.25, 1.5, 7)
    assert parts[Concentrated].rho == 0.1
    response = dp_event.RandomizedResponseDpEvent(noise_parameter=0.5, num_buckets=2)
    assert guarantee_from_event(response).epsilon(0.0) == pytest.approx(math.log(3), rel=1e-9)
    assert guarantee_from_event(dp_event.NoOpDpEvent()).epsilon(0.0) == 0.0


def test_an_imported_guarantee_says_that_nothing_was_checked() -> None:
    (condition,) = guarantee_from_event(dp_event.GaussianDpEvent(1.0)).conditions
    assert "another library ran it" in condition.text


def test_events_without_a_guarantee_are_refused() -> None:
    sampled = dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0))
    for event in (sampled, dp_event.UnsupportedDpEvent(), "event", dp_event.ZCDpEvent(0.1, 0.1)):
        with pytest.raises(InvalidParameter, match="no guarantee"):
            guarantee_from_event(event)
    with pytest.raises(InvalidParameter, match="add-remove"):
        guarantee_from_event(steps(0.1, 1.0, 2), adjacency="replace-one")
    with pytest.raises(NotPrivateError):
        guarantee_from_event(dp_event.NonPrivateDpEvent())
    with pytest.raises(InvalidParameter, match="noise_multiplier"):
        guarantee_from_event(dp_event.GaussianDpEvent(0.0))
