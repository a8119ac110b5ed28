"""Plans and records of fits from a raw table, which learn a schema, limit the rows of each person, and fit a model.

Each person's rows are a uniform subset, drawn independently of all other persons, so that a person who joins or
leaves changes nobody else's rows. Rows whose person is missing belong to nobody and are left out.

The budget is divided by a public rule: a tenth of mu^2 (of epsilon for pure DP) is spent on the schema, half of it to
find powers of two and common categories, half to refine the ranges; a tenth of delta covers rare categories.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee, guarantee_per_person
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.data import ArrowSource
from dplangevin.data.dask import connect_client, is_dask
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.learned_schema.mechanism import (
    N_COARSE_CELLS,
    N_FINE_CELLS,
    CellCounts,
    add_counts,
    count_cells,
)
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec, calibrate_learned_schema
from dplangevin.planner.fit_plan import FitPlan, Request, plan_request
from dplangevin.problem.constants import Adjacency
from dplangevin.schema import LearnableSchema
from dplangevin.tables import CellColumn, Table, as_column, as_table, is_frame, is_streamed, open_files

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


def select_person_rows(codes: Codes, max_rows: int, rng: np.random.Generator) -> Mask:
    """Return the mask of a uniform subset of at most `max_rows` rows of every person.

    `codes` are one per row: a person's code from 0 on, or a negative number for nobody, whose rows are left out.
    """
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # by person; within one, in random order
    ordered = codes[order]
    first = np.searchsorted(ordered, ordered)  # where each person's rows begin
    mask = np.zeros(len(codes), bool)
    mask[order] = (np.arange(len(codes)) - first < max_rows) & (ordered >= 0)
    return mask


class PersonCodes:
    """Codes of persons, assigned in the order in which their identifiers first occur, over several parts."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def codes_of(self, cells: CellColumn) -> Codes:
        """Return the code of each cell's person (`dplangevin.tables.cells.read_person`); -1 for nobody."""
        indices, persons = cells.persons()
        table = [self._known.setdefault(person, len(self._known)) for person in persons]
        return np.array([*table, -1], np.int64)[indices]


def select_file_rows(files: Any, person: str, max_rows: int, rng: np.random.Generator) -> Mask:
    """Return the mask of the rows of files that are used; only the column of persons is read, and held as codes."""
    codes = PersonCodes()
    tables = open_files(files)
    parts = [codes.codes_of(batch.column(person)) for batch in tables.batches([person])]
    return select_person_rows(np.concatenate([np.empty(0, np.int64), *parts]), max_rows, rng)


def select_dask_rows(frame: Any, person: str, max_rows: int, rng: np.random.Generator) -> Any:
    """Return a Dask DataFrame of the rows that are used; the driver sees persons as keyed hashes of 128 bits."""
    import dask
    import dask.dataframe as dd

    if not hasattr(frame, "columns") or person not in frame.columns:
        raise InvalidParameter(
            f"person must be the name of a column of the table; there is no column {person!r}."
        )
    key = rng.bytes(32)
    parts = frame.to_delayed()
    hashed = dask.compute(*(dask.delayed(_hash_persons, pure=False)(part, person, key) for part in parts))
    distinct, codes = np.unique(np.concatenate(hashed), return_inverse=True)
    codes = np.where(distinct[codes] == b"", -1, codes).astype(np.int64)
    masks = np.split(select_person_rows(codes, max_rows, rng), np.cumsum([len(part) for part in hashed])[:-1])
    selected = [
        dask.delayed(_take_rows, pure=False)(
            part, mask, person, key, hashlib.sha256(hashes.tobytes()).digest()
        )
        for part, mask, hashes in zip(parts, masks, hashed, strict=True)
    ]
    return dd.from_delayed(selected, meta=frame._meta, verify_meta=False)


def _hash_persons(part: Any, person: str, key: bytes) -> NDArray[Any]:
    """Return a keyed hash for each row's person, empty where it is missing."""
    indices, names = as_table(part).column(person).persons()
    table = [hashlib.blake2b(name.encode(), key=key, digest_size=16).hexdigest().encode() for name in names]
    return np.array([*table, b""], "S32")[indices]


def _take_rows(part: Any, mask: Mask, person: str, key: bytes, expected: bytes) -> Any:
    """Return the rows of the mask; raise if a recomputed partition no longer has the persons it was made for."""
    if hashlib.sha256(_hash_persons(part, person, key).tobytes()).digest() != expected:
        raise InvalidParameter(
            "a partition had other rows, or rows in another order, when it was recomputed; persist the table first. "
            "What was charged stays charged, and nothing was released."
        )
    return part[mask]


