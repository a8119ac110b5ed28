"""The JSON face of an answer. Strictly valid: an infinite number is null beside `<name>_infinite: true`."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from dplangevin._version import __version__
from dplangevin.report.answer import Answer


def stamp(kind: str, version: int) -> dict[str, Any]:
    """How the plain data of a document begin: which format, and what wrote it when."""
    return {
        "format": f"dplangevin-{kind}",
        "version": version,
        "library": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def as_dict(answer: Answer) -> dict[str, Any]:
    """Plain data with the keys of a Guarantee's JSON, and what stands beside it."""
    guarantee = answer.guarantee
    plain: dict[str, Any] = {
        "epsilon": answer.epsilon,
        "delta": answer.delta,
        "mu": guarantee.mu,
        "kind": guarantee.kind,
        "theorem": guarantee.theorem,
        "reference": guarantee.reference,
        "origin": guarantee.origin.kind,
        "proofs": list(guarantee.origin.proofs),
        "composition_epsilon": answer.composition_epsilon,
        "lower_bound_epsilon": answer.lower_bound_epsilon,
        "adjacency": guarantee.adjacency,
        "release": guarantee.release,
        "conditions": [condition.to_dict() for condition in guarantee.conditions],
        "assumptions": list(guarantee.assumptions),
        "arithmetic": guarantee.arithmetic,
        "extra_delta": guarantee.extra_delta,
    }
    if answer.rdp:
        plain["rdp"] = [
            {"order": order, "divergence": value if math.isfinite(value) else None}
            for order, value in answer.rdp
        ]
    if answer.calibrated:
        plain.update([answer.knob] if answer.knob else ())
        if answer.steps is not None:
            plain["steps"] = answer.steps
    return _without_infinities(plain)


def dumps(answer: Answer) -> str:
    """JSON text; raises rather than write a number that JSON does not have."""
    return json.dumps(as_dict(answer), indent=2, allow_nan=False)


def _without_infinities(plain: dict[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = {}
    for name, value in plain.items():
        infinite = isinstance(value, float) and math.isinf(value)
        clean[name] = None if infinite else value
        if infinite:
            clean[f"{name}_infinite"] = True
    return clean
