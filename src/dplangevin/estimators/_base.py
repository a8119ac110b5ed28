"""Base class of the estimators: check public inputs, plan without data, run once, store only what is released."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._templates import render_pairs
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Condition, Guarantee, epsilon_per_record, merge_conditions
from dplangevin.data import Dataset, RecordReader
from dplangevin.data.integer_grids import RowGrid
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators._documentation import DocExample, fill_docstring
from dplangevin.estimators._posterior import (
    IntervalPlan,
    interval_assumption,
    interval_budget_fraction,
    plan_with_intervals,
)
from dplangevin.estimators._public_data import compare_public_methods, fit_with_public_data
from dplangevin.estimators._raw_fit import (
    fit_raw_table,
    fit_with_learned_count,
    fit_with_learned_norm,
)
from dplangevin.estimators._reading import (
    UNBOUNDED_WEIGHTS_MESSAGE,
    Outline,
    OutOfMemoryData,
    TargetEncoder,
    build_dataset,
    check_column,
    is_table,
    open_computed_records,
    open_large_data,
    outline_features,
    read_column,
    read_features,
    read_numbers,
    split_named_columns,
)
from dplangevin.estimators.call_context import (
    WithCallContext,
    check_fit_conditions,
    fit_conditions,
    learns_row_count,
    reset_fitted_attributes,
)
from dplangevin.estimators.exports import ExportMixin, FeatureNamesMixin
from dplangevin.estimators.schema_encoder import (
    SchemaEncoder,
    as_schema,
    check_monotone,
    encoding_schema,
    flat_directions,
    row_scale,
)
from dplangevin.estimators.uncertainty import geometry_of_release, run_with_intervals
from dplangevin.mechanisms.mechanism import SEEDED_MESSAGE, Release, check_seed, run_plan
from dplangevin.mechanisms.mirror_descent.tuning import TUNING_METHODS
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.planner.fit_plan import FitPlan, Request, RiskObjective, model_losses, plan_request
from dplangevin.problem import Loss, Problem
from dplangevin.schema.learned import is_learnable
from dplangevin.schema.schema import LEARN
from dplangevin.tables import Table, as_table

FINITE_CELLS = Condition(
    kind="record-errors",
    text="every cell of X and y being a finite number: any other cell raises an error, and that event is not "
    "covered; bad_rows='zero' avoids it",
)


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearModel(WithCallContext, FeatureNamesMixin, ExportMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators; not meant to be used by itself.

    Subclasses name their model for the planner and define how targets and parameters are encoded. Every parameter is
    a field, from which the `__init__` that scikit-learn inspects is generated. In the docstrings of subclasses the
    shared documentation replaces {shared} ({parameters} includes the heading), and an example replaces {example}.
    """

    _model: ClassVar[str]
    _own_parameters_doc: ClassVar[str] = ""
    _example: ClassVar[DocExample]

    epsilon: float = 1.0
    delta: float | None = 1e-5
    data_norm: Any = None
    schema: Any = None
    radius: float | None = None
    alpha: float | None = None
    fit_intercept: bool = True
    adjacency: str = "replace-one"
    n_public: Any = None
    mechanism: str = "auto"
    mechanism_options: Any = None
    theorem: str | None = None
    objective: RiskObjective = "empirical"
    weight_bound: float | None = None
    bad_rows: str | None = None
    max_rows_per_person: int = 1
    person: str | None = None
    intervals: bool = False
    interval_budget: float | None = None
    secure: bool | None = None
    public_data: Any = None
    public_method: str = "mirror"
    compare: bool = False
    ledger: BudgetAccount | None = None
    random_state: Any = None
    checkpoint: CheckpointPath = None
    verbose: bool = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__doc__ = fill_docstring(cls.__name__, cls.__doc__, cls._own_parameters_doc, cls._example)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit under the stated guarantee: plan from public quantities, charge the budget, release once.

        Values outside the stated bounds are brought inside without a message, which would depend on the data: labels
        outside `classes` count as the first class, targets are clipped to `target_bounds`, weights to `weight_bound`.

        Parameters
        ----------
        X : features: an array or tensor, a table, a dictionary of columns, a path of files, a `TableQuery`, a lazy
            frame, or a Dask collection.
        y : targets, or the name of their column.
        sample_weight : weights, or the name of their column; None weighs every record by 1.
        """
        with reset_fitted_attributes(self), open_computed_records(self, X, y) as X:
            learned_bounds = self.learned_bounds()
            if learned_bounds == "norm":
                scaled: Self = fit_with_learned_norm(self, X, y, sample_weight)
                return scaled
            if learns_row_count(self):
                counted: Self = fit_with_learned_count(self, X, y, sample_weight)
                return counted
            if learned_bounds == "schema" or self.person is not None:
                fitted: Self = fit_raw_table(self, X, y, sample_weight)
                return fitted
            outline = self.outline(X, y, sample_weight)
            encode = self.target_encoder(outline.labels)
            if self.schema is not None:
                check_monotone(self, encode.n_classes)
            request = self.planning_request(
                self.public_divisor(outline.shape[0]), outline.shape[1], encode.n_classes
            )
            weighted = outline.weighted
            if weighted and self.weight_bound is None:
                warnings.warn(UNBOUNDED_WEIGHTS_MESSAGE, UserWarning, stacklevel=2)
            if self.public_data is not None:
                theta, problem, loss = fit_with_public_data(self, outline, encode, request)
                return self.set_coefficients(theta, problem, loss)
            interval_plan: IntervalPlan | None = None
            if budget_fraction := interval_budget_fraction(self):
                rows = self.max_rows_per_person
                has_weights = weighted or encode.class_weights is not None
                is_fraction_stated = self.interval_budget is not None
                fit_plan, interval_plan = plan_with_intervals(
                    budget_fraction,
                    request,
                    rows_per_person=rows,
                    weighted=has_weights,
                    is_fraction_stated=is_fraction_stated,
                )
            else:
                fit_plan = plan_request(request)
            if interval_plan is None and self.max_rows_per_person != 1:
                self.check_group_privacy(fit_plan.plan.guarantee)
            if fit_plan.warning is not None:
                warnings.warn(fit_plan.warning, UserWarning, stacklevel=2)
            if self.verbose:
                print(fit_plan)
            problem = fit_plan.plan.problem
            data = self.reader(outline, problem, encode, is_single_use=interval_plan is None)
            release = self._release_fit(fit_plan, interval_plan, data)
            self.plan_ = fit_plan
            self.n_iter_ = release.n_steps
            if release.auxiliary:
                self.geometry_ = geometry_of_release(release)
            self.ledger_head_ = release.ledger_head
            return self.set_coefficients(np.array(release.value), problem)

    def _release_fit(
        self, fit_plan: FitPlan, interval_plan: IntervalPlan | None, data: RecordReader
    ) -> Release:
        """Charge the budget and release the fit; with intervals, also the curvature."""
        if interval_budget_fraction(self):
            flat = None if self.schema is None else flat_directions(as_schema(encoding_schema(self)))
            release, self.uncertainty_ = run_with_intervals(
                fit_plan.plan if interval_plan is None else interval_plan,
                data,
                self.random_state,
                self.ledger,
                self.checkpoint,
                self.max_rows_per_person,
                flat,
            )
            guarantee = fit_plan.plan.guarantee if interval_plan is None else interval_plan.guarantee
            self.privacy_ = self.guarantee_of_fit(
                guarantee, release.seeded, interval_assumption(fit_plan.plan.problem)
            )
            return release
        release = run_plan(
            fit_plan.plan,
            data,
            self.random_state,
            ledger=self.ledger,
            secure=bool(self.secure),
            checkpoint=self.checkpoint,
            rows_per_person=self.max_rows_per_person,
        )
        self.privacy_ = self.guarantee_of_fit(fit_plan.plan.guarantee, release.seeded)
        return release

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._guarantee_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._guarantee_html()
        return bundle

    def _guarantee_html(self) -> str:
        """Return the guarantee of the fit for notebooks; before a fit, what will be asked for."""
        guarantee = getattr(self, "privacy_", None)
        if guarantee is not None:
            return str(guarantee._repr_html_())
        pairs = [("epsilon", self.epsilon), ("delta", self.delta or 0), ("neighbours", self.adjacency)]
        return render_pairs("Not fitted; a fit will satisfy", pairs)

    def read_records(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return features, targets and weights as checked cells; public errors come first, large data stay unread."""
        return self.read_cells(self.outline(X, y, sample_weight))

    def outline(self, X: Any, y: Any, weights: Any = None) -> Outline:
        """Return what is public about these records (shape, column names and types); raise if that is invalid.

        No cell is read, except labels where a classifier's classes are not stated, which makes the guarantee
        conditional.
        """
        self.check_public_inputs()
        if (isinstance(y, str) or isinstance(weights, str)) and is_table(X):
            X, y, weights = split_named_columns(X, y, weights)
        self.complete_schema(X, y, weights)
        schema = None if self.schema is None else encoding_schema(self)
        large_data = open_large_data(X, y, weights, schema)
        if large_data is not None:
            X, shape = large_data, large_data.shape
        elif schema is None:
            shape = outline_features(self, X)
        else:
            X = X if isinstance(X, list | tuple) else as_table(X, as_schema(schema).names)
            if isinstance(X, Table):
                as_schema(schema).validate(X.names)
            shape = len(X), len(SchemaEncoder(schema).get_feature_names_out())
        if large_data is None:
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
            weighted=weights is not None if large_data is None else large_data.has_weights,
            labels=self._outline_targets(y, shape[0], large_data is not None),
        )

    def read_cells(self, outline: Outline) -> tuple[Any, Any, Any]:
        """Return features, targets and weights as checked cells, after the charge; large data stay unread."""
        X, rows = outline.X, outline.shape[0]
        out_of_memory = isinstance(X, OutOfMemoryData)
        if not out_of_memory:
            X = self._encode_features(X, reset=True)
        y = self._read_targets(outline.y, rows, out_of_memory) if outline.labels is None else outline.labels
        weights = outline.weights
        if weights is not None and not out_of_memory:
            weights = read_numbers(
                read_column(weights, rows, "sample_weight"), "sample_weight", self._accepts_any_row()
            )
        return X, y, weights

    def reader(
        self, outline: Outline, problem: Problem, encode: TargetEncoder, *, is_single_use: bool = False
    ) -> RecordReader:
        """Return the records as a reader, with which the mechanism reads and clips them after the charge."""
        outline.check(problem, encode)

        def read(grid: RowGrid | None = None) -> Dataset:
            X, y, weights = self.read_cells(outline)
            data = build_dataset(X, y, problem, encode, weights, grid)
            if self.verbose:
                print(data.describe(problem.loss))
            return data

        return RecordReader(problem, read, is_single_use=is_single_use)

    def target_encoder(self, y: Any = None) -> TargetEncoder:
        """Return the encoder from targets to labels of the problem; y is read only if the classes are not stated."""
        raise NotImplementedError

    def set_coefficients(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        """Set coef_ and intercept_, in the units of the table, from the problem's parameters.

        Parameters
        ----------
        theta : released parameters of the problem.
        problem : that was solved.
        loss : for which prediction is calibrated; None: the problem's.
        """
        raise NotImplementedError

    def learned_bounds(self) -> str | None:
        """Return which bounds the fit learns, "norm" or "schema"; None where all of them are stated."""
        if isinstance(self.data_norm, str) and self.data_norm == LEARN:
            return "norm"
        return "schema" if self.schema is not None and is_learnable(self.schema) else None

    def check_public_inputs(self) -> None:
        """Raise if public inputs about rows or targets are invalid, before any record is read."""
        self._row_norm_bound()
        self.public_targets()

    def public_targets(self) -> tuple[Any, ...] | None:
        """Return the public labels or the public range of the targets; None where labels are read from y."""
        raise NotImplementedError

    def _outline_targets(self, y: Any, rows: int, out_of_memory: bool) -> Any:
        """Return the labels if they are read before the charge, because their set is not stated; else None."""
        return None

    def _read_targets(self, y: Any, n_rows: int, out_of_memory: bool) -> Any:
        """Return targets as cells, one for each row; with `out_of_memory` they are returned unread."""
        raise NotImplementedError

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        """Return the fields of the request that are specific to the model."""
        return {}

    def compare_public_methods(self, n_private: int) -> dict[str, float]:
        """Return the expected excess loss of public-only, warm-start and mirror; no private record is read.

        It is estimated on held-out public rows with simulated noise, for `n_private` private rows (a public number).
        """
        if self.public_data is None:
            raise InvalidParameter("compare_public_methods needs public_data=(X_public, y_public).")
        return compare_public_methods(self, n_private)

    @property
    def _log_link(self) -> bool:
        """Whether scores are logarithms of rates, as the loss says."""
        return model_losses()[self._model].log_link

    def _max_class_weight(self) -> float:
        """Return the largest class weight; 1 where there are no classes."""
        return 1.0

    def check_group_privacy(self, guarantee: Guarantee) -> None:
        """Raise if the guarantee for a person with several rows exceeds epsilon, before anything runs."""
        group_epsilon = guarantee.group(self.max_rows_per_person).epsilon()
        if not group_epsilon <= self.epsilon:
            raise CalibrationFailed(
                f"with {self.max_rows_per_person} rows per person the fit would cost epsilon = {group_epsilon:.6g}, "
                f"above {self.epsilon:.6g}; leave theorem and mechanism to the planner."
            )

    def planning_request(self, n: int, n_features: int, n_classes: int | None = None) -> Request:
        """Return the request to the planner for data of this public shape; no record is read."""
        rows = _check.check_count("max_rows_per_person", self.max_rows_per_person)
        delta = 0.0 if self.delta is None else self.delta
        if delta != 0:
            _check.check_open_unit("delta", delta)
        epsilon = _check.check_positive("epsilon", self.epsilon)
        if not learns_row_count(self):  # else n is a placeholder
            self.warn_of_large_delta(n)
        secure = None if self.secure is None else _check.check_flag("secure", self.secure)
        check_seed(secure, self.random_state)
        without_public_data = self.public_data is None  # fits with public data have a mechanism of their own
        _check.check_choice("public_method", self.public_method, TUNING_METHODS)
        if without_public_data and self.compare:
            raise InvalidParameter(
                "compare needs public_data=(X_public, y_public); there is nothing to compare."
            )
        return Request(
            **{"model": self._model, **self._model_options(n_classes)},
            n=n,
            n_features=n_features,
            epsilon=epsilon if rows == 1 else epsilon_per_record(epsilon, delta, rows),
            delta=delta,
            adjacency=self.adjacency,
            data_norm=self._row_norm_bound(),
            # a schema adds a constant column of its own, inside the row norm
            fit_intercept=self.fit_intercept and self.schema is None,
            constant_feature=None if self.schema is None else row_scale(as_schema(encoding_schema(self))),
            radius=self.radius,
            alpha=self.alpha,
            mechanism=self.mechanism if without_public_data else "auto",
            mechanism_options=self.mechanism_options if without_public_data else None,
            theorem=self.theorem if without_public_data else None,
            objective=self.objective,
            weight_bound=(1.0 if self.weight_bound is None else self.weight_bound) * self._max_class_weight(),
            bad_rows="zero" if self._accepts_any_row() else "refuse",
            secure=secure,
            needs_gaussian=rows > 1,  # mu of all rows of a person is a multiple of that of one
            allow_more_rows=self.n_public is not None and self.adjacency == "add-remove",
        )

    def warn_of_large_delta(self, n: int) -> None:
        """Warn if delta is not below 1/n for this public n."""
        delta = self.delta or 0.0
        if delta >= 1 / n:
            warnings.warn(
                f"delta = {delta:g} is not below 1/n = {1 / n:g}: a mechanism that publishes one random record "
                "in full would satisfy it. Choose a smaller delta.",
                UserWarning,
                stacklevel=4,
            )

    def _row_norm_bound(self) -> float:
        """Return the stated bound on the norm of a row, before any data are read."""
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
        return _check.check_positive("data_norm", self.data_norm)

    def guarantee_of_fit(self, guarantee: Guarantee, seeded: bool, *extra_assumptions: str) -> Guarantee:
        """Return the guarantee for a person, with the assumptions and conditions of this estimator's data reading."""
        count_is_public = self.adjacency == "replace-one" and self.person is None
        own_assumptions = ["the number of rows is public"] if count_is_public else []
        row_conditions: tuple[Condition, ...] = ()
        if not self._accepts_any_row():
            row_conditions = (FINITE_CELLS,)
        if seeded:
            own_assumptions.append(SEEDED_MESSAGE)
        conditions, target_assumptions = self.target_conditions()
        fit_guarantee = replace(
            guarantee,
            conditions=merge_conditions(
                conditions, fit_conditions(self), guarantee.conditions, row_conditions
            ),
            assumptions=(*guarantee.assumptions, *own_assumptions, *extra_assumptions, *target_assumptions),
        )
        rows = self.max_rows_per_person
        return fit_guarantee if rows == 1 else fit_guarantee.group(rows)

    def target_conditions(self) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
        """Return the conditions under which targets are read, and the assumptions about them."""
        return (), ()

    def _has_strict_ledger(self) -> bool:
        """Whether the data set's budget is declared strict."""
        return bool(getattr(self.ledger, "strict", False))

    def public_divisor(self, n_rows: int) -> int:
        """Return the public divisor of the mean: the stated one, or the number of rows."""
        check_fit_conditions(self)
        if learns_row_count(self):
            raise InvalidParameter(
                "n_public='learn' is for a single fit, which releases the number of rows with noise and then plans; "
                "this plan is made before anything is released. State about how many rows to expect, n_public=."
            )
        if self.n_public is None and n_rows == 0:
            raise InvalidParameter("the table has no rows.")
        return n_rows if self.n_public is None else _check.check_count("n_public", self.n_public)

    def _bad_row_rule(self) -> str:
        """Return the rule for rows with a cell that is not a finite number; a strict data set never raises for one."""
        strict = self._has_strict_ledger()
        stated_rule = ("zero" if strict else "refuse") if self.bad_rows is None else self.bad_rows
        if strict and stated_rule == "refuse":
            raise InvalidParameter(
                "this data set is strict: the errors of bad_rows='refuse' would reveal single rows; leave it out, or "
                "set bad_rows='zero'."
            )
        return _check.check_choice("bad_rows", stated_rule, ("refuse", "zero"))

    def _accepts_any_row(self) -> bool:
        """Whether no record can raise an error; with a schema every cell has a rule."""
        return self._bad_row_rule() == "zero" or self.schema is not None

    def _encode_features(self, X: Any, *, reset: bool) -> Any:
        """Return features as checked numbers; a table is encoded by the schema."""
        schema = None if self.schema is None else encoding_schema(self)
        return read_features(self, X, reset) if schema is None else SchemaEncoder(schema).transform(X)

    def complete_schema_for(self, n: int) -> None:
        """Complete the schema for n rows, a public number, in estimators that add to it."""

    def complete_schema(self, X: Any, y: Any, weights: Any) -> None:
        """Set what the fit derives from public quantities before any cell is read; nothing for linear models."""

    def _linear_scores(self, X: Any) -> Floats:
        """Return the scores [rows, outputs] of the fitted parameters."""
        check_is_fitted(self)
        rows = self._encode_features(X, reset=False)
        scores: Floats = rows @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores
