"""DPSearchCV: tuning with a bill. A random number of private attempts, of which only the best leaves."""

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
from dplangevin._rng import generator
from dplangevin.data.dask import is_dask
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._begin import WithCallContext, clone_for, hanging, settle
from dplangevin.estimators._interval_plan import interval_share
from dplangevin.estimators._metrics import losses
from dplangevin.estimators._raw_records import RawRecords
from dplangevin.estimators._reading import dataset_of, dense
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, schema_of
from dplangevin.families.mechanism import run
from dplangevin.families.noisy_answers.mechanism import NoisySums
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule, SumGroup
from dplangevin.families.release import SEEDED
from dplangevin.families.repeated_selection.mechanism import Attempts, RepeatedSelection
from dplangevin.families.repeated_selection.schedule import RepeatedSelectionSchedule
from dplangevin.families.repeated_selection.theorem import attempt_mu
from dplangevin.planner.choose import plan_gaussian_fit
from dplangevin.planner.recipe import Recipe
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.conditions import merge_conditions
from dplangevin.privacy.plan import Price
from dplangevin.privacy.spender import Spender
from dplangevin.problem.constants import ADJACENCIES
from dplangevin.tables import Cells, Table, is_path

PROMISE = {
    "epsilon", "delta", "adjacency", "n", "max_rows_per_person", "person", "theorem", "weight_bound", "bad_rows",
    "ledger", "random_state", "state", "secure", "public_data", "public_method", "compare", "intervals", "classes",
    "target_bounds", "verbose",
}  # fmt: skip
"""Parameters that change what is promised, or what candidates are compared on."""
LOG_LOSS_CAP = 3.0


@dataclass(kw_only=True, eq=False)
class _Candidate:
    """One point of the grid, planned."""

    parameters: dict[str, Any]
    model: DPLinearModel
    recipe: Recipe
    data: Any = field(default=None, repr=False)


