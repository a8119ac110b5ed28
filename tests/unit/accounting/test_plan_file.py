"""Plan files come back equal, prove their guarantee again, and refuse what is altered, newer or of the wrong type."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dplangevin.accounting.plan import CertifiedSpec, Plan, load_plan, plan_from_plain, save_plan
from dplangevin.cli.main import run_command_line as command
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Ball, Box, DataBounds, Problem, Simplex, Softmax
from dplangevin.problem.constants import Constants

ASKED: dict[str, Any] = {
    "n": 500, "n_features": 3, "epsilon": 2.0, "delta": 1e-5, "adjacency": "replace-one", "data_norm": 1.0,
    "fit_intercept": True,
}  # fmt: skip


MECHANISMS = {
    "logistic": "noisy-gd", "huber": "noisy-sgd", "svc": "objective-perturbation", "quantile": "output-perturbation",
    "ridge": "sufficient-statistics",
}  # fmt: skip
SETS = {constraint.name: constraint for constraint in (Ball(1.0), Box((0.0,) * 12, 1.0), Simplex(1.0))}


@cache
def plan_named(name: str) -> CertifiedSpec:
    """A plan of a model (with its mechanism of the table), of constants alone, or without end on a bounded set."""
    if name in MECHANISMS:
        return plan_fit(model=name, mechanism=MECHANISMS[name], **ASKED).plan
    if name == "secure":
        return plan_fit(model="logistic", secure=True, **ASKED).plan
    if name == "constants":
        return CertifiedSpec(
            constants=Constants(n=100, lipschitz=1.0, smoothness=1.0, diameter=2.0),
            spec=NoisyGradientSpec(step_size=1.0, noise_std=(0.1, 0.2), n_steps=2),
            delta=1e-5,
        )
    problem = Problem(
        loss=Softmax(n_classes=4), bounds=DataBounds(data_norm=1.0, classes=4), n=100, n_features=2,
        constraint=SETS[name],
    )  # fmt: skip
    endless = NoisyGradientSpec(step_size=1.0, noise_std=0.5, n_steps=math.inf)
    return Plan(problem=problem, spec=endless, delta=1e-5)


@pytest.mark.parametrize("name", [*MECHANISMS, "secure", "constants", *SETS])
def test_plans_come_back_equal(name: str, tmp_path: Path) -> None:
    plan = plan_named(name)
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again == plan
    assert again.guarantee.epsilon() == plan.guarantee.epsilon()
    assert type(again.spec) is type(plan.spec)


def _plain(tmp_path: Path, name: str = "logistic") -> dict[str, Any]:
    save_plan(plan_named(name), tmp_path / "plan.json")
    found: dict[str, Any] = json.loads((tmp_path / "plan.json").read_text())
    return found


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("version",), 4, "upgrade dplangevin"),
        (("version",), 2, "dplangevin 0.1 wrote"),
        (("version",), True, "version"),
        (("format",), "other", "not a plan file"),
        (("spec", "type"), "Popen", "type is one of"),
        (("spec", "noise_std"), -1, "noise_std"),
        (("spec", "noise_std"), "x", "noise_std"),
        (("spec", "n_steps"), 10**30, "too large"),
        (("spec", "shell"), "rm", "unknown fields"),
        (("problem", "loss"), {"type": "Problem"}, "problem.loss must be"),
        (("problem", "n"), None, "n must be a number"),
        (("theorem",), 3, "theorem"),
        (("theorem",), "optimal-shift", "does not apply"),
        (("delta",), None, "delta"),
        (("guarantee", "epsilon"), 0.5, "it was altered"),
        (("guarantee", "adjacency"), "add-remove", "it was altered"),
        (("extra",), 1, "has unknown extra"),
    ],
)
def test_altered_files_are_refused(path: tuple[str, ...], value: Any, words: str, tmp_path: Path) -> None:
    plain = _plain(tmp_path)
    holder = plain
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value
    with pytest.raises(DplangevinError, match=words):
        plan_from_plain(plain)


def test_less_noise_is_noticed(tmp_path: Path) -> None:
    plain = _plain(tmp_path)
    plain["spec"]["noise_std"] /= 2
    with pytest.raises(InvalidParameter, match="it was altered"):
        plan_from_plain(plain)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": NaN}', "[" * 100_000, '{"a": 1, "a": 2}']
)
def test_what_is_no_plan_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidParameter):
        load_plan(tmp_path / "plan.json")


def test_the_command_line_writes_and_reports_plans(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert command(["plan", "--n", "500", "--n-features", "3", "--epsilon", "1", "--output", str(file)]) == 0
    assert load_plan(file).guarantee.epsilon() <= 1
    assert command(["report", str(file), str(tmp_path / "plan.html")]) == 0
    assert "privacy report" in (tmp_path / "plan.html").read_text()
    file.write_text(file.read_text().replace('"version": 3', '"version": 9'))
    assert command(["report", str(file), str(tmp_path / "plan.html")]) == 2
