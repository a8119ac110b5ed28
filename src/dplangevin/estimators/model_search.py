"""Private hyperparameter search: a random number of private attempts, of which only the best is released."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._rng import SharedGenerator, make_generator
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.budget_account import BudgetAccount
from dplangevin.accounting.conditions import merge_conditions
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.data.dask import is_dask
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._call_context import (
    WithCallContext,
    check_fit_conditions,
    clone_for,
    fit_conditions,
)
from dplangevin.estimators._interval_plan import interval_budget_fraction
from dplangevin.estimators._raw_table import RawRecords
from dplangevin.estimators._reading import build_dataset, to_dense
from dplangevin.estimators._scoring import record_losses
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encoding_schema
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup
from dplangevin.mechanisms.release import SEEDED_MESSAGE
from dplangevin.mechanisms.repeated_selection.mechanism import CandidateAttempts, RepeatedSelection
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec
from dplangevin.mechanisms.repeated_selection.theorem import calibrate_attempt_mu
from dplangevin.planner.fit_plan import FitPlan, plan_gaussian_fit
from dplangevin.problem.constants import ADJACENCIES
from dplangevin.tables import CellColumn, Table, is_streamed

FIXED_PARAMETERS = {
    "epsilon", "delta", "adjacency", "n_public", "max_rows_per_person", "person", "theorem", "weight_bound", "bad_rows",
    "ledger", "random_state", "checkpoint", "secure", "public_data", "public_method", "compare", "intervals",
    "interval_budget", "classes", "target_bounds", "verbose",
}  # fmt: skip
"""Parameters that change the guarantee, or on what candidates are compared."""
SEARCH_LOG_LOSS_CAP = 3.0


@dataclass(kw_only=True, eq=False)
class _Candidate:
    """Candidate of the grid with its plan."""

    parameters: dict[str, Any]
    model: DPLinearModel
    fit_plan: FitPlan
    data: Any = field(default=None, repr=False)


class DPModelSearch(WithCallContext, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search over hyperparameters under one guarantee, by repeated private selection.

    A secret random number K of attempts is made. Each draws a candidate uniformly, fits it privately on a random part
    of the rows, and scores it with noise on the rest. Only the attempt with the best noisy score is released.
    `best_estimator_` is that attempt's model; it is not fitted again.

    Parameters
    ----------
    estimator : an estimator of this library; its own epsilon and delta are not used.
    grid : {"alpha": [...], "schema": [...]}, or a list of such dictionaries. Parameters that change the guarantee are
        not allowed.
    epsilon, delta : guarantee of the whole search; delta > 0.
    repetitions : the mean of K; None means ten per candidate.
    law : distribution of K, "geometric", "logarithmic" or "poisson".
    holdout : fraction of the rows used for scoring.
    metric : "log-loss" or "accuracy" for classifiers, "squared-error" for regressors; None takes the first that the
        estimator supports.
    ledger, random_state, verbose : as for the estimators.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_ : of the best attempt (the score includes its noise).
    privacy_ : the guarantee of the search.
    classes_ : labels, for classifiers.

    Privacy
    -------
    The whole search costs (epsilon, delta), charged once before the records are read; every attempt is mu-GDP with a
    mu calibrated for the distribution of K.

    References
    ----------
    Liu and Talwar (2019), Private selection from private candidates; Papernot and Steinke (2022), Hyperparameter
    tuning with Renyi differential privacy.

    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import DPRidge, DPModelSearch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> ridge = DPRidge(data_norm=1.5, target_bounds=(-1, 1))
    >>> search = DPModelSearch(ridge, {"alpha": [1e-3, 100.0]}, epsilon=2.0, delta=1e-6, random_state=0).fit(X, X[:, 0])
    >>> search.best_params_, bool(search.privacy_.epsilon() <= 2.0)
    ({'alpha': 0.001}, True)
    """

    def __init__(
        self,
        estimator: Any,
        grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        repetitions: float | None = None,
        law: str = "geometric",
        holdout: float = 0.25,
        metric: str | None = None,
        ledger: BudgetAccount | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.estimator, self.grid = estimator, grid
        self.epsilon, self.delta = epsilon, delta
        self.repetitions, self.law = repetitions, law
        self.holdout, self.metric = holdout, metric
        self.ledger, self.random_state, self.verbose = ledger, random_state, verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Plan every candidate from public inputs, charge once, and release the best attempt."""
        points = self._grid_points()
        self._check_options()
        records = self._read_records(X, y, points)
        adjacency = _check.check_choice("adjacency", self.estimator.adjacency, ADJACENCIES)
        spec = RepeatedSelectionSpec(
            mu=1.0,
            repetitions=10 * len(points) if self.repetitions is None else self.repetitions,
            law=self.law,  # type: ignore[arg-type]
            adjacency=adjacency,
        )
        mu = calibrate_attempt_mu(
            _check.check_positive("epsilon", self.epsilon),
            _check.check_open_unit("delta", self.delta),
            spec,
        )
        if not mu > 1e-6:
            raise CalibrationFailed(
                f"the selection alone would cost epsilon = {self.epsilon:g}; use fewer repetitions, or raise epsilon."
            )
        rng, seeded = make_generator(self.random_state)
        split = _Split.split_records(records, self.holdout, adjacency, rng, self.estimator.n_public)
        candidates = [self._plan_candidate(point, split, mu) for point in points]
        _check_comparable([candidate.model for candidate in candidates])
        # Any candidate may be selected, so the guarantee has the conditions of all of them.
        conditions = merge_conditions(*(each.fit_plan.plan.guarantee.conditions for each in candidates))
        plan = CertifiedSpec(spec=replace(spec, mu=mu, conditions=conditions), delta=self.delta)
        score = NoisySumsSpec(
            groups=(SumGroup(answers=1, unit=1.0, scale=(1 + 1e-8) / mu),),
            noise="gaussian",
            adjacency=adjacency,
        )
        score_spec = CertifiedSpec(spec=score, delta=self.delta)
        if self.verbose:
            print(f"{len(candidates)} candidates; each attempt is {mu:.4g}-GDP; {plan.guarantee}")
        attempts = CandidateAttempts(
            fit_specs=tuple(candidate.fit_plan.plan for candidate in candidates),
            score_specs=(score_spec,) * len(candidates),
            run_attempt=lambda index, rng: self._run_attempt(candidates[index], split, score_spec, rng),
        )
        selection = RepeatedSelection().run(
            plan, attempts, SharedGenerator(rng, seeded), ledger=self.ledger, rows_per_person=1
        )
        winner = candidates[selection.candidate]
        assumptions = [*winner.fit_plan.plan.guarantee.assumptions, *winner.model.target_conditions()[1]]
        assumptions += [SEEDED_MESSAGE] if seeded else []
        if adjacency == "replace-one":
            assumptions.append("the number of rows is public")
        conditions = fit_conditions(clone_for(self, self.estimator))
        self.privacy_ = replace(
            plan.guarantee,
            conditions=merge_conditions(conditions, plan.guarantee.conditions),
            assumptions=tuple(dict.fromkeys((*plan.guarantee.assumptions, *assumptions))),
        )
        self.best_estimator_, self.best_params_ = selection.value, dict(winner.parameters)
        self.best_score_ = selection.score / split.n_scored
        self.best_estimator_.privacy_, self.best_estimator_.plan_ = self.privacy_, winner.fit_plan
        self.ledger_head_ = self.best_estimator_.ledger_head_ = selection.ledger_head
        self.__dict__.pop("classes_", None)  # of an earlier fit
        if hasattr(selection.value, "classes_"):
            self.classes_ = selection.value.classes_
        return self

    def _grid_points(self) -> list[dict[str, Any]]:
        """Return the points of the grid; raise for parameters that would change the guarantee."""
        if not isinstance(self.estimator, DPLinearModel):
            raise InvalidParameter(
                f"estimator must be an estimator of dplangevin, got {type(self.estimator).__name__}."
            )
        grids = [self.grid] if isinstance(self.grid, Mapping) else self.grid
        if (
            not isinstance(grids, Sequence)
            or not all(isinstance(grid, Mapping) for grid in grids)
            or not grids
        ):
            raise InvalidParameter("grid must be a dictionary of lists, or a list of such dictionaries.")
        known = self.estimator.get_params(deep=False)
        points = []
        for grid in grids:
            for name, values in grid.items():
                if name in FIXED_PARAMETERS:
                    raise InvalidParameter(
                        f"grid holds {name!r}, which would change the guarantee; set it on the estimator or the search."
                    )
                if name not in known:
                    raise InvalidParameter(
                        f"grid holds {name!r}, which is not a parameter of {type(self.estimator).__name__}."
                    )
                if (
                    isinstance(values, str | Mapping)
                    or not isinstance(values, Sequence | np.ndarray)
                    or not len(values)
                ):
                    raise InvalidParameter(f"grid[{name!r}] must be a list of values, got {values!r}.")
            points += [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        return points

    def _check_options(self) -> None:
        """Raise for options that do not go with a search, from public inputs alone."""
        stated = self.estimator
        unsupported = {
            "person": stated.person is not None,
            "max_rows_per_person": stated.max_rows_per_person != 1,
            "public_data": stated.public_data is not None,
            "secure": bool(stated.secure),
            "checkpoint": stated.checkpoint is not None,
            "ledger": stated.ledger is not None,
            "intervals": bool(interval_budget_fraction(stated)),
        }
        for name in [name for name, is_set in unsupported.items() if is_set]:
            raise InvalidParameter(f"{name} of the estimator does not go with a search; leave it out.")
        check_fit_conditions(clone_for(self, stated).set_params(ledger=self.ledger))
        if stated.bad_rows == "refuse":
            raise InvalidParameter(
                "bad_rows='refuse' does not go with a search, whose errors must not reveal single rows; leave it "
                "out, or set bad_rows='zero'."
            )
        if not 0.02 <= _check.check_open_unit("holdout", self.holdout) <= 0.9:
            raise InvalidParameter(f"holdout must be a fraction between 0.02 and 0.9, got {self.holdout!r}.")
        supported_metrics: tuple[str, ...] = (
            ("log-loss", "accuracy") if is_classifier(stated) else ("squared-error",)
        )
        if not hasattr(stated, "predict_proba"):
            supported_metrics = tuple(name for name in supported_metrics if name != "log-loss")
        if self.metric is not None:
            _check.check_choice("metric", self.metric, supported_metrics)
        self._supported_metrics = supported_metrics

    def _read_records(self, X: Any, y: Any, points: list[dict[str, Any]]) -> _UnreadRecords:
        """Return the records with their public shape; cells are read after the charge."""
        if is_dask(X) or is_streamed(X):
            raise InvalidParameter("a search needs the table in memory; load it first.")
        shape: Any = getattr(X, "shape", None) if isinstance(X, np.ndarray) or issparse(X) else None
        if shape is not None and len(shape) != 2:
            raise InvalidParameter("X must be a table: rows and columns.")
        order = None if shape is None else tuple(f"x{j}" for j in range(shape[1]))
        for point in points:
            schema = point.get("schema", self.estimator.schema)
            if order is not None and schema is not None:
                order = as_schema(schema).names
        # Converting a sparse matrix or a list would read its cells: zeros of the same shape stand in for them.
        rows = np.broadcast_to(0.0, shape) if issparse(X) else X
        outline = RawRecords.from_fit_arguments(
            rows, np.zeros(len(y)) if isinstance(y, list) else y, None, order
        )

        def read() -> tuple[Table, CellColumn]:
            records = RawRecords.from_fit_arguments(to_dense(X) if issparse(X) else X, y, None, order)
            return records.data.drop_columns(records.y), records.data.column(records.y)

        names = outline.data.drop_columns(outline.y).names
        return _UnreadRecords(n_rows=len(outline.data), names=names, read=read)

    def _plan_candidate(self, parameters: dict[str, Any], split: _Split, mu: float) -> _Candidate:
        """Plan the fit of one point of the grid, from public inputs alone."""
        model = clone_for(None, self.estimator).set_params(**parameters)
        model.set_params(
            epsilon=self.epsilon, delta=self.delta, bad_rows="zero", verbose=False, random_state=None,
            n_public=split.n_fitted,
        )  # fmt: skip
        if model.learned_bounds() == "schema" or model.person is not None:
            raise InvalidParameter(
                "a search needs stated schemas; learn one with a fit and pass its schema_."
            )
        model.check_public_inputs()
        if model.public_targets() is None:
            raise InvalidParameter("state the public set of labels, classes=[...] or the schema's target.")
        width = len(split.records.names)
        if model.schema is not None:
            as_schema(model.schema).validate(split.records.names)
            model.complete_schema(None, None, None)  # knots depend on n_public only: no row is read
            width = len(SchemaEncoder(encoding_schema(model)).get_feature_names_out())
        request = model.planning_request(split.n_fitted, width, model.target_encoder().n_classes)
        epsilon = math.nextafter(cv.gdp_epsilon(mu * (1 - 1e-9), self.delta), 0.0)
        # Under add-remove the part used for fitting has a random number of rows.
        request = replace(request, epsilon=epsilon, allow_more_rows=model.adjacency == "add-remove")
        fit_plan = plan_gaussian_fit(request, max_mu=mu)
        return _Candidate(parameters=parameters, model=model, fit_plan=fit_plan)

    def _run_attempt(
        self, candidate: _Candidate, split: _Split, score_spec: CertifiedSpec, rng: SharedGenerator
    ) -> tuple[float, DPLinearModel, str]:
        """Fit a candidate and score it with noise; return score, model and digest."""
        plan = candidate.fit_plan.plan
        model = clone_for(None, candidate.model)
        if candidate.data is None:
            X, y, _ = model.read_records(split.rows[0], split.targets[0])
            candidate.data = (
                build_dataset(X, y, plan.problem, model.target_encoder(y)),
                _fitted_name_attributes(model),
            )
        data, names = candidate.data
        model.__dict__.update(names)
        release = run_plan(plan, data, rng)
        model.set_coefficients(np.array(release.value), plan.problem)
        model.n_iter_ = release.n_steps
        losses = record_losses(
            model, split.rows[1], split.targets[1], self._chosen_metric(), self._loss_cap(model)
        )
        exact = np.array([float(len(losses) - losses.sum())])
        noisy = NoisySums().run(score_spec, lambda: [exact], rng).values[0]
        return float(noisy[0]), model, release.digest()

    def _chosen_metric(self) -> str:
        return self._supported_metrics[0] if self.metric is None else self.metric

    def _loss_cap(self, model: Any) -> float:
        """Return the bound at which the loss of a record is clipped."""
        if self._chosen_metric() == "squared-error":
            low, high = model.public_targets()
            return float(((high - low) / 2) ** 2)
        return SEARCH_LOG_LOSS_CAP if self._chosen_metric() == "log-loss" else 1.0

    def __getattr__(self, name: str) -> Any:
        """Return predict, predict_proba, decision_function, score, coef_, ... of `best_estimator_`."""
        if name.startswith("__") or name in ("best_estimator_", "estimator"):
            raise AttributeError(name)
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, name)


@dataclass(frozen=True, kw_only=True, eq=False)
class _UnreadRecords:
    """Public shape of the records, and the function that reads them after the charge."""

    n_rows: int
    names: tuple[str, ...]
    read: Callable[[], tuple[Table, CellColumn]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Split:
    """Random split of the rows into those to fit and those to score.

    Parameters
    ----------
    records : all rows, unread.
    held : mask of the rows to score.
    n_fitted, n_scored : public numbers of rows to fit and to score (their expectation under add-remove).
    """

    records: _UnreadRecords
    held: NDArray[np.bool_]
    n_fitted: int
    n_scored: int

    @cached_property
    def _parts(self) -> tuple[tuple[Table, Table], tuple[CellColumn, CellColumn]]:
        table, targets = self.records.read()
        fitted, scored = np.flatnonzero(~self.held), np.flatnonzero(self.held)
        return (table.take(fitted), table.take(scored)), (targets.take(fitted), targets.take(scored))

    @property
    def rows(self) -> tuple[Table, Table]:
        """Rows to fit and rows to score; the first use reads them."""
        return self._parts[0]

    @property
    def targets(self) -> tuple[CellColumn, CellColumn]:
        """Targets to fit and targets to score; the first use reads them."""
        return self._parts[1]

    @classmethod
    def split_records(
        cls,
        records: _UnreadRecords,
        holdout_fraction: float,
        adjacency: str,
        rng: np.random.Generator,
        n: int | None,
    ) -> _Split:
        """Draw the split: a fixed number of rows under replace-one, an independent coin for each row under add-remove.

        With a fixed number, removing a row would move another one from one part to the other.
        """
        rows = records.n_rows
        total = rows if n is None else _check.check_count("n_public", n)
        if adjacency == "replace-one" and total != rows:
            raise InvalidParameter(
                f"X has {rows} rows but n_public = {total} is stated, and their number is public under replace-one; "
                "state the true number, or use adjacency='add-remove'."
            )
        n_scored = max(1, round(holdout_fraction * total))
        if total - n_scored < 1:
            raise InvalidParameter("a search needs at least one row to fit and one row to score.")
        if adjacency == "replace-one":
            is_held_out = np.zeros(rows, bool)
            is_held_out[rng.permutation(rows)[:n_scored]] = True
        else:
            is_held_out = rng.random(rows) < holdout_fraction
        return cls(records=records, held=is_held_out, n_fitted=total - n_scored, n_scored=n_scored)


def _check_comparable(models: list[Any]) -> None:
    """Raise if candidates have different classes or target ranges, since their losses would not be comparable."""
    targets = [model.public_targets() for model in models]
    if any(target != targets[0] for target in targets):
        raise InvalidParameter(
            "the candidates' schemas state different classes or ranges of the target, so their losses are not "
            "comparable; state the same target in all of them."
        )


def _fitted_name_attributes(model: Any) -> dict[str, Any]:
    names = ("classes_", "n_features_in_", "feature_names_in_", "schema_")
    return {name: vars(model)[name] for name in names if name in vars(model)}
