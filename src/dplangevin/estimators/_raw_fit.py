"""Fits that also learn bounds or limit rows per person, all with one plan and one charge.

`fit_raw_table` limits the rows of each person, learns a schema and fits; `fit_with_learned_norm` (data_norm="learn")
learns the norm to which rows are clipped. There, rows are divided by the learned norm, so that the fit can be planned
for rows of norm 1 before anything is read, and the coefficients are divided by it afterwards. `fit_with_learned_count`
(n_public="learn") learns the number of rows, which is private under add-remove, and plans the fit for it.
"""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import SharedGenerator
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.charge import charge_then_release
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Pure
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.registry import mechanisms_with
from dplangevin.data.dataset import check_shape
from dplangevin.data.sources import read_records
from dplangevin.errors import CalibrationFailed, DplangevinError, InvalidParameter
from dplangevin.estimators._posterior import interval_budget_fraction
from dplangevin.estimators._raw_table import (
    NOTHING_LEFT_MESSAGE,
    PrivacyUnit,
    RawPlan,
    RawRecords,
    plan_raw_fit,
)
from dplangevin.estimators._reading import UNBOUNDED_WEIGHTS_MESSAGE, OutOfMemoryData, build_dataset
from dplangevin.estimators.call_context import check_fit_conditions, learns_row_count
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, check_monotone, encoding_schema
from dplangevin.estimators.uncertainty import geometry_of_release
from dplangevin.mechanisms.learned_schema.mechanism import (
    CellCounts,
    ColumnRange,
    LearnedSchemaMechanism,
    coarse_range,
    count_cells,
    hash_counts,
    octave_edges,
    refine_range,
    schema_entry,
)
from dplangevin.mechanisms.learned_schema.spec import count_noise_std
from dplangevin.mechanisms.mechanism import Release, fingerprint_dataset, run_plan
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup, plan_exact_noise
from dplangevin.mechanisms.run_state import RunState
from dplangevin.planner.fit_plan import FitPlan, Request, plan_gaussian_fit, plan_request
from dplangevin.problem.constants import ADJACENCIES, MAX_RECORDS
from dplangevin.schema import CategoricalColumn, Column, LearnableSchema, Schema
from dplangevin.schema.learned import asks_to_learn, learn_template_error
from dplangevin.schema.schema import LEARN
from dplangevin.tables import Table, as_column, is_streamed, open_files

if TYPE_CHECKING:
    from dplangevin.estimators._base import DPLinearModel


def read_schema_to_learn(schema: Any) -> LearnableSchema | None:
    """Return the schema if something of it is to be learned, else None."""
    if isinstance(schema, LearnableSchema):
        return schema
    return LearnableSchema.from_dict(schema) if asks_to_learn(schema) else None


