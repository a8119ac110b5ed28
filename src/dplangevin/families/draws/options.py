"""Draws by their options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._stated import Reader, of_problem
from dplangevin.families.draws.schedule import DrawSchedule, DrawTier, ExponentialSchedule, GibbsSchedule
from dplangevin.problem.constants import Constants


def _reader(law: type[ExponentialSchedule | GibbsSchedule]) -> Reader:
    @of_problem(may="smoothness strong_convexity diameter dimension")
    def read(
        _: Constants,
        *,
        inverse_temperature: float,
        tier: DrawTier = "exact",
        step_size: float = 0.0,
        steps: int = 0,
    ) -> DrawSchedule:
        return law(inverse_temperature=inverse_temperature, tier=tier, step_size=step_size, n_steps=steps)

    return read


exponential = _reader(
    ExponentialSchedule
)  # a bounded set, or strong convexity and delta > 0: the theorems ask
gibbs = _reader(GibbsSchedule)
