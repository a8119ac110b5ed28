"""What a calibrated run has to meet: (epsilon, delta), a Renyi divergence at an order, mu-GDP or rho-zCDP."""

from __future__ import annotations

from dataclasses import dataclass

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.guarantee import Guarantee

REPORTED_DELTA = 1e-6
"""The delta at which a promise in another currency is reported, when none is stated."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """cost(guarantee) must be at most goal; the guarantee is reported at `delta`."""

    name: str
    goal: float
    delta: float
    order: float = 0.0

    def cost(self, guarantee: Guarantee) -> float:
        """What a guarantee spends of the target's currency; infinite where it proves nothing in it."""
        if self.name == "epsilon":
            return guarantee.epsilon(self.delta)
        if self.name == "mu":
            return float("inf") if guarantee.mu is None else guarantee.mu
        if self.name == "zcdp":
            return guarantee.zcdp()
        return float(guarantee.rdp(self.order))

    def __str__(self) -> str:
        at = {"epsilon": f" at delta = {self.delta!r}", "rdp": f" at order {self.order!r}"}.get(self.name, "")
        return f"{self.name} = {self.goal!r}{at}"


def target(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rdp: tuple[float, float] | None = None,
    mu: float | None = None,
    zcdp: float | None = None,
    pure: bool = False,
) -> Target:
    """Exactly one target; `pure` allows delta = 0."""
    given = {"epsilon": epsilon, "rdp": rdp, "mu": mu, "zcdp": zcdp}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise InvalidParameter(
            f"give exactly one target: epsilon (with delta), rdp = (order, value), mu or zcdp; got {named or 'none'}."
        )
    if epsilon is not None:
        if delta is None:
            raise InvalidParameter("delta is missing; a target epsilon needs it.")
        _check.positive("epsilon", epsilon)
        if not (pure and delta == 0):
            _check.open_unit("delta", delta)
        return Target(name="epsilon", goal=float(epsilon), delta=float(delta))
    at = REPORTED_DELTA if delta is None else _check.open_unit("delta", delta)
    if rdp is None:
        name = named[0]
        return Target(name=name, goal=_check.positive(name, given[name]), delta=at)
    try:
        order, value = rdp
    except (TypeError, ValueError):
        raise InvalidParameter(f"rdp must be a pair (order, value), got {rdp!r}.") from None
    if not _check.positive("the order in rdp", order) > 1:
        raise InvalidParameter(f"the order in rdp must be above 1, got {order!r}.")
    return Target(name="rdp", goal=_check.positive("the value in rdp", value), delta=at, order=float(order))
