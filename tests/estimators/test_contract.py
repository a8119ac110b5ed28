"""What scikit-learn users expect, and what a private estimator must not do."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from dplangevin.errors import InvalidParameter
from dplangevin.estimators import EXPECTED_FAILED_CHECKS, DPLogisticRegression, DPRidge
from estimators._models import CLASSIFIERS, EVERY, REGRESSORS, made, table

parametrised = pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)


@parametrised
def test_scikit_learn_checks(cls: type) -> None:
    bounds = {"target_bounds": (0.0, 500.0)} if cls.__name__ == "DPPoissonRegressor" else {}
    if cls in REGRESSORS and not bounds:
        bounds = {"target_bounds": (-500.0, 500.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            made(cls, epsilon=8.0, data_norm=10.0, **bounds),
            expected_failed_checks=EXPECTED_FAILED_CHECKS,
            on_fail=None,
        )
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    expected = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert expected <= set(EXPECTED_FAILED_CHECKS)
    assert sum(r["status"] == "passed" for r in results) > 45


@parametrised
def test_the_guarantee_is_kept_and_reported(cls: type) -> None:
    X, y = table(cls)
    for delta, adjacency in (
        (1e-6, "replace-one"),
        (1e-6, "add-remove"),
        (0.0, "replace-one"),
        (None, "add-remove"),
    ):
        model = made(cls, delta=delta, adjacency=adjacency, epsilon=1.5).fit(X, y)
        assert model.privacy_.epsilon(delta or 0.0) <= 1.5
        assert model.privacy_.epsilon(delta or 0.0) > 1.4  # nothing is wasted
        assert model.privacy_.adjacency == adjacency
        assert any("number of rows" in words for words in model.privacy_.hypotheses)
        assert "random_state" in " ".join(model.privacy_.assumptions)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.intercept_).all()
        assert len(str(model.plan_)) > 100


@parametrised
def test_noise_is_fresh_unless_seeded(cls: type) -> None:
    X, y = table(cls)
    first, second = made(cls, random_state=None).fit(X, y), made(cls, random_state=None).fit(X, y)
    assert not np.array_equal(first.coef_, second.coef_)
    assert "random_state" not in " ".join(first.privacy_.assumptions)
    np.testing.assert_array_equal(made(cls).fit(X, y).coef_, made(cls).fit(X, y).coef_)


@parametrised
def test_clone_pickle_pipeline_and_cross_validation(cls: type) -> None:
    X, y = table(cls)
    model = made(cls)
    pipeline = make_pipeline(FunctionTransformer(lambda rows: rows / 2), clone(model))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    fitted = clone(model).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


@parametrised
def test_no_fitted_attribute_holds_a_private_value(cls: type) -> None:
    """Walk the fitted object: any array must be the released model; any number must not depend on the rows."""
    X, y = table(cls, n=397)
    other_X, other_y = table(cls, n=397, seed=9)
    one, two = made(cls, random_state=3).fit(X, y), made(cls, random_state=3).fit(other_X, other_y)
    released = {
        "coef_",
        "intercept_",
        "geometry_",
        "n_iter_",
    }  # the first noisy gradients set how many steps follow
    for name, value in vars(one).items():
        if name in released:
            continue
        assert pickle.dumps(value) == pickle.dumps(getattr(two, name)), f"{name} depends on the data"
    assert not np.array_equal(one.coef_, two.coef_)


@parametrised
def test_missing_bounds_are_an_error_before_any_data_is_read(cls: type) -> None:
    class Untouchable:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the data was read")

        @property
        def shape(self) -> Any:
            raise AssertionError("the data was read")

    with pytest.raises(InvalidParameter, match="data_norm"):
        made(cls, data_norm=None).fit(Untouchable(), Untouchable())
    if cls in REGRESSORS:
        with pytest.raises(InvalidParameter, match="target_bounds"):
            made(cls, target_bounds=None).fit(Untouchable(), Untouchable())


@parametrised
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.0}, "epsilon"), ({"epsilon": -1}, "epsilon"), ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"), ({"data_norm": 0.0}, "data_norm"), ({"mechanism": "magic"}, "mechanism"),
        ({"adjacency": "swap"}, "adjacency"), ({"random_state": -1}, "random_state"),
        ({"max_rows_per_person": 0}, "max_rows_per_person"), ({"weight_bound": 0.0}, "weight_bound"),
        ({"alpha": -1.0}, "alpha|ridge"), ({"radius": 0.0}, "radius"), ({"theorem": "magic"}, "theorem"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(cls: type, changes: dict[str, Any], words: str) -> None:
    X, y = table(cls, n=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidParameter, match=words):
            made(cls, **changes).fit(X, y)


def test_messages_hold_no_data_value() -> None:
    X, y = table(DPRidge)
    X[3, 1] = 123456.789
    with pytest.raises(ValueError) as caught:
        made(DPRidge).fit(np.where(X > 1000, np.nan, X), y)
    assert "123456" not in str(caught.value)
    with pytest.raises(ValueError) as caught:
        made(DPRidge).fit(sparse.csr_array(np.where(X > 1000, np.nan, X)), y)
    assert "123456" not in str(caught.value)


def test_person_level_guarantee_costs_more_noise() -> None:
    X, y = table(DPLogisticRegression)
    one, five = (made(DPLogisticRegression, max_rows_per_person=k).fit(X, y) for k in (1, 5))
    assert five.privacy_.epsilon(1e-6) <= 2.0
    assert five.plan_.plan.guarantee.epsilon() < one.plan_.plan.guarantee.epsilon() / 4
    assert any("at most 5" in words for words in five.privacy_.assumptions)


def test_too_few_rows_for_the_budget_warn_with_what_would_do() -> None:
    X, y = table(DPLogisticRegression, n=60)
    with pytest.warns(UserWarning, match="about n = .* rows, or an epsilon"):
        made(DPLogisticRegression, epsilon=0.05).fit(X, y)


def test_large_delta_warns() -> None:
    X, y = table(DPLogisticRegression)
    with pytest.warns(UserWarning, match="1/n"):
        made(DPLogisticRegression, delta=0.01).fit(X, y)


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_labels_outside_the_public_set_change_nothing_visible(cls: type) -> None:
    X, y = table(cls)
    names = np.array(["no", "yes", "other"])[np.where(np.arange(len(y)) < 5, 2, y)]
    model = made(cls, classes=["no", "yes"]).fit(X, names)
    assert list(model.classes_) == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}
    constant = made(cls, classes=["no", "yes"]).fit(X, np.full(len(y), "no"))
    assert list(constant.classes_) == ["no", "yes"]
    assert made(cls).fit(X, y).privacy_.conditions[0].kind == "public-labels"


def test_probabilities() -> None:
    X, y = table(DPLogisticRegression, n=3000)
    for classes, target in ((2, y), (3, (y + (X[:, 2] > 0.5)).astype(int))):
        model = made(DPLogisticRegression, epsilon=8.0).fit(X, target)
        probabilities = model.predict_proba(X)
        assert probabilities.shape == (3000, classes)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        assert np.all((probabilities > 0) & (probabilities < 1))
        np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X))
        assert model.score(X, target) > 0.7


@parametrised
def test_sample_weights_are_clipped_and_count(cls: type) -> None:
    X, y = table(cls)
    huge = made(cls).fit(X, y, sample_weight=np.full(len(y), 1e9))
    one = made(cls).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(huge.coef_, one.coef_)
    none = made(cls).fit(X, y, sample_weight=np.zeros(len(y)))
    assert not np.allclose(none.coef_, one.coef_)


def test_feature_names_and_frames() -> None:
    import pandas as pd

    X, y = table(DPRidge)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = made(DPRidge).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["c", "b", "a"]])


@parametrised
def test_help_names_every_parameter_and_nothing_is_left_out(cls: type) -> None:
    text = cls.__doc__ or ""
    before_colons = " ".join(line.split(" : ")[0] for line in text.splitlines() if " : " in line)
    assert set(cls().get_params()) <= set(before_colons.replace(",", " ").split())
    assert "{shared}" not in text
    assert "{parameters}" not in text
    assert "{example}" not in text
    assert "standard_errors_" in text


@parametrised
def test_searches_and_settings_reach_every_parameter(cls: type) -> None:
    model = made(cls)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(epsilon=3.0).epsilon == 3.0
    assert repr(model).startswith(f"{cls.__name__}(")
    assert set(vars(model)) == set(model.get_params())  # nothing else is set before fit
    X, y = table(cls, 120)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = GridSearchCV(made(cls), {"epsilon": [1.0, 8.0]}, cv=2).fit(X, y)
    assert found.best_params_["epsilon"] in (1.0, 8.0)


@parametrised
def test_an_estimator_is_its_request_its_encoder_and_its_theta(cls: type) -> None:
    """The public road that intervals, public data and Rashomon sets take."""
    X, y = table(cls, 50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made(cls)
        rows, targets, weights = model.read_records(X, y)
    encode = model.target_encoder(targets)
    problem = model.planning_request(50, rows.shape[1], encode.n_classes).make_problem(1.0, 0.1)
    low, high = problem.bounds.label_range
    encoded = encode(targets)
    assert weights is None
    assert encoded.shape == (50,)
    assert low - 1e-12 <= encoded.min() <= encoded.max() <= high + 1e-12
    assert np.isfinite(
        model.set_coefficients(np.zeros(problem.dimension), problem).predict(X[:1]).astype(float)
    ).all()
    assert pickle.loads(pickle.dumps(encode)) == encode
