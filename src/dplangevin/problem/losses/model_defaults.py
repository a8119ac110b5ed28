"""What a planner knows of a model before it has seen its data: stated by the loss of the model, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Labels = Literal["two classes", "several classes", "numbers", "counts"]


@dataclass(frozen=True, kw_only=True)
class ModelDefaults:
    """The model of a loss, by the name that a request gives it, and the planner's rules for it.

    Parameters
    ----------
    model : the name of the model in a request. labels : what it predicts.
    reach : how far a coefficient is allowed to go for rows of norm 1 (about twice its expected size).
    tail : share of the iterates that is averaged.
    least_clip : smallest bound on the slope; None leaves the slope of the loss as it is.
    unclipped, unclipped_pure : signal from which slopes are not bounded, for Gaussian and for Gamma-norm noise.
    clip_is_convex : whether a clipped slope is still the gradient of a convex loss, so that bounds which need
        convexity allow a clip.
    largest_sharpness : how far a large budget may loosen the clip or narrow the smoothing; 1 leaves them.
    steps_power, steps_power_long : the number of steps grows with this power of the sharpness, where a pass over the
        data is short, and where it is long.
    shrinks : whether what is released is shrunk where the path shows weak effects: measured for this model.
    adapts_steps : whether a few first steps decide how many follow: measured for this model.
    whitens_purely : whether a second moment under a pure guarantee is worth its budget: measured for this model.
    """

    model: str
    labels: Labels
    reach: float
    tail: float
    least_clip: float | None = None
    unclipped: float = 400.0
    unclipped_pure: float = 400.0
    clip_is_convex: bool = True
    largest_sharpness: float = 1.0
    steps_power: float = 0.0
    steps_power_long: float = 0.0
    shrinks: bool = False
    adapts_steps: bool = False
    whitens_purely: bool = False


class ModelOptions(Protocol):
    """What a request states of its model; None where it is left to the loss."""

    @property
    def n_classes(self) -> int | None: ...
    @property
    def target_bounds(self) -> tuple[float, float] | None: ...
    @property
    def transition(self) -> float | None: ...
    @property
    def quantile(self) -> float | None: ...
