"""account and calibrate for mechanisms without steps, for other targets, and errors that name the option."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from dplangevin.accounting.conversions import gdp_epsilon, gdp_mu
from dplangevin.accounting.plan import CertifiedSpec, certify_plan
from dplangevin.cli.main import run_command_line
from dplangevin.errors import CalibrationFailed, DplangevinError, InvalidParameter, NotPrivateError
from dplangevin.mechanisms.account import account, calibrate
from dplangevin.mechanisms.perturbation.spec import calibrate_objective_perturbation
from dplangevin.problem.constants import Constants

RIDGE: dict[str, Any] = {"n": 10_000, "lipschitz": 1.0, "smoothness": 0.26, "strong_convexity": 0.01}
RUNS: dict[str, dict[str, Any]] = {
    "objective-perturbation": {**RIDGE, "dimension": 5},
    "output-perturbation": RIDGE,
    "exponential": {"n": 30_000, "lipschitz": 1.0, "diameter": 2.0},
    "gibbs": RIDGE,
    "rashomon": {**RIDGE, "diameter": 2.0, "dimension": 20, "n_models": 5, "threshold": 0.05},
    "counting": {"answers": 10},
}
KNOBS = {
    "counting": "sigma",
    "objective-perturbation": "density_scale",
    "output-perturbation": "density_scale",
    "exponential": "inverse_temperature",
    "gibbs": "inverse_temperature",
    "rashomon": "inverse_temperature",
}


def found_value(plan: CertifiedSpec) -> float:
    names = ("sigma", "density_scale", "noise_std", "inverse_temperature")
    return next(float(getattr(plan.spec, name)) for name in names if hasattr(plan.spec, name))


@pytest.mark.parametrize("mechanism", RUNS)
def test_calibrate_meets_the_target_barely_and_account_agrees(mechanism: str) -> None:
    plan = calibrate(mechanism=mechanism, **RUNS[mechanism], epsilon=1.0, delta=1e-6)
    assert 0.998 < plan.guarantee.epsilon() <= 1.0
    knob = KNOBS[mechanism]
    again = account(mechanism=mechanism, **RUNS[mechanism], **{knob: found_value(plan)}, delta=1e-6)
    assert again.epsilon() == plan.guarantee.epsilon()
    assert account(
        mechanism=mechanism, **RUNS[mechanism], **{knob: found_value(plan)}, epsilon=1.0
    ).at_delta <= 1e-6 * (1 + 1e-6)  # type: ignore[operator]


def test_by_hand() -> None:
    assert account(
        mechanism="exponential", **RUNS["exponential"], inverse_temperature=7500.0, delta=0
    ).epsilon() == (
        pytest.approx(1.0, rel=1e-8)
    )  # beta 2 L D / n, times 1 because F moves by L D / n either way: 7500 * 2 * 2 / 30000
    counted = account(mechanism="counting", answers=8, changed=2, sigma=4.0, delta=1e-6)
    assert counted.mu == pytest.approx(math.sqrt(2 * 2) / 4, rel=1e-12)  # N(0, sigma^2 / 2) on each answer
    assert counted.epsilon() == pytest.approx(gdp_epsilon(0.5, 1e-6), rel=1e-9)
    laplace = account(mechanism="counting", answers=8, changed=2, p=1, sigma=4.0, delta=0)
    assert laplace.epsilon() == pytest.approx(0.5, rel=1e-12)
    gibbs = account(mechanism="gibbs", **RIDGE, inverse_temperature=7500.0, delta=1e-6)
    assert gibbs.mu == pytest.approx(2 / 10_000 * math.sqrt(7500 / 0.01), rel=1e-6)


def test_account_agrees_with_the_theorem() -> None:
    constants = Constants(**RIDGE, dimension=5, hessian_rank=1)
    spec = calibrate_objective_perturbation(constants, epsilon=1.0, delta=1e-6)
    direct = certify_plan(constants, spec, delta=1e-6).epsilon()
    asked = account(
        mechanism="objective-perturbation", **RIDGE, dimension=5, density_scale=spec.density_scale,
        tolerance=spec.tolerance, release_density_scale=spec.release_density_scale, delta=1e-6,
    )  # fmt: skip
    assert asked.epsilon() == direct


def test_a_pure_guarantee_of_gaussian_noise_is_refused() -> None:
    with pytest.raises(NotPrivateError):
        account(
            mechanism="objective-perturbation", **RUNS["objective-perturbation"], density_scale=5.0, delta=0
        )
    with pytest.raises(DplangevinError):
        account(mechanism="counting", answers=3, sigma=5.0, delta=0)


STEPS: dict[str, Any] = {**RIDGE, "step_size": 1.0, "n_steps": math.inf}


def test_other_targets_of_a_gradient_run() -> None:
    by_mu = calibrate(**STEPS, mu=gdp_mu(1.0, 1e-6))
    assert found_value(by_mu) == pytest.approx(0.01191928594, rel=1e-6)
    assert by_mu.guarantee.at_delta == 1e-6
    assert by_mu.guarantee.mu <= gdp_mu(1.0, 1e-6)  # type: ignore[operator]
    by_zcdp = calibrate(**STEPS, zcdp=0.05)
    assert 0.05 * (1 - 1e-8) <= by_zcdp.guarantee.zcdp() <= 0.05
    by_rdp = calibrate(**STEPS, rdp=(8, 0.4))
    assert found_value(by_rdp) == pytest.approx(found_value(by_zcdp), rel=1e-8)  # 0.4 = 8 * 0.05
    assert 0.4 * (1 - 1e-8) <= float(by_rdp.guarantee.rdp(8)) <= 0.4
    most = calibrate(**{**STEPS, "n_steps": None}, noise_std=0.01, zcdp=0.02)
    assert most.guarantee.zcdp() <= 0.02
    sampled = calibrate(
        n=1000, lipschitz=1.0, step_size=0.1, batch_size=50, sampling="poisson", adjacency="add-remove",
        n_steps=100, rdp=(8, 0.5),
    )  # fmt: skip
    assert 0.49 <= float(sampled.guarantee.rdp(8)) <= 0.5


def test_bad_targets_are_refused() -> None:
    for bad, words in (
        ({}, "exactly one target"),
        ({"mu": 1.0, "zcdp": 1.0}, "exactly one target"),
        ({"epsilon": 1.0}, "delta is missing"),
        ({"rdp": 3.0}, "pair"),
        ({"rdp": (1.0, 3.0)}, "above 1"),
        ({"mu": -1.0}, "mu must be positive"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            calibrate(**STEPS, **bad)  # type: ignore[arg-type]
    with pytest.raises(CalibrationFailed, match=r"mu = 0\.3"):
        calibrate(mechanism="exponential", **RUNS["exponential"], mu=0.3)
    with pytest.raises(InvalidParameter, match="leave it out"):
        calibrate(mechanism="gibbs", **RIDGE, inverse_temperature=1.0, epsilon=1.0, delta=1e-6)


RUN: dict[str, Any] = {**RIDGE, "step_size": 1.0, "noise_std": 0.02, "n_steps": 100, "delta": 1e-6}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stepsize": 1.0}, "stepsize is not an option; did you mean step_size?"),
        ({"nosie_std": 1.0}, "did you mean noise_std?"),
        ({"zzz": 1.0}, "the options are"),
        ({"n": None}, "n is missing"),
        ({"n": None, "lipschitz": None}, "n and lipschitz are missing"),
        ({"n_steps": -3}, "n_steps must be a whole number"),
        ({"noise_std": (1.0, 2.0)}, "but n_steps is 100"),
        ({"step_size": "1/x"}, "step_size = '1/x'"),
        ({"mechanism": "noisy"}, "mechanism must be one of"),
        ({"mechanism": "gibbs", "noise_std": None}, "inverse_temperature is missing"),
        ({"mechanism": "counting", "answers": 3}, "is not an option of mechanism='counting'"),
        ({"mu": 0.5}, "mu is a target of calibrate"),
        ({"rdp": (2, 0.5)}, "rdp is a target of calibrate"),
    ],
)
def test_errors_name_the_option(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter) as error:
        account(**(RUN | changes))
    assert words in str(error.value)
    assert "()" not in str(error.value)
    assert not re.search(r"(?<!n_)\bsteps (is|must)", str(error.value))  # by the option's own name


def test_formulas_are_the_sequences_they_stand_for() -> None:
    formula = account(**(RUN | {"step_size": "0.5/sqrt(t)", "noise_std": "0.02*sqrt(t)"}))
    numbers = account(
        **(
            RUN
            | {
                "step_size": [0.5 / math.sqrt(t) for t in range(1, 101)],
                "noise_std": [0.02 * math.sqrt(t) for t in range(1, 101)],
            }
        )
    )
    assert formula.epsilon() == pytest.approx(numbers.epsilon(), rel=1e-12)


def test_the_largest_norm_has_its_own_name() -> None:
    with pytest.raises(InvalidParameter, match="mechanism='largest-norm'"):
        account(mechanism="counting", answers=3, sigma=1.0, p=math.inf, delta=0.0)
    assert account(mechanism="largest-norm", answers=3, scale=4.0, delta=0.0).epsilon() == 0.25


# --- the command line ---------------------------------------------------------------------------------------------


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run_command_line([*words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


LINE = ("--n", "10000", "--lipschitz", "1", "--smoothness", "0.26", "--strong-convexity", "0.01")


def test_commands_take_formulas_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formula = ask(
        capsys, "account", *LINE, "--step-size", "0.5/sqrt(t)", "--noise-std", "0.02", "--n-steps", "40",
        "--delta", "1e-6", "--order", "2,8",
    )  # fmt: skip
    path = tmp_path / "steps.txt"
    path.write_text("\n".join(repr(0.5 / math.sqrt(t)) for t in range(1, 41)))
    file = ask(
        capsys,
        "account",
        *LINE,
        "--step-size",
        str(path),
        "--noise-std",
        "0.02",
        "--n-steps",
        "40",
        "--delta",
        "1e-6",
    )
    assert formula["epsilon"] == pytest.approx(file["epsilon"], rel=1e-12)
    assert [row["order"] for row in formula["rdp"]] == [2, 8]
    assert formula["rdp"][1]["divergence"] == pytest.approx(4 * formula["rdp"][0]["divergence"], rel=1e-9)
    assert formula["origin"] == "published"
    path.write_text("0.5 half")
    code = run_command_line(
        ["account", *LINE, "--step-size", str(path), "--noise-std", "1", "--n-steps", "2", "--delta", "1e-6"]
    )
    assert code == 2
    assert "one per step" in capsys.readouterr().err
    least = ask(
        capsys,
        "calibrate",
        *LINE,
        "--step-size",
        "0.5/sqrt(t)",
        "--n-steps",
        "40",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    )
    assert 0 < least["noise_std"] < 0.02


def test_commands_take_other_mechanisms_and_targets(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = ask(
        capsys, "account", "--mechanism", "gibbs", *LINE, "--inverse-temperature", "7500", "--delta", "1e-6"
    )
    assert drawn["theorem"] == "strongly-convex-gibbs"
    counts = ask(capsys, "calibrate", "--mechanism", "counting", "--answers", "10", "--mu", "0.5")
    assert counts["sigma"] == pytest.approx(math.sqrt(20) / 0.5, rel=1e-8)
    line = ask(capsys, "calibrate", *LINE, "--step-size", "1", "--n-steps", "inf", "--rdp", "8,0.4")
    assert line["epsilon"] == pytest.approx(gdp_epsilon(math.sqrt(0.1), 1e-6), rel=1e-6)
    assert (
        run_command_line(
            ["account", "--mechanism", "gibbs", *LINE, "--inverse-temperature", "7500", "--delta", "1e-6"]
        )
        == 0
    )
    assert "strongly-convex-gibbs" in capsys.readouterr().out
    assert (
        run_command_line(
            ["calibrate", *LINE, "--step-size", "0.5/sqrt(t)", "--n-steps", "40", "--zcdp", "0.1"]
        )
        == 0
    )
    assert "noise std" in capsys.readouterr().out
    assert run_command_line(["account", "--mechanism", "gibbs", *LINE, "--delta", "1e-6"]) == 2
    assert "--inverse-temperature is missing" in capsys.readouterr().err


def test_underdamped_langevin_is_asked_about_like_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """mu = beta (2 L / n) sqrt(T eta u / (2 gamma)) = 100 (2 / 10000) sqrt(50 x 0.1 x 3 / 8), by hand."""
    line = (
        "--n",
        "10000",
        "--lipschitz",
        "1",
        "--mechanism",
        "underdamped",
        "--step-size",
        "0.1",
        "--n-steps",
        "50",
    )
    more = (*line, "--friction", "4", "--inverse-mass", "3")
    found = ask(capsys, "account", *more, "--inverse-temperature", "100", "--delta", "1e-6")
    assert found["mu"] == pytest.approx(0.02 * math.sqrt(1.875), rel=1e-8)
    assert found["origin"] == "proved here"
    met = ask(capsys, "calibrate", *more, "--mu", "0.05")
    assert met["inverse_temperature"] == pytest.approx(100 * 0.05 / (0.02 * math.sqrt(1.875)), rel=1e-4)
    assert run_command_line(["calibrate", *line[:-2], "--mu", "0.05"]) == 2
    assert "--n-steps is missing for --mechanism 'underdamped'" in capsys.readouterr().err
    assert (
        run_command_line(
            ["account", *line, "--inverse-temperature", "1", "--answers", "3", "--delta", "1e-6"]
        )
        == 2
    )
    assert "the options are --adjacency," in capsys.readouterr().err
