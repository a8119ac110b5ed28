"""Conversions of a guarantee for readers: Renyi divergence, zCDP, the trade-off curve, and an attacker's advantage.

Every number is rounded to the safe side: divergences and advantages up, the attacker's error rates down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting import compose
from dplangevin.accounting.parts import PrivacyPart
from dplangevin.errors import InvalidParameter

_ROUNDING_FACTOR = 1 + 1e-12
_EPSILON_LEVELS = 49
_EXCEEDED_PROBABILITIES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)


def renyi_divergence(parts: tuple[PrivacyPart, ...], orders: ArrayLike) -> Floats:
    """Return the Renyi divergence at orders > 1 (infinity gives the largest loss); infinite where none is proved."""
    alpha = np.atleast_1d(np.asarray(orders, float))
    if alpha.size == 0 or not bool(np.all(alpha > 1)):
        raise InvalidParameter("orders must be numbers above 1, such as 2 or [2, 8, 32].")
    finite = np.isfinite(alpha)
    curve = compose.compose_renyi(parts, np.where(finite, alpha, 2.0))
    largest = sum(part.count * part.pure_epsilon() for part in parts)
    if curve is None:
        curve = np.full(alpha.shape, np.inf)
    curve = np.where(np.isnan(curve), np.inf, curve)
    divergences = np.where(finite, np.minimum(curve, largest), largest) * _ROUNDING_FACTOR
    return np.asarray(divergences.reshape(np.shape(np.asarray(orders, float))))


def smallest_zcdp(parts: tuple[PrivacyPart, ...]) -> float:
    """Return the smallest proved rho with divergence at most rho alpha at EVERY order; infinite if there is none."""
    return math.fsum(part.count * part.zcdp() for part in parts) * _ROUNDING_FACTOR


def tradeoff_curve(
    delta: Callable[[float], float], mu: float | None, epsilon_span: float, alpha: ArrayLike
) -> Floats:
    """Return the trade-off curve f(alpha): the least FNR (1 - TPR) of any membership test with FPR at most alpha.

    f(alpha) = max over eps of max(0, 1 - delta(eps) - e^eps alpha, e^-eps (1 - delta(eps) - alpha)), from finitely
    many eps, hence rounded down; G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu) when the guarantee is mu-GDP.

    References
    ----------
    Wasserman and Zhou (2010); Dong, Roth and Su (2022), Proposition 2.12.
    """
    shape = np.shape(np.asarray(alpha, float))
    levels = np.atleast_1d(np.asarray(alpha, float))
    if not bool(np.all((levels >= 0) & (levels <= 1))):
        raise InvalidParameter("alpha must be error rates between 0 and 1.")
    if mu is not None:
        if math.isinf(mu):
            return np.zeros(shape)
        # -ndtri(alpha) = Phi^-1(1 - alpha), without the loss of digits in 1 - alpha
        point = -ndtri(np.clip(levels, 5e-324, 1.0)) - mu
        rounded = ndtr(point - 4e-16 * (np.abs(np.maximum(point, -1e300)) + 2 * mu)) * (1 - 1e-12)
        return np.asarray(np.where(levels > 0, rounded, 1.0)).reshape(shape)
    best = np.zeros_like(levels)
    top = min(epsilon_span, 40.0) if math.isfinite(epsilon_span) else 40.0
    for epsilon in np.linspace(0.0, max(top, 1e-9), _EPSILON_LEVELS):
        left = (1 - delta(float(epsilon))) * (1 - 1e-15)
        for line in (left - math.exp(epsilon) * levels, math.exp(-epsilon) * (left - levels)):
            best = np.maximum(best, line - 1e-15)
    return np.asarray(best).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class AttackAdvantage:
    """What an attacker gains who must decide between two neighbouring data sets.

    Parameters
    ----------
    prior : the attacker's probability, before the release, that the record was used.
    advantage : largest TPR - FPR of any membership test (membership-inference advantage).
    accuracy : largest probability of a right guess, for an attacker with this prior.
    posterior : largest probability after the release, except with probability `exceeded`.
    exceeded : 0 where the bound on the posterior always holds (a pure guarantee).
    adjacency : "replace-one" or "add-remove".
    """

    prior: float
    advantage: float
    accuracy: float
    posterior: float
    exceeded: float
    adjacency: str

    def __str__(self) -> str:
        question = (
            "was used, or another in its place" if self.adjacency == "replace-one" else "was used or not"
        )
        exception = f"except with probability {self.exceeded:g}" if self.exceeded else "whatever is released"
        blind = max(self.prior, 1 - self.prior)
        return (
            f"Whether one record {question}: the TPR of any test on the release exceeds its FPR by at most "
            f"{_percent_up(self.advantage)}. An attacker with a prior probability of {self.prior * 100:g}% "
            f"guesses right at most {_percent_up(self.accuracy)} of the time ({blind * 100:g}% without the "
            f"release), and the posterior probability is at most {_percent_up(self.posterior)}, {exception}."
        )


def attack_advantage(
    delta: Callable[[float], float],
    epsilon: Callable[[float], float],
    adjacency: str,
    prior: float,
    exceeded: float,
) -> AttackAdvantage:
    """Return the attacker's advantage, accuracy and posterior, from delta(eps) and eps(delta).

    Advantage: sup_S P(S) - Q(S) = delta(0). Accuracy of the best guess under prior p, with g = max(p, 1-p) / min(p,
    1-p): max(p, 1-p) + min(p, 1-p) H_g. Posterior: P[loss > e'] <= delta(e) / (1 - e^{e - e'}) for e < e', so the
    loss exceeds eps(s d) - log(1 - s) with probability at most d, and the posterior odds are the prior's times
    e^loss.
    """
    chance = _check.check_open_unit("prior", prior)
    rest = 1 - chance
    small, large = min(chance, rest), max(chance, rest)
    gain = delta(0.0)
    right = min(1.0, large + small * delta(math.log(large / small) * (1 - 1e-15)) * _ROUNDING_FACTOR)
    worst = epsilon(0.0)
    if math.isfinite(worst):
        exceeded = 0.0
    else:
        _check.check_open_unit("exceeded", exceeded)
        worst = min(
            epsilon(fraction * exceeded) - math.log1p(-fraction) for fraction in _EXCEEDED_PROBABILITIES
        )
    posterior = 1 / (1 + rest / chance * math.exp(-worst)) * (1 + 4e-16)
    return AttackAdvantage(
        prior=chance,
        advantage=gain,
        accuracy=right,
        posterior=min(1.0, posterior),
        exceeded=exceeded,
        adjacency=adjacency,
    )


def _percent_up(fraction: float) -> str:
    """Format a percentage, rounded up: what is printed is never better than what is proved."""
    return f"{min(100.0, math.ceil(fraction * 1e6) / 1e4):.6g}%"