LEARNING_BUDGET_FRACTION = 0.1
LEARNING_DELTA_FRACTION = 0.1
NOTHING_LEFT_MESSAGE = (
    "no part of epsilon = {:g} is left for the fit; raise epsilon, or leave mechanism and theorem out."
)
PERSON_ROWS_MESSAGE = (
    "the guarantee above is for adding or removing one row; at most {} rows of a person are used, and the guarantee "
    "of the whole fit is per person; rows without a valid person (missing, or a number of 2^53 or more) are left out"
)


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit:
    """Unit of privacy: a person with at most `max_rows` rows.

    Parameters
    ----------
    max_rows : rows of a person that the guarantee covers.
    adjacency : of persons.
    chooses_rows : rows are selected by person, so that their number is private; otherwise the stated bound is
        trusted.
    """

    max_rows: int
    adjacency: Adjacency
    chooses_rows: bool

    def guarantee_for_person(self, guarantee: Guarantee) -> Guarantee:
        """Return the guarantee for a person, given that for a row."""
        if self.chooses_rows:
            return guarantee_per_person(guarantee, self.max_rows, self.adjacency)
        return guarantee.group(self.max_rows)

    @property
    def cost_factor(self) -> int:
        """Factor from the cost of a row (in mu or epsilon) to the cost of a person."""
        return self.max_rows * (2 if self.chooses_rows and self.adjacency == "replace-one" else 1)


@dataclass(frozen=True, kw_only=True)
class RawPlan:
    """Plan of the schema releases and of the fit, charged together.

    Parameters
    ----------
    learning : specs of the releases that learn the schema, in order.
    fit_plan : for the widest schema that may be learned; the fit may run another plan with at least this guarantee.
    privacy_unit : whom the guarantee protects.
    delta : of the whole.
    reasons : sentences about rows and learning, with which the reasons of the fit plan begin.

    Attributes
    ----------
    guarantee : of the whole, for a person.
    """

    learning: tuple[CertifiedSpec, ...]
    fit_plan: FitPlan
    privacy_unit: PrivacyUnit
    delta: float
    reasons: tuple[str, ...] = ()
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        total = self.privacy_unit.guarantee_for_person(self.fit_plan.plan.guarantee)
        for spec in self.learning:
            total = total + spec.guarantee
        _check.set_frozen(self, guarantee=replace(total, at_delta=self.delta, composition=None))

    def may_run(self, fit_plan: FitPlan) -> bool:
        """Whether a fit costs at most what was charged: both are GDP with one adjacency, and its mu is no larger."""
        planned, other = self.fit_plan.plan.guarantee, fit_plan.plan.guarantee
        if planned.mu is None or other.mu is None or planned.adjacency != other.adjacency:
            return False
        return other.mu <= planned.mu


def plan_raw_fit(
    request: Request, schema_to_learn: LearnableSchema | None, privacy_unit: PrivacyUnit, epsilon: float
) -> RawPlan:
    """Return the plan whose composed guarantee for a person is (epsilon, request.delta); it depends on no data."""
    delta = request.delta
    if privacy_unit.chooses_rows:
        request = replace(request, adjacency="add-remove", allow_more_rows=True)
    if delta == 0:
        return _plan_pure_raw_fit(request, schema_to_learn, privacy_unit, epsilon)
    tail = (
        LEARNING_DELTA_FRACTION * delta if schema_to_learn is not None and schema_to_learn.categories else 0.0
    )
    goal_mu = cv.gdp_mu(epsilon, delta - tail * (1 + 1e-6)) * (1 - 1e-7)
    budget_fraction = 0.0 if schema_to_learn is None else LEARNING_BUDGET_FRACTION
    learning = (
        ()
        if schema_to_learn is None
        else plan_schema_learning(request, schema_to_learn, privacy_unit, budget_fraction * goal_mu**2, tail)
    )
    mu_left = math.sqrt(1 - budget_fraction) * goal_mu
    for _ in range(40):  # a fit that is not Gaussian composes slightly worse than its mu suggests
        fit_epsilon = math.nextafter(cv.gdp_epsilon(mu_left / privacy_unit.cost_factor, delta), 0.0)
        plan = _build_raw_plan(
            replace(request, epsilon=fit_epsilon), learning, privacy_unit, schema_to_learn, epsilon
        )
        if plan.guarantee.epsilon(delta) <= epsilon:
            return plan
        mu_left *= 0.98
    raise CalibrationFailed(NOTHING_LEFT_MESSAGE.format(epsilon))


