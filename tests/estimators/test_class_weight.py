"""class_weight: stated, counted in every sensitivity, the same in every home of records."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.svm import LinearSVC

from dplangevin import DPLinearSVC, DPLogisticRegression
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._reading import LabelEncoder


def data(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    return X, (X[:, 0] + rng.standard_normal(n) > 1).astype(int)


def model(cls: Any = DPLogisticRegression, **options: Any) -> Any:
    stated = {"epsilon": 4.0, "delta": 1e-6, "data_norm": 1.5, "classes": [0, 1], "random_state": 0}
    return cls(**{**stated, **options})


@pytest.mark.parametrize("cls", [DPLogisticRegression, DPLinearSVC])
def test_weights_count_in_the_sensitivity_and_move_the_fit(cls: Any) -> None:
    X, y = data()
    plain, heavy = model(cls).fit(X, y), model(cls, class_weight={1: 3.0}).fit(X, y)
    constants = heavy.plan_.plan.problem
    assert constants.bounds.weight_bound == 3.0
    assert constants.constants.lipschitz / constants.loss.slope_bound == pytest.approx(
        3 * plain.plan_.plan.problem.constants.lipschitz / plain.plan_.plan.problem.loss.slope_bound
    )
    assert heavy.predict(X).mean() > plain.predict(X).mean() + 0.05
    assert heavy.privacy_.epsilon() <= 4.0
    assert "sample weights are clipped to [0, 3]" in " ".join(heavy.privacy_.assumptions)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mechanism": "objective-perturbation"},
        pytest.param({"mechanism": "noisy-sgd"}, marks=pytest.mark.slow),
        {"delta": 0.0},
    ],
)
def test_support_vectors_of_several_classes(options: dict[str, Any]) -> None:
    """Near the hinge loss of Crammer and Singer without noise, and weights of classes count there too."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (4000, 3))
    y = (4 * X @ rng.normal(size=(3, 4)) + rng.gumbel(size=(4000, 4))).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # near enough
        exact = LinearSVC(multi_class="crammer_singer", max_iter=500).fit(X, y).score(X, y)
    found = model(DPLinearSVC, classes=[0, 1, 2, 3], **options).fit(X, y)
    assert found.coef_.shape == (4, 3)
    assert found.score(X, y) > exact - 0.04
    assert found.privacy_.epsilon() <= 4.0
    heavy = model(DPLinearSVC, classes=[0, 1, 2, 3], class_weight={3: 4.0}, **options).fit(X, y)
    assert (heavy.predict(X) == 3).mean() > (found.predict(X) == 3).mean()
    assert heavy.plan_.plan.problem.constants.lipschitz == pytest.approx(
        4 * found.plan_.plan.problem.constants.lipschitz
    )


def test_class_weights_are_sample_weights() -> None:
    """The same release as with the sample weights that they stand for, and the product with stated ones."""
    X, y = data()
    by_class = model(class_weight={1: 2.0, 0: 0.5}).fit(X, y)
    by_row = model(weight_bound=2.0).fit(X, y, sample_weight=np.where(y == 1, 2.0, 0.5))
    assert np.array_equal(by_class.coef_, by_row.coef_)
    both = model(class_weight={1: 2.0}, weight_bound=1.5).fit(X, y, sample_weight=np.full(len(y), 9.0))
    same = model(weight_bound=3.0).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.5))
    assert np.array_equal(both.coef_, same.coef_)
    light = model(class_weight={0: 0.5, 1: 0.25}).fit(X, y)
    assert light.plan_.plan.problem.bounds.weight_bound == 0.5


@pytest.mark.filterwarnings("ignore")
def test_a_label_that_no_weight_names_weighs_one_where_labels_are_read() -> None:
    """Weights of a half for one label bound nothing: the other label's is 1."""
    X, y = data()
    read = model(class_weight={1: 0.5}, classes=None).fit(X, y)
    assert read.plan_.plan.problem.bounds.weight_bound == 1.0


def test_every_home(tmp_path: Path) -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    table.to_parquet(tmp_path / "t.parquet")
    here = model(class_weight={1: 2.0}).fit(X, y)
    there = model(class_weight={1: 2.0}).fit(tmp_path / "t.parquet", "y")
    assert np.allclose(here.coef_, there.coef_, rtol=1e-9)


@pytest.mark.parametrize("options", [{"class_weight": {1: 2.0}}, {"person": "a", "n_public": 9}])
def test_rashomon_sets_refuse_what_they_would_not_count(options: dict[str, Any]) -> None:
    from dplangevin.rashomon import RashomonSampler

    sampler = RashomonSampler(model(radius=1.0, **options), thresholds=0.1, n_models=2, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="no guarantee is proved for it"):
        sampler.fit(*data(200))


def test_no_record_weighs_more_than_the_bound() -> None:
    encode = LabelEncoder(
        classes=np.array(["a", "b"]),
        labels={"a": 0, "b": 1},
        text=False,
        n_classes=2,
        class_weights=(0.5, 4.0),
        weight_bound=2.0,
    )
    labels = encode(["a", "b", "odd", None, "b"])
    loads = encode.row_weights(labels, np.array([1e300, 1e300, -5.0, 1.0, 1.0]))
    assert loads.tolist() == [1.0, 8.0, 0.0, 0.5, 4.0]
    assert encode.row_weights(labels, None).tolist() == [0.5, 4.0, 0.5, 0.5, 4.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"class_weight": "balanced"}, "would count the classes"),
        ({"class_weight": {2: 1.0}}, "not one of the classes"),
        ({"class_weight": {1: -1.0}}, "class_weight"), ({"class_weight": {}}, "dictionary"),
        ({"class_weight": [1, 2]}, "dictionary"), ({"class_weight": {1: 3.0, "1": 9.0}}, "twice"),
        ({"class_weight": {0: 0.5}, "intervals": True}, "equally weighted"),
        ({"class_weight": {0: 0.5}, "public_data": data(50)}, "public_data"),
    ],
)  # fmt: skip
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        model(**options).fit(*data(200))
