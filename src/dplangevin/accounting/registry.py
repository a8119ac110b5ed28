"""The registry of mechanisms, with one line per mechanism package.

A mechanism package lists its kinds of run in `MECHANISM_ENTRIES`: for each the spec, the theorems about it, the
mechanism that runs it and the functions that plan it. Names are resolved on first use, so that accounting and
planning know every mechanism by name and import none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:  # names of mechanisms are read by the help of commands, which must not load SciPy
    from dplangevin.accounting.plan import Capabilities, Spec, Theorem

MECHANISM_PACKAGES: tuple[str, ...] = (
    "dplangevin.mechanisms.noisy_gradient",
    "dplangevin.mechanisms.langevin",
    "dplangevin.mechanisms.whitened",
    "dplangevin.mechanisms.ridge_whitened",
    "dplangevin.mechanisms.perturbation",
    "dplangevin.mechanisms.whitened_objective",
    "dplangevin.mechanisms.moments",
    "dplangevin.mechanisms.exponential",
    "dplangevin.mechanisms.underdamped",
    "dplangevin.mechanisms.mirror_descent",
    "dplangevin.mechanisms.rashomon",
    "dplangevin.mechanisms.rashomon_region",
    "dplangevin.mechanisms.noisy_answers",
    "dplangevin.mechanisms.learned_schema",
    "dplangevin.mechanisms.repeated_selection",
)


@dataclass(frozen=True)
class CalibrationTarget:
    """The parameter that `calibrate` searches for a mechanism without steps.

    Parameters
    ----------
    name : of the option and of the spec's field.
    increases_privacy : whether a larger value is more private.
    is_slow : whether one evaluation takes long, so that the search makes do with fewer.
    """

    name: str = "noise_std"
    increases_privacy: bool = True
    is_slow: bool = False

    def value_at(self, factor: float) -> float:
        """Return a value that is more private for a larger factor."""
        return factor if self.increases_privacy else 1 / factor


@dataclass(frozen=True)
class PlannerEntry:
    """A name that users may pass as `mechanism=`, and when mechanism="auto" chooses it.

    Parameters
    ----------
    name : "one-step" is planned by the function `plan_one_step` in the module of planners.
    rank : position in the order in which "auto" considers mechanisms, the smallest first; None: only on request.
    suitability : name of a function Request -> bool in the module of planners: whether "auto" chooses it when its
        turn comes; "" means for every request that its capabilities cover.
    is_default : planned where nothing says otherwise: Gaussian noise, any loss, any theorem about its runs.
    added_capabilities, removed_capabilities : how the capabilities of these plans differ from those of the spec.
    """

    name: str
    _: KW_ONLY
    rank: int | None = None
    suitability: str = ""
    is_default: bool = False
    added_capabilities: tuple[str, ...] = ()
    removed_capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class MechanismEntry:
    """One kind of run, by names in its package: "attribute", or "module:attribute" outside of the usual module.

    Parameters
    ----------
    spec : the class of its public parameters, in module `spec`.
    theorems : the classes of the theorems about it, in module `spec`; a theorem is offered by being listed.
    mechanism : the class that runs it, in module `mechanism`; None when a run needs more than a plan and data.
    planners : what plans it, by the names that users pass.
    planning : the module of planners, where it is not `planning`.
    options : names that `account` and `calibrate` accept; "one-step" is read by `read_one_step_options` in module
        `spec`.
    calibration_target : the option that `calibrate` searches.
    lower_bound : the module with `epsilon_lower_bound(constants, spec, delta)`, an epsilon that some run within these
        numbers attains, or None; every claim is compared with it. "" where there is no such function.
    """

    spec: str
    theorems: tuple[str, ...]
    mechanism: str | None = None
    _: KW_ONLY
    planners: tuple[PlannerEntry, ...] = ()
    planning: str = "planning"
    options: tuple[str, ...] = ()
    calibration_target: CalibrationTarget = field(default_factory=CalibrationTarget)
    lower_bound: str = ""

    @classmethod
    def from_stem(cls, stem: str, **more: Any) -> MechanismEntry:
        """Return an entry whose classes share a stem: XSpec, XTheorem and X."""
        return cls(f"{stem}Spec", (f"{stem}Theorem",), stem, **more)


def _load_module(package: str, module: str = "") -> Any:
    """Import a module of a mechanism. The only upward call by name: accounting and planning import no mechanism."""
    return import_module(f"{package}.{module}" if module else package)


def _resolve_attribute(package: str, name: str, home: str) -> Any:
    """Return an attribute of a mechanism package, of module `home` unless the name states another."""
    module, _, attribute = name.rpartition(":")
    return getattr(_load_module(package, module or home), attribute)


def _iterate_entries() -> Iterator[tuple[str, MechanismEntry]]:
    """Yield every kind of run, with the package in which it lives."""
    return iter(_entries_of(MECHANISM_PACKAGES))


@cache
def _entries_of(packages: tuple[str, ...]) -> tuple[tuple[str, MechanismEntry], ...]:
    return tuple(
        (package, entry) for package in packages for entry in _load_module(package).MECHANISM_ENTRIES
    )


def _spec_of(package: str, entry: MechanismEntry) -> Any:
    return _resolve_attribute(package, entry.spec, "spec")


def _entry_for(kind: type[Spec]) -> tuple[str, MechanismEntry]:
    """Return the package and the entry of a kind of run; another class of the same name is not that kind."""
    for package, entry in _iterate_entries():
        if kind.__module__.startswith(f"{package}.") and _spec_of(package, entry) is kind:
            return package, entry
    raise InvalidParameter(
        f"{kind.__name__} is not in the registry of mechanisms; see docs/adding_a_mechanism.md."
    )


def _planners_by_name() -> Mapping[str, tuple[str, MechanismEntry, PlannerEntry]]:
    return _planners_of(MECHANISM_PACKAGES)


@cache
def _planners_of(packages: tuple[str, ...]) -> Mapping[str, tuple[str, MechanismEntry, PlannerEntry]]:
    return {
        planner.name: (package, entry, planner)
        for package, entry in _entries_of(packages)
        for planner in entry.planners
    }


def _options_by_name() -> dict[str, tuple[str, MechanismEntry]]:
    return {name: (package, entry) for package, entry in _iterate_entries() for name in entry.options}


def spec_types() -> tuple[type[Spec], ...]:
    """Return the spec class of every kind of run."""
    return tuple(_spec_of(package, entry) for package, entry in _iterate_entries())


def spec_readers() -> dict[str, Callable[..., Spec]]:
    """Return what makes a spec from the fields of a plan file, by the name in the file."""
    return {kind.__name__: kind for kind in spec_types() if not kind.capabilities.needs_no_problem}


@cache
def theorems_for(kind: type[Spec]) -> Mapping[str, Theorem[Any]]:
    """Return the theorems about a kind of run, by name."""
    package, entry = _entry_for(kind)
    theorems = [_resolve_attribute(package, name, "spec")() for name in entry.theorems]
    return {theorem.name: theorem for theorem in theorems}


def plain_composition_theorem(kind: type[Spec]) -> str | None:
    """Return the name of the theorem that composes the steps as if each were released; None where there is none."""
    return next((name for name, theorem in theorems_for(kind).items() if theorem.is_plain_composition), None)


def load_theorems() -> None:
    """Import the theorems of every mechanism, each of which states its origin when it is imported."""
    for kind in spec_types():
        theorems_for(kind)


def find_theorem(name: str, kind: type[Spec]) -> Theorem[Any]:
    """Return the theorem that a user pinned."""
    offered = theorems_for(kind)
    if name not in offered:
        raise InvalidParameter(f"theorem = {name!r} is unknown; choose one of {', '.join(offered)}.")
    return offered[name]


def epsilon_lower_bound(constants: Any, spec: Spec, delta: float) -> float | None:
    """Return an epsilon that some run within these public numbers attains, where the mechanism knows one."""
    package, entry = _entry_for(type(spec))
    if not entry.lower_bound:
        return None
    bound: float | None = _resolve_attribute(package, "epsilon_lower_bound", entry.lower_bound)(
        constants, spec, delta
    )
    return bound


def mechanism_for(kind: type[Spec]) -> Any:
    """Return a mechanism that runs this kind, or None."""
    package, entry = _entry_for(kind)
    return None if entry.mechanism is None else _resolve_attribute(package, entry.mechanism, "mechanism")()


def plannable_mechanisms() -> tuple[str, ...]:
    """Return the names of the mechanisms that can be planned."""
    return tuple(_planners_by_name())


def planner_for(name: str) -> Callable[[Any], Any]:
    """Return the function Request -> FitPlan that plans this mechanism."""
    package, entry, planner = _planners_by_name()[name]
    plan: Callable[[Any], Any] = _resolve_attribute(
        package, f"plan_{planner.name.replace('-', '_')}", entry.planning
    )
    return plan


def planner_capabilities(name: str) -> Capabilities:
    """Return what this mechanism can do when it is planned under this name."""
    package, entry, planner = _planners_by_name()[name]
    capabilities: Capabilities = _spec_of(package, entry).capabilities
    changes = dict.fromkeys(planner.added_capabilities, True)
    return replace(capabilities, **changes | dict.fromkeys(planner.removed_capabilities, False))


def mechanisms_with(capability: str) -> tuple[str, ...]:
    """Return the mechanisms that have a capability."""
    return tuple(name for name in plannable_mechanisms() if getattr(planner_capabilities(name), capability))


def default_mechanism() -> str:
    """Return the mechanism that is planned where nothing says otherwise."""
    return next(name for name, (_, _, planner) in _planners_by_name().items() if planner.is_default)


def theorem_covers_rounding(mechanism: str, theorem: str) -> bool:
    """Return whether the proof of this theorem covers exact noise on a grid; False where it is not about the runs."""
    package, entry, _ = _planners_by_name()[mechanism]
    offered = theorems_for(_spec_of(package, entry))
    return theorem in offered and offered[theorem].holds_for_rounded_noise


def automatic_mechanisms() -> Iterator[tuple[str, Callable[[Any], bool]]]:
    """Yield what mechanism="auto" considers, in order: the name, and whether it is suitable for a request."""
    planners = _planners_by_name()
    for _, name in sorted((p.rank, name) for name, (_, _, p) in planners.items() if p.rank is not None):
        package, entry, planner = planners[name]
        if planner.suitability:
            yield name, _resolve_attribute(package, planner.suitability, entry.planning)
        else:
            yield name, lambda _: True


def mechanism_for_theorem(theorem: str) -> str | None:
    """Return the first mechanism that this theorem is about, among those that users may request."""
    for package, entry in _iterate_entries():
        names = [planner.name for planner in entry.planners]
        if names and theorem in theorems_for(_spec_of(package, entry)):
            return names[0]
    return None


def accountable_mechanisms() -> tuple[str, ...]:
    """Return the mechanisms without steps that `account` and `calibrate` accept by name."""
    return tuple(_options_by_name())


def option_reader_for(name: str) -> tuple[Callable[..., Any], CalibrationTarget]:
    """Return what reads the options of a mechanism, options -> (constants, spec), and its calibration target."""
    package, entry = _options_by_name()[name]
    reader = _resolve_attribute(package, f"read_{name.replace('-', '_')}_options", "spec")
    return reader, entry.calibration_target
