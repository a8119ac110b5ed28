"""What a released point and its noisy curvature say about the coefficients: a linear model with a public prior.

Objective perturbation releases theta with sum_i grad loss_i(theta) + Lambda theta + b = 0. Linearised at the
population's theta_0, with H the curvature of the sum, g = sum_i grad loss_i(theta_0), and K what is expected of H after
its noisy release (`_curvature_estimate`), E = K - H,

    K theta + Lambda theta  =  K theta_0 - g - b + E (theta - theta_0):

a linear observation of theta_0 whose errors have known laws: g has covariance J, b that of the plan, and the entries
of E have the variances V that the release leaves. theta - theta_0 = -H^-1 (Lambda theta + g + b) has two parts. What E
does to the second is no error at all, since K^-1 (I + E H^-1) = H^-1: the error of the solution is, up to its sign,

    H^-1 (g + b) + K^-1 E r,    r = H^-1 Lambda theta, the ridge's part,

so that E adds sum_j V_ij r_j^2 to coordinate i. The first term is measured with K in place of H, which moves a standard
error by the share sqrt(V_ii) / K_ii; V_ii times the coordinate's own variance is added for that. (To count all of
E (theta - theta_0), as if it were independent of g + b, made intervals up to a tenth too wide.)

theta_0 is given the prior N(0, tau^2): tau = reach / (2 row_norm), the public size that the planner's rules assume of
coefficients, or four times the root mean square of the estimated ones where that is more (`_widen_prior`): on
correlated columns coefficients are larger than planned, and a narrower prior would pull them to 0. A row's score has
the prior deviation tau |x| then, however many coefficients there are.
With N the covariance of the errors, C = (K N^-1 K + tau^-2)^-1 is the covariance of theta_0 and
C K N^-1 (K + Lambda) theta its mean. Where the records speak, this is the usual estimate without the ridge's bias;
where they do not, it is the prior: a coefficient with more than a third of the prior's variance left has an infinite
interval. r and the variances are taken from the answer itself, until both agree.

Two kinds of directions are left out of this first, because E would carry their whole doubt, tau, into all others:

- flat ones, in which no row of the schema differs from another (the indicators of a column add up to the constant),
  unless the released curvature shows them all the same. theta_0 is the solution of least norm: 0 there.
- coefficients whose own released curvature is within LEAST_SEEN deviations of 0. They keep the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.estimators._curvature_estimate import expected
from dplangevin.estimators._interval_plan import IntervalPlan
from dplangevin.families.noisy_answers.curvature import Curvature, contrasts
from dplangevin.families.perturbation.schedule import ObjectivePerturbationSchedule
from dplangevin.problem import Problem

MOST_PRIOR = 1 / 3
LEAST_SEEN = 2.5
"""A direction whose released curvature is within so many deviations of 0 is not seen."""
PRIOR_WIDTHS = 4.0
"""The prior is at least so many times as wide as the root mean square of the coefficients."""
_ROUNDS = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """The middle of the intervals and the three parts of its covariance: sampling, privacy noise, and the prior.

    seen : the released curvature of each coefficient over the least that is told from its noise, in twentieths from 0
        to 1 (one score only): the sums themselves are floating point and are not kept.
    flat : [d, k], orthonormal directions of which nothing can be known, and in which the middle is 0.
    """

    centre: Floats
    sampling: Floats
    noise: Floats
    prior: Floats
    scale: float
    flat: Floats
    dispersion: float | None = None
    seen: Floats | None = None


def prior_scale(problem: Problem) -> float:
    """tau: the expected size of a coefficient in the planner's rules, half of how far it may go."""
    defaults = problem.loss.plain.defaults
    assert defaults is not None  # a loss with intervals is that of a model
    return defaults.reach / (2 * problem.row_norm)


def posterior(
    both: IntervalPlan, theta: Floats, curvature: Curvature, flat: Floats | None = None
) -> Posterior:
    """Post-processing of the two releases. With several classes, worked out in contrasts and turned back.

    flat : [n_columns, k], public directions in which the rows of a schema do not differ.
    """
    problem, doubts = both.plan.problem, both.deviations
    turn = contrasts(problem.loss.score_dimension)
    basis = np.asarray(np.kron(np.eye(problem.n_columns), turn), np.float64)
    own = np.diag(curvature.matrix)
    lost = own < LEAST_SEEN * doubts[0]
    given: Floats = np.zeros((len(own), 0))
    if flat is not None:
        given = np.asarray(np.kron(flat, np.eye(turn.shape[1])), np.float64)
    level = _unseen(curvature.matrix, given * ~lost[:, None], doubts[0])
    kept = _complement(np.column_stack([level, np.eye(len(own))[:, lost]]))
    kept[lost] = 0.0
    inner, scale = _widen_prior(both, kept, kept.T @ (basis.T @ theta), curvature)
    rows, outer = basis @ kept, basis[:, lost]
    schedule = both.plan.schedule
    assert isinstance(schedule, ObjectivePerturbationSchedule)
    release = (len(theta) + 1) * schedule.release_density_scale**2
    return Posterior(
        centre=rows @ inner.centre,
        sampling=rows @ inner.sampling @ rows.T,
        noise=rows @ inner.noise @ rows.T + release * np.eye(len(theta)),
        prior=rows @ inner.prior @ rows.T + scale**2 * outer @ outer.T,
        scale=scale,
        flat=basis @ level,
        dispersion=_dispersion(curvature, doubts),
        seen=_in_twentieths(own / (LEAST_SEEN * doubts[0])) if len(own) == len(theta) else None,
    )


