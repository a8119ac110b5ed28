"""Public inputs of a region (stated, or generated from a schema), and the directions in which models are certified.

Everything here depends only on public values, on the released centre and shape, and on independent randomness; no
private record is read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.validation import check_array

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.adapter import INTERCEPT, DPLinearClassifier, TargetEncoder, encoded_column_names
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encoding_schema
from dplangevin.mechanisms.rashomon_region.objective import Ellipsoid
from dplangevin.planner.fit_plan import Request
from dplangevin.problem import Loss, Problem
from dplangevin.rashomon.estimator_adapter import EstimatorAdapter
from dplangevin.schema import CategoricalColumn, DateColumn, HashedColumn, Schema
from dplangevin.tables import as_matrix, as_table
from dplangevin.tables.cells import text_of_days

if TYPE_CHECKING:
    import pandas as pd


MAX_END_DIRECTIONS = (
    4000  # inputs times classes with end directions of their own; the others use the models at hand
)
ASCENT_STEPS = 6
N_SHIFTS = 5  # cyclic shifts that a reliance averages over


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionRequest:
    """Public rows (encoded, with the intercept), and what is computed for them.

    Parameters
    ----------
    rows : encoded inputs.
    loss : of the objective.
    n_models : number of models to draw.
    labels : encoded as in the problem.
    groups : name of each row's group.
    columns : indices of the encoded columns of each named column.
    """

    rows: Floats
    loss: Loss
    n_models: int
    labels: Floats | None = None
    groups: NDArray[np.str_] | None = None
    columns: dict[str, list[int]] = field(default_factory=dict)

    @property
    def n_scores(self) -> int:
        """Number of scores per input."""
        return self.loss.score_dimension

    @property
    def n_rows_with_ends(self) -> int:
        """Number of inputs, from the first, with end directions of their own."""
        return min(len(self.rows), MAX_END_DIRECTIONS // max(1, self.n_scores))

    def digest(self) -> str:
        """Return a hash of the request."""
        content = hashlib.sha256(np.ascontiguousarray(self.rows).tobytes())
        for array in (self.labels, self.groups):
            content.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        content.update(repr((self.n_models, self.columns)).encode())
        return content.hexdigest()

    def draw_directions(
        self, center: Floats, shape: Ellipsoid, lengths: Floats, rng: np.random.Generator
    ) -> Floats:
        """Return random directions, then both ends of every input and coefficient, then extremes of the metrics."""
        draws = shape.sample_uniform(self.n_models, rng)
        ends = [
            _end_directions(shape, self.rows[: self.n_rows_with_ends]),
            _end_directions(shape, np.eye(len(shape.values))),
        ]
        ends += self._extreme_directions(center, shape, float(lengths.max(initial=0.0)))
        return np.column_stack([draws, *(side * block for block in ends for side in (1.0, -1.0))])

    def _extreme_directions(self, center: Floats, shape: Ellipsoid, length: float) -> list[Floats]:
        """Return directions of large discrepancy, fairness gaps and reliance, found by ascent on public rows."""
        if length == 0:
            return []
        directions: list[Floats] = []
        if self.n_scores == 1:
            directions.append(self._sweep_directions(center, shape, length))
            if self.groups is not None and len(np.unique(self.groups)) > 1:
                directions.append(self._fairness_directions(center, shape, length))
        if self.labels is not None and self.columns and len(self.rows) > 1:
            directions.append(self._reliance_directions(center, shape, length))
        return directions

    def _sweep_directions(self, center: Floats, shape: Ellipsoid, length: float) -> Floats:
        """Return directions that raise, lower or flip the scores of all inputs near the decision border."""
        scores = self.rows @ center
        near = np.exp(-0.5 * np.square(scores) / (length**2 * shape.inverse_norms(self.rows) + 1e-300))
        moves = np.column_stack([near, near * np.sign(scores), near * (scores > 0), near * (scores <= 0)])
        return shape.gradient_directions(self.rows.T @ moves + 1e-12)

    def _fairness_directions(self, center: Floats, shape: Ellipsoid, length: float) -> Floats:
        """Return directions that raise or lower the gap in mean probability between each group and the rest."""
        assert self.groups is not None
        directions = []
        for group in np.unique(self.groups):
            own = self.groups == group
            group_weights = np.where(own, 1 / own.sum(), -1 / max(1, (~own).sum()))
            for side in (1.0, -1.0):
                step = np.zeros_like(center)
                for _ in range(ASCENT_STEPS):
                    probability = expit(4 * (self.rows @ (center + length * step)))
                    step = shape.gradient_directions(
                        (self.rows.T @ (side * group_weights * probability * (1 - probability)))[:, None]
                    )[:, 0]
                directions.append(step)
        return np.column_stack(directions)

    def _reliance_directions(self, center: Floats, shape: Ellipsoid, length: float) -> Floats:
        """Return directions that raise or lower the logarithm of each column's reliance."""
        directions = []
        for column_indices in self.columns.values():
            tables = [self.rows, *exchange_columns(self.rows, column_indices)]
            for side in (1.0, -1.0):
                step = np.zeros_like(center)
                for _ in range(ASCENT_STEPS):
                    slope = self._log_reliance_gradient(tables, center + length * step)
                    step = shape.gradient_directions(side * slope[:, None])[:, 0]
                directions.append(step)
        return np.column_stack(directions)

    def _log_reliance_gradient(self, tables: list[Floats], theta: Floats) -> Floats:
        values, slopes = zip(*(self._mean_loss_and_gradient(rows, theta) for rows in tables), strict=True)
        switched, slope = sum(values[1:]), np.sum(slopes[1:], axis=0)
        return np.asarray(slope / max(switched, 1e-300) - slopes[0] / max(values[0], 1e-300))

    def _mean_loss_and_gradient(self, rows: Floats, theta: Floats) -> tuple[float, Floats]:
        assert self.labels is not None
        scores = rows @ theta.reshape(rows.shape[1], -1)
        scores = scores if self.n_scores > 1 else scores[:, 0]
        slopes = self.loss.slope(scores, self.labels)
        slope = rows.T @ (slopes if self.n_scores > 1 else slopes[:, None]) / len(rows)
        return float(self.loss.value(scores, self.labels).mean()), slope.ravel()

    def mean_losses(self, rows: Floats, points: Floats) -> Floats:
        """Return the mean loss of every point [dimension, k] on these rows with the public labels."""
        assert self.labels is not None
        if self.n_scores == 1:
            return np.asarray(self.loss.value(rows @ points, self.labels[:, None]).mean(axis=0))
        cube = points.reshape(rows.shape[1], self.n_scores, -1)
        scores = np.einsum("ip,pck->ikc", rows, cube)
        return np.asarray(self.loss.value(scores, self.labels[:, None]).mean(axis=0))

    def column_reliances(self, points: Floats) -> Floats:
        """Return the loss with a column permuted between inputs, divided by the loss: [columns, points]."""
        plain = np.maximum(self.mean_losses(self.rows, points), 1e-300)
        table = []
        for column_indices in self.columns.values():
            switched = [
                self.mean_losses(rows, points) for rows in exchange_columns(self.rows, column_indices)
            ]
            table.append(np.mean(switched, axis=0) / plain)
        return np.array(table)


