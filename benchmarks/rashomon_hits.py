"""Hit bounds of Rashomon draws by the range of the score and by the local range, and the exact largest beta of a mean.

Usage: python benchmarks/rashomon_hits.py > benchmarks/RASHOMON_HITS.md     (about a minute)
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin.mechanisms.exponential.spec import exponential_temperature
from dplangevin.mechanisms.rashomon.calibrate import find_local_temperature, law_hit_probability
from dplangevin.problem.constants import Constants

N, THRESHOLDS = 30_000, (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def hit_bounds(m: float, p: int, psi: float, epsilon: float, delta: float) -> tuple[float, float]:
    """Return the hit bound by the range of the score (pure), and by the better of it and the local range."""
    constants = Constants(
        n=N, lipschitz=1.0, smoothness=0.25 + m, strong_convexity=m, diameter=2.0, dimension=p
    )
    before = exponential_temperature(constants, epsilon)
    local = find_local_temperature(constants, threshold=psi, tolerance=1e-9, epsilon=epsilon, delta=delta)
    return law_hit_probability(p, before, psi), law_hit_probability(p, max(before, local), psi)


def exact_largest_beta(n: int, psi: float, epsilon: float, delta: float) -> float:
    """Return the largest beta of a mean on [-1, 1] that is (epsilon, delta)-DP for zeros against one 1, exactly."""

    def exceeds(beta: float) -> bool:
        reach = min(1.0, 2 * math.sqrt(2 * (psi + 60 / beta)))
        x = np.linspace(-reach, reach, 400_001)
        laws = []
        for center in (0.0, 1 / n):
            weights = np.exp(-beta * np.maximum((x - center) ** 2 / 2 - psi, 0.0))
            laws.append(weights / weights.sum())
        one, other = laws
        sticks = [np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one))]
        return max(sticks) > delta

    low, high = math.log(1 / psi / 100), math.log(100 * n**2)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(math.exp(middle)) else (middle, high)
    return math.exp(low)


def main() -> None:
    """Print the page."""
    print("# Hit bounds of draws from a Rashomon set, before and after the local range\n")
    print(
        "Written by `python benchmarks/rashomon_hits.py`. n = 30,000 records, L = 1, D = 2, replace-one, one draw;"
    )
    print(
        "m is the ridge, psi the threshold. A cell is the probability that a draw is certainly in the set: by the"
    )
    print(
        "range of the score (pure epsilon) / by the local range (theory: docs/theory/rashomon.md, section 6).\n"
    )
    for epsilon, delta in ((1.0, 1e-6), (3.0, 1e-6)):
        print(f"## ({epsilon:g}, {delta:g})\n")
        print("| m | p | " + " | ".join(f"psi = {psi:g}" for psi in THRESHOLDS) + " |")
        print("|---|---|" + "---|" * len(THRESHOLDS))
        for m in (1.0, 0.1, 0.01):
            for p in (3, 10, 20, 50):
                cells = [
                    "{:.3f} / {:.3f}".format(*hit_bounds(m, p, psi, epsilon, delta)) for psi in THRESHOLDS
                ]
                print(f"| {m:g} | {p} | " + " | ".join(cells) + " |")
        print()
    print("## Is beta ~ min(1 / psi, n^2) necessary? No\n")
    print(
        "Section 2.1 of Ganesh, Thakurta and Upadhyay (2023) believes so. Exact largest beta of its own example, a"
    )
    print("mean with p = 1, n = 10,000, zeros against one 1, at (1, 1e-6):\n")
    print("| psi | exact largest beta | 1 / psi | eps n / sqrt(2 psi) |\n|---|---|---|---|")
    for psi in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        beta = exact_largest_beta(10_000, psi, 1.0, 1e-6)
        print(f"| {psi:g} | {beta:.3g} | {1 / psi:.3g} | {1e4 / math.sqrt(2 * psi):.3g} |")


if __name__ == "__main__":
    main()
