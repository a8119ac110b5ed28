"""Standard errors and confidence intervals that count both the sampling of the records and the privacy noise.

Objective perturbation releases theta with sum_i grad loss_i(theta) + Lambda theta + b = 0 exactly, whatever the data,
where b is noise of a known law. Linearised at the population's coefficients theta_0, with H the Hessian of the sum,

    theta + Lambda H^-1 theta - theta_0  ~  -H^-1 (sum_i grad loss_i(theta_0) + b),

so the left side, free of the ridge's bias, has covariance H^-1 (J + Var b) H^-1. A stated share of the budget
releases H with noise; `_posterior` says what is made of it where H is small. J = H for logistic and softmax losses
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
from dplangevin.data import Dataset
from dplangevin.data.reader import RecordReader, read_records
from dplangevin.estimators._interval_plan import IntervalPlan
from dplangevin.estimators._intervals import half_width
from dplangevin.estimators._posterior import MOST_PRIOR, posterior
from dplangevin.estimators.shape_plot import WithShapes
from dplangevin.estimators.summary import WithSummary, without_intervals
from dplangevin.families.mechanism import fingerprint, run
from dplangevin.families.noisy_answers.curvature import Curvature, release_curvature
from dplangevin.families.perturbation.schedule import ObjectivePerturbationSchedule
from dplangevin.families.release import Release
from dplangevin.families.run_state import RunState, StatePath
from dplangevin.privacy.payment import pay
from dplangevin.privacy.spender import Spender

MAX_INFINITE_FRACTION = 0.5
"""Where more intervals than this are infinite, the finite ones cover too rarely, and the fit warns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """What is known of the coefficients (features first, then the intercept): all of it released or public.

    Arrays have one entry per coefficient; with K > 2 classes, a row per class, centred: the rows add up to 0.

    Parameters
    ----------
    centre : the estimate without the ridge's bias, the middle of every interval.
    sampling, noise : standard deviations of the error by sampling and by privacy noise; infinite where the curvature
        in a coefficient's direction is lost in its own noise.
    dimension : None for Gaussian noise, else the dimension of exp(-|z| / scale) noise.
    prior : standard deviation of what the records leave to the public prior.
    covariances : [3, d, d], the covariances of the three parts; None with more than two classes.
    prior_scale : standard deviation of the prior itself: public, or wider where the estimated coefficients are.
    dispersion : of squared losses, the released variance of a target around its mean.
    seen : each coefficient's own released curvature, over the least that is told from its noise; twentieths, 0 to 1.
    flat : [d, k], orthonormal directions in which rows of the schema do not differ; the middle is 0 there.
    """

    centre: Floats
    sampling: Floats
    noise: Floats
    dimension: int | None
    prior: Floats | None = None
    covariances: Floats | None = None
    prior_scale: float | None = None
    dispersion: float | None = None
    seen: Floats | None = None
    flat: Floats | None = None

    @property
    def standard_errors(self) -> Floats:
        """sqrt(sampling^2 + noise^2), with what the prior leaves open."""
        return np.hypot(self._own, self.noise)

    @property
    def _own(self) -> Floats:
        """All but the privacy noise."""
        return self.sampling if self.prior is None else np.hypot(self.sampling, self.prior)

    def intervals(self, level: float = 0.95) -> Floats:
        """[low, high] of each coefficient, by the law of normal error plus the plan's noise."""
        width = half_width(level, self._own, self.noise, self.dimension)
        return np.stack([self.centre - width, self.centre + width], axis=-1)

    def rescaled(self, factor: float, shift: float = 0.0) -> Uncertainty:
        """For coefficients times `factor`, and the last one (the intercept) moved by `shift`."""
        centre = factor * self.centre
        centre[-1] += shift
        return replace(
            self,
            centre=centre,
            sampling=abs(factor) * self.sampling,
            noise=abs(factor) * self.noise,
            prior=None if self.prior is None else abs(factor) * self.prior,
            covariances=None if self.covariances is None else factor**2 * self.covariances,
            prior_scale=None if self.prior_scale is None else abs(factor) * self.prior_scale,
            dispersion=None if self.dispersion is None else factor**2 * self.dispersion,
        )


