"""Guarantee: the privacy guarantee of a release, with its theorem, its origin, its adjacency and its conditions.

An assumption is information (which noise, which parameters are public). A condition is stronger: where it does not
hold, or where the run ends with an error that depends on the records, there is no guarantee. A strict data set of a
ledger accepts only guarantees without conditions.

Also the origin of each theorem (a paper, or a proof in docs/theory) and the step from rows to persons: the guarantee
for a person with several rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._templates import render_list, render_pairs
from dplangevin.accounting import compose, conversions as cv
from dplangevin.accounting.certificate import (
    Derivation,
    group_derivations,
    join_derivations,
    repeat_derivations,
)
from dplangevin.accounting.compose import (
    AttackAdvantage,
    attack_advantage,
    renyi_divergence,
    smallest_zcdp,
    tradeoff_curve,
)
from dplangevin.accounting.parts import PrivacyPart, merge_equal_parts
from dplangevin.errors import CalibrationFailed, InvalidParameter, NotPrivateError
from dplangevin.problem.constants import Adjacency

ConditionKind = Literal[
    "public-labels",  # the set of labels was read from the targets
    "public-row-count",  # the number of rows became the divisor, and neighbouring data sets differ in it
    "upstream-steps",  # steps before the model that may spread one record over the rows of others
    "outer-estimator",  # another estimator may have chosen rows, labels or weights
    "record-errors",  # an error that depends on the records
    "run-failure",  # a run that stops without a release, which may depend on the records
    "unchecked-hypothesis",  # a hypothesis of a theorem that nothing in this project can check
    "file-integrity",  # a file without proof that it is as it was written
    "stated-in-words",  # an entry of an older ledger, whose condition is known as a sentence only
]
CONDITION_KINDS: tuple[ConditionKind, ...] = get_args(ConditionKind)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition of a guarantee.

    Parameters
    ----------
    kind : one of `CONDITION_KINDS`, for programs.
    text : the continuation of "conditional on", for people; no decision depends on it.

    Examples
    --------
    >>> print(Condition(kind="public-labels", text="the set of labels being public"))
    conditional on the set of labels being public
    """

    kind: ConditionKind
    text: str

    def __post_init__(self) -> None:
        if self.kind not in CONDITION_KINDS:
            raise InvalidParameter(
                f"the kind of a condition must be one of {', '.join(CONDITION_KINDS)}; got {self.kind!r}."
            )
        if not isinstance(self.text, str) or not self.text:
            raise InvalidParameter(f"the text of a condition must not be empty, got {self.text!r}.")

    def __str__(self) -> str:
        return f"conditional on {self.text}"

    def to_dict(self) -> dict[str, str]:
        """Return plain data, ready for JSON."""
        return {"kind": self.kind, "text": self.text}


