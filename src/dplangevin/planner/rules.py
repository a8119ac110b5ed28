"""The rules: clip, steps, averaging, ridge and second moments from n, p, the budget and stated bounds, without data.

Units: rows are scaled to norm 1 (theta' = B theta for row norm B), s = 1 (add-remove) or 2 (replace-one). The budget
enters as records = n mu / s (GDP) or n epsilon / (s sqrt p) (pure, whose noise is sqrt(p + 1) times longer): one
coordinate of the mean gradient is then known to within C / records in all. signal = records / p.
docs/planner.md says why, and what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplangevin.problem.losses.model_defaults import ModelDefaults

if TYPE_CHECKING:
    from dplangevin.planner.request import Request

MOST_STEPS = 200
LONG_STEP = 1e6
"""A pass over more numbers than this takes a millisecond, and there are fewer steps."""
PURE_PAYS = 0.7
"""Gamma-norm noise is used for (epsilon, delta) when sqrt(p + 1) mu is below this share of epsilon."""
SHARE = 0.1
"""Of mu^2, for second moments."""
SEEN = 0.6
"""Largest edge of the noise spectrum at which a moment is worth its share."""
FINE = 0.5
"""Largest p times the edge of half the share at which a second look pays."""
ROOMY = 0.125
"""What that number may be with longer rows: they blur the second look, and the gradients, room^2 times more."""
WIDEST = 256
"""Columns beyond which one look, which then leaves most directions unresolved, is not bought."""
PURE_SHARES = (0.1, 0.2)
"""Of epsilon, for the second moment of a pure promise: the larger one where the smaller one's edge is below PURE_FINE,
since noise on the minimiser is then small beside what unseen directions cost."""
PURE_FINE = 0.0625
PURE_SEEN = 0.5
"""As SEEN, for the pure moment."""
PURE_EDGE = 1.6651
"""Edge of the spectrum of the noise of a pure moment over (p + 1) scale, by free convolution of two Wishart laws:
(1 + u) / (2 sqrt(u) (1 - u)) at u = sqrt(5) - 2."""


def clip(shape: ModelDefaults, signal: float, pure: bool = False) -> float | None:
    """sqrt(signal / unclipped) between least_clip and 1: a small clip costs signal, a large one noise."""
    if shape.least_clip is None:
        return None
    share = signal / (shape.unclipped_pure if pure else shape.unclipped)
    return min(max(math.sqrt(share), shape.least_clip), 1.0)


def convex_clip(shape: ModelDefaults, signal: float, pure: bool = False) -> float | None:
    """The clip where a guarantee needs a convex loss: none where the clip would destroy that."""
    return clip(shape, signal, pure) if shape.clip_is_convex else None


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Accelerated descent with rows of norm 1: n_steps of size step_size, mean of the iterates from average_from."""

    n_steps: int
    step_size: float
    average_from: int


def most_steps(n: int, columns: int, curvature: float) -> int:
    """The largest T: 200; where n p > LONG_STEP, max(128, 2 p) sqrt(4 M), since more directions need more steps."""
    if n * columns <= LONG_STEP:
        return MOST_STEPS
    return min(MOST_STEPS, math.ceil(max(128, 2 * columns) * math.sqrt(4 * curvature)))


def descent(
    shape: ModelDefaults,
    records: float,
    signal: float,
    slope: float,
    curvature: float,
    most: int = MOST_STEPS,
) -> Descent:
    """time = (reach / C) min(1, 0.4 signal) records; T = sqrt(4 M time) up to `most`; eta = min(1/M, 4 time / T^2).

    In a flat direction the output is (total time) x (gradient + noise), so the rule fixes the size of that noise,
    whatever n, p and epsilon are. Momentum makes T grow like the root of the time.
    """
    time = shape.reach / slope * min(1.0, 0.4 * signal) * records
    steps = int(min(most, max(2, math.ceil(math.sqrt(4 * curvature * time)))))
    return Descent(
        n_steps=steps,
        step_size=min(1 / curvature, 4 * time / steps**2),
        average_from=steps - math.ceil(shape.tail * steps),
    )


def objective_ridge(shape: ModelDefaults, noise: float, signal: float, pure: bool) -> float:
    """Lambda = k noise on the SUM of losses; noise = s sqrt(p) / epsilon (pure) or s sqrt(p) / mu.

    k = 0.2 in units of the shape, more where noise dominates (signal below 1) and less where bias does (above 30);
    half of it for Gaussian noise, whose length is sqrt(p) and not p.
    """
    unit = min(10 / shape.reach, 5.0) * (1.0 if pure else 0.5)
    k = min(1.0, 0.2 / math.sqrt(min(signal, 1.0))) * min(1.0, max(0.5, 30 / signal))
    return unit * k * noise


def output_ridge(noise_square: float, curvature: float, radius: float) -> float:
    """Ridge m (per sample) minimising (M/2) noise_square / m^2 + m r^2 / 2 for output perturbation."""
    return float((2 * curvature * noise_square / radius**2) ** (1 / 3))


def pure_pays(dimension: int, epsilon: float, mu: float) -> bool:
    """Whether pure objective perturbation is expected to beat noisy descent under (epsilon, delta): few parameters."""
    return math.sqrt(dimension + 1) * mu <= PURE_PAYS * epsilon


@dataclass(frozen=True, kw_only=True)
class Looks:
    """What second moments are worth under a promise with delta > 0.

    Parameters
    ----------
    records : n mu / s. number : of looks, two where the records allow it.
    edge : f = tau sqrt(2 p), the edge of the noise spectrum of one of them.
    room : length up to which whitened rows count in full, over the expected one: the bias of weights falls with it.
    pay : whether they are worth their share.
    """

    records: float
    number: int
    edge: float
    room: float
    pay: bool

    @classmethod
    def of(cls, request: Request) -> Looks:
        """tau = a / (records sqrt(share)), a = 1 (add-remove) 1 / sqrt 2 (replaced rows move x x' by sqrt 2, not 2).

        p times the edge of half the share is the noise of a second look over the eigenvalues of white rows.
        """
        records, columns = request.records(pure=False), request.columns
        sensitivity = math.sqrt(0.5) if request.adjacency == "replace-one" else 1.0
        whole, half = (
            sensitivity / (records * math.sqrt(share)) * math.sqrt(2 * columns)
            for share in (SHARE, SHARE / 2)
        )
        blur = columns * half
        two = blur <= FINE
        return cls(
            records=records,
            number=2 if two else 1,
            edge=half if two else whole,
            room=math.sqrt(max(1.0, ROOMY / blur)),
            pay=whole <= SEEN and (columns <= WIDEST or two),
        )


@dataclass(frozen=True, kw_only=True)
class PureLook:
    """What a second moment can show under a pure promise. records : n epsilon / s. columns : p."""

    records: float
    columns: int

    @classmethod
    def of(cls, request: Request) -> PureLook:
        """For any promise: delta plays no part."""
        return cls(records=request.n * request.epsilon / request.sides, columns=request.columns)

    def edge(self, share: float) -> float:
        """Of the spectrum of the noise of a moment that is given this share of epsilon."""
        return PURE_EDGE * (self.columns + 1) / (share * self.records)

    @property
    def share(self) -> float:
        """Of epsilon, for the moment."""
        small, large = PURE_SHARES
        return large if self.edge(small) <= PURE_FINE else small

    @property
    def pay(self) -> bool:
        """Whether the moment is worth its share."""
        return self.edge(self.share) <= PURE_SEEN
