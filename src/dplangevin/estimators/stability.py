"""How stable decisions are: the probability that another draw of the noise, or another sample, decides otherwise.

The released score of a row x is s = x' theta, with noise of variance v(x) = x' V x around an unknown answer, V the
covariance that the fit computed for its own coefficients. A second release is another draw around the same answer, so
that its score differs from s by a normal variable of variance 2 v(x): it has the other sign with probability
Phi(-|s| / sqrt(2 v)). Another sample of people adds the sampling variance to V. V follows from a noisy curvature, whose
eigenvectors noise turns, so that v is scaled to the moments that the curvature shows in the direction of x itself
(docs/theory/one_step_intervals.md, section 4). Everything is post-processing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
MIN_CURVATURE_DEVIATIONS = 0.5
"""The curvature in the direction of a row is at least so many deviations of its noise."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
MAX_SCORE = 700.0
"""Largest score of which an exponential is taken."""
WIDE_EPSILON, WIDE_FACTOR = 4.0, 2.3
"""Above this epsilon, deviations are multiplied by this factor: refits also weight the rows anew, and a model that is
not exact then has another minimiser, which no covariance here counts (measured: up to 2.7 times the deviation)."""


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
        variances = _variances(rows, uncertainty.answer_noise)
        counted = np.ones(len(rows))
        if uncertainty.row_basis is not None:
            spectra = measure_rows(rows, uncertainty)
            counted = _counted_curvature(spectra, scores, uncertainty)
            variances *= counted**2 * _noise_ratio(spectra, uncertainty)
        if source == "sample":
            variances += counted * _variances(rows, uncertainty.covariances[0])
        factor = WIDE_FACTOR if model.epsilon > WIDE_EPSILON else 1.0
        return scores, factor * np.sqrt(variances)


def _variances(rows: Floats, covariance: Floats) -> Floats:
    """Return x' V x of each row."""
    return np.asarray(np.maximum(np.einsum("ij,ij->i", rows @ covariance, rows), 0.0))


class RowSpectra(NamedTuple):
    """What is known of the curvature in the directions of whitened rows z, over the bound on their length.

    Parameters
    ----------
    squares : |z|^2.
    along, along_square : z' K z / |z|^2 and |K z|^2 / |z|^2, estimated without bias from the released curvature.
    shrunk, shrunk_square : the same of the shrunk estimate of K.
    """

    squares: Floats
    along: Floats
    along_square: Floats
    shrunk: Floats
    shrunk_square: Floats


def measure_rows(rows: Floats, uncertainty: Uncertainty) -> RowSpectra:
    """Return the moments of the spectrum of K that each row sees.

    Noise E of standard deviation sigma on the diagonal has E[E^2] = sigma^2 (k + 1) / 2, which |(K + E) z|^2 exceeds
    |K z|^2 by.
    """
    assert uncertainty.row_basis is not None
    assert uncertainty.row_curvatures is not None
    assert uncertainty.curvature_noise is not None
    whitened = rows @ uncertainty.row_basis
    squares = np.maximum(np.einsum("ij,ij->i", whitened, whitened), 1e-300)
    moments = [squares]
    for matrix in uncertainty.row_curvatures:
        images = whitened @ matrix
        moments += [np.einsum("ij,ij->i", each, images) / squares for each in (whitened, images)]
    moments[1] = np.maximum(moments[1], MIN_CURVATURE_DEVIATIONS * uncertainty.curvature_noise)
    moments[2] = moments[2] - uncertainty.curvature_noise**2 * (whitened.shape[1] + 1) / 2
    return RowSpectra(*moments)


def _noise_ratio(spectra: RowSpectra, uncertainty: Uncertainty) -> Floats:
    """Return the variance of the noise that a row's own moments give, over that which the shrunk curvature's give.

    The noise of a curvature turns its eigenvectors: rows of a table have no component where it has no curvature, but
    they have one where the released or shrunk estimate has little. Moments in the direction of one row are hardly
    touched by it. Both variances are those of a lognormal spectrum with these two moments.
    """
    assert uncertainty.noise_law is not None
    law = np.log(np.maximum(uncertainty.noise_law, 1e-300))
    own = _lognormal_noise(spectra.along, spectra.along_square, law)
    return own / _lognormal_noise(spectra.shrunk, spectra.shrunk_square, law)


def _lognormal_noise(mean: Floats, square: Floats, law: Floats) -> Floats:
    """Return the mean of the variance, a table of logarithms, over lognormal curvatures of this mean and square."""
    mean = np.maximum(mean, 1e-300)
    spread = np.log(np.maximum(square / mean**2, 1.0))
    nodes = (np.log(mean) - spread / 2)[:, None] + np.sqrt(spread)[:, None] * _NODES
    return np.asarray(np.exp(np.interp(nodes, *law)) @ _WEIGHTS)


def _counted_curvature(spectra: RowSpectra, scores: Floats, uncertainty: Uncertainty) -> Floats:
    """Return the fraction of the curvature in the direction of each row that the released curvature counted.

    A long row near the boundary counts with the share f of its curvature w h'' |z|^2 that stays within the limit on a
    record. Where the curvature in its direction exceeds the mean of all directions, it does so by rows like this one,
    and those of them that are far from the boundary were counted in full: half of what is missing at most is added.
    """
    assert uncertainty.row_curvatures is not None
    assert uncertainty.curvature_limit is not None
    lengths = np.sqrt(spectra.squares)
    own = expit(scores) * expit(-scores) * lengths * np.minimum(lengths, 1.0)
    shares = np.minimum(uncertainty.curvature_limit / np.maximum(own, 1e-300), 1.0)
    mean = float(np.trace(uncertainty.row_curvatures[0])) / len(uncertainty.row_curvatures[0])
    missing = np.maximum(spectra.along - mean, 0.0) * (1 / shares - 1) / 2
    return np.asarray(spectra.along / np.maximum(spectra.along + missing, 1e-300))


def _as_any(model: Any) -> Any:
    return model
