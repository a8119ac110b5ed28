"""Coordinates from noisy second moments: what is resolved, how far a row may reach, and how long a step may be.

Everything here is a function of released matrices and public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
HEDGED = 0.4
"""Power of the spectrum that whitens after one look: short of 1/2, since small eigenvalues are guesses."""
WHITE = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum:
    """Eigenvalues and vectors of a second moment of which a noisy version is known.

    Parameters
    ----------
    values : cleaned of the inflation by noise where they are resolved; elsewhere all alike.
    vectors : in columns. resolved : which eigenvalues stand out of the noise.
    top : bounds on the second moment along the vectors, for step sizes only.
    edge : of the spectrum of the noise.
    """

    values: Floats
    vectors: Floats
    resolved: NDArray[np.bool_]
    top: Floats
    edge: float


def spectrum(noisy: Floats, noise: float, fine: bool) -> Spectrum:
    """Symmetric noise of deviation `noise` has its spectrum within f = noise sqrt(2 p) (the semicircle's edge).

    An eigenvalue e > f / 2 appears as v = e + f^2 / (4 e) > f, which is undone. What is left of the trace (at most 1)
    is shared by the unresolved directions.
    """
    size = len(noisy)
    edge = noise * math.sqrt(2 * size)
    found, vectors = np.linalg.eigh(noisy)
    # signs are arbitrary: fixed here, so that sums in another order give the same coordinates, up to rounding
    vectors *= np.where(np.cos(1.0 + np.arange(size)) @ vectors < 0, -1.0, 1.0)
    resolved = found > edge
    values = np.empty(size)
    values[resolved] = (found[resolved] + np.sqrt((found[resolved] - edge) * (found[resolved] + edge))) / 2
    if not resolved.all():
        left = (min(float(np.trace(noisy)), 1.0) - values[resolved].sum()) / int((~resolved).sum())
        low = edge / 8 if fine else edge / (2 * size)
        values[~resolved] = min(max(left, low), edge / 2)
    top = np.where(resolved, found + edge / 2, 0.75 * edge)
    return Spectrum(values=values, vectors=vectors, resolved=resolved, top=top, edge=edge)


class Frame(NamedTuple):
    """Coordinates B (in columns) and the bound R on what a row may be in them.

    earlier : e with |B_1' x|^2 / R_1^2 = sum_j e_j (B' x)_j^2, for coordinates made within earlier ones.
    """

    basis: Floats
    bound: float
    earlier: Floats | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """Coordinates q with theta = B q, for rows of norm at most 1.

    Parameters
    ----------
    frame : of the weights: w = min(1, R / |B' x|), and after a second look min(w_1^2, R / |B' x|), w_1 the weights of
        the first one, with which the second moment was measured, so that steps stay safe.
    moments : expected second moment of each coordinate. tops : bounds on them, for step sizes.
    spectrum : of the last look.
    """

    frame: Frame
    moments: Floats
    tops: Floats
    spectrum: Spectrum


def first_look(noisy: Floats, noise: float, fine: bool, room: float = 1.0) -> Geometry:
    """B = U e^-power, R = room sqrt(sum of the expected second moments)."""
    found = spectrum(noisy, noise, fine)
    power = WHITE if fine else HEDGED
    basis = found.vectors * found.values**-power
    moments = np.ones(len(noisy)) if fine else found.values ** (1 - 2 * power)
    frame = Frame(basis, room * math.sqrt(float(moments.sum())))
    return Geometry(
        frame=frame, moments=moments, tops=found.top * found.values ** (-2 * power), spectrum=found
    )


def second_look(first: Geometry, noisy: Floats, noise: float, room: float = 1.0) -> Geometry:
    """Coordinates within the first ones, from the second moment of w B' x / R.

    B' x = e^-1/2 U' (B_1' x) / R_1 with U orthogonal, so that |B_1' x| / R_1 can be read off B' x.
    """
    found = spectrum(noisy, noise, True)
    basis = (first.frame.basis / first.frame.bound) @ (found.vectors * found.values**-WHITE)
    return Geometry(
        frame=Frame(basis, room * math.sqrt(len(noisy)), found.values),
        moments=np.ones(len(noisy)),
        tops=found.top / found.values,
        spectrum=found,
    )


def whitened(rows: Floats, frame: Frame) -> tuple[Floats, Floats]:
    """Weights w of rows x with |w B' x| <= R, and B' x.

    A weight depends on its own row and on released values only. The comparison at the end is what the promise rests on:
    it holds for every B, R and row, finite or not.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        coordinates = rows @ frame.basis
        if frame.earlier is None:
            lengths = np.sqrt(np.einsum("ij,ij->i", coordinates, coordinates))
            weights = np.minimum(1.0, frame.bound / lengths)
        else:  # |B' x|^2 and (|B_1' x| / R_1)^2, in one product
            both = (coordinates * coordinates) @ np.column_stack([np.ones_like(frame.earlier), frame.earlier])
            lengths = np.sqrt(both[:, 0])
            weights = np.minimum(np.minimum(1.0, frame.bound / lengths), 1 / both[:, 1])
        inside = weights * lengths <= frame.bound * (1 + 1e-12)
    return np.where(inside, weights, 0.0), coordinates