def _plan_pure_raw_fit(
    request: Request, schema_to_learn: LearnableSchema | None, privacy_unit: PrivacyUnit, epsilon: float
) -> RawPlan:
    """Return the plan for pure epsilon-DP, under which ranges but no categories can be learned."""
    if schema_to_learn is not None and schema_to_learn.categories:
        raise InvalidParameter(
            "categories cannot be learned under pure epsilon-DP: no output may be possible for one table and "
            "impossible for its neighbour, so that a label could never be listed. State a delta, or the lists of "
            f"{', '.join(column.name for column in schema_to_learn.categories)}."
        )
    budget_fraction = 0.0 if schema_to_learn is None else LEARNING_BUDGET_FRACTION
    learning: tuple[CertifiedSpec, ...] = ()
    if schema_to_learn is not None:
        pure: dict[str, Any] = {
            "n_categories": 0,
            "adjacency": privacy_unit.adjacency,
            "rows_per_person": privacy_unit.max_rows,
            "secure": request.secure is not False,
        }
        epsilon_each = budget_fraction * epsilon / 2 * (1 - 1e-9)
        learning_specs = [
            calibrate_learned_schema(
                n_numbers=len(schema_to_learn.numbers), n_cells=cells, epsilon=epsilon_each, **pure
            )
            for cells in (N_COARSE_CELLS, N_FINE_CELLS)
        ]
        learning = tuple(CertifiedSpec(spec=spec, delta=0.0) for spec in learning_specs)
    fit_epsilon = (1 - budget_fraction) * epsilon / privacy_unit.cost_factor * (1 - 1e-9)
    plan = _build_raw_plan(
        replace(request, epsilon=fit_epsilon), learning, privacy_unit, schema_to_learn, epsilon
    )
    if not plan.guarantee.epsilon(0.0) <= epsilon:
        raise CalibrationFailed(NOTHING_LEFT_MESSAGE.format(epsilon))
    return plan


def plan_schema_learning(
    request: Request,
    schema_to_learn: LearnableSchema,
    privacy_unit: PrivacyUnit,
    mu_squared: float,
    tail: float,
) -> tuple[CertifiedSpec, ...]:
    """Return the specs that learn the schema for this part of mu^2: one release for all columns, one for ranges."""
    parts = 2 if schema_to_learn.numbers else 1
    options: dict[str, Any] = {"adjacency": privacy_unit.adjacency, "rows_per_person": privacy_unit.max_rows}
    options["secure"] = request.secure is not False
    options |= {"mu": math.sqrt(mu_squared / parts), "n_numbers": len(schema_to_learn.numbers)}
    first = calibrate_learned_schema(
        n_categories=len(schema_to_learn.categories), n_cells=N_COARSE_CELLS, threshold_delta=tail, **options
    )
    specs = [first]
    if schema_to_learn.numbers:
        specs.append(calibrate_learned_schema(n_categories=0, n_cells=N_FINE_CELLS, **options))
    return tuple(CertifiedSpec(spec=spec, delta=request.delta) for spec in specs)


def _build_raw_plan(
    request: Request,
    learning: tuple[CertifiedSpec, ...],
    privacy_unit: PrivacyUnit,
    schema_to_learn: LearnableSchema | None,
    epsilon: float,
) -> RawPlan:
    """Plan the fit of the request and join it with the releases that learn the schema."""
    fit_plan = plan_request(request)
    sampling = getattr(fit_plan.plan.spec, "sampling", "full")
    if privacy_unit.chooses_rows and sampling != "full":
        raise InvalidParameter(
            f"person= supports full batches only: {sampling} batches sample rows, not persons. Leave mechanism='auto'."
        )
    reasons = (
        ()
        if schema_to_learn is None
        else _learning_reasons(schema_to_learn, learning, request, privacy_unit, epsilon)
    )
    if privacy_unit.chooses_rows:
        reasons = (*reasons, PERSON_ROWS_MESSAGE.format(privacy_unit.max_rows))
    fit_plan = replace(fit_plan, reasons=(*reasons, *fit_plan.reasons))
    return RawPlan(
        learning=learning, fit_plan=fit_plan, privacy_unit=privacy_unit, delta=request.delta, reasons=reasons
    )