def _in_twentieths(values: Floats) -> Floats:
    return np.clip(np.floor(20 * values), 0, 20) / 20


class _Inner(NamedTuple):
    centre: Floats
    sampling: Floats
    noise: Floats
    prior: Floats


def _widen_prior(
    both: IntervalPlan, kept: Floats, point: Floats, curvature: Curvature
) -> tuple[_Inner, float]:
    """The linear model under a prior at least four times as wide as the coefficients it finds, and that width.

    A prior that is narrower than the coefficients pulls them to 0 and calls the rest certain. The width only grows, and
    what it grows by is read off released values.
    """
    scale = prior_scale(both.plan.problem)
    for _ in range(_ROUNDS):
        inner = _inside(both, kept, point, curvature, scale)
        known = np.diag(inner.sampling + inner.noise + inner.prior)
        size = math.sqrt(max(float(np.mean(inner.centre**2 - known)) if len(known) else 0.0, 0.0))
        if PRIOR_WIDTHS * size <= 1.01 * scale:
            break
        scale = PRIOR_WIDTHS * size
    return inner, scale


def _inside(both: IntervalPlan, kept: Floats, point: Floats, curvature: Curvature, scale: float) -> _Inner:
    """The linear model in the coordinates `kept`, whose columns are orthonormal: noise stays what it is."""
    problem, schedule, doubts = both.plan.problem, both.plan.schedule, both.deviations
    assert isinstance(schedule, ObjectivePerturbationSchedule)
    size = problem.n_columns * problem.loss.score_dimension
    spread = schedule.density_scale * (math.sqrt(size + 1) if schedule.noise == "gamma" else 1.0)
    known, doubt = expected(kept.T @ curvature.matrix @ kept, doubts[0])
    slopes = _slopes(curvature, known, kept, doubts)
    seen = known @ point + problem.n * problem.ridge * point
    unit, prior = np.eye(len(point)), scale**2
    apart = own = np.full(len(point), prior)
    for _ in range(_ROUNDS):
        added = np.diag(spread**2 + doubt @ apart + np.diag(doubt) * own)
        weighed = np.linalg.solve(slopes + added, known)
        covariance = np.linalg.inv(known @ weighed + unit / prior)
        gain = covariance @ weighed.T
        middle = gain @ seen
        told = unit - covariance / prior  # the part of each direction that the records speak of
        before = apart + own
        apart = (told @ (point - middle)) ** 2
        own = np.maximum(np.diag(told @ covariance @ told), 1e-12 * prior)
        if np.abs(apart + own - before).max(initial=0.0) <= 1e-6 * before.max(initial=1.0):
            break
    left = unit - gain @ known
    return _Inner(middle, gain @ slopes @ gain.T, gain @ added @ gain.T, prior * left @ left.T)


def _unseen(matrix: Floats, flat: Floats, deviation: float) -> Floats:
    """An orthonormal basis of the flat directions, without those whose released curvature is more than noise."""
    if not flat.any():
        return np.zeros((len(flat), 0))
    vectors, sizes, _ = np.linalg.svd(flat, full_matrices=False)
    level = vectors[:, sizes > 1e-9 * sizes[0]]
    values, turn = np.linalg.eigh(level.T @ matrix @ level)
    most = deviation * max(
        LEAST_SEEN, math.sqrt(2 * len(values)) + 1
    )  # the edge of a random matrix's eigenvalues
    return np.asarray(level @ turn[:, values < most])


def _complement(out: Floats) -> Floats:
    """Orthonormal directions at right angles to `out`, each near one of the coordinates."""
    unit, rest = np.eye(len(out)), out.copy()
    drop = []
    for _ in range(out.shape[1]):
        drop.append(int(np.argmax((rest * rest).sum(axis=1))))
        row = rest[drop[-1]] / np.linalg.norm(rest[drop[-1]])
        rest = rest - np.outer(rest @ row, row)
    near = np.delete(unit - out @ out.T, drop, axis=1)
    left, _, right = np.linalg.svd(near, full_matrices=False)
    return np.asarray(left @ right)


def _slopes(curvature: Curvature, known: Floats, kept: Floats, doubts: list[float]) -> Floats:
    """J: the curvature itself, a released multiple of it, or released itself."""
    if curvature.slope_moment is not None:
        values, vectors = np.linalg.eigh(kept.T @ curvature.slope_moment @ kept)
        return np.asarray((vectors * np.maximum(values, doubts[1])) @ vectors.T)
    return known * (_dispersion(curvature, doubts) or 1.0)


def _dispersion(curvature: Curvature, doubts: list[float]) -> float | None:
    """sum h'^2 / sum h'', where both were released."""
    if curvature.slopes is None or curvature.bends is None:
        return None
    return max(curvature.slopes, doubts[1]) / max(curvature.bends, doubts[2])
