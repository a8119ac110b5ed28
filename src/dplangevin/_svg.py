"""What pictures with a row for each name share: the axis over the rows, and its ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

TOP, ROW, RIGHT = 8, 24, 14


@dataclass(frozen=True, kw_only=True)
class RowAxis:
    """Names on the left, up to `names` of `width`; beside them rows, over an axis from low to high."""

    width: int
    names: int
    rows: int
    low: float
    high: float

    @property
    def bottom(self) -> int:
        """Below the last row."""
        return TOP + ROW * self.rows

    def middle(self, row: int) -> float:
        """Of a row, from the top."""
        return TOP + ROW * (row + 0.5)

    def place(self, value: float) -> float:
        """Of a value, from the left; what is beyond the axis is put at its end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low or 1.0)
        return self.names + share * (self.width - self.names - RIGHT)

    def grid(self) -> list[str]:
        """Lines and numbers."""
        return [
            f'<line x1="{self.place(t):.1f}" y1="{TOP}" x2="{self.place(t):.1f}" y2="{self.bottom}" stroke="#ddd"/>'
            f'<text x="{self.place(t):.1f}" y="{self.bottom + 18}" text-anchor="middle">{t:.4g}</text>'
            for t in ticks(self.low, self.high)
        ]


def ticks(low: float, high: float) -> list[float]:
    """At most seven round numbers from low to high."""
    unit = 10.0 ** math.floor(math.log10(max(high - low, 1e-300)))
    step = next(s * unit for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (s * unit) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [step * i + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def shortened(name: str, longest: int) -> str:
    """A name of at most so many characters."""
    return name if len(name) <= longest else name[: longest - 1] + "…"
