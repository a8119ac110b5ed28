"""What a number of a region is: certified, an estimate, or unknown; and how it is printed."""

import math

OUTSIDE = " Models outside may also be in the set."
BOUNDED = " EVERY model of the set is within the outer ranges, where they are given."
UNKNOWN = "unknown: models outside these ranges may also be in the set"
STATUS = {
    "ranges": "certified",
    "ambiguity": "certified (at least)",
    "discrepancy": "certified (at least)",
    "coefficients": "certified",
    "capacity": "certified (at least)",
    "reliance": "certified",
    "fairness": "certified",
    "flip cost": "estimate",
    "widest possible ranges": UNKNOWN,
}
PROVED = {"widest possible ranges": "certified (at most)", "ambiguity at most": "certified (at most)"}
LEVELS = {"flip-cost levels": "certified (both sides)"}


def rounded(value: float, *, up: bool = False) -> str:
    """Four digits, on the side on which a bound stays true: at least (down) or at most (up)."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    turned = math.ceil(value / unit * (1 - 1e-12)) if up else math.floor(value / unit * (1 + 1e-12))
    return f"{turned * unit:.4g}"
