"""Which epsilon: simulated on public rows or a twin, refused where no epsilon will do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin import DPLinearSVC, DPRidge, choose_epsilon
from dplangevin.cli.main import run_command_line as command
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators import epsilon_choice
from dplangevin.estimators.epsilon_choice import CurvePoint, _epsilon_at_goal
from dplangevin.schema import Schema

SCHEMA = Schema.from_dict(
    {"version": 1, "columns": {"age": {"range": [0, 100]}, "gain": {"range": [0, 1000], "transform": "log1p"},
                               "job": {"categories": ["a", "b", "c"]}}}
)  # fmt: skip


@pytest.fixture(autouse=True)
def _few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epsilon_choice, "EPSILON_GRID", (0.01, 0.1, 1.0, 8.0))
    monkeypatch.setattr(epsilon_choice, "MAX_SIMULATED_ROWS", 700)
    monkeypatch.setattr(epsilon_choice, "TEST_ROWS", 1000)


def test_more_rows_need_less_epsilon_and_a_smaller_goal_more(tmp_path: Path) -> None:
    few = choose_epsilon("logistic", SCHEMA, n=5_000, excess=0.01, n_repeats=1)
    many = choose_epsilon("logistic", SCHEMA, n=20_000, excess=0.01, n_repeats=1)
    strict = choose_epsilon("logistic", SCHEMA, n=20_000, excess=0.003, n_repeats=1)
    assert many.epsilon < few.epsilon
    assert many.epsilon < strict.epsilon
    assert set(few.epsilon_by_strength) == {"weak", "strong"}
    assert few.rows_needed(few.epsilon) == 5_000
    assert few.rows_needed(few.epsilon / 2) > 5_000
    assert "sensitivity to the synthetic data" in str(few)
    few.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_public_rows_and_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    found = choose_epsilon(
        DPRidge(), n_features=2, n=10_000, excess=0.01, public_data=(X, X[:, 0]), n_repeats=2
    )
    assert found.epsilon_by_strength == {}
    assert 0.01 <= found.epsilon <= 8


def test_the_crossing_of_a_curve() -> None:
    curve = tuple(
        CurvePoint(epsilon=e, value=v, low=v, high=v) for e, v in ((0.1, 1.0), (1.0, 0.1), (8.0, 0.2))
    )
    assert _epsilon_at_goal(curve, 0.1, "excess") == pytest.approx(1.0)
    assert _epsilon_at_goal(curve, 1.5, "excess") == pytest.approx(0.1)
    assert _epsilon_at_goal(curve, 10**-0.5, "excess") == pytest.approx(10**-0.5)
    assert _epsilon_at_goal(curve, 0.05, "excess") == np.inf
    assert _epsilon_at_goal(curve, 1.0, "accuracy") == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one goal"), ({"accuracy": 0.8, "excess": 0.1}, "one goal"), ({"excess": -1.0}, "excess"),
        ({"excess": 0.1, "model": "tree"}, "model"), ({"excess": 0.1, "model": DPLinearSVC()}, "simulates"),
        ({"excess": 0.1, "n_features": 3}, "schema of the table"),
        ({"accuracy": 0.8, "model": "ridge"}, "for classifiers"),
        ({"accuracy": 0.78}, "which nothing public tells"), ({"log_loss": 0.4}, "which nothing public tells"),
        ({"excess": 0.1, "n": 0}, "n must"), ({"excess": 0.1, "n_repeats": 0}, "n_repeats"),
        ({"excess": 0.1, "schema": Schema.learn(a="number")}, "only the fit"),
    ],
)  # fmt: skip
def test_refusals(options: dict[str, Any], words: str) -> None:
    stated = {"model": "logistic", "schema": SCHEMA, "n": 5000, **options}
    with pytest.raises(InvalidParameter, match=words):
        choose_epsilon(stated.pop("model"), stated.pop("schema"), **stated)


def test_a_goal_that_no_epsilon_reaches_tells_the_best() -> None:
    rng = np.random.default_rng(0)
    public = rng.uniform(-1, 1, (600, 2)), rng.integers(0, 2, 600)
    with pytest.raises(DplangevinError, match=r"the best is 0\.\d+ \(without noise 0\."):
        choose_epsilon("logistic", n_features=2, n=2000, accuracy=0.999, public_data=public, n_repeats=1)


def test_the_interval_includes_the_error_of_the_public_rows() -> None:
    """Fewer public rows, wider intervals: at least 1.645 standard errors of the accuracy on a third of them."""
    rng, widths = np.random.default_rng(1), []
    for size in (300, 6000):
        X = rng.uniform(-1, 1, (size, 2))
        y = (X[:, 0] + rng.standard_normal(size) > 0).astype(int)
        found = choose_epsilon(
            "logistic", n_features=2, n=20_000, accuracy=0.55, public_data=(X, y), n_repeats=2
        )
        low, high = found.curve[-1].interval
        assert low <= found.curve[-1].value <= high
        assert high - low >= 2 * 1.6 * 0.4 / (size / 3) ** 0.5
        assert "error of the public rows" in str(found)
        index = [point.epsilon >= found.epsilon for point in found.curve].index(True)
        around = found.curve[max(index - 1, 0) : index + 1]
        for end in (0, 1):  # between the ends at the neighbouring points
            ends = [point.interval[end] for point in around]
            assert min(ends) <= found.interval[end] <= max(ends)
        widths.append(high - low)
    assert widths[0] > 2 * widths[1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SCHEMA.save(tmp_path / "s.json")
    line = [
        "choose-epsilon",
        "--schema",
        str(tmp_path / "s.json"),
        "--n",
        "9000",
        "--excess",
        "0.02",
        "--n-repeats",
        "1",
    ]
    assert command([*line, "--json"]) == 0
    assert 0.01 <= json.loads(capsys.readouterr().out)["epsilon"] <= 8
    assert command([*line, "--accuracy", "0.9"]) == 2
    assert "one goal" in capsys.readouterr().err
