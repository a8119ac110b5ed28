"""Risk of Gaussian mechanisms by the package riskcal: the numbers in tests/unit/accounting/test_riskcal_vectors.py.

Usage: python benchmarks/riskcal_vectors.py, where riskcal 1.5 is installed (not a dependency of this project).

Noise multipliers that riskcal finds for an advantage or for error rates at the end of num_steps Gaussian releases, and
the advantage and the false negative rate beta that it gives for mu-GDP and for such releases.
"""

from __future__ import annotations

from typing import Any

PRECISION: dict[str, Any] = {"grid_step": 1e-5}
COARSE: dict[str, Any] = {
    "grid_step": 1e-3,
    "noise_max": 40.0,
}  # for error rates, which riskcal finds in half a minute


def main() -> None:
    """Print the vectors as Python literals."""
    from riskcal import analysis
    from riskcal.calibration import dpsgd

    closed = [
        (mu, float(analysis.get_advantage_from_gdp(mu)), alpha, float(analysis.get_beta_from_gdp(mu, alpha)))
        for mu in (0.05, 0.3, 1.0, 2.5)
        for alpha in (0.001, 0.01, 0.2)
    ]
    print("CLOSED =", closed)
    composed = []
    for noise_multiplier, num_steps in ((2.0, 1), (6.0, 12), (10.0, 40)):
        options = {
            "noise_multiplier": noise_multiplier,
            "sample_rate": 1.0,
            "num_steps": num_steps,
            **PRECISION,
        }
        beta = float(dpsgd.get_beta_for_dpsgd(alpha=0.01, **options))
        composed.append(
            (noise_multiplier, num_steps, float(dpsgd.get_advantage_for_dpsgd(**options)), 0.01, beta)
        )
    print("COMPOSED =", composed)
    for_advantage = [
        (advantage, steps, dpsgd.find_noise_multiplier_for_advantage(
            advantage, sample_rate=1.0, num_steps=steps, advantage_tol=1e-6, noise_max=200.0, **PRECISION
        ))
        for advantage, steps in ((0.05, 1), (0.1, 12), (0.3, 40))
    ]  # fmt: skip
    print("FOR_ADVANTAGE =", for_advantage)
    for_rates = [
        (fpr, fnr, steps, dpsgd.find_noise_multiplier_for_err_rates(
            alpha=fpr, beta=fnr, sample_rate=1.0, num_steps=steps, beta_tol=1e-4, noise_min=0.8, **COARSE
        ))
        for fpr, fnr, steps in ((0.1, 0.8, 1), (0.01, 0.97, 1), (0.05, 0.7, 4))
    ]  # fmt: skip
    print("FOR_ERROR_RATES =", for_rates)


if __name__ == "__main__":
    main()
