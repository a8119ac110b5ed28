"""Random Rashomon sets, iterated draws, sparse vectors and secure descents, with a delta at eps that a test attains.

Records have linear losses in one dimension. Integrals are sums of Gauss and Legendre over pieces on which the
integrand is analytic (exact to about 1e-13; the margins are 1e-9), tests are half-lines and how many draws lie in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from dplangevin.mechanisms.exponential.spec import ExponentialSpec, IteratedExponentialSpec
from dplangevin.mechanisms.noisy_answers.spec import CorrectedAnswersSpec, NoisyAnswersSpec
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.rashomon.spec import RashomonChainSpec, RashomonSpec
from dplangevin.problem.constants import ADJACENCIES, Constants
from privacy._accountant_draws import Rng, _log, _pick
from privacy._accountant_trials import Floats, Trial, Truth, gaussian_truth, tests_truth

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_MARGIN = 1e-9
RIDGE = 1e-7
"""Of the slope: strong convexity that theorems about minimisers ask for, and that no test feels."""


def _sides(adjacency: str) -> int:
    return 2 if adjacency == "replace-one" else 1


def _range(rng: Rng) -> float:
    """A bounded range a little above an epsilon that is looked at, so that too small a claim is one of delta = 0."""
    return (
        float(_pick(rng, 0.1, 1.0, 5.0)) * rng.uniform(1.12, 1.2)
        if rng.random() < 0.5
        else _log(rng, 0.05, 8.0)
    )


def _integral(density: Callable[[Floats], Floats], ends: Floats) -> Floats:
    """Over each piece between the ends, each cut into 16: densities fall by e^30 over all of them."""
    fine = np.concatenate([np.linspace(a, b, 17)[:-1] for a, b in pairwise(ends)] + [ends[-1:]])
    half = np.diff(fine) / 2
    points = fine[:-1, None] + half[:, None] * (1 + _NODES)
    pieces = (density(points) * _WEIGHTS).sum(axis=1) * half
    return np.asarray(pieces.reshape(-1, 16).sum(axis=1))


def _beyond(density: Callable[[Floats], Floats], cuts: Floats, breaks: Floats) -> Floats:
    """Pr[x >= cut] for each of the cuts, the first and last of which are the ends of the set."""
    ends = np.unique(np.concatenate([cuts, breaks[(breaks > cuts[0]) & (breaks < cuts[-1])]]))
    masses = _integral(density, ends)
    tails = np.append(np.cumsum(masses[::-1])[::-1], 0.0) / masses.sum()
    return np.asarray(tails[np.searchsorted(ends, cuts)])


def _several(here: Floats, there: Floats, draws: int) -> Truth:
    """At least j of so many draws in a set of these probabilities, or in its complement."""
    power, size = [], []
    for first, second, lost in ((here, there, 0.0), (1 - here, 1 - there, 1e-14)):  # complements lose digits
        for a, b in ((first, second), (second, first)):
            for j in range(1, draws + 1):
                power.append(binom.sf(j - 1, draws, np.maximum(a - lost, 0.0)))
                size.append(binom.sf(j - 1, draws, b + lost))
    margin = draws * _MARGIN
    return tests_truth(np.concatenate(power) * (1 - margin), np.concatenate(size) * (1 + margin) + 1e-300)


def _slopes(rng: Rng, adjacency: str, width: float) -> tuple[int, tuple[float, float]]:
    """n and (beta times) the slopes of neighbours: all records push one way, one turns round, or leaves.

    The law falls by e^-A over a set of length 1; the steeper, the closer one record comes to its whole range.
    """
    steep = rng.uniform(5.0, 26.0)
    n = max(2, round(_sides(adjacency) * steep / width))
    steep = n * width / _sides(adjacency)
    return n, (steep, steep - width)


def rashomon_draws(rng: Rng) -> Trial:
    """K draws of exp(-beta h(F - F*)) on [0, 1] for linear F, whose minimum is at 0."""
    adjacency, loss, width = _pick(rng, *ADJACENCIES), 10.0 ** int(rng.integers(-12, 13)), _range(rng)
    draws = int(rng.integers(1, 5))
    n, slopes = _slopes(rng, adjacency, width)
    beta = slopes[0] / loss  # every record has slope `privacy_loss`, but for one
    psi, ramp = (float(_pick(rng, 0.0, rng.uniform(0, 0.5))) * loss for _ in range(2))
    cuts = np.linspace(0.0, 1.0, 81)

    def law(slope: float) -> Floats:
        top, rise = slope / beta, RIDGE * loss / 2

        def height(x: Floats) -> Floats:
            excess = top * x + rise * x**2 - psi
            if ramp == 0:
                return np.maximum(excess, 0.0)
            return np.where(excess < ramp, np.maximum(excess, 0.0) ** 2 / (2 * ramp), excess - ramp / 2)

        ends = [_solved(top, rise, level) for level in (psi, psi + ramp)]
        return _beyond(lambda x: np.exp(-beta * height(x)), cuts, np.array(ends))

    truth = _several(law(slopes[0])[1:-1], law(slopes[1])[1:-1], draws)
    constants = Constants(
        n=n, lipschitz=loss, smoothness=loss, strong_convexity=RIDGE * loss, diameter=1.0, dimension=1,
        adjacency=adjacency,
    )  # fmt: skip
    tolerance = 1e-11 * n * loss
    spec = RashomonSpec(
        n_models=draws,
        threshold=psi,
        ramp=ramp,
        inverse_temperature=beta,
        tolerance=tolerance,
        max_excess=2 * loss,
    )
    return Trial(kind="rashomon draws", constants=constants, spec=spec, truth=truth)


def _solved(top: float, rise: float, level: float) -> float:
    """Where top x + rise x^2 = level."""
    if level == 0:  # also where F is flat, top = 0
        return 0.0
    return 2 * level / (top + math.sqrt(top**2 + 4 * rise * level))


def rashomon_chains(rng: Rng) -> Trial:
    """Chains far from the minimiser of a linear F: each step moves by eta beta Delta, the stopping time is public."""
    adjacency, n, loss = (
        _pick(rng, *ADJACENCIES),
        int(rng.integers(2, 1000)),
        10.0 ** int(rng.integers(-12, 13)),
    )
    chains, steps = int(rng.integers(1, 5)), int(_pick(rng, 2, 3, rng.integers(4, 60)))
    sides, mu = _sides(adjacency), _log(rng, 0.02, 3.0)
    eta = 1e-3
    beta = mu * math.sqrt(2 / eta) * n / (sides * loss)  # one step is mu-GDP: beta Delta sqrt(eta / 2)
    ridge = 1e-12 * loss / max(eta * beta * loss, 1.0) / steps  # the walk does not feel it
    diameter = 2.1 * loss / ridge
    constants = Constants(
        n=n, lipschitz=loss, smoothness=2 * ridge, strong_convexity=ridge, diameter=diameter, dimension=1,
        adjacency=adjacency,
    )  # fmt: skip
    spec = RashomonChainSpec(
        n_models=chains, threshold=0.0, inverse_temperature=beta, tolerance=1e-11 * n * loss,
        full_lipschitz=loss + ridge * diameter, step_size=eta, n_steps=steps, interior_minimizers=True,
        release=_pick(rng, "last-iterate", "trajectory"),
    )  # fmt: skip
    stops = range(max(1, steps // 2), max(2, steps))
    known = [gaussian_truth(mu * math.sqrt(chains * stop) * (1 - 1e-9)) for stop in stops]

    def truth(eps: float) -> float:  # the coin is seen
        return sum(each(eps) for each in known) / len(known)

    return Trial(kind="rashomon chains", constants=constants, spec=spec, truth=truth)


def iterated(rng: Rng) -> Trial:
    """A draw on [0, 1], then one within r of it: the first in [c, 1 - r], and the second so far above the first."""
    adjacency, loss, width = _pick(rng, *ADJACENCIES), 10.0 ** int(rng.integers(-12, 13)), _range(rng)
    sides, share, radius = _sides(adjacency), rng.uniform(0.2, 0.8), 10.0 ** rng.uniform(-2.5, -1.5)
    widths = (share * width, (1 - share) * width)
    n = max(2, round(sides * rng.uniform(8.0, 26.0) / width))
    betas = (widths[0] * n / (sides * loss), widths[1] * n / (sides * loss * 2 * radius))
    constants = Constants(
        n=n, lipschitz=loss, smoothness=loss, diameter=1.0, dimension=1, adjacency=adjacency
    )
    spec = IteratedExponentialSpec(
        draws=tuple(ExponentialSpec(inverse_temperature=beta) for beta in betas), radii=(radius,)
    )
    cuts = (
        np.linspace(radius, 1 - radius, 61)[:-1],
        np.linspace(0.0, 1.0, 61)[:-1],
    )  # of the first; of the second's way

    def law(slope: float) -> Floats:  # the density e^(-a x) on an interval of length 1, a = beta slope length
        a, b = betas[0] * slope, betas[1] * slope * 2 * radius
        first = (np.exp(-a * cuts[0]) - math.exp(-a * (1 - radius))) / -math.expm1(-a)
        second = (np.exp(-b * cuts[1]) - math.exp(-b)) / -math.expm1(-b)
        return np.asarray(np.outer(first, second).ravel())

    here, there = law(loss), law(loss * (1 - sides / n))
    truth = tests_truth(
        np.concatenate([here, there]) * (1 - _MARGIN),
        np.concatenate([there, here]) * (1 + _MARGIN) + 1e-300,
    )
    return Trial(kind="iterated", constants=constants, spec=spec, truth=truth)


def sparse_vector(rng: Rng) -> Trial:
    """One count: the noise stays where no hit is found, else a Laplace answer: a location family, moved by D."""
    unit, p = 10.0 ** int(rng.integers(-12, 13)), float(_pick(rng, 1.0, 2.0))
    shift, search, answer = _log(rng, 0.02, 1.0), _log(rng, 0.01, 1.0), _log(rng, 0.05, 3.0)
    level = float(_pick(rng, 0.0, 1.0, rng.uniform(0, 3)))
    if (
        rng.random() < 0.5
    ):  # an error that is found more often than not: the answer is nearly all that is seen
        p, shift, search, answer, level = 1.0, 0.03, 0.03, _range(rng) / 1.02, 0.0
    scales = 4 / search, 2 / search  # in units of D, as everything below
    noise = NoisyAnswersSpec(answers=1, changed=1, sensitivity=unit, p=p, sigma=unit / shift)
    spec = CorrectedAnswersSpec(
        noise=noise,
        max_corrections=1,
        search_epsilon=search,
        answer_epsilon=answer,
        threshold=level * unit / shift,
    )

    def density(x: Floats) -> Floats:
        first = np.exp(-(np.abs(shift * x) ** p)) * shift / (2 * math.gamma(1 + 1 / p))
        return np.asarray(first * (1 - _hit(np.abs(x) - level / shift, *scales)))

    far = 40 / min(shift, answer)
    ends = np.unique(np.concatenate([np.linspace(-far, far, 201), [0.0, -level / shift, level / shift]]))
    missed = float(_integral(density, ends).sum())
    cuts = np.concatenate([np.linspace(-8, 9, 171) / answer, np.linspace(-8, 9, 86) / shift])

    def beyond(at: float) -> Floats:
        """Pr[released >= cut] of the count `at`, in units of D."""
        places = np.clip(cuts - at, -far, far)
        order = np.unique(np.concatenate([ends, places]))
        tails = np.append(np.cumsum(_integral(density, order)[::-1])[::-1], 0.0)
        laplace = np.where(
            places > 0, np.exp(-answer * np.abs(places)) / 2, 1 - np.exp(-answer * np.abs(places)) / 2
        )
        return np.asarray(tails[np.searchsorted(order, places)] + (1 - missed) * laplace)

    return Trial(kind="sparse vector", constants=None, spec=spec, truth=_several(beyond(1.0), beyond(0.0), 1))


def _hit(lead: Floats, u: float, v: float) -> Floats:
    """Pr[lead + Lap(u) >= Lap(v)]."""
    size = np.abs(lead)
    tail = (u**2 * np.exp(-size / u) - v**2 * np.exp(-size / v)) / (2 * (u**2 - v**2))
    return np.where(lead > 0, 1 - tail, tail)


def exact_descent(rng: Rng) -> Trial:
    """Whole numbers: two records at the bound in every step, whose noise is rounded to 2^-20 of its size."""
    adjacency, n, steps = _pick(rng, *ADJACENCIES), int(rng.integers(1, 1000)), int(rng.integers(1, 40))
    sides, lipschitz = _sides(adjacency), 10.0 ** int(rng.integers(-12, 13))
    ratio = _log(rng, 0.01, 2.0) / (sides * math.sqrt(steps))  # a record over the noise of a step
    constants = Constants(n=n, lipschitz=lipschitz, smoothness=lipschitz, adjacency=adjacency, dimension=1)
    spec = NoisyGradientSpec(
        step_size=1.0, noise_std=lipschitz / (n * ratio), n_steps=steps, secure=True,
        release=_pick(rng, "last-iterate", "trajectory"),
    )  # fmt: skip
    lost = 2.0**-20 * math.sqrt(steps)  # rounding of every step, in units of the noise of the sum
    mu = sides * ratio * math.sqrt(steps)
    cuts = np.linspace(-9, 9 + mu, 1201)
    inner, outer = ndtr(mu - cuts - lost), ndtr(-cuts + lost)
    mirrored = ndtr(cuts - lost), ndtr(cuts - mu + lost)
    truth = tests_truth(
        np.concatenate([inner, mirrored[0]]) * (1 - _MARGIN),
        np.concatenate([outer, mirrored[1]]) * (1 + _MARGIN) + 1e-300,
    )
    return Trial(kind="exact descent", constants=constants, spec=spec, truth=truth)


SETS: tuple[Callable[[Rng], Any], ...] = (
    rashomon_draws,
    rashomon_chains,
    iterated,
    sparse_vector,
    exact_descent,
)
