"""Private hyperparameter search: a random number of private attempts, of which only the best is released."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._rng import SharedGenerator
from dplangevin._search import bisect_safe_side
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.charge import charge_then_release
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee, merge_conditions
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.data.dask import is_dask
from dplangevin.errors import CalibrationFailed, DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._posterior import interval_budget_fraction
from dplangevin.estimators._raw_fit import (
    check_learned_target,
    learn_schema,
    padded_positions,
    read_schema_to_learn,
)
from dplangevin.estimators._raw_table import (
    LEARNING_BUDGET_FRACTION,
    LEARNING_DELTA_FRACTION,
    PrivacyUnit,
    RawRecords,
    plan_schema_learning,
)
from dplangevin.estimators._reading import UNBOUNDED_WEIGHTS_MESSAGE, build_dataset, to_dense
from dplangevin.estimators._scoring import LOSS_GRID_SIZE, record_losses
from dplangevin.estimators.call_context import (
    WithCallContext,
    check_fit_conditions,
    clone_for,
    fit_conditions,
    learns_row_count,
)
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encoding_schema
from dplangevin.mechanisms.learned_schema.mechanism import CellCounts, hash_counts
from dplangevin.mechanisms.mechanism import SEEDED_MESSAGE, check_seed, fingerprint_dataset, run_plan
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup, plan_exact_noise
from dplangevin.mechanisms.repeated_selection.mechanism import (
    CandidateAttempts,
    RepeatedSelection,
    SelectionRelease,
)
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec, calibrate_attempt_mu
from dplangevin.mechanisms.run_state import RunState
from dplangevin.planner.fit_plan import FitPlan, plan_gaussian_fit
from dplangevin.problem.constants import ADJACENCIES, Adjacency
from dplangevin.sampling.exact_noise import ByteSource, sample_poisson_batch, sample_subset
from dplangevin.schema import LearnableSchema, Schema

FIXED_PARAMETERS = {
    "epsilon", "delta", "adjacency", "n_public", "max_rows_per_person", "person", "theorem", "weight_bound", "bad_rows",
    "ledger", "random_state", "checkpoint", "secure", "public_data", "public_method", "compare", "intervals",
    "interval_budget", "classes", "target_bounds", "verbose",
}  # fmt: skip
"""Parameters that change the guarantee, or on what candidates are compared."""
SEARCH_LOG_LOSS_CAP = 3.0


@dataclass(kw_only=True, eq=False)
class _Candidate:
    """Candidate of the grid with its plan.

    Parameters
    ----------
    parameters : its point of the grid. model : that is fitted; its schema encodes the records.
    learned : the learned schema, which that of the model may pad to the planned width; None where it is stated.
    data : the clipped records with the attributes that reading them set, after the first attempt.
    """

    parameters: dict[str, Any]
    model: DPLinearModel
    fit_plan: FitPlan
    learned: Schema | None = None
    data: Any = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """What is charged for a search: the releases that learn a schema, and the selection.

    Parameters
    ----------
    learning : specs of the releases that learn the schema; empty where it is stated.
    selection : the certified selection; its mu is that of an attempt, for a person.
    delta : of the whole.
    """

    learning: tuple[CertifiedSpec, ...]
    selection: CertifiedSpec
    delta: float
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        total = self.selection.guarantee
        for spec in self.learning:
            total = total + spec.guarantee
        _check.set_frozen(self, guarantee=replace(total, at_delta=self.delta, composition=None))

    @property
    def mu(self) -> float:
        """The mu of one attempt, for a person."""
        spec = self.selection.spec
        assert isinstance(spec, RepeatedSelectionSpec)
        return spec.mu


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

    The estimator's own secure, adjacency, n_public, person, max_rows_per_person, checkpoint and schema (stated, or
    to be learned with a tenth of the budget) apply to the search.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_ : of the best attempt (the score is a mean that includes its noise; with
        weights, of weight / weight_bound times one minus the loss).
    privacy_ : the guarantee of the search.
    classes_ : labels, for classifiers.

    Notes
    -----
    **Privacy.** The whole search costs (epsilon, delta), charged once before the records are read; every attempt is
    mu-GDP with a mu calibrated for the distribution of K.

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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Plan every candidate from public inputs, charge once, and release the best attempt.

        Parameters
        ----------
        X, y : as for the estimators, except Dask collections.
        sample_weight : weights of fits and scores, or the name of their column; needs the estimator's weight_bound.
        """
        points = self._grid_points()
        self._check_options(sample_weight)
        outline = self._outline_records(X, y, sample_weight, points)
        unit = self._privacy_unit()
        n_fitted, n_scored = self._part_sizes(len(outline), unit)
        schema_to_learn = read_schema_to_learn(self.estimator.schema)
        check_learned_target(self.estimator, schema_to_learn)
        plan = self._plan_search(points, outline, unit, n_fitted, schema_to_learn)
        candidates = [
            self._plan_candidate(point, outline, unit, n_fitted, plan.mu, schema_to_learn) for point in points
        ]
        _check_comparable([candidate.model for candidate in candidates])
        plan, score = self._certify(plan, candidates, unit)
        run = _SearchRun(
            search=self, plan=plan, score=score, unit=unit, candidates=candidates, schema_to_learn=schema_to_learn,
            outline=outline, source=(X, y, sample_weight), n_fitted=n_fitted, n_rows=n_fitted + n_scored,
            saved_run=RunState.from_path(
                self.estimator.checkpoint, plan.selection, plan.learning, unit, self.estimator.person, repr(points),
                self.holdout, self._chosen_metric(),
            ),
        )  # fmt: skip
        RepeatedSelection().check_candidates(plan.selection, run.attempts(outline, outline))
        if self.verbose:
            print(f"{len(candidates)} candidates; each attempt is {plan.mu:.4g}-GDP; {plan.guarantee}")
        selection = charge_then_release(
            plan,
            run.release,
            self.random_state,
            ledger=self.ledger,
            checkpoint=run.saved_run,
            rows_per_person=unit.max_rows,
        )
        return self._set_winner(plan, candidates[selection.candidate], selection, unit, n_scored)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which metadata `fit` takes: sample_weight, for the scores of the search and for each fit."""
        to_fits = MethodMapping().add(caller="fit", callee="fit")
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(estimator=self.estimator, method_mapping=to_fits)
        )

    def _check_routing(self, sample_weight: Any) -> None:
        """Raise where scikit-learn's metadata routing is on and keeps the weights from the fits."""
        if not sklearn.get_config().get("enable_metadata_routing"):
            return
        if "sample_weight" not in process_routing(self, "fit", sample_weight=sample_weight).estimator.fit:
            raise InvalidParameter(
                "sample_weight counts in the fits and in the scores of a search, but metadata routing keeps it from "
                "the fits; call set_fit_request(sample_weight=True) on the estimator."
            )

    def _set_winner(
        self,
        plan: SearchPlan,
        winner: _Candidate,
        selection: SelectionRelease,
        unit: PrivacyUnit,
        n_scored: int,
    ) -> Self:
        """Set the fitted attributes from the released attempt."""
        assumptions = [*winner.fit_plan.plan.guarantee.assumptions, *winner.model.target_conditions()[1]]
        assumptions += [SEEDED_MESSAGE] if selection.seeded else []
        if unit.adjacency == "replace-one" and not unit.chooses_rows:
            assumptions.append("the number of rows is public")
        self.privacy_ = replace(
            plan.guarantee,
            conditions=merge_conditions(
                fit_conditions(clone_for(self, self.estimator)), plan.guarantee.conditions
            ),
            assumptions=tuple(dict.fromkeys((*plan.guarantee.assumptions, *assumptions))),
        )
        self.best_estimator_, self.best_params_ = selection.value, dict(winner.parameters)
        self.best_score_ = selection.score / self._score_unit() / n_scored
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

    def _check_options(self, sample_weight: Any) -> None:
        """Raise for options that do not go with a search, from public inputs alone."""
        stated = self.estimator
        check_seed(stated.secure, self.random_state)
        self._is_weighted = sample_weight is not None
        if self._is_weighted:
            self._check_routing(sample_weight)
        if self._is_weighted and stated.weight_bound is None:
            raise InvalidParameter(
                f"sample_weight in a search needs weight_bound: {UNBOUNDED_WEIGHTS_MESSAGE}"
            )
        unsupported = {
            "public_data": stated.public_data is not None,
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

    def _privacy_unit(self) -> PrivacyUnit:
        """Return whom the guarantee protects; raise if the rows of a person cannot be limited."""
        stated = self.estimator
        if stated.person is not None:
            if not isinstance(stated.person, str):
                raise InvalidParameter("person must be the name of a column of the table.")
            if stated.n_public is None:
                raise InvalidParameter(
                    "person= needs n_public=, the public divisor of the mean, because the number of rows used depends "
                    "on who is in the table. State about how many rows to expect."
                )
        return PrivacyUnit(
            max_rows=_check.check_count("max_rows_per_person", stated.max_rows_per_person),
            adjacency=_check.check_choice("adjacency", stated.adjacency, ADJACENCIES),
            chooses_rows=stated.person is not None,
        )

    def _part_sizes(self, n_rows: int, unit: PrivacyUnit) -> tuple[int, int]:
        """Return the public numbers of rows to fit and to score (expected ones where coins decide)."""
        stated = self.estimator.n_public
        if learns_row_count(self.estimator):
            raise InvalidParameter(
                "n_public='learn' does not go with a search, which divides the rows before anything is released: state "
                "about how many rows to expect, n_public=."
            )
        total = n_rows if stated is None else _check.check_count("n_public", stated)
        if _row_adjacency(unit) == "replace-one" and total != n_rows:
            raise InvalidParameter(
                f"X has {n_rows} rows but n_public = {total} is stated, and their number is public under replace-one; "
                "state the true number, or use adjacency='add-remove'."
            )
        n_scored = max(1, round(self.holdout * total))
        if total - n_scored < 1:
            raise InvalidParameter("a search needs at least one row to fit and one row to score.")
        return total - n_scored, n_scored

    def _outline_records(self, X: Any, y: Any, weights: Any, points: list[dict[str, Any]]) -> RawRecords:
        """Return the records with their public shape; no cell is read."""
        if is_dask(X):
            raise InvalidParameter(
                "a search takes a table in memory or files, not Dask; compute the table first."
            )
        order = self._column_order(X, points)
        # Converting a sparse matrix or a list would read its cells: zeros of the same shape stand in for them.
        rows = np.broadcast_to(0.0, (X.shape[0], X.shape[1])) if issparse(X) else X  # type: ignore[attr-defined]
        targets = np.zeros(len(y)) if isinstance(y, list) else y
        outline = RawRecords.from_fit_arguments(
            rows, targets, np.zeros(len(weights)) if isinstance(weights, list) else weights, order
        )
        person = self.estimator.person
        if person is not None and person not in outline.feature_names:
            raise InvalidParameter(
                f"there is no column {person!r}; the table has {_check.describe_columns(outline.feature_names)}."
            )
        return outline

    def _column_order(self, X: Any, points: list[dict[str, Any]]) -> tuple[str, ...] | None:
        """Return the names of the columns of an array, None for a table with names."""
        shape: Any = getattr(X, "shape", None) if isinstance(X, np.ndarray) or issparse(X) else None
        if shape is None:
            return None
        if len(shape) != 2:
            raise InvalidParameter("X must be a table: rows and columns.")
        order = tuple(f"x{j}" for j in range(shape[1]))
        for point in points:
            schema = point.get("schema", self.estimator.schema)
            if schema is not None:
                to_learn = read_schema_to_learn(schema)
                order = as_schema(schema).names if to_learn is None else to_learn.names
        return order

    def _plan_search(
        self,
        points: list[dict[str, Any]],
        outline: RawRecords,
        unit: PrivacyUnit,
        n_fitted: int,
        schema_to_learn: LearnableSchema | None,
    ) -> SearchPlan:
        """Return the plan with the largest mu of an attempt that meets the guarantee."""
        epsilon, delta = (
            _check.check_positive("epsilon", self.epsilon),
            _check.check_open_unit("delta", self.delta),
        )
        spec = RepeatedSelectionSpec(
            mu=1.0,
            repetitions=10 * len(points) if self.repetitions is None else self.repetitions,
            law=self.law,  # type: ignore[arg-type]
            adjacency=unit.adjacency,
            rows_per_person=unit.max_rows,
        )
        learning: tuple[CertifiedSpec, ...] = ()
        if schema_to_learn is None:
            mu = calibrate_attempt_mu(epsilon, delta, spec)
        else:
            tail = LEARNING_DELTA_FRACTION * delta if schema_to_learn.categories else 0.0
            whole = cv.gdp_mu(epsilon, delta - tail)
            request = replace(
                self._candidate_model(points[0], n_fitted, schema_to_learn.widest_schema()).planning_request(
                    n_fitted, 1, None
                ),
                delta=delta,
            )
            learning = plan_schema_learning(
                request, schema_to_learn, unit, LEARNING_BUDGET_FRACTION * whole**2, tail
            )

            def meets_target(mu: float) -> bool:
                selection = CertifiedSpec(spec=replace(spec, mu=mu), delta=delta)
                plan = SearchPlan(learning=learning, selection=selection, delta=delta)
                return plan.guarantee.epsilon(delta) <= epsilon

            mu = bisect_safe_side(meets_target, 0.0, whole, rounds=10)
        if not mu > 1e-6:
            raise CalibrationFailed(
                f"the selection alone would cost epsilon = {self.epsilon:g}; use fewer repetitions, or raise epsilon."
            )
        return SearchPlan(
            learning=learning, selection=CertifiedSpec(spec=replace(spec, mu=mu), delta=delta), delta=delta
        )

    def _certify(
        self, plan: SearchPlan, candidates: list[_Candidate], unit: PrivacyUnit
    ) -> tuple[SearchPlan, CertifiedSpec]:
        """Return the plan with the conditions of all candidates (any of them may win), and the spec of a score."""
        guarantees = [each.fit_plan.plan.guarantee for each in candidates]
        is_exact = all(each.arithmetic == "discrete-grid" for each in guarantees)
        unit_size, mu = float(self._score_unit()), plan.mu / unit.cost_factor
        score = plan_exact_noise(
            lambda exact: NoisySumsSpec(
                groups=(SumGroup(answers=1, unit=unit_size, scale=unit_size * (1 + 1e-8) / mu),),
                noise="gaussian",
                adjacency=_row_adjacency(unit),
                secure=exact,
            ),
            None if is_exact else False,
        )
        spec = plan.selection.spec
        assert isinstance(spec, RepeatedSelectionSpec)
        spec = replace(
            spec,
            secure=is_exact and score.secure,
            assumptions=_person_assumptions(unit),
            conditions=merge_conditions(*(each.conditions for each in guarantees)),
        )
        selection = CertifiedSpec(spec=spec, delta=self.delta)
        return replace(plan, selection=selection), CertifiedSpec(spec=score, delta=self.delta)

    def _candidate_model(self, parameters: dict[str, Any], n_fitted: int, schema: Any) -> DPLinearModel:
        """Return the model of a point of the grid; `schema` replaces one that is to be learned."""
        model: DPLinearModel = clone_for(None, self.estimator).set_params(**parameters)
        if schema is not None:
            model.set_params(schema=schema)
        model.set_params(
            epsilon=self.epsilon, delta=self.delta, bad_rows="zero", verbose=False, random_state=None,
            n_public=n_fitted, person=None, max_rows_per_person=1, checkpoint=None,
        )  # fmt: skip
        if model.learned_bounds() is not None:
            raise InvalidParameter(
                "a search learns the schema of its estimator alone: leave schema out of the grid, and state data_norm."
            )
        return model

    def _plan_candidate(
        self,
        parameters: dict[str, Any],
        outline: RawRecords,
        unit: PrivacyUnit,
        n_fitted: int,
        mu: float,
        schema_to_learn: LearnableSchema | None,
        learned: Schema | None = None,
    ) -> _Candidate:
        """Plan the fit of one point of the grid, from public inputs or a learned schema."""
        schema = (
            learned if schema_to_learn is None or learned is not None else schema_to_learn.widest_schema()
        )
        if schema_to_learn is not None and "schema" in parameters:
            raise InvalidParameter(
                "the estimator's schema is to be learned, and the grid states another one."
            )
        model = self._candidate_model(parameters, n_fitted, schema)
        model.check_public_inputs()
        if model.public_targets() is None:
            raise InvalidParameter("state the public set of labels, classes=[...] or the schema's target.")
        names = tuple(name for name in outline.feature_names if name != self.estimator.person)
        width = len(names)
        if model.schema is not None:
            if self.estimator.person in as_schema(model.schema).names:
                raise InvalidParameter(
                    f"column {self.estimator.person!r} identifies persons; it cannot be a feature as well."
                )
            as_schema(model.schema).validate(names)
            model.complete_schema_for(n_fitted)
            width = len(SchemaEncoder(encoding_schema(model)).get_feature_names_out())
        request = model.planning_request(n_fitted, width, model.target_encoder().n_classes)
        # An attempt of mu for a person is one of mu / cost_factor for a row.
        row_mu = mu / unit.cost_factor
        epsilon = math.nextafter(cv.gdp_epsilon(row_mu * (1 - 1e-9), self.delta), 0.0)
        adjacency = _row_adjacency(unit)
        # Where coins decide, the part used for fitting has a random number of rows.
        request = replace(
            request, epsilon=epsilon, adjacency=adjacency, allow_more_rows=adjacency == "add-remove"
        )
        fit_plan = plan_gaussian_fit(request, max_mu=row_mu)
        return _Candidate(parameters=parameters, model=model, fit_plan=fit_plan, learned=learned)

    def _score_unit(self) -> int:
        """Return the largest contribution of a record to a score, in whole units."""
        return 1 if self._chosen_metric() == "accuracy" and not self._is_weighted else LOSS_GRID_SIZE

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


def _row_adjacency(unit: PrivacyUnit) -> Adjacency:
    """Return the adjacency of rows: where rows are chosen by person, their number is private."""
    return "add-remove" if unit.chooses_rows else unit.adjacency


def _person_assumptions(unit: PrivacyUnit) -> tuple[str, ...]:
    """Return what a guarantee for persons assumes about their rows."""
    if unit.chooses_rows:
        return (
            f"holds for all rows of a person: at most {unit.max_rows} of them are used, chosen at random and in secret",
        )
    if unit.max_rows > 1:
        return (f"holds for all rows of a person who owns at most {unit.max_rows}",)
    return ()


def draw_held_out_rows(
    n_rows: int, fraction: float, adjacency: Adjacency, n_scored: int, source: ByteSource
) -> NDArray[np.bool_]:
    """Return the mask of the rows to score: a fixed number under replace-one, a coin for each row under add-remove.

    With a fixed number, removing a row would move another one from one part to the other.
    """
    mask = np.zeros(n_rows, bool)
    if adjacency == "replace-one":
        mask[sample_subset(n_rows, n_scored, source)] = True
    else:
        mask[sample_poisson_batch(n_rows, Fraction(fraction), source)] = True
    return mask


def read_outlined_records(outline: RawRecords, X: Any, y: Any, weights: Any) -> RawRecords:
    """Return the records to read, after the charge: those of the outline, unless zeros stand in it for cells."""
    if not (issparse(X) or isinstance(y, list) or isinstance(weights, list)):
        return outline
    return RawRecords.from_fit_arguments(to_dense(X) if issparse(X) else X, y, weights, outline.names)


def _split_source(shared: SharedGenerator) -> ByteSource:
    """Return the bytes that split the rows: a stream of their own, so that their number changes no later draw."""
    if not shared.is_repeatable:
        return os.urandom
    return np.random.default_rng(int.from_bytes(shared.rng.bytes(32), "little")).bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class _SearchRun:
    """Planned search; `release` reads the records, after the charge."""

    search: DPModelSearch
    plan: SearchPlan
    score: CertifiedSpec
    unit: PrivacyUnit
    candidates: list[_Candidate]
    schema_to_learn: LearnableSchema | None
    outline: RawRecords
    source: tuple[Any, Any, Any]
    n_fitted: int
    n_rows: int
    saved_run: RunState | None

    def release(self, rng: np.random.Generator, seeded: bool) -> SelectionRelease:
        """Limit the rows per person, learn the schema, split the rows, and release the best attempt."""
        shared = SharedGenerator(rng, seeded or self.saved_run is not None)
        records = read_outlined_records(self.outline, *self.source)
        person = self.search.estimator.person
        if person is not None:
            records = records.limit_rows_per_person(person, self.unit.max_rows, rng)
        exact_counts: list[CellCounts] = []
        if self.schema_to_learn is not None:
            learned, exact_counts = learn_schema(
                self.schema_to_learn, self.plan.learning, records, self.n_rows, shared
            )
            self._use_learned_schema(learned)
        n_rows, adjacency = len(records), _row_adjacency(self.unit)
        n_scored = n_rows - self.n_fitted if adjacency == "replace-one" else 0
        held = draw_held_out_rows(
            n_rows,
            self.search.holdout,
            adjacency,
            n_scored,
            _split_source(shared),
        )
        fitted, scored = records.select_rows(~held), records.select_rows(held)
        if self.saved_run is not None:
            self.saved_run.check_records(lambda salt: self._fingerprint(fitted, scored, exact_counts, salt))
        selection = RepeatedSelection().run(self.plan.selection, self.attempts(fitted, scored), shared)
        winner = self.candidates[selection.candidate]
        if winner.learned is not None:
            _set_learned_schema(selection.value, winner.learned)
        return replace(selection, seeded=seeded)

    def attempts(self, fitted: RawRecords, scored: RawRecords) -> CandidateAttempts:
        """Return the candidates, each with its fit and its score on these rows; none is read yet."""
        return CandidateAttempts(
            fit_specs=tuple(candidate.fit_plan.plan for candidate in self.candidates),
            score_specs=(self.score,) * len(self.candidates),
            guarantee_for_person=self.unit.guarantee_for_person,
            run_attempt=lambda index, rng: self._run_attempt(self.candidates[index], fitted, scored, rng),
        )

    def _use_learned_schema(self, learned: Schema) -> None:
        """Plan each candidate for the learned schema, or pad that schema to the width that was planned."""
        assert self.schema_to_learn is not None
        for index, planned in enumerate(self.candidates):
            try:
                narrow = self.search._plan_candidate(
                    planned.parameters, self.outline, self.unit, self.n_fitted, self.plan.mu,
                    self.schema_to_learn, learned,
                )  # fmt: skip
            except DplangevinError:
                narrow = planned
            if narrow is planned or not self._is_within(narrow.fit_plan):
                planned.model.set_params(schema=self.schema_to_learn.pad_schema(learned))
                planned.model.complete_schema_for(self.n_fitted)
                narrow = replace(planned, learned=learned)
            self.candidates[index] = narrow

    def _is_within(self, fit_plan: FitPlan) -> bool:
        """Whether a fit costs at most what an attempt may, in the arithmetic that was charged."""
        guarantee = fit_plan.plan.guarantee
        is_exact = guarantee.arithmetic == "discrete-grid" or not self.plan.selection.spec.secure
        return guarantee.mu is not None and guarantee.mu * self.unit.cost_factor <= self.plan.mu and is_exact

    def _fingerprint(
        self, fitted: RawRecords, scored: RawRecords, exact_counts: list[CellCounts], salt: str
    ) -> str:
        """Return a salted hash of all that attempts read of the records."""
        parts = [hash_counts(counts, salt) for counts in exact_counts]
        candidate = self.candidates[0]
        for records in (fitted, scored):
            if len(records):
                data, _ = self._build_data(candidate, records, len(records))
                parts.append(fingerprint_dataset(data, salt))
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def _build_data(
        self, candidate: _Candidate, records: RawRecords, n_rows: int | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the clipped records of a candidate, and the attributes that reading them set; `n_rows` replaces n."""
        model = clone_for(None, candidate.model)
        if hasattr(candidate.model, "schema_"):
            model.schema_ = candidate.model.schema_
        X, y, weights = model.read_records(*records.fit_arguments())
        problem = candidate.fit_plan.plan.problem
        if n_rows is not None:
            problem = replace(problem, n=n_rows)
        data = build_dataset(X, y, problem, model.target_encoder(y), weights)
        return data, _fitted_name_attributes(model)

    def _run_attempt(
        self, candidate: _Candidate, fitted: RawRecords, scored: RawRecords, rng: SharedGenerator
    ) -> tuple[float, DPLinearModel, str]:
        """Fit a candidate and score it with noise; return score, model and digest."""
        plan = candidate.fit_plan.plan
        model = clone_for(None, candidate.model)
        if candidate.data is None:
            candidate.data = self._build_data(candidate, fitted)
        data, names = candidate.data
        model.__dict__.update(names)
        release = run_plan(plan, data, rng)
        model.set_coefficients(np.array(release.value), plan.problem)
        model.n_iter_ = release.n_steps
        exact = np.array([self._exact_score(model, scored)])
        noisy = NoisySums().run(self.score, lambda: [exact], rng).values[0]
        return float(noisy[0]), model, release.digest()

    def _exact_score(self, model: DPLinearModel, scored: RawRecords) -> float:
        """Return the sum of 1 - loss (times weight / weight_bound) over the rows, each in whole units."""
        total, unit = 0.0, self.search._score_unit()
        metric, cap = self.search._chosen_metric(), self.search._loss_cap(model)
        for features, targets, weights in scored.feature_blocks():
            if not len(features):
                continue
            gains = 1 - record_losses(model, features, targets, metric, cap)
            if weights is not None:
                bound = float(self.search.estimator.weight_bound)
                gains = gains * np.clip(np.nan_to_num(weights, nan=0.0), 0.0, bound) / bound
            total += float(np.rint(unit * gains).sum())
        return total


def _set_learned_schema(model: Any, learned: Schema) -> None:
    """Replace the padded schema of a fitted model by the learned one, without its empty categories."""
    encoded = as_schema(encoding_schema(model))
    model.schema = learned
    model.complete_schema_for(model.n_public)
    completed = as_schema(encoding_schema(model))
    model.coef_ = np.ascontiguousarray(model.coef_[..., padded_positions(completed, encoded)])
    model.schema_ = completed


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
