"""Model files: JSON that carries the released model and its guarantee; loading one cannot run code."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dplangevin import _files, _plain, estimators
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, schema_of
from dplangevin.estimators.uncertainty import Uncertainty
from dplangevin.privacy import serialize
from dplangevin.privacy.conditions import Condition, merge_conditions
from dplangevin.schema import Schema

VERSION = 2  # 2 has the conditions of the guarantee
_FIELDS = {
    "version": _plain.whole(1), "library": _plain.words, "estimator": _plain.words, "parameters": _plain.mapping,
    "schema": _plain.optional(_plain.mapping), "coefficients": _plain.anything, "intercept": _plain.anything,
    "classes": _plain.optional(_plain.list_of(_plain.anything, least=2)), "link": _plain.optional(_plain.mapping),
    "guarantee": _plain.mapping, "plan": _plain.words, "created": _plain.words,
}  # fmt: skip
_OPTIONAL = {
    "features": _plain.optional(_plain.list_of(_plain.words)), "uncertainty": _plain.optional(_plain.mapping),
    "ledger_head": _plain.optional(_plain.words), "digest": _plain.words, "signature": _plain.mapping,
}  # fmt: skip
_NOT_STORED = {
    "ledger",
    "random_state",
    "state",
    "verbose",
    "classes",
    "schema",
    "public_data",
    "products",
    "monotone",
}


def _norm(where: str, value: Any) -> Any:
    return value if value == "learn" else _plain.positive(where, value)


def _bounds(where: str, value: Any) -> Any:
    ends = _numbers(where, value)
    _require(ends.shape == (2,) and ends[0] < ends[1], f"{where} must be two numbers, the lower one first")
    return value


# What is shown or used after loading; the others are checked when the model is fitted again.
_PARAMETERS = {
    "max_rows_per_person": _plain.whole(1),
    "data_norm": _plain.optional(_norm),
    "target_bounds": _plain.optional(_bounds),
}
_LARGEST = 512 * _files.MEGABYTE
_MOST_NUMBERS = 10_000_000
_WHOLE = 2**53
UNSEALED = Condition(
    kind="file-integrity",
    text="the model file being as it was written: its digest was removed, or was never there",
)


def save_model(model: DPLinearModel, path: str | Path) -> None:
    """Write a fitted estimator to a JSON file. Seeds, ledgers (but for the head) and data are not in it.

    When the file cannot be written the estimator stays as it is, to be saved elsewhere.
    """
    text = dumps(model)
    try:
        _files.write_text(path, text)
    except OSError as error:
        raise DplangevinError(
            f"the model could not be written to {str(path)!r} ({error.strerror}). It is still fitted, and need not be "
            "paid for again: save it elsewhere with dplangevin.save_model(model, path)."
        ) from error


def dumps(model: DPLinearModel) -> str:
    """The text of a model file."""
    return json.dumps(to_plain(model), indent=1, allow_nan=False) + "\n"


def to_plain(model: DPLinearModel) -> dict[str, Any]:
    """What a model file says."""
    if not hasattr(model, "coef_"):
        raise InvalidParameter("the model is not fitted yet; call fit before saving it.")
    labels = getattr(model, "classes_", None)
    plain = {
        "version": VERSION,
        "library": __version__,
        "estimator": type(model).__name__,
        "parameters": {
            name: value for name, value in model.get_params(deep=False).items() if name not in _NOT_STORED
        },
        "schema": None if schema_of(model) is None else as_schema(schema_of(model)).to_dict(),
        "features": _plain_names(model),
        "coefficients": np.asarray(model.coef_).tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "classes": None if labels is None else np.asarray(labels).tolist(),
        "link": {"slope_clip": model.slope_clip_} if hasattr(model, "slope_clip_") else None,
        "guarantee": serialize.to_plain(model.privacy_),
        "plan": str(model.plan_),
        "uncertainty": _plain_uncertainty(getattr(model, "uncertainty_", None)),
        "ledger_head": getattr(model, "ledger_head_", None),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return _plain.with_digest(plain)


def load_model(path: str | Path) -> DPLinearModel:
    """The estimator in a model file, ready to predict; every field is checked."""
    plain = read(path)
    model: Any = _estimator(plain)
    model.coef_ = _numbers("coefficients", plain["coefficients"])
    model.n_features_in_ = int(model.coef_.shape[-1]) if model.coef_.ndim else 0
    _put_scores(model, _numbers("intercept", plain["intercept"]), plain["classes"])
    if plain["link"] is not None:
        link = _plain.record("link", plain["link"], {"slope_clip": _plain.rate})
        model.slope_clip_ = link["slope_clip"]
    if plain.get("features") is not None:  # files written before have none
        _require(len(plain["features"]) == model.n_features_in_, "features must be a name per coefficient")
        model.feature_names_in_ = np.array(plain["features"], dtype=object)
    _require(
        model.schema is not None or model.data_norm is not None, "it states neither a schema nor data_norm"
    )
    if model.schema is not None:
        names = SchemaEncoder(model.schema).get_feature_names_out()
        _require(model.coef_.shape[-1] == len(names), "coefficients do not fit the schema")
        model.n_features_in_ = len(model.schema.names)
    model.privacy_ = _promise(plain)
    model.plan_ = plain["plan"]
    model.ledger_head_ = plain.get("ledger_head")
    if plain.get("uncertainty") is not None:
        model.uncertainty_ = _uncertainty(plain["uncertainty"])
    _plain.check_digest(plain, f"the model file {str(path)!r}")
    loaded: DPLinearModel = model
    return loaded


def _promise(plain: dict[str, Any]) -> Any:
    """The guarantee in the file; where nothing tells whether it is the one that was written, it says so."""
    found = serialize.from_plain(plain["guarantee"])
    if plain.get("digest") is not None:
        return found
    return replace(found, conditions=merge_conditions((UNSEALED,), found.conditions))


def read(path: str | Path) -> dict[str, Any]:
    """What a model file says: every name is known, and the outer types are right."""
    plain = _files.read_plain(path, "the model file", most=_LARGEST)
    what = f"the model file {str(path)!r}"
    _plain.record("model", _plain.check_version(plain, what, VERSION, oldest=VERSION), _FIELDS, _OPTIONAL)
    found: dict[str, Any] = plain
    return found


def _estimator(plain: dict[str, Any]) -> DPLinearModel:
    """The unfitted estimator, with the parameters that this version knows."""
    name = plain["estimator"]
    cls = getattr(estimators, name, None) if name in estimators.__all__ else None
    if cls is None or not issubclass(cls, DPLinearModel):
        raise InvalidParameter(f"unknown estimator {name!r} in the model file.")
    known = cls().get_params(deep=False)
    given = {name: value for name, value in plain["parameters"].items() if name in known}
    for name, value in given.items():
        plainly = isinstance(value, (str, int, float, list)) or value is None
        _require(plainly and name not in _NOT_STORED, f"parameters.{name} must be a number, a word or a list")
    for name in [name for name in _PARAMETERS if name in given]:
        _PARAMETERS[name](f"parameters.{name}", given[name])
    schema = None if plain["schema"] is None else Schema.from_dict(plain["schema"])
    estimator: DPLinearModel = cls(**given, schema=schema)
    if schema is not None:
        estimator.schema_ = schema
    return estimator


def _put_scores(model: Any, intercept: np.ndarray, labels: list[Any] | None) -> None:
    """The intercept and the classes, which must fit the coefficients and the kind of model."""
    _require((labels is not None) == is_classifier(model), "classes belong to a classifier")
    if labels is None:
        _require(model.coef_.ndim == 1 and intercept.ndim == 0, "coefficients must be a list of numbers")
        model.intercept_ = float(intercept)
        return
    _require(
        any(all(type(label) in kinds for label in labels) for kinds in ((str,), (bool,), (int, float)))
        and len(set(labels)) == len(labels)
        and all(isinstance(label, str) or abs(label) <= _WHOLE for label in labels),
        "classes must be different labels of one kind",
    )
    rows = 1 if len(labels) == 2 else len(labels)
    _require(
        model.coef_.ndim == 2 and len(model.coef_) == rows, "coefficients must have a row per class score"
    )
    _require(intercept.shape == (rows,), "intercept must have an entry per class score")
    model.intercept_, model.classes_ = intercept, np.array(labels)


def _plain_names(model: DPLinearModel) -> list[str] | None:
    """Names of the table's columns where there is no schema to state them."""
    names = getattr(model, "feature_names_in_", None) if model.schema is None else None
    return None if names is None else [str(name) for name in names]


