"""SVG plots with one row per name: the shared axis and its ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

TOP_MARGIN, ROW_HEIGHT, RIGHT_MARGIN = 8, 24, 14


@dataclass(frozen=True, kw_only=True)
class RowAxis:
    """The coordinates of a plot: names in the left `names` of `width` pixels, then rows over an axis [low, high]."""

    width: int
    names: int
    rows: int
    low: float
    high: float

    @property
    def bottom_y(self) -> int:
        """The y coordinate below the last row."""
        return TOP_MARGIN + ROW_HEIGHT * self.rows

    def row_center_y(self, row: int) -> float:
        """Return the y coordinate of the middle of a row."""
        return TOP_MARGIN + ROW_HEIGHT * (row + 0.5)

    def x_of(self, value: float) -> float:
        """Return the x coordinate of a value; values beyond the axis are put at its end."""
        fraction = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low or 1.0)
        return self.names + fraction * (self.width - self.names - RIGHT_MARGIN)

    def draw_grid(self) -> list[str]:
        """Return the SVG elements of the vertical grid lines and their labels."""
        bottom = self.bottom_y
        return [
            f'<line x1="{x:.1f}" y1="{TOP_MARGIN}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick:.4g}</text>'
            for tick in round_ticks(self.low, self.high)
            for x in [self.x_of(tick)]
        ]


def round_ticks(low: float, high: float) -> list[float]:
    """Return at most seven round numbers from low to high."""
    unit = 10.0 ** math.floor(math.log10(max(high - low, 1e-300)))
    step = next(s * unit for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (s * unit) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [step * i + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def shorten_name(name: str, max_length: int) -> str:
    """Return a name, cut to at most `max_length` characters with an ellipsis."""
    return name if len(name) <= max_length else name[: max_length - 1] + "…"
