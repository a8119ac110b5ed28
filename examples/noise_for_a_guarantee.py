"""Noise needed for a guarantee as the run gets longer: the library's calibration against plain composition."""

import math

from dplangevin import CalibrationFailed, calibrate

PROBLEM = {
    "n": 10_000,
    "lipschitz": 1.0,
    "smoothness": 0.26,
    "strong_convexity": 0.01,
    "step_size": 1.0,
}
TARGET = {"epsilon": 1.0, "delta": 1e-6}


def noise(steps: float, theorem: str | None = None) -> float:
    """Smallest noise for this number of steps; infinity if the theorem has none."""
    try:
        return calibrate(**PROBLEM, **TARGET, n_steps=steps, theorem=theorem).spec.noise_std
    except CalibrationFailed:
        return math.inf


if __name__ == "__main__":
    print(f"{'steps':>10}  {'noise':>10}  {'by composition':>14}")
    for steps in (10, 100, 1_000, 100_000, math.inf):
        plain = math.inf if math.isinf(steps) else noise(steps, "composition")
        print(f"{steps:>10}  {noise(steps):10.5f}  {plain:14.5f}")
