"""Loss: a function of a linear score with the bounds that privacy rests on, and its planner defaults."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin import _check
from dplangevin.errors import InvalidParameter

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
    guards_constant : whether a counted fit returns to that model as far as noise hides what features add (by
        measurement).
    counts_again : whether it may also spend the rest of its budget on counting again, where its first steps show
        nothing beyond that model (by measurement).
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
    counts_again: bool = False
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


FloatArray = NDArray[np.float64]
SlopeKind = Literal["affine", "logistic", "exponential", "hinge"]
SLOPE_KINDS: tuple[SlopeKind, ...] = ("affine", "logistic", "exponential", "hinge")
SlopeVariance = Literal["curvature", "measured", "proportional"]
"""How confidence intervals obtain the variance of the slopes at the minimiser of the expected loss: it equals the
mean curvature (a likelihood), it is released, or it is the curvature times a dispersion."""


@dataclass(frozen=True, kw_only=True)
class SlopeFormula:
    """The slope clip(f(u, y), low, high) of a loss of one score u with label y.

    f(u, y) is scale (u - y) + shift (affine), expit(u) - y (logistic), e^u - y (exponential), or scale (u - s)
    clipped to [-1, 0] for s = 1 and to [0, 1] for s = -1 (hinge; s is the sign of y - 1/2). The clip is part of the
    formula, so |slope| <= max(|low|, |high|) for every finite or infinite score.
    """

    kind: SlopeKind
    scale: float = 1.0
    shift: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the slopes at broadcastable scores and labels."""
        shape = np.shape(score)
        if shape != np.shape(y):
            shape = np.broadcast_shapes(shape, np.shape(y))
        slopes = np.empty(shape)
        slopes[...] = score
        with np.errstate(over="ignore", invalid="ignore"):
            self.slopes_in_place(slopes, y)
        return slopes

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the derivative of the slope in the score, 0 where it is clipped; at a kink, one of the two sides."""
        if self.kind == "logistic":
            probability = expit(score)
            curvature = probability * (1 - probability)
        elif self.kind == "exponential":
            with np.errstate(over="ignore"):
                curvature = np.exp(score)
        else:
            curvature = np.asarray(self.scale)
        slope = self.slope(score, y)
        low, high = np.asarray(self.low), np.asarray(self.high)
        if self.kind == "hinge":
            sign = _label_sign(y)
            low, high = np.maximum(low, -(1 + sign) / 2), np.minimum(high, (1 - sign) / 2)
        return np.where((slope > low) & (slope < high), curvature, 0.0)

    def slopes_in_place(self, scores: FloatArray, y: FloatArray) -> None:
        """Turn scores into slopes, in place; labels broadcast to them. Scores must not be NaN.

        Overflows are harmless; the caller suppresses their warnings.
        """
        low, high = self.low, self.high
        if self.kind == "affine":
            scores -= y
            if self.scale != 1:
                scores *= self.scale
            if self.shift:
                scores += self.shift
        elif self.kind == "logistic":
            np.negative(scores, out=scores)
            # infinite for the lowest scores, whose expit is then correctly 0
            np.exp(scores, out=scores)
            scores += 1.0
            np.reciprocal(scores, out=scores)
            scores -= y
            if low <= -1 and high >= 1:  # nothing to clip: labels lie in [0, 1]
                return
        elif self.kind == "exponential":
            np.exp(scores, out=scores)
            scores -= y
        else:
            sign = _label_sign(y)
            scores -= sign
            scores *= self.scale
            np.maximum(scores, -(1 + sign) / 2, out=scores)
            np.minimum(scores, (1 - sign) / 2, out=scores)
        if low > -math.inf:
            np.maximum(scores, low, out=scores)
        if high < math.inf:
            np.minimum(scores, high, out=scores)


def _label_sign(y: FloatArray) -> FloatArray:
    return np.where(np.asarray(y) > 0.5, 1.0, -1.0)


class Loss(ABC):
    """A loss(theta; x, y) = h(<theta, x>; y), with h convex in the score unless `convex` is False.

    A loss of score_dimension 1 is vectorised over broadcastable arrays score and y. A loss of score_dimension
    K > 1 takes score[..., K] with y[...]. The gradient of a record is slope times its row, so its norm is at
    most slope_bound |x| and its smoothness at most curvature_bound |x|^2, for every score and every label
    within label_range. A loss states its `slope_formula`, or else slope and curvature. Losses are immutable.

    Everything particular to a loss is one of these attributes and methods: samplers, regions of good models,
    intervals and the planner use them and never test for a class. Those with a default are optional.
    """

    name: ClassVar[str]
    defaults: ClassVar[ModelDefaults | None] = None
    """The model of this loss in a request, and the planner's rules for it; None without one."""
    log_link: ClassVar[bool] = False
    """Whether scores are logarithms of rates."""
    sign_decides: ClassVar[bool] = False
    """Whether the sign of the score decides between the labels 0 and 1."""
    slope_variance: ClassVar[SlopeVariance] = "proportional"
    """How confidence intervals obtain the variance of the slopes."""
    interval_model: ClassVar[str] = "a correct linear model, errors that do not depend on x"
    """What confidence intervals assume about the model."""
    ball_envelope: ClassVar[bool] = False
    """Whether exact draws on a ball have an elliptical envelope: proved for the logistic loss."""
    clips_own_gradients: ClassVar[bool] = False
    """Whether the gradient of each record is clipped as a vector, so that a clip of its slope has no meaning."""
    majorant_noise_factor: ClassVar[float] = 1.0
    """Ratio of the noise on the majorant's matrix to that on the released sum."""
    slope_bound: float
    """sup |h'|, infinity when it is unbounded."""
    curvature_bound: float
    """Lipschitz constant of h', infinity when there is none or none is known."""
    slope_formula: SlopeFormula | None = None
    """The slope as a formula that compiled kernels implement, which defines slope and curvature; None without one."""
    score_dimension: int = 1
    """Number of scores per record."""
    convex: bool = True
    """Whether slope is the derivative of a convex function of the score."""
    label_range: tuple[float, float] = (-math.inf, math.inf)
    """The labels for which the bounds are stated."""
    label_classes: int | None = None
    """Number of classes when labels are 0, 1, ...; None when any number in label_range is admissible."""
    assumptions: tuple[str, ...] = ()
    """Assumptions about this loss that guarantees list."""

    @abstractmethod
    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return h(score; y)."""

    def sum_values(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the sum of h(score; y) over the first axis, the records."""
        return np.asarray(self.value(score, y).sum(axis=0))

    def excess(self, score: FloatArray, y: FloatArray, reference: FloatArray) -> FloatArray:
        """Return h(score; y) - reference, made finite; `score` may be overwritten."""
        with np.errstate(over="ignore", invalid="ignore"):
            difference = self.value(score, y) - reference
        return np.asarray(np.nan_to_num(difference, posinf=1e300, neginf=-1e300))

    @property
    def unclipped_loss(self) -> Loss:
        """The loss without clipping."""
        return self

    @property
    def unclipped_if_bounded(self) -> Loss:
        """The loss without clipping where its slope is bounded anyway, else the loss as it is."""
        return self

    @property
    def clip_bound(self) -> float:
        """The bound at which slopes are clipped, infinity without a clip."""
        return math.inf

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the derivative of h in the score."""
        return self._require_slope_formula().slope(score, y)

    def slopes_in_place(self, scores: FloatArray, y: FloatArray) -> FloatArray:
        """Return the slopes in an array of the caller's own, which may be that of the scores, overwritten."""
        return np.array(self.slope(scores, y), np.float64)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the second derivative of h in the score, [..., K, K] for K > 1; at a kink of h', one side's."""
        return self._require_slope_formula().curvature(score, y)

    @property
    def logistic_slope_bound(self) -> float | None:
        """The bound on a logistic slope, clipped or not: at a slope of a >= 1/2 the curvature is at most a (1 - a)."""
        formula = self.slope_formula
        return self.slope_bound if formula is not None and formula.kind == "logistic" else None

    def _require_slope_formula(self) -> SlopeFormula:
        if self.slope_formula is None:
            raise NotImplementedError(
                f"{type(self).__name__} defines neither slope_formula nor slope and curvature."
            )
        return self.slope_formula

    @abstractmethod
    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        """Return a score at which h has this slope; +inf if every slope is smaller, -inf if every one is larger."""

    def clipped_curvature(self, bound: float) -> float:
        """Return a curvature bound where |slope| < bound. Clipping a slope never steepens it."""
        return self.curvature_bound

    @property
    def quadratic_radius(self) -> float:
        """The distance |u - y| up to which h is (u - y)^2 / 2: infinity for the squared loss, 0 for most others."""
        return 0.0

    @property
    def is_quadratic(self) -> bool:
        """Whether h is (u - y)^2 / 2 everywhere."""
        return math.isinf(self.quadratic_radius)

    def slope_bound_within(self, score_bound: float, label_bound: float) -> float:
        """Return sup |h'| over |score| <= score_bound and |label| <= label_bound."""
        return self.slope_bound

    def difference_bound(self, difference: FloatArray, total: FloatArray, label_bound: float) -> FloatArray:
        """Bound |h(s) - h(t)| for |s - t| <= difference, |s + t| <= total and |label| <= label_bound."""
        return np.asarray(self.slope_bound * difference)

    @property
    def majorant_bound(self) -> float:
        """Supremum of the majorant's curvature."""
        return self.curvature_bound

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return a(t) with h(t + d) <= h(t) + h'(t) d + a(t) d^2 / 2 for every d; callers clip at majorant_bound."""
        return np.full(len(score), self.majorant_bound)

    def clipped_majorant(self, bound: float, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return `majorant` of the loss with its slope clipped at `bound`."""
        return np.full(len(score), self.clipped_curvature(bound))

    def min_curvature_ratio(self, step: float) -> float:
        """Return om with h(t + s) >= h(t) + h'(t) s + om h''(t) s^2 for |s| <= step; 0 where nothing is proved.

        A loss that defines it, and is not quadratic, must have (h'')^2 + 4 (a - h'')^2 <= curvature_bound^2 for its
        majorant a, because both matrices are released with the sensitivity of one.
        """
        return 0.0

    @property
    def typical_curvature_bound(self) -> float:
        """The value at which h'' is clipped when it is summed for intervals: its bound, or a typical one."""
        return self.curvature_bound

    @property
    def step_curvature(self) -> float:
        """The curvature from which the planner derives the step size."""
        return self.curvature_bound

    @property
    def center_level(self) -> float | None:
        """The level of the quantile of targets at which, or near which, the best constant is; None elsewhere."""
        return None

    @property
    def curved_distance(self) -> float:
        """The distance |u - y| up to which a loss with a center is curved; beyond it is linear."""
        return 0.0

    def suit_spread(self, spread: float) -> Loss:
        """Return the loss, no wider than suits targets within this distance of their center.

        Neither the slope nor the curvature bound may be more than a multiple of the loss's own: noise is scaled by it.
        """
        return self

    @property
    def for_intervals(self) -> Loss:
        """The loss whose minimiser confidence intervals cover: clipped only where almost no record is."""
        raise InvalidParameter(f"intervals are not known for the {self.name} loss; set intervals=False.")

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        """Return the loss of the model that `defaults` names, with its slope clipped at `bound`.

        sharpness : from 1 to defaults.max_sharpness; a large budget allows more of it, so that the bias of a clip
        or of a smoothing vanishes.
        """
        loss = cls()
        return loss if bound is None or bound >= loss.slope_bound else loss.with_clip(bound)

    def with_clip(self, bound: float) -> Loss:
        """Return the loss with its slope clipped at this bound."""
        return Clipped(self, bound)


@dataclass(frozen=True, kw_only=True)
class MulticlassLoss(Loss):
    """A loss for classes y = 0 .. K - 1, with one score per class."""

    n_classes: int

    def __post_init__(self) -> None:
        classes = _check.check_count("n_classes", self.n_classes, minimum=2)
        _check.set_frozen(self, n_classes=classes, score_dimension=classes, label_classes=classes)
        _check.set_frozen(self, label_range=(0.0, float(classes - 1)))

    def _one_hot(self, y: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(np.asarray(y)[..., None] == np.arange(self.n_classes))


def score_or_infinity(score: FloatArray, slope: FloatArray, low: Any, high: Any) -> FloatArray:
    """Return the score where low <= slope <= high, +inf where the slope is above high, -inf where it is below low."""
    return np.where(slope > high, np.inf, np.where(slope < low, -np.inf, score))


def cornered_majorant(largest: float, corner: float, distance: FloatArray) -> FloatArray:
    """Return min(largest, corner / distance), the majorant of a loss quadratic in an interval and linear beyond."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(largest, corner / distance))


@final
@dataclass(frozen=True)
class Clipped(Loss):
    """A loss with its slope clipped at C: h where |h'| <= C, continued along its tangents beyond.

    Clipping the slope in the score clips the record's joint gradient (weights and intercept together) to
    C |x|, and a clipped nondecreasing slope is nondecreasing, so the result is the gradient of a convex loss.

    Examples
    --------
    >>> from dplangevin.problem.losses import Squared
    >>> Clipped(Squared(), 1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    loss: Loss
    bound: float
    name: ClassVar[str] = "clipped"

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidParameter(f"loss must be a Loss such as Squared(), got {self.loss!r}.")
        if self.loss.clips_own_gradients:
            raise InvalidParameter(f"the {self.loss.name} loss clips its own gradients; use it as it is.")
        if self.loss.score_dimension != 1:
            raise InvalidParameter(
                f"Clipped takes losses with one score; {self.loss.name} has {self.loss.score_dimension}, and "
                "a clipped slope vector is not the gradient of a loss. Use it unclipped."
            )
        _check.validate_fields(self, bound=_check.check_positive)
        if self.loss.curvature_bound == 0 and self.bound < self.loss.slope_bound:
            raise InvalidParameter(
                f"the slope of the {self.loss.name} loss is constant; state a smaller data_norm instead of a clip."
            )
        inner, slope_formula = self.loss, self.loss.slope_formula
        if slope_formula is not None:
            slope_formula = replace(
                slope_formula,
                low=max(slope_formula.low, -self.bound),
                high=min(slope_formula.high, self.bound),
            )
        assumption = (
            f"slopes of the {inner.name} loss are clipped to {self.bound:g} in the score; it stays convex"
        )
        _check.set_frozen(
            self,
            slope_bound=min(self.bound, inner.slope_bound),
            curvature_bound=inner.clipped_curvature(self.bound),
            slope_formula=slope_formula,
            convex=inner.convex,
            label_range=inner.label_range,
            label_classes=inner.label_classes,
            assumptions=(*inner.assumptions, assumption),
        )

    @property
    def unclipped_loss(self) -> Loss:
        return self.loss

    @property
    def unclipped_if_bounded(self) -> Loss:
        return self.loss if math.isfinite(self.loss.slope_bound) else self

    @property
    def clip_bound(self) -> float:
        return self.bound

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        low, high = self._turning_points(y)
        inside = self.loss.value(np.clip(score, low, high), y)
        return inside + self.bound * (np.maximum(score - high, 0) + np.maximum(low - score, 0))

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.clip(self.loss.slope(score, y), -self.bound, self.bound)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        inside = np.abs(self.loss.slope(score, y)) < self.bound
        return np.where(inside, self.loss.curvature(score, y), 0.0)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return score_or_infinity(self.loss.inverse_slope(slope, y), slope, -self.bound, self.bound)

    def _turning_points(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        bound = np.full(np.shape(y), self.bound)
        return self.loss.inverse_slope(-bound, y), self.loss.inverse_slope(bound, y)

    def clipped_curvature(self, bound: float) -> float:
        return self.loss.clipped_curvature(min(bound, self.bound))

    @property
    def quadratic_radius(self) -> float:
        return min(self.bound, self.loss.quadratic_radius)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return self.loss.clipped_majorant(self.bound, score, y)

    @property
    def typical_curvature_bound(self) -> float:
        return min(self.curvature_bound, self.loss.typical_curvature_bound)

    @property
    def step_curvature(self) -> float:
        return self.loss.step_curvature