def exchange_columns(rows: Floats, column_indices: list[int]) -> list[Floats]:
    """Return copies of the rows with these columns cyclically shifted, for N_SHIFTS shifts."""
    tables = []
    for shift in np.unique(np.linspace(1, len(rows) - 1, min(N_SHIFTS, len(rows) - 1)).round().astype(int)):
        other = rows.copy()
        other[:, column_indices] = np.roll(rows[:, column_indices], -int(shift), axis=0)
        tables.append(other)
    return tables


def _end_directions(shape: Ellipsoid, rows: Floats) -> Floats:
    """Return unit directions towards each row; with K classes, of each class against the others."""
    if shape.n_classes == 1:
        return shape.row_directions(rows)
    weights = np.eye(shape.n_classes) - 1 / shape.n_classes
    return shape.row_directions(np.repeat(rows, shape.n_classes, axis=0), np.tile(weights, (len(rows), 1)))


def threshold_index(threshold: float, thresholds: tuple[float, ...]) -> int:
    """Return the index of a threshold among those of the release."""
    if threshold not in thresholds:
        raise InvalidParameter(
            f"threshold = {threshold!r} was not part of the release; choose one of "
            f"{', '.join(f'{psi:g}' for psi in thresholds)}."
        )
    return thresholds.index(threshold)


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicRows:
    """Public inputs as encoded rows, with their names, labels, groups and original values.

    Parameters
    ----------
    rows : encoded inputs, with the intercept. names : of the encoded columns.
    columns : indices of the encoded columns of each column of the table.
    values : cells of each input as text.
    labels, groups : of the inputs, or None.
    half_range, center : a regressor predicts half_range * score + center.
    classes : of a classifier, else None.
    """

    rows: Floats
    names: tuple[str, ...]
    columns: dict[str, list[int]]
    values: list[dict[str, str]]
    labels: Floats | None
    groups: NDArray[np.str_] | None
    half_range: float
    center: float
    classes: tuple[str, ...] | None

    @classmethod
    def from_inputs(
        cls,
        adapter: EstimatorAdapter,
        request: Request | Problem,
        inputs: Any,
        *,
        labels: Any = None,
        groups: Any = None,
        target_encoder: TargetEncoder | None = None,
    ) -> PublicRows:
        """Encode public inputs; raise before the budget is charged if they do not fit the model.

        target_encoder : encodes the labels.
        """
        estimator = adapter.estimator
        if inputs is None:
            raise InvalidParameter(
                "public_inputs are missing: state PUBLIC inputs to compare the models on (never the training data)."
            )
        rows = _encode_inputs(estimator, inputs, request.n_features)
        names = tuple(map(str, encoded_column_names(estimator, request.n_features)))
        column_indices: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            if name != "constant":
                column_indices.setdefault(_source_column(estimator, name), []).append(index)
        if request.fit_intercept:
            rows, names = np.column_stack([rows, np.ones(len(rows))]), (*names, INTERCEPT)
        half_range, center = adapter.prediction_scale()
        classifier = isinstance(estimator, DPLinearClassifier)
        return cls(
            rows=np.ascontiguousarray(rows, np.float64),
            names=names,
            columns=column_indices,
            values=_readable_values(estimator, inputs, column_indices),
            labels=None
            if labels is None or target_encoder is None
            else _check_public_labels(target_encoder(labels), len(rows)),
            groups=None if groups is None else _check_groups(groups, len(rows)),
            half_range=half_range,
            center=center,
            classes=tuple(map(str, estimator.classes_)) if classifier else None,
        )

    def build_request(self, loss: Loss, n_models: int) -> RegionRequest:
        """Return the request that the region evaluates on these inputs."""
        return RegionRequest(
            rows=self.rows,
            loss=loss,
            n_models=n_models,
            labels=self.labels,
            groups=self.groups,
            columns=self.columns,
        )


