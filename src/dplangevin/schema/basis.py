"""Piecewise-linear functions of a numeric column on public knots, in coordinates whose ridge is a smoothness penalty.

A function with values v_1, ..., v_k at the knots is v = a 1 + T beta with T = [s / sqrt 2, D^T M]: s are the knots on
the scale of [-1, 1], D takes second differences and M = (D D^T + smooth (D D^T)^2)^(-1/2) is the symmetric root. The
columns of D^T M are at right angles to straight lines, and for v = D^T M gamma

    |gamma|^2 = |v|^2 + smooth |D v|^2,

so the ridge on beta is one on (twice) the squared slope, on the distance from a straight line, and on second
differences. The constant a belongs to the constant column of the table. A cell x is the row T^T h(x), with h(x) the
hat functions of the knots (at most two are not 0; they add up to 1). |T^T h|^2 is convex in h, and h(x) is linear
between knots, so its largest value over the whole range is the largest over the knots: `bound` is exact. The problem
that is solved has rows of bounded norm and one isotropic ridge, as any other: no theorem needs to know of hats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_HATS = 200
LEAST_GAP = 1e-6
"""Knots are at least this share of the range apart: nearer ones are lost in rounding."""
LINE = math.sqrt(0.5)
"""Weight of the straight line: at the ends of the range, where it is largest, the row is hardly longer than inside."""
Monotone = Literal["increasing", "decreasing"]


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Hat functions of a numeric column: `hats` equal parts of its range, or stated knots.

    Parameters
    ----------
    hats : number of knots, the two ends of the range among them (2: a straight line).
    knots : instead of hats, the knots inside the range, in the units of the table.
    smooth : weight of squared second differences in the penalty, beside the squared distance from a straight line.

    Examples
    --------
    >>> Basis(hats=5).places(0.0, 100.0)
    (0.0, 25.0, 50.0, 75.0, 100.0)
    """

    hats: int | None = None
    knots: tuple[float, ...] | None = None
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if (self.hats is None) == (self.knots is None):
            raise InvalidParameter("basis needs either 'hats', a number, or 'knots', a list of numbers.")
        _check.put(self, smooth=_check.nonnegative("basis.smooth", self.smooth))
        if self.hats is not None:
            _check.put(self, hats=_check.count("basis.hats", self.hats, least=2))
            if self.hats > MOST_HATS:
                raise InvalidParameter(f"basis.hats must be at most {MOST_HATS}, got {self.hats}.")
        elif not isinstance(self.knots, (list, tuple)) or not 0 < len(self.knots) <= MOST_HATS - 2:
            raise InvalidParameter(f"basis.knots must be a list of 1 to {MOST_HATS - 2} numbers.")
        else:
            places = tuple(_number(place) for place in self.knots)
            if any(not first < second for first, second in pairwise(places)):
                raise InvalidParameter(f"basis.knots must be numbers that increase, got {list(self.knots)}.")
            _check.put(self, knots=places)

    @classmethod
    def from_dict(cls, where: str, entry: object) -> Basis:
        """The basis of the file format: {"hats": 8} or {"knots": [...]}, and "smooth"."""
        if not isinstance(entry, Mapping) or set(entry) - {"hats", "knots", "smooth"}:
            raise InvalidParameter(
                f"{where}.basis must be a table such as {{'hats': 8}}, with 'hats' or 'knots', and 'smooth'."
            )
        return cls(**entry)

    def to_dict(self) -> dict[str, Any]:
        """The basis as in the file format."""
        found: dict[str, Any] = {"hats": self.hats} if self.knots is None else {"knots": list(self.knots)}
        return found | ({"smooth": self.smooth} if self.smooth else {})

    def places(self, low: float, high: float) -> tuple[float, ...]:
        """All knots of a column with this range, on the scale on which hats are equal."""
        if self.hats is not None:
            last = self.hats - 1
            return (*(low + (high - low) * place / last for place in range(last)), high)
        assert self.knots is not None
        return (low, *self.knots, high)

    def check(self, name: str, low: float, high: float) -> None:
        """Refuse knots outside the stated range."""
        if self.knots is not None and not (low < self.knots[0] and self.knots[-1] < high):
            raise InvalidParameter(
                f"columns.{name}.basis.knots must lie inside the range, between {low:g} and {high:g}; its two ends "
                "are knots already."
            )

    @staticmethod
    def check_gaps(name: str, knots: tuple[float, ...]) -> None:
        """Refuse knots, on the scale of the transform, that rounding would put in one place."""
        if not min(second - first for first, second in pairwise(knots)) >= LEAST_GAP * (knots[-1] - knots[0]):
            raise InvalidParameter(
                f"columns.{name}.basis has knots less than {LEAST_GAP:g} of the range apart; state fewer of them, or a "
                "range that holds them apart."
            )


@lru_cache(maxsize=256)
def coordinates(places: tuple[float, ...], smooth: float) -> NDArray[np.float64]:
    """T [k, k - 1]: the rows of the knots themselves. `places` are on the scale of [-1, 1].

    Examples
    --------
    >>> coordinates((-1.0, 0.0, 1.0), 0.0).round(3).tolist()
    [[-0.707, 0.408], [0.0, -0.816], [0.707, 0.408]]
    """
    import numpy as np

    scale = np.asarray(places, np.float64)
    if len(scale) == 2:
        table = scale[:, None]
    else:
        widths = np.diff(scale) / np.mean(np.diff(scale))
        second = np.zeros((len(scale) - 2, len(scale)))
        inner = np.arange(len(scale) - 2)
        second[inner, inner], second[inner, inner + 2] = 1 / widths[:-1], 1 / widths[1:]
        second[inner, inner + 1] = -1 / widths[:-1] - 1 / widths[1:]
        left, sizes, right = np.linalg.svd(second.T, full_matrices=False)
        with np.errstate(over="ignore"):
            bends = (left / np.sqrt(1 + smooth * sizes**2)) @ right  # D^T M, without squares of D
        table = np.column_stack([LINE * scale, bends])
    table.setflags(write=False)
    return table


def bound(table: NDArray[np.float64]) -> float:
    """The largest squared norm of a row of this column, over all of its range."""
    return float((table * table).sum(axis=1).max()) * (1 + 1e-12)


def _number(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else math.nan
