"""Whatever is in a file or on the command line: an answer, or one of the library's own errors.

`make test` runs a few thousand cases; the slow test runs DPLANGEVIN_FUZZ of them (default 100,000) over all targets.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dplangevin.accounting import serialize
from dplangevin.accounting.plan import load_plan
from dplangevin.cli.main import run_command_line as command
from dplangevin.errors import DplangevinError
from dplangevin.estimators import model_file
from dplangevin.schema import Schema
from fuzz import _cases as cases

SOME = 250
MANY = int(os.environ.get("DPLANGEVIN_FUZZ", "100000"))
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    where = tmp_path_factory.mktemp("fuzz")
    (where / "schema.json").write_text(json.dumps(cases.SCHEMA))
    (where / "table.csv").write_text(cases.CSV)
    models, plans = cases.models(where), cases.plans(where)
    (where / "model.json").write_text(json.dumps(models[0]))
    (where / "plan.json").write_text(json.dumps(plans[0]))
    here = Path.cwd()
    os.chdir(where)  # so that random words, taken as paths, name files in here
    try:
        yield where
    finally:
        os.chdir(here)


def _model(folder: Path) -> tuple[Any, Callable[[str], Any]]:
    def load(text: str) -> Any:
        (folder / "fuzz.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        model = model_file.load_model(folder / "fuzz.json")
        if model.schema is None:
            return model.predict(np.zeros((2, model.n_features_in_)))
        return model

    return st.sampled_from(cases.models(folder)).flatmap(cases.mutated).map(cases.text_of), load


def _plan(folder: Path) -> tuple[Any, Callable[[str], Any]]:
    def load(text: str) -> Any:
        (folder / "fuzz.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        return load_plan(folder / "fuzz.json").guarantee.epsilon()

    return st.sampled_from(cases.plans(folder)).flatmap(cases.mutated).map(cases.text_of), load


def _guarantee(folder: Path) -> tuple[Any, Callable[[str], Any]]:
    def load(text: str) -> Any:
        return serialize.guarantee_from_json(text)

    return st.sampled_from(cases.guarantees(folder)).flatmap(cases.mutated).map(cases.text_of), load


def _schema(folder: Path) -> tuple[Any, Callable[[str], Any]]:
    def load(text: str) -> Any:
        (folder / "fuzz_schema.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        return Schema.load(folder / "fuzz_schema.json").row_norm

    return cases.mutated(cases.SCHEMA).map(cases.text_of), load


def _garbage(folder: Path) -> tuple[Any, Callable[[bytes], Any]]:
    """Bytes, and valid files with a few bytes exchanged, through every loader."""

    def load(content: bytes) -> Any:
        for name, loader in (
            ("g.json", model_file.load_model),
            ("g.json", load_plan),
            ("g.json", Schema.load),
            ("g.toml", Schema.load),
        ):
            (folder / name).write_bytes(content)
            with contextlib.suppress(DplangevinError):
                loader(folder / name)
        with contextlib.suppress(DplangevinError):
            serialize.guarantee_from_json(content.decode("utf-8", errors="replace"))

    @st.composite
    def damaged(draw: Any) -> bytes:
        text = draw(
            st.sampled_from([cases.TOML, json.dumps(cases.SCHEMA), (folder / "plan.json").read_text()])
        )
        content = bytearray(text.encode())
        for _ in range(draw(st.integers(1, 5))):
            content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
        return bytes(content)

    return st.one_of(st.binary(max_size=60), damaged()), load


def _command(arguments: list[str]) -> None:
    """The command line: exit codes 0, 2 and 3 only (1 would be an internal error), and never a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = command(arguments)
    assert code in (0, 2, 3), (arguments, code, err.getvalue()[-300:])
    assert "Traceback" not in err.getvalue()
    if code:
        assert err.getvalue().startswith("error: ")
        assert len(err.getvalue().strip().splitlines()) == 1


