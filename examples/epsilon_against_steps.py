"""Plot epsilon against the number of steps, for a convex problem on a ball of radius 1.

Usage: python examples/epsilon_against_steps.py [FILE.svg|.png|.html]     (default: account.svg)
"""

import sys
from pathlib import Path

from dplangevin.report import write_plot

RUN = {
    "n": 10_000,
    "lipschitz": 1.0,
    "smoothness": 0.25,
    "diameter": 2.0,
    "step_size": 1.0,
    "noise_std": 0.04,
    "n_steps": 100_000,
    "delta": 1e-6,
}

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) == 2 else Path("account.svg")
    write_plot(target, RUN)
    print(f"wrote {target}")