def _feature_names(X: Any, y: Any) -> list[str]:
    """Return the column names of a table without the target; an empty list where it has no names."""
    if is_streamed(X):
        names: Any = open_files(X).names
    else:
        names = next(
            (
                getattr(X, attribute)
                for attribute in ("columns", "column_names", "names")
                if hasattr(X, attribute)
            ),
            (),
        )
    return [str(name) for name in names if not (isinstance(y, str) and str(name) == y)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RawRelease:
    """Result of a fit from a raw table, released and charged as one.

    Parameters
    ----------
    release : of the fit.
    fit_plan : that was run.
    model_copy : the model for which the schema was completed.
    schema : that was learned, or None.
    ledger_head : of the ledger's chain after the charge.
    """

    release: Release
    fit_plan: FitPlan
    model_copy: DPLinearModel
    schema: Schema | None
    ledger_head: str | None = field(default=None, repr=False)

    def digest(self) -> str:
        """Return a hash of both results, for the ledger."""
        learned = "" if self.schema is None else repr(self.schema.to_dict())
        return hashlib.sha256((self.release.digest() + learned).encode()).hexdigest()


def fit_raw_table(model: DPLinearModel, X: Any, y: Any, weights: Any) -> Any:
    """Plan from public inputs, charge once, limit rows per person, learn the schema, fit, and store the release."""
    raw_fit = plan_raw_table(model, X, y, weights)
    plan, schema_to_learn, records = raw_fit.plan, raw_fit.schema_to_learn, raw_fit.records
    if plan.fit_plan.warning is not None:
        warnings.warn(plan.fit_plan.warning, UserWarning, stacklevel=3)
    if records.weights is not None and model.weight_bound is None:
        warnings.warn(UNBOUNDED_WEIGHTS_MESSAGE, UserWarning, stacklevel=3)
    if model.verbose:
        print(plan.fit_plan)
    saved_run = RunState.for_fit(
        model.checkpoint,
        plan.fit_plan.plan,
        plan.learning,
        plan.privacy_unit,
        model.person,
        None if schema_to_learn is None else schema_to_learn.to_dict(),
        ledger=model.ledger,
    )

    def release(rng: np.random.Generator, seeded: bool) -> RawRelease:
        return raw_fit.release(rng, seeded, saved_run)

    raw_release = charge_then_release(
        plan,
        release,
        model.random_state,
        ledger=model.ledger,
        checkpoint=saved_run,
        rows_per_person=plan.privacy_unit.max_rows,
    )
    return _copy_fitted_attributes(model, plan, raw_release)


def plan_raw_table(model: DPLinearModel, X: Any, y: Any, weights: Any) -> RawFit:
    """Plan the fit of a raw table from what is public about it: columns, and the number of rows if that is."""
    if isinstance(model.schema, str) and model.schema == LEARN:
        raise learn_template_error(_feature_names(X, y))
    schema_to_learn = read_schema_to_learn(model.schema)
    _check_raw_options(model, schema_to_learn)
    records = RawRecords.from_fit_arguments(
        X, y, weights, None if schema_to_learn is None else schema_to_learn.names
    )
    model_copy = _planning_copy(model, schema_to_learn, records)
    privacy_unit = PrivacyUnit(
        max_rows=_check.check_count("max_rows_per_person", model.max_rows_per_person),
        adjacency=_check.check_choice("adjacency", model.adjacency, ("replace-one", "add-remove")),
        chooses_rows=model.person is not None,
    )
    encode = model_copy.target_encoder()
    request = model_copy.planning_request(
        model.public_divisor(len(records)), _n_planned_columns(model_copy, records, model), encode.n_classes
    )
    plan = plan_raw_fit(
        request, schema_to_learn, privacy_unit, _check.check_positive("epsilon", model.epsilon)
    )
    if not privacy_unit.chooses_rows:  # otherwise the number of rows is private
        check_shape((len(records), request.n_features), plan.fit_plan.plan.problem)
    return RawFit(
        model=model,
        model_copy=model_copy,
        schema_to_learn=schema_to_learn,
        records=records,
        plan=plan,
        request=request,
    )


def _check_raw_options(model: DPLinearModel, schema_to_learn: LearnableSchema | None) -> None:
    """Raise for options that do not go with a raw table, from public inputs alone."""
    unsupported = {
        "public_data": model.public_data is not None,
        "intervals": bool(interval_budget_fraction(model)),
    }
    for name in [name for name, is_set in unsupported.items() if is_set]:
        if schema_to_learn is None:
            raise InvalidParameter(f"{name} does not go with person=; leave one of them out.")
        raise InvalidParameter(
            f"{name} does not go with a learned schema: learn it with one fit, and pass the fitted model's schema_."
        )
    if schema_to_learn is not None and getattr(model, "products", None):
        raise InvalidParameter(
            "products do not go with a learned schema: learn it with one fit, and pass the fitted model's schema_."
        )
    if schema_to_learn is not None and model.data_norm is not None:
        raise InvalidParameter("data_norm and schema are both given; the schema states its own row_norm.")
    check_learned_target(model, schema_to_learn)
    if model.person is None:
        return
    if not isinstance(model.person, str):
        raise InvalidParameter("person must be the name of a column of the table.")
    if model.mechanism in mechanisms_with("random_batches"):
        raise InvalidParameter(
            "person= supports full batches only: a random batch samples rows, not persons. Leave mechanism='auto'."
        )
    if model.n_public is None:
        raise InvalidParameter(
            "person= needs n_public=, the public divisor of the mean, because the number of rows used depends on who "
            "is in the table. State about how many rows to expect."
        )


def check_learned_target(model: DPLinearModel, schema_to_learn: LearnableSchema | None) -> None:
    """Raise if the range of a target is to be learned that the loss itself needs."""
    if schema_to_learn is None or not getattr(model, "_log_link", False):
        return
    if any(column is schema_to_learn.target for column in schema_to_learn.numbers):
        raise InvalidParameter(
            "the range of counts cannot be learned: it is part of the Poisson loss. State target_bounds=(0, high)."
        )


def _planning_copy(
    model: DPLinearModel, schema_to_learn: LearnableSchema | None, records: RawRecords
) -> DPLinearModel:
    """Return a copy whose schema has the widest encoding that may be learned; raise if public inputs are invalid."""
    model_copy = copy.copy(model)
    model_copy.bad_rows, model_copy.ledger, model_copy.checkpoint = model._bad_row_rule(), None, None
    for name in [name for name in vars(model_copy) if name.endswith("_") and not name.startswith("_")]:
        del model_copy.__dict__[name]
    if schema_to_learn is not None:
        model_copy.schema = schema_to_learn.widest_schema()
    names = records.feature_names
    if model.person is not None:
        if model.person not in names:
            raise InvalidParameter(
                f"there is no column {model.person!r}; the table has {_check.describe_columns(names)}."
            )
        if not model_copy._accepts_any_row():
            raise InvalidParameter(
                "person= needs a schema or bad_rows='zero': an error after the charge would reveal a bad row."
            )
        if model_copy.schema is not None and model.person in as_schema(model_copy.schema).names:
            raise InvalidParameter(
                f"column {model.person!r} identifies persons; it cannot be a feature as well."
            )
    if model_copy.schema is not None:
        as_schema(model_copy.schema).validate(names)
        model_copy.complete_schema_for(model.public_divisor(len(records)))
    model_copy.check_public_inputs()
    if model_copy.public_targets() is None:
        raise InvalidParameter(
            "state the public set of labels, classes=[...] or the schema's target: reading it from the table would "
            "make the guarantee conditional."
        )
    return model_copy


def _n_planned_columns(model_copy: DPLinearModel, records: RawRecords, model: DPLinearModel) -> int:
    if model_copy.schema is not None:
        return _n_encoded_columns(as_schema(encoding_schema(model_copy)))
    return len([name for name in records.feature_names if name != model.person])


@dataclass(frozen=True, kw_only=True, eq=False)
class RawFit:
    """Planned fit from a raw table; `release` reads the records, after the charge."""

    model: DPLinearModel
    model_copy: DPLinearModel
    schema_to_learn: LearnableSchema | None
    records: RawRecords
    plan: RawPlan
    request: Request

    def release(self, rng: np.random.Generator, seeded: bool, saved_run: RunState | None) -> RawRelease:
        """Limit the rows per person, learn the schema, then fit the model."""
        records, rows = self.records, self.plan.privacy_unit.max_rows
        shared = SharedGenerator(rng, seeded or saved_run is not None)
        if self.model.person is not None:
            records = records.limit_rows_per_person(self.model.person, rows, rng)
        model_copy, fit_plan = self.model_copy, self.plan.fit_plan
        schema: Schema | None = None
        exact_counts: list[CellCounts] = []
        if self.schema_to_learn is not None:
            learned, exact_counts = learn_schema(
                self.schema_to_learn, self.plan.learning, records, self.request.n, shared
            )
            schema = self._set_schema(learned)
            fit_plan = self._narrower_plan(_n_encoded_columns(schema))
            if fit_plan is self.plan.fit_plan:  # the width that was planned before anything was read
                self._set_schema(self.schema_to_learn.pad_schema(learned))
        X, y, weights = model_copy.read_records(*records.fit_arguments())
        problem, encode = fit_plan.plan.problem, model_copy.target_encoder(y)
        data = build_dataset(X, y, problem, encode, weights)
        if saved_run is not None:
            saved_run.check_records(
                lambda salt: (
                    "".join(hash_counts(counts, salt) for counts in exact_counts)
                    + fingerprint_dataset(data, salt)
                )
            )
        release = replace(run_plan(fit_plan.plan, data, shared), seeded=seeded)
        return RawRelease(release=release, fit_plan=fit_plan, model_copy=model_copy, schema=schema)

    def _set_schema(self, schema: Schema) -> Schema:
        """Set the schema of the model that is fitted, and return it as it encodes, with the bases of an estimator."""
        self.model_copy.schema = schema
        self.model_copy.complete_schema_for(self.request.n)
        return as_schema(encoding_schema(self.model_copy))

    def _narrower_plan(self, n_features: int) -> FitPlan:
        """Return the plan for the number of columns that was learned, if its guarantee is within what was charged."""
        if n_features == self.request.n_features:
            return self.plan.fit_plan
        charged_plan = self.plan.fit_plan.plan
        epsilon = charged_plan.guarantee.epsilon(charged_plan.delta)
        request = replace(
            self.request, n_features=n_features, epsilon=epsilon, adjacency=charged_plan.problem.adjacency,
            allow_more_rows=charged_plan.problem.allow_more_rows,
        )  # fmt: skip
        try:
            fit_plan = plan_request(request)
        except DplangevinError:  # without a narrower plan, the one that was charged runs
            return self.plan.fit_plan
        if not self.plan.may_run(fit_plan):
            return self.plan.fit_plan
        return replace(fit_plan, reasons=(*self.plan.reasons, *fit_plan.reasons))


def learn_schema(
    schema_to_learn: LearnableSchema,
    learning: tuple[CertifiedSpec, ...],
    records: RawRecords,
    n: int,
    shared: SharedGenerator,
) -> tuple[Schema, list[CellCounts]]:
    """Return the learned schema, and the exact counts from which its noisy counts were made."""
    exact_counts: list[CellCounts] = []
    target = schema_to_learn.target
    table_columns = {  # the target's column in the table is the one that y names
        column.name: records.y if target is not None and target.name == column.name else column.name
        for column in schema_to_learn.learned_columns
    }
    texts = {table_columns[column.name]: column.text for column in schema_to_learn.categories}
    edges = {table_columns[column.name]: octave_edges(column.unit) for column in schema_to_learn.numbers}

    def release_counts(spec: CertifiedSpec, edges: Any, texts: Any, outer: bool) -> Any:
        exact = records.count_cells(edges, texts, outer=outer)
        exact_counts.append(exact)
        return LearnedSchemaMechanism().run(spec, lambda: exact, shared)

    first = release_counts(learning[0], edges, texts, True)
    columns: dict[str, Column] = {
        column.name: column.to_column(_most_common_labels(labels, column.max_categories))
        for column, labels in zip(schema_to_learn.categories, first.labels, strict=True)
    }
    if schema_to_learn.numbers:
        noise = count_noise_std(learning[0].spec)
        spans = [
            coarse_range(cells, column.unit, noise, n, _is_log_scale(column.transform))
            for column, cells in zip(schema_to_learn.numbers, first.cells, strict=True)
        ]
        edges = {
            table_columns[column.name]: span.edges
            for column, span in zip(schema_to_learn.numbers, spans, strict=True)
        }
        second = release_counts(learning[1], edges, {}, False)
        noise = count_noise_std(learning[1].spec)
        for column, cells, span in zip(schema_to_learn.numbers, second.cells, spans, strict=True):
            columns[column.name] = column.to_column(schema_entry(refine_range(cells, span, noise, n)))
    return schema_to_learn.with_learned(columns), exact_counts


def _n_encoded_columns(schema: Schema) -> int:
    return len(SchemaEncoder(schema).get_feature_names_out())


def padded_positions(learned: Schema, padded: Schema) -> list[int]:
    """Return the positions of the learned encoding's columns in the padded one, which has extra empty categories."""
    positions, first = [], 0
    for column, wide in zip(learned.columns, padded.columns, strict=True):
        width, padded_width = (
            _n_encoded_columns(replace(learned, columns=(each,), target=None)) - 1 for each in (column, wide)
        )
        n_listed = len(column.categories) if isinstance(column, CategoricalColumn) else width
        positions += [
            *range(first, first + n_listed),
            *range(first + padded_width - (width - n_listed), first + padded_width),
        ]
        first += padded_width
    return [*positions, first]  # the last one is the constant


def _is_log_scale(transform: str | None) -> bool | None:
    return None if transform is None else transform == "log1p"


def _most_common_labels(labels: Any, max_labels: int) -> list[str]:
    """Return the most common labels, in the order of the labels."""
    most_common = sorted(labels, key=lambda label: (-labels[label], label))[:max_labels]
    return sorted(most_common)


def _copy_fitted_attributes(model: DPLinearModel, plan: RawPlan, raw_release: RawRelease) -> DPLinearModel:
    """Set the released coefficients, schema and guarantee on the model, and return it."""
    model_copy = raw_release.model_copy
    problem = raw_release.fit_plan.plan.problem
    theta = np.array(raw_release.release.value)
    model_copy.set_coefficients(theta, problem)
    assumptions = () if raw_release.schema is None else (
        "ranges and categories were learned from noisy counts that the guarantee covers; they are part of the release",
    )  # fmt: skip
    model_copy.privacy_ = model_copy.guarantee_of_fit(
        plan.guarantee, raw_release.release.seeded, *assumptions
    )
    if raw_release.schema is not None:
        encoded = as_schema(encoding_schema(model_copy))
        model_copy.schema_ = raw_release.schema
        model_copy.coef_ = np.ascontiguousarray(
            model_copy.coef_[..., padded_positions(raw_release.schema, encoded)]
        )
    model_copy.plan_, model_copy.n_iter_, model_copy.ledger_head_ = (
        raw_release.fit_plan,
        raw_release.release.n_steps,
        raw_release.ledger_head,
    )
    fitted_attributes = {
        name: value for name, value in vars(model_copy).items() if name.endswith("_") and name[:1] != "_"
    }
    model.__dict__.update(fitted_attributes)
    return model


NORM_SCHEMA = Schema.learn(norm="number")


@dataclass(frozen=True, kw_only=True, eq=False)
class NormRelease:
    """Release of the fit to scaled rows, and the learned norm by which they were divided."""

    release: Release
    norm: float
    ledger_head: str | None = field(default=None, repr=False)

    def digest(self) -> str:
        """Return a hash of both results, for the ledger."""
        return hashlib.sha256(f"{self.release.digest()} {self.norm!r}".encode()).hexdigest()


def fit_with_learned_norm(model: DPLinearModel, X: Any, y: Any, weights: Any) -> Any:
    """Plan for rows of norm 1, charge once, learn the norm, and fit the scaled rows."""
    _check_norm_options(model)
    model_copy = copy.copy(model)
    # The conditions of a strict ledger are checked here, before the copy drops the ledger.
    model_copy.data_norm = 1.0
    model_copy.check_public_inputs()
    model_copy.bad_rows, model_copy.ledger, model_copy.checkpoint = model._bad_row_rule(), None, None
    outline = model_copy.outline(X, y, weights)
    if isinstance(outline.X, OutOfMemoryData):
        raise InvalidParameter("data_norm='learn' needs arrays in memory; state data_norm, or a schema.")
    encode = model_copy.target_encoder(outline.labels)
    privacy_unit = PrivacyUnit(
        max_rows=_check.check_count("max_rows_per_person", model.max_rows_per_person),
        adjacency=_check.check_choice("adjacency", model.adjacency, ADJACENCIES),
        chooses_rows=False,
    )
    request = model_copy.planning_request(
        model.public_divisor(outline.shape[0]), outline.shape[1], encode.n_classes
    )
    plan = plan_raw_fit(request, NORM_SCHEMA, privacy_unit, _check.check_positive("epsilon", model.epsilon))
    if plan.fit_plan.warning is not None:
        warnings.warn(plan.fit_plan.warning, UserWarning, stacklevel=3)
    outline.check(plan.fit_plan.plan.problem, encode)
    saved_run = RunState.for_fit(
        model.checkpoint, plan.fit_plan.plan, plan.learning, privacy_unit, LEARN, ledger=model.ledger
    )

    def release(rng: np.random.Generator, seeded: bool) -> NormRelease:
        rows, targets, row_weights = model_copy.read_cells(outline)
        shared = SharedGenerator(rng, seeded or saved_run is not None)
        norm, exact_counts = _learn_norm(np.asarray(rows, np.float64), plan, request.n, shared)
        with np.errstate(over="ignore"):  # a row that overflows is scaled back like any other
            scaled = np.nan_to_num(rows / norm)
        data = build_dataset(scaled, targets, plan.fit_plan.plan.problem, encode, row_weights)
        if saved_run is not None:
            saved_run.check_records(
                lambda salt: _digest_counts(exact_counts, salt) + fingerprint_dataset(data, salt)
            )
        fit_release = replace(run_plan(plan.fit_plan.plan, data, shared), seeded=seeded)
        return NormRelease(release=fit_release, norm=norm)

    norm_release = charge_then_release(
        plan,
        release,
        model.random_state,
        ledger=model.ledger,
        checkpoint=saved_run,
        rows_per_person=privacy_unit.max_rows,
    )
    model_copy.set_coefficients(np.array(norm_release.release.value), plan.fit_plan.plan.problem)
    model_copy.coef_ = model_copy.coef_ / norm_release.norm
    assumption = (
        f"rows were divided by the learned norm {norm_release.norm:.6g}, which is part of the release"
    )
    model_copy.privacy_ = model_copy.guarantee_of_fit(plan.guarantee, norm_release.release.seeded, assumption)
    model_copy.data_norm_, model_copy.plan_ = norm_release.norm, plan.fit_plan
    model_copy.n_iter_, model_copy.ledger_head_ = norm_release.release.n_steps, norm_release.ledger_head
    model.__dict__.update({name: value for name, value in vars(model_copy).items() if name.endswith("_")})
    return model


def _check_norm_options(model: DPLinearModel) -> None:
    """Raise for options that do not go with data_norm="learn", from public inputs alone."""
    unsupported = {
        "schema": model.schema is not None,
        "person": model.person is not None,
        "radius": model.radius is not None,
        "alpha": model.alpha is not None,
        "public_data": model.public_data is not None,
        "intervals": bool(interval_budget_fraction(model)),
        "n_public='learn'": learns_row_count(model),
    }
    for name in [name for name, is_set in unsupported.items() if is_set]:
        raise InvalidParameter(
            f"{name} does not go with data_norm='learn'; state data_norm, or leave {name} out."
        )


def _learn_norm(
    rows: Floats, plan: RawPlan, n: int, shared: SharedGenerator
) -> tuple[float, list[CellCounts]]:
    """Return the upper end of the learned range of row norms, and the exact counts from which it was learned."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows, axis=1)
    table = Table({"norm": as_column(norms, "norm")}, len(rows))
    exact_counts: list[CellCounts] = []

    def release_counts(spec: CertifiedSpec, edges: Floats, outer: bool) -> Floats:
        exact = count_cells(table, {"norm": edges}, {}, outer=outer)
        exact_counts.append(exact)
        return np.asarray(LearnedSchemaMechanism().run(spec, lambda: exact, shared).cells[0])

    first, second = plan.learning
    span: ColumnRange = coarse_range(
        release_counts(first, octave_edges(1.0), True), 1.0, count_noise_std(first.spec), n, False
    )
    span = refine_range(release_counts(second, span.edges, False), span, count_noise_std(second.spec), n)
    return (span.high if span.high > 0 else 1.0), exact_counts


def _digest_counts(exact_counts: list[CellCounts], salt: str) -> str:
    from dplangevin.mechanisms.learned_schema.mechanism import hash_counts

    return "".join(hash_counts(counts, salt) for counts in exact_counts)


COUNT_BUDGET_FRACTION = 0.01
"""Of mu^2 (of epsilon for a pure guarantee), the part that learns the number of rows."""
PLANNED_ROWS = 10_000
"""The divisor of the plan that is charged before the number of rows is learned: what a fit costs depends on no divisor,
because its noise is planned in units of what one record adds."""


@dataclass(frozen=True, kw_only=True)
class CountedPlan:
    """Plan of a noisy number of rows and of a fit whose public divisor it becomes, charged together.

    Parameters
    ----------
    count : spec of the noisy number of rows.
    fit_plan : for PLANNED_ROWS; the fit runs the plan for the released number if that costs no more.

    Attributes
    ----------
    guarantee : of both releases, composed: whatever number is released, the fit after it costs at most what is here.
    """

    count: CertifiedSpec
    fit_plan: FitPlan
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        fit = self.fit_plan.plan.guarantee
        if (
            self.fit_plan.plan.delta == 0
        ):  # as one pure release: another plan may divide its epsilon otherwise
            fit = replace(fit, parts=(Pure(value=fit.epsilon(0.0)),), derivations=())
        both = fit + self.count.guarantee
        _check.set_frozen(self, guarantee=replace(both, at_delta=self.fit_plan.plan.delta, composition=None))

    def may_run(self, fit_plan: FitPlan) -> bool:
        """Whether a fit costs at most what was charged, in the same arithmetic and under the same conditions."""
        planned, other = self.fit_plan.plan.guarantee, fit_plan.plan.guarantee
        stated = (planned.adjacency, planned.arithmetic, planned.conditions, planned.rows_per_person)
        if stated != (other.adjacency, other.arithmetic, other.conditions, other.rows_per_person):
            return False
        if self.fit_plan.plan.delta == 0:
            return other.epsilon(0.0) <= planned.epsilon(0.0)
        return planned.mu is not None and other.mu is not None and other.mu <= planned.mu

    def plan_for_rows(self, request: Request, rows: int) -> FitPlan:
        """Return the plan of the fit for the released number of rows, of which it is a function."""
        charged = self.fit_plan.plan
        epsilon = charged.guarantee.epsilon(charged.delta)
        noise = self.count.spec.groups[0].scale  # type: ignore[attr-defined]
        reason = (
            f"{COUNT_BUDGET_FRACTION:.0%} of the privacy budget is spent on the number of rows, which is private: "
            f"released as {rows} with noise of scale {noise:.3g}, it is the divisor, and the fit was planned for it"
        )
        for margin in (0.0, 1e-7):  # both were rounded
            try:
                fit_plan = _plan_composable_fit(
                    replace(request, n=rows, epsilon=epsilon * (1 - margin)), charged.guarantee.mu
                )
            except DplangevinError:
                continue
            if self.may_run(fit_plan):
                return replace(fit_plan, reasons=(reason, *fit_plan.reasons))
        return replace(self.fit_plan, reasons=(reason, *self.fit_plan.reasons))


def _plan_composable_fit(request: Request, max_mu: float | None = None) -> FitPlan:
    """Plan a fit whose cost is pure, or mu of Gaussian DP of at most max_mu."""
    if request.delta == 0:
        return plan_request(request)
    return plan_gaussian_fit(request, math.inf if max_mu is None else max_mu)


def plan_with_count(request: Request) -> CountedPlan:
    """Return the plan of a noisy number of rows and of a fit that together cost the request's (epsilon, delta)."""
    epsilon, delta = request.epsilon, request.delta
    is_pure = delta == 0
    goal = epsilon if is_pure else cv.gdp_mu(epsilon, delta) * (1 - 1e-7)
    cost = goal * (COUNT_BUDGET_FRACTION if is_pure else math.sqrt(COUNT_BUDGET_FRACTION))

    def plan_count(secure: bool) -> CertifiedSpec:
        spec = NoisySumsSpec(
            groups=(SumGroup(answers=1, unit=1.0, scale=(1 + 1e-9) / cost),),
            noise="geometric" if is_pure else "gaussian",
            adjacency="add-remove",
            secure=secure,
        )
        return CertifiedSpec(spec=spec, delta=delta)

    count = plan_exact_noise(plan_count, request.secure)
    left = (1 - COUNT_BUDGET_FRACTION) * goal if is_pure else math.sqrt(1 - COUNT_BUDGET_FRACTION) * goal
    for margin in (1e-9, 1e-6):
        fit_epsilon = left if is_pure else math.nextafter(cv.gdp_epsilon(left, delta), 0.0)
        fit_plan = _plan_composable_fit(replace(request, epsilon=fit_epsilon * (1 - margin)))
        if not is_pure and fit_plan.plan.guarantee.mu is None:
            raise InvalidParameter(
                f"n_public='learn' needs a fit of which the cost is known as mu of Gaussian DP, and that of "
                f"mechanism={fit_plan.plan.spec.mechanism!r} is not: state n_public=, the public divisor, or leave "
                "mechanism='auto'."
            )
        plan = CountedPlan(count=count, fit_plan=fit_plan)
        if plan.guarantee.epsilon(delta) <= epsilon:
            return plan
    raise CalibrationFailed(NOTHING_LEFT_MESSAGE.format(epsilon))


@dataclass(frozen=True, kw_only=True, eq=False)
class CountedRelease:
    """Release of the fit, the number of rows that was released before it, and the plan that followed from that."""

    release: Release
    rows: int
    fit_plan: FitPlan
    ledger_head: str | None = field(default=None, repr=False)

    def digest(self) -> str:
        """Return a hash of both results, for the ledger."""
        return hashlib.sha256(f"{self.release.digest()} {self.rows}".encode()).hexdigest()


def fit_with_learned_count(model: DPLinearModel, X: Any, y: Any, weights: Any) -> Any:
    """Charge once, release the number of rows with noise, plan the fit for that number, and fit.

    Nothing else depends on the number of rows: what is public about the table is its columns.
    """
    _check_count_options(model)
    check_fit_conditions(model)
    model_copy = copy.copy(model)
    model_copy.bad_rows, model_copy.ledger, model_copy.checkpoint = model._bad_row_rule(), None, None
    model_copy.verbose = False  # how sums are computed depends on the size of the table
    outline = model_copy.outline(X, y, weights)
    encode = model_copy.target_encoder(outline.labels)
    if model.schema is not None:
        check_monotone(model_copy, encode.n_classes)
    request = model_copy.planning_request(PLANNED_ROWS, outline.shape[1], encode.n_classes)
    plan = plan_with_count(request)
    if model.max_rows_per_person != 1:
        model.check_group_privacy(plan.guarantee)
    if outline.weighted and model.weight_bound is None:
        warnings.warn(UNBOUNDED_WEIGHTS_MESSAGE, UserWarning, stacklevel=3)
    outline.check(plan.fit_plan.plan.problem, encode)
    saved_run = RunState.for_fit(model.checkpoint, plan.fit_plan.plan, plan.count, LEARN, ledger=model.ledger)

    def release(rng: np.random.Generator, seeded: bool) -> CountedRelease:
        shared = SharedGenerator(rng, seeded or saved_run is not None)
        exact = np.array([float(outline.shape[0])])
        [noisy] = NoisySums().run(plan.count, lambda: [exact], shared).values
        rows = min(max(round(float(noisy[0])), 1), MAX_RECORDS)
        fit_plan = plan.plan_for_rows(request, rows)
        reader = model_copy.reader(outline, fit_plan.plan.problem, encode, is_single_use=True)
        data = reader if saved_run is None else read_records(reader)
        if saved_run is not None:
            saved_run.check_records(lambda salt: fingerprint_dataset(read_records(data), salt))
        fit_release = replace(run_plan(fit_plan.plan, data, shared, secure=bool(model.secure)), seeded=seeded)
        return CountedRelease(release=fit_release, rows=rows, fit_plan=fit_plan)

    counted = charge_then_release(
        plan,
        release,
        model.random_state,
        ledger=model.ledger,
        checkpoint=saved_run,
        rows_per_person=model.max_rows_per_person,
    )
    fit_plan, fit_release = counted.fit_plan, counted.release
    model.warn_of_large_delta(counted.rows)
    if fit_plan.warning is not None:
        warnings.warn(fit_plan.warning, UserWarning, stacklevel=3)
    if model.verbose:
        print(fit_plan)
    model_copy.set_coefficients(np.array(fit_release.value), fit_plan.plan.problem)
    charged = plan.guarantee.assumptions
    others = (each for each in fit_plan.plan.guarantee.assumptions if each not in charged)
    model_copy.privacy_ = model_copy.guarantee_of_fit(
        plan.guarantee, fit_release.seeded, *others, COUNT_ASSUMPTION
    )
    if fit_release.auxiliary:
        model_copy.geometry_ = geometry_of_release(fit_release)
    model_copy.n_public_, model_copy.plan_ = counted.rows, fit_plan
    model_copy.n_iter_, model_copy.ledger_head_ = fit_release.n_steps, counted.ledger_head
    model.__dict__.update({name: value for name, value in vars(model_copy).items() if name.endswith("_")})
    return model


COUNT_ASSUMPTION = (
    f"n = {PLANNED_ROWS} is the divisor of the plan that was charged; the fit's own, and its plan, which costs no "
    "more, follow from a noisy number of rows that the guarantee covers and that is part of the release"
)


def _check_count_options(model: DPLinearModel) -> None:
    """Raise for options that do not go with n_public="learn", from public inputs alone."""
    if _check.check_choice("adjacency", model.adjacency, ADJACENCIES) == "replace-one":
        raise InvalidParameter(
            "n_public='learn' is for adjacency='add-remove': under replace-one the number of rows is public. Leave "
            "n_public out."
        )
    unsupported = {
        "a learned schema": model.learned_bounds() == "schema",
        "person": model.person is not None,
        "public_data": model.public_data is not None,
        "intervals": bool(interval_budget_fraction(model)),
    }
    for name in [name for name, is_set in unsupported.items() if is_set]:
        raise InvalidParameter(
            f"{name} does not go with n_public='learn': its plan is made for a stated number of rows. State about how "
            f"many rows to expect, n_public=, or leave {name} out."
        )
