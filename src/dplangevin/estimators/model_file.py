"""Model files: JSON that carries the released model and its guarantee; loading one cannot run code."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin import estimators
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.estimators.uncertainty import Uncertainty
from dplangevin.privacy import serialize
from dplangevin.schema import Schema

VERSION = 1
_KEYS = {
    "version", "library", "estimator", "parameters", "schema", "coefficients", "intercept", "classes", "link",
    "guarantee", "plan", "created",
}  # fmt: skip
_NOT_STORED = {"ledger", "random_state", "state", "verbose", "classes", "schema", "public_data"}
_MOST_NUMBERS = 10_000_000
_LARGEST = sys.float_info.max


def save(model: DPLinearModel, path: str | Path) -> None:
    """Write a fitted estimator to a JSON file. Seeds, ledgers (but for the head) and data are not in it.

    When the file cannot be written the estimator stays as it is, to be saved elsewhere.
    """
    text = dumps(model)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DplangevinError(
            f"the model could not be written to {str(path)!r} ({error.strerror}). It is still fitted, and need not be "
            "paid for again: save it elsewhere with dplangevin.estimators.model_file.save(model, path)."
        ) from error


def dumps(model: DPLinearModel) -> str:
    """The text of a model file."""
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
        "schema": None if model.schema is None else as_schema(model.schema).to_dict(),
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
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def load(path: str | Path) -> DPLinearModel:
    """The estimator in a model file, ready to predict; every field is checked."""
    plain = read(path)
    cls = (
        getattr(estimators, str(plain["estimator"]), None)
        if plain["estimator"] in estimators.__all__
        else None
    )
    if cls is None or not issubclass(cls, DPLinearModel):
        raise InvalidParameter(f"unknown estimator {plain['estimator']!r} in the model file.")
    known = cls().get_params(deep=False)
    parameters = {
        name: value for name, value in _mapping("parameters", plain["parameters"]).items() if name in known
    }
    model: Any = cls(
        **parameters, schema=None if plain["schema"] is None else Schema.from_dict(plain["schema"])
    )
    model.coef_ = _numbers("coefficients", plain["coefficients"])
    intercept = _numbers("intercept", plain["intercept"])
    labels = plain["classes"]
    if labels is None:
        _require(model.coef_.ndim == 1 and intercept.ndim == 0, "coefficients must be a list of numbers")
        model.intercept_ = float(intercept)
    else:
        _require(isinstance(labels, list) and len(labels) >= 2, "classes must be a list of labels")
        _require(
            all(isinstance(label, (str, int, float, bool)) for label in labels),
            "classes must be plain labels",
        )
        rows = 1 if len(labels) == 2 else len(labels)
        _require(
            model.coef_.ndim == 2 and len(model.coef_) == rows, "coefficients must have a row per class score"
        )
        _require(intercept.shape == (rows,), "intercept must have an entry per class score")
        model.intercept_, model.classes_ = intercept, np.array(labels)
    if plain["link"] is not None:
        clip = _numbers("link.slope_clip", _mapping("link", plain["link"]).get("slope_clip"))
        _require(clip.ndim == 0 and 0 < float(clip) <= 1, "link.slope_clip must be in (0, 1]")
        model.slope_clip_ = float(clip)
    model.n_features_in_ = int(model.coef_.shape[-1])
    if plain.get("features") is not None:  # files written before have none
        model.feature_names_in_ = _feature_names(plain["features"], model.n_features_in_)
    if model.schema is not None:
        names = SchemaEncoder(model.schema).get_feature_names_out()
        _require(model.coef_.shape[-1] == len(names), "coefficients do not fit the schema")
        model.n_features_in_ = len(model.schema.names)
    model.privacy_ = serialize.from_plain(plain["guarantee"])
    model.plan_ = str(plain["plan"])
    model.ledger_head_ = plain.get("ledger_head")  # older files have none
    _require(model.ledger_head_ is None or isinstance(model.ledger_head_, str), "ledger_head must be text")
    if plain.get("uncertainty") is not None:
        model.uncertainty_ = _uncertainty(_mapping("uncertainty", plain["uncertainty"]))
    loaded: DPLinearModel = model
    return loaded


def _plain_names(model: DPLinearModel) -> list[str] | None:
    """Names of the table's columns where there is no schema to state them."""
    names = getattr(model, "feature_names_in_", None) if model.schema is None else None
    return None if names is None else [str(name) for name in names]


def _feature_names(names: Any, count: int) -> np.ndarray:
    fits = isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names)
    _require(fits, "features must be a name per coefficient")
    return np.array(names, dtype=object)


def _plain_uncertainty(found: Uncertainty | None) -> dict[str, Any] | None:
    """Standard errors as lists; null stands for infinity, which JSON has no word for."""
    if found is None:
        return None
    plain: dict[str, Any] = {"centre": found.centre.tolist(), "dimension": found.dimension}
    for name, values in (("sampling", found.sampling), ("noise", found.noise)):
        entries = values.astype(object)
        entries[np.isinf(values)] = None
        plain[name] = entries.tolist()
    return plain


def _uncertainty(plain: dict[str, Any]) -> Uncertainty:
    centre, dimension = _numbers("uncertainty.centre", plain.get("centre")), plain.get("dimension")
    _require(centre.ndim > 0, "uncertainty.centre must be a list of numbers")
    _require(
        dimension is None or (type(dimension) is int and dimension > 0),
        "uncertainty.dimension is no dimension",
    )
    deviations = {name: _deviations(name, plain.get(name), centre.shape) for name in ("sampling", "noise")}
    return Uncertainty(centre=centre, dimension=dimension, **deviations)


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


def read(path: str | Path) -> dict[str, Any]:
    """The checked outer layer of a model file."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidParameter(f"{path} is not a model file: it is not valid JSON.") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("version"), int):
        raise InvalidParameter(f"{path} is not a model file: it has no version.")
    if plain["version"] > VERSION:
        raise InvalidParameter(
            f"{path} has format version {plain['version']}, and this library reads up to {VERSION}; upgrade dplangevin."
        )
    missing = sorted(_KEYS - set(plain))
    if missing:
        raise InvalidParameter(f"{path} is not a model file: {', '.join(missing)} missing.")
    return plain


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _require(condition: bool, words: str) -> None:
    if not condition:
        raise InvalidParameter(f"the model file is damaged: {words}.")


def _mapping(name: str, value: Any) -> dict[str, Any]:
    _require(isinstance(value, dict), f"{name} must be an object")
    result: dict[str, Any] = value
    return result


def _numbers(name: str, value: Any) -> np.ndarray:
    """An array of finite numbers of up to two dimensions, or an error."""
    rows = value if isinstance(value, list) else [value]
    flat = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    plain = all(isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) <= _LARGEST for x in flat)
    _require(plain and 0 < len(flat) <= _MOST_NUMBERS, f"{name} must be finite numbers")
    try:
        return np.array(value, dtype=float)
    except (ValueError, OverflowError):
        raise InvalidParameter(
            f"the model file is damaged: {name} must be a rectangular list of numbers."
        ) from None