def merge_conditions(*groups: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Return the conditions of several guarantees, each once."""
    return tuple(dict.fromkeys(condition for group in groups for condition in group))


PUBLISHED = "published"
PROVED_HERE = "proved here"
NOT_STATED = "unstated"

_PROOFS: dict[str, str] = {
    "certified-sampler": "docs/theory/proximal_sampler.md",
    "sup-norm-certified-sampler": "docs/theory/proximal_sampler.md",
    "renyi-certified-sampler": "docs/theory/langevin_and_gibbs.md, section 6",
    "density-error": "docs/theory/langevin_and_gibbs.md, section 6",
    "gibbs-law-with-a-log-sobolev-inequality": "docs/theory/langevin_and_gibbs.md, section 3",
    "strongly-convex-gibbs-law": "",
    "langevin-trajectory": "",
    "langevin-last-iterate": "",
    "sgld-trajectory": "",
    "sgld-last-iterate": "",
    "composed-events": "",
}
"""The proofs of statements that are no `Theorem` classes; "" for those used as published, with a reference."""


@dataclass(frozen=True)
class Origin:
    """Whether a guarantee uses published theorems only, and where the proofs of the others are.

    Parameters
    ----------
    kind : "published", "proved here" or "unstated".
    proofs : files and sections with the proofs that are not published.
    """

    kind: str
    proofs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {'; '.join(self.proofs)}" if self.proofs else self.kind


def origin_of(theorem: str) -> Origin:
    """Return the origin of a theorem, or of several joined by " + " or ", " (composed or transferred guarantees).

    Examples
    --------
    >>> print(origin_of("optimal-shift")), print(origin_of("composition + dobrushin"))
    published
    proved here: docs/theory/noisy_sgd.md, section 3, B4
    (None, None)
    """
    names, known = (
        [_normalize_name(name) for name in theorem.replace(" + ", ", ").split(", ")],
        _collect_proofs(),
    )
    if not all(name in known for name in names):
        from dplangevin.accounting.registry import (
            load_theorems,  # imported late: theorems import this module
        )

        load_theorems()
        known = _collect_proofs()
    proofs = tuple(dict.fromkeys(known[name] for name in names if known.get(name)))
    if proofs:
        return Origin(PROVED_HERE, proofs)
    return Origin(PUBLISHED if all(name in known for name in names) else NOT_STATED)


def _collect_proofs() -> dict[str, str]:
    """Return where the proofs are, by theorem, including those of all imported `Theorem` classes."""
    from dplangevin.accounting.plan import Theorem

    known, pending = dict(_PROOFS), Theorem.__subclasses__()
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if "name" in vars(kind) and known.setdefault(_normalize_name(kind.name), kind.proof) != kind.proof:
            raise TypeError(f"two theorems are called {kind.name!r} and have different proofs.")
    return known


def _normalize_name(name: str) -> str:
    return name.strip().lower().replace(" ", "-")


_MAX_EVENTS = 10_000


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The proved privacy guarantee of one release, or of several that are composed.

    Guarantees add up: `a + b` composes two of them, `3 * a` composes one three times.

    Parameters
    ----------
    parts : the privacy costs; their composition is exact where the theory is (see `accounting.compose`).
    adjacency : "replace-one" (n is public) or "add-remove" (a public divisor).
    release : what is released: "last-iterate", "average", "checkpoints", "trajectory", "draw", ...
    theorem, reference : the result that proves the guarantee, and where it is published.
    assumptions : what must hold, as sentences.
    conditions : what the whole guarantee depends on; a strict data set accepts none.
    arithmetic : "real" (ideal noise in floating point) or "discrete-grid" (exact arithmetic on an integer grid).
    extra_delta : probability added once to delta (a bad event, a certified sampler's error).
    at_delta : the delta at which the guarantee is reported; 0 for pure guarantees.
    rows_per_person : it covers all rows of a person who owns at most this many.
    composition : plain composition of the same run, for comparison.
    derivations : the theorem, constants and spec of each release; empty where they are not known (`certificate`).

    Examples
    --------
    >>> from dplangevin.accounting.parts import Gaussian
    >>> g = Guarantee(parts=(Gaussian(mu=1.0),), adjacency="replace-one", release="last-iterate",
    ...               theorem="composition", reference="Dong, Roth and Su (2022)")
    >>> round(g.epsilon(1e-5), 4), round((4 * g).mu, 4)
    (4.3772, 2.0)
    >>> print(replace(g, at_delta=1e-5))
    (4.377179, 1e-05)-differential privacy; replace-one; released: last-iterate
    by composition (published): Dong, Roth and Su (2022)
    """

    parts: tuple[PrivacyPart, ...]
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
    derivations: tuple[Derivation, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", merge_equal_parts(self.parts))
        _check.check_nonnegative("extra_delta", self.extra_delta)

    def __str__(self) -> str:
        delta = self.at_delta or 0.0
        epsilon = self.epsilon(delta)
        # rounded up: a printed guarantee is never better than the proved one
        up = (
            f"{math.ceil(epsilon * 1e6) / 1e6:.6f}".rstrip("0").rstrip(".") if epsilon < 1e6 else str(epsilon)
        )
        level = f"({up}, {delta})-differential privacy"
        if math.isinf(epsilon):
            level = f"no finite epsilon at delta = {delta}; ask epsilon(delta)"
        return "\n".join(
            [
                f"{level}; {self.adjacency}; released: {self.release}",
                f"by {self.theorem} ({self.origin.kind}): {self.reference}",
                *(f"- proof: {proof}" for proof in self.origin.proofs),
                *(f"- conditional on: {condition.text}" for condition in self.conditions),
                *(f"- assumes: {assumption}" for assumption in self.assumptions),
            ]
        )

    def _repr_html_(self) -> str:
        delta = self.at_delta or 0.0
        epsilon = self.epsilon(delta)
        level = (
            f"{math.ceil(epsilon * 1e4) / 1e4:.4f}".rstrip("0").rstrip(".") if epsilon < 1e6 else str(epsilon)
        )
        pairs = [
            ("epsilon", level),
            ("delta", f"{delta:g}" if delta else "0 (pure)"),
            ("neighbours", self.adjacency),
            ("rows per person", self.rows_per_person),
            ("released", self.release),
            ("theorem", f"{self.theorem} ({self.origin.kind})"),
            *(("conditional on", condition.text) for condition in self.conditions),
        ]
        notes = render_list("assumptions and reference", [*self.assumptions, self.reference])
        return render_pairs("Privacy guarantee", pairs, notes)

    @property
    def is_unconditional(self) -> bool:
        """Whether the guarantee holds for every data set, errors included."""
        return not self.conditions

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Conditions and assumptions as sentences, conditions first: for reports, not for decisions."""
        return (*map(str, self.conditions), *self.assumptions)

    @property
    def summary_line(self) -> str:
        """Epsilon, delta, adjacency and theorem in one line."""
        delta = self.at_delta or 0.0
        delta_text = f", delta = {delta:.3g}" if delta else " (pure)"
        return f"epsilon = {self.epsilon(delta):.4g}{delta_text}, {self.adjacency}, theorem {self.theorem}"

    def epsilon(self, delta: float | None = None) -> float:
        """Return the smallest proved epsilon at delta (default: the delta at which the guarantee is reported)."""
        if delta is None:
            delta = self.at_delta if self.at_delta is not None else 0.0
        if delta != 0:
            _check.check_open_unit("delta", delta)
        remaining_delta = delta - self.extra_delta
        if remaining_delta < 0:
            return math.inf
        return compose.compose_epsilon(self.parts, remaining_delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest proved delta at epsilon."""
        _check.check_nonnegative("epsilon", epsilon)
        return min(1.0, compose.compose_delta(self.parts, epsilon) + self.extra_delta)

    @property
    def mu(self) -> float | None:
        """mu when the whole guarantee is mu-GDP, else None."""
        return compose.gaussian_mu(self.parts) if self.extra_delta == 0 else None

    @property
    def origin(self) -> Origin:
        """Whether the theorem is used as published or "proved here", and where its proof is."""
        return origin_of(self.theorem)

    def rdp(self, orders: ArrayLike) -> Floats:
        """Return the Renyi divergence at each order > 1 (infinity: the largest loss), rounded up; inf if unproved.

        Examples
        --------
        >>> from dplangevin.accounting.parts import Gaussian
        >>> g = Guarantee(parts=(Gaussian(mu=1.0),), adjacency="replace-one", release="draw", theorem="composition",
        ...               reference="Dong, Roth and Su (2022)")
        >>> g.rdp([2, 8]).round(6).tolist(), round(g.zcdp(), 6), round(float(g.tradeoff(0.05)), 6)
        ([1.0, 4.0], 0.5, 0.740489)
        >>> round(g.advantage(prior=0.5, exceeded=1e-6).advantage, 6)
        0.382925
        """
        if self.extra_delta > 0:
            return renyi_divergence((), orders) + math.inf
        return renyi_divergence(self.parts, orders)

    def zcdp(self) -> float:
        """Return the smallest proved rho of rho-zCDP (divergence at most rho alpha at every order), or infinity."""
        return math.inf if self.extra_delta > 0 else smallest_zcdp(self.parts)

    def tradeoff(self, alpha: ArrayLike) -> Floats:
        """Return the trade-off curve: the least FNR (1 - TPR) of a membership test with FPR at most alpha."""
        epsilon_span = (
            self.epsilon(self.extra_delta + 1e-9) if self.extra_delta < 1 - 1e-9 and self.mu is None else 0.0
        )
        return tradeoff_curve(self.delta, self.mu, epsilon_span, alpha)

    def advantage(self, prior: float = 0.5, exceeded: float | None = None) -> AttackAdvantage:
        """Return what a membership-inference attacker gains; printed, it is a sentence.

        Parameters
        ----------
        prior : the attacker's probability, before the release, that the record was used.
        exceeded : probability with which the bound on the posterior may fail (default: the guarantee's delta, or
            1e-6); under a pure guarantee it never fails.
        """
        if exceeded is None:
            exceeded = self.at_delta or 1e-6
        return attack_advantage(self.delta, self.epsilon, self.adjacency, prior, exceeded)

    @property
    def kind(self) -> str:
        """The privacy definition: pure, bounded-range, gdp, rdp, pld or approximate."""
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
                f"cannot add a {self.adjacency} guarantee to a {other.adjacency} one; state both for one "
                "adjacency."
            )
        if other.rows_per_person != self.rows_per_person:
            raise InvalidParameter(
                f"cannot add a guarantee for {self.rows_per_person} rows per person to one for "
                f"{other.rows_per_person}; state both for the same number."
            )
        composition = None
        if self.composition is not None and other.composition is not None:
            composition = self.composition + other.composition
        # valid where both are fixed beforehand; choosing the second after the first needs the privacy filter
        return Guarantee(
            parts=self.parts + other.parts,
            adjacency=self.adjacency,
            release=_join_names(self.release, other.release),
            theorem=_join_names(self.theorem, other.theorem),
            reference=_join_names(self.reference, other.reference),
            assumptions=tuple(dict.fromkeys(self.assumptions + other.assumptions)),
            arithmetic="real" if "real" in (self.arithmetic, other.arithmetic) else self.arithmetic,
            extra_delta=self.extra_delta + other.extra_delta,
            at_delta=self.at_delta if self.at_delta == other.at_delta else None,
            rows_per_person=self.rows_per_person,
            composition=composition,
            conditions=merge_conditions(self.conditions, other.conditions),
            derivations=join_derivations(self.derivations, other.derivations),
        )

    def __rmul__(self, count: int) -> Guarantee:
        times = _check.check_count("the number of releases", count)
        return replace(
            self,
            parts=tuple(part.repeat(times) for part in self.parts),
            extra_delta=times * self.extra_delta,
            composition=None if self.composition is None else times * self.composition,
            derivations=repeat_derivations(self.derivations, times),
        )

    def group(self, size: int) -> Guarantee:
        """Return the guarantee for a person with up to `size` records; one that covers them already is unchanged."""
        rows = _check.check_count("size", size)
        if rows <= self.rows_per_person:
            return self
        if self.rows_per_person > 1:
            raise InvalidParameter(
                f"this guarantee is for {self.rows_per_person} rows per person, not for {rows}; plan for "
                f"{rows}."
            )
        extra = 0.0
        if self.extra_delta > 0:
            mu = compose.gaussian_mu(self.parts)
            if mu is None:
                raise InvalidParameter(
                    f"no group guarantee of {rows} rows is proved for an additive delta with parts that are "
                    "not GDP; plan for one row per person, or with Gaussian noise."
                )
            extra = cv.gdp_group_delta(mu, self.extra_delta, rows)
        parts = tuple(replace(part.group(rows), count=part.count) for part in self.parts)
        note = f"holds for all rows of a person who owns at most {rows}"
        composition = None if self.composition is None else self.composition.group(rows)
        return replace(
            self,
            parts=parts,
            extra_delta=extra,
            assumptions=(*self.assumptions, note),
            rows_per_person=rows,
            composition=composition,
            derivations=group_derivations(self.derivations, rows),
        )

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
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
        """Return the guarantee as a dp-accounting DpEvent, where every part has one.

        Pure parts become randomised response, the worst eps-DP mechanism: account them under REPLACE_ONE.
        """
        from dp_accounting import dp_event

        if self.extra_delta > 0:
            raise InvalidParameter(
                "dp-accounting has no event for an additive delta; export the parts alone."
            )
        events = []
        for part in self.parts:
            event = part.to_dp_event()
            if event is None:
                raise InvalidParameter(
                    f"dp-accounting has no event for a part of type {type(part).__name__}; use "
                    "epsilon(delta) here."
                )
            events.extend(_repeat_event(event, part.count))
        return events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)


