"""Targets of calibration: (epsilon, delta)-DP, Renyi divergence at an order, mu-GDP, rho-zCDP, success of an attack.

Also the check of the option names of `account` and `calibrate`, which suggests the closest name for a misspelt one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter

REPORTED_DELTA = 1e-6
"""The delta at which a guarantee is reported when the target is no (epsilon, delta) and no delta is stated."""


@dataclass(frozen=True, kw_only=True)
class PrivacyTarget:
    """A privacy target: cost(guarantee) must be at most goal; the guarantee is reported at `delta`.

    Parameters
    ----------
    name : "epsilon", "rdp", "mu", "zcdp", "advantage" (largest TPR - FPR of a membership test) or "tpr" (largest TPR at
        an FPR).
    goal : the largest allowed cost.
    delta : the delta at which the guarantee is reported.
    order : the Renyi order of an "rdp" target. fpr : the false positive rate of a "tpr" target.
    """

    name: str
    goal: float
    delta: float
    order: float = 0.0
    fpr: float = 0.0

    def cost(self, guarantee: Guarantee) -> float:
        """Return the cost of a guarantee in the target's definition; infinite where it has none."""
        if self.name == "epsilon":
            return guarantee.epsilon(self.delta)
        if self.name == "mu":
            return float("inf") if guarantee.mu is None else guarantee.mu
        if self.name == "zcdp":
            return guarantee.zcdp()
        if self.name == "advantage":
            return guarantee.advantage().advantage
        if self.name == "tpr":
            return 1 - float(guarantee.tradeoff(self.fpr))
        return float(guarantee.rdp(self.order))

    def __str__(self) -> str:
        suffix = {
            "epsilon": f" at delta = {self.delta!r}",
            "rdp": f" at order {self.order!r}",
            "tpr": f" at a false positive rate of {self.fpr!r}",
        }.get(self.name, "")
        return f"{self.name} = {self.goal!r}{suffix}"


def make_target(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rdp: tuple[float, float] | None = None,
    mu: float | None = None,
    zcdp: float | None = None,
    advantage: float | None = None,
    tpr_at_fpr: tuple[float, float] | None = None,
    pure: bool = False,
) -> PrivacyTarget:
    """Return the one target that is stated; `pure` allows delta = 0."""
    values = {
        "epsilon": epsilon, "rdp": rdp, "mu": mu, "zcdp": zcdp, "advantage": advantage, "tpr_at_fpr": tpr_at_fpr,
    }  # fmt: skip
    stated_names = [name for name, value in values.items() if value is not None]
    if len(stated_names) != 1:
        raise InvalidParameter(
            "give exactly one target: epsilon (with delta), rdp = (order, value), mu, zcdp, advantage or tpr_at_fpr = "
            "(tpr, fpr); got "
            f"{stated_names or 'none'}."
        )
    if epsilon is not None:
        if delta is None:
            raise InvalidParameter("delta is missing; a target epsilon needs it.")
        _check.check_positive("epsilon", epsilon)
        if not (pure and delta == 0):
            _check.check_open_unit("delta", delta)
        return PrivacyTarget(name="epsilon", goal=float(epsilon), delta=float(delta))
    reported_delta = REPORTED_DELTA if delta is None else _check.check_open_unit("delta", delta)
    if advantage is not None:
        goal = _check.check_open_unit("advantage", advantage)
        return PrivacyTarget(name="advantage", goal=goal, delta=reported_delta)
    if tpr_at_fpr is not None:
        tpr, fpr = _read_pair("tpr_at_fpr", tpr_at_fpr, "(tpr, fpr)")
        _check.check_open_unit("the TPR in tpr_at_fpr", tpr)
        if not _check.check_open_unit("the FPR in tpr_at_fpr", fpr) < tpr:
            raise InvalidParameter(f"the TPR in tpr_at_fpr must be above the FPR, got {tpr_at_fpr!r}.")
        return PrivacyTarget(name="tpr", goal=float(tpr), delta=reported_delta, fpr=float(fpr))
    if rdp is None:
        name = stated_names[0]
        return PrivacyTarget(name=name, goal=_check.check_positive(name, values[name]), delta=reported_delta)
    order, value = _read_pair("rdp", rdp, "(order, value)")
    if not _check.check_positive("the order in rdp", order) > 1:
        raise InvalidParameter(f"the order in rdp must be above 1, got {order!r}.")
    return PrivacyTarget(
        name="rdp",
        goal=_check.check_positive("the value in rdp", value),
        delta=reported_delta,
        order=float(order),
    )


def _read_pair(name: str, pair: Any, what: str) -> tuple[Any, Any]:
    try:
        first, second = pair
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be a pair {what}, got {pair!r}.") from None
    return first, second


TARGET_OPTIONS = ("rdp", "mu", "zcdp", "advantage", "tpr_at_fpr")
QUESTION_OPTIONS = ("delta", "epsilon", "theorem", *TARGET_OPTIONS)
"""Options that say what is asked about a run; the others describe the run."""


def check_option_names(
    options: Mapping[str, object], reader: Callable[..., Any], extra_names: Iterable[str] = ()
) -> dict[str, object]:
    """Return the options that `reader` takes; raise where one is unknown or missing. Others read `extra_names`."""
    accepted = inspect.signature(reader).parameters
    elsewhere = set(extra_names)
    allowed = [*accepted, *(name for name in elsewhere if name not in accepted)]
    mechanism = options.get("mechanism")
    where = f" of mechanism={mechanism!r}" if isinstance(mechanism, str) else ""
    for name in options:
        if name not in allowed and name != "mechanism":
            matches = get_close_matches(name, allowed, 1, 0.7)
            hint = (
                f"did you mean {matches[0]}?"
                if matches
                else f"the options are {', '.join(sorted(set(allowed) - set(TARGET_OPTIONS)))}."
            )
            raise InvalidParameter(f"{name} is not an option{where}; {hint}")
    missing = [
        name
        for name, parameter in accepted.items()
        if parameter.default is inspect.Parameter.empty and options.get(name) is None
    ]
    if missing:
        raise InvalidParameter(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            f"missing{where.replace(' of ', ' for ')}."
        )
    return {name: value for name, value in options.items() if name in accepted}
