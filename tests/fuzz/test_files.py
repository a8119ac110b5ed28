"""One field changed in a model, plan or schema file: one of the library's errors, or the same object as before.

A schema has no digest, since people write it: a changed one says something else, and comes back as it says it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin import report
from dplangevin.accounting.plan import load_plan, plan_to_plain
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators import model_file
from dplangevin.ledger import read_release_file
from dplangevin.schema import Schema
from fuzz import _cases as cases
from fuzz._states import changed

SOME = 250
MANY = int(os.environ.get("DPLANGEVIN_FUZZ", "100000"))
pytestmark = pytest.mark.filterwarnings("ignore")
_NOT_SAID = ("created", "library", "digest")


def _model(path: Path) -> dict[str, Any]:
    found = model_file.model_to_plain(model_file.load_model(path))
    words = found["guarantee"]["conditions"]
    # that the digest is gone is said
    found["guarantee"]["conditions"] = [
        word for word in words if word != model_file.UNSEALED_CONDITION.to_dict()
    ]
    return {name: value for name, value in found.items() if name not in _NOT_SAID}


def _plan(path: Path) -> dict[str, Any]:
    found = plan_to_plain(load_plan(path))
    return {name: value for name, value in found.items() if name not in _NOT_SAID}


def _schema(path: Path) -> dict[str, Any]:
    found = Schema.load(path).to_dict()
    assert Schema.from_dict(json.loads(json.dumps(found))).to_dict() == found
    return found


FILES: dict[str, tuple[Callable[[Path], list[Any]], Callable[[Path], dict[str, Any]], float]] = {
    "model": (cases.models, _model, 0.25),
    "plan": (cases.plans, _plan, 0.2),
    "schema": (lambda folder: [cases.SCHEMA, cases.BENT], _schema, 0.1),
}


def _shake(kind: str, folder: Path, count: int, seed: int) -> None:
    make, load, _ = FILES[kind]
    plains, path, rng = make(folder), folder / "changed.json", np.random.default_rng(seed)
    expected = []
    for plain in plains:
        path.write_text(json.dumps(plain))
        expected.append(_plainly(load(path)))
    refused = 0
    for i in range(count):
        text = json.dumps(changed(plains[i % len(plains)], rng))
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            found = load(path)
        except InvalidParameter:
            refused += 1
            continue
        except DplangevinError:  # the theorem of a plan may refuse
            assert kind == "plan", text[:2000]
            refused += 1
            continue
        except Exception as error:
            raise AssertionError(f"case {i}: {type(error).__name__}: {text[:2000]}") from error
        assert kind == "schema" or _plainly(found) == expected[i % len(plains)], text[:2000]
    assert refused > count / 2


def _plainly(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("kind", FILES)
def test_refused_or_equal(kind: str, tmp_path: Path) -> None:
    _shake(kind, tmp_path, SOME, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_very_many_are_refused_or_equal(kind: str, tmp_path: Path) -> None:
    _shake(kind, tmp_path, int(MANY * FILES[kind][2]), 2)


def _show_all(path: Path, folder: Path) -> None:
    """Whatever loads can be shown, used and written again, or is refused in one sentence."""
    model: Any = model_file.load_model(path)
    rows: Any = np.zeros((2, model.n_features_in_))
    if model.schema is not None:
        rows = {name: [0, 1] for name in model.schema.names}
        rows = pytest.importorskip("pandas").DataFrame(rows)
    uses: list[Callable[[], object]] = [
        lambda: str(model.privacy_),
        lambda: report.write_report(model, folder / "shown.md"),
        lambda: report.write_report(model, folder / "shown.json"),
        model.model_card,
        lambda: read_release_file(path),
        lambda: model.predict(rows),
        lambda: model_file.model_to_json(model),
    ]
    for use in uses:
        with suppress(DplangevinError):
            use()


@pytest.mark.parametrize("count", [40, pytest.param(MANY // 20, marks=pytest.mark.slow)])
def test_what_loads_can_be_shown(count: int, tmp_path: Path) -> None:
    """The fault: at_delta = 1e-320 and max_rows_per_person = "x" loaded, and their reports raised raw errors."""
    plains, path, rng = cases.models(tmp_path), tmp_path / "changed.json", np.random.default_rng(3)
    known = [("guarantee", "at_delta", 1e-320), ("parameters", "max_rows_per_person", "x")]
    known += [("parameters", "data_norm", []), ("parameters", "target_bounds", [1])]
    for i in range(count + len(known)):
        plain = json.loads(json.dumps(plains[i % len(plains)]))
        plain.pop("digest")
        if i < len(known):
            where, name, value = known[i]
            plain[where][name] = value
        else:
            plain = changed(plain, rng)
        path.write_text(json.dumps(plain), encoding="utf-8", errors="surrogatepass")
        try:
            _show_all(path, tmp_path)
        except DplangevinError:
            continue
        except Exception as error:
            raise AssertionError(f"case {i}: {type(error).__name__}: {json.dumps(plain)[:2000]}") from error


def test_files_without_the_optional_fields_load_and_plans_of_older_formats_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.json"
    for plain in cases.models(tmp_path):
        later = ("digest", "features", "uncertainty", "ledger_head")
        path.write_text(json.dumps({name: value for name, value in plain.items() if name not in later}))
        assert model_file.load_model(path).predict is not None
    for plain in cases.plans(tmp_path):
        undigested = {name: value for name, value in plain.items() if name != "digest"}
        path.write_text(json.dumps(undigested))
        assert load_plan(path).guarantee.epsilon() > 0
        for version in (1, 2):
            path.write_text(json.dumps(undigested | {"version": version}))
            with pytest.raises(InvalidParameter, match="make it again with this version"):
                load_plan(path)


BAD = {
    "a name twice": '{"version": 1, "version": 1}',
    "NaN": '{"version": NaN}',
    "infinity": '{"version": -Infinity}',
    "a huge float": '{"version": 1e999}',
    "a huge whole number": '{"version": ' + "9" * 400 + "}",
    "a huger one": '{"version": ' + "9" * 5000 + "}",
    "deep lists": "[" * 40 + "]" * 40,
    "very deep lists": "[" * 100_000,
    "half a letter": '{"version": "\\ud800"}',
    "no object": "3",
    "nothing": "",
    "a missing field": '{"version": 1}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
@pytest.mark.parametrize("load", [_model, _plan, _schema])
def test_bad_text_is_one_sentence(text: str, load: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InvalidParameter) as error:
        load(path)
    assert len(str(error.value)) < 400
    assert str(error.value).endswith(".")


@pytest.mark.parametrize("load", [_model, _plan, _schema])
def test_a_file_that_is_too_large_or_not_there(load: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with pytest.raises(InvalidParameter, match="cannot be read: No such file"):
        load(path)
    with path.open("wb") as file:
        file.truncate(600 * 2**20)  # a sparse file
    with pytest.raises(InvalidParameter, match="is larger than"):
        load(path)
