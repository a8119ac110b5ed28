"""Schedules of one draw from exp(-beta F) on the problem's set: the exponential and the Gibbs mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.schedule import Capabilities, Schedule

DrawTier = Literal["exact", "certified", "pure"]
DRAW_TIERS: tuple[DrawTier, ...] = ("exact", "certified", "pure")


def check_chain(schedule: Any, who: str) -> None:
    """Step size and number of steps are the chain's: an exact draw has none."""
    if schedule.tier != "exact":
        _check.each(schedule, step_size=_check.scale, n_steps=_check.count)
    elif schedule.step_size or schedule.n_steps:
        raise InvalidParameter(f"{who} no step_size and no n_steps; leave them out.")


@dataclass(frozen=True, kw_only=True)
class DrawSchedule(Schedule):
    """theta ~ exp(-beta F(theta)) on the set, drawn exactly or by the proximal chain.

    Parameters
    ----------
    inverse_temperature : beta.
    tier : "exact" (a proved rejection sampler), "certified" (proximal chain, close in total variation) or "pure"
        (the same chain, run until its density is close everywhere).
    step_size, n_steps : of the chain; 0 for an exact draw.
    grid : 0, or points per axis of a public grid that replaces the set (exact draws of losses that are not convex).
    padding : 0, or the seconds that every run takes at least, whatever the data.
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
        beta = _check.scale("inverse_temperature", self.inverse_temperature)
        _check.put(self, inverse_temperature=beta, tier=_check.choice("tier", self.tier, DRAW_TIERS))
        _check.put(self, grid=_check.count("grid", self.grid, least=0))
        _check.each(self, padding=_check.nonnegative)
        check_chain(self, "an exact draw has")
        if self.grid == 1 or (self.grid and self.tier != "exact"):
            raise InvalidParameter("grid must be 0, or at least 2 points per axis with tier='exact'.")


@dataclass(frozen=True, kw_only=True)
class ExponentialSchedule(DrawSchedule):
    """The exponential mechanism: beta from the oscillation of F, a pure promise on a bounded set."""

    mechanism: ClassVar[str] = "exponential"


@dataclass(frozen=True, kw_only=True)
class GibbsSchedule(DrawSchedule):
    """The Gibbs mechanism: beta from the strong convexity of F, a Gaussian promise, on bounded sets or not."""

    mechanism: ClassVar[str] = "gibbs"


@dataclass(frozen=True, kw_only=True)
class IteratedExponentialSchedule(Schedule):
    """Draw on the ball, then on ever smaller balls around the last draw (cut with the first ball).

    Parameters
    ----------
    draws : one schedule per stage, all of one tier, without grid or padding of their own.
    radii : radius of the ball around draw i on which draw i + 1 is made; one fewer than draws.
    padding : 0, or the seconds that every run takes at least.
    release : "draw" releases the last draw; the promise also covers the earlier ones, kept as iterates.
    """

    mechanism: ClassVar[str] = "iterated-exponential"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, population_risk=True)
    draws: tuple[ExponentialSchedule, ...]
    radii: tuple[float, ...] = ()
    padding: float = 0.0
    release: Literal["draw"] = "draw"

    def __post_init__(self) -> None:
        radii = tuple(_check.positive(f"radii[{i}]", radius) for i, radius in enumerate(self.radii))
        _check.put(self, radii=radii, padding=_check.nonnegative("padding", self.padding))
        if not self.draws or len(radii) != len(self.draws) - 1:
            raise InvalidParameter(f"{len(self.draws)} draws need one radius fewer, got {len(radii)}.")
        if len({draw.tier for draw in self.draws}) > 1 or any(
            draw.grid or draw.padding for draw in self.draws
        ):
            raise InvalidParameter(
                "the draws of one schedule share a tier and have no grid or padding of their own."
            )

    @property
    def tier(self) -> DrawTier:
        """How the stages are drawn."""
        return self.draws[0].tier

    def diameters(self, diameter: float) -> tuple[float, ...]:
        """The diameter bound of each stage's set, from that of the first."""
        return (diameter, *(min(diameter, 2 * radius) for radius in self.radii))