def _arguments(folder: Path) -> tuple[Any, Callable[[list[str]], Any]]:
    small = st.sampled_from(
        ["0", "1", "-1", "2", "0.5", "1e-5", "10", "inf", "nan", "1e300", "100", "x", "", "0.9"]
    )
    values = st.one_of(small, cases.words.filter(lambda w: "\x00" not in w), st.floats().map(str))
    known = {
        "account": ["--n", "--lipschitz", "--noise-std", "--step-size", "--n-steps", "--delta", "--epsilon",
                    "--smoothness", "--strong-convexity", "--diameter", "--sampling", "--batch-size",
                    "--release", "--adjacency"],
        "plan": ["--n", "--n-features", "--epsilon", "--delta", "--model", "--data-norm", "--adjacency", "--mechanism",
                 "--radius", "--alpha"],
        "fit": ["--target", "--epsilon", "--delta", "--model", "--schema", "--data-norm", "--target-bounds", "--radius",
                "--mechanism", "--random-state"],
        "predict": ["--output"],
        "ledger": ["--ledger", "--dataset", "--epsilon", "--delta"],
    }  # fmt: skip
    valid = {
        "account": [
            "--n",
            "100",
            "--lipschitz",
            "1",
            "--noise-std",
            "0.5",
            "--step-size",
            "0.5",
            "--n-steps",
            "5",
        ],
        "plan": ["--n", "100", "--n-features", "2", "--epsilon", "1"],
        "fit": [
            "table.csv",
            "--target",
            "income",
            "--schema",
            "schema.json",
            "--epsilon",
            "1",
            "--output",
            "o.json",
        ],
        "predict": ["model.json", "table.csv"],
        "ledger": ["init", "--ledger", "sqlite:///f.db", "--dataset", "d", "--epsilon", "1", "--delta", "0"],
    }

    @st.composite
    def lines(draw: Any) -> list[str]:
        name = draw(st.sampled_from(sorted(known)))
        arguments = [name, *valid[name]]
        for _ in range(draw(st.integers(0, 3))):
            if draw(st.booleans()):
                arguments += [draw(st.sampled_from(known[name])), draw(values)]
            else:
                arguments[draw(st.integers(1, len(arguments) - 1))] = draw(values)
        return arguments

    return lines(), _command


def _tables(folder: Path) -> tuple[Any, Callable[[str], Any]]:
    def fit(content: bytes) -> None:
        (folder / "fuzz.csv").write_bytes(content)
        _command(
            [
                "fit",
                "fuzz.csv",
                "--target",
                "income",
                "--schema",
                "schema.json",
                "--epsilon",
                "1",
                "--output",
                "o.json",
            ]
        )
        _command(["predict", "model.json", "fuzz.csv"])

    cells = st.one_of(
        cases.numbers.map(str), cases.words, st.sampled_from(["a", "<=50K", ">50K", "", '"', "\n", ",", "é"])
    )

    @st.composite
    def contents(draw: Any) -> bytes:
        rows = [line.split(",") for line in cases.CSV.splitlines()]
        for _ in range(draw(st.integers(1, 4))):
            row = draw(st.integers(0, len(rows) - 1))
            if rows[row]:
                rows[row][draw(st.integers(0, len(rows[row]) - 1))] = draw(cells)
            if draw(st.integers(0, 4)) == 0:
                rows[row] = rows[row][:2]
        text = "\n".join(",".join(row) for row in rows)
        return text.encode("utf-8", errors="surrogatepass")

    return st.one_of(contents(), contents(), st.binary(max_size=40)), fit


TARGETS: dict[str, tuple[Callable[[Path], tuple[Any, Callable[[Any], Any]]], float]] = {
    "model files": (_model, 0.3),
    "plan files": (_plan, 0.15),
    "guarantees": (_guarantee, 0.15),
    "schemas": (_schema, 0.25),
    "garbage": (_garbage, 0.1),
    "arguments": (_arguments, 0.03),
    "tables": (_tables, 0.02),
}
SHARES = {"arguments": 0.13, "tables": 0.13}  # dearer, so fewer in `make test`


def _fuzz(target: str, folder: Path, examples: int) -> int:
    strategy, act = TARGETS[target][0](folder)
    seen = 0

    @settings(
        max_examples=examples, deadline=20_000, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def attempt(case: Any) -> None:
        nonlocal seen
        seen += 1
        with contextlib.suppress(DplangevinError):
            act(case)

    attempt()
    return seen


@pytest.mark.parametrize("target", TARGETS)
def test_only_our_own_errors(target: str, folder: Path) -> None:
    assert _fuzz(target, folder, int(SOME * SHARES.get(target, 1.0))) >= 30


SHAKEN: dict[str, Callable[[Path], list[Any]]] = {
    "model files": cases.models,
    "plan files": cases.plans,
    "guarantees": cases.guarantees,
    "schemas": lambda folder: [cases.SCHEMA],
}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_only_our_own_errors_in_very_many_cases(target: str, folder: Path) -> None:
    wanted = int(MANY * TARGETS[target][1])
    if target not in SHAKEN:
        assert _fuzz(target, folder, wanted) >= 0.9 * wanted
        return
    act, plains, rng = TARGETS[target][0](folder)[1], SHAKEN[target](folder), np.random.default_rng(1)
    for i in range(wanted):
        text = cases.text_of(cases.shaken(plains[i % len(plains)], rng))
        try:
            act(text)
        except DplangevinError:
            continue
        except Exception as error:
            raise AssertionError(f"case {i}: {type(error).__name__}: {text[:2000]}") from error


def test_the_fuzzer_sees_a_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise KeyError("a crash")

    monkeypatch.setattr(model_file, "load_model", broken)
    with pytest.raises(KeyError, match="a crash"):
        _fuzz("model files", folder, 5)
