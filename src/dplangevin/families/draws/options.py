"""Draws by their options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._stated import Reader, fields_of, of_problem
from dplangevin.families.draws.schedule import DrawSchedule, ExponentialSchedule, GibbsSchedule


def _reader(law: type[DrawSchedule]) -> Reader:
    """A bounded set, or strong convexity and delta > 0: the theorems ask."""
    read = fields_of(law, "inverse_temperature tier step_size n_steps")
    return of_problem(may="smoothness strong_convexity diameter dimension")(read)


exponential, gibbs = _reader(ExponentialSchedule), _reader(GibbsSchedule)
