"""`checkpoint=`: a fit that was interrupted goes on, from an estimator and from the command line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from _public_grids import small_grids
from dplangevin.cli.main import run_command_line as command
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import DPLogisticRegression, DPRidge, model_file
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.whitened import mechanism as descent
from dplangevin.rashomon import RashomonSampler
from estimators._models import EVERY, made, table

parametrised = pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)


@contextmanager
def interrupted_after(passes: float, error: type[BaseException] = RuntimeError) -> Iterator[None]:
    """Private records can be read so many times in this block (public ones are few)."""
    left = passes

    def counted(self: ArrayDataset, *arguments: Any) -> Any:
        nonlocal left
        left -= self.n_samples > 150
        if left < 0:
            raise error("interrupted")
        return cut(self, *arguments)

    cut = ArrayDataset._slice_blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrayDataset, "_slice_blocks", counted)
        yield


def budget(tmp_path: Path, **options: Any) -> Any:
    return Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=100.0, delta=1e-3, **options)


def resumed(model: Any, X: Any, y: Any, passes: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with interrupted_after(passes), pytest.raises(RuntimeError, match="interrupted"):
            clone(model).fit(X, y)
        assert Path(model.checkpoint).exists()
        return clone(model).set_params(random_state=None).fit(X, y)


@parametrised
def test_a_fit_goes_on_with_the_same_model_and_one_charge(cls: type, tmp_path: Path) -> None:
    X, y = table(cls)
    path, ledger = tmp_path / "fit.state", budget(tmp_path)
    expected = made(cls).fit(X, y)
    found = resumed(made(cls, checkpoint=path, ledger=ledger), X, y, 3)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.intercept_, expected.intercept_)
    assert "random_state" in " ".join(found.privacy_.assumptions)  # the seed of the fit that began
    assert len(ledger.history()) == 1
    assert not path.exists()


@parametrised
def test_changed_records_and_parameters_are_refused(cls: type, tmp_path: Path) -> None:
    X, y = table(cls)
    model, changed = made(cls, checkpoint=tmp_path / "fit.state"), X.copy()
    changed[7, 1] /= 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with interrupted_after(3), pytest.raises(RuntimeError, match="interrupted"):
            clone(model).fit(X, y)
        with pytest.raises(InvalidParameter, match="on other records"):
            clone(model).fit(changed, y)
        with pytest.raises(InvalidParameter, match="of another plan"):
            clone(model).set_params(epsilon=2.5).fit(X, y)
        clone(model).fit(X, y)


@pytest.mark.parametrize("where", ["fit", "curvature"])
def test_intervals_are_those_of_the_undisturbed_fit(where: str, tmp_path: Path, monkeypatch) -> None:
    X, y = table(DPRidge, n=4000)
    expected = made(DPRidge, intervals=True).fit(X, y)
    path, ledger = tmp_path / "fit.state", budget(tmp_path)
    model = made(DPRidge, intervals=True, checkpoint=path, ledger=ledger)
    if where == "fit":
        found = resumed(model, X, y, 3)
    else:  # the first release was made, and nobody saw it
        with monkeypatch.context() as patch, warnings.catch_warnings(action="ignore"):
            patch.setattr(descent, "release_curvature", lambda *_: (_ for _ in ()).throw(RuntimeError))
            with pytest.raises(RuntimeError):
                clone(model).fit(X, y)
        found = clone(model).fit(X, y)
    np.testing.assert_array_equal(found.confidence_intervals(), expected.confidence_intervals())
    assert len(ledger.history()) == 1


def test_public_data_and_secure_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_grids(monkeypatch)
    X, y = table(DPLogisticRegression, n=600)
    path = tmp_path / "fit.state"
    options: dict[str, Any] = {"public_data": (X[:100], y[:100]), "classes": [0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = made(DPLogisticRegression, **options).fit(X[100:], y[100:])
        found = resumed(made(DPLogisticRegression, checkpoint=path, **options), X[100:], y[100:], 4)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    ledger = budget(tmp_path)
    secure = made(DPLogisticRegression, secure=True, random_state=None, checkpoint=path, ledger=ledger)
    assert np.isfinite(resumed(secure, X, y, 5).coef_).all()
    assert len(ledger.history()) == 1


def test_rashomon_models_go_on(tmp_path: Path) -> None:
    X, y = table(DPLogisticRegression, p=2)
    base = made(DPLogisticRegression, data_norm=1.5, classes=[0, 1], radius=2.0, fit_intercept=False)
    options: dict[str, Any] = {"thresholds": 0.1, "n_models": 3, "epsilon": 2.0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = RashomonSampler(base, **options).fit(X, y)
    found = resumed(RashomonSampler(base, checkpoint=tmp_path / "set.state", **options), X, y, 6)
    np.testing.assert_array_equal(found.parameters_, expected.parameters_)


def test_the_path_stays_out_of_model_files(tmp_path: Path) -> None:
    X, y = table(DPRidge)
    with pytest.warns(UserWarning, match="keep it secret"):
        model = made(DPRidge, checkpoint=tmp_path / "fit.state").fit(X, y)
    model_file.save_model(model, tmp_path / "model.json")
    assert "fit.state" not in (tmp_path / "model.json").read_text()
    assert model_file.load_model(tmp_path / "model.json").checkpoint is None


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    pd = pytest.importorskip("pandas")
    X, y = table(DPLogisticRegression)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


COMMANDS = {
    "fit": ["--classes", "0,1", "--epsilon", "1", "--data-norm", "2", "--output", "OUT"],
    "fit slowly": ["--classes", "0,1", "--epsilon", "1", "--data-norm", "2", "--output", "OUT",
                   "--mechanism", "noisy-gd"],
    "sample": ["--classes", "0,1", "--epsilon", "1", "--data-norm", "2", "--radius", "1", "--json"],
    "rashomon": ["--classes", "0,1", "--epsilon", "1", "--data-norm", "2", "--radius", "1", "--threshold", "0.1",
                 "--n-models", "2", "--public", "PUBLIC", "--json"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_goes_on(name: str, csv: Path, tmp_path: Path, capsys) -> None:
    public = tmp_path / "p.csv"
    public.write_text("a,b,c\n0.1,0.2,0.3\n-0.5,0.4,0.2\n0.9,-0.8,0.1\n")
    spender = budget(tmp_path)
    base = [name.split()[0], str(csv), "--target", "y", *COMMANDS[name], "--random-state", "4", "--quiet"]
    base = [{"OUT": str(tmp_path / "model.json"), "PUBLIC": str(public)}.get(word, word) for word in base]

    def result() -> Any:
        out = capsys.readouterr().out
        if name.startswith("fit"):
            return json.loads((tmp_path / "model.json").read_text())["coefficients"]
        plain = json.loads(out)
        of_this_run = ("created", "ledger_head")
        return {key: value for key, value in plain.items() if "seconds" not in key and key not in of_this_run}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert command(base) == 0
        expected = result()
        state = tmp_path / "run.state"
        paid = [*base, "--checkpoint", str(state), "--ledger", f"sqlite:///{tmp_path}/l.db", "--dataset", "d"]
        with interrupted_after(6, KeyboardInterrupt):
            assert command(paid) == 130
        assert state.exists()
        capsys.readouterr()
        assert command(paid) == 0
    assert result() == expected
    assert not state.exists()
    assert len(spender.history()) == 1


def test_a_killed_process_is_continued(csv: Path, tmp_path: Path, capsys) -> None:
    code = (
        "import os, sys\n"
        "from dplangevin.data import ArrayDataset\n"
        "from dplangevin.cli.main import run_command_line\n"
        "cut, seen = ArrayDataset._slice_blocks, []\n"
        "def killing(self, *a):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 9: os.kill(os.getpid(), 9)\n"
        "    return cut(self, *a)\n"
        "ArrayDataset._slice_blocks = killing\n"
        "run_command_line(sys.argv[1:])\n"
    )
    out, state = tmp_path / "model.json", tmp_path / "run.state"
    words = ["fit", str(csv), "--target", "y", "--classes", "0,1", "--epsilon", "1", "--data-norm", "2",
             "--mechanism", "noisy-gd", "--random-state", "4", "-o", str(out)]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--checkpoint", str(state)], capture_output=True, timeout=120
    )
    assert done.returncode == -9
    assert b"keep it secret" in done.stderr
    assert command([*words, "--checkpoint", str(state)]) == 0
    found = json.loads(out.read_text())["coefficients"]
    assert command(words) == 0
    assert json.loads(out.read_text())["coefficients"] == found
    assert math.isfinite(found[0][0])
