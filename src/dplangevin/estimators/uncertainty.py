"""Standard errors and confidence intervals that count both the sampling of the records and the privacy noise.

A fit that releases its curvature itself computes them from its own noisy path (mechanisms/whitened/one_step.py). Where
the planner has no such fit, objective perturbation releases theta with sum_i grad loss_i(theta) + Lambda theta + b = 0
exactly, whatever the data, where b is noise of a known distribution. Linearized at the population's theta_0, with H the
Hessian of the sum,

    theta + Lambda H^-1 theta - theta_0  ~  -H^-1 (sum_i grad loss_i(theta_0) + b),

so the left side, free of the ridge's bias, has covariance H^-1 (J + Var b) H^-1. A stated fraction of the budget is
spent on a noisy release of H; `_posterior` treats directions where H is small. J = H for logistic and softmax losses
(the model's likelihood). For squared and Huber losses with errors that do not depend on x, and for Poisson losses
with a variance proportional to the mean, J = H sum h'^2 / sum h'', two scalars that are released with H. For smoothed
hinge and pinball losses J = sum h'^2 x x^T is released. All the rest is post-processing.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.charge import charge_then_release
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.plan import Plan
from dplangevin.data import Dataset
from dplangevin.data.sources import RecordReader, read_records
from dplangevin.estimators._posterior import MAX_PRIOR_FRACTION, IntervalPlan, compute_posterior, half_width
from dplangevin.estimators.shapes import ShapesMixin, StabilityMixin
from dplangevin.estimators.summary import SummaryMixin, missing_intervals_error
from dplangevin.mechanisms.mechanism import Release, fingerprint_dataset, run_plan
from dplangevin.mechanisms.noisy_answers.curvature import ReleasedCurvature, release_curvature
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec
from dplangevin.mechanisms.run_state import CheckpointPath, RunState
from dplangevin.mechanisms.whitened.one_step import AUXILIARY_PREFIX, OneStepEstimate

MAX_COUNT_DISPERSION = 1.2
"""Released variance of counts, over that of Poisson variables, up to which the clip of their slopes hardly matters."""
MAX_INFINITE_FRACTION = 0.5
"""If a larger fraction of the intervals is infinite, the finite ones have low coverage, and the fit warns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """Uncertainty of the coefficients (features first, then the intercept); all of it is released or public.

    Arrays have one entry per coefficient; with K > 2 classes, one row per class, centered: the rows sum to 0.

    Parameters
    ----------
    center : the estimate without the ridge's bias, the center of every interval.
    sampling, noise : standard deviations of the sampling error and of the privacy noise; infinite where the curvature
        in a coefficient's direction does not stand above its noise.
    dimension : None for Gaussian noise, else the dimension of exp(-|z| / scale) noise.
    prior : standard deviation of the part that is determined by the public prior instead of the records.
    covariances : [3, d, d], covariances of sampling, noise and prior; None with more than two classes.
    prior_scale : standard deviation of the prior: public, or wider if the estimated coefficients are large.
    dispersion : of squared losses, the released variance of a target around its mean.
    resolved_fraction : each coefficient's own released curvature over the least that stands above its noise, clipped
        to [0, 1] and rounded down to twentieths.
    flat : [d, k], orthonormal directions in which rows of the schema do not differ; the center is 0 there.
    curvature : [d, d], estimated curvature of the mean loss, where the fit released it in its own coordinates.
    answer_noise : [d, d], covariance of the noise in the released coefficients themselves, where it is known.
    row_basis, row_curvatures, noise_law, curvature_noise, curvature_limit : of a logistic loss whose curvature was
        released, what the noise in a score follows from (`OneStepEstimate`).
    """

    center: Floats
    sampling: Floats
    noise: Floats
    dimension: int | None
    prior: Floats | None = None
    covariances: Floats | None = None
    prior_scale: float | None = None
    dispersion: float | None = None
    resolved_fraction: Floats | None = None
    flat: Floats | None = None
    curvature: Floats | None = None
    answer_noise: Floats | None = None
    row_basis: Floats | None = None
    row_curvatures: Floats | None = None
    noise_law: Floats | None = None
    curvature_noise: float | None = None
    curvature_limit: float | None = None

    @property
    def standard_errors(self) -> Floats:
        """Standard errors sqrt(sampling^2 + noise^2 + prior^2)."""
        return np.hypot(self._non_privacy_errors, self.noise)

    @property
    def _non_privacy_errors(self) -> Floats:
        """Standard errors without the privacy noise."""
        return self.sampling if self.prior is None else np.hypot(self.sampling, self.prior)

    def intervals(self, level: float = 0.95) -> Floats:
        """Return [low, high] of each coefficient, for normal sampling error plus the plan's noise."""
        width = half_width(level, self._non_privacy_errors, self.noise, self.dimension)
        return np.stack([self.center - width, self.center + width], axis=-1)

    def rescale(self, factor: float, shift: float = 0.0) -> Uncertainty:
        """Return the uncertainty of `factor` times the coefficients, with `shift` added to the last (the intercept)."""
        center = factor * self.center
        center[-1] += shift
        return replace(
            self,
            center=center,
            sampling=abs(factor) * self.sampling,
            noise=abs(factor) * self.noise,
            prior=None if self.prior is None else abs(factor) * self.prior,
            covariances=None if self.covariances is None else factor**2 * self.covariances,
            prior_scale=None if self.prior_scale is None else abs(factor) * self.prior_scale,
            dispersion=None if self.dispersion is None else factor**2 * self.dispersion,
            answer_noise=None if self.answer_noise is None else factor**2 * self.answer_noise,
        )


