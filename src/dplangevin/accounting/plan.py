"""Specs, theorems and plans: the public parameters of a run, certified before any record is read.

`Theorem.certify(constants, spec)` returns a Guarantee, or raises AssumptionFailed with the hypothesis that does not
hold and the fix.

The object that is certified is the one that runs. A plan file is JSON with public values only; loading it checks
every field and proves the guarantee again.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, final

from dplangevin import _check, _files, _plain
from dplangevin._templates import render_pairs
from dplangevin._version import __version__
from dplangevin.accounting.certificate import Derivation, certificate_to_plain, value_to_plain
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import PrivacyPart
from dplangevin.accounting.registry import (
    epsilon_lower_bound,
    find_theorem,
    plain_composition_theorem,
    spec_readers,
    theorems_for,
)
from dplangevin.errors import (
    AssumptionFailed,
    ContradictionError,
    DplangevinError,
    InvalidParameter,
    NotPrivateError,
)
from dplangevin.problem import DataBounds
from dplangevin.problem.constants import Constants
from dplangevin.problem.losses import LOSSES, Clipped
from dplangevin.problem.problem import CONSTRAINTS, Problem


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


_OTHER_SAMPLING = ("the bound for that sampling", "Use sampling='shuffle', or order='secret'")


@dataclass(frozen=True, kw_only=True)
class CertifiedSpec:
    """The public parameters of a run with the guarantee that a theorem proves for them.

    The guarantee is computed and cannot be stated.

    Parameters
    ----------
    spec : the public parameters of the run.
    delta : the delta at which the guarantee is reported.
    constants : of the problem; None for noisy answers, whose specs state their own adjacency.
    theorem : pin a theorem by name; None takes the tightest that applies.

    Attributes
    ----------
    guarantee : what the theorem proves.
    """

    spec: Spec
    delta: float
    constants: Constants = None  # type: ignore[assignment]
    theorem: str | None = None
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        guarantee = certify_plan(self.constants, self.spec, delta=self.delta, theorem=self.theorem)
        object.__setattr__(self, "guarantee", guarantee)
        object.__setattr__(self, "theorem", guarantee.theorem)

    def _repr_html_(self) -> str:
        pairs = [("mechanism", self.spec.mechanism), ("public parameters", self.spec)]
        return render_pairs("Plan of a run", pairs, self.guarantee._repr_html_())


@dataclass(frozen=True, kw_only=True)
class Plan(CertifiedSpec):
    """A certified spec with its problem, whose constants it uses: `run_plan` runs it on data of that problem.

    Parameters
    ----------
    spec, delta, theorem : as in `CertifiedSpec`.
    problem : the loss, the constraint, the ridge and the public bounds of the data.

    Attributes
    ----------
    constants : those of the problem.
    guarantee : what the theorem proves.
    """

    problem: Problem
    constants: Constants = field(init=False)

    def __post_init__(self) -> None:
        if type(self.problem) is not Problem:  # a subclass could state other constants than it has
            raise InvalidParameter(f"problem must be a Problem, got {type(self.problem).__name__}.")
        object.__setattr__(self, "constants", self.problem.constants)
        super().__post_init__()


def certify_plan(
    constants: Constants | None,
    spec: Spec,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    theorem: str | None = None,
) -> Guarantee:
    """Return the tightest guarantee of a run at delta (or at epsilon), or the one of a pinned theorem.

    Its `composition` is plain composition of the same run, where that is finite.

    Parameters
    ----------
    constants : of the problem; None for noisy answers.
    spec : the public parameters of the run.
    delta, epsilon : exactly one of them; delta = 0 asks for a pure guarantee.
    theorem : name of the theorem to use; None takes the tightest that applies.
    """
    if (delta is None) == (epsilon is None):
        raise InvalidParameter(
            "give exactly one of delta and epsilon: delta to get epsilon, or epsilon to get delta."
        )
    if epsilon is not None:
        _check.check_positive("epsilon", epsilon)
    if constants is None and not spec.capabilities.needs_no_problem:
        raise InvalidParameter(f"{spec.mechanism} needs constants, or a problem that has them.")
    if constants is not None:
        spec.check_combination(constants)
    if delta is not None and (delta != 0 or not spec.capabilities.pure):
        _check.check_open_unit("delta", delta)

    def cost(guarantee: Guarantee) -> float:
        if epsilon is not None:
            return guarantee.delta(epsilon)
        return guarantee.epsilon(delta)

    plain = plain_composition_theorem(type(spec))
    if theorem is not None:
        best = find_theorem(theorem, type(spec)).certify(constants, spec)
        guarantees = {} if plain in (None, theorem) else _certify_all(constants, spec, only=plain)[0]
    else:
        guarantees, refusals = _certify_all(constants, spec)
        if not guarantees:
            raise NotPrivateError("\n - ".join(("no theorem covers this run:", *format_refusals(refusals))))
        best = next(iter(guarantees.values()))
        if len(guarantees) > 1:
            best = min(guarantees.values(), key=lambda g: (cost(g), g.theorem != plain))
    if delta == 0 and math.isinf(cost(best)):
        raise NotPrivateError(
            "this run has no guarantee at delta = 0; state delta > 0, or noise with a pure guarantee."
        )
    at_delta = delta if delta is not None else cost(best)
    _check_against_lower_bound(best, constants, spec, at_delta)
    composition = None if plain in (None, best.theorem) else guarantees.get(plain)
    if composition is not None:
        composition = replace(composition, at_delta=at_delta)
    return replace(best, at_delta=at_delta, composition=composition)


def explain_refusals(constants: Constants, spec: Spec) -> dict[str, str]:
    """Return why each theorem that does not apply to this run does not, by its name."""
    return _certify_all(constants, spec)[1]


def format_refusals(refusals: Mapping[str, str]) -> tuple[str, ...]:
    """Return one line per reason, with the theorems that share it; those about another sampling are left out."""
    theorems_by_reason: dict[str, list[str]] = {}
    for name, reason in refusals.items():
        if not any(phrase in reason for phrase in _OTHER_SAMPLING):
            theorems_by_reason.setdefault(reason.removeprefix(f"{name} does not apply: "), []).append(name)
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in theorems_by_reason.items())


def _certify_all(
    constants: Constants | None, spec: Spec, only: str | None = None
) -> tuple[dict[str, Guarantee], dict[str, str]]:
    """Return the guarantees that the theorems about this run prove, and why the others do not apply, by name."""
    guarantees: dict[str, Guarantee] = {}
    refusals: dict[str, str] = {}
    for name, theorem in theorems_for(type(spec)).items():
        if only in (None, name):
            try:
                guarantees[name] = theorem.certify(constants, spec)
            except AssumptionFailed as error:
                refusals[name] = str(error)
    return guarantees, refusals


def _check_against_lower_bound(
    guarantee: Guarantee, constants: Constants | None, spec: Spec, delta: float
) -> None:
    """Refuse a claimed epsilon below what a run with the same public parameters is known to leak."""
    if not 0 < delta < 1:
        return
    lower_bound = epsilon_lower_bound(constants, spec, delta)
    if lower_bound is None or lower_bound == 0:
        return
    claimed = guarantee.epsilon(delta)
    if not claimed >= lower_bound * (1 - 1e-9):
        raise ContradictionError(
            f"{guarantee.theorem} claims epsilon = {claimed!r} at delta = {delta!r}, but a run with the same "
            f"public parameters leaks {lower_bound!r}: this is a fault of the library, and nothing was "
            f"released; please report it with {constants!r} and {spec!r}."
        )


_MAX_DEPTH, _MAX_ITEMS, _MAX_COUNT = 6, 100_000, 10**15
PLAN_FORMAT = _plain.FileFormat(
    what="a plan file",
    layout="dplangevin-plan",
    version=3,  # 3 has the names of version 0.2
    oldest=3,
    fields={
        "library": _plain.read_text,
        "spec": _plain.read_mapping,
        "problem": _plain.optional_reader(_plain.read_mapping),
        "constants": _plain.optional_reader(_plain.read_mapping),
        "delta": _plain.read_probability,
        "theorem": _plain.read_text,
        "guarantee": _plain.read_mapping,
    },
    optional={
        "certificate": _plain.optional_reader(_plain.read_mapping),
        "digest": _plain.read_text,
        "signature": _plain.read_mapping,
    },
)


def save_plan(plan: CertifiedSpec, path: str | Path) -> None:
    """Write a plan to a JSON file. Everything in a plan is public."""
    _files.write_text(path, _plain.format_json(plan_to_plain(plan)))


def plan_to_plain(plan: CertifiedSpec) -> dict[str, Any]:
    """Return the content of a plan file."""
    content = {
        "library": __version__,
        "spec": value_to_plain(plan.spec),
        "problem": value_to_plain(plan.problem) if isinstance(plan, Plan) else None,
        "constants": None if isinstance(plan, Plan) else value_to_plain(plan.constants),
        "delta": plan.delta,
        "theorem": plan.theorem,
        "guarantee": {
            "epsilon": value_to_plain(plan.guarantee.epsilon()),
            "adjacency": plan.guarantee.adjacency,
        },
        "certificate": certificate_to_plain(plan.guarantee),
    }
    return PLAN_FORMAT.write(content)


def load_plan(path: str | Path) -> CertifiedSpec:
    """Load a plan from a file. Its guarantee is proved again; a file that claims a smaller epsilon is refused."""
    return plan_from_plain(_files.read_json(path, "the plan file"))


def plan_from_plain(content: Any) -> CertifiedSpec:
    """Return the plan in the decoded JSON of a plan file."""
    plain = PLAN_FORMAT.check(content)
    theorem, delta = plain["theorem"], plain["delta"]
    spec: Spec = _read_instance("spec", plain["spec"], spec_readers())
    common: dict[str, Any] = {"spec": spec, "delta": delta, "theorem": theorem}
    if (plain["problem"] is None) == (plain["constants"] is None):
        raise InvalidParameter("a plan file must hold a problem or constants, and not both.")
    try:
        plan: CertifiedSpec
        if plain["problem"] is None:
            plan = CertifiedSpec(
                constants=_read_instance("constants", plain["constants"], {"Constants": Constants}), **common
            )
        else:
            plan = Plan(problem=_read_instance("problem", plain["problem"], {"Problem": Problem}), **common)
    except DplangevinError:
        raise
    except (TypeError, ValueError, ArithmeticError, MemoryError) as error:
        raise InvalidParameter(f"the parameters of this plan cannot be accounted: {error}.") from None
    _check_claim(plan, plain["guarantee"])
    _plain.check_digest(plain, "the plan file")
    return plan


def _check_claim(plan: CertifiedSpec, claim: Any) -> None:
    stated = _plain.read_record(
        "guarantee", claim, {"epsilon": _plain.read_cost, "adjacency": _plain.read_text}
    )["epsilon"]
    proved = plan.guarantee.epsilon()
    if not proved <= stated * (1 + 1e-9) or claim["adjacency"] != plan.guarantee.adjacency:
        raise InvalidParameter(
            f"the file claims epsilon = {stated!r} ({claim['adjacency']!r}), and only {proved!r} "
            f"({plan.guarantee.adjacency!r}) is proved for its numbers: it was altered, or written by "
            "another version."
        )


def _read_instance(where: str, value: Any, allowed: Mapping[str, Callable[..., Any]], depth: int = 0) -> Any:
    """Return an instance of one of the allowed classes; its constructor checks types and ranges."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or value["type"] not in allowed:
        raise InvalidParameter(
            f"{where} must be an object whose type is one of {', '.join(sorted(allowed))}."
        )
    if depth > _MAX_DEPTH:
        raise InvalidParameter(f"{where} is nested too deeply.")
    kind = allowed[value["type"]]
    known = set(inspect.signature(kind).parameters)
    fields = {name: item for name, item in value.items() if name != "type"}
    if unknown := sorted(set(fields) - known):
        raise InvalidParameter(f"{where} has unknown fields: {', '.join(unknown)}.")
    read = {
        name: _read_value(f"{where}.{name}", item, _classes_for_field(name), depth)
        for name, item in fields.items()
    }
    try:
        return kind(**read)
    except DplangevinError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InvalidParameter(f"{where} has a field of the wrong type: {error}.") from None


def _classes_for_field(name: str) -> dict[str, Callable[..., Any]]:
    """Return the classes that a field may hold, by name."""
    if name == "loss":
        kinds: list[type] = [*LOSSES.values(), Clipped]
        return {kind.__name__: kind for kind in kinds}
    if name == "constraint":
        return {kind.__name__: kind for kind in CONSTRAINTS.values()}
    if name == "draws":
        return spec_readers()
    return {"DataBounds": DataBounds} if name == "bounds" else {}


def _read_value(where: str, value: Any, allowed: Mapping[str, Callable[..., Any]], depth: int) -> Any:
    if isinstance(value, dict):
        return _read_instance(where, value, allowed, depth + 1)
    if isinstance(value, list):
        nested = any(isinstance(item, list) or (isinstance(item, dict) and not allowed) for item in value)
        if len(value) > _MAX_ITEMS or nested:
            raise InvalidParameter(f"{where} must be a short list of plain values.")
        return tuple(_read_value(where, item, allowed, depth + 1) for item in value)
    if value in ("inf", "-inf"):
        return math.inf if value == "inf" else -math.inf
    if isinstance(value, int) and abs(value) > _MAX_COUNT:
        raise InvalidParameter(f"{where} = {value} is too large.")
    return value
