"""Feature by feature: every estimator, mechanism and query is really run, on a few hundred records."""

from __future__ import annotations

import inspect
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from dplangevin import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DplangevinError,
    DPLogisticRegression,
    DPModelSearch,
    DPRidge,
    Ledger,
    Schema,
    private_score,
    private_selection,
)
from dplangevin.accounting.registry import plannable_mechanisms
from dplangevin.queries import (
    Marginals,
    column,
    count_file,
    count_learned_groups,
    count_marginals,
    count_queries,
    summarize_table,
)
from dplangevin.rashomon import RashomonRegion, RashomonSampler
from estimators._models import CLASSIFIERS, EVERY, made, table

FEATURES = (
    "replace-one", "add-remove", "pure", "secure", "weights", "class weights", "rows per person", "person", "files",
    "Dask", "sparse", "schema", "learned schema", "checkpoint", "ledger", "intervals", "public data",
)  # fmt: skip
YES, NO_OPTION = "yes", "no option"
N = 400
COLUMNS = {f"x{j}": {"range": [-1, 1]} for j in range(3)}
SCHEMA = Schema.from_dict({"version": 1, "columns": COLUMNS, "row_norm": 2.0, "missing": "never"})
TO_LEARN = Schema.learn(dict.fromkeys(COLUMNS, "number"))
NAMED = ("schema", "learned schema", "person")  # features whose tables are read by the names of their columns


class Ignored(Exception):
    """A call that returned without what was asked for."""


class NoOption(Exception):
    """The callable has no such option."""


@dataclass(frozen=True, kw_only=True)
class TriedRelease:
    """What a trial looks at: the guarantee, and whatever else was released."""

    guarantee: Any
    model: Any = None
    budget: Any = None


Trial = Callable[[str, Path], TriedRelease]


