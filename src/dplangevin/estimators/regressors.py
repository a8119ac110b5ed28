"""Differentially private linear regressors: ridge, Huber, quantile and Poisson regression.

Targets are scaled from their stated range to [-1, 1] for the fit, and coefficients are scaled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._documentation import TARGET_BOUNDS_DOC, DocExample
from dplangevin.estimators._reading import RangeEncoder, read_column, read_numbers
from dplangevin.estimators.schema_encoder import as_schema, encoding_schema, project_monotone
from dplangevin.estimators.uncertainty import IntervalsMixin
from dplangevin.problem import Loss, Problem
from dplangevin.schema import NumericColumn


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearRegressor(RegressorMixin, DPLinearModel):  # type: ignore[misc]
    """Base class of the regressors."""

    _own_parameters_doc: ClassVar[str] = TARGET_BOUNDS_DOC
    _example: ClassVar[DocExample] = DocExample(
        "np.clip(X[:, 0] + 0.1 * rng.standard_normal(5000), -1, 1)", "target_bounds=(-1, 1)", 0.6
    )
    target_bounds: Any = None

    def set_coefficients(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        scale, columns, intercept = self.target_encoder(), problem.n_features, problem.fit_intercept
        if hasattr(self, "uncertainty_"):
            self.uncertainty_ = self.uncertainty_.rescale(
                scale.half_range, scale.center if intercept else 0.0
            )
        self.coef_ = scale.half_range * theta[:columns]
        self.intercept_ = (
            float(scale.half_range * theta[columns] + scale.center) if intercept else float(scale.center)
        )
        return self if self.schema is None else project_monotone(self)

    def public_targets(self) -> tuple[float, float]:
        return self._target_range()

    def _read_targets(self, y: Any, n_rows: int, out_of_memory: bool) -> Any:
        return y if out_of_memory else read_numbers(read_column(y, n_rows, "y"), "y", self._accepts_any_row())

    def target_encoder(self, y: Any = None) -> RangeEncoder:
        low, high = self._target_range()
        center, half_range = self._target_scale(low, high)
        return RangeEncoder(
            low=low, high=high, center=center, half_range=half_range, accepts_missing=self._accepts_any_row()
        )

    def _target_range(self) -> tuple[float, float]:
        if self.target_bounds is None and self.schema is not None:
            target = as_schema(encoding_schema(self)).target
            if isinstance(target, NumericColumn):
                return target.low, target.high
        if self.target_bounds is None:
            raise InvalidParameter(
                f"{type(self).__name__} needs target_bounds=(low, high), the stated range of y: targets beyond it "
                "are clipped, and it is never measured from the data (that would leak)."
            )
        try:
            low, high = (float(value) for value in self.target_bounds)
        except (TypeError, ValueError):
            raise InvalidParameter(
                f"target_bounds must be (low, high), got {self.target_bounds!r}."
            ) from None
        _check.check_positive("target_bounds[1] - target_bounds[0]", high - low)
        return low, high

    def _target_scale(self, low: float, high: float) -> tuple[float, float]:
        """Return center and half-range of the targets; without an intercept the center is 0."""
        if self.fit_intercept or self.schema is not None:
            return (low + high) / 2, (high - low) / 2
        return 0.0, max(abs(low), abs(high))

    def predict(self, X: Any) -> Floats:
        """Return predicted targets."""
        scores: Floats = self._linear_scores(X)[:, 0]
        return scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # at a small n the noise may exceed any signal
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


class DPRidge(IntervalsMixin, DPLinearRegressor):
    """Differentially private ridge regression.

    {parameters}

    References
    ----------
    Dwork et al. (2014), Analyze Gauss; Chaudhuri, Monteleoni and Sarwate (2011).

    {example}
    """

    _model: ClassVar[str] = "ridge"


@dataclass(kw_only=True, eq=False, repr=False)
class DPHuberRegressor(IntervalsMixin, DPLinearRegressor):
    """Differentially private Huber regression.

    Parameters
    ----------
    transition : residual, in units of y, beyond which the loss is linear; None takes a tenth of the range.
    {shared}

    References
    ----------
    Huber (1964); the loss is convex and smooth, so every mechanism of the library applies.

    {example}
    """

    _model: ClassVar[str] = "huber"
    transition: float | None = None

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        scale = self.target_encoder()
        transition = 0.1 * (scale.high - scale.low)
        if self.transition is not None:
            transition = _check.check_positive("transition", self.transition)
        return {"transition": transition / scale.half_range}


@dataclass(kw_only=True, eq=False, repr=False)
class DPQuantileRegressor(IntervalsMixin, DPLinearRegressor):
    """Differentially private quantile regression (smoothed pinball loss).

    Parameters
    ----------
    quantile : strictly between 0 and 1.
    {shared}

    References
    ----------
    Koenker and Bassett (1978), smoothed by convolution with a uniform density.

    {example}
    """

    _model: ClassVar[str] = "quantile"
    quantile: float = 0.5

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"quantile": _check.check_open_unit("quantile", self.quantile)}


class DPPoissonRegressor(IntervalsMixin, DPLinearRegressor):
    """Differentially private Poisson regression (log link, clipped derivative).

    {parameters}

    References
    ----------
    McCullagh and Nelder (1989); the derivative of the loss is clipped, which keeps it convex.

    {example}
    """

    _model: ClassVar[str] = "poisson"
    _example: ClassVar[DocExample] = DocExample(
        "rng.poisson(np.exp(0.5 + X[:, 0]))", "target_bounds=(0, 20)", 0.1
    )

    def _target_range(self) -> tuple[float, float]:
        low, high = super()._target_range()
        if low < 0:
            raise InvalidParameter(
                f"counts are nonnegative: target_bounds must start at 0 or above, got {low!r}."
            )
        return low, high

    def _target_scale(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, 1.0

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"target_bounds": self._target_range()}

    def predict(self, X: Any) -> Floats:
        """Return predicted means, within the stated range of the counts: the exponential of a score has no other."""
        return np.clip(np.exp(np.minimum(super().predict(X), 700.0)), *self.public_targets())

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D^2, the fraction of Poisson deviance explained."""
        from sklearn.metrics import d2_tweedie_score  # imported here: it takes a tenth of a second

        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
