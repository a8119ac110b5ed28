"""Model files: JSON with the released model and its guarantee; loading one cannot run code."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dplangevin import _files, _plain, estimators
from dplangevin._version import __version__
from dplangevin.accounting import serialize
from dplangevin.accounting.certificate import certificate_to_plain, derivations_from_plain
from dplangevin.accounting.guarantee import Condition, merge_conditions
from dplangevin.accounting.serialize import GUARANTEE_FORMAT
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encoding_schema
from dplangevin.estimators.uncertainty import Uncertainty
from dplangevin.schema import Schema

_labels = _plain.list_reader(
    _plain.describes(type=["string", "number", "boolean"])(_plain.read_unchecked), min_length=2
)
MODEL_FORMAT = _plain.FileFormat(
    what="a model file",
    version=3,  # in 2 each row was divided by its own norm, unless its schema stated shapes
    oldest=2,
    fields={
        "library": _plain.read_text,
        "estimator": _plain.read_text,
        "parameters": _plain.read_mapping,
        "schema": _plain.optional_reader(_plain.read_mapping),
        "coefficients": _plain.read_unchecked,
        "intercept": _plain.read_unchecked,
        "classes": _plain.optional_reader(_labels),
        "link": _plain.optional_reader(_plain.read_mapping),
        "guarantee": _plain.describes(**GUARANTEE_FORMAT.describe())(_plain.read_mapping),
        "plan": _plain.read_text,
        "created": _plain.read_text,
    },
    optional={
        "features": _plain.optional_reader(_plain.list_reader(_plain.read_text)),
        "certificate": _plain.optional_reader(_plain.read_mapping),
        "uncertainty": _plain.optional_reader(_plain.read_mapping),
        "ledger_head": _plain.optional_reader(_plain.read_text),
        "digest": _plain.read_text,
        "signature": _plain.read_mapping,
    },
)
_UNSTORED_PARAMETERS = {
    "ledger",
    "random_state",
    "checkpoint",
    "verbose",
    "classes",
    "schema",
    "public_data",
    "products",
    "monotone",
}


def _check_norm(where: str, value: Any) -> Any:
    return value if value == "learn" else _plain.read_positive(where, value)


def _check_bounds(where: str, value: Any) -> Any:
    ends = _read_numbers(where, value)
    _require(ends.shape == (2,) and ends[0] < ends[1], f"{where} must be two numbers, the lower one first")
    return value


# Parameters that are used after loading; the others are checked when the model is fitted again.
_PARAMETER_CHECKS = {
    "max_rows_per_person": _plain.whole_number_reader(1),
    "data_norm": _plain.optional_reader(_check_norm),
    "target_bounds": _plain.optional_reader(_check_bounds),
}
_MAX_FILE_BYTES = 512 * _files.MEGABYTE
_MAX_NUMBERS = 10_000_000
_MAX_EXACT_INTEGER = 2**53
UNSEALED_CONDITION = Condition(
    kind="file-integrity",
    text="the model file being unchanged since it was written: it has no digest",
)


def save_model(model: DPLinearModel, path: str | Path) -> None:
    """Write a fitted estimator to a JSON file; it contains no seed, no data, and of a ledger only the head.

    If the file cannot be written, the estimator stays fitted and can be saved elsewhere.
    """
    text = model_to_json(model)
    try:
        _files.write_text(path, text)
    except OSError as error:
        raise DplangevinError(
            f"the model could not be written to {str(path)!r} ({error.strerror}). It is still fitted, and saving it "
            "charges nothing: save it elsewhere with dplangevin.save_model(model, path)."
        ) from error


def model_to_json(model: DPLinearModel) -> str:
    """Return the text of a model file."""
    return _plain.format_json(model_to_plain(model))


def model_to_plain(model: DPLinearModel) -> dict[str, Any]:
    """Return the content of a model file as plain data."""
    if not hasattr(model, "coef_"):
        raise InvalidParameter("the model is not fitted yet; call fit before saving it.")
    labels = getattr(model, "classes_", None)
    content = {
        "library": __version__,
        "estimator": type(model).__name__,
        "parameters": {
            name: value
            for name, value in model.get_params(deep=False).items()
            if name not in _UNSTORED_PARAMETERS
        },
        "schema": None if encoding_schema(model) is None else as_schema(encoding_schema(model)).to_dict(),
        "features": _stored_feature_names(model),
        "coefficients": np.asarray(model.coef_).tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "classes": None if labels is None else np.asarray(labels).tolist(),
        "link": {"slope_clip": model.slope_clip_} if hasattr(model, "slope_clip_") else None,
        "guarantee": serialize.guarantee_to_plain(model.privacy_),
        "certificate": certificate_to_plain(model.privacy_),
        "plan": str(model.plan_),
        "uncertainty": _uncertainty_to_plain(getattr(model, "uncertainty_", None)),
        "ledger_head": getattr(model, "ledger_head_", None),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return MODEL_FORMAT.write(content)


def load_model(path: str | Path) -> DPLinearModel:
    """Return the estimator in a model file, ready to predict; every field is checked."""
    plain = read_model_file(path)
    model: Any = _build_estimator(plain)
    model.coef_ = _read_numbers("coefficients", plain["coefficients"])
    model.n_features_in_ = int(model.coef_.shape[-1]) if model.coef_.ndim else 0
    _set_scores(model, _read_numbers("intercept", plain["intercept"]), plain["classes"])
    if plain["link"] is not None:
        link = _plain.read_record("link", plain["link"], {"slope_clip": _plain.read_rate})
        model.slope_clip_ = link["slope_clip"]
    if plain.get("features") is not None:  # files written before have none
        _require(
            len(plain["features"]) == model.n_features_in_, "features must have one name per coefficient"
        )
        model.feature_names_in_ = np.array(plain["features"], dtype=object)
    _require(
        model.schema is not None or model.data_norm is not None, "it states neither a schema nor data_norm"
    )
    if model.schema is not None:
        names = SchemaEncoder(model.schema).get_feature_names_out()
        _require(model.coef_.shape[-1] == len(names), "coefficients do not match the schema")
        model.n_features_in_ = len(model.schema.names)
    model.privacy_ = _read_guarantee(plain)
    model.plan_ = plain["plan"]
    model.ledger_head_ = plain.get("ledger_head")
    if plain.get("uncertainty") is not None:
        model.uncertainty_ = _uncertainty_from_plain(plain["uncertainty"])
    _plain.check_digest(plain, f"the model file {str(path)!r}")
    loaded: DPLinearModel = model
    return loaded


def _read_guarantee(plain: dict[str, Any]) -> Any:
    """Return the guarantee in the file; without a digest it is conditional on the file being unchanged."""
    guarantee = serialize.guarantee_from_plain(plain["guarantee"])
    if plain.get("certificate") is not None:  # files written before have none
        guarantee = replace(guarantee, derivations=derivations_from_plain(plain["certificate"]))
    if plain.get("digest") is not None:
        return guarantee
    return replace(guarantee, conditions=merge_conditions((UNSEALED_CONDITION,), guarantee.conditions))


def read_model_file(path: str | Path) -> dict[str, Any]:
    """Return the content of a model file; raise for an unknown field or a wrong outer type."""
    plain = _files.read_json(path, "the model file", max_bytes=_MAX_FILE_BYTES)
    what = f"the model file {str(path)!r}"
    fields = MODEL_FORMAT.check(plain, what)
    schema = fields["schema"] if fields["version"] < MODEL_FORMAT.version else None
    if schema is not None and not Schema.from_dict(schema).is_additive:
        raise InvalidParameter(
            f"{what} is of a version that divided each row by its own norm; this one would predict otherwise. Load "
            "it with the version that wrote it, or fit again."
        )
    return fields


def _build_estimator(plain: dict[str, Any]) -> DPLinearModel:
    """Return the unfitted estimator, with the parameters that this version knows."""
    name = plain["estimator"]
    cls = getattr(estimators, name, None) if name in estimators.__all__ else None
    if cls is None or not issubclass(cls, DPLinearModel):
        raise InvalidParameter(f"unknown estimator {name!r} in the model file.")
    known = cls().get_params(deep=False)
    stored_parameters = {name: value for name, value in plain["parameters"].items() if name in known}
    for name, value in stored_parameters.items():
        is_plain = isinstance(value, (str, int, float, list)) or value is None
        _require(
            is_plain and name not in _UNSTORED_PARAMETERS,
            f"parameters.{name} must be a number, a text or a list",
        )
    for name in [name for name in _PARAMETER_CHECKS if name in stored_parameters]:
        _PARAMETER_CHECKS[name](f"parameters.{name}", stored_parameters[name])
    schema = None if plain["schema"] is None else Schema.from_dict(plain["schema"])
    estimator: DPLinearModel = cls(**stored_parameters, schema=schema)
    if schema is not None:
        estimator.schema_ = schema
    return estimator


def _set_scores(model: Any, intercept: np.ndarray, labels: list[Any] | None) -> None:
    """Set the intercept and the classes, which must match the coefficients and the kind of model."""
    _require((labels is not None) == is_classifier(model), "classes belong to a classifier")
    if labels is None:
        _require(model.coef_.ndim == 1 and intercept.ndim == 0, "coefficients must be a list of numbers")
        model.intercept_ = float(intercept)
        return
    _require(
        any(all(type(label) in kinds for label in labels) for kinds in ((str,), (bool,), (int, float)))
        and len(set(labels)) == len(labels)
        and all(isinstance(label, str) or abs(label) <= _MAX_EXACT_INTEGER for label in labels),
        "classes must be distinct labels of one type",
    )
    rows = 1 if len(labels) == 2 else len(labels)
    _require(
        model.coef_.ndim == 2 and len(model.coef_) == rows, "coefficients must have one row per class score"
    )
    _require(intercept.shape == (rows,), "intercept must have one entry per class score")
    model.intercept_, model.classes_ = intercept, np.array(labels)


def _stored_feature_names(model: DPLinearModel) -> list[str] | None:
    """Return the names of the table's columns, where no schema states them."""
    names = getattr(model, "feature_names_in_", None) if model.schema is None else None
    return None if names is None else [str(name) for name in names]


