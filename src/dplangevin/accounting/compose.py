"""Composition of the parts of a guarantee, and every number that is reported of the result.

Epsilon at delta and delta at epsilon. All GDP: exact. All pure: the sum with delta = 0. Otherwise the smallest of Renyi
composition, privacy loss distributions (dp-accounting) where every part has a dominating pair, and basic composition
for the rest. Every candidate is a valid bound, so the smallest one is.

Further conversions: the Renyi divergence, zCDP, the trade-off curve, and an attacker's advantage. Every number is
rounded to the safe side: divergences and advantages up, error rates of attacks down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.conversions import response_delta, response_epsilon
from dplangevin.accounting.parts import Gaussian, PrivacyPart, PrivacyParts, Pure
from dplangevin.accounting.pld import LOSS_GRID, connect_the_dots
from dplangevin.errors import InvalidParameter

_MIN_GRID = np.array([1.01])
_MAX_CELLS = 600_000
_MAX_FINE_CELLS = 60_000


def gaussian_mu(parts: PrivacyParts) -> float | None:
    """Return mu of the composition when every part is Gaussian, else None; rounded up."""
    if not all(isinstance(part, Gaussian) for part in parts):
        return None
    counts_and_mus = [(part.count, part.mu) for part in parts if isinstance(part, Gaussian)]
    largest = max((mu for _, mu in counts_and_mus), default=0.0)
    if largest in (0.0, math.inf) or counts_and_mus == [(1, largest)]:
        return largest
    # in units of the largest, so that no square underflows; rounded up
    squares = math.fsum(count * (mu / largest) ** 2 for count, mu in counts_and_mus)
    return math.nextafter(largest * math.sqrt(squares) * (1 + 4e-16), math.inf)


def compose_renyi(parts: PrivacyParts, orders: Floats) -> Floats | None:
    """Return the sum of the Renyi curves, or None when a part has none."""
    total = np.zeros_like(orders)
    for part in parts:
        curve = part.rdp(orders)
        if curve is None:
            return None
        total = total + part.count * curve
    return total


@lru_cache(maxsize=32)
def compose_pld(parts: PrivacyParts) -> Any | None:
    """Return the composed privacy loss distribution; None when it would be too large or a part has none.

    A part without a dominating pair of its own takes that of its curve delta(eps), but only where some part has no
    Renyi curve, so that Renyi composition is impossible.
    """
    grid = _choose_grid(parts)
    if grid is None:
        return None
    total = None
    mixed = any(part.rdp(_MIN_GRID) is None for part in parts)
    for part in parts:
        pld = part.pld(grid)
        if pld is None and mixed:
            pld = _curve_pld(part, grid)
        if pld is None:
            return None
        pld = _self_compose_pld(pld, part.count)
        total = pld if total is None else total.compose(pld)
    return total


def _curve_pld(part: PrivacyPart, grid: float) -> Any | None:
    """Return a dominating distribution from delta(eps) of a part, which holds in both directions."""
    top = part.epsilon(1e-15)
    if not math.isfinite(top):
        return None
    epsilons = np.concatenate([[0.0], np.geomspace(max(top, 1e-9) * 1e-4, max(top, 1e-9), 400)])
    deltas = np.minimum.accumulate([part.delta(float(value)) for value in epsilons])
    return connect_the_dots(epsilons, deltas, grid)


def _self_compose_pld(pld: Any, count: int) -> Any:
    """Compose a distribution with itself in two stages: dp-accounting's sparse sizes grow as a power of the count."""
    if count <= 256:
        return pld.self_compose(count) if count > 1 else pld
    blocks, rest = divmod(count, 256)
    total = pld.self_compose(256, tail_mass_truncation=1e-16 / blocks).self_compose(blocks)
    return total.compose(pld.self_compose(rest)) if rest else total


