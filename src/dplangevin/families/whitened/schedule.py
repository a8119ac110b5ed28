"""The schedule of whitened descent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.whitened.response import Path, Window, alike
from dplangevin.privacy.schedule import Capabilities, Schedule

LOOKS = (1, 2)
FLAT = 2.0
"""Root mean square of the scores from which a descent is longer."""


@dataclass(frozen=True, kw_only=True)
class WhitenedSchedule(Schedule):
    """One or two noisy second moments of the rows, then n_steps noisy gradient steps in coordinates made from them.

    Rows are counted in units of the largest one, x / row_norm, of norm at most 1. With B the matrix of the coordinates
    (theta = B q / row_norm), R > 0 the bound on whitened rows and w(x) = min(1, R / |B' x|) a weight of x alone,

        moments    mean x x' + moment_noise_std (Z + Z') / 2, the second one of w B' x / R
        gradients  mean w r B' x / R + noise_std N(0, I),  r the slope of the loss at the score of the row

    where a mean is a sum over the public divisor n. B, R and w are functions of the released moments.

    Parameters
    ----------
    moment_noise_std : standard deviation on a diagonal entry of a mean of x x'; entries off it get 1 / sqrt 2 of it.
    noise_std : standard deviation on a coordinate of the mean of w r B' x / R: of a mean gradient, in units of R.
    n_steps : accelerated steps. looks : moments that are bought.
    approach, approach_noise_std : the first so many steps have a noise of their own, in the same units, and their end
        says how many follow; 0 for as many as stated, all alike.
    longest : the most steps, where the approach found large scores, so that the loss is flat (see `steps`).
    room : R in units of the expected length of a whitened row. Rows beyond it count less, which biases the minimiser.
    step_size : the longest step in a direction of second moment 1; 1 / (curvature of the loss x weight bound).
    reach : standard deviation that the noise may reach in a coefficient (rows of norm 1), which shortens steps.
    average_from : first step (from 0) of the tail that is averaged.
    shrink : whether weights of the iterates by empirical Bayes follow (post-processing, no privacy depends on it).
    whole : follows: the noise of one gradient that had the whole budget of the descent.
    """

    mechanism: ClassVar[str] = "whitened-gd"
    capabilities: ClassVar[Capabilities] = Capabilities(
        holds_beyond_n=True, ridge_and_radius=False, checkpoints=True
    )
    moment_noise_std: float
    noise_std: float
    n_steps: int
    step_size: float
    reach: float
    looks: int = 1
    room: float = 1.0
    average_from: int = 0
    shrink: bool = False
    approach: int = 0
    approach_noise_std: float = 1.0
    longest: int = 0
    release: Literal["noisy-answers"] = "noisy-answers"
    whole: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.each(self, moment_noise_std=_check.scale, noise_std=_check.scale, n_steps=_check.count)
        _check.each(self, step_size=_check.positive, reach=_check.positive, looks=_check.count)
        _check.each(self, room=_check.positive)
        for name in ("average_from", "approach", "longest"):
            _check.put(self, **{name: _check.count(name, getattr(self, name), least=0)})
        _check.each(self, shrink=_check.flag, approach_noise_std=_check.scale)
        _check.put(self, release=_check.choice("release", self.release, ("noisy-answers",)))
        if self.looks not in LOOKS:
            raise InvalidParameter(f"looks must be 1 or 2, got {self.looks!r}.")
        if self.average_from >= self.n_steps:
            raise InvalidParameter(
                f"average_from = {self.average_from} leaves nothing to average of n_steps = {self.n_steps}."
            )
        if self.approach and (self.average_from < self.approach or self.approach >= self.n_steps):
            raise InvalidParameter(
                "an approach must end before the steps do and before the averaged tail begins."
            )
        first = self.approach / self.approach_noise_std**2
        later = (self.n_steps - self.approach) / self.noise_std**2
        _check.put(self, whole=1 / math.sqrt(first + later))

    def steps(self, score: float) -> int:
        """How many steps to make in all where the approach ended with scores of this root mean square.

        A logistic loss has the share 4 e^-|score| of its largest curvature. Scores are on their way when the approach
        ends, so steps grow with the curvature and not with its root, and never beyond `longest`.
        """
        if not self.approach or not score > FLAT:  # NaN: as stated
            return self.n_steps
        return max(
            self.n_steps, min(self.longest, math.ceil(self.n_steps * math.exp(min(score - FLAT, 40.0))))
        )

    def noise(self, step: int, steps: int) -> float:
        """The noise of a step (from 0) of so many: what the approach left of the budget is shared alike."""
        if step < self.approach:
            return self.approach_noise_std
        return self.noise_std * math.sqrt((steps - self.approach) / (self.n_steps - self.approach))

    def path(self, steps: int) -> Path:
        """So many steps: the windows that weights are read off, the last one of which is the tail, and the noise.

        The tail, whose mean is released, begins no earlier than in the last two thirds of a longer descent.
        """
        *early, _ = alike(steps).windows
        tail = self.average_from if steps == self.n_steps else max(self.average_from, steps // 3)
        louder = self.noise(0, steps) / self.noise(steps - 1, steps)
        return Path((*early, Window(tail, steps)), self.approach, louder)
