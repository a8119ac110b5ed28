"""Guarantee: what is promised, by which theorem, to whom, about which release."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.privacy import compose, conversions as cv, readouts
from dplangevin.privacy.conditions import Condition, merge_conditions
from dplangevin.privacy.origins import Origin, origin_of
from dplangevin.privacy.parts import Part, merged
from dplangevin.problem.constants import Adjacency

_MOST_EVENTS = 10_000


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A proved promise about one release (or several, composed).

    Parameters
    ----------
    parts : the currencies spent; composition of parts is exact where the theory is (see `privacy.compose`).
    adjacency : "replace-one" (n is public) or "add-remove" (a public divisor).
    release : what may be looked at: "last-iterate", "average", "checkpoints", "trajectory", "draw", ...
    theorem, reference : the result that carries the promise.
    assumptions : what must hold, in words.
    conditions : what the guarantee depends on as a whole; a strict data set accepts none.
    arithmetic : "real" (ideal noise) or "discrete-grid".
    extra_delta : probability added once to delta (a bad event, a certified sampler's error).
    at_delta : the delta at which the guarantee is reported; 0 for pure promises.
    rows_per_person : it covers all rows of a person who owns at most so many.
    composition : plain composition of the same run, kept beside for comparison.

    Examples
    --------
    >>> from dplangevin.privacy.parts import Gaussian
    >>> g = Guarantee(parts=(Gaussian(mu=1.0),), adjacency="replace-one", release="last-iterate",
    ...               theorem="composition", reference="Dong, Roth and Su (2022)")
    >>> round(g.epsilon(1e-5), 4), round((4 * g).mu, 4)
    (4.3772, 2.0)
    >>> print(replace(g, at_delta=1e-5))
    (4.377179, 1e-05)-differential privacy; replace-one; may be seen: last-iterate
    by composition (published): Dong, Roth and Su (2022)
    """

    parts: tuple[Part, ...]
    adjacency: Adjacency
    release: str
    theorem: str
    reference: str
    assumptions: tuple[str, ...] = ()
    arithmetic: str = "real"
    extra_delta: float = 0.0
    at_delta: float | None = None
    rows_per_person: int = 1
    composition: Guarantee | None = field(default=None, compare=False, repr=False)
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", merged(self.parts))
        _check.nonnegative("extra_delta", self.extra_delta)

    def __str__(self) -> str:
        delta = self.at_delta or 0.0
        spent = self.epsilon(delta)
        # rounded up: a printed promise is never better than the proved one
        up = f"{math.ceil(spent * 1e6) / 1e6:.6f}".rstrip("0").rstrip(".") if spent < 1e6 else str(spent)
        promise = f"({up}, {delta})-differential privacy"
        if math.isinf(spent):
            promise = f"no finite epsilon at delta = {delta}; ask epsilon(delta)"
        return "\n".join(
            [
                f"{promise}; {self.adjacency}; may be seen: {self.release}",
                f"by {self.theorem} ({self.origin.kind}): {self.reference}",
                *(f"- proof: {place}" for place in self.origin.proofs),
                *(f"- conditional on: {condition.text}" for condition in self.conditions),
                *(f"- assumes: {words}" for words in self.assumptions),
            ]
        )

    @property
    def is_unconditional(self) -> bool:
        """Whether the guarantee holds for every data set, errors included."""
        return not self.conditions

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Conditions and assumptions as sentences, conditions first: for reports, never for decisions."""
        return (*map(str, self.conditions), *self.assumptions)

    @property
    def in_short(self) -> str:
        """Budget, neighbours and theorem in one line."""
        delta = self.at_delta or 0.0
        size = f", delta = {delta:.3g}" if delta else " (pure)"
        return f"epsilon = {self.epsilon(delta):.4g}{size}, {self.adjacency}, theorem {self.theorem}"

    def epsilon(self, delta: float | None = None) -> float:
        """Smallest proved epsilon at delta (default: the delta the guarantee was made for)."""
        if delta is None:
            delta = self.at_delta if self.at_delta is not None else 0.0
        if delta != 0:
            _check.open_unit("delta", delta)
        left = delta - self.extra_delta
        if left < 0:
            return math.inf
        return compose.epsilon(self.parts, left)

    def delta(self, epsilon: float) -> float:
        """Smallest proved delta at epsilon."""
        _check.nonnegative("epsilon", epsilon)
        return min(1.0, compose.delta(self.parts, epsilon) + self.extra_delta)

    @property
    def mu(self) -> float | None:
        """mu when the whole guarantee is mu-GDP, else None."""
        return compose.gaussian_mu(self.parts) if self.extra_delta == 0 else None

    @property
    def origin(self) -> Origin:
        """Whether the theorem is used as a paper has it ("published") or was "proved here", and where."""
        return origin_of(self.theorem)

    def rdp(self, orders: ArrayLike) -> Floats:
        """Renyi divergence at each order (> 1; infinity for the largest loss), rounded up; infinite where unproved.

        Examples
        --------
        >>> from dplangevin.privacy.parts import Gaussian
        >>> g = Guarantee(parts=(Gaussian(mu=1.0),), adjacency="replace-one", release="draw", theorem="composition",
        ...               reference="Dong, Roth and Su (2022)")
        >>> g.rdp([2, 8]).round(6).tolist(), round(g.zcdp(), 6), round(float(g.tradeoff(0.05)), 6)
        ([1.0, 4.0], 0.5, 0.740489)
        >>> print(g.advantage(prior=0.5, exceeded=1e-6))
        Whether one record was used, or another in its place: a test that sees the release catches at most 38.2925% ...
        """
        if self.extra_delta > 0:
            return readouts.rdp((), orders) + math.inf
        return readouts.rdp(self.parts, orders)

    def zcdp(self) -> float:
        """The smallest proved rho of rho-zCDP (divergence at most rho alpha at every order), or infinity."""
        return math.inf if self.extra_delta > 0 else readouts.zcdp(self.parts)

    def tradeoff(self, alpha: ArrayLike) -> Floats:
        """The least share of members that any test misses which accuses at most a share alpha of non-members."""
        reach = (
            self.epsilon(self.extra_delta + 1e-9) if self.extra_delta < 1 - 1e-9 and self.mu is None else 0.0
        )
        return readouts.tradeoff(self.delta, self.mu, reach, alpha)

    def advantage(self, prior: float = 0.5, exceeded: float | None = None) -> readouts.Advantage:
        """What a membership-inference attacker gains, in numbers and (printed) in words.

        `prior` is the attacker's belief beforehand. `exceeded` is the probability with which the bound on the belief
        afterwards may fail (default: the guarantee's delta, or 1e-6); a pure promise never fails.
        """
        if exceeded is None:
            exceeded = self.at_delta or 1e-6
        return readouts.advantage(self.delta, self.epsilon, self.adjacency, prior, exceeded)

    @property
    def kind(self) -> str:
        """The currency: pure, bounded-range, gdp, rdp, pld or approximate."""
        if self.extra_delta > 0:
            return "approximate"
        kinds = {part.kind for part in self.parts}
        if len(kinds) == 1:
            return kinds.pop()
        if kinds <= {"pure", "bounded-range"}:
            return "pure"
        return "approximate" if "approximate" in kinds else "rdp" if "rdp" in kinds else "pld"

    def __add__(self, other: object) -> Guarantee:
        if isinstance(other, NotPrivate):
            return other  # type: ignore[return-value]
        if not isinstance(other, Guarantee):
            return NotImplemented
        if other.adjacency != self.adjacency:
            raise InvalidParameter(
                f"cannot add a {self.adjacency} guarantee to a {other.adjacency} one; state both for one adjacency."
            )
        if other.rows_per_person != self.rows_per_person:
            raise InvalidParameter(
                f"cannot add a guarantee for {self.rows_per_person} rows a person to one for {other.rows_per_person}; "
                "state both for the same number."
            )
        both = None
        if self.composition is not None and other.composition is not None:
            both = self.composition + other.composition
        return (
            Guarantee(  # right where both are fixed beforehand; a choice in between needs the ledger's filter
                parts=self.parts + other.parts,
                adjacency=self.adjacency,
                release=_joined(self.release, other.release),
                theorem=_joined(self.theorem, other.theorem),
                reference=_joined(self.reference, other.reference),
                assumptions=tuple(dict.fromkeys(self.assumptions + other.assumptions)),
                arithmetic="real" if "real" in (self.arithmetic, other.arithmetic) else self.arithmetic,
                extra_delta=self.extra_delta + other.extra_delta,
                at_delta=self.at_delta if self.at_delta == other.at_delta else None,
                rows_per_person=self.rows_per_person,
                composition=both,
                conditions=merge_conditions(self.conditions, other.conditions),
            )
        )

    def __rmul__(self, count: int) -> Guarantee:
        times = _check.count("the number of releases", count)
        return replace(
            self,
            parts=tuple(part.times(times) for part in self.parts),
            extra_delta=times * self.extra_delta,
            composition=None if self.composition is None else times * self.composition,
        )

    def group(self, size: int) -> Guarantee:
        """The promise to a person who owns up to `size` records; one that covers them already is left as it is."""
        rows = _check.count("size", size)
        if rows <= self.rows_per_person:
            return self
        if self.rows_per_person > 1:
            raise InvalidParameter(
                f"this guarantee is for {self.rows_per_person} rows a person, not for {rows}; plan for {rows}."
            )
        extra = 0.0
        if self.extra_delta > 0:
            mu = compose.gaussian_mu(self.parts)
            if mu is None:
                raise InvalidParameter(
                    f"no group guarantee of {rows} rows is proved for an additive delta beside parts that are not GDP; "
                    "plan for one row a person, or with Gaussian noise."
                )
            extra = cv.gdp_group_delta(mu, self.extra_delta, rows)
        parts = tuple(replace(part.group(rows), count=part.count) for part in self.parts)
        note = f"holds for all rows of a person who owns at most {rows}"
        beside = None if self.composition is None else self.composition.group(rows)
        return replace(
            self,
            parts=parts,
            extra_delta=extra,
            assumptions=(*self.assumptions, note),
            rows_per_person=rows,
            composition=beside,
        )

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        if delta is None:
            delta = self.at_delta if self.at_delta is not None else 0.0
        return {
            "epsilon": self.epsilon(delta),
            "delta": delta,
            "kind": self.kind,
            "mu": self.mu,
            "adjacency": self.adjacency,
            "release": self.release,
            "theorem": self.theorem,
            "reference": self.reference,
            "origin": self.origin.kind,
            "proofs": list(self.origin.proofs),
            "conditions": [condition.to_dict() for condition in self.conditions],
            "assumptions": list(self.assumptions),
            "arithmetic": self.arithmetic,
            "extra_delta": self.extra_delta,
        }

    def to_dp_event(self) -> Any:
        """The same promise as a dp-accounting DpEvent, where events exist for every part.

        Pure parts become randomised response, the worst eps-DP mechanism: account them under REPLACE_ONE.
        """
        from dp_accounting import dp_event

        if self.extra_delta > 0:
            raise InvalidParameter(
                "dp-accounting has no event for an additive delta; export the parts alone."
            )
        events = []
        for part in self.parts:
            event = part.event()
            if event is None:
                raise InvalidParameter(
                    f"dp-accounting has no event for a part of type {type(part).__name__}; use epsilon(delta) here."
                )
            events.extend(_repeated(event, part.count))
        return events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)


def _repeated(event: Any, count: int) -> list[Any]:
    """`count` uses of one event. dp-accounting 0.6.0 counts a self-composed randomised response once: one by one."""
    from dp_accounting import dp_event

    if count == 1:
        return [event]
    if not isinstance(event, dp_event.RandomizedResponseDpEvent):
        return [dp_event.SelfComposedDpEvent(event, count)]
    if count > _MOST_EVENTS:
        raise InvalidParameter(
            f"dp-accounting takes at most {_MOST_EVENTS} randomised responses here, got {count}; use epsilon(delta)."
        )
    return [event] * count


def _joined(first: str, second: str) -> str:
    return first if first == second else f"{first} + {second}"


@dataclass(frozen=True)
class NotPrivate:
    """The value of a guarantee that does not exist. Asking it for a number raises."""

    reason: str

    def _refuse(self) -> NotPrivateError:
        return NotPrivateError(f"no guarantee: {self.reason}")

    def epsilon(self, delta: float | None = None) -> float:
        raise self._refuse()

    def delta(self, epsilon: float) -> float:
        raise self._refuse()

    @property
    def mu(self) -> float | None:
        raise self._refuse()

    def rdp(self, orders: ArrayLike) -> Floats:
        raise self._refuse()

    def zcdp(self) -> float:
        raise self._refuse()

    def tradeoff(self, alpha: ArrayLike) -> Floats:
        raise self._refuse()

    def advantage(self, prior: float = 0.5, exceeded: float | None = None) -> readouts.Advantage:
        raise self._refuse()

    def __add__(self, other: object) -> NotPrivate:
        return self

    __radd__ = __add__

    def __rmul__(self, count: int) -> NotPrivate:
        return self

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON: epsilon is null and the reason is given."""
        return {"epsilon": None, "delta": None, "kind": "none", "reason": self.reason}