class WithIntervals(WithSummary, WithShapes):
    """The methods of an estimator that was fitted with `intervals`."""

    uncertainty_: Uncertainty

    @property
    def standard_errors_(self) -> Floats:
        """Standard errors of the coefficients, then of the intercept where there is one.

        They belong to the middles of the intervals: coef_ itself is shrunk a little by the ridge.
        """
        return self.uncertainty_.standard_errors

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """[low, high] for each coefficient, then for the intercept where there is one.

        With more than two classes, a row of such pairs per class, for the class against the mean of all. An interval is
        infinite where the records say too little about a coefficient at this budget.
        """
        if not hasattr(self, "uncertainty_"):
            raise without_intervals("confidence intervals need")
        return self.uncertainty_.intervals(level)


def run_with_intervals(
    both: IntervalPlan,
    data: Dataset | RecordReader,
    random_state: Any,
    ledger: Spender | None,
    state: StatePath = None,
    rows_per_person: int | None = None,
    flat: Floats | None = None,
) -> tuple[Release, Uncertainty]:
    """Charge once, fit, release the curvature at the fitted point, and work out the uncertainty.

    flat : public directions in which the rows of a schema do not differ.

    A run that goes on from `state` makes both releases again with the noise of both, so the point is the same.
    """

    saved = RunState.of_fit(state, both.plan, both.curvature, ledger=ledger)

    def release_both(rng: np.random.Generator, seeded: bool) -> _Pair:
        records = read_records(data)
        if saved is not None:
            saved.check_records(lambda salt: fingerprint(records, salt))
        release = replace(run(both.plan, records, rng), seeded=seeded)
        curvature = release_curvature(both.curvature, records, np.array(release.value), rng)
        return _Pair(release=release, curvature=curvature)

    made = pay(both, release_both, random_state, ledger=ledger, saved=saved, rows_per_person=rows_per_person)
    release = replace(made.release, ledger_head=made.ledger_head)
    known = uncertainty(both, np.array(release.value), made.curvature, flat)
    _warn_if_mostly_infinite(known)
    return release, known


def _warn_if_mostly_infinite(known: Uncertainty) -> None:
    """Finite intervals among mostly infinite ones are too narrow: coverage .4 to .9 was measured on such tables."""
    infinite = float(np.mean(np.isinf(known.standard_errors)))
    if infinite > MAX_INFINITE_FRACTION:
        warnings.warn(
            f"{infinite:.0%} of the confidence intervals are infinite, so the released curvature is mostly noise: do "
            "not rely on the finite ones either, which cover too rarely on such tables. More records, a larger "
            "epsilon, or fewer and less correlated columns help (docs/uncertainty.md).",
            UserWarning,
            stacklevel=2,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pair:
    """The two releases that were charged together."""

    release: Release
    curvature: Curvature
    ledger_head: str | None = None  # the till writes it

    def digest(self) -> str:
        """A hash of both, for the ledger."""
        content = self.release.digest() + hashlib.sha256(self.curvature.matrix.tobytes()).hexdigest()
        return hashlib.sha256(content.encode()).hexdigest()


def uncertainty(
    both: IntervalPlan, theta: Floats, curvature: Curvature, flat: Floats | None = None
) -> Uncertainty:
    """Post-processing: the estimate without the ridge's bias, and the parts of its standard error."""
    found, problem = posterior(both, theta, curvature, flat), both.plan.problem
    schedule, classes = both.plan.schedule, problem.loss.score_dimension
    assert isinstance(schedule, ObjectivePerturbationSchedule)
    own, added, left = (np.maximum(np.diag(part), 0.0) for part in (found.sampling, found.noise, found.prior))
    lost = own + added + left > MOST_PRIOR * found.scale**2 * ((1 - 1 / classes) if classes > 1 else 1)
    shape = (problem.n_columns, classes) if classes > 1 else (len(theta),)

    def shaped(values: Floats, where: Any = math.inf) -> Floats:
        return np.asarray(np.where(lost, where, values)).reshape(shape).T

    return Uncertainty(
        centre=shaped(found.centre, found.centre),
        sampling=shaped(np.sqrt(own)),
        noise=shaped(np.sqrt(added)),
        prior=shaped(np.sqrt(left), 0.0),
        dimension=len(theta) if schedule.noise == "gamma" else None,
        covariances=None if classes > 1 else np.array([found.sampling, found.noise, found.prior]),
        prior_scale=found.scale,
        dispersion=found.dispersion,
        seen=found.seen,
        flat=None if classes > 1 else found.flat,
    )