def _choose_grid(parts: PrivacyParts) -> float | None:
    """Choose the grid of losses: any is valid, a finer one is tighter. None where time or memory would be too large.

    It grows (by powers of two) with the losses, and shrinks to a quarter of a small loss that is composed many times.
    """
    curve = compose_renyi(parts, cv.ORDERS)
    span = sum(part.count * part.pure_epsilon() for part in parts)
    if curve is not None:
        span = min(span, cv.rdp_epsilon(cv.ORDERS, curve, 1e-15))
    elif math.isinf(span):
        span = sum(_loss_span(part) for part in parts)
    if not math.isfinite(span) or span > 1e4:
        return None
    coarse = LOSS_GRID * 2.0 ** max(0, math.ceil(math.log2(max(span, 1e-9) / 60)))
    grid = coarse
    for part in parts:
        scale = _typical_loss(part, span)
        if part.count > 1 and 0 < scale < 4 * grid:
            grid = max(2.0 ** math.floor(math.log2(scale / 4)), coarse / 4096, span / _MAX_FINE_CELLS)
    grid = min(grid, coarse)
    # rounding a loss of size s to a grid g > s gives it the variance s g
    spread = sum(
        part.count * _typical_loss(part, span) * max(_typical_loss(part, span), grid) for part in parts
    )
    if 20 * math.sqrt(spread) < 4 * _MAX_CELLS * grid:
        return grid
    max_loss = sum(part.count * (part.epsilon(max(1e-15, part.min_delta())) + grid) for part in parts)
    return grid if max_loss < 4 * _MAX_CELLS * grid else None


def _loss_span(part: PrivacyPart) -> float:
    """Return a loss that `count` uses of a part exceed with negligible probability."""
    single = part.epsilon(max(1e-15 / part.count, part.min_delta()))
    return min(part.count, 10 * math.sqrt(part.count) + part.count * math.tanh(single / 2)) * single


def _typical_loss(part: PrivacyPart, span: float) -> float:
    """Return the approximate standard deviation of the loss of one use."""
    curve = part.rdp(_MIN_GRID)
    if curve is None or not np.isfinite(curve[0]):
        return min(part.epsilon(max(1e-15, part.min_delta())), span)
    return min(math.sqrt(2 * float(curve[0])), span)


def _equal_responses(parts: PrivacyParts) -> tuple[float, int] | None:
    """Return (eps0, count) where several uses are all eps0-DP with one eps0, which compose exactly; else None."""
    if not all(isinstance(part, Pure) for part in parts) or (len(parts) == 1 and parts[0].count == 1):
        return None
    values = {part.pure_epsilon() for part in parts}
    return (values.pop(), sum(part.count for part in parts)) if len(values) == 1 else None


class _Question(NamedTuple):
    """Epsilon at delta, or delta at epsilon: how each representation of a guarantee answers it."""

    part: Callable[[PrivacyPart, float], float]
    curve: Callable[[Floats, Floats, float], float]
    responses: Callable[[float, int, float], float]
    losses: Callable[[Any, float], float]


LOSS_ROUNDING = 3e-14
"""Added to a delta of composed privacy loss distributions for what Fourier transforms round: where the truth is below
1e-15 they gave answers down to -6e-15."""


def _epsilon_of_losses(losses: Any, delta: float) -> float:
    if not delta > LOSS_ROUNDING:
        return math.inf
    return float(losses.get_epsilon_for_delta(delta - LOSS_ROUNDING))


def _delta_of_losses(losses: Any, epsilon: float) -> float:
    return max(float(losses.get_delta_for_epsilon(epsilon)), 0.0) + LOSS_ROUNDING


_EPSILON = _Question(
    lambda part, delta: part.epsilon(delta), cv.rdp_epsilon, response_epsilon, _epsilon_of_losses
)
_DELTA = _Question(lambda part, epsilon: part.delta(epsilon), cv.rdp_delta, response_delta, _delta_of_losses)


def _candidate_answers(
    parts: PrivacyParts, question: _Question, given: float, basic: Callable[[], float], *, always: bool
) -> Iterator[float]:
    """Yield valid bounds; basic composition of several uses `always`, or only where nothing else gives a bound."""
    single = len(parts) == 1 and parts[0].count == 1
    if single:
        yield question.part(parts[0], given)
    curve = compose_renyi(parts, cv.ORDERS)
    if curve is not None:
        yield question.curve(cv.ORDERS, curve, given)
    equal = _equal_responses(parts)
    if equal is not None:
        yield question.responses(*equal, given)
    elif not single:
        losses = compose_pld(parts)
        if losses is not None:
            yield question.losses(losses, given)
        # with a curve, basic composition is never much better than Renyi composition
        if always or (losses is None and curve is None):
            yield basic()


