"""What a guarantee says in other words: Renyi divergence, zCDP, the attacker's error rates and what an attacker gains.

Every number is rounded to the private side: divergences and gains up, the attacker's errors down.
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
from dplangevin.errors import InvalidParameter
from dplangevin.privacy import compose
from dplangevin.privacy.parts import Part

_UP = 1 + 1e-12
_LEVELS = 49
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)


def rdp(parts: tuple[Part, ...], orders: ArrayLike) -> Floats:
    """Renyi divergence at orders > 1 (infinity asks for the largest loss); infinite where none is proved."""
    alpha = np.atleast_1d(np.asarray(orders, float))
    if alpha.size == 0 or not bool(np.all(alpha > 1)):
        raise InvalidParameter("orders must be numbers above 1, such as 2 or [2, 8, 32].")
    finite = np.isfinite(alpha)
    curve = compose.renyi(parts, np.where(finite, alpha, 2.0))
    largest = sum(part.count * part.pure() for part in parts)
    if curve is None:
        curve = np.full(alpha.shape, np.inf)
    curve = np.where(np.isnan(curve), np.inf, curve)
    found = np.where(finite, np.minimum(curve, largest), largest) * _UP
    return np.asarray(found.reshape(np.shape(np.asarray(orders, float))))


def zcdp(parts: tuple[Part, ...]) -> float:
    """The smallest proved rho with divergence at most rho alpha at EVERY order; infinite where none is proved."""
    return math.fsum(part.count * part.zcdp() for part in parts) * _UP


def tradeoff(delta: Callable[[float], float], mu: float | None, reach: float, alpha: ArrayLike) -> Floats:
    """f(alpha): the least share of members missed by any test that accuses at most a share alpha of non-members.

    f(alpha) = max over eps of max(0, 1 - delta(eps) - e^eps alpha, e^-eps (1 - delta(eps) - alpha)), from finitely many
    eps, hence rounded down; G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu) when the guarantee is mu-GDP.
    References: Wasserman and Zhou (2010); Dong, Roth and Su (2022), Proposition 2.12.
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
    top = min(reach, 40.0) if math.isfinite(reach) else 40.0
    for epsilon in np.linspace(0.0, max(top, 1e-9), _LEVELS):
        left = (1 - delta(float(epsilon))) * (1 - 1e-15)
        for line in (left - math.exp(epsilon) * levels, math.exp(-epsilon) * (left - levels)):
            best = np.maximum(best, line - 1e-15)
    return np.asarray(best).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class Advantage:
    """What the release tells an attacker who must decide between two neighbouring data sets.

    prior : the attacker's belief, before the release, that the record was used.
    advantage : largest true positive rate minus false positive rate of any test (membership-inference advantage).
    accuracy : largest probability of a right guess, for an attacker with this prior.
    posterior : largest belief after the release, except with probability `exceeded`.
    exceeded : 0 where the posterior bound holds always (a pure promise).
    """

    prior: float
    advantage: float
    accuracy: float
    posterior: float
    exceeded: float
    adjacency: str

    def __str__(self) -> str:
        record = "was used, or another in its place" if self.adjacency == "replace-one" else "was used or not"
        always = f"except with probability {self.exceeded:g}" if self.exceeded else "whatever is released"
        blind = max(self.prior, 1 - self.prior)
        return (
            f"Whether one record {record}: a test that sees the release catches at most "
            f"{_percent(self.advantage)} more of the used records than it wrongly accuses of the others. "
            f"Who holds it likely with {self.prior * 100:g}% beforehand guesses right at most "
            f"{_percent(self.accuracy)} of the time ({blind * 100:g}% without the release), and holds it likely with "
            f"at most {_percent(self.posterior)} afterwards, {always}."
        )


def advantage(
    delta: Callable[[float], float],
    epsilon: Callable[[float], float],
    adjacency: str,
    prior: float,
    exceeded: float,
) -> Advantage:
    """The attacker's gain, from delta(eps) and eps(delta).

    Advantage: sup_S P(S) - Q(S) = delta(0). Accuracy of the best guess under prior p, with g = max(p, 1-p) / min(p,
    1-p): max(p, 1-p) + min(p, 1-p) H_g. Posterior: P[loss > e'] <= delta(e) / (1 - e^{e - e'}) for e < e', so the loss
    exceeds eps(s d) - log(1 - s) with probability at most d, and the posterior odds are the prior's times e^loss.
    """
    chance = _check.open_unit("prior", prior)
    rest = 1 - chance
    small, large = min(chance, rest), max(chance, rest)
    gain = delta(0.0)
    right = min(1.0, large + small * delta(math.log(large / small) * (1 - 1e-15)) * _UP)
    worst = epsilon(0.0)
    if math.isfinite(worst):
        exceeded = 0.0
    else:
        _check.open_unit("exceeded", exceeded)
        worst = min(epsilon(share * exceeded) - math.log1p(-share) for share in _SHARES)
    posterior = 1 / (1 + rest / chance * math.exp(-worst)) * (1 + 4e-16)
    return Advantage(
        prior=chance,
        advantage=gain,
        accuracy=right,
        posterior=min(1.0, posterior),
        exceeded=exceeded,
        adjacency=adjacency,
    )


def _percent(share: float) -> str:
    """Rounded up: what is told is never better than what is proved."""
    return f"{min(100.0, math.ceil(share * 1e6) / 1e4):.6g}%"
