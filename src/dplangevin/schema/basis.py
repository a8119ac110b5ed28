"""Linear spline basis of a numeric column on public knots, in coordinates whose ridge is a smoothness penalty.

A function with values v_1, ..., v_k at the knots is v = a 1 + T beta with T = [s / sqrt 2, D^T M]: s are the knots
rescaled to [-1, 1], D takes second differences and M = (D D^T + smooth (D D^T)^2)^(-1/2) is the symmetric root. The
columns of D^T M are orthogonal to straight lines, and for v = D^T M gamma

    |gamma|^2 = |v|^2 + smooth |D v|^2,

so the ridge on beta penalizes (twice) the squared slope, the distance from a straight line, and second differences.
The constant a belongs to the intercept column of the table. A cell x is encoded as the row T^T h(x), where h(x) are
the values of the linear B-splines on the knots (at most two are nonzero; they sum to 1). |T^T h|^2 is convex in h and
h(x) is linear between knots, so its maximum over the range is attained at a knot: `max_squared_norm` is exact. The
problem that is solved has rows of bounded norm and one isotropic ridge, so every privacy theorem applies unchanged.
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

MAX_KNOTS = 200
MIN_KNOT_GAP = 1e-6
"""Smallest gap between knots, as a fraction of the range: closer knots coincide after rounding."""
LINEAR = math.sqrt(0.5)
"""Weight of the linear coordinate, chosen so that rows at the ends of the range are hardly longer than inside it."""
Monotone = Literal["increasing", "decreasing"]


@dataclass(frozen=True, kw_only=True)
class SplineBasis:
    """Linear spline basis of a numeric column, on `n_knots` equally spaced knots or on the knots given.

    Parameters
    ----------
    n_knots : number of knots, including the two ends of the range (2: a straight line).
    knots : instead of n_knots, the interior knots, in the units of the table.
    smooth : weight of the squared second differences in the penalty, added to the squared distance from a straight
        line.

    Examples
    --------
    >>> SplineBasis(n_knots=5).knot_positions(0.0, 100.0)
    (0.0, 25.0, 50.0, 75.0, 100.0)
    """

    n_knots: int | None = None
    knots: tuple[float, ...] | None = None
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if (self.n_knots is None) == (self.knots is None):
            raise InvalidParameter("basis needs either 'n_knots', a number, or 'knots', a list of numbers.")
        _check.set_frozen(self, smooth=_check.check_nonnegative("basis.smooth", self.smooth))
        if self.n_knots is not None:
            _check.set_frozen(self, n_knots=_check.check_count("basis.n_knots", self.n_knots, minimum=2))
            if self.n_knots > MAX_KNOTS:
                raise InvalidParameter(f"basis.n_knots must be at most {MAX_KNOTS}, got {self.n_knots}.")
        elif not isinstance(self.knots, (list, tuple)) or not 0 < len(self.knots) <= MAX_KNOTS - 2:
            raise InvalidParameter(f"basis.knots must be a list of 1 to {MAX_KNOTS - 2} numbers.")
        else:
            positions = tuple(_read_number(knot) for knot in self.knots)
            if any(not first < second for first, second in pairwise(positions)):
                raise InvalidParameter(f"basis.knots must be increasing numbers, got {list(self.knots)}.")
            _check.set_frozen(self, knots=positions)

    @classmethod
    def from_dict(cls, where: str, entry: object) -> SplineBasis:
        """Return the basis of a file entry: {"n_knots": 8} or {"knots": [...]}, optionally with "smooth"."""
        if not isinstance(entry, Mapping) or set(entry) - {"n_knots", "knots", "smooth"}:
            raise InvalidParameter(
                f"{where}.basis must be a table such as {{'n_knots': 8}}, with 'n_knots' or 'knots', and optionally "
                "'smooth'."
            )
        return cls(**entry)

    def to_dict(self) -> dict[str, Any]:
        """Return the basis as an entry of the file format."""
        entry: dict[str, Any] = (
            {"n_knots": self.n_knots} if self.knots is None else {"knots": list(self.knots)}
        )
        return entry | ({"smooth": self.smooth} if self.smooth else {})

    def knot_positions(self, low: float, high: float) -> tuple[float, ...]:
        """Return all knots of a column with this range, its two ends included."""
        if self.n_knots is not None:
            last = self.n_knots - 1
            return (*(low + (high - low) * position / last for position in range(last)), high)
        assert self.knots is not None
        return (low, *self.knots, high)

    def check_range(self, name: str, low: float, high: float) -> None:
        """Raise if a knot lies outside the stated range."""
        if self.knots is not None and not (low < self.knots[0] and self.knots[-1] < high):
            raise InvalidParameter(
                f"columns.{name}.basis.knots must lie strictly between {low:g} and {high:g}; the two ends of the "
                "range are knots already."
            )

    @staticmethod
    def check_gaps(name: str, knots: tuple[float, ...]) -> None:
        """Raise if two knots, on the scale of the transform, are so close that rounding would merge them."""
        if not min(second - first for first, second in pairwise(knots)) >= MIN_KNOT_GAP * (
            knots[-1] - knots[0]
        ):
            raise InvalidParameter(
                f"columns.{name}.basis has knots less than {MIN_KNOT_GAP:g} of the range apart; state fewer knots, "
                "or a range in which they are further apart."
            )


@lru_cache(maxsize=256)
def knot_coordinates(knots: tuple[float, ...], smooth: float) -> NDArray[np.float64]:
    """Return T [k, k - 1], whose rows encode the knots; `knots` are given on the scale of [-1, 1].

    Examples
    --------
    >>> knot_coordinates((-1.0, 0.0, 1.0), 0.0).round(3).tolist()
    [[-0.707, 0.408], [0.0, -0.816], [0.707, 0.408]]
    """
    import numpy as np

    scale = np.asarray(knots, np.float64)
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
            # D^T M through the singular values of D: squaring D would square its condition number.
            curvature = (left / np.sqrt(1 + smooth * sizes**2)) @ right
        table = np.column_stack([LINEAR * scale, curvature])
    table.setflags(write=False)
    return table


def max_squared_norm(table: NDArray[np.float64]) -> float:
    """Return the largest squared norm of an encoded cell over the whole range, rounded up."""
    return float((table * table).sum(axis=1).max()) * (1 + 1e-12)


def _read_number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else math.nan
