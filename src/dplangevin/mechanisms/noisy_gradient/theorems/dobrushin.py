"""The Dobrushin recursion: Renyi bound of the last iterate on a set as wide as a few steps of noise, not convex (B4).

Split the noise v^2 = v1^2 + v2^2. The kernel x -> phi'(x) + N(0, v2^2), common to both runs, contracts every
f-divergence by its Dobrushin coefficient beta = 2 Phi(diam phi'(K) / (2 v2)) - 1; the rest of the noise hides
the shift s between the two maps. So h = E_alpha obeys

    h_0 = 1,   h_{t+1} = G (1 + beta (h_t - 1)),   G = exp(alpha (alpha - 1) s^2 / (2 v1^2)),

and the Renyi divergence of order alpha after T steps is at most log h_T / (alpha - 1), for every split.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import RenyiCurve
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    BOUNDED_RUN_ASSUMPTIONS,
    check_bounded_run,
)
from dplangevin.mechanisms.noisy_gradient.theorems.composition import NoisyGradientTheorem, step_units
from dplangevin.problem.constants import Constants

MIXING_FRACTIONS: Floats = np.arange(2, 100) / 100
"""v2^2 / v^2: the fraction of the noise variance that mixes."""


def dobrushin_rdp(step: float, noise: float, diameter: float, n_steps: float, orders: ArrayLike) -> Floats:
    """Return the Renyi curve for a shift s = step and maps whose images have at most the given diameter.

    With y = h - 1 the recursion is y <- (G - 1) + G beta y, so y_T = (G - 1) (1 - (G beta)^T) / (1 - G beta).

    Examples
    --------
    >>> print(f"{dobrushin_rdp(0.02, 1.0, 1.0, np.inf, [2.0])[0]:.4e}")
    1.5452e-03
    """
    alpha = np.asarray(orders, float)[:, None]
    beta = erf(diameter / noise / np.sqrt(8 * MIXING_FRACTIONS)) * (1 + 1e-14)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_gain = alpha * (alpha - 1) * (step / noise) ** 2 / (2 * (1 - MIXING_FRACTIONS))
        log_factor = log_gain * (1 + 1e-14) + np.log(np.minimum(beta, 1.0)) + 1e-14  # rounded up
        growth = np.expm1(log_gain) * _geometric_sum(log_factor, n_steps)
        values = np.where(np.isfinite(growth), np.log1p(growth), np.inf) / (alpha - 1)
    best = np.min(np.where(np.isnan(values), np.inf, values), axis=1)
    return np.asarray(best * (1 + 1e-9) + 1e-12)


def _geometric_sum(log_factor: Floats, n_steps: float) -> Floats:
    """Return sum_{t < T} e^{t log_factor}; infinite when T is infinite and the factor is not below 1."""
    is_zero = np.abs(log_factor) < 1e-12  # indistinguishable from T, or from divergence when T is infinite
    if math.isinf(n_steps):
        return np.where(is_zero | (log_factor >= 0), np.inf, -1 / np.expm1(log_factor))
    nonzero_factor = np.where(is_zero, 1.0, log_factor)
    ratio = np.expm1(n_steps * nonzero_factor) / np.expm1(nonzero_factor)
    return np.where(is_zero, n_steps * np.exp(np.minimum(n_steps * 1e-12, 700.0)), ratio)


class Dobrushin(NoisyGradientTheorem, name="dobrushin", proof="docs/theory/noisy_sgd.md, section 3, B4"):
    """Last iterate of full-batch noisy gradient descent on a small set: a Renyi curve without convexity.

    Needs c D, the largest diameter of the image of the set under one gradient step. Useful when c D is at
    most about three times the noise on the iterate; beyond that beta is close to 1 and other bounds are
    smaller.
    """

    reference = "Dobrushin (1956), contraction of f-divergences; recursion of docs/theory/noisy_sgd.md, B4"

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        check_bounded_run(self, constants, spec)
        u = step_units(constants, spec)
        image = u.contraction * u.diameter
        values = dobrushin_rdp(u.shift, u.noise, image, spec.n_steps, cv.ORDERS)
        is_finite = np.isfinite(values)
        if not np.any(is_finite):
            raise self.refuse(
                f"the set is too wide for the noise (image {image:.6g}, noise on the iterate {u.noise:.6g})",
                "Shrink the set, add noise, or give a finite number of steps.",
            )
        part = RenyiCurve(
            orders=tuple(cv.ORDERS[is_finite].tolist()), values=tuple(values[is_finite].tolist())
        )
        assumptions = (*BOUNDED_RUN_ASSUMPTIONS, "every loss is smooth on the set")
        return self.guarantee(constants, spec, (part,), assumptions)