class DPSearchCV(WithCallContext, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Choose among candidates under one promise: repeat-and-select.

    K attempts are made, K from the stated law and secret. Each draws a candidate uniformly, fits it privately on a
    random part of the rows, and scores it with noise on the rest. The attempt with the best noisy score is released
    and nothing else: the whole costs (epsilon, delta), charged once. `best_estimator_` is that attempt's model; it is
    not fitted again.

    Parameters
    ----------
    estimator : one of this package's; its own epsilon and delta are not used.
    grid : {"alpha": [...], "schema": [...]}, or a list of such dictionaries. Parameters that change the promise are
        refused.
    epsilon, delta : of the whole; delta > 0.
    repetitions : the mean of K; None is ten for each candidate.
    law : of K, "geometric", "logarithmic" or "poisson".
    holdout : share of the rows that score.
    metric : "log-loss" or "accuracy" for classifiers, "squared-error" for regressors; None takes the first that suits.
    ledger, random_state, verbose : as for the estimators.

    Attributes
    ----------
    best_estimator_, best_params_, best_score_ : of the winner (the score with its noise). privacy_ : the promise.

    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import DPRidge, DPSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> ridge = DPRidge(data_norm=1.5, target_bounds=(-1, 1))
    >>> search = DPSearchCV(ridge, {"alpha": [1e-3, 100.0]}, epsilon=2.0, delta=1e-6, random_state=0).fit(X, X[:, 0])
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
        ledger: Spender | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.estimator, self.grid = estimator, grid
        self.epsilon, self.delta = epsilon, delta
        self.repetitions, self.law = repetitions, law
        self.holdout, self.metric = holdout, metric
        self.ledger, self.random_state, self.verbose = ledger, random_state, verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Plan every candidate from public statements, charge once, and keep the winner."""
        points = self._points()
        self._refuse()
        records = self._records(X, y, points)
        adjacency = _check.choice("adjacency", self.estimator.adjacency, ADJACENCIES)
        schedule = RepeatedSelectionSchedule(
            mu=1.0,
            repetitions=10 * len(points) if self.repetitions is None else self.repetitions,
            law=self.law,  # type: ignore[arg-type]
            adjacency=adjacency,
        )
        mu = attempt_mu(
            _check.positive("epsilon", self.epsilon), _check.open_unit("delta", self.delta), schedule
        )
        if not mu > 1e-6:
            raise CalibrationFailed(
                f"the search alone would cost epsilon = {self.epsilon:g}; take fewer repetitions, or raise epsilon."
            )
        rng, seeded = generator(self.random_state)
        split = _Split.of(records, self.holdout, adjacency, rng, self.estimator.n)
        candidates = [self._candidate(point, split, mu) for point in points]
        _compared_alike([candidate.model for candidate in candidates])
        # which candidate wins is not known before the charge, so the whole depends on what any of them depends on
        conditions = merge_conditions(*(each.recipe.plan.guarantee.conditions for each in candidates))
        plan = Price(schedule=replace(schedule, mu=mu, conditions=conditions), delta=self.delta)
        score = NoisySumsSchedule(
            groups=(SumGroup(answers=1, unit=1.0, scale=(1 + 1e-8) / mu),),
            noise="gaussian",
            adjacency=adjacency,
        )
        price = Price(schedule=score, delta=self.delta)
        if self.verbose:
            print(f"{len(candidates)} candidates; an attempt gets mu = {mu:.4g} of GDP; {plan.guarantee}")
        attempts = Attempts(
            fits=tuple(candidate.recipe.plan for candidate in candidates),
            scores=(price,) * len(candidates),
            attempt=lambda place, rng: self._attempt(candidates[place], split, price, rng),
        )
        made = RepeatedSelection().run(plan, attempts, rng, ledger=self.ledger, rows_per_person=1)
        winner = candidates[made.candidate]
        words = [*winner.recipe.plan.guarantee.assumptions, *winner.model.target_words()[1]]
        words += [SEEDED] if seeded else []
        if adjacency == "replace-one":
            words.append("the number of rows is public")
        hangs = hanging(clone_for(self, self.estimator))
        self.privacy_ = replace(
            plan.guarantee,
            conditions=merge_conditions(hangs, plan.guarantee.conditions),
            assumptions=tuple(dict.fromkeys((*plan.guarantee.assumptions, *words))),
        )
        self.best_estimator_, self.best_params_ = made.value, dict(winner.parameters)
        self.best_score_ = made.score / split.scored
        self.best_estimator_.privacy_, self.best_estimator_.plan_ = self.privacy_, winner.recipe
        self.ledger_head_ = self.best_estimator_.ledger_head_ = made.ledger_head
        self.__dict__.pop("classes_", None)  # of an earlier fit
        if hasattr(made.value, "classes_"):
            self.classes_ = made.value.classes_
        return self

    def _points(self) -> list[dict[str, Any]]:
        """The grid's points; what would change the promise is refused by name."""
        if not isinstance(self.estimator, DPLinearModel):
            raise InvalidParameter(
                f"estimator must be one of this package's, got {type(self.estimator).__name__}."
            )
        grids = [self.grid] if isinstance(self.grid, Mapping) else self.grid
        if not isinstance(grids, Sequence) or not all(isinstance(one, Mapping) for one in grids) or not grids:
            raise InvalidParameter("grid must be a dictionary of lists, or a list of such dictionaries.")
        known = self.estimator.get_params(deep=False)
        points = []
        for one in grids:
            for name, values in one.items():
                if name in PROMISE:
                    raise InvalidParameter(
                        f"grid holds {name!r}, which would change the promise; state it once, outside."
                    )
                if name not in known:
                    raise InvalidParameter(
                        f"grid holds {name!r}, which {type(self.estimator).__name__} does not have."
                    )
                if (
                    isinstance(values, str | Mapping)
                    or not isinstance(values, Sequence | np.ndarray)
                    or not len(values)
                ):
                    raise InvalidParameter(f"grid[{name!r}] must be a list of values, got {values!r}.")
            points += [dict(zip(one, values, strict=True)) for values in itertools.product(*one.values())]
        return points

    def _refuse(self) -> None:
        stated = self.estimator
        asked = {
            "person": stated.person is not None,
            "max_rows_per_person": stated.max_rows_per_person != 1,
            "public_data": stated.public_data is not None,
            "secure": bool(stated.secure),
            "state": stated.state is not None,
            "ledger": stated.ledger is not None,
            "intervals": bool(interval_share(stated.intervals)),
        }
        for name in [name for name, wanted in asked.items() if wanted]:
            raise InvalidParameter(f"{name} of the estimator does not go with a search; leave it out.")
        settle(clone_for(self, stated).set_params(ledger=self.ledger))
        if stated.bad_rows == "refuse":
            raise InvalidParameter("a search never tells of single rows; leave bad_rows out or say 'zero'.")
        if not 0.02 <= _check.open_unit("holdout", self.holdout) <= 0.9:
            raise InvalidParameter(f"holdout must be a share between 0.02 and 0.9, got {self.holdout!r}.")
        suits: tuple[str, ...] = ("log-loss", "accuracy") if is_classifier(stated) else ("squared-error",)
        if not hasattr(stated, "predict_proba"):
            suits = tuple(name for name in suits if name != "log-loss")
        if self.metric is not None:
            _check.choice("metric", self.metric, suits)
        self._suits = suits

    def _records(self, X: Any, y: Any, points: list[dict[str, Any]]) -> _UnreadRecords:
        """The number of rows and the names of columns; cells are read after the charge."""
        if is_dask(X) or is_path(X):
            raise InvalidParameter("a search reads rows in memory; load the table first.")
        shape: Any = getattr(X, "shape", None) if isinstance(X, np.ndarray) or issparse(X) else None
        if shape is not None and len(shape) != 2:
            raise InvalidParameter("X must be a table: rows and columns.")
        order = None if shape is None else tuple(f"x{j}" for j in range(shape[1]))
        for point in points:
            schema = point.get("schema", self.estimator.schema)
            if order is not None and schema is not None:
                order = as_schema(schema).names
        # cells of a sparse matrix or a list are looked at when they are taken: zeros of the same shape stand in
        rows = np.broadcast_to(0.0, shape) if issparse(X) else X
        outline = RawRecords.of(rows, np.zeros(len(y)) if isinstance(y, list) else y, None, order)

        def read() -> tuple[Table, Cells]:
            records = RawRecords.of(dense(X) if issparse(X) else X, y, None, order)
            return records.data.without(records.y), records.data.column(records.y)

        names = outline.data.without(outline.y).names
        return _UnreadRecords(n_rows=len(outline.data), names=names, read=read)

    def _candidate(self, parameters: dict[str, Any], split: _Split, mu: float) -> _Candidate:
        model = clone_for(None, self.estimator).set_params(**parameters)
        model.set_params(
            epsilon=self.epsilon, delta=self.delta, bad_rows="zero", verbose=False, random_state=None,
            n=split.divisor,
        )  # fmt: skip
        if model.learns() == "schema" or model.person is not None:
            raise InvalidParameter(
                "a search takes stated schemas; learn one with a fit and state its schema_."
            )
        model.check_stated()
        if model.stated_targets() is None:
            raise InvalidParameter("state the public set of labels, classes=[...] or the schema's target.")
        width = len(split.records.names)
        if model.schema is not None:
            as_schema(model.schema).validate(split.records.names)
            model.prepare(None, None, None)  # knots, by the stated n: no row is looked at
            width = len(SchemaEncoder(schema_of(model)).get_feature_names_out())
        request = model.request(split.divisor, width, model.encoder().n_classes)
        epsilon = math.nextafter(cv.gdp_epsilon(mu * (1 - 1e-9), self.delta), 0.0)
        # under add-remove the part that fits has a random number of rows
        request = replace(request, epsilon=epsilon, more_rows=model.adjacency == "add-remove")
        recipe = plan_gaussian_fit(request, max_mu=mu)
        return _Candidate(parameters=parameters, model=model, recipe=recipe)

    def _attempt(
        self, candidate: _Candidate, split: _Split, price: Price, rng: np.random.Generator
    ) -> tuple[float, DPLinearModel, str]:
        plan = candidate.recipe.plan
        model = clone_for(None, candidate.model)
        if candidate.data is None:
            X, y, _ = model.read(split.rows[0], split.targets[0])
            candidate.data = dataset_of(X, y, plan.problem, model.encoder(y)), _fitted_names(model)
        data, names = candidate.data
        model.__dict__.update(names)
        release = run(plan, data, rng)
        model.from_theta(np.array(release.value), plan.problem)
        model.n_iter_ = release.n_steps
        lost = losses(model, split.rows[1], split.targets[1], self._metric(), self._cap(model))
        exact = np.array([float(len(lost) - lost.sum())])
        noisy = NoisySums().run(price, lambda: [exact], rng).values[0]
        return float(noisy[0]), model, release.digest()

    def _metric(self) -> str:
        return self._suits[0] if self.metric is None else self.metric

    def _cap(self, model: Any) -> float:
        """The largest loss of a record that counts: larger ones are cut off."""
        if self._metric() == "squared-error":
            low, high = model.stated_targets()
            return float(((high - low) / 2) ** 2)
        return LOG_LOSS_CAP if self._metric() == "log-loss" else 1.0

    def __getattr__(self, name: str) -> Any:
        """predict, predict_proba, decision_function, score, coef_, ... of the winner."""
        if name.startswith("__") or name in ("best_estimator_", "estimator"):
            raise AttributeError(name)
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, name)


