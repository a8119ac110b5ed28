"""What a promise allows a test to do: the trade-off curve of a guarantee, from its whole profile delta(epsilon)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.guarantee import Guarantee, NotPrivate
from dplangevin.privacy.parts import Approximate, Gaussian, Part, Pure

_POINTS = 64
_SMALLEST_DELTA = 1e-7


def as_guarantee(
    claim: Guarantee | tuple[float, float] | None, adjacency: str = "replace-one"
) -> Guarantee | None:
    """The claim as a Guarantee; a pair (epsilon, delta) promises that pair and nothing more."""
    if claim is None or isinstance(claim, Guarantee):
        return claim
    if isinstance(claim, NotPrivate):
        raise InvalidParameter(f"claim promises nothing ({claim.reason}); pass claim=None to only measure.")
    try:
        epsilon, delta = claim
    except (TypeError, ValueError):
        raise InvalidParameter(
            f"claim must be a Guarantee or a pair (epsilon, delta), got {claim!r}."
        ) from None
    epsilon = _check.nonnegative("the epsilon of claim", epsilon)
    part: Part = Pure(value=epsilon)
    if delta != 0:
        part = Approximate(value=epsilon, slack=_check.open_unit("the delta of claim", delta))
    return _stated(part, adjacency, delta)


def gaussian_claim(mu: float, delta: float, adjacency: str = "replace-one") -> Guarantee:
    """The claim to be mu-GDP, reported at delta: a promise about every test, so it is tested by mu."""
    return _stated(Gaussian(mu=_check.positive("mu", mu)), adjacency, _check.open_unit("delta", delta))


def _stated(part: Part, adjacency: str, delta: float) -> Guarantee:
    return Guarantee(
        parts=(part,),
        adjacency=_check.choice("adjacency", adjacency, ("replace-one", "add-remove")),
        release="stated by the user",
        theorem="none: a claim to be tested",
        reference="",
        at_delta=delta,
    )


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """The largest power a claim allows a test of each size, in either direction.

    From (eps, delta) for every eps: power <= min over eps of delta + e^eps size and of
    1 - e^-eps (1 - delta - size). A mu-GDP claim allows Phi(Phi^-1(size) + mu). A finite grid of eps says less than
    the whole profile, so it allows more, never less (Dong, Roth and Su 2022, proposition 2.4 and section 2.4).
    """

    epsilons: Floats
    deltas: Floats
    mu: float | None

    def power(self, size: ArrayLike) -> Floats:
        """The largest power allowed at this size (false positive rate)."""
        alpha = np.asarray(size, float)
        if self.mu is not None:
            return np.asarray(ndtr(ndtri(alpha) + self.mu))
        column, allowed = alpha[..., None], self.deltas
        with np.errstate(over="ignore"):
            first = allowed + np.exp(self.epsilons) * column
            second = 1 - np.exp(-self.epsilons) * (1 - allowed - column)
        return np.asarray(np.clip(np.minimum(first, second).min(axis=-1), 0.0, 1.0))


def trade_off(claim: Guarantee) -> TradeOff:
    """The trade-off curve of a guarantee."""
    mu = claim.mu
    if mu is not None:
        return TradeOff(epsilons=np.zeros(0), deltas=np.zeros(0), mu=mu)
    top = claim.epsilon(0.0)
    if not math.isfinite(top):
        top = claim.epsilon(max(_SMALLEST_DELTA, 2 * claim.extra_delta))
    if not math.isfinite(top):
        top = 50.0
    grid = np.linspace(0.0, top, _POINTS)
    stated = _stated_point(claim)
    grid = np.unique(np.concatenate([grid, stated]))
    return TradeOff(epsilons=grid, deltas=np.array([claim.delta(float(eps)) for eps in grid]), mu=None)


def _stated_point(claim: Guarantee) -> Floats:
    """The epsilon at which the claim is usually quoted, so that the grid holds it."""
    delta: Any = claim.at_delta
    epsilon = claim.epsilon(delta) if delta else math.inf
    return np.array([epsilon] if math.isfinite(epsilon) else [])