def _learning_reasons(
    schema_to_learn: LearnableSchema,
    learning: tuple[CertifiedSpec, ...],
    request: Request,
    privacy_unit: PrivacyUnit,
    epsilon: float,
) -> tuple[str, ...]:
    """Return the sentences that explain what learning the schema costs."""
    first = learning[0].spec
    assert isinstance(first, LearnedSchemaSpec)
    kind = "mu^2" if request.delta else "epsilon"
    learned = {"range": len(schema_to_learn.numbers), "list": len(schema_to_learn.categories)}
    what = [f"{count} {kind_name}{'s' * (count > 1)}" for kind_name, count in learned.items() if count]
    reasons = [
        f"learning {' and '.join(what)} takes {LEARNING_BUDGET_FRACTION:.0%} of {kind} (noise {first.scale:.3g} on "
        f"each count): the fit gets epsilon = {_epsilon_per_person(request, privacy_unit):.4g}; with a stated schema "
        f"it would get {epsilon:.4g}"
    ]
    if first.threshold is not None:
        reasons.append(
            f"a category is listed if its noisy count is at least {first.threshold:.0f}; rarer ones are 'other', and "
            f"{LEARNING_DELTA_FRACTION:.0%} of delta covers them"
        )
    return tuple(reasons)


def _epsilon_per_person(request: Request, privacy_unit: PrivacyUnit) -> float:
    """Return the fit's epsilon for a person, from that for a row."""
    if request.delta == 0:
        return privacy_unit.cost_factor * request.epsilon
    return cv.gdp_epsilon(privacy_unit.cost_factor * cv.gdp_mu(request.epsilon, request.delta), request.delta)