MATRIX_NAMES = ("curvature", "answer_noise")
"""Matrices of an Uncertainty that only fits with a curvature of their own have."""
DECISION_NAMES = ("row_basis", "row_curvatures", "noise_law", "curvature_noise", "curvature_limit")
"""What only those of a logistic loss have, all of it or none."""


def _uncertainty_to_plain(uncertainty: Uncertainty | None) -> dict[str, Any] | None:
    """Return standard errors as lists, with null for infinity, which JSON cannot represent."""
    if uncertainty is None:
        return None
    plain: dict[str, Any] = {"center": uncertainty.center.tolist(), "dimension": uncertainty.dimension}
    if uncertainty.prior is not None:
        plain["prior"], plain["prior_scale"] = uncertainty.prior.tolist(), uncertainty.prior_scale
        plain["dispersion"] = uncertainty.dispersion
        plain["resolved_fraction"] = (
            None if uncertainty.resolved_fraction is None else uncertainty.resolved_fraction.tolist()
        )
    if uncertainty.covariances is not None:
        plain["covariances"] = [part.tolist() for part in uncertainty.covariances]
    for name in (*MATRIX_NAMES, *DECISION_NAMES):
        if (values := getattr(uncertainty, name)) is not None:
            plain[name] = np.asarray(values).tolist()
    if uncertainty.flat is not None and uncertainty.flat.size:
        plain["flat"] = uncertainty.flat.tolist()
    for name, values in (("sampling", uncertainty.sampling), ("noise", uncertainty.noise)):
        entries = values.astype(object)
        entries[np.isinf(values)] = None
        plain[name] = entries.tolist()
    return plain


