"""A guarantee after a pipeline's steps is unconditional only where every step is on the list of row-wise ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.pipeline import FeatureUnion, Pipeline as PlainPipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.utils.fixes import parse_version

from dplangevin import DPLogisticRegression, Pipeline, make_pipeline, private_score
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.call_context import find_cross_row_steps
from dplangevin.ledger import Ledger

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 2))
Y = (X[:, 0] > 0).astype(int)


def test_the_score_of_a_step_of_ones_own_is_conditional(tmp_path: Path) -> None:
    """It may divide by the largest of all rows: then one record moves every other's loss."""
    stated = {"data_norm": 2.0, "classes": [0, 1], "random_state": 0}
    across = make_pipeline(FunctionTransformer(lambda Z: Z / abs(Z).max()), DPLogisticRegression(**stated))
    usual = make_pipeline(StandardScaler(), DPLogisticRegression(**stated))
    with warnings.catch_warnings(action="ignore"):
        across.fit(X, Y)
        usual.fit(X, Y)
    kinds = [
        {each.kind for each in private_score(model, X, Y, epsilon=1.0).guarantee.conditions}
        for model in (across, usual)
    ]
    assert kinds == [{"upstream-steps", "record-errors"}, {"record-errors"}]
    strict = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("s", epsilon=9.0, delta=0.0, strict=True)
    with pytest.raises(InvalidParameter, match="strict"):
        private_score(across, X, Y, epsilon=1.0, ledger=strict)
    assert not strict.history()


class _Derived(Normalizer):  # type: ignore[misc]
    pass


def across(Z: Any) -> Any:
    return Z / abs(Z).max()


