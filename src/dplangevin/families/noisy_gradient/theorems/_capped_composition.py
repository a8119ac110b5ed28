"""One block of steps after a known profile: composition up to a cap, forgetting beyond it (B5).

A pair (P, P') with H_g(P || P') <= d(g) for every g >= 0 is the image of a pair of likelihood ratio r = dP/dP' with
exactly that profile (Blackwell). A block then maps equal starts to laws with profile H1 and any two starts to laws
with profile H2 <= 1. For a cap G and a factor f put a = min(r, G) and w = (g - f a)_+. Then

    P K - g P' K' = E'[a (K - ((g - w) / a) K')] + (E'[(r - G)_+ K] - E'[w K']),      E' the mean under P',

so  H_g(after) <= E'[a H1((g - w) / a)] + e H2(W / e),    e = d(G),   W = E' w = f (g/f - 1 + d(g/f)).

Where r <= g/f the first argument is f, above it is g / a: what composition would charge. Only the excess over the
cap, of mass e, is charged as two runs from anywhere. G f = g gives the older recursion B3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.privacy._pld import lower_hull

LARGEST = 200.0  # eps beyond it are left to the older recursion: e^eps would overflow
_SHARES = (0.0, 0.05, 0.12, 0.22, 0.36)
"""Where g / f is tried, as shares of the grid."""


@dataclass(frozen=True, kw_only=True)
class Dominating:
    """A pair whose profile is the chords through valid points: ratios gamma_j = e^{j h}, j = 0..n-1, and beyond.

    values : its profile at gamma_j, at most the given one.
    masses : P'(r = gamma_j), rounded up; `beyond` is P'(r > gamma_j), rounded up.
    """

    gamma: Floats
    values: Floats
    masses: Floats
    beyond: Floats


def dominating(epsilons: Floats, deltas: Floats) -> Dominating:
    """The greatest convex minorant in g of the points (e^eps, delta), their mirror images below 1, and (0, 1).

    H_g(P || P') is convex in g and 1 at g = 0; a curve valid in both directions is 1 - g + g d(1/g) below g = 1.
    """
    high = np.exp(epsilons)
    low = 1 / high[:0:-1]
    gamma = np.concatenate([[0.0], low, high])
    values = np.concatenate([[1.0], 1 - low + low * deltas[:0:-1], deltas])
    kept = lower_hull(gamma, values)
    left = values[kept[np.searchsorted(kept, np.arange(len(gamma)), side="right") - 1]]
    chords = np.interp(gamma, gamma[kept], values[kept])
    steps = np.diff(gamma)
    falls = np.append(-np.diff(chords) / steps, 0.0)  # falls[i] = P'(r > gamma_i), up to rounding
    errors = np.append(
        1e-15 * (left[1:] + left[:-1]) / steps, 0.0
    )  # of two chords, each good to 4e-16 of its left end
    values = np.minimum(values, chords + 1e-15 * left)
    n = len(high)
    here, before = slice(len(gamma) - n, None), slice(len(gamma) - n - 1, -1)
    masses = np.maximum(falls[before] - falls[here], 0.0) + errors[before] + errors[here]
    beyond = np.maximum(falls[here], 0.0) + errors[here]
    return Dominating(gamma=high, values=values[here], masses=masses, beyond=beyond)


def capped_sweep(deltas: Floats, epsilons: Floats, first: Floats, second: Floats) -> Floats:
    """The smallest bound over caps, factors and blocks at every eps of a uniform grid from 0.

    first : H1 of each block (rows) on the grid. second : H2 of each block at 0, h, 2h, ..., as far as it is known;
    between grid points the chord in e^eps is above it, past the end the last value is.
    """
    if not epsilons[-1] < LARGEST:
        return deltas
    pair, n, spacing = dominating(epsilons, deltas), len(epsilons), float(epsilons[1])
    size = second.shape[1]
    index = np.arange(n)[:, None] - np.arange(n)[None, :] + n - 1
    fade = np.exp(-epsilons[:0:-1])
    log_values = np.log(pair.values)
    cuts = sorted({int(share * (n - 1)) for share in _SHARES})
    offsets = {}
    for cut in cuts:
        reserve = np.log(pair.gamma[cut] - 1 + pair.values[cut]) - log_values[cut:]
        reserve = np.maximum(reserve * (1 - 1e-14) - 1e-13, 0.0)
        place = np.minimum((reserve / spacing).astype(int), size - n - 1)
        weight = np.expm1(np.clip(reserve - place * spacing, 0.0, spacing)) / np.expm1(spacing)
        offsets[cut] = place, np.clip(weight - 1e-12, 0.0, 1.0)
    better = deltas.copy()
    for same, apart in zip(first, second, strict=True):
        both = np.concatenate([1 - fade + fade * same[:0:-1], same])  # g < 1: the other direction
        charge = both[index]  # H1 at eps_i - eps_j
        paid = np.cumsum(charge * (pair.masses * pair.gamma), axis=1)
        capped = charge * (pair.beyond * pair.gamma)
        for cut in cuts:
            place, weight = offsets[cut]
            rows = np.arange(n - cut)
            below = max(0.0, 1 - (pair.values[cut] + pair.gamma[cut] * pair.beyond[cut]) * (1 - 1e-9))
            at = rows[:, None] + place[None, :]
            far = apart[at] * (pair.values[cut:] * (1 - weight)) + apart[at + 1] * (
                pair.values[cut:] * weight
            )
            total = paid[cut:, cut:] - paid[cut:, cut : cut + 1] + capped[cut:, cut:] + far
            total = total.min(axis=1) + below * same[: n - cut]
            total = np.maximum(total, same[cut:]) * (1 + 1e-9)
            np.minimum(better[cut:], total, out=better[cut:])
    return np.minimum.accumulate(better)