def _uncertainty_from_plain(plain: dict[str, Any]) -> Uncertainty:
    """Return the uncertainty from its plain data; every field is checked."""
    fields = {
        "center": _plain.read_unchecked,
        "dimension": _plain.optional_reader(_plain.whole_number_reader(1)),
    }
    fields_read = _plain.read_record(
        "uncertainty",
        plain,
        {**fields, "sampling": _plain.read_unchecked, "noise": _plain.read_unchecked},
        dict.fromkeys(
            ("prior", "covariances", "resolved_fraction", "flat", *MATRIX_NAMES, *DECISION_NAMES[:3]),
            _plain.read_unchecked,
        )
        | dict.fromkeys(
            ("prior_scale", "dispersion", *DECISION_NAMES[3:]), _plain.optional_reader(_plain.read_positive)
        ),
    )
    center = _read_numbers("uncertainty.center", fields_read["center"])
    _require(center.ndim > 0, "uncertainty.center must be a list of numbers")
    deviations: dict[str, Any] = {
        name: _read_deviations(name, fields_read[name], center.shape) for name in ("sampling", "noise")
    }
    more: dict[str, Any] = {}
    if fields_read.get("prior") is not None:  # files written before have none
        more = {
            "prior": _read_deviations("prior", fields_read["prior"], center.shape),
            **{name: fields_read.get(name) for name in ("prior_scale", "dispersion")},
        }
    if fields_read.get("resolved_fraction") is not None:
        more["resolved_fraction"] = _read_numbers(
            "uncertainty.resolved_fraction", fields_read["resolved_fraction"]
        )
        _require(
            more["resolved_fraction"].shape == center.shape, "uncertainty.resolved_fraction has a wrong shape"
        )
    if fields_read.get("covariances") is not None:
        parts, size = fields_read["covariances"], len(center)
        _require(isinstance(parts, list) and len(parts) == 3, "uncertainty.covariances must be three tables")
        tables = [_read_numbers("uncertainty.covariances", part) for part in parts]
        _require(
            all(part.shape == (size, size) for part in tables), "uncertainty.covariances have a wrong shape"
        )
        more["covariances"] = np.array(tables)
        more["flat"] = (
            np.zeros((size, 0))
            if fields_read.get("flat") is None
            else _read_numbers("uncertainty.flat", fields_read["flat"])
        )
        _require(more["flat"].ndim == 2 and len(more["flat"]) == size, "uncertainty.flat has a wrong shape")
    for name in MATRIX_NAMES:
        if fields_read.get(name) is not None:
            more[name] = _read_numbers(f"uncertainty.{name}", fields_read[name])
            _require(more[name].shape == (len(center),) * 2, f"uncertainty.{name} has a wrong shape")
    more |= _decisions_from_plain(fields_read, len(center))
    return Uncertainty(center=center, dimension=fields_read["dimension"], **deviations, **more)


