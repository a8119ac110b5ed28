"""What every estimator does: check public statements, plan without data, run, keep only what may be seen."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators._interval_plan import interval_share, plan_with_intervals
from dplangevin.estimators._large import Encode, LargeData, dataset_of, large
from dplangevin.estimators._names import WithNames
from dplangevin.estimators._public import check_without_public, compare_public, fit_public
from dplangevin.estimators._reading import column, features, numbers_of
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.estimators.uncertainty import run_with_intervals
from dplangevin.families.release import SEEDED
from dplangevin.families.run import run
from dplangevin.families.run_state import StatePath
from dplangevin.planner.choose import choose
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem import Loss

Floats = NDArray[np.float64]


class DPLinearModel(WithNames, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; not meant to be used by itself.

    Subclasses name their model for the planner and turn targets into what the problem sees.
    """

    _model: ClassVar[str]

    # Parameters that every subclass stores in __init__.
    epsilon: float
    delta: float | None
    data_norm: float | None
    schema: Any
    radius: float | None
    alpha: float | None
    fit_intercept: bool
    adjacency: str
    mechanism: str
    theorem: str | None
    weight_bound: float | None
    bad_rows: str | None = None
    n: int | None = None
    max_rows_per_person: int
    intervals: Any = False
    secure: bool = False
    public_data: Any = None
    public_method: str = "mirror"
    compare: bool = False
    ledger: Any
    random_state: Any
    state: StatePath = None
    verbose: bool

    def _fit(self, X: Any, y: Any, sample_weight: Any, encode: Encode, **model_options: Any) -> Floats:
        """Plan from public quantities, run once, and return the parameters as a matrix [columns, scores].

        `encode` turns targets, private and public ones, into what the problem sees.
        """
        options = self._options(self._divisor(len(X)), X.shape[1], **model_options)
        weights, weighted = None, sample_weight is not None
        if isinstance(X, LargeData):
            weighted = X.weighted
        elif sample_weight is not None:
            given = column(sample_weight, len(X), "sample_weight")
            weights = numbers_of(given, "sample_weight", self._total())
        if weighted and self.weight_bound is None:
            warnings.warn(
                "sample_weight is given without weight_bound: weights above 1 are clipped to 1. State weight_bound, "
                "from public knowledge.",
                UserWarning,
                stacklevel=3,
            )
        if self.public_data is not None:
            return fit_public(self, X, y, weights, encode, options)
        check_without_public(self)
        share, both = interval_share(self.intervals), None
        self.__dict__.pop("uncertainty_", None)
        if share:
            recipe, both = plan_with_intervals(
                share, options, rows=self.max_rows_per_person, weighted=weighted
            )
        else:
            recipe = choose(**options)
        if recipe.caution is not None:
            warnings.warn(recipe.caution, UserWarning, stacklevel=3)
        if self.verbose:
            print(recipe)
        problem = recipe.plan.problem
        data = dataset_of(X, y, problem, encode, weights)
        if self.verbose:
            print(data.describe(problem.loss))
        if both is None:
            self._check_person(recipe.plan.guarantee)
            release = run(
                recipe.plan,
                data,
                self.random_state,
                ledger=self.ledger,
                secure=self._secure(),
                state=self.state,
                rows_per_person=self.max_rows_per_person,
            )
            self.privacy_ = self._promise(recipe.plan.guarantee, release.seeded)
        else:
            release, self.uncertainty_ = run_with_intervals(
                both, data, self.random_state, self.ledger, self.state, self.max_rows_per_person
            )
            self.privacy_ = self._promise(both.guarantee, release.seeded, both.words)
        self.plan_ = recipe
        self.n_iter_ = release.n_steps
        self.ledger_head_ = release.ledger_head
        self._keep(problem.loss)
        return np.array(release.value).reshape(problem.n_columns, problem.loss.score_dimension)

    def _secure(self) -> bool:
        """Whether secure mode is asked for; what it cannot do is refused before anything is planned."""
        secure = _check.flag("secure", self.secure)
        if secure and self.random_state is not None:
            raise InvalidParameter(
                "random_state must be left out with secure=True: secure noise comes from the operating system's "
                "cryptographic generator, and a seed would undo it."
            )
        if secure and interval_share(self.intervals):
            raise InvalidParameter(
                "intervals have no secure form: they rest on objective perturbation, whose real-valued noise passes "
                "through a minimiser. Leave them out with secure=True."
            )
        return secure

    def _check_person(self, guarantee: Guarantee) -> None:
        """The promise to a person with several rows, before anything runs."""
        spent = guarantee.group(self.max_rows_per_person).epsilon()
        if not spent <= self.epsilon:
            raise CalibrationFailed(
                f"{self.max_rows_per_person} rows a person would cost epsilon = {spent:.6g}, above {self.epsilon:.6g}; "
                "leave theorem and mechanism to the planner."
            )

    def compare_public(self, n: int) -> dict[str, float]:
        """What public data buys, before anything is spent: expected excess loss of public-only, warm-start and mirror.

        n is the public number of private rows. Computed on held-out public rows with simulated noise.
        """
        if self.public_data is None:
            raise InvalidParameter("compare_public needs public_data=(X_public, y_public).")
        encode, model_options = self._encoder(self.public_data[1])
        return compare_public(self, n, encode, model_options)

    def _encoder(self, y: Any) -> tuple[Encode, dict[str, Any]]:
        """How targets become what the problem sees, and what the planner is told of them."""
        raise NotImplementedError

    def _keep(self, loss: Loss) -> None:
        """Store what prediction needs of the loss."""

    def _options(
        self, n: int, n_features: int, *, model: str | None = None, **model_options: Any
    ) -> dict[str, Any]:
        """What the planner is told about data of this shape. No record is read."""
        rows = _check.count("max_rows_per_person", self.max_rows_per_person)
        delta = 0.0 if self.delta is None else self.delta
        if delta != 0:
            _check.open_unit("delta", delta)
        epsilon = _check.positive("epsilon", self.epsilon)
        if delta >= 1 / n:
            warnings.warn(
                f"delta = {delta:g} is not below 1/n = {1 / n:g}: a mechanism that publishes one random record "
                "whole would satisfy it. Choose a smaller delta.",
                UserWarning,
                stacklevel=4,
            )
        return {
            "model": model or self._model,
            "n": n,
            "n_features": n_features,
            "epsilon": _per_record(epsilon, delta, rows),
            "delta": delta,
            "adjacency": self.adjacency,
            "data_norm": self._norm(),
            "fit_intercept": self._intercept(),
            "radius": self.radius,
            "alpha": self.alpha,
            "mechanism": self.mechanism,
            "theorem": self.theorem,
            "weight_bound": 1.0 if self.weight_bound is None else self.weight_bound,
            "bad_rows": "zero" if self._total() else "refuse",
            **({"secure": True} if self._secure() else {}),
            **model_options,
        }

    def _norm(self) -> float:
        """The stated bound on a row, before any data is read."""
        if self.schema is not None:
            if self.data_norm is not None:
                raise InvalidParameter(
                    "data_norm and schema are both given; the schema states its own row_norm."
                )
            return as_schema(self.schema).row_norm
        if self.data_norm is None:
            raise InvalidParameter(
                f"{type(self).__name__} needs data_norm, a stated bound on the norm of a row of X, or a schema: rows "
                "beyond the bound are scaled back, and it is never measured from the data (that would leak). For "
                "features scaled to [-1, 1] state data_norm=n_features ** 0.5."
            )
        return _check.positive("data_norm", self.data_norm)

    def _intercept(self) -> bool:
        """A schema adds a constant column of its own, inside the row norm."""
        return self.fit_intercept and self.schema is None

    def _promise(self, guarantee: Guarantee, seeded: bool, *more: str) -> Guarantee:
        words = ["the number of rows is public"] if self.n is None or self.adjacency == "replace-one" else []
        if not self._total():
            words.append(
                "X and y were checked to be finite numbers of the right shape; that check is outside the guarantee"
            )
        if seeded:
            words.append(SEEDED)
        guarantee = replace(
            guarantee,
            assumptions=(
                *self._conditions(),
                *guarantee.assumptions,
                *words,
                *more,
                *self._public_words(),
            ),
        )
        return guarantee.group(self.max_rows_per_person)

    def _conditions(self) -> tuple[str, ...]:
        """What the whole promise hangs on: its first line."""
        return ()

    def _public_words(self) -> tuple[str, ...]:
        return ()

    def _strict(self) -> bool:
        """Whether the data set's budget is declared strict; a sampler of many models says so for its estimator."""
        return bool(getattr(self.ledger, "strict", False) or self.__dict__.get("_strict_data", False))

    def _divisor(self, rows: int) -> int:
        """The public divisor of the mean: stated, or the number of rows."""
        return rows if self.n is None else _check.count("n", self.n)

    def _bad_rows(self) -> str:
        """What becomes of a row that is no row of finite numbers; a strict data set never tells of one."""
        default = "zero" if self._strict() else "refuse"
        given = default if self.bad_rows is None else self.bad_rows
        return _check.choice("bad_rows", given, ("refuse", "zero"))

    def _total(self) -> bool:
        """Whether no record can raise: a schema has a rule for every cell."""
        return self._bad_rows() == "zero" or self.schema is not None

    def _validated(self, X: Any, y: Any = None, weights: Any = None, *, reset: bool = True) -> Any:
        """Features as checked numbers; a table is encoded by the schema. Large data stay away."""
        found = large(X, y, weights, self.schema) if reset else None
        if found is None and self.schema is None:
            return features(self, X, reset)
        rows = SchemaEncoder(self.schema).transform(X) if found is None else found
        if reset and self.schema is not None:
            names = as_schema(self.schema).names
            self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        elif reset:
            self.n_features_in_ = rows.shape[1]
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        return rows

    def _scores(self, X: Any) -> Floats:
        """Scores [rows, outputs] of the fitted parameters."""
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        scores: Floats = rows @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores


def _per_record(epsilon: float, delta: float, rows: int) -> float:
    """The epsilon one record may cost so that a person's `rows` records together cost epsilon."""
    if rows == 1:
        return epsilon
    if delta == 0:
        return epsilon / rows
    mu = cv.gdp_mu(epsilon, delta) / rows
    return math.nextafter(cv.gdp_epsilon(mu, delta), 0.0)
