"""How stable decisions are: the probability that another draw of the noise, or another sample, decides otherwise.

The released score of a row x is s = x' theta, with noise of variance v(x) = x' V x around an unknown answer, V the
covariance that the fit computed for its own coefficients. A second release is another draw around the same answer, so
that its score differs from s by a normal variable of variance 2 v(x): it has the other sign with probability
Phi(-|s| / sqrt(2 v)). Another sample of people adds the sampling variance to V. Everything is post-processing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import expit, ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.estimators.uncertainty import Uncertainty

FLIP_SOURCES = ("noise", "sample")
CONSERVATIVE_QUANTILE, CONSERVATIVE_FACTOR = 1.645, 1.4
"""The conservative variant moves the score by the 95% quantile towards the other decision, with deviations enlarged by
the factor, which covers the error of the estimated covariance."""
MAX_SCORE = 700.0
"""Largest score of which an exponential is taken."""
WIDE_EPSILON, WIDE_FACTOR = 4.0, 2.0
"""Above this epsilon, deviations are multiplied by this factor: refits also weight the rows anew, and a model that is
not exact then has another minimiser, which no covariance here counts (measured: up to 2 times the deviation)."""


def flip_margin(probability: float, noise: float) -> float:
    """Return the |score| at which a refit decides otherwise with this probability, for noise of this deviation."""
    return min(-float(ndtri(probability)) * math.sqrt(2) * noise, MAX_SCORE)


class StabilityMixin:
    """Mixin with the stability of the decisions of a classifier that was fitted with `intervals`."""

    uncertainty_: Uncertainty

    def flip_probability(
        self, X: Any, source: Literal["noise", "sample"] = "noise", *, conservative: bool = False
    ) -> Floats:
        """Return, for each row, the probability that a refit decides otherwise.

        Parameters
        ----------
        X : rows, as for `predict`.
        source : "noise": a refit on the same records, with other noise; "sample": on other records of the same
            population.
        conservative : return instead a bound on the probability that a refit decides otherwise than the model without
            noise would have it, meant to hold for 95% of the rows near the boundary.
        """
        _check.check_choice("source", source, FLIP_SOURCES)
        _check.check_flag("conservative", conservative)
        scores, deviations = self._score_noise(X, source)
        with np.errstate(divide="ignore", invalid="ignore"):
            if conservative:
                ratios = np.abs(scores) / (CONSERVATIVE_FACTOR * deviations)
                return np.where(deviations > 0, ndtr(CONSERVATIVE_QUANTILE - ratios), 0.0)
            return np.where(deviations > 0, ndtr(-np.abs(scores) / (np.sqrt(2) * deviations)), 0.0)

    def typical_score_noise(self) -> float | None:
        """Return the standard deviation of the privacy noise in a score near the boundary; None where it is not known.

        It is the root mean square over the records, weighted by the curvature of the loss, which is largest at the
        boundary: tr(V K) over the mean curvature.
        """
        uncertainty, model = getattr(self, "uncertainty_", None), _as_any(self)
        if uncertainty is None or uncertainty.answer_noise is None or not hasattr(model, "classes_"):
            return None
        mean_curvature = float(uncertainty.curvature[-1, -1])
        if not (model.fit_intercept or model.schema is not None) or not mean_curvature > 0:
            return None
        square = max(float(np.sum(uncertainty.answer_noise * uncertainty.curvature)), 0.0) / mean_curvature
        return (WIDE_FACTOR if model.epsilon > WIDE_EPSILON else 1.0) * math.sqrt(square)

    def _score_noise(self, X: Any, source: str) -> tuple[Floats, Floats]:
        """Return the released score of each row, and its standard deviation over refits."""
        model = _as_any(self)
        uncertainty = getattr(self, "uncertainty_", None)
        if uncertainty is None:
            raise InvalidParameter(
                "flip_probability needs a fit with intervals=True (on the command line: fit --intervals)."
            )
        if not hasattr(model, "classes_") or uncertainty.answer_noise is None:
            raise InvalidParameter(
                "flip_probability is known for classifiers of two classes whose fit releases its own curvature "
                "(logistic regression with delta > 0, as mechanism='auto' plans it); this fit has none."
            )
        rows = model._encode_features(X, reset=False)
        scores = rows @ np.ravel(model.coef_) + float(np.ravel(model.intercept_)[0])
        if uncertainty.center.shape[-1] > rows.shape[1]:
            rows = np.column_stack([rows, np.ones(len(rows))])
        counted = _counted_curvature(rows, scores, uncertainty)
        variances = counted**2 * _variances(rows, uncertainty.answer_noise)
        if source == "sample":
            variances += counted * _variances(rows, uncertainty.covariances[0])
        factor = WIDE_FACTOR if model.epsilon > WIDE_EPSILON else 1.0
        return scores, factor * np.sqrt(variances)


def _variances(rows: Floats, covariance: Floats) -> Floats:
    """Return x' V x of each row."""
    return np.maximum(np.einsum("ij,ij->i", rows @ covariance, rows), 0.0)


def _counted_curvature(rows: Floats, scores: Floats, uncertainty: Uncertainty) -> Floats:
    """Return the fraction of the curvature in the direction of each row that the released curvature counted.

    A long row near the boundary counts with the share f of its curvature w h'' |z|^2 that stays within the limit on a
    record. Where the curvature in its direction exceeds the mean of all directions, it does so by rows like this one,
    and those of them that are far from the boundary were counted in full: half of what is missing at most is added.
    """
    if uncertainty.row_metric is None or uncertainty.curvature is None or uncertainty.curvature_limit is None:
        return np.ones(len(rows))
    images = rows @ uncertainty.row_metric
    squares = np.maximum(np.einsum("ij,ij->i", images, rows), 1e-300)
    lengths = np.sqrt(squares)
    own = expit(scores) * expit(-scores) * lengths * np.minimum(lengths, 1.0)
    shares = np.minimum(uncertainty.curvature_limit / np.maximum(own, 1e-300), 1.0)
    along = _variances(images, uncertainty.curvature) / squares
    mean = float(np.sum(uncertainty.curvature * uncertainty.row_metric)) / len(uncertainty.curvature)
    missing = np.maximum(along - mean, 0.0) * (1 / shares - 1) / 2
    return np.asarray(along / np.maximum(along + missing, 1e-300))


def _as_any(model: Any) -> Any:
    return model