TARGET_COLUMN, WEIGHT_COLUMN = "\0target", "\0weight"  # names that no table has
NAMED_COLUMNS_MESSAGE = (
    "learned schemas and person= need a table with column names: pass a DataFrame, an Arrow table, files or a Dask "
    "DataFrame, not {}."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RawRecords:
    """Unread records of a raw table.

    Parameters
    ----------
    location : "memory", "files" or "dask".
    data : the table, files or collection.
    y, weights : names of their columns.
    names : of all columns of the table.
    row_mask : of files, which rows are used; None uses all.
    """

    location: str
    data: Any
    y: str
    weights: str | None
    names: tuple[str, ...]
    row_mask: NDArray[np.bool_] | None = None

    @classmethod
    def from_fit_arguments(
        cls, X: Any, y: Any, weights: Any, column_order: tuple[str, ...] | None
    ) -> RawRecords:
        """Return the records of the arguments of `fit`, none of them read; `column_order` names unnamed columns."""
        if is_dask(X) or is_streamed(X):
            if not isinstance(y, str) or not isinstance(weights, str | None):
                raise InvalidParameter(
                    "with files or Dask, y and sample_weight must be names of columns here."
                )
            if is_streamed(X):
                files = open_files(X)
                source = ArrowSource(files, y, weight=weights)
                names = (*source.features, y, *([] if weights is None else [weights]))
                return cls(location="files", data=files, y=y, weights=weights, names=names)
            if not hasattr(X, "columns"):
                raise InvalidParameter(NAMED_COLUMNS_MESSAGE.format("a Dask array"))
            connect_client(None)
            names = tuple(map(str, X.columns))
            return cls(location="dask", data=X, y=y, weights=weights, names=names)._check_columns()
        if not is_frame(X) and column_order is None:
            raise InvalidParameter(NAMED_COLUMNS_MESSAGE.format(type(X).__name__))
        table = as_table(X, column_order)
        names = table.names
        for name, argument, what in ((TARGET_COLUMN, y, "y"), (WEIGHT_COLUMN, weights, "sample_weight")):
            if argument is not None and not isinstance(argument, str):
                table = table.with_column(name, _read_matching_column(argument, what, len(table)))
        y_name = y if isinstance(y, str) else TARGET_COLUMN
        w_name = weights if isinstance(weights, str) or weights is None else WEIGHT_COLUMN
        if y is None:
            raise InvalidParameter("this estimator requires y to be passed, but the target y is None.")
        return cls(location="memory", data=table, y=y_name, weights=w_name, names=names)._check_columns()

    def _check_columns(self) -> RawRecords:
        known = self.data.names if self.location == "memory" else self.names
        for name in (self.y, self.weights):
            if name is not None and name not in known:
                raise InvalidParameter(
                    f"there is no column {name!r}; the table has {_check.describe_columns(self.names)}."
                )
        return self

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the feature columns."""
        return tuple(name for name in self.names if name not in (self.y, self.weights))

    def __len__(self) -> int:
        if self.location == "files":
            return len(ArrowSource(self.data, self.y, features=[], row_mask=self.row_mask))
        return len(self.data)

    def limit_rows_per_person(self, person: str, max_rows: int, rng: np.random.Generator) -> RawRecords:
        """Return at most `max_rows` rows of each person, without the column of persons."""
        names = tuple(name for name in self.names if name != person)
        if self.location == "dask":
            chosen_rows = select_dask_rows(self.data, person, max_rows, rng)
            return replace(self, data=chosen_rows.drop(columns=person), names=names)
        if self.location == "files":
            return replace(self, row_mask=select_file_rows(self.data, person, max_rows, rng), names=names)
        codes = PersonCodes().codes_of(self.data.column(person))
        rows = np.flatnonzero(select_person_rows(codes, max_rows, rng))
        return replace(self, data=self.data.drop_columns(person).take(rows), names=names)

    def select_rows(self, mask: NDArray[np.bool_]) -> RawRecords:
        """Return the rows of the mask, one flag for each row that is used so far; not for Dask."""
        if self.location == "memory":
            return replace(self, data=self.data.take(np.flatnonzero(mask)))
        whole = np.ones(self.data.count_rows(), bool) if self.row_mask is None else self.row_mask.copy()
        whole[whole] = mask
        return replace(self, row_mask=whole)

    def feature_blocks(self) -> Iterator[tuple[Table, CellColumn, NDArray[Any] | None]]:
        """Yield features, targets and weights, one block of rows at a time; not for Dask."""
        if self.location == "memory":
            for block in self.data.blocks():
                weights = None if self.weights is None else block.column(self.weights).numbers()
                yield block.drop_columns(self.y, self.weights), block.column(self.y), weights
            return
        yield from ArrowSource(
            self.data, self.y, self.feature_names, self.weights, row_mask=self.row_mask
        ).batches()

    def count_cells(
        self, numbers: Mapping[str, Floats], categories: Mapping[str, bool], *, outer: bool
    ) -> CellCounts:
        """Return exact counts of the cells between edges, and of labels; every row is read by itself."""
        if self.location == "memory":
            parts = [count_cells(block, numbers, categories, outer=outer) for block in self.data.blocks()]
        elif self.location == "files":
            column_names = list(dict.fromkeys([*numbers, *categories]))
            source = ArrowSource(self.data, self.y, features=self.feature_names, row_mask=self.row_mask)
            tables = (
                _with_column(table, self.y, targets) for table, targets, _ in source.batches(column_names)
            )
            parts = [count_cells(table, numbers, categories, outer=outer) for table in tables]
        else:
            import dask

            task = dask.delayed(_count_part, pure=False)
            parts = list(
                dask.compute(*(task(part, numbers, categories, outer) for part in self.data.to_delayed()))
            )
        empty = CellCounts(
            np.zeros((len(numbers), len(next(iter(numbers.values()))) - 1 if numbers else 0)),
            [{} for _ in categories],
        )
        return add_counts([empty, *parts])

    def fit_arguments(self) -> tuple[Any, Any, Any]:
        """Return X, y and sample_weight in the form that `fit` takes."""
        if self.location == "memory":
            table = self.data.drop_columns(self.y, self.weights)
            row_weights = None if self.weights is None else self.data.column(self.weights)
            return table, self.data.column(self.y), row_weights
        if self.location == "files":
            source = ArrowSource(
                self.data, self.y, features=self.feature_names, weight=self.weights, row_mask=self.row_mask
            )
            return source, self.y, None
        return self.data, self.y, self.weights


def _read_matching_column(argument: Any, name: str, rows: int) -> CellColumn:
    cells = as_column(argument, name)
    if len(cells) != rows:
        raise InvalidParameter(
            f"X and {name} have inconsistent numbers of samples: {name} must have one entry per row of X."
        )
    return cells


def _with_column(table: Table, name: str, cells: CellColumn) -> Table:
    return table if name in table.names else table.with_column(name, cells)


def _count_part(
    part: Any, numbers: Mapping[str, Floats], categories: Mapping[str, bool], outer: bool
) -> CellCounts:
    return count_cells(as_table(part), numbers, categories, outer=outer)
