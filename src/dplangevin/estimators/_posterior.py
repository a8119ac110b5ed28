"""What a released point and its noisy curvature say about the coefficients: a linear model with a public prior.

Objective perturbation releases theta with sum_i grad loss_i(theta) + Lambda theta + b = 0. Linearised at the
population's theta_0, with H the curvature of the sum, g = sum_i grad loss_i(theta_0) and the released curvature K = H
+ E,

    K theta + Lambda theta  =  K theta_0 - g - b + E (theta - theta_0):

a linear observation of theta_0 whose errors have known laws: g has covariance J, b that of the plan, and E, a
symmetric matrix with independent entries of variance s^2 / 2 (s^2 on the diagonal), adds s^2 |theta - theta_0|^2 / 2
to every direction. Directions in which K is lost in its noise would be divided by nearly nothing; so theta_0 is given
the public prior of the planner's rules, N(0, tau^2) with tau = reach / row_norm, which is about twice the size that
coefficients are planned for. With N the covariance of the errors, C = (K N^-1 K + tau^-2)^-1 is the covariance of
theta_0 and C K N^-1 (K + Lambda) theta its mean. Where the records speak, this is the usual estimate without the
ridge's bias; where they do not, it is the prior: a coefficient with more than a third of the prior's variance left
has an infinite interval. |theta - theta_0|^2 is taken from the answer itself, until both agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from sklearn.isotonic import isotonic_regression

from dplangevin._arrays import Floats
from dplangevin.estimators._interval_plan import IntervalPlan
from dplangevin.families.noisy_answers.curvature import Curvature, contrasts
from dplangevin.families.perturbation.schedule import ObjectivePerturbationSchedule
from dplangevin.planner.rules import SHAPES
from dplangevin.problem import Clipped, Logistic, Poisson, Problem, SmoothedHinge, Softmax

MOST_PRIOR = 1 / 3
LEAST_SEEN = 3.0
"""A direction whose released curvature is within so many deviations of 0 is not seen."""
_ROUNDS = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """The middle of the intervals and the three parts of its covariance: sampling, privacy noise, and the prior.

    seen : the released curvature of each coefficient over the least that is told from its noise (one score only).
    """

    centre: Floats
    sampling: Floats
    noise: Floats
    prior: Floats
    scale: float
    dispersion: float | None = None
    seen: Floats | None = None


def prior_scale(problem: Problem) -> float:
    """tau: how far a coefficient may go, from the planner's rules."""
    loss = problem.loss.loss if isinstance(problem.loss, Clipped) else problem.loss
    names = {Logistic: "logistic", Softmax: "multinomial", Poisson: "poisson", SmoothedHinge: "svc"}
    return SHAPES[names.get(type(loss), "ridge")].reach / problem.row_norm


def posterior(both: IntervalPlan, theta: Floats, curvature: Curvature) -> Posterior:
    """Post-processing of the two releases. With several classes, worked out in contrasts and turned back."""
    problem, schedule = both.plan.problem, both.plan.schedule
    assert isinstance(schedule, ObjectivePerturbationSchedule)
    basis = np.asarray(
        np.kron(np.eye(problem.n_columns), contrasts(problem.loss.score_dimension)), np.float64
    )
    scale, ridge, doubts = prior_scale(problem), problem.n * problem.ridge, both.deviations
    known = shrunk(curvature.matrix, doubts[0])
    slopes = _slopes(curvature, known, doubts)
    spread = schedule.noise_scale * (math.sqrt(len(theta) + 1) if schedule.noise == "gamma" else 1.0)
    point = basis.T @ theta
    seen = known @ point + ridge * point
    unit = np.eye(len(point))

    def answer(apart: float, prior: float) -> tuple[float, Floats, Floats, Floats]:
        added = spread**2 + doubts[0] ** 2 / 2 * apart
        weighed = np.linalg.solve(slopes + added * unit, known)
        covariance = np.asarray(np.linalg.inv(known @ weighed + unit / prior), np.float64)
        gain = covariance @ weighed.T
        return added, gain, gain @ seen, covariance

    apart, prior = len(point) * scale**2, scale**2
    for _ in range(_ROUNDS):
        _, _, middle, covariance = answer(apart, prior)
        told = unit - covariance / prior  # the part of each direction that the records speak of
        new = float((point - middle) @ told @ (point - middle) + np.trace(covariance @ told))
        prior = min(scale**2, float(middle @ middle + np.trace(covariance)) / len(point))
        apart, before = max(new, 1e-12 * scale**2), apart
        if abs(apart - before) <= 1e-6 * before:
            break
    added, gain, middle, _ = answer(apart, scale**2)
    rows, left = basis @ gain, basis @ (unit - gain @ known)
    release = (len(theta) + 1) * schedule.release_noise**2
    return Posterior(
        centre=basis @ middle,
        sampling=rows @ slopes @ rows.T,
        noise=added * rows @ rows.T + release * np.eye(len(theta)),
        prior=scale**2 * left @ left.T,
        scale=scale,
        dispersion=_dispersion(curvature, doubts),
        seen=np.diag(curvature.matrix) / (LEAST_SEEN * doubts[0]) if basis.shape[1] == len(theta) else None,
    )


def shrunk(matrix: Floats, deviation: float) -> Floats:
    """The curvature from its noisy release: eigenvalues moved back together by what noise spread them.

    Noise with variance s^2 / 2 off the diagonal spreads d eigenvalues by a semicircle of radius s sqrt(2 d). Given
    the eigenvectors, the best eigenvalues are l - 2 v h(l), v = d s^2 / 2, with h the real part of the mean of
    1 / (l - l_j): see Bun, Allez, Bouchaud and Potters (2016), Rotational invariant estimator for general noisy
    matrices. The diagonal is known well, so this is done after dividing by it: a rare category's small curvature is not
    mistaken for the mean. What is within two deviations of 0 counts as 0.
    """
    root = np.sqrt(np.maximum(np.diag(matrix), max(LEAST_SEEN * deviation, 1e-300)))
    values, vectors = np.linalg.eigh(matrix / np.outer(root, root))
    noise = deviation * float(np.mean(root**-2.0))
    size = len(values)
    variance = size * noise**2 / 2
    width = max(math.sqrt(variance / size), 1e-12 * float(np.abs(values).max()), 1e-300)
    gaps = values[:, None] - values[None, :]
    pull = (gaps / (gaps**2 + width**2)).mean(axis=1)
    better = np.asarray(isotonic_regression(values - 2 * variance * pull))
    better = np.where(better > 2 * noise, better, 0.0)
    return np.asarray((vectors * better) @ vectors.T * np.outer(root, root))


def _slopes(curvature: Curvature, known: Floats, doubts: list[float]) -> Floats:
    """J: the curvature itself, a released multiple of it, or released itself."""
    if curvature.slope_moment is not None:
        values, vectors = np.linalg.eigh(curvature.slope_moment)
        return np.asarray((vectors * np.maximum(values, doubts[1])) @ vectors.T)
    return known * (_dispersion(curvature, doubts) or 1.0)


def _dispersion(curvature: Curvature, doubts: list[float]) -> float | None:
    """sum h'^2 / sum h'', where both were released."""
    if curvature.slopes is None or curvature.bends is None:
        return None
    return max(curvature.slopes, doubts[1]) / max(curvature.bends, doubts[2])
