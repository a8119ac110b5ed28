"""Plan files: JSON that names public values only. Loading one checks every field and proves the promise again."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.privacy.plan import Plan, Price
from dplangevin.privacy.registry import readers, theorems_for
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem import DataBounds, Problem
from dplangevin.problem.constants import Constants
from dplangevin.problem.constraints import CONSTRAINTS
from dplangevin.problem.losses import LOSSES, Clipped

FORMAT, VERSION = "dplangevin-plan", 2  # 2 added the digest and the signature
_DEEPEST, _MOST_ITEMS, _LARGEST_COUNT = 6, 100_000, 10**15
_FIELDS = {
    "format": _plain.words, "version": _plain.whole(1), "library": _plain.words, "schedule": _plain.mapping,
    "problem": _plain.optional(_plain.mapping), "constants": _plain.optional(_plain.mapping),
    "delta": _plain.probability, "theorem": _plain.words, "guarantee": _plain.mapping,
}  # fmt: skip
_OPTIONAL = {"digest": _plain.words, "signature": _plain.mapping}


def save_plan(plan: Price, path: str | Path) -> None:
    """Write a plan to a JSON file. Everything in a plan is public."""
    _files.write_text(path, json.dumps(plan_to_plain(plan), indent=1, allow_nan=False) + "\n")


def plan_to_plain(plan: Price) -> dict[str, Any]:
    """What a plan file says."""
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "schedule": _written(plan.schedule),
        "problem": _written(plan.problem) if isinstance(plan, Plan) else None,
        "constants": None if isinstance(plan, Plan) else _written(plan.constants),
        "delta": plan.delta,
        "theorem": plan.theorem,
        "guarantee": {"epsilon": _written(plan.guarantee.epsilon()), "adjacency": plan.guarantee.adjacency},
    }
    return _plain.with_digest(plain)


def load_plan(path: str | Path) -> Price:
    """The plan in a file. Its guarantee is proved anew; a file that claims a smaller epsilon is refused."""
    return plan_from_plain(_files.read_plain(path, "the plan file"))


def plan_from_plain(content: Any) -> Price:
    """The plan in the decoded JSON of a plan file."""
    plain = _plain.check_version(content, "a plan file", VERSION, FORMAT)
    _plain.record("plan", plain, _FIELDS, _OPTIONAL)
    theorem, delta = plain["theorem"], plain["delta"]
    schedule: Schedule = _read("schedule", plain["schedule"], readers())
    for name, each in theorems_for(type(schedule)).items():
        theorem = name if theorem in each.former_names else theorem
    common: dict[str, Any] = {"schedule": schedule, "delta": delta, "theorem": theorem}
    if (plain["problem"] is None) == (plain["constants"] is None):
        raise InvalidParameter("a plan file holds a problem, or constants, and not both.")
    try:
        plan: Price
        if plain["problem"] is None:
            plan = Price(constants=_read("constants", plain["constants"], {"Constants": Constants}), **common)
        else:
            plan = Plan(problem=_read("problem", plain["problem"], {"Problem": Problem}), **common)
    except DplangevinError:
        raise
    except (TypeError, ValueError, ArithmeticError, MemoryError) as error:
        raise InvalidParameter(f"the numbers of this plan cannot be accounted: {error}.") from None
    _check_claim(plan, plain["guarantee"])
    _plain.check_digest(plain, "the plan file")
    return plan


def _check_claim(plan: Price, claim: Any) -> None:
    stated = _plain.record("guarantee", claim, {"epsilon": _plain.cost, "adjacency": _plain.words})["epsilon"]
    proved = plan.guarantee.epsilon()
    if not proved <= stated * (1 + 1e-9) or claim["adjacency"] != plan.guarantee.adjacency:
        raise InvalidParameter(
            f"the file claims epsilon = {stated!r} ({claim['adjacency']!r}), and only {proved!r} "
            f"({plan.guarantee.adjacency!r}) is proved for its numbers: it was altered, or written by another version."
        )


def _written(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        named = {each.name: _written(getattr(value, each.name)) for each in fields(value) if each.init}
        return {"type": type(value).__name__, **named}
    if isinstance(value, (tuple, list)):
        return [_written(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidParameter(f"a plan file cannot hold a {type(value).__name__}.")


def _read(where: str, value: Any, allowed: Mapping[str, Callable[..., Any]], depth: int = 0) -> Any:
    """An instance of one of the allowed classes; its constructor checks types and ranges."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or value["type"] not in allowed:
        raise InvalidParameter(
            f"{where} must be an object whose type is one of {', '.join(sorted(allowed))}."
        )
    if depth > _DEEPEST:
        raise InvalidParameter(f"{where} is nested too deeply.")
    kind = allowed[value["type"]]
    known = set(inspect.signature(kind).parameters)
    given = {name: item for name, item in value.items() if name != "type"}
    if unknown := sorted(set(given) - known):
        raise InvalidParameter(f"{where} has unknown fields: {', '.join(unknown)}.")
    read = {name: _value(f"{where}.{name}", item, _inside(name), depth) for name, item in given.items()}
    try:
        return kind(**read)
    except DplangevinError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InvalidParameter(f"{where} has a field of the wrong type: {error}.") from None


def _inside(name: str) -> dict[str, Callable[..., Any]]:
    """The classes a field may hold."""
    if name == "loss":
        kinds: list[type] = [*LOSSES.values(), Clipped]
        return {kind.__name__: kind for kind in kinds}
    if name == "constraint":
        return {kind.__name__: kind for kind in CONSTRAINTS.values()}
    if name == "draws":
        return readers()
    return {"DataBounds": DataBounds} if name == "bounds" else {}


def _value(where: str, value: Any, allowed: Mapping[str, Callable[..., Any]], depth: int) -> Any:
    if isinstance(value, dict):
        return _read(where, value, allowed, depth + 1)
    if isinstance(value, list):
        nested = any(isinstance(item, list) or (isinstance(item, dict) and not allowed) for item in value)
        if len(value) > _MOST_ITEMS or nested:
            raise InvalidParameter(f"{where} must be a short list of plain values.")
        return tuple(_value(where, item, allowed, depth + 1) for item in value)
    if value in ("inf", "-inf"):
        return math.inf if value == "inf" else -math.inf
    if isinstance(value, int) and abs(value) > _LARGEST_COUNT:
        raise InvalidParameter(f"{where} = {value} is too large.")
    return value