STEPS: dict[str, tuple[Any, str]] = {
    "a function": (FunctionTransformer(across), "conditional"),
    "a derived class": (_Derived(), "conditional"),
    "a union": (
        FeatureUnion([("a", FunctionTransformer()), ("b", FunctionTransformer(across))]),
        "conditional",
    ),
    "columns by type": (
        ColumnTransformer([("a", "passthrough", make_column_selector(dtype_include=float))]),
        "conditional",
    ),
    "a scaler for the rest": (
        ColumnTransformer([("a", "passthrough", [0])], remainder=StandardScaler()),
        "conditional",
    ),
    "a normalizer": (Normalizer(), "refuses"),
    "columns": (
        ColumnTransformer([("a", PolynomialFeatures(2), [0])], remainder="passthrough"),
        "refuses",
    ),
    "nothing": (FunctionTransformer(), "row-wise"),
    "no step": ("passthrough", "row-wise"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_guarantee_after_a_step_is_unconditional_for_row_wise_steps_only(name: str, tmp_path: Path) -> None:
    """Z / abs(Z).max() learns nothing and keeps nothing, and one record moves every row."""
    step, kind = STEPS[name]
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("people", epsilon=100.0, delta=1e-3, strict=True)
    stated = {"data_norm": 2.0, "classes": [0, 1], "bad_rows": "zero"}
    table = pd.DataFrame(X) if isinstance(step, ColumnTransformer) else X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        privacy = (
            Pipeline([("step", step), ("model", DPLogisticRegression(**stated))]).fit(table, Y)[-1].privacy_
        )
    assert len(caught) == (kind == "conditional")
    kinds = {"conditional": ["upstream-steps"], "refuses": ["record-errors"], "row-wise": []}
    assert [each.kind for each in privacy.conditions] == kinds[kind]
    strictly = Pipeline([("step", step), ("model", DPLogisticRegression(**stated, ledger=strict))])
    if kind == "row-wise":
        strictly.fit(table, Y)
    else:
        with pytest.raises(InvalidParameter, match="this data set is strict, and the guarantee"):
            strictly.fit(table, Y)
        assert strict.history() == ()


def test_steps_of_the_list_are_row_wise() -> None:
    """Each row alone gives the same bits as among others; one of the others is exchanged for a large one."""
    rows = abs(X[:40, :2]) + 0.1
    other = rows.copy()
    other[7] = 1e6
    for step in (
        Normalizer(), Normalizer("l1"), Normalizer("max"), Binarizer(threshold=0.5), PolynomialFeatures(3),
        AdditiveChi2Sampler(), FunctionTransformer(),
        ColumnTransformer([("a", Normalizer(), [0, 1])], remainder="drop"),
        FeatureUnion([("a", Binarizer()), ("b", PolynomialFeatures(2))]),
    ):  # fmt: skip
        assert find_cross_row_steps(Pipeline([("step", step), ("last", None)])) == ()
        first, second = (step.fit_transform(table) for table in (rows, other))
        np.testing.assert_array_equal(np.delete(first, 7, 0), np.delete(second, 7, 0))
    words = ["a b", "c", "d e f"]
    for step in (HashingVectorizer(n_features=8), FeatureHasher(n_features=8, input_type="string")):
        given = words if isinstance(step, HashingVectorizer) else [word.split() for word in words]
        assert find_cross_row_steps(Pipeline([("step", step), ("last", None)]), True) == ()
        first, second = (step.fit_transform(rows).toarray() for rows in (given, [given[1], *given[1:]]))
        np.testing.assert_array_equal(first[1:], second[1:])


def test_rows_in_a_list_are_read_by_scikit_learn_as_a_whole() -> None:
    """One Python float among rows of single precision makes all of them double: Normalizer rounds otherwise."""
    rows = [list(row) for row in X.astype(np.float32)]
    other = [[0.5, 0.5], *rows[1:]]
    first, second = (Normalizer().fit_transform(table) for table in (rows, other))
    assert (first[1:] != second[1:]).any()
    with pytest.warns(UserWarning, match="normalizer of the pipeline reading"):
        make_pipeline(Normalizer(), DPLogisticRegression(data_norm=2.0, classes=[0, 1])).fit(rows, Y)


def test_a_pipeline_in_a_pipeline_and_a_derived_one_are_looked_into() -> None:
    stated = {"data_norm": 2.0, "classes": [0, 1], "bad_rows": "zero"}
    kinds = []
    for outer, inner in ((Pipeline, Pipeline), (Pipeline, PlainPipeline)):
        for first, second in (
            (FunctionTransformer(across), None),
            (None, FunctionTransformer(across)),
            (None, None),
        ):
            last = inner([("second", second), ("model", DPLogisticRegression(**stated))])
            with warnings.catch_warnings(action="ignore"):
                made = outer([("first", first), ("last", last)]).fit(X, Y)
            kinds.append([each.kind for each in made[-1][-1].privacy_.conditions])
            assert not vars(made[-1][-1]).keys() & {"_pipeline_conditions", "_call_conditions"}
    assert kinds == [["upstream-steps"], ["upstream-steps"], []] * 2

    class Derived(Pipeline):
        pass

    with pytest.warns(UserWarning, match="Derived of the pipeline"):
        Derived([("model", DPLogisticRegression(**stated))]).fit(X, Y)


@pytest.mark.skipif(parse_version(sklearn.__version__) < parse_version("1.9"), reason="no hook before 1.9")
def test_the_plain_pipeline_of_scikit_learn_is_a_condition_whatever_its_steps(tmp_path: Path) -> None:
    """Its last step gets a callback context, which does not hold the steps: too many conditions, never too few."""
    strict = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("s", epsilon=9.0, delta=1e-4, strict=True)
    stated = {"data_norm": 2.0, "classes": [0, 1], "bad_rows": "zero"}
    with pytest.warns(UserWarning, match=r"dplangevin\.Pipeline checks its steps"):
        made = PlainPipeline([("model", DPLogisticRegression(**stated))]).fit(X, Y)
    assert [each.kind for each in made[-1].privacy_.conditions] == ["upstream-steps"]
    with pytest.raises(InvalidParameter, match="strict"):
        PlainPipeline([("model", DPLogisticRegression(**stated, ledger=strict))]).fit(X, Y)
    checked = Pipeline([("model", DPLogisticRegression(**stated))])
    with pytest.warns(UserWarning, match="checks its steps"):
        PlainPipeline([("step", FunctionTransformer(across)), ("last", checked)]).fit(X, Y)
    assert not checked[-1].privacy_.is_unconditional
    assert not strict.history()
