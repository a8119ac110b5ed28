"""The one till: rows a person, the charge and the file to go on from are the same for everything that spends."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from dplangevin import DPLogisticRegression, DPModelSearch
from dplangevin.accounting.plan import Plan
from dplangevin.cli.main import run_command_line as command
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.evaluation import private_score, private_selection
from dplangevin.ledger import Ledger
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism, SparseVectorCorrection
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.queries import column, count_queries
from dplangevin.rashomon import RashomonRegion, RashomonSampler
from dplangevin.rashomon.measures import private_counts
from dplangevin.report import write_report
from dplangevin.schema import Schema

pd = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 2))
Y = (X[:, 0] > 0).astype(int)
MODELS = [DummyClassifier(strategy="constant", constant=value).fit(X, Y) for value in (0, 1)]
GROUPS = np.arange(300) % 2


class Interrupted(KeyboardInterrupt):
    """As a process that is told to end: a query that fails on one row is not this."""


class Stop:
    """Raises when the records are read, if asked to."""

    def __init__(self) -> None:
        self.armed, self.reads = False, 0

    def __call__(self) -> None:
        self.reads += 1
        if self.armed:
            raise Interrupted


STOP = Stop()


class WatchedModel:
    """A model that notices when it is asked about records."""

    classes_ = np.array([0, 1])

    def predict(self, rows: Any) -> Any:
        STOP()
        return np.ones(len(rows), int)


def fit(rows: int, labels: Any, **options: Any) -> Any:
    model = DPLogisticRegression(
        epsilon=1.0, data_norm=2.0, classes=[0, 1], max_rows_per_person=rows, mechanism="output-perturbation",
        **options,
    )  # fmt: skip
    return model.fit(X, labels).coef_


def learned(rows: int, labels: Any, **options: Any) -> Any:
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": labels})
    schema = Schema.learn(a="number", b="number", target={"name": "y", "classes": [0, 1]})
    model = DPLogisticRegression(epsilon=1.0, schema=schema, max_rows_per_person=rows, **options)
    return model.fit(table, "y").coef_


def score(rows: int, labels: Any, **options: Any) -> Any:
    return private_score(WatchedModel(), X, labels, epsilon=1.0, max_rows_per_person=rows, **options).value


def selection(rows: int, labels: Any, **options: Any) -> Any:
    models = [WatchedModel(), *MODELS]
    return private_selection(models, X, labels, epsilon=1.0, max_rows_per_person=rows, **options).index


def watched(row: dict[str, Any]) -> bool:
    STOP()
    return bool(row["y"] == 1)


def count(rows: int, labels: Any, **options: Any) -> Any:
    table = pd.DataFrame({"a": X[:, 0], "y": labels})
    return count_queries(
        table, [column("a") > 0, watched], epsilon=1.0, delta=1e-6, p=2, max_rows_per_person=rows, **options
    ).values


def sums(rows: int, labels: Any, **options: Any) -> Any:
    decisions = np.stack([X[:, 0] > 0, X[:, 1] > 0])
    return private_counts(
        decisions, GROUPS, [0, 1], labels, epsilon=1.0, max_rows_per_person=rows, **options
    )[0]


def exact(labels: Any) -> Callable[[], Any]:
    def read() -> Any:
        STOP()
        return np.bincount(labels, minlength=20)

    return read


def noise(rows: int, labels: Any, **options: Any) -> Any:
    mechanism = GeneralizedGaussianMechanism(
        k=20, epsilon=1.0, delta=1e-6, sensitivity=rows, rows_per_person=rows
    )
    return mechanism.release(exact(labels), **options)


def sparse_vector(rows: int, labels: Any, **options: Any) -> Any:
    mechanism = SparseVectorCorrection(
        k=20, epsilon=1.0, delta=1e-6, p=2, sensitivity=rows, rows_per_person=rows
    )
    return mechanism.release(exact(labels), **options)


SPENDERS: dict[str, Callable[..., Any]] = {
    "fit": fit, "learned schema": learned, "score": score, "selection": selection, "count": count, "sums": sums,
    "noise": noise, "sparse vector": sparse_vector,
}  # fmt: skip
KINDS = pytest.mark.parametrize("kind", SPENDERS)


def budget(tmp_path: Path, rows: int = 1) -> DatasetBudget:
    tmp_path.mkdir(exist_ok=True)
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    return ledger.declare("d", epsilon=100.0, delta=1e-3, max_rows_per_person=rows)


def spend(kind: str, rows: int = 1, labels: Any = Y, random_state: Any = 3, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return SPENDERS[kind](rows, labels, random_state=random_state, **options)


@KINDS
@pytest.mark.parametrize("rows", [1, 3])
def test_the_same_rows_a_person_are_applied_once(kind: str, rows: int, tmp_path: Path) -> None:
    ledger = budget(tmp_path, rows)
    spend(kind, rows, ledger=ledger)
    (entry,) = ledger.history()
    assert 0.97 < entry.guarantee.epsilon() <= 1.0
    assert entry.guarantee.rows_per_person == rows
    assert entry.release_hash is not None


@KINDS
@pytest.mark.parametrize(("owner", "asked"), [(1, 3), (3, 1), (2, 3)])
def test_other_rows_a_person_are_refused(kind: str, owner: int, asked: int, tmp_path: Path) -> None:
    ledger, reads = budget(tmp_path, owner), STOP.reads
    with pytest.raises(InvalidParameter, match=f"{asked}.* differs from the ledger's {owner}"):
        spend(kind, asked, ledger=ledger)
    assert not ledger.history()
    assert STOP.reads == reads


def search(model: Any, **options: Any) -> Any:
    return DPModelSearch(model, {"alpha": [0.01, 1.0]}, epsilon=1.0, **options).fit(X, Y)


def region(model: Any, **options: Any) -> Any:
    return RashomonRegion(model, epsilon=1.0, public_inputs=X[:5], n_models=2, **options).fit(X, Y)


def sampler(model: Any, **options: Any) -> Any:
    return RashomonSampler(model, epsilon=1.0, radius=1.0, n_models=2, **options).fit(X, Y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("spender", [region, sampler])
def test_what_has_no_group_guarantee_takes_one_row_a_person_only(
    spender: Callable[..., Any], tmp_path: Path
) -> None:
    """Asked for 3 rows, or charged to a ledger of 3, it is refused; with 1 and 1 it is paid once."""
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1])
    of_many, of_one = budget(tmp_path, 3), budget(tmp_path / "one")
    with pytest.raises(InvalidParameter, match="differs from the ledger's 3"):
        spender(model, ledger=of_many, random_state=0)
    for ledger in (of_many, of_one):
        with pytest.raises(InvalidParameter, match="max_rows_per_person"):
            spender(clone(model).set_params(max_rows_per_person=3), ledger=ledger, random_state=0)
        assert not ledger.history()
    found = spender(model, ledger=of_one, random_state=0)
    (entry,) = of_one.history()
    assert entry.guarantee.rows_per_person == 1
    assert 0.95 < entry.guarantee.epsilon(1e-6) <= 1.0
    assert entry.guarantee.epsilon(1e-6) == pytest.approx(found.privacy_.epsilon(1e-6))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_search_is_charged_for_the_rows_of_a_person(tmp_path: Path) -> None:
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], max_rows_per_person=3)
    of_many, of_one = budget(tmp_path, 3), budget(tmp_path / "one")
    with pytest.raises(InvalidParameter, match="max_rows_per_person = 3 differs from the ledger's 1"):
        search(model, ledger=of_one, random_state=0)
    assert not of_one.history()
    found = search(model, ledger=of_many, random_state=0)
    (entry,) = of_many.history()
    assert entry.guarantee.rows_per_person == 3
    assert 0.95 < entry.guarantee.epsilon(1e-6) <= 1.0
    assert entry.guarantee.epsilon(1e-6) == pytest.approx(found.privacy_.epsilon(1e-6))


@pytest.mark.parametrize("kind", [kind for kind in SPENDERS if kind not in ("fit", "learned schema", "sums")])
def test_an_answer_goes_on_after_a_crash(kind: str, tmp_path: Path, monkeypatch) -> None:
    ledger, path = budget(tmp_path), tmp_path / "run.state"
    expected = spend(kind)
    for _ in range(2):
        monkeypatch.setattr(STOP, "armed", True)
        with pytest.raises(Interrupted):
            spend(kind, ledger=ledger, checkpoint=path)
        assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(STOP, "armed", False)
    found = spend(kind, random_state=None, ledger=ledger, checkpoint=path)  # the seed is not asked again
    np.testing.assert_array_equal(found, expected)
    (entry,) = ledger.history()
    assert entry.release_hash is not None
    assert not path.exists()


@pytest.mark.parametrize("kind", [kind for kind in SPENDERS if kind not in ("fit", "learned schema")])
def test_a_crash_before_the_commit_allows_the_same_records_only(
    kind: str, tmp_path: Path, monkeypatch
) -> None:
    ledger, path = budget(tmp_path), tmp_path / "run.state"
    expected = spend(kind)
    with monkeypatch.context() as patch:
        patch.setattr(DatasetBudget, "commit", lambda *_: (_ for _ in ()).throw(Interrupted))
        with pytest.raises(Interrupted):
            spend(kind, ledger=ledger, checkpoint=path)
    changed = Y.copy()
    changed[5] = 1 - changed[5]
    with pytest.raises(InvalidParameter, match="other records"):
        spend(kind, labels=changed, ledger=ledger, checkpoint=path)
    with pytest.raises(InvalidParameter, match="give that ledger"):
        spend(kind, checkpoint=path)
    with pytest.raises(InvalidParameter, match="another plan"):
        spend("noise" if kind != "noise" else "count", ledger=ledger, checkpoint=path)
    np.testing.assert_array_equal(spend(kind, ledger=ledger, checkpoint=path), expected)
    assert len(ledger.history()) == 1


@KINDS
def test_a_refused_charge_reads_nothing(kind: str, tmp_path: Path) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=0.1, delta=1e-9)
    reads = STOP.reads
    with pytest.raises(Exception, match="budget"):
        spend(kind, ledger=ledger, checkpoint=tmp_path / "run.state")
    assert STOP.reads == reads
    assert not (tmp_path / "run.state").exists()


def test_a_report_speaks_of_the_person_that_was_paid_for(tmp_path: Path) -> None:
    chosen = private_selection(
        [WatchedModel(), *MODELS], X, Y, epsilon=1.0, max_rows_per_person=3, random_state=0
    )
    table = pd.DataFrame({"a": X[:, 0]})
    counted = count_queries(table, [column("a") > 0], epsilon=1.0, delta=1e-6, max_rows_per_person=3)
    for thing in (chosen, counted, chosen.guarantee):
        write_report(thing, tmp_path / "report.md")
        assert "at most 3" in (tmp_path / "report.md").read_text()


def test_the_command_line_charges_before_it_counts(tmp_path: Path, capsys) -> None:
    pytest.importorskip("duckdb")
    pd.DataFrame({"a": X[:, 0], "y": Y}).to_parquet(tmp_path / "t.parquet")
    schema = {"columns": {"a": {"range": [-1, 1]}, "y": {"categories": [0, 1]}}, "missing": "never"}
    Schema.from_dict(schema).save(tmp_path / "schema.json")
    words = ["count", str(tmp_path / "t.parquet"), "--schema", str(tmp_path / "schema.json")]
    words += ["--where", "y = 1", "--epsilon", "1", "--delta", "1e-6"]
    words += ["--max-rows-per-person", "3", "--random-state", "4", "--json", "--quiet"]
    assert command(words) == 0
    plain = capsys.readouterr().out
    paid = [
        "--ledger",
        f"sqlite:///{tmp_path}/l.db",
        "--dataset",
        "d",
        "--checkpoint",
        str(tmp_path / "run.state"),
    ]
    ledger = budget(tmp_path, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert command([*words, *paid]) == 0
    assert capsys.readouterr().out == plain
    assert len(ledger.history()) == 1
    assert not (tmp_path / "run.state").exists()


def test_two_paid_releases_of_one_seed_have_one_noise_and_warn(tmp_path: Path) -> None:
    """The guarantee of a seeded release says so; a ledger, which adds up, warns."""
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("people", epsilon=100.0, delta=1e-3)
    seed = 20_261_117
    first = fit(1, Y, random_state=seed, ledger=budget)
    other = Y.copy()
    other[0] = 1 - other[0]
    with pytest.warns(UserWarning, match="same noise"):
        second = fit(1, other, random_state=seed, ledger=budget)
    another = fit(1, Y, random_state=seed + 1, ledger=budget)
    # no noise is left in the difference: one label of 300 is seen
    assert np.abs(first - second).max() < 0.05 * np.abs(first - another).max()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(1, Y, random_state=seed)  # nobody adds up
        fit(1, Y, ledger=budget)
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], random_state=0).fit(X, Y)
    assert any("a second release with the same seed" in words for words in model.privacy_.assumptions)


def test_a_strict_data_set_refuses_plans_that_refuse_records(tmp_path: Path) -> None:
    """An error that depends on a record tells of it: the check is the charge's, whoever calls it."""
    strict = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=9.0, delta=1e-3, strict=True)
    bounds = DataBounds(data_norm=2.0, classes=2, bad_rows="refuse")
    problem = Problem(loss=Logistic(), bounds=bounds, n=300, n_features=2)
    spec = NoisyGradientSpec(noise_std=1.0, step_size=1.0, n_steps=2, release="trajectory")
    plan = Plan(problem=problem, spec=spec, delta=1e-3)
    with pytest.raises(InvalidParameter, match="strict, and the plan raises an error on records"):
        run_plan(plan, ArrayDataset(X, Y.astype(float), problem), 0, ledger=strict)
    assert not strict.history()
