"""What a number of a region is: certified, an estimate, or unknown."""

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
