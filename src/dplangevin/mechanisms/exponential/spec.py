"""Specs of the exponential, Gibbs and iterated exponential mechanisms, and readers of their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dplangevin import _check
from dplangevin.accounting.theorem import Capabilities, Spec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.options import OptionReader, read_spec_fields, with_constants_options

DrawTier = Literal["exact", "certified", "pure"]
DRAW_TIERS: tuple[DrawTier, ...] = ("exact", "certified", "pure")


def check_chain_fields(spec: Any, who: str) -> None:
    """Check step_size and n_steps, which only a chain has; `who` begins the error message."""
    if spec.tier != "exact":
        _check.validate_fields(spec, step_size=_check.check_scale, n_steps=_check.check_count)
    elif spec.step_size or spec.n_steps:
        raise InvalidParameter(f"{who} no step_size and no n_steps; leave them out.")


@dataclass(frozen=True, kw_only=True)
class DrawSpec(Spec):
    """One draw theta ~ exp(-beta F(theta)) on the set, exact or by the proximal chain.

    Parameters
    ----------
    inverse_temperature : beta.
    tier : "exact" (an exact rejection sampler), "certified" (proximal chain, close in total variation) or "pure"
        (the same chain, run until its density is uniformly close).
    step_size, n_steps : of the chain; 0 for an exact draw.
    grid : 0, or points per axis of a public grid that replaces the set (exact draws of nonconvex losses).
    padding : 0, or the least number of seconds that every run takes, whatever the data.
    """

    mechanism: ClassVar[str] = "exponential"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, population_risk=True)
    inverse_temperature: float
    tier: DrawTier = "exact"
    step_size: float = 0.0
    n_steps: int = 0
    grid: int = 0
    padding: float = 0.0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        beta = _check.check_scale("inverse_temperature", self.inverse_temperature)
        _check.set_frozen(
            self, inverse_temperature=beta, tier=_check.check_choice("tier", self.tier, DRAW_TIERS)
        )
        _check.set_frozen(self, grid=_check.check_count("grid", self.grid, minimum=0))
        _check.validate_fields(self, padding=_check.check_nonnegative)
        check_chain_fields(self, "an exact draw has")
        if self.grid == 1 or (self.grid and self.tier != "exact"):
            raise InvalidParameter("grid must be 0, or at least 2 points per axis with tier='exact'.")


@dataclass(frozen=True, kw_only=True)
class ExponentialSpec(DrawSpec):
    """The exponential mechanism: beta follows from the oscillation of F; pure guarantee, bounded sets only."""

    mechanism: ClassVar[str] = "exponential"


@dataclass(frozen=True, kw_only=True)
class GibbsSpec(DrawSpec):
    """The Gibbs mechanism: beta follows from the strong convexity of F; Gaussian guarantee, on any convex set."""

    mechanism: ClassVar[str] = "gibbs"


@dataclass(frozen=True, kw_only=True)
class IteratedExponentialSpec(Spec):
    """A draw on the ball, then draws on smaller and smaller balls around the last one (intersected with the first).

    Parameters
    ----------
    draws : one spec per stage, all of one tier, without grid or padding of their own.
    radii : radius of the ball around draw i on which draw i + 1 is made; one fewer than draws.
    padding : 0, or the least number of seconds that every run takes.
    release : "draw" releases the last draw; the guarantee also covers the earlier ones, which are its iterates.
    """

    mechanism: ClassVar[str] = "iterated-exponential"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, population_risk=True)
    draws: tuple[ExponentialSpec, ...]
    radii: tuple[float, ...] = ()
    padding: float = 0.0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        radii = tuple(_check.check_positive(f"radii[{i}]", radius) for i, radius in enumerate(self.radii))
        _check.set_frozen(self, radii=radii, padding=_check.check_nonnegative("padding", self.padding))
        if not self.draws or len(radii) != len(self.draws) - 1:
            raise InvalidParameter(f"{len(self.draws)} draws need one radius fewer, got {len(radii)}.")
        if len({draw.tier for draw in self.draws}) > 1 or any(
            draw.grid or draw.padding for draw in self.draws
        ):
            raise InvalidParameter(
                "the draws of an iterated mechanism share one tier and have no grid or padding of their own."
            )

    @property
    def tier(self) -> DrawTier:
        """The sampler tier of all stages."""
        return self.draws[0].tier

    def diameters(self, diameter: float) -> tuple[float, ...]:
        """Return a bound on the diameter of each stage's set, given that of the first."""
        return (diameter, *(min(diameter, 2 * radius) for radius in self.radii))


def _make_option_reader(law: type[DrawSpec]) -> OptionReader:
    """Return the option reader of a draw; the theorems check that the set is bounded or F strongly convex."""
    read = read_spec_fields(law, "inverse_temperature tier step_size n_steps")
    return with_constants_options(allowed="smoothness strong_convexity diameter dimension")(read)


read_exponential_options, read_gibbs_options = (
    _make_option_reader(ExponentialSpec),
    _make_option_reader(GibbsSpec),
)