class IntervalsMixin(SummaryMixin, ShapesMixin, StabilityMixin):
    """Mixin with standard errors and confidence intervals of an estimator that was fitted with `intervals`."""

    uncertainty_: Uncertainty

    @property
    def standard_errors_(self) -> Floats:
        """Standard errors of the coefficients, then of the intercept where there is one.

        They belong to the centers of the intervals: coef_ itself is shrunk slightly by the ridge.
        """
        return self.uncertainty_.standard_errors

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Return [low, high] for each coefficient, then for the intercept where there is one.

        With more than two classes, one row of such pairs per class, for the class relative to the mean of all. An
        interval is infinite where the curvature of a coefficient does not stand above the noise at this budget.
        """
        if not hasattr(self, "uncertainty_"):
            raise missing_intervals_error("confidence intervals need")
        return self.uncertainty_.intervals(level)


def run_with_intervals(
    plan: IntervalPlan | Plan,
    data: Dataset | RecordReader,
    random_state: Any,
    ledger: BudgetAccount | None,
    checkpoint: CheckpointPath = None,
    rows_per_person: int | None = None,
    flat: Floats | None = None,
) -> tuple[Release, Uncertainty]:
    """Charge once, release the fit and the curvature at the fitted point, and compute the uncertainty.

    A plan of a fit that releases its curvature itself is run as it is. `flat` are public directions in which the rows
    of a schema do not differ. A run that resumes from `checkpoint` repeats both releases with the same noise, so that
    the results are the same.
    """
    if isinstance(plan, Plan):
        release = run_plan(
            plan,
            data,
            random_state,
            ledger=ledger,
            checkpoint=checkpoint,
            rows_per_person=rows_per_person,
            flat_directions=flat,
        )
        estimate = OneStepEstimate.from_arrays(release.auxiliary)
        assert estimate is not None
        _warn_if_over_dispersed(plan, estimate)
        return release, describe_uncertainty(estimate)
    saved_run = RunState.for_fit(checkpoint, plan.plan, plan.curvature, ledger=ledger)

    def release_both(rng: np.random.Generator, seeded: bool) -> _FitAndCurvature:
        records = read_records(data)
        if saved_run is not None:
            saved_run.check_records(lambda salt: fingerprint_dataset(records, salt))
        shared = SharedGenerator(rng, seeded or saved_run is not None)
        release = replace(run_plan(plan.plan, records, shared), seeded=seeded)
        curvature = release_curvature(plan.curvature, records, np.array(release.value), rng)
        return _FitAndCurvature(release=release, curvature=curvature)

    pair = charge_then_release(
        plan,
        release_both,
        random_state,
        ledger=ledger,
        checkpoint=saved_run,
        rows_per_person=rows_per_person,
    )
    release = replace(pair.release, ledger_head=pair.ledger_head)
    result_uncertainty = compute_uncertainty(plan, np.array(release.value), pair.curvature, flat)
    _warn_if_mostly_infinite(result_uncertainty)
    return release, result_uncertainty


def describe_uncertainty(estimate: OneStepEstimate) -> Uncertainty:
    """Return the uncertainty that a mechanism computed from its own noisy path."""
    parts = np.array([estimate.sampling, estimate.noise, estimate.prior])
    variances = np.maximum(np.einsum("kii->ki", parts), 0.0)
    is_unresolved = variances.sum(axis=0) > MAX_PRIOR_FRACTION * estimate.prior_scale**2
    sampling, noise = (np.where(is_unresolved, math.inf, np.sqrt(variance)) for variance in variances[:2])
    return Uncertainty(
        center=estimate.center,
        sampling=sampling,
        noise=noise,
        prior=np.where(is_unresolved, 0.0, np.sqrt(variances[2])),
        dimension=None,
        covariances=parts,
        prior_scale=estimate.prior_scale,
        dispersion=estimate.dispersion,
        flat=estimate.flat,
        curvature=estimate.curvature,
        answer_noise=estimate.answer_noise,
        row_basis=estimate.row_basis,
        row_curvatures=estimate.row_curvatures,
        noise_law=estimate.noise_law,
        curvature_noise=estimate.curvature_noise,
        curvature_limit=estimate.curvature_limit,
    )


def geometry_of_release(release: Release) -> dict[str, Floats]:
    """Return what else a mechanism released with the coefficients, without the parts of the uncertainty."""
    return {name: value for name, value in release.auxiliary.items() if not name.startswith(AUXILIARY_PREFIX)}


def _warn_if_over_dispersed(plan: Plan, estimate: OneStepEstimate) -> None:
    """Warn if counts vary more than a Poisson variable: the clip of their slopes then moves the minimiser.

    On counts with twice the Poisson variance 95% intervals covered .77 to .93 of the coefficients.
    """
    if not plan.problem.loss.unclipped_loss.log_link or estimate.slope_ratio is None:
        return
    assert estimate.slope_ratio_std is not None
    if estimate.slope_ratio > MAX_COUNT_DISPERSION + 3 * estimate.slope_ratio_std:
        warnings.warn(
            f"the counts vary {estimate.slope_ratio:.2g} times as much as Poisson variables or more: the intervals of "
            "this fit assume a variance near the mean, and do not hold here. mechanism='auto' with delta=0, or "
            "objective perturbation, clips less and allows any multiple of the mean (docs/uncertainty.md).",
            UserWarning,
            stacklevel=2,
        )


def _warn_if_mostly_infinite(uncertainty: Uncertainty) -> None:
    """Warn if most intervals are infinite: the finite ones are then too narrow (measured coverage 0.4 to 0.9)."""
    infinite = float(np.mean(np.isinf(uncertainty.standard_errors)))
    if infinite > MAX_INFINITE_FRACTION:
        warnings.warn(
            f"{infinite:.0%} of the confidence intervals are infinite, so the released curvature is mostly noise: do "
            "not rely on the finite ones either, whose coverage is too low on such tables. More records, a larger "
            "epsilon, or fewer and less correlated columns help (docs/uncertainty.md).",
            UserWarning,
            stacklevel=2,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _FitAndCurvature:
    """Fit and curvature releases, charged together."""

    release: Release
    curvature: ReleasedCurvature
    ledger_head: str | None = None  # set by charge_then_release

    def digest(self) -> str:
        """Return a hash of both releases, for the ledger."""
        content = self.release.digest() + hashlib.sha256(self.curvature.matrix.tobytes()).hexdigest()
        return hashlib.sha256(content.encode()).hexdigest()


def compute_uncertainty(
    interval_plan: IntervalPlan, theta: Floats, curvature: ReleasedCurvature, flat: Floats | None = None
) -> Uncertainty:
    """Return the estimate without the ridge's bias and the parts of its standard error, by post-processing."""
    posterior, problem = compute_posterior(interval_plan, theta, curvature, flat), interval_plan.plan.problem
    spec, classes = interval_plan.plan.spec, problem.loss.score_dimension
    assert isinstance(spec, ObjectivePerturbationSpec)
    sampling_variance, noise_variance, prior_variance = (
        np.maximum(np.diag(part), 0.0) for part in (posterior.sampling, posterior.noise, posterior.prior)
    )
    is_unresolved = (
        sampling_variance + noise_variance + prior_variance
        > MAX_PRIOR_FRACTION * posterior.scale** 2 * ((1 - 1 / classes) if classes > 1 else 1)
    )
    shape = (problem.n_columns, classes) if classes > 1 else (len(theta),)

    def reshape_values(values: Floats, where: Any = math.inf) -> Floats:
        return np.asarray(np.where(is_unresolved, where, values)).reshape(shape).T

    return Uncertainty(
        center=reshape_values(posterior.center, posterior.center),
        sampling=reshape_values(np.sqrt(sampling_variance)),
        noise=reshape_values(np.sqrt(noise_variance)),
        prior=reshape_values(np.sqrt(prior_variance), 0.0),
        dimension=len(theta) if spec.noise == "gamma" else None,
        covariances=None if classes > 1 else np.array([posterior.sampling, posterior.noise, posterior.prior]),
        prior_scale=posterior.scale,
        dispersion=posterior.dispersion,
        resolved_fraction=posterior.resolved_fraction,
        flat=None if classes > 1 else posterior.flat,
    )