def _plain_uncertainty(found: Uncertainty | None) -> dict[str, Any] | None:
    """Standard errors as lists; null stands for infinity, which JSON has no word for."""
    if found is None:
        return None
    plain: dict[str, Any] = {"centre": found.centre.tolist(), "dimension": found.dimension}
    if found.prior is not None:
        plain["prior"], plain["prior_scale"] = found.prior.tolist(), found.prior_scale
        plain["dispersion"] = found.dispersion
        plain["seen"] = None if found.seen is None else found.seen.tolist()
    if found.covariances is not None:
        plain["covariances"] = [part.tolist() for part in found.covariances]
    if found.flat is not None and found.flat.size:
        plain["flat"] = found.flat.tolist()
    for name, values in (("sampling", found.sampling), ("noise", found.noise)):
        entries = values.astype(object)
        entries[np.isinf(values)] = None
        plain[name] = entries.tolist()
    return plain


def _uncertainty(plain: dict[str, Any]) -> Uncertainty:
    fields = {"centre": _plain.anything, "dimension": _plain.optional(_plain.whole(1))}
    read = _plain.record(
        "uncertainty",
        plain,
        {**fields, "sampling": _plain.anything, "noise": _plain.anything},
        dict.fromkeys(("prior", "covariances", "seen", "flat"), _plain.anything)
        | dict.fromkeys(("prior_scale", "dispersion"), _plain.optional(_plain.positive)),
    )
    centre = _numbers("uncertainty.centre", read["centre"])
    _require(centre.ndim > 0, "uncertainty.centre must be a list of numbers")
    deviations: dict[str, Any] = {
        name: _deviations(name, read[name], centre.shape) for name in ("sampling", "noise")
    }
    more: dict[str, Any] = {}
    if read.get("prior") is not None:  # files written before have none
        more = {
            "prior": _deviations("prior", read["prior"], centre.shape),
            **{name: read.get(name) for name in ("prior_scale", "dispersion")},
        }
    if read.get("seen") is not None:
        more["seen"] = _numbers("uncertainty.seen", read["seen"])
        _require(more["seen"].shape == centre.shape, "uncertainty.seen has a wrong shape")
    if read.get("covariances") is not None:
        parts, size = read["covariances"], len(centre)
        _require(isinstance(parts, list) and len(parts) == 3, "uncertainty.covariances must be three tables")
        tables = [_numbers("uncertainty.covariances", part) for part in parts]
        _require(all(part.shape == (size, size) for part in tables), "uncertainty.covariances do not fit")
        more["covariances"] = np.array(tables)
        more["flat"] = (
            np.zeros((size, 0)) if read.get("flat") is None else _numbers("uncertainty.flat", read["flat"])
        )
        _require(more["flat"].ndim == 2 and len(more["flat"]) == size, "uncertainty.flat does not fit")
    return Uncertainty(centre=centre, dimension=read["dimension"], **deviations, **more)