def _repeat_event(event: Any, count: int) -> list[Any]:
    """Return `count` uses of an event; dp-accounting 0.6.0 counts a self-composed randomised response only once."""
    from dp_accounting import dp_event

    if count == 1:
        return [event]
    if not isinstance(event, dp_event.RandomizedResponseDpEvent):
        return [dp_event.SelfComposedDpEvent(event, count)]
    if count > _MAX_EVENTS:
        raise InvalidParameter(
            f"dp-accounting takes at most {_MAX_EVENTS} randomised responses here, got {count}; use "
            "epsilon(delta)."
        )
    return [event] * count


def _join_names(first: str, second: str) -> str:
    return first if first == second else f"{first} + {second}"


@dataclass(frozen=True)
class NotPrivate:
    """A placeholder where no guarantee is proved: asking it for a privacy parameter raises NotPrivateError."""

    reason: str

    def _not_private_error(self) -> NotPrivateError:
        return NotPrivateError(f"no guarantee: {self.reason}")

    def epsilon(self, delta: float | None = None) -> float:
        raise self._not_private_error()

    def delta(self, epsilon: float) -> float:
        raise self._not_private_error()

    @property
    def mu(self) -> float | None:
        raise self._not_private_error()

    def rdp(self, orders: ArrayLike) -> Floats:
        raise self._not_private_error()

    def zcdp(self) -> float:
        raise self._not_private_error()

    def tradeoff(self, alpha: ArrayLike) -> Floats:
        raise self._not_private_error()

    def advantage(self, prior: float = 0.5, exceeded: float | None = None) -> AttackAdvantage:
        raise self._not_private_error()

    def __add__(self, other: object) -> NotPrivate:
        return self

    __radd__ = __add__

    def __rmul__(self, count: int) -> NotPrivate:
        return self

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """Return plain data, ready for JSON: epsilon is null and the reason is given."""
        return {"epsilon": None, "delta": None, "kind": "none", "reason": self.reason}


