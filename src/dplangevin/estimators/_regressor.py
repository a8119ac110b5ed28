"""Linear regressors: targets scaled to [-1, 1] from their stated range, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._documentation import TARGET_BOUNDS, Example
from dplangevin.estimators._monotone import keep_monotone
from dplangevin.estimators._reading import RangeEncoder, column, numbers_of
from dplangevin.estimators.schema_encoder import as_schema, schema_of
from dplangevin.problem import Loss, Problem
from dplangevin.schema import NumericColumn


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearRegressor(RegressorMixin, DPLinearModel):  # type: ignore[misc]
    """Base of the regressors."""

    _own_parameters: ClassVar[str] = TARGET_BOUNDS
    _example: ClassVar[Example] = Example(
        "np.clip(X[:, 0] + 0.1 * rng.standard_normal(5000), -1, 1)", "target_bounds=(-1, 1)", 0.6
    )
    target_bounds: Any = None

    def from_theta(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        scale, columns, intercept = self.encoder(), problem.n_features, problem.fit_intercept
        if hasattr(self, "uncertainty_"):
            self.uncertainty_ = self.uncertainty_.rescaled(scale.half, scale.centre if intercept else 0.0)
        self.coef_ = scale.half * theta[:columns]
        self.intercept_ = (
            float(scale.half * theta[columns] + scale.centre) if intercept else float(scale.centre)
        )
        return self if self.schema is None else keep_monotone(self)

    def stated_targets(self) -> tuple[float, float]:
        return self._bounds()

    def _read_targets(self, y: Any, rows: int, away: bool) -> Any:
        return y if away else numbers_of(column(y, rows, "y"), "y", self._total())

    def encoder(self, y: Any = None) -> RangeEncoder:
        low, high = self._bounds()
        centre, half = self._scale(low, high)
        return RangeEncoder(low=low, high=high, centre=centre, half=half, total=self._total())

    def _bounds(self) -> tuple[float, float]:
        if self.target_bounds is None and self.schema is not None:
            target = as_schema(schema_of(self)).target
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
        if self.fit_intercept or self.schema is not None:
            return (low + high) / 2, (high - low) / 2
        return 0.0, max(abs(low), abs(high))

    def predict(self, X: Any) -> Floats:
        """Predicted targets."""
        scores: Floats = self._scores(X)[:, 0]
        return scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # noise at a small n may beat any signal
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags
