"""The families of algorithms: one line each.

A family is a package whose `MEMBERS` name its schedules, and for each the theorems about it, the mechanism that runs it
and the recipes that plan it. Names are resolved on first use: accounting knows every family by name and imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:  # names of mechanisms are read by the help of commands, which must not load SciPy
    from dplangevin.privacy.schedule import Capabilities, Schedule
    from dplangevin.privacy.theorem import Theorem

FAMILIES: tuple[str, ...] = (
    "dplangevin.families.noisy_gradient",
    "dplangevin.families.whitened",
    "dplangevin.families.perturbation",
    "dplangevin.families.whitened_objective",
    "dplangevin.families.moments",
    "dplangevin.families.draws",
    "dplangevin.families.underdamped",
    "dplangevin.families.mirror_descent",
    "dplangevin.families.rashomon",
    "dplangevin.families.rashomon_region",
    "dplangevin.families.noisy_answers",
    "dplangevin.families.learned_schema",
    "dplangevin.families.repeated_selection",
)


@dataclass(frozen=True)
class Knob:
    """The number on which the privacy of a mechanism without steps hangs, and which `calibrate` finds.

    Parameters
    ----------
    name : of the option and of the schedule's field. rising : whether more of it is more private.
    patient : whether one account takes long, so that the search is content with fewer.
    """

    name: str = "noise_std"
    rising: bool = True
    patient: bool = False

    def at(self, factor: float) -> float:
        """A value that is the more private the larger the factor."""
        return factor if self.rising else 1 / factor


@dataclass(frozen=True)
class RecipeEntry:
    """One name that users ask the planner for, and when mechanism="auto" takes it.

    Parameters
    ----------
    name : "one-step" is planned by the function `one_step` in module `recipe`; "module:name" by one of another module.
    rank : place in the order in which "auto" considers recipes, the smallest first; None is planned by name only.
    suits : name of a function Request -> bool beside the recipe: whether "auto" takes it when its turn comes; "" takes
        it for every request that its capabilities cover.
    default : planned where nothing says otherwise: Gaussian noise, any loss, any theorem about its runs.
    secure_form : planned for secure=True where the asked mechanism has no secure form itself; never asked for by name.
    gains, lacks : capabilities of this recipe that its schedule has not, and the other way round.
    """

    name: str
    _: KW_ONLY
    rank: int | None = None
    suits: str = ""
    default: bool = False
    secure_form: bool = False
    gains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    """One kind of run, by names inside the family's package: "attribute", or "module:attribute" of another module.

    Parameters
    ----------
    schedule : the class of its public parameters, in module `schedule`.
    theorems : the classes of the theorems about it, in module `theorem`; one is offered by being listed.
    mechanism : the class that runs it, in module `mechanism`; None when it needs more than a plan and data.
    recipes : what plans it, by the names a user asks for.
    options : the names that `account` and `calibrate` know; "one-step" is read by `one_step` in module `options`.
    knob : the option that `calibrate` finds.
    self_check : module `self_check` has known_leak(constants, schedule, delta) -> an epsilon that some run within these
        numbers attains, or None; every claim is compared with it.
    former : what makes it from the fields of older plan files: names that they know it under.
    """

    schedule: str
    theorems: tuple[str, ...]
    mechanism: str | None = None
    _: KW_ONLY
    recipes: tuple[RecipeEntry, ...] = ()
    options: tuple[str, ...] = ()
    knob: Knob = field(default_factory=Knob)
    self_check: bool = False
    former: tuple[str, ...] = ()

    @classmethod
    def named(cls, stem: str, **more: Any) -> Member:
        """A schedule, a theorem and a mechanism of one name: XSchedule, XTheorem and X."""
        return cls(f"{stem}Schedule", (f"{stem}Theorem",), stem, **more)


def _load(package: str, module: str = "") -> Any:
    """A module of a family. The only upward call by name: accounting and planning import no family."""
    return import_module(f"{package}.{module}" if module else package)


def _resolve(package: str, name: str, home: str) -> Any:
    """An attribute of a family, in the module `home` unless its name says another."""
    module, _, attribute = name.rpartition(":")
    return getattr(_load(package, module or home), attribute.replace("-", "_"))


def _members() -> Iterator[tuple[str, Member]]:
    """Every kind of run, with the package in which it lives."""
    return ((package, member) for package in FAMILIES for member in _load(package).MEMBERS)


def _member(kind: type[Schedule]) -> tuple[str, Member]:
    """The package in which this kind of run lives, and its line there; a class of the same name is not that kind."""
    for package, member in _members():
        inside = kind.__module__.startswith(f"{package}.")
        if inside and _resolve(package, member.schedule, "schedule") is kind:
            return package, member
    raise InvalidParameter(f"{kind.__name__} is of no family in the table; see docs/adding_a_mechanism.md.")


def _recipes() -> dict[str, tuple[str, Member, RecipeEntry]]:
    """The recipes of all families by the names that users ask for."""
    return {
        entry.name.rpartition(":")[2]: (package, member, entry)
        for package, member in _members()
        for entry in member.recipes
    }


def _options() -> dict[str, tuple[str, Member, str]]:
    """What `account` and `calibrate` know by name: name -> (package, member, where its function is)."""
    return {
        name.rpartition(":")[2]: (package, member, name)
        for package, member in _members()
        for name in member.options
    }


def schedule_types() -> tuple[type[Schedule], ...]:
    """Every kind of run."""
    return tuple(_resolve(package, member.schedule, "schedule") for package, member in _members())


def readers() -> dict[str, Callable[..., Schedule]]:
    """What makes a schedule from the fields of a plan file, by the name in the file."""
    kinds: dict[str, Callable[..., Schedule]] = {}
    for kind in schedule_types():
        package, member = _member(kind)
        if not kind.capabilities.needs_no_problem:
            kinds |= {kind.__name__: kind}
            kinds |= {name.rpartition(":")[2]: _resolve(package, name, "schedule") for name in member.former}
    return kinds


@cache
def theorems_for(kind: type[Schedule]) -> Mapping[str, Theorem[Any]]:
    """The theorems about this kind of run, by name."""
    package, member = _member(kind)
    listed = [_resolve(package, name, "theorem")() for name in member.theorems]
    return {theorem.name: theorem for theorem in listed}


def plain_composition(kind: type[Schedule]) -> str | None:
    """The name of the theorem about this kind that composes its steps as if each were released; None without one."""
    return next((name for name, each in theorems_for(kind).items() if each.is_plain_composition), None)


def load_theorems() -> None:
    """Import the theorems of every family, which then have said where they come from."""
    for kind in schedule_types():
        theorems_for(kind)


def theorem_named(name: str, kind: type[Schedule]) -> Theorem[Any]:
    """The theorem a user pinned."""
    offered = theorems_for(kind)
    if name not in offered:
        raise InvalidParameter(f"theorem = {name!r} is unknown; choose one of {', '.join(offered)}.")
    return offered[name]


def known_leak(constants: Any, schedule: Schedule, delta: float) -> float | None:
    """An epsilon that some run within these public numbers is known to leak, where the family has one."""
    package, member = _member(type(schedule))
    if not member.self_check:
        return None
    leak: float | None = _resolve(package, "known_leak", "self_check")(constants, schedule, delta)
    return leak


def mechanism_for(kind: type[Schedule]) -> Any:
    """A mechanism that runs this kind, or None."""
    package, member = _member(kind)
    return None if member.mechanism is None else _resolve(package, member.mechanism, "mechanism")()


def recipe_names() -> tuple[str, ...]:
    """The mechanisms that can be planned by name."""
    return tuple(_recipes())


def recipe_named(name: str) -> Callable[[Any], Any]:
    """The function that plans this mechanism: Request -> Recipe."""
    package, _, entry = _recipes()[name]
    recipe: Callable[[Any], Any] = _resolve(package, entry.name, "recipe")
    return recipe


def recipe_capabilities(name: str) -> Capabilities:
    """What this mechanism can do when it is planned by this recipe."""
    package, member, entry = _recipes()[name]
    capabilities: Capabilities = _resolve(package, member.schedule, "schedule").capabilities
    changes = dict.fromkeys(entry.gains, True) | dict.fromkeys(entry.lacks, False)
    return replace(capabilities, **changes)


def recipes_by_name() -> tuple[str, ...]:
    """The mechanisms that users may ask for by name."""
    return tuple(name for name, (_, _, entry) in _recipes().items() if not entry.secure_form)


def recipes_with(capability: str) -> tuple[str, ...]:
    """The mechanisms that users may ask for by name and that can do this."""
    return tuple(name for name in recipes_by_name() if getattr(recipe_capabilities(name), capability))


def default_recipe() -> str:
    """The mechanism that is planned where nothing says otherwise."""
    return next(name for name, (_, _, entry) in _recipes().items() if entry.default)


def secure_recipe() -> str:
    """What secure=True plans where the asked mechanism has no secure form itself."""
    return next(name for name, (_, _, entry) in _recipes().items() if entry.secure_form)


def automatic_recipes() -> Iterator[tuple[str, Callable[[Any], bool]]]:
    """What mechanism="auto" considers, in order: the name, and whether a request suits it."""
    ranked = [(entry.rank, name) for name, (_, _, entry) in _recipes().items() if entry.rank is not None]
    for _, name in sorted(ranked):
        package, _, entry = _recipes()[name]
        module = entry.name.rpartition(":")[0] or "recipe"
        yield name, _resolve(package, entry.suits, module) if entry.suits else lambda _: True


def recipe_about(theorem: str) -> str | None:
    """The first mechanism that this theorem is about, among those that can be planned."""
    for package, member in _members():
        names = [entry.name.rpartition(":")[2] for entry in member.recipes if not entry.secure_form]
        if names and theorem in theorems_for(_resolve(package, member.schedule, "schedule")):
            return names[0]
    return None


def option_names() -> tuple[str, ...]:
    """The mechanisms without steps that `account` and `calibrate` know by name."""
    return tuple(_options())


def options_named(name: str) -> tuple[Callable[..., Any], Knob]:
    """What reads the options of this mechanism, options -> (constants, schedule), and its knob."""
    package, member, place = _options()[name]
    return _resolve(package, place, "options"), member.knob
