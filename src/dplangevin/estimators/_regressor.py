"""Linear regressors: targets scaled to [-1, 1] from their stated range, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel, Floats
from dplangevin.estimators._large import Encode, LargeData
from dplangevin.estimators._reading import by_name, column, is_table, numbers_of
from dplangevin.estimators.schema_encoder import as_schema
from dplangevin.schema import NumericColumn
from dplangevin.tables import cells_of


class DPLinearRegressor(RegressorMixin, DPLinearModel):  # type: ignore[misc]
    """Base of the regressors."""

    target_bounds: Any

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DPLinearRegressor:
        """Fit under the stated guarantee. Targets outside `target_bounds` are clipped, silently."""
        X, y, sample_weight = self._read(X, y, sample_weight)
        centre, half = self._scale(*self._bounds())
        encode, options = self._encoder(y)
        theta = self._fit(X, y, sample_weight, encode, **options)
        if hasattr(self, "uncertainty_"):
            self.uncertainty_ = self.uncertainty_.rescaled(half, centre if self._intercept() else 0.0)
        self.coef_ = half * theta[: X.shape[1], 0]
        self.intercept_ = float(half * theta[X.shape[1], 0] + centre) if self._intercept() else float(centre)
        return self

    def _read(self, X: Any, y: Any, weights: Any = None) -> tuple[Any, Any, Any]:
        """Features, targets and weights; large data stay away."""
        self._norm()
        self._bounds()
        if is_table(X):
            X, y, weights = by_name(X, y, weights)
        X = self._validated(X, y, weights)
        if isinstance(X, LargeData):
            return X, y, weights
        return X, numbers_of(column(y, len(X), "y"), "y", self._total()), weights

    def _encoder(self, y: Any) -> tuple[Encode, dict[str, Any]]:
        low, high = self._bounds()
        centre, half = self._scale(low, high)
        total, middle = self._total(), (low + high) / 2

        def encode(values: Any) -> Floats:
            """Targets in their range; a missing one is the middle, where nothing is refused."""
            numbers = np.asarray(cells_of(values, "y").numbers(), np.float64)
            if total:
                numbers = np.where(np.isnan(numbers), middle, numbers)
            return np.asarray((np.clip(numbers, low, high) - centre) / half)

        return encode, self._model_options(low, high, half)

    def _bounds(self) -> tuple[float, float]:
        if self.target_bounds is None and self.schema is not None:
            target = as_schema(self.schema).target
            if isinstance(target, NumericColumn):
                return target.low, target.high
        if self.target_bounds is None:
            raise InvalidParameter(
                f"{type(self).__name__} needs target_bounds=(low, high), the stated range of y: targets beyond it are "
                "clipped, and it is never measured from the data (that would leak)."
            )
        try:
            low, high = (float(value) for value in self.target_bounds)
        except (TypeError, ValueError):
            raise InvalidParameter(
                f"target_bounds must be (low, high), got {self.target_bounds!r}."
            ) from None
        _check.positive("target_bounds[1] - target_bounds[0]", high - low)
        return low, high

    def _scale(self, low: float, high: float) -> tuple[float, float]:
        """Centre and half-width of the targets; without an intercept only a scale."""
        if self._intercept() or self.schema is not None:
            return (low + high) / 2, (high - low) / 2
        return 0.0, max(abs(low), abs(high))

    def _model_options(self, low: float, high: float, half: float) -> dict[str, Any]:
        return {"target_bounds": (-1.0, 1.0)}

    def predict(self, X: Any) -> Floats:
        """Predicted targets."""
        scores: Floats = self._scores(X)[:, 0]
        return scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # noise at a small n may beat any signal
        tags.non_deterministic = self.random_state is None
        return tags