def cell(trial: Trial, feature: str) -> str:
    """YES, NO_OPTION, or the first sentence of the error that refuses."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _check_kept(feature, trial(feature, Path(folder)))
        except NoOption:
            return NO_OPTION
        except DplangevinError as error:
            return _sentence(str(error))
    return YES


def _check_kept(feature: str, released: TriedRelease) -> None:
    """An option that is accepted must show in what is released."""
    guarantee = released.guarantee
    kept = {
        "pure": lambda: math.isfinite(guarantee.epsilon(0.0)),
        "secure": lambda: guarantee.arithmetic == "discrete-grid",
        "rows per person": lambda: guarantee.rows_per_person == 2,
        "person": lambda: any("person" in words for words in guarantee.assumptions),
        "learned schema": lambda: isinstance(_fitted(released.model).schema_, Schema),
        "add-remove": lambda: guarantee.adjacency == "add-remove",
        "replace-one": lambda: guarantee.adjacency == "replace-one",
        "ledger": lambda: len(released.budget.history()) >= 1,
        "intervals": lambda: hasattr(released.model, "uncertainty_"),
    }
    if feature in kept and not kept[feature]():
        raise Ignored(f"{feature} was accepted, but does not show in what was released.")


def _fitted(model: Any) -> Any:
    return getattr(model, "best_estimator_", model)


def _sentence(message: str) -> str:
    first = message.replace("\n", " ").split(". ")[0]
    return first.rstrip(".") + "."


def _budget(folder: Path, adjacency: str = "replace-one") -> Any:
    ledger = Ledger.create(f"sqlite:///{folder / 'ledger.db'}")
    return ledger.declare("records", epsilon=100.0, delta=0.01, adjacency=adjacency)


@contextmanager
def _dask() -> Iterator[Any]:
    import distributed

    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        yield client


def _records(feature: str, folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """The records in the home that the feature asks for."""
    frame = pd.DataFrame(X, columns=list(COLUMNS)).assign(y=y)
    if feature == "files":
        frame.to_parquet(folder / "records.parquet")
        return folder / "records.parquet", "y"
    if feature == "schema":
        return frame[list(COLUMNS)], y
    if feature == "learned schema":
        return frame, "y"
    if feature == "person":
        return frame.assign(who=np.arange(len(frame)) // 2), "y"
    if feature == "sparse":
        return csr_array(X), y
    if feature == "Dask":
        import dask.array as da

        return da.from_array(X, chunks=(200, 3)), da.from_array(y, chunks=200)
    return X, y


def _called(feature: str, call: Callable[[], Any]) -> Any:
    if feature != "Dask":
        return call()
    with _dask():
        return call()


def _options(feature: str, folder: Path, taken: Any, **known: Any) -> dict[str, Any]:
    """The keywords that ask for a feature; NoOption when the callable has none of them."""
    asked: dict[str, dict[str, Any]] = {
        "pure": {"delta": 0.0},
        "secure": {"secure": True, "random_state": None},
        "rows per person": {"max_rows_per_person": 2},
        "add-remove": {"adjacency": "add-remove"},
        "replace-one": {"adjacency": "replace-one"},
        "class weights": {"class_weight": {0: 0.5, 1: 1.0}},
        "person": {"person": "who", "max_rows_per_person": 2, "n_public": N, "schema": SCHEMA},
        "schema": {"schema": SCHEMA},
        "learned schema": {"schema": TO_LEARN},
        "checkpoint": {"checkpoint": folder / "run.state"},
        "ledger": {"ledger": _budget(folder)} if feature == "ledger" else {},
        "intervals": {"intervals": True},
        "public data": {},
    } | known
    options = asked.get(feature, {})
    for name in options:
        if name not in taken:
            raise NoOption
    return options


def fit(cls: type, **stated: Any) -> Trial:
    """An estimator."""

    def trial(feature: str, folder: Path) -> TriedRelease:
        X, y = table(cls, N)
        public = {"public_data": table(cls, 200, seed=1)}
        taken = inspect.signature(cls).parameters
        options = stated | _options(
            feature, folder, taken, **{"public data": public, "weights": {"weight_bound": 1.0}}
        )
        if feature in ("secure", "rows per person"):
            options.pop("theorem", None)  # their guarantees come from other theorems
        if feature in NAMED:
            options["data_norm"] = None
        if cls in CLASSIFIERS:
            options["classes"] = [0, 1]
        model = made(cls, **options)
        weights = {"sample_weight": np.linspace(0.1, 1.0, N)} if feature == "weights" else {}
        rows, labels = _records(feature, folder, X, y)
        _called(feature, lambda: model.fit(rows, labels, **weights))
        return TriedRelease(guarantee=model.privacy_, model=model, budget=options.get("ledger"))

    return trial


def additive(cls: type, linear: type) -> Trial:
    """An additive estimator: it has a schema always, and reads tables by name."""

    def trial(feature: str, folder: Path) -> TriedRelease:
        X, y = table(linear, N)
        frame = pd.DataFrame(X, columns=list(COLUMNS)).assign(y=y)
        rows, labels = table(linear, 200, seed=1)
        public = {"public_data": (pd.DataFrame(rows, columns=list(COLUMNS)), labels)}
        known = {"public data": public, "weights": {"weight_bound": 1.0}}
        options = _options(feature, folder, inspect.signature(cls).parameters, **known)
        own: dict[str, Any] = {"classes": [0, 1]} if linear in CLASSIFIERS else {"target_bounds": (-1.0, 1.0)}
        stated = {"epsilon": 2.0, "delta": 1e-6, "schema": SCHEMA, "random_state": 0}
        model = cls(**(stated | own | options))
        weights = {"sample_weight": np.linspace(0.1, 1.0, N)} if feature == "weights" else {}
        by_name = feature in ("files", "Dask", "person", "learned schema")
        home: Any = (
            _records(feature, folder, X, y)[0] if by_name or feature == "sparse" else frame[list(COLUMNS)]
        )
        if feature in ("files", "Dask"):
            home = _called(feature, lambda: _table_at(feature, frame, folder))
        target = "y" if by_name else y
        _called(feature, lambda: model.fit(home, target, **weights))
        return TriedRelease(guarantee=model.privacy_, model=model, budget=options.get("ledger"))

    return trial


def around(cls: type, **own: Any) -> Trial:
    """What is done with one estimator, which states what `cls` does not."""

    def trial(feature: str, folder: Path) -> TriedRelease:
        inner = inspect.signature(DPLogisticRegression).parameters
        outer = inspect.signature(cls).parameters
        X, y = table(DPLogisticRegression, N)
        public = {"public_data": table(DPLogisticRegression, 200, seed=1)}
        if feature == "weights" and "sample_weight" not in inspect.signature(cls.fit).parameters:
            raise NoOption
        known = {"public data": public, "weights": {"weight_bound": 1.0}}
        asked = _options(feature, folder, {**inner, **outer}, **known)
        stated = {name: value for name, value in asked.items() if name not in outer}
        fields = {"data_norm": 2.0, "classes": [0, 1], "radius": 2.0, "fit_intercept": False} | stated
        if feature in NAMED:
            fields["data_norm"] = None
        options = own | {name: asked[name] for name in asked if name in outer}
        if "public_inputs" in outer:
            inputs = table(DPLogisticRegression, 30, seed=2)[0]
            options["public_inputs"] = (
                pd.DataFrame(inputs, columns=list(COLUMNS)) if feature in NAMED else inputs
            )
        model = cls(DPLogisticRegression(**fields), **({"epsilon": 4.0, "random_state": 0} | options))
        rows, labels = _records(feature, folder, X, y)
        weights = {"sample_weight": np.linspace(0.1, 1.0, N)} if feature == "weights" else {}
        _called(feature, lambda: model.fit(rows, labels, **weights))
        return TriedRelease(guarantee=model.privacy_, model=model, budget=asked.get("ledger"))

    return trial


def score(feature: str, folder: Path) -> TriedRelease:
    """private_score, and below private_selection, of fitted models."""
    return _evaluated(private_score, feature, folder)


def selection(feature: str, folder: Path) -> TriedRelease:
    """The best of two models."""
    return _evaluated(private_selection, feature, folder)


def _evaluated(call: Callable[..., Any], feature: str, folder: Path) -> TriedRelease:
    X, y = table(DPLogisticRegression, N)
    model = made(DPLogisticRegression, classes=[0, 1]).fit(X, y)
    taken = inspect.signature(call).parameters
    if feature in ("weights", "public data"):
        raise NoOption
    known = {"pure": {}} if call is private_selection else {}
    options = _options(feature, folder, taken, **known)
    subject = [model, model] if call is private_selection else model
    rows, labels = _records(feature, folder, X, y)
    done = _called(
        feature, lambda: call(subject, rows, labels, epsilon=1.0, **({"random_state": 0} | options))
    )
    return TriedRelease(guarantee=done.guarantee, budget=options.get("ledger"))


def counted(call: Callable[..., Any]) -> Trial:
    """count_queries, count_marginals or count_file."""

    def trial(feature: str, folder: Path) -> TriedRelease:
        X, _ = table(DPRidge, N)
        taken = {*inspect.signature(call).parameters, "adjacency", "secure"}  # two of its noise options
        if feature in ("weights", "sparse", "public data"):
            raise NoOption
        options = _options(feature, folder, taken)
        frame: Any = pd.DataFrame(X, columns=list(COLUMNS))
        if feature in ("files", "Dask") and call is not count_file:
            frame = _called(feature, lambda: _table_at(feature, frame, folder))
        settings = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0} | options
        if call is count_queries:
            done = call(frame, {"positive": column("x0") > 0}, **settings)
        elif call is count_learned_groups:
            done = call(frame, "x0", **settings)
        elif call in (count_marginals, summarize_table):
            done = call(frame, **({"schema": SCHEMA} | settings))
        else:
            frame.to_parquet(folder / "records.parquet")
            where = folder / "records.parquet"
            if feature == "Dask":
                where = _called(feature, lambda: _table_at(feature, frame, folder))
            done = call(where, marginals=Marginals.from_schema(SCHEMA), **({"schema": SCHEMA} | settings))
        return TriedRelease(guarantee=done.guarantee, budget=options.get("ledger"))

    return trial


def _table_at(feature: str, frame: pd.DataFrame, folder: Path) -> Any:
    if feature == "files":
        frame.to_parquet(folder / "records.parquet")
        return folder / "records.parquet"
    import dask.dataframe as dd

    return dd.from_pandas(frame, npartitions=2)


def _by_name(name: str) -> Trial:
    stated: dict[str, Any] = {"mechanism": name, "fit_intercept": False}
    if name in ("exponential", "gibbs", "iterated-exponential"):
        stated["radius"] = 1.0
    if name == "noisy-sgd":
        stated["theorem"] = "composition"  # the search over all theorems takes long, and changes no cell
    return fit(DPRidge if name == "sufficient-statistics" else DPLogisticRegression, **stated)


ROWS: dict[str, Trial] = {
    **{cls.__name__: fit(cls) for cls in EVERY},
    "DPAdditiveClassifier": additive(DPAdditiveClassifier, DPLogisticRegression),
    "DPAdditiveRegressor": additive(DPAdditiveRegressor, DPRidge),
    **{
        f'mechanism="{name}"': _by_name(name)
        for name in plannable_mechanisms()
        if not name.endswith("-secure")
    },
    "DPModelSearch": around(DPModelSearch, grid={"alpha": [0.001, 1.0]}),
    "RashomonSampler": around(RashomonSampler, thresholds=0.3, n_models=2),
    "RashomonRegion": around(RashomonRegion, thresholds=0.05, n_models=2),
    "private_score": score,
    "private_selection": selection,
    "count_queries": counted(count_queries),
    "count_marginals": counted(count_marginals),
    "count_file": counted(count_file),
    "summarize_table": counted(summarize_table),
    "count_learned_groups": counted(count_learned_groups),
}
