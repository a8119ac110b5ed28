"""Import of events of dp-accounting: runs of other libraries, accounted and charged like those of this one.

The events of TensorFlow Privacy, JAX Privacy and Opacus-like loops are trees: Poisson-sampled Gaussian steps that are
composed with themselves and with others. Every event that is read here has a part of the same cost; one that has none
is refused by name, never approximated.
"""

from __future__ import annotations

import math
from typing import Any

from dplangevin import _check
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import (
    Concentrated,
    Gaussian,
    PrivacyPart,
    Pure,
    SampledGaussian,
    merge_equal_parts,
)
from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.problem.constants import ADJACENCIES, Adjacency

_REFERENCE = "Dong, Roth and Su (2022); Mironov, Talwar and Zhang (2019); Zhu, Dong and Wang (2022)"
_MAX_NESTING = 100
OTHER_LIBRARY = Condition(
    kind="outer-estimator",
    text="the run being as its event of dp-accounting states: another library ran it, and nothing of it was checked "
    "here",
)


def guarantee_from_event(
    event: Any, *, adjacency: Adjacency = "add-remove", delta: float | None = None
) -> Guarantee:
    """Return the guarantee of a run that dp-accounting describes by an event.

    Parameters
    ----------
    event : a DpEvent made of NoOp, Gaussian, Laplace, randomised response, zCDP, exponential and permute-and-flip
        events, Poisson samples of a Gaussian, and compositions of these.
    adjacency : the relation under which the event's noise multipliers were stated; Poisson samples need "add-remove".
    delta : at which the guarantee is reported.

    Examples
    --------
    >>> from dp_accounting import dp_event
    >>> step = dp_event.PoissonSampledDpEvent(256 / 60_000, dp_event.GaussianDpEvent(1.1))
    >>> run = guarantee_from_event(dp_event.SelfComposedDpEvent(step, 14_063), delta=1e-5)
    >>> round(run.epsilon(), 2)
    2.38
    """
    _check.check_choice("adjacency", adjacency, ADJACENCIES)
    parts = _read_event(event, adjacency, 1, 0)
    return Guarantee(
        parts=merge_equal_parts(tuple(parts)) or (Pure(value=0.0),),
        adjacency=adjacency,
        release="trajectory",
        theorem="composed-events",
        reference=_REFERENCE,
        assumptions=("every noise multiplier is that of the sensitivity under the stated adjacency",),
        conditions=(OTHER_LIBRARY,),
        at_delta=delta,
    )


def _read_event(event: Any, adjacency: str, count: int, depth: int) -> list[PrivacyPart]:
    """Return the parts of `count` uses of an event."""
    name = type(event).__name__
    if depth > _MAX_NESTING:
        raise InvalidParameter(f"the event is nested more than {_MAX_NESTING} times; compose it flatly.")
    if name == "NoOpDpEvent":
        return []
    if name == "ComposedDpEvent":
        return [part for inner in event.events for part in _read_event(inner, adjacency, count, depth + 1)]
    if name == "SelfComposedDpEvent":
        uses = _check.check_count("count of a self-composed event", event.count, minimum=0)
        return _read_event(event.event, adjacency, count * uses, depth + 1) if uses else []
    if name == "NonPrivateDpEvent":
        raise NotPrivateError("the event says that the run is not private.")
    if name == "PoissonSampledDpEvent":
        return _read_sampled_event(event, adjacency, count)
    return [_read_single_event(event, name).repeat(count)]


def _read_single_event(event: Any, name: str) -> PrivacyPart:
    """Return the part of one use of an event without structure."""
    if name in ("GaussianDpEvent", "LaplaceDpEvent"):
        noise = _check.check_positive("noise_multiplier", event.noise_multiplier)
        inverse = math.nextafter(1 / noise, math.inf)
        return Gaussian(mu=inverse) if name == "GaussianDpEvent" else Pure(value=inverse)
    if name == "RandomizedResponseDpEvent":
        noise, buckets = event.noise_parameter, event.num_buckets
        if not 0 < noise <= 1:
            raise NotPrivateError("a randomised response without noise is not private.")
        return Pure(value=math.log1p(buckets * (1 - noise) / noise) * (1 + 1e-14))
    if name in ("ExponentialMechanismDpEvent", "PermuteAndFlipDpEvent"):
        return Pure(value=_check.check_positive("epsilon", event.epsilon))
    if name == "ZCDpEvent" and getattr(event, "xi", 0.0) == 0:
        return Concentrated(rho=_check.check_positive("rho", event.rho))
    raise InvalidParameter(
        f"no guarantee is known here for a {name}; account for it with dp-accounting, and state epsilon and delta."
    )


def _read_sampled_event(event: Any, adjacency: str, count: int) -> list[PrivacyPart]:
    """Return the part of Poisson-sampled Gaussian steps."""
    rate, inner = event.sampling_probability, event.event
    if type(inner).__name__ != "GaussianDpEvent":
        raise InvalidParameter(
            f"a Poisson sample of a {type(inner).__name__} has no guarantee here; only one of a GaussianDpEvent has."
        )
    if not 0 <= rate <= 1:
        raise InvalidParameter(f"a sampling probability must be between 0 and 1, got {rate!r}.")
    if rate == 0:
        return []
    if rate == 1:
        return _read_event(inner, adjacency, count, 0)
    if adjacency != "add-remove":
        raise InvalidParameter(
            "a Poisson sample has a guarantee here under adjacency='add-remove' only: its noise multiplier is that of "
            "one record's gradient."
        )
    noise = _check.check_positive("noise_multiplier", inner.noise_multiplier)
    return [SampledGaussian(rate=rate, noise_multiplier=noise, sampling="poisson", count=count)]
