"""ModelDefaults: the planner's rules for a model, which its loss states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Labels = Literal["two classes", "several classes", "numbers", "counts"]


@dataclass(frozen=True, kw_only=True)
class ModelDefaults:
    """The name of a model in requests, and the planner's rules for it.

    Parameters
    ----------
    model : the name of the model in a request. labels : the kind of its labels.
    coef_bound : bound on a coefficient for rows of norm 1 (about twice its expected size).
    averaged_fraction : fraction of the iterates that is averaged, from the last.
    min_clip : smallest clip of the slope; None leaves the slope of the loss unclipped.
    unclipped_signal, unclipped_signal_pure : signal-to-noise ratio from which slopes are not clipped, for Gaussian
        and for Gamma-norm noise.
    clip_is_convex : whether a clipped slope is still the gradient of a convex loss, so that theorems that need
        convexity allow a clip.
    max_sharpness : how far a large budget may loosen the clip or narrow the smoothing; 1 leaves them unchanged.
    steps_power, steps_power_long : the number of steps grows with this power of the sharpness, where a pass over the
        data is short, and where it is long.
    shrinks : whether released coefficients are shrunk where the path of the fit shows weak effects (by measurement).
    adapts_steps : whether the first few steps decide how many follow (by measurement).
    counts_classes : whether a fit starts at the constant model of noisy class counts, or of a noisy mean target (by
        measurement).
    ridge_whitens : whether whitening with a floor is better where columns are many (by measurement).
    guards_constant : whether a fit also returns to that model as far as noise hides what features add (by measurement).
    whitens_purely : whether second moments under a pure guarantee are worth their budget (by measurement).
    """

    model: str
    labels: Labels
    coef_bound: float
    averaged_fraction: float
    min_clip: float | None = None
    unclipped_signal: float = 400.0
    unclipped_signal_pure: float = 400.0
    clip_is_convex: bool = True
    max_sharpness: float = 1.0
    steps_power: float = 0.0
    steps_power_long: float = 0.0
    shrinks: bool = False
    adapts_steps: bool = False
    counts_classes: bool = False
    ridge_whitens: bool = False
    guards_constant: bool = False
    whitens_purely: bool = False


class ModelOptions(Protocol):
    """The options of a request that a loss uses; None where the loss decides."""

    @property
    def n_classes(self) -> int | None: ...
    @property
    def target_bounds(self) -> tuple[float, float] | None: ...
    @property
    def transition(self) -> float | None: ...
    @property
    def quantile(self) -> float | None: ...
