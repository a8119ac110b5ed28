"""Estimators with public_data, and `fit --public`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from _public_grids import small_grids
from dplangevin.cli.main import run_command_line
from dplangevin.errors import BudgetExceeded, InvalidParameter
from dplangevin.estimators import DPLogisticRegression, DPRidge, model_file
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mirror_descent import tuning
from dplangevin.mechanisms.mirror_descent.mirror_map import PublicSample
from dplangevin.mechanisms.mirror_descent.tuning import PublicTuner
from dplangevin.problem import Clipped, DataBounds, Problem, Squared
from estimators._models import EVERY, made, table


@pytest.fixture(autouse=True)
def _small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    small_grids(monkeypatch)


def fitted(cls: type, n: int = 2000, **changes: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = table(cls, n + 60)
    model = made(cls, public_data=(X[:60].copy(), y[:60].copy()), **changes)
    return model.fit(X[60:].copy(), y[60:]), X, y


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_estimator_takes_public_data(cls: type, tmp_path: Path) -> None:
    model, X, y = fitted(cls, compare=True)
    assert model.privacy_.epsilon() <= 2.0
    assert model.privacy_.theorem == "public-mirror-descent"
    words = " ".join(model.privacy_.assumptions)
    assert "protected: the 2000 rows given to fit; not protected: the 60 rows of public_data" in words
    assert "not protected: 60 public rows" in str(model.plan_)
    assert set(model.public_comparison_) == {"public-only", "warm-start", "mirror"}
    assert np.isfinite(model.score(X, y))
    model_file.save_model(model, tmp_path / "model.json")
    assert np.allclose(model_file.load_model(tmp_path / "model.json").predict(X), model.predict(X))
    assert clone(model).get_params()["public_method"] == "mirror"


@pytest.mark.parametrize("method", ["mirror-loss", "mix", "warm-start"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_methods_and_adjacencies(method: str, adjacency: str) -> None:
    model, X, y = fitted(DPLogisticRegression, public_method=method, adjacency=adjacency, radius=5.0)
    assert model.privacy_.adjacency == adjacency
    assert 1.99 < model.privacy_.epsilon() <= 2.0
    assert model.score(X, y) > 0.75
    assert np.linalg.norm(np.append(model.coef_, model.intercept_)) <= 5.0


def test_public_only_reads_no_private_record_and_costs_nothing() -> None:
    model, X, _ = fitted(DPRidge, public_method="public-only")
    other = clone(model).fit(-X[60:], np.zeros(2000))
    assert np.array_equal(model.coef_, other.coef_)
    assert model.privacy_.epsilon() == 0
    assert model.n_iter_ == 0


def test_the_plan_does_not_depend_on_private_values() -> None:
    model, X, _ = fitted(DPRidge)
    other = clone(model).fit(-X[60:], np.zeros(2000))
    assert other.plan_ == model.plan_


def test_compare_before_spending() -> None:
    X, y = table(DPRidge, 60)
    model = made(DPRidge, public_data=(X, y))
    few, many = model.compare_public_methods(500), model.compare_public_methods(50_000)
    assert few["public-only"] == many["public-only"]
    assert many["mirror"] < few["mirror"]
    assert many["mirror"] < many["public-only"]
    assert not hasattr(model, "coef_")
    with pytest.raises(InvalidParameter, match="needs public_data"):
        made(DPRidge).compare_public_methods(500)


def test_rows_of_a_person_and_the_ledger(tmp_path: Path) -> None:
    spender = Ledger.create(f"sqlite:///{tmp_path}/budget.db").declare("d", epsilon=2.5, delta=1e-6)
    fitted(DPRidge, ledger=spender)
    with pytest.raises(BudgetExceeded):
        fitted(DPRidge, ledger=spender)
    model, _, _ = fitted(DPRidge, max_rows_per_person=2)
    assert 1.9 < model.privacy_.epsilon() <= 2.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delta": 0}, "public_data needs delta > 0"),
        ({"intervals": True}, "not available with public_data"),
        ({"mechanism": "noisy-gd"}, "mechanism = 'noisy-gd' does not use public_data"),
        ({"theorem": "composition"}, "theorem = 'composition' does not use public_data"),
        ({"public_method": "magic"}, "public_method must be one of"),
        ({"public_data": np.ones((5, 3))}, r"public_data must be \(X_public, y_public\)"),
        ({"public_data": (np.ones((50, 2)), np.ones(50))}, "public ones have 2 columns, the private ones 3"),
        ({"public_data": (np.ones((50, 3)), np.ones(49))}, "50 rows but 49 targets"),
        ({"public_data": (np.ones((5, 3)), np.ones(5))}, "5 public rows are too few"),
    ],
)
def test_bad_input(changes: dict[str, Any], words: str) -> None:
    X, y = table(DPRidge, 300)
    options = {"public_data": (X[:60].copy(), y[:60])} | changes
    with pytest.raises(InvalidParameter, match=words):
        made(DPRidge, **options).fit(X, y)


def test_rows_in_both_samples_are_warned_about() -> None:
    X, y = table(DPRidge, 300)
    with pytest.warns(UserWarning, match="share rows of one array"):
        made(DPRidge, public_data=(X[:60], y[:60])).fit(X, y)
    with pytest.warns(UserWarning, match="share rows of one array"):
        made(DPRidge, public_data=(X[::3], y[::3])).fit(X, y)


def test_disjoint_rows_of_one_array_are_fine(recwarn: pytest.WarningsRecorder) -> None:
    X, y = table(DPRidge, 300)
    made(DPRidge, public_data=(X[::2], y[::2])).fit(X[1::2], y[1::2])
    assert not [warning for warning in recwarn if "share rows" in str(warning.message)]


def test_the_tuner_prefers_more_movement_when_there_is_less_noise() -> None:
    """With hardly any noise the simulated runs go (nearly) all the way; with overwhelming noise they stay."""
    X, y = table(DPRidge, 80)
    of = [
        Problem(
            loss=Clipped(Squared(), 0.25), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n=n, n_features=3
        )
        for n in (100, 10_000_000)
    ]
    noisy, quiet = (PublicTuner(X, y, [one], epsilon=1.0, delta=1e-6) for one in of)
    assert quiet.tune("mirror").excess < 0.1 * quiet.tune("public-only").excess
    assert quiet.tune("mirror").excess < noisy.tune("mirror").excess
    moves = [t.tune("mirror").plan.spec for t in (noisy, quiet)]
    assert moves[0].n_steps * moves[0].step_size < moves[1].n_steps * moves[1].step_size  # type: ignore[attr-defined]


def test_simulated_noise_is_the_noise_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(DPRidge, 80)
    of = Problem(
        loss=Clipped(Squared(), 0.25), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n=500, n_features=3
    )
    seen: list[tuple[int, float]] = []
    plain = tuning.Simulation.__call__

    def recorded(self: Any, start: Any, gradient: Any, settings: Any, repeats: int, rng: Any) -> Any:
        seen.extend((c.n_steps, float(noise)) for c, noise in zip(settings, self.noises, strict=True))
        return plain(self, start, gradient, settings, repeats, rng)

    monkeypatch.setattr(tuning.Simulation, "__call__", recorded)
    spec: Any = PublicTuner(X, y, [of], epsilon=1.0, delta=1e-6).tune("mirror").plan.spec
    assert any(n == spec.n_steps and noise == pytest.approx(spec.noise_std) for n, noise in seen)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd = pytest.importorskip("pandas")
    X, y = table(DPRidge, 360)
    whole = pd.DataFrame(X, columns=list("abc")).assign(y=y)
    whole[:60].to_csv(tmp_path / "public.csv", index=False)
    whole[60:].to_csv(tmp_path / "private.csv", index=False)
    words = [
        "fit", str(tmp_path / "private.csv"), "--target", "y", "--epsilon", "1", "--model", "ridge", "--data-norm", "2",
        "--target-bounds=-1,1", "-o", str(tmp_path / "model.json"),
    ]  # fmt: skip
    assert run_command_line([*words, "--public", str(tmp_path / "public.csv"), "--compare"]) == 0
    assert "not protected: 60 public rows" in capsys.readouterr().out
    stored = json.loads((tmp_path / "model.json").read_text())
    assert stored["guarantee"]["theorem"] == "public-mirror-descent"
    assert "public_data" not in stored["parameters"]
    assert run_command_line([*words, "--public", str(tmp_path / "private.csv")]) == 2
    assert "names the private table itself" in capsys.readouterr().err


def test_the_plan_says_how_many_public_rows_are_enough() -> None:
    """tr(H^-1 S) / (theta^T H theta) public rows: as many as make the mean Bregman divergence that of a start at 0."""
    rng, target = np.random.default_rng(0), np.array([0.2, -0.1, 0.05])
    X = rng.uniform(-0.5, 0.5, (40_000, 3))
    y = np.clip(X @ target + rng.uniform(-0.5, 0.5, 40_000), -1, 1)
    problem = Problem(
        loss=Clipped(Squared(), 1.0), bounds=DataBounds(data_norm=1.0, target=(-1, 1)), n=5000, n_features=3,
        fit_intercept=False,
    )  # fmt: skip
    enough = PublicSample(X[:20_000], y[:20_000], problem).count_enough_rows(0.0)
    gram = X.T @ X / len(X)
    from_zero = target @ gram @ target / 2
    divergences = []
    for _ in range(2000):
        rows = rng.integers(0, 40_000, round(enough))
        shift = np.linalg.lstsq(X[rows], y[rows], rcond=None)[0] - target
        divergences.append(shift @ gram @ shift / 2)
    assert np.mean(divergences) == pytest.approx(from_zero, rel=0.25)  # to leading order in 1 / rows
    model = DPRidge(
        epsilon=1.0, delta=1e-5, data_norm=1.0, target_bounds=(-1, 1), fit_intercept=False, random_state=0,
        public_data=(X[:300], y[:300]),
    ).fit(X[300:5300], y[300:5300])  # fmt: skip
    assert "nearer than 0 from about" in str(model.plan_)
