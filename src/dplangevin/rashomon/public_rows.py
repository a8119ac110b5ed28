"""Public inputs as rows of the problem, with what is known of them. No private record is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.adapter import INTERCEPT, DPLinearClassifier, TargetEncoder, column_names
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, schema_of
from dplangevin.planner.request import Request
from dplangevin.problem import Loss, Problem
from dplangevin.rashomon.asked import Asked
from dplangevin.rashomon.template import Template
from dplangevin.tables import matrix_of, table_of


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicRows:
    """Encoded rows (the intercept inside), names, and values as they were given.

    half, centre : how scores become predictions of a regressor. classes : of a classifier, else None.
    """

    rows: Floats
    names: tuple[str, ...]
    columns: dict[str, list[int]]
    values: list[dict[str, str]]
    labels: Floats | None
    groups: NDArray[np.str_] | None
    half: float
    centre: float
    classes: tuple[str, ...] | None

    @classmethod
    def read(
        cls,
        template: Template,
        told: Request | Problem,
        inputs: Any,
        *,
        labels: Any = None,
        groups: Any = None,
        encode: TargetEncoder | None = None,
    ) -> PublicRows:
        """Encode; what does not fit the model is refused before anything is charged. encode : of the labels."""
        estimator = template.estimator
        if inputs is None:
            raise InvalidParameter(
                "public_inputs are missing: state the PUBLIC inputs that the region is asked about (never the training "
                "data)."
            )
        rows = _encoded(estimator, inputs, told.n_features)
        names = tuple(map(str, column_names(estimator, told.n_features)))
        places: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            if name != "constant":
                places.setdefault(_column(estimator, name), []).append(place)
        if told.fit_intercept:
            rows, names = np.column_stack([rows, np.ones(len(rows))]), (*names, INTERCEPT)
        half, centre = template.scale()
        classifier = isinstance(estimator, DPLinearClassifier)
        return cls(
            rows=np.ascontiguousarray(rows, np.float64),
            names=names,
            columns=places,
            values=_values(estimator, inputs, places),
            labels=None if labels is None or encode is None else _labels(encode(labels), len(rows)),
            groups=None if groups is None else _groups(groups, len(rows)),
            half=half,
            centre=centre,
            classes=tuple(map(str, estimator.classes_)) if classifier else None,
        )

    def asked(self, loss: Loss, n_models: int) -> Asked:
        """What the region is asked about them."""
        return Asked(
            rows=self.rows,
            loss=loss,
            n_models=n_models,
            labels=self.labels,
            groups=self.groups,
            columns=self.columns,
        )


def _encoded(estimator: Any, inputs: Any, n_features: int) -> Floats:
    if estimator.schema is not None:
        rows = SchemaEncoder(schema_of(estimator)).transform(inputs)
    else:
        try:
            rows = check_array(matrix_of(inputs), dtype=np.float64, input_name="public_inputs")
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"public_inputs must be a table of finite numbers: {error}") from None
    if rows.shape[1] != n_features:
        raise InvalidParameter(
            f"public_inputs have {rows.shape[1]} columns and the records {n_features}; give the same columns in the "
            "same order."
        )
    return np.asarray(rows, np.float64)


def _column(estimator: Any, name: str) -> str:
    """The column of the table that an encoded column stands for."""
    if estimator.schema is None:
        return name
    known = as_schema(estimator.schema).names
    if name in known:
        return name
    for split in ("=", " missing"):
        stem = name.partition(split)[0] if split == "=" else name.removesuffix(split)
        if stem in known:
            return stem
    return max((one for one in known if name.startswith(one)), key=len, default=name)


def _values(estimator: Any, inputs: Any, places: dict[str, list[int]]) -> list[dict[str, str]]:
    """The inputs as people read them."""
    if estimator.schema is not None:
        table = table_of(inputs, as_schema(estimator.schema).names)
        columns = {name: [str(cell) for cell in table.column(name).texts()] for name in places}
    else:
        numbers = np.asarray(matrix_of(inputs), float)
        columns = {name: [f"{value:.4g}" for value in numbers[:, at[0]]] for name, at in places.items()}
    size = len(next(iter(columns.values()), []))
    return [{name: cells[i] for name, cells in columns.items()} for i in range(size)]


def _labels(encoded: Floats, size: int) -> Floats:
    if encoded.shape != (size,):
        raise InvalidParameter(f"public_labels must have one label per public input ({size}).")
    return encoded


def _groups(groups: Any, size: int) -> NDArray[np.str_]:
    found = np.asarray(groups).astype(str)
    if found.shape != (size,):
        raise InvalidParameter(f"groups must name the group of each of the {size} public inputs.")
    return found