def _deviations(name: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that are not negative, null for infinity, in lists of this shape."""
    rows = given if len(shape) > 1 else [given]
    fits = isinstance(rows, list) and all(isinstance(row, list) and len(row) == shape[-1] for row in rows)
    _require(fits and len(rows) * shape[-1] == np.prod(shape), f"uncertainty.{name} has a wrong shape")
    entries = [entry for row in rows for entry in row]
    known = np.array([entry is not None for entry in entries])
    values = np.full(len(entries), np.inf)
    if known.any():
        values[known] = _numbers(f"uncertainty.{name}", [entry for entry in entries if entry is not None])
    _require(bool(np.all(values >= 0)), f"uncertainty.{name} must not be negative")
    return values.reshape(shape)


def _require(condition: bool, words: str) -> None:
    if not condition:
        raise InvalidParameter(f"the model file is damaged: {words}.")


def _numbers(name: str, value: Any) -> np.ndarray:
    """An array of finite numbers of up to two dimensions, or an error."""
    rows = value if isinstance(value, list) else [value]
    flat = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    plain = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in flat)
    _require(plain and 0 < len(flat) <= _MOST_NUMBERS, f"{name} must be finite numbers")
    try:
        return np.array(value, dtype=float)
    except (ValueError, OverflowError):
        raise InvalidParameter(
            f"the model file is damaged: {name} must be a rectangular list of numbers."
        ) from None