def _encode_inputs(estimator: Any, inputs: Any, n_features: int) -> Floats:
    if estimator.schema is not None:
        rows = SchemaEncoder(encoding_schema(estimator)).transform(inputs)
    else:
        try:
            rows = check_array(as_matrix(inputs), dtype=np.float64, input_name="public_inputs")
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"public_inputs must be a table of finite numbers: {error}") from None
    if rows.shape[1] != n_features:
        raise InvalidParameter(
            f"public_inputs have {rows.shape[1]} columns and the records {n_features}; give the same columns in the "
            "same order."
        )
    return np.asarray(rows, np.float64)


def _source_column(estimator: Any, name: str) -> str:
    """Return the column of the table that an encoded column comes from."""
    if estimator.schema is None:
        return name
    column_names = as_schema(estimator.schema).names
    if name in column_names:
        return name
    for split in ("=", " missing"):
        stem = name.partition(split)[0] if split == "=" else name.removesuffix(split)
        if stem in column_names:
            return stem
    return max((one for one in column_names if name.startswith(one)), key=len, default=name)


def _readable_values(
    estimator: Any, inputs: Any, column_indices: dict[str, list[int]]
) -> list[dict[str, str]]:
    """Return the cells of each input as text."""
    if estimator.schema is not None:
        table = as_table(inputs, as_schema(estimator.schema).names)
        columns = {name: [str(cell) for cell in table.column(name).texts()] for name in column_indices}
    else:
        numbers = np.asarray(as_matrix(inputs), float)
        columns = {
            name: [f"{value:.4g}" for value in numbers[:, at[0]]] for name, at in column_indices.items()
        }
    size = len(next(iter(columns.values()), []))
    return [{name: cells[i] for name, cells in columns.items()} for i in range(size)]


def _check_public_labels(encoded: Floats, size: int) -> Floats:
    if encoded.shape != (size,):
        raise InvalidParameter(f"public_labels must have one label per public input ({size}).")
    return encoded


def _check_groups(groups: Any, size: int) -> NDArray[np.str_]:
    group_names = np.asarray(groups).astype(str)
    if group_names.shape != (size,):
        raise InvalidParameter(f"groups must name the group of each of the {size} public inputs.")
    return group_names


def schema_inputs(schema: Schema, n_rows: int = 1000, random_state: int = 0) -> pd.DataFrame:
    """Draw rows uniformly from the ranges and categories of a schema; no record is read.

    The rows cover the whole range of the schema: they are possible records, not likely ones.

    Examples
    --------
    >>> from dplangevin.datasets import load_income
    >>> schema_inputs(load_income(n=1)[1], n_rows=3).shape
    (3, 6)
    """
    try:
        import pandas as pd
    except ImportError:
        raise InvalidParameter('this needs pandas: pip install "dplangevin[tables]".') from None
    rows, rng = _check.check_count("n_rows", n_rows), np.random.default_rng(random_state)
    table: dict[str, Any] = {}
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            table[column.name] = np.array(column.categories, dtype=object)[
                rng.integers(0, len(column.categories), rows)
            ]
        elif isinstance(column, HashedColumn):
            table[column.name] = np.array(
                [f"value {i}" for i in rng.integers(0, 1 << 30, rows)], dtype=object
            )
        elif isinstance(column, DateColumn):
            days = rng.uniform(column.low, column.high, rows)
            table[column.name] = np.array([text_of_days(float(day)) for day in days], dtype=object)
        elif column.transform == "log1p":
            low, high = np.log1p(column.low), np.log1p(column.high)
            table[column.name] = np.expm1(rng.uniform(low, high, rows))
        else:
            table[column.name] = rng.uniform(column.low, column.high, rows)
    return pd.DataFrame(table)
