"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

import dplangevin
from dplangevin.cli.main import run_command_line

RIDGE = [
    "--n", "10000", "--lipschitz", "1", "--smoothness", "0.26", "--strong-convexity", "0.01", "--step-size", "1",
    "--delta", "1e-6",
]  # fmt: skip
NOISE = ["--noise-std", "0.012"]
ACCOUNT = ["account", *RIDGE, *NOISE]
KEYS = {
    "epsilon", "delta", "mu", "kind", "theorem", "reference", "origin", "proofs", "composition_epsilon",
    "lower_bound_epsilon",
    "adjacency", "release", "conditions", "assumptions", "arithmetic", "extra_delta",
}  # fmt: skip

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run the command line; return exit code, stdout and stderr."""

    def _ask(*arguments: str) -> tuple[int, str, str]:
        code = run_command_line(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return _ask


def strict(text: str) -> dict[str, object]:
    """Parse JSON, refusing the Infinity and NaN that JSON does not have."""

    def refuse(word: str) -> float:
        raise ValueError(word)

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def test_json_agrees_with_the_library(ask: Ask) -> None:
    code, out, err = ask(*ACCOUNT, "--n-steps", "1000", "--json")
    found = strict(out)
    guarantee = dplangevin.account(
        n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
        noise_std=0.012, n_steps=1000, delta=1e-6,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert set(found) == KEYS
    assert found["epsilon"] == guarantee.epsilon()
    assert found["mu"] == guarantee.mu
    assert guarantee.composition is not None
    assert found["composition_epsilon"] == guarantee.composition.epsilon(1e-6)
    assert found["theorem"] == "optimal-shift"
    assert found["lower_bound_epsilon"] == pytest.approx(guarantee.epsilon(), rel=1e-6)
    assert found["lower_bound_epsilon"] <= guarantee.epsilon()  # type: ignore[operator]


def test_infinite_numbers_are_null_with_a_flag(ask: Ask) -> None:
    code, out, _ = ask(*ACCOUNT, "--n-steps", "inf", "--json")
    found = strict(out)
    assert code == 0
    assert math.isfinite(found["epsilon"])  # type: ignore[arg-type]
    assert found["composition_epsilon"] is None
    assert found["composition_epsilon_infinite"] is True


def test_quiet_prints_the_number_alone(ask: Ask) -> None:
    _, full, _ = ask(*ACCOUNT, "--n-steps", "1000", "--json")
    code, out, _ = ask(*ACCOUNT, "--n-steps", "1000", "-q")
    assert code == 0
    assert float(out) == strict(full)["epsilon"]


def test_the_table_names_everything_and_says_where_it_stops(ask: Ask) -> None:
    code, out, err = ask(*ACCOUNT, "--n-steps", "1e6")
    assert (code, err) == (0, "")
    for word in ("optimal-shift", "replace-one", "last-iterate", "plain composition", "lower bound"):
        assert word in out
    assert "more steps cost nothing: epsilon stays at" in out
    assert "Holds when" in out


def test_a_short_run_reports_that_its_cost_still_grows(ask: Ask) -> None:
    assert "still grows" in ask(*ACCOUNT, "--n-steps", "10")[1]


def test_composition_comes_with_the_reasons(ask: Ask) -> None:
    code, out, _ = ask(
        "account", "--n", "100", "--lipschitz", "1", "--step-size", "1", "--noise-std", "1",
        "--n-steps", "10", "--delta", "1e-5",
    )  # fmt: skip
    assert code == 0
    assert "keep costing privacy" in out
    assert "Why no sharper theorem applies" in out
    assert "smoothness" in out.split("Why no sharper")[1]


def test_epsilon_asks_for_delta(ask: Ask) -> None:
    at_epsilon = ["account", *RIDGE[:-2], *NOISE, "--n-steps", "1000", "--epsilon", "1"]
    code, out, _ = ask(*at_epsilon, "--json")
    found = strict(out)
    assert code == 0
    assert found["epsilon"] == 1.0
    assert 1e-8 < found["delta"] < 1e-6  # type: ignore[operator]
    assert float(ask(*at_epsilon, "-q")[1]) == found["delta"]


def test_calibrate_finds_the_noise_and_certifies_it(ask: Ask) -> None:
    code, out, _ = ask("calibrate", *RIDGE, "--n-steps", "inf", "--epsilon", "1", "--json")
    found = strict(out)
    assert code == 0
    assert set(found) >= KEYS | {"noise_std", "steps"}
    assert found["noise_std"] == pytest.approx(0.01191928594, rel=1e-6)
    again = ask("account", *RIDGE, "--noise-std", repr(found["noise_std"]), "--n-steps", "inf", "-q")[1]
    assert float(again) <= 1.0


def test_calibrate_for_a_person_compares_with_composition(ask: Ask) -> None:
    code, out, _ = ask("calibrate", *RIDGE, "--n-steps", "1000", "--epsilon", "1")
    assert code == 0
    assert "Plain composition would need noise 0.02672, 2.2 times as much." in out


def test_calibrate_finds_the_most_steps(ask: Ask) -> None:
    code, out, _ = ask("calibrate", *RIDGE, "--noise-std", "0.01", "--epsilon", "1", "-q")
    steps = int(out)
    assert code == 0
    assert float(ask("account", *RIDGE, "--noise-std", "0.01", "--n-steps", str(steps), "-q")[1]) <= 1
    assert float(ask("account", *RIDGE, "--noise-std", "0.01", "--n-steps", str(steps + 1), "-q")[1]) > 1


def test_checkpoints(ask: Ask) -> None:
    arguments = [*ACCOUNT, "--n-steps", "100", "--release", "checkpoints", "--checkpoints", "50,100"]
    code, out, _ = ask(*arguments, "--json")
    assert code == 0
    assert strict(out)["release"] == "checkpoints"


@pytest.mark.parametrize("command", [[], ["--help"], ["account", "--help"], ["calibrate", "--help"]])
def test_help(command: list[str], ask: Ask) -> None:
    code, out, err = ask(*command)
    assert (code, err) == (0, "")
    assert "Usage" in out


def test_version(ask: Ask) -> None:
    assert ask("--version") == (0, f"dplangevin {dplangevin.__version__}\n", "")


BASE = {
    "--n": "1000", "--lipschitz": "1", "--smoothness": "1", "--strong-convexity": "0.1", "--step-size": "0.5",
    "--noise-std": "0.1", "--n-steps": "10", "--delta": "1e-5",
}  # fmt: skip
BAD = {
    "steps is a word": ({"--n-steps": "foo"}, 2, "--n-steps"),
    "steps is a fraction": ({"--n-steps": "2.5"}, 2, "steps"),
    "steps is negative": ({"--n-steps": "-1"}, 2, "steps"),
    "noise is zero": ({"--noise-std": "0"}, 2, "--noise-std"),
    "noise is negative": ({"--noise-std": "-1"}, 2, "--noise-std"),
    "noise is NaN": ({"--noise-std": "nan"}, 2, "--noise-std"),
    "noise is infinite": ({"--noise-std": "inf"}, 2, "--noise-std"),
    "step size is zero": ({"--step-size": "0"}, 2, "--step-size"),
    "lipschitz is infinite": ({"--lipschitz": "inf"}, 2, "lipschitz"),
    "n is infinite": ({"--n": "1e999"}, 2, "n must"),
    "delta is zero": ({"--delta": "0"}, 2, "delta"),
    "delta is one": ({"--delta": "1"}, 2, "delta"),
    "no delta": ({"--delta": None}, 2, "delta"),
    "delta and epsilon": ({"--epsilon": "1"}, 2, "exactly one of delta and epsilon"),
    "no n": ({"--n": None}, 2, "n is missing"),
    "unknown option": ({"--nosie-scale": "1"}, 2, "--nosie-scale"),
    "unknown sampling": ({"--sampling": "random", "--batch-size": "10"}, 2, "sampling"),
    "unknown theorem": ({"--theorem": "wishful"}, 2, "wishful"),
    "unknown adjacency": ({"--adjacency": "both"}, 2, "adjacency"),
    "no batch size": ({"--sampling": "cyclic"}, 2, "batch_size"),
    "batch larger than n": ({"--sampling": "cyclic", "--batch-size": "2000"}, 2, "batch_size"),
    "mechanism without batches": ({"--mechanism": "noisy-gd", "--sampling": "cyclic", "--batch-size": "10"}, 2, "fit"),
    "hidden poisson replace-one": (
        {"--sampling": "poisson", "--batch-size": "10", "--theorem": "hidden-state-sgd"}, 3, "add-remove",
    ),
    "without replacement add-remove": (
        {"--sampling": "without-replacement", "--batch-size": "10", "--adjacency": "add-remove"}, 2, "replace-one",
    ),
    "checkpoints are words": ({"--release": "checkpoints", "--checkpoints": "a,b"}, 2, "checkpoints"),
    "checkpoints unannounced": ({"--checkpoints": "5"}, 2, "checkpoints"),
    "plot format": ({"--plot": "file.gif"}, 2, ".png, .svg or .html"),
    "plot directory": ({"--plot": "missing/file.png"}, 2, "does not exist"),
    "pinned theorem refused": ({"--theorem": "optimal-shift", "--momentum": ""}, 3, "momentum"),
    "nothing holds for ever": ({"--n-steps": "inf", "--strong-convexity": "0"}, 3, "no theorem covers this run"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "expected", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(
    changes: dict[str, str | None], expected: int, words: str, ask: Ask
) -> None:
    options = {**BASE, **changes}
    arguments = [
        word for name, value in options.items() if value is not None for word in (name, value) if word
    ]
    code, out, err = ask("account", *arguments)
    assert (code, out) == (expected, "")
    assert err.startswith("error: ")
    first, *reasons = err.splitlines()  # one sentence, and one for each theorem that was asked
    assert words in first
    assert all(line.startswith(" - ") for line in reasons)
    assert not reasons or first.endswith(":")


def test_a_guarantee_that_cannot_be_met_is_refused(ask: Ask) -> None:
    arguments = ["calibrate", *RIDGE, "--noise-std", "1e-9", "--epsilon", "0.01"]
    code, out, err = ask(*arguments)
    assert (code, out) == (3, "")
    assert "--noise-std" in err


def test_an_unexpected_error_is_not_a_traceback(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("by the SECRET of a record")

    monkeypatch.setattr("dplangevin.report.answer.account", broken)
    code, _, err = ask(*ACCOUNT, "--n-steps", "10")
    assert code == 1
    assert err.startswith("error: internal error, please report it: ZeroDivisionError; ")
    assert "SECRET" not in err


def test_demo_shows_growth_and_the_plateau(ask: Ask) -> None:
    code, out, err = ask("demo")
    assert (code, err) == (0, "")
    assert out.count("more steps cost nothing: epsilon stays at") == 2
    assert "dplangevin account" in out
