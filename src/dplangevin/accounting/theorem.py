"""Base classes: a `Spec` holds the public parameters of a run, and a `Theorem` certifies it.

`Theorem.certify(constants, spec)` returns a Guarantee, or raises AssumptionFailed with the hypothesis that does not
hold and the fix.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar, final

from dplangevin.accounting.certificate import Derivation
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import PrivacyPart
from dplangevin.errors import AssumptionFailed
from dplangevin.problem.constants import Constants


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a kind of run supports. Stated once, with its spec, and read wherever runs are chosen or refused.

    Parameters
    ----------
    pure : guarantees at delta = 0.
    secure : exact noise on an integer grid, from the operating system's generator.
    population_risk : its stability is proved, so that the ridge can be chosen for the risk on new records.
    holds_beyond_n : some theorem about it covers data with more records than the public divisor n.
    intervals : the distribution of its error is known exactly, as confidence intervals need.
    curvature : it can release the curvature at its answer, from which it computes intervals itself.
    ridge_and_radius : a stated ridge and a stated radius apply to the coefficients. They do not in whitened
        coordinates.
    random_batches : steps read random batches of rows, so that rows of one person cannot be kept together.
    checkpoints : a run in steps saves its state, so that commands keep a checkpoint of it by default.
    stated_parameters : a fit may state parameters of the run (`mechanism_options`) and leave the others to be chosen.
    needs_no_problem : it states its own adjacency and is accounted without a problem and its constants.
    """

    pure: bool = False
    secure: bool = False
    population_risk: bool = False
    holds_beyond_n: bool = False
    intervals: bool = False
    curvature: bool = False
    ridge_and_radius: bool = True
    random_batches: bool = False
    checkpoints: bool = False
    stated_parameters: bool = False
    needs_no_problem: bool = False


class Spec(ABC):
    """Base class of the public parameters of a run: frozen dataclasses that are certified and executed unchanged."""

    mechanism: ClassVar[str]
    """Name of the mechanism that runs it."""
    capabilities: ClassVar[Capabilities]
    """What runs of this kind support."""
    release: str
    """What is released, such as "last-iterate"."""
    secure: bool = False
    """Whether its noise is drawn exactly, on an integer grid."""

    def check_combination(self, constants: Constants) -> None:  # noqa: B027 - most kinds have nothing to refuse
        """Refuse combinations for which no theorem exists, whatever the numbers."""


S = TypeVar("S", bound=Spec)


