"""Price and Plan: runs accounted before any record is read, by the tightest theorem whose hypotheses hold.

The object that is accounted is the one that runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dplangevin import _check
from dplangevin.errors import AssumptionFailed, ContradictionError, InvalidParameter, NotPrivateError
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.registry import known_leak, plain_composition, theorem_named, theorems_for
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem

_ABOUT_OTHERS = ("the bound for that sampling", "Use sampling='shuffle', or order='secret'")


@dataclass(frozen=True, kw_only=True)
class Price:
    """Public parameters with the guarantee that a theorem gives them; there is no way to state another one.

    Parameters
    ----------
    schedule : the public parameters of the run.
    delta : the delta at which the guarantee is reported.
    constants : of what is solved; None for noisy answers, whose schedules state their own neighbours.
    theorem : pin a theorem by name; None takes the tightest that applies.
    """

    schedule: Schedule
    delta: float
    constants: Constants = None  # type: ignore[assignment]
    theorem: str | None = None
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        guarantee = certify(self.constants, self.schedule, delta=self.delta, theorem=self.theorem)
        object.__setattr__(self, "guarantee", guarantee)
        object.__setattr__(self, "theorem", guarantee.theorem)


@dataclass(frozen=True, kw_only=True)
class Plan(Price):
    """A price with the problem it is for: it can be run on data of that problem, whose constants are used."""

    problem: Problem
    constants: Constants = field(init=False)

    def __post_init__(self) -> None:
        if type(self.problem) is not Problem:  # a class of one's own could state other constants than it has
            raise InvalidParameter(f"problem must be a Problem, got {type(self.problem).__name__}.")
        object.__setattr__(self, "constants", self.problem.constants)
        super().__post_init__()


def certify(
    constants: Constants | None,
    schedule: Schedule,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    theorem: str | None = None,
) -> Guarantee:
    """The tightest guarantee of a run at delta (or at epsilon), or the one of a pinned theorem.

    Plain composition of the same run is kept in `composition`, where it is finite. delta = 0 asks for a pure promise.
    Noisy answers need no constants.
    """
    if (delta is None) == (epsilon is None):
        raise InvalidParameter(
            "give exactly one of delta and epsilon: delta to get epsilon, or epsilon to get delta."
        )
    if epsilon is not None:
        _check.positive("epsilon", epsilon)
    if constants is None and not schedule.capabilities.needs_no_problem:
        raise InvalidParameter(f"{schedule.mechanism} needs constants, or a problem that has them.")
    if constants is not None:
        schedule.check_meaningful(constants)
    if delta is not None and (delta != 0 or not schedule.capabilities.pure):
        _check.open_unit("delta", delta)

    def cost(guarantee: Guarantee) -> float:
        if epsilon is not None:
            return guarantee.delta(epsilon)
        return guarantee.epsilon(delta)

    plain = plain_composition(type(schedule))
    if theorem is not None:
        best = theorem_named(theorem, type(schedule)).certify(constants, schedule)
        offers = {} if plain in (None, theorem) else _offers(constants, schedule, only=plain)[0]
    else:
        offers, reasons = _offers(constants, schedule)
        if not offers:
            raise NotPrivateError("\n - ".join(("no theorem covers this run:", *told(reasons))))
        best = next(iter(offers.values()))
        if len(offers) > 1:
            best = min(offers.values(), key=lambda g: (cost(g), g.theorem != plain))
    if delta == 0 and math.isinf(cost(best)):
        raise NotPrivateError(
            "this run promises nothing at delta = 0; state delta > 0, or noise with a pure promise."
        )
    reported = delta if delta is not None else cost(best)
    _verify(best, constants, schedule, reported)
    beside = None if plain in (None, best.theorem) else offers.get(plain)
    if beside is not None:
        beside = replace(beside, at_delta=reported)
    return replace(best, at_delta=reported, composition=beside)


def refusals(constants: Constants, schedule: Schedule) -> dict[str, str]:
    """Why each theorem that does not apply to this run does not."""
    return _offers(constants, schedule)[1]


def told(refusals: Mapping[str, str]) -> tuple[str, ...]:
    """One line per reason, with the theorems that share it; those about another sampling are left out."""
    shared: dict[str, list[str]] = {}
    for name, words in refusals.items():
        if not any(phrase in words for phrase in _ABOUT_OTHERS):
            shared.setdefault(words.removeprefix(f"{name} does not apply: "), []).append(name)
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in shared.items())


def _offers(
    constants: Constants | None, schedule: Schedule, only: str | None = None
) -> tuple[dict[str, Guarantee], dict[str, str]]:
    """What the theorems about this run promise, and why the others do not, by their names."""
    offers: dict[str, Guarantee] = {}
    reasons: dict[str, str] = {}
    for name, theorem in theorems_for(type(schedule)).items():
        if only in (None, name):
            try:
                offers[name] = theorem.certify(constants, schedule)
            except AssumptionFailed as error:
                reasons[name] = str(error)
    return offers, reasons


def _verify(guarantee: Guarantee, constants: Constants | None, schedule: Schedule, delta: float) -> None:
    """No claim may be below what a run within the same public numbers is known to leak."""
    if not 0 < delta < 1:
        return
    known = known_leak(constants, schedule, delta)
    if known is None or known == 0:
        return
    claimed = guarantee.epsilon(delta)
    if not claimed >= known * (1 - 1e-9):
        raise ContradictionError(
            f"{guarantee.theorem} claims epsilon = {claimed!r} at delta = {delta!r}, but a run with the same public "
            f"numbers leaks {known!r}: this is a fault of the library, and nothing was released; please report it "
            f"with {constants!r} and {schedule!r}."
        )
