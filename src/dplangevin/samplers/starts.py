"""A start for the certified samplers whose density is provably at most e^w times the target's.

Smoothness bounds exp(-V) from BELOW: V(x) <= V(c) + <g, x - c> + M |x - c|^2 / 2. The law proportional to
that lower function has density at most Z_target / Z_low times the target's, and Z_target is at most the
mass of the upper function given by (strong) convexity at the same c. An envelope of the target is NOT such
a law: it bounds the target by itself, the wrong direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.potential import Potential


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The law exp(<linear, x> - precision |x|^2 / 2) on the body, at most e^log_density_ratio times the target.

    log_density_ratio depends on the data: the certificate holds for each data set by itself, but the number is
    private, and so is the number of steps computed from it (a running-time side channel).
    """

    body: Body
    linear: Floats
    precision: float
    log_density_ratio: float

    def draw(self, size: int, rng: np.random.Generator) -> Floats:
        """Exact draws of the start law, one per column."""
        return self.body.gaussian(np.tile(self.linear[:, None], size), self.precision, rng)


def warm_start(potential: Potential, body: Body, centre: Floats) -> WarmStart:
    """The start at `centre`: any point of the body is valid, near the minimiser w is smallest."""
    c = np.asarray(centre, float)
    if c.shape != (body.dimension,) or not bool(body.contains(c[:, None])[0]):
        raise InvalidParameter(
            f"the start's centre must be {body.dimension} numbers inside the body; project it first."
        )
    low, high = potential.strong_convexity, _check.positive("smoothness", potential.smoothness)
    gradient = potential.gradient(c[:, None])[:, 0]
    square = float(c @ c) / 2
    shift = float(gradient @ c)
    upper = body.log_mass(low * c - gradient, low)[1] - low * square + shift
    lower = body.log_mass(high * c - gradient, high)[0] - high * square + shift
    slack = 1e-9 + 1e-12 * (abs(shift) + high * square)
    return WarmStart(
        body=body,
        linear=high * c - gradient,
        precision=high,
        log_density_ratio=max(upper - lower, 0.0) + slack,
    )