@dataclass(frozen=True, kw_only=True, eq=False)
class _UnreadRecords:
    """What is public of the records, and what reads them after the charge."""

    n_rows: int
    names: tuple[str, ...]
    read: Callable[[], tuple[Table, Cells]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Split:
    """Rows to fit and rows to score, by chance alone; divisor and scored are public numbers of either."""

    records: _UnreadRecords
    held: NDArray[np.bool_]
    divisor: int
    scored: int

    @cached_property
    def _parts(self) -> tuple[tuple[Table, Table], tuple[Cells, Cells]]:
        table, targets = self.records.read()
        fitted, scored = np.flatnonzero(~self.held), np.flatnonzero(self.held)
        return (table.take(fitted), table.take(scored)), (targets.take(fitted), targets.take(scored))

    @property
    def rows(self) -> tuple[Table, Table]:
        """The rows to fit and to score; this reads them."""
        return self._parts[0]

    @property
    def targets(self) -> tuple[Cells, Cells]:
        """The targets of either; this reads them."""
        return self._parts[1]

    @classmethod
    def of(
        cls,
        records: _UnreadRecords,
        share: float,
        adjacency: str,
        rng: np.random.Generator,
        n: int | None,
    ) -> _Split:
        """A fixed number of rows under replace-one. Under add-remove a coin for each row by itself: with a fixed number
        a row that leaves would push another one from one part to the other."""
        rows = records.n_rows
        total = rows if n is None else _check.count("n", n)
        if adjacency == "replace-one" and total != rows:
            raise InvalidParameter(
                f"X has {rows} rows but n = {total} is stated, and their number is public under replace-one; "
                "state the true number, or use adjacency='add-remove'."
            )
        scored = max(1, round(share * total))
        if total - scored < 1:
            raise InvalidParameter("a search needs rows to fit and rows to score.")
        if adjacency == "replace-one":
            held = np.zeros(rows, bool)
            held[rng.permutation(rows)[:scored]] = True
        else:
            held = rng.random(rows) < share
        return cls(records=records, held=held, divisor=total - scored, scored=scored)


def _compared_alike(models: list[Any]) -> None:
    """Losses of different labels, or cut off at different caps, do not compare."""
    facts = [model.stated_targets() for model in models]
    if any(fact != facts[0] for fact in facts):
        raise InvalidParameter(
            "the candidates' schemas state different classes or ranges of the target, so their losses do not compare; "
            "state the target once."
        )


def _fitted_names(model: Any) -> dict[str, Any]:
    names = ("classes_", "n_features_in_", "feature_names_in_", "schema_")
    return {name: vars(model)[name] for name in names if name in vars(model)}