def compose_epsilon(parts: PrivacyParts, delta: float) -> float:
    """Return the smallest proved epsilon at delta."""
    if not parts:
        return 0.0
    mu = gaussian_mu(parts)
    if mu is not None:
        return cv.gdp_epsilon(mu, delta)
    candidates = [sum(part.count * part.pure_epsilon() for part in parts)]
    if delta > 0:
        _extend_until_overflow(
            candidates,
            _candidate_answers(parts, _EPSILON, delta, lambda: _basic_epsilon(parts, delta), always=True),
        )
    return _smallest_valid(candidates)


def compose_delta(parts: PrivacyParts, epsilon_: float) -> float:
    """Return the smallest proved delta at epsilon."""
    if not parts:
        return 0.0
    mu = gaussian_mu(parts)
    if mu is not None:
        return float(cv.gdp_delta(mu, epsilon_))
    if epsilon_ >= sum(part.count * part.pure_epsilon() for part in parts):
        return 0.0
    candidates = [1.0]
    _extend_until_overflow(
        candidates,
        _candidate_answers(parts, _DELTA, epsilon_, lambda: _basic_delta(parts, epsilon_), always=False),
    )
    return min(1.0, _smallest_valid(candidates))


def _extend_until_overflow(candidates: list[float], bounds: Iterator[float]) -> None:
    """Append bounds until a formula overflows: the bounds before it are valid."""
    with suppress(ArithmeticError):
        for candidate in bounds:
            candidates.append(candidate)


def _basic_epsilon(parts: PrivacyParts, delta_: float) -> float:
    """Return epsilon by basic composition; delta is split over all uses, or between Renyi parts and the rest."""
    best = _split_delta_evenly(parts, delta_)
    renyi_parts = tuple(part for part in parts if part.rdp(_MIN_GRID) is not None)
    other_parts = tuple(part for part in parts if part not in renyi_parts)
    if not renyi_parts or not other_parts:
        return best
    curve = compose_renyi(renyi_parts, cv.ORDERS)
    assert curve is not None
    free_delta = delta_ - sum(part.count * part.min_delta() for part in other_parts)
    for delta_fraction in (0.5, 0.1, 0.01, 0.9, 0.99) if free_delta > 0 else ():
        total = _split_delta_evenly(other_parts, delta_ - delta_fraction * free_delta)
        best = min(best, total + cv.rdp_epsilon(cv.ORDERS, curve, delta_fraction * free_delta))
    return best


def _split_delta_evenly(parts: PrivacyParts, delta_: float) -> float:
    """Return the sum of epsilons when every use gets its minimal delta and an equal share of the remaining delta."""
    free_delta = delta_ - sum(part.count * part.min_delta() for part in parts)
    if free_delta < 0:
        return math.inf
    share = free_delta / sum(part.count for part in parts) * (1 - 1e-12)
    return sum(part.count * part.epsilon(part.min_delta() + share) for part in parts)


def _smallest_valid(candidates: list[float]) -> float:
    valid = [value for value in candidates if not math.isnan(value)]
    return min(valid) if valid else math.inf


def _basic_delta(parts: PrivacyParts, epsilon_: float) -> float:
    """Return the smallest delta, by bisection of its logarithm, at which basic composition gives eps; 1 if none."""
    if _basic_epsilon(parts, 1 - 1e-12) > epsilon_:
        return 1.0
    log_delta = bisect_safe_side(
        lambda log: _basic_epsilon(parts, math.exp(log)) <= epsilon_, 0.0, math.log(1e-300), rounds=100
    )
    return math.exp(log_delta)


_ROUNDING_FACTOR = 1 + 1e-12
_EPSILON_LEVELS = 49
_EXCEEDED_PROBABILITIES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)


def renyi_divergence(parts: tuple[PrivacyPart, ...], orders: ArrayLike) -> Floats:
    """Return the Renyi divergence at orders > 1 (infinity gives the largest loss); infinite where none is proved."""
    alpha = np.atleast_1d(np.asarray(orders, float))
    if alpha.size == 0 or not bool(np.all(alpha > 1)):
        raise InvalidParameter("orders must be numbers above 1, such as 2 or [2, 8, 32].")
    finite = np.isfinite(alpha)
    curve = compose_renyi(parts, np.where(finite, alpha, 2.0))
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
