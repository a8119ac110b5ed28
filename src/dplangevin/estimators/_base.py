"""What every estimator does: check public statements, plan without data, run, keep only what may be seen."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.data import Dataset, RecordReader
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators._begin import WithCallContext, anew, hanging, settle
from dplangevin.estimators._blocks import flat_directions
from dplangevin.estimators._documentation import Example, documented
from dplangevin.estimators._interval_plan import IntervalPlan, interval_share, plan_with_intervals
from dplangevin.estimators._learned_norm import fit_with_learned_norm
from dplangevin.estimators._monotone import check_monotone
from dplangevin.estimators._names import WithNames
from dplangevin.estimators._public import compare_public, fit_public
from dplangevin.estimators._raw import fit_raw
from dplangevin.estimators._reading import (
    UNBOUNDED_WEIGHTS,
    LargeData,
    Outline,
    TargetEncoder,
    by_name,
    check_column,
    column,
    dataset_of,
    features,
    is_table,
    large,
    numbers_of,
    outline_features,
)
from dplangevin.estimators.exports import WithExports
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, schema_of
from dplangevin.estimators.uncertainty import run_with_intervals
from dplangevin.families.mechanism import run
from dplangevin.families.mirror_descent.public_tuner import METHODS
from dplangevin.families.release import SEEDED, Release
from dplangevin.families.run_state import StatePath
from dplangevin.planner.choose import chosen
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Objective, Request
from dplangevin.privacy.conditions import Condition, merge_conditions
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.people import per_record
from dplangevin.privacy.spender import Spender
from dplangevin.problem import Loss, Problem
from dplangevin.schema.learned import LEARN, leaves_open
from dplangevin.tables import Table, table_of

FINITE_CELLS = Condition(
    kind="record-errors",
    text="every cell of X and y being a finite number: another one is an error, and that event is not covered; "
    "bad_rows='zero' avoids it",
)


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearModel(WithCallContext, WithNames, WithExports, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; not meant to be used by itself.

    Subclasses name their model for the planner and say how targets and parameters are encoded. Every parameter is a
    field: the `__init__` that scikit-learn reads is generated. Its documentation and
    an example are put in place of {shared} ({parameters} with their heading) and {example}.
    """

    _model: ClassVar[str]
    _own_parameters: ClassVar[str] = ""
    _example: ClassVar[Example]

    epsilon: float = 1.0
    delta: float | None = 1e-5
    data_norm: Any = None
    schema: Any = None
    radius: float | None = None
    alpha: float | None = None
    fit_intercept: bool = True
    adjacency: str = "replace-one"
    n: int | None = None
    mechanism: str = "auto"
    theorem: str | None = None
    objective: Objective = "empirical"
    weight_bound: float | None = None
    bad_rows: str | None = None
    max_rows_per_person: int = 1
    person: str | None = None
    intervals: bool | float = False
    secure: bool = False
    public_data: Any = None
    public_method: str = "mirror"
    compare: bool = False
    ledger: Spender | None = None
    random_state: Any = None
    state: StatePath = None
    verbose: bool = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__doc__ = documented(cls.__name__, cls.__doc__, cls._own_parameters, cls._example)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit under the stated guarantee: plan from public quantities, run once, keep only what may be seen.

        What lies outside the stated bounds is brought back, silently: labels outside `classes` count as the first
        class, targets are clipped to `target_bounds`, weights to `weight_bound`.
        """
        with anew(self):
            learned = self.learns()
            if learned == "norm":
                scaled: Self = fit_with_learned_norm(self, X, y, sample_weight)
                return scaled
            if learned == "schema" or self.person is not None:
                fitted: Self = fit_raw(self, X, y, sample_weight)
                return fitted
            outline = self.outline(X, y, sample_weight)
            encode = self.encoder(outline.labels)
            if self.schema is not None:
                check_monotone(self, encode.n_classes)
            request = self.request(self.divisor(outline.shape[0]), outline.shape[1], encode.n_classes)
            weighted = outline.weighted
            if weighted and self.weight_bound is None:
                warnings.warn(UNBOUNDED_WEIGHTS, UserWarning, stacklevel=2)
            if self.public_data is not None:
                theta, problem, loss = fit_public(self, outline, encode, request)
                return self.from_theta(theta, problem, loss)
            both: IntervalPlan | None = None
            if self.intervals is not False and (share := interval_share(self.intervals)):
                rows = self.max_rows_per_person
                loaded = weighted or encode.class_weights is not None
                stated = not isinstance(self.intervals, bool | np.bool_)
                recipe, both = plan_with_intervals(share, request, rows=rows, weighted=loaded, stated=stated)
            else:
                recipe = chosen(request)
                if self.max_rows_per_person != 1:
                    self.check_person(recipe.plan.guarantee)
            if recipe.caution is not None:
                warnings.warn(recipe.caution, UserWarning, stacklevel=2)
            if self.verbose:
                print(recipe)
            problem = recipe.plan.problem
            data = self.reader(outline, problem, encode)
            release = self._run(recipe, both, data)
            self.plan_ = recipe
            self.n_iter_ = release.n_steps
            if release.beside:
                self.geometry_ = dict(release.beside)
            self.ledger_head_ = release.ledger_head
            return self.from_theta(np.array(release.value), problem)

    def _run(self, recipe: Recipe, both: IntervalPlan | None, data: RecordReader) -> Release:
        """Charge and release; with intervals, the curvature too."""
        if both is not None:
            flat = None if self.schema is None else flat_directions(as_schema(schema_of(self)))
            release, self.uncertainty_ = run_with_intervals(
                both, data, self.random_state, self.ledger, self.state, self.max_rows_per_person, flat
            )
            self.privacy_ = self.promise(both.guarantee, release.seeded, both.words)
            return release
        release = run(
            recipe.plan,
            data,
            self.random_state,
            ledger=self.ledger,
            secure=bool(self.secure),
            state=self.state,
            rows_per_person=self.max_rows_per_person,
        )
        self.privacy_ = self.promise(recipe.plan.guarantee, release.seeded)
        return release

    def read(self, X: Any, y: Any, weights: Any = None) -> tuple[Any, Any, Any]:
        """Features, targets and weights as checked cells; what is public is refused first, and large data stay away."""
        return self.read_cells(self.outline(X, y, weights))

    def outline(self, X: Any, y: Any, weights: Any = None) -> Outline:
        """What is public of these records: shape, names and types of columns. What is wrong with them is refused here.

        No cell is read, except labels where a classifier's classes are not stated, which makes the guarantee
        conditional.
        """
        self.check_stated()
        if (isinstance(y, str) or isinstance(weights, str)) and is_table(X):
            X, y, weights = by_name(X, y, weights)
        self.prepare(X, y, weights)
        schema = None if self.schema is None else schema_of(self)
        found = large(X, y, weights, schema)
        if found is not None:
            X, shape = found, found.shape
        elif schema is None:
            shape = outline_features(self, X)
        else:
            X = X if isinstance(X, list | tuple) else table_of(X, as_schema(schema).names)
            if isinstance(X, Table):
                as_schema(schema).validate(X.names)
            shape = len(X), len(SchemaEncoder(schema).get_feature_names_out())
        if found is None:
            check_column(y, shape[0], "y")
            if weights is not None:
                check_column(weights, shape[0], "sample_weight")
        elif self.schema is None:
            self.n_features_in_ = shape[1]
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if self.schema is not None:
            names = as_schema(self.schema).names
            self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
        return Outline(
            X=X,
            y=y,
            weights=weights,
            shape=shape,
            weighted=weights is not None if found is None else found.weighted,
            labels=self._outline_targets(y, shape[0], found is not None),
        )

    def read_cells(self, outline: Outline) -> tuple[Any, Any, Any]:
        """Features, targets and weights as checked cells; large data stay away. After the charge."""
        X, rows = outline.X, outline.shape[0]
        away = isinstance(X, LargeData)
        if not away:
            X = self._encoded(X, reset=True)
        y = self._read_targets(outline.y, rows, away) if outline.labels is None else outline.labels
        weights = outline.weights
        if weights is not None and not away:
            weights = numbers_of(column(weights, rows, "sample_weight"), "sample_weight", self._total())
        return X, y, weights

    def reader(self, outline: Outline, problem: Problem, encode: TargetEncoder) -> RecordReader:
        """The records for a mechanism, which reads and clips them after the charge."""
        outline.check(problem, encode)

        def read() -> Dataset:
            X, y, weights = self.read_cells(outline)
            data = dataset_of(X, y, problem, encode, weights)
            if self.verbose:
                print(data.describe(problem.loss))
            return data

        return RecordReader(problem, read)

    def encoder(self, y: Any = None) -> TargetEncoder:
        """How targets become what the problem sees; y is looked at only for classes that are not stated."""
        raise NotImplementedError

    def from_theta(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        """Take the problem's parameters: coef_ and intercept_ in the units of the table.

        loss : the one that prediction is calibrated for, where it is not the problem's.
        """
        raise NotImplementedError

    def learns(self) -> str | None:
        """What a fit learns of the bounds, "norm" or "schema"; None where all of them are stated."""
        if isinstance(self.data_norm, str) and self.data_norm == LEARN:
            return "norm"
        return "schema" if self.schema is not None and leaves_open(self.schema) else None

    def check_stated(self) -> None:
        """Refuse what is publicly wrong about rows and targets, before any record is read."""
        self._norm()
        self.stated_targets()

    def stated_targets(self) -> tuple[Any, ...] | None:
        """What is public of the targets, their labels or their range; None where labels are to be read from y."""
        raise NotImplementedError

    def _outline_targets(self, y: Any, rows: int, away: bool) -> Any:
        """Labels that are read before the charge because their set is not stated; None where none are."""
        return None

    def _read_targets(self, y: Any, rows: int, away: bool) -> Any:
        """Targets as cells, one for each row; `away` leaves them where they are."""
        raise NotImplementedError

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        """Fields of the request that belong to the model."""
        return {}

    def compare_public(self, n: int) -> dict[str, float]:
        """What public data buys, before anything is spent: expected excess loss of public-only, warm-start and mirror.

        n is the public number of private rows. Computed on held-out public rows with simulated noise.
        """
        if self.public_data is None:
            raise InvalidParameter("compare_public needs public_data=(X_public, y_public).")
        return compare_public(self, n)

    def _largest_class_weight(self) -> float:
        """What weighs the heaviest class: 1 where there are no classes."""
        return 1.0

    def _check_secure(self) -> None:
        """Refuse what secure mode cannot do, before anything is planned."""
        if self.random_state is not None:
            raise InvalidParameter(
                "random_state must be left out with secure=True: secure noise comes from the operating system's "
                "cryptographic generator, and a seed would undo it."
            )
        if interval_share(self.intervals):
            raise InvalidParameter(
                "intervals have no secure form: they rest on objective perturbation, whose real-valued noise passes "
                "through a minimiser. Leave them out with secure=True."
            )

    def check_person(self, guarantee: Guarantee) -> None:
        """The promise to a person with several rows, before anything runs."""
        spent = guarantee.group(self.max_rows_per_person).epsilon()
        if not spent <= self.epsilon:
            raise CalibrationFailed(
                f"{self.max_rows_per_person} rows a person would cost epsilon = {spent:.6g}, above {self.epsilon:.6g}; "
                "leave theorem and mechanism to the planner."
            )

    def request(self, n: int, n_features: int, n_classes: int | None = None) -> Request:
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
                stacklevel=3,
            )
        secure = _check.flag("secure", self.secure)
        if secure:
            self._check_secure()
        own = self.public_data is None  # the public sample has a mechanism of its own
        _check.choice("public_method", self.public_method, METHODS)
        if own and self.compare:
            raise InvalidParameter(
                "compare needs public_data=(X_public, y_public); there is nothing to compare."
            )
        return Request(
            **{"model": self._model, **self._model_options(n_classes)},
            n=n,
            n_features=n_features,
            epsilon=epsilon if rows == 1 else per_record(epsilon, delta, rows),
            delta=delta,
            adjacency=self.adjacency,
            data_norm=self._norm(),
            # a schema adds a constant column of its own, inside the row norm
            fit_intercept=self.fit_intercept and self.schema is None,
            radius=self.radius,
            alpha=self.alpha,
            mechanism=self.mechanism if own else "auto",
            theorem=self.theorem if own else None,
            objective=self.objective,
            weight_bound=(1.0 if self.weight_bound is None else self.weight_bound)
            * self._largest_class_weight(),
            bad_rows="zero" if self._total() else "refuse",
            secure=secure,
            more_rows=self.n is not None and self.adjacency == "add-remove",
        )

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

    def promise(self, guarantee: Guarantee, seeded: bool, *more: str) -> Guarantee:
        """The guarantee to a person, with what this estimator's reading of the data assumes."""
        known = self.adjacency == "replace-one" and self.person is None
        words = ["the number of rows is public"] if known else []
        refused: tuple[Condition, ...] = ()
        if not self._total():
            refused = (FINITE_CELLS,)
        if seeded:
            words.append(SEEDED)
        conditions, besides = self.target_words()
        promised = replace(
            guarantee,
            conditions=merge_conditions(conditions, hanging(self), guarantee.conditions, refused),
            assumptions=(*guarantee.assumptions, *words, *more, *besides),
        )
        rows = self.max_rows_per_person
        return promised if rows == 1 else promised.group(rows)

    def target_words(self) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
        """The conditions that the reading of the targets brings, and what is assumed of them besides."""
        return (), ()

    def _strict(self) -> bool:
        """Whether the data set's budget is declared strict."""
        return bool(getattr(self.ledger, "strict", False))

    def divisor(self, rows: int) -> int:
        """The public divisor of the mean: stated, or the number of rows."""
        settle(self)
        if self.n is None and rows == 0:
            raise InvalidParameter("the table has no rows.")
        return rows if self.n is None else _check.count("n", self.n)

    def _bad_rows(self) -> str:
        """What becomes of a row that is no row of finite numbers; a strict data set never tells of one."""
        strict = self._strict()
        given = ("zero" if strict else "refuse") if self.bad_rows is None else self.bad_rows
        if strict and given == "refuse":
            raise InvalidParameter(
                "this data set is strict: bad_rows='refuse' would tell of single rows; leave it out, or say 'zero'."
            )
        return _check.choice("bad_rows", given, ("refuse", "zero"))

    def _total(self) -> bool:
        """Whether no record can raise: a schema has a rule for every cell."""
        return self._bad_rows() == "zero" or self.schema is not None

    def _encoded(self, X: Any, *, reset: bool) -> Any:
        """Features as checked numbers; a table is encoded by the schema."""
        schema = None if self.schema is None else schema_of(self)
        return features(self, X, reset) if schema is None else SchemaEncoder(schema).transform(X)

    def prepare(self, X: Any, y: Any, weights: Any) -> None:
        """What a fit works out from public quantities before any cell is read."""

    def _scores(self, X: Any) -> Floats:
        """Scores [rows, outputs] of the fitted parameters."""
        check_is_fitted(self)
        rows = self._encoded(X, reset=False)
        scores: Floats = rows @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores
