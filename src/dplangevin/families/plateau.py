"""Plateau: the epsilon that holds for every number of steps of a run, and about where it is reached."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dplangevin._search import grown_until, whole_bisected
from dplangevin.errors import AssumptionFailed, NotPrivateError
from dplangevin.families.account import account
from dplangevin.families.noisy_gradient.theorems.composition import Composition

Options = Mapping[str, Any]
_TARGETS = ("epsilon", "rdp", "mu", "zcdp")
_FAR = 10**9
_NEARLY = 0.99


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """Where more steps stop costing privacy: from about `steps` on, at `epsilon`, by `theorem`."""

    epsilon: float
    theorem: str
    steps: int | None = None


def varies(options: Options) -> bool:
    """True when step size or noise is stated per step, so that another number of steps has no meaning."""
    return not all(isinstance(options.get(name), int | float) for name in ("step_size", "noise_std"))


def at_steps(options: Options, steps: float, delta: float) -> dict[str, Any]:
    """The same question about another number of steps."""
    return {
        **{name: value for name, value in options.items() if name not in _TARGETS},
        "steps": steps,
        "delta": delta,
    }


def plateau(options: Options, delta: float) -> Plateau | None:
    """The epsilon that holds for every number of steps, and about where it is reached; None without one."""
    if not 0 < delta < 1 or options.get("release", "last-iterate") != "last-iterate" or varies(options):
        return None
    try:
        guarantee = account(**at_steps(options, math.inf, delta))
    except (AssumptionFailed, NotPrivateError):
        return None
    limit = guarantee.epsilon(delta)
    if not math.isfinite(limit):
        return None
    return Plateau(epsilon=limit, theorem=guarantee.theorem, steps=_first_near(options, delta, limit))


def _first_near(options: Options, delta: float, limit: float) -> int | None:
    """About the smallest number of steps that costs 99% of the limit; None when it is out of sight."""
    epoch = epoch_steps(options)

    def near(count: int) -> bool:
        run = at_steps(options, count * epoch, delta)
        if options.get("theorem") is None:
            # the cheaper question first: the best answer is never above composition
            plain = account(**{**run, "theorem": Composition.name})
            if plain.epsilon(delta) < _NEARLY * limit:
                return False
        return account(**run).epsilon(delta) >= _NEARLY * limit

    high = grown_until(near, 1, _FAR / epoch, factor=10)
    if high is None:
        return None
    return _two_digits(whole_bisected(near, high, max(high // 10, 1), digits=20, geometric=True)) * epoch


def _two_digits(count: int) -> int:
    """Rounded up to two digits: 5233 -> 5300."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def epoch_steps(options: Options) -> int:
    """Steps in which every record takes part once, where batches are a partition; 1 otherwise."""
    if options.get("sampling", "full") not in ("cyclic", "shuffle"):
        return 1
    return math.ceil(float(options["n"]) / float(options["batch_size"]))