def epsilon_per_record(epsilon: float, delta: float, rows: int) -> float:
    """Return the epsilon that one record may cost so that a person's `rows` records together cost epsilon."""
    if delta == 0:
        return epsilon / rows
    mu = cv.gdp_mu(epsilon, delta) / rows
    result = math.nextafter(cv.gdp_epsilon(mu, delta), 0.0)
    if not result > 0:
        raise CalibrationFailed(
            f"max_rows_per_person = {rows} leaves nothing of epsilon = {epsilon:g} for a row; lower "
            "max_rows_per_person or delta."
        )
    return result


def guarantee_per_person(guarantee: Guarantee, rows: int, adjacency: Adjacency) -> Guarantee:
    """Return the guarantee for a person of whom at most `rows` rows are used, from one for an added or removed row.

    A person who joins or leaves adds or removes at most `rows` rows; one who is replaced by another removes at most
    `rows` and adds at most `rows`, whatever the two numbers are. (docs/theory/people.md.)

    Examples
    --------
    >>> from dplangevin.accounting.parts import Gaussian
    >>> row = Guarantee(parts=(Gaussian(mu=0.1),), adjacency="add-remove", release="draw", theorem="composition",
    ...                 reference="")
    >>> [round(guarantee_per_person(row, 3, adjacency).mu, 6) for adjacency in ("add-remove", "replace-one")]
    [0.3, 0.6]
    """
    max_rows = _check.check_count("max_rows_per_person", rows)
    if guarantee.adjacency != "add-remove" or guarantee.rows_per_person != 1:
        raise InvalidParameter(
            "a guarantee for persons is derived from one for a single added or removed row; got "
            f"{guarantee.adjacency!r} with {guarantee.rows_per_person} rows per person."
        )
    grouped = guarantee.group(max_rows if adjacency == "add-remove" else 2 * max_rows)
    return replace(
        grouped,
        adjacency=adjacency,
        assumptions=(
            *guarantee.assumptions,
            f"holds for all rows of a person: at most {max_rows} of them are used, chosen at random and in "
            "secret",
        ),
        rows_per_person=max_rows,
        composition=None,
    )