class Theorem(ABC, Generic[S]):
    """One result about one kind of run.

    `derive_guarantee` checks every hypothesis on the very constants and spec that will run; it never assumes one. A
    theorem is a class with two keywords: `name`, and `proof`, the location of a proof in this project
    ("docs/theory/PAGE.md, section 1"; "" for a statement used as published). Shared base classes have neither.
    """

    name: ClassVar[str]
    proof: ClassVar[str]
    reference: ClassVar[str]
    holds_beyond_n: ClassVar[str] = ""
    """Why the proof holds when the data hold more records than the public divisor n; "" when it does not."""
    secure_holds_beyond_n: ClassVar[bool] = False
    """Whether it also holds then for secure runs, whose integer sums are otherwise sized for n records."""
    holds_for_rounded_noise: ClassVar[bool] = False
    """Whether its proof covers noise that is drawn exactly on a grid: a release that is rounded, and then used by the
    steps that follow. Bounds that hide iterates compare unrounded paths: they do not, unless rounding is in them."""
    is_plain_composition: ClassVar[bool] = False
    """Whether it composes the steps of a run as if each were released; sharper theorems are compared with it."""

    def __init_subclass__(cls, *, name: str | None = None, proof: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if (name is None) != (proof is None):
            raise TypeError(f"{cls.__name__}: a theorem states both its name and its proof.")
        if name is not None and proof is not None:
            cls.name, cls.proof = name, proof
        if "certify" in vars(cls):  # it would bypass the check for more than n records
            raise TypeError(
                f"{cls.__name__}: a theorem derives its guarantee in `derive_guarantee`, not in `certify`."
            )

    @final
    def certify(self, constants: Any, spec: S) -> Guarantee:
        """Return the guarantee of this run; raise AssumptionFailed when a hypothesis does not hold.

        constants : those of the problem; None for noisy answers, whose specs state their own adjacency.
        """
        allows_more_rows = isinstance(constants, Constants) and constants.allow_more_rows
        is_covered = self.covers_more_rows(spec) and (self.secure_holds_beyond_n or not spec.secure)
        if allows_more_rows and not is_covered:
            raise self.refuse(
                "its proof needs at most n records, and these data may hold more than the stated n",
                "Leave n_public= out (the number of rows is then public), or use another mechanism.",
            )
        if spec.secure and not self.holds_for_rounded_noise:
            raise self.refuse(
                "its proof is about real-valued noise, and this run rounds every step to a grid",
                "Use composition, or state secure=False.",
            )
        try:
            guarantee = self.derive_guarantee(constants, spec)
        except ArithmeticError:  # a formula that overflows proves nothing
            raise self.refuse(
                "a formula of its proof overflows for these numbers", "Take less extreme ones."
            ) from None
        return replace(guarantee, derivations=(Derivation(self.name, constants, spec),))

    @abstractmethod
    def derive_guarantee(self, constants: Any, spec: S) -> Guarantee:
        """Check every hypothesis and return what the proof gives; `certify` has checked for more than n records."""

    def covers_more_rows(self, spec: S) -> bool:
        """Return whether the proof holds when the data hold more records than the public divisor n."""
        return bool(self.holds_beyond_n)

    def refuse(self, hypothesis: str, fix: str) -> AssumptionFailed:
        """Return the error for a hypothesis that does not hold."""
        return AssumptionFailed(f"{self.name} does not apply: {hypothesis}. {fix}")

    def row_norm(self, constants: Constants) -> float:
        """Return the bound on the norm of a row, which sums over rows need; refuse where it is not stated."""
        if constants.row_norm is None:
            raise self.refuse(
                "the largest row norm is not stated", "Build the plan from a Problem, or state row_norm."
            )
        return constants.row_norm

    def guarantee(
        self,
        constants: Constants,
        spec: S,
        parts: tuple[PrivacyPart, ...],
        assumptions: tuple[str, ...] = (),
        extra_delta: float = 0.0,
        conditions: tuple[Condition, ...] = (),
    ) -> Guarantee:
        """Build the guarantee of a run from its parts and further assumptions."""
        return Guarantee(
            parts=parts,
            adjacency=constants.adjacency,
            release=spec.release,
            theorem=self.name,
            reference=self.reference,
            assumptions=(
                *constants.assumptions,
                *assumptions,
                *noise_assumptions(COMMON_ASSUMPTIONS, secure=spec.secure),
            ),
            arithmetic="discrete-grid" if spec.secure else "real",
            extra_delta=extra_delta,
            conditions=conditions,
        )

    def guarantee_of_answers(
        self, spec: Any, part: PrivacyPart, assumptions: tuple[str, ...], **stated: Any
    ) -> Guarantee:
        """Build the guarantee of noisy answers, whose specs state their own adjacency."""
        return Guarantee(
            parts=(part,),
            adjacency=spec.adjacency,
            release=spec.release,
            theorem=self.name,
            assumptions=assumptions,
            conditions=spec.conditions,
            arithmetic="discrete-grid" if spec.secure else "real",
            **{"reference": self.reference, **stated},
        )


COMMON_ASSUMPTIONS = (
    "noise is ideal real-valued noise from a secret seed",
    "n, bounds, step sizes, noise and number of steps are public and not chosen from the private data",
)

ANSWER_ASSUMPTIONS = (
    "noise is ideal noise from a secret seed",
    "the bounds of a contribution, the noise and the bins are public and not chosen from the private data",
)

SECURE_NOISE = (
    "noise has exactly the distribution of ideal noise rounded to a public grid, from random bytes of the "
    "operating system, or of a generator that they or a stated seed made where a run is repeatable; no real "
    "arithmetic is assumed"
)


def public_noise_grid(scale: float, *, whole: bool = False) -> float:
    """Return the grid to which answers are rounded: a power of two near 2^-20 scale; at most 1 with `whole`."""
    grid = float(2.0 ** (math.floor(math.log2(scale)) - 20))
    return min(grid, 1.0) if whole else grid


def noise_assumptions(assumptions: tuple[str, str], *, secure: bool) -> tuple[str, ...]:
    """Return COMMON_ASSUMPTIONS or ANSWER_ASSUMPTIONS, with exact noise in place of ideal noise if `secure`."""
    return (SECURE_NOISE, assumptions[1]) if secure else assumptions


def round_up(value: float) -> float:
    """Return value (1 + 1e-9) + 1e-12, which covers rounding in double precision; NaN becomes infinity."""
    if math.isnan(value):
        return math.inf
    return value if value == 0 else value * (1 + 1e-9) + 1e-12


def round_down(value: float) -> float:
    """Return the largest number whose `round_up` is at most value."""
    return (value - 2e-12) / (1 + 2e-9)