def _decisions_from_plain(fields_read: dict[str, Any], size: int) -> dict[str, Any]:
    """Return what the noise in a score follows from: all of it, or nothing."""
    given = {name: fields_read[name] for name in DECISION_NAMES if fields_read.get(name) is not None}
    if not given:
        return {}
    _require(len(given) == len(DECISION_NAMES), f"uncertainty needs all of {', '.join(DECISION_NAMES)}")
    basis, law = (_read_numbers(f"uncertainty.{name}", given[name]) for name in ("row_basis", "noise_law"))
    _require(basis.ndim == 2 and len(basis) == size, "uncertainty.row_basis has a wrong shape")
    tables = given["row_curvatures"]
    _require(isinstance(tables, list) and len(tables) == 2, "uncertainty.row_curvatures must be two tables")
    curvatures = [_read_numbers("uncertainty.row_curvatures", table) for table in tables]
    _require(
        all(table.shape == (basis.shape[1],) * 2 for table in curvatures),
        "uncertainty.row_curvatures have a wrong shape",
    )
    _require(law.ndim == 2 and len(law) == 2 and law.shape[1] > 1, "uncertainty.noise_law has a wrong shape")
    _require(
        bool((law[0] > 0).all() and (np.diff(law[0]) > 0).all() and (law[1] >= 0).all()),
        "uncertainty.noise_law must have increasing curvatures and no negative variance",
    )
    return given | {"row_basis": basis, "row_curvatures": np.array(curvatures), "noise_law": law}


def _read_deviations(name: str, values_given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return nonnegative numbers from lists of this shape, in which null stands for infinity."""
    rows = values_given if len(shape) > 1 else [values_given]
    fits = isinstance(rows, list) and all(isinstance(row, list) and len(row) == shape[-1] for row in rows)
    _require(fits and len(rows) * shape[-1] == np.prod(shape), f"uncertainty.{name} has a wrong shape")
    entries = [entry for row in rows for entry in row]
    known = np.array([entry is not None for entry in entries])
    values = np.full(len(entries), np.inf)
    if known.any():
        values[known] = _read_numbers(
            f"uncertainty.{name}", [entry for entry in entries if entry is not None]
        )
    _require(bool(np.all(values >= 0)), f"uncertainty.{name} must not be negative")
    return values.reshape(shape)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise InvalidParameter(f"the model file is damaged: {reason}.")


def _read_numbers(name: str, value: Any) -> np.ndarray:
    """Return an array of finite numbers with at most two dimensions, or raise."""
    rows = value if isinstance(value, list) else [value]
    flat = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    are_numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in flat)
    _require(are_numbers and 0 < len(flat) <= _MAX_NUMBERS, f"{name} must be finite numbers")
    try:
        return np.array(value, dtype=float)
    except (ValueError, OverflowError):
        raise InvalidParameter(
            f"the model file is damaged: {name} must be a rectangular list of numbers."
        ) from None
