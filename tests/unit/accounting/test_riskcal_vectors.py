"""Attack risk of Gaussian mechanisms, as the package riskcal 1.5.1 gives it, reproduced within 1e-4.

The numbers come from benchmarks/riskcal_vectors.py; riskcal itself is no dependency.
"""

from __future__ import annotations

from typing import Any

import pytest

from dplangevin import calibrate
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec

# (mu, advantage, fpr, fnr): get_advantage_from_gdp, get_beta_from_gdp
CLOSED = [
    (0.05, 0.019945036390476067, 0.001, 0.9988180213297241), (0.05, 0.019945036390476067, 0.01, 0.9885874015621607),
    (0.05, 0.019945036390476067, 0.2, 0.785709218925972), (0.3, 0.119235384740485, 0.001, 0.9973664882373159),
    (0.3, 0.119235384740485, 0.01, 0.9786354257199489), (0.3, 0.119235384740485, 0.2, 0.705960269425301),
    (1.0, 0.38292492254802624, 0.001, 0.9817015315943434), (1.0, 0.38292492254802624, 0.01, 0.9076377519263059),
    (1.0, 0.38292492254802624, 0.2, 0.43707917226646403), (2.5, 0.7887004526662893, 0.001, 0.7224825420032523),
    (2.5, 0.7887004526662893, 0.01, 0.4310694318576751), (2.5, 0.7887004526662893, 0.2, 0.04862051982586158),
]  # fmt: skip
# (noise multiplier, releases, advantage, fpr, fnr) of riskcal's numerical accountant
COMPOSED = [
    (2.0, 1, 0.1974126513653217, 0.01, 0.9661037067954273), (6.0, 12, 0.2271700344481628, 0.01, 0.9598604546920608),
    (10.0, 40, 0.2481707852255352, 0.01, 0.9548611680071126),
]  # fmt: skip
# (advantage, releases, noise multiplier) of find_noise_multiplier_for_advantage
FOR_ADVANTAGE = [(0.05, 1, 7.973697137832641), (0.1, 12, 13.783531093597412), (0.3, 40, 8.206920731067658)]

# (fpr, fnr, releases, noise multiplier) of find_noise_multiplier_for_err_rates
FOR_ERROR_RATES = [
    (0.1, 0.8, 1, 2.2726318359374997), (0.01, 0.97, 1, 2.2439208984375), (0.05, 0.7, 4, 1.7845458984375)
]  # fmt: skip


def gaussian(mu: float, count: int = 1) -> Guarantee:
    return Guarantee(
        parts=(Gaussian(mu=mu, count=count),), adjacency="add-remove", release="draw", theorem="composition",
        reference="riskcal",
    )  # fmt: skip


@pytest.mark.parametrize(("mu", "advantage", "fpr", "fnr"), CLOSED)
def test_risk_of_gaussian_differential_privacy(mu: float, advantage: float, fpr: float, fnr: float) -> None:
    guarantee = gaussian(mu)
    assert guarantee.advantage().advantage == pytest.approx(advantage, abs=1e-4)
    assert float(guarantee.tradeoff(fpr)) == pytest.approx(fnr, abs=1e-4)


@pytest.mark.parametrize(("noise_multiplier", "releases", "advantage", "fpr", "fnr"), COMPOSED)
def test_risk_of_composed_releases(
    noise_multiplier: float, releases: int, advantage: float, fpr: float, fnr: float
) -> None:
    guarantee = gaussian(1 / noise_multiplier, releases)
    assert guarantee.advantage().advantage == pytest.approx(advantage, abs=1e-4)
    assert float(guarantee.tradeoff(fpr)) == pytest.approx(fnr, abs=1e-4)


def calibrated_noise_multiplier(releases: int, **target: Any) -> float:
    """Return noise_std over the sensitivity 1 / n of a mean gradient of norm at most 1, one record added."""
    n = 1000
    plan = calibrate(
        n=n, lipschitz=1.0, smoothness=1.0, step_size=1.0, n_steps=releases, theorem="composition",
        adjacency="add-remove", **target,
    )  # fmt: skip
    assert isinstance(plan.spec, NoisyGradientSpec)
    assert isinstance(plan.spec.noise_std, float)
    return plan.spec.noise_std * n


@pytest.mark.parametrize(("advantage", "releases", "noise_multiplier"), FOR_ADVANTAGE)
def test_noise_for_an_advantage(advantage: float, releases: int, noise_multiplier: float) -> None:
    """riskcal stops within 1e-6 of the advantage, on a grid of privacy losses of step 1e-5."""
    found = calibrated_noise_multiplier(releases, advantage=advantage)
    assert found == pytest.approx(noise_multiplier, rel=1e-3)
    assert gaussian(1 / found, releases).advantage().advantage == pytest.approx(advantage, abs=1e-4)
    ours_at_theirs = gaussian(1 / noise_multiplier, releases).advantage().advantage
    assert ours_at_theirs == pytest.approx(advantage, abs=1e-4)


@pytest.mark.parametrize(("fpr", "fnr", "releases", "noise_multiplier"), FOR_ERROR_RATES)
def test_noise_for_error_rates(fpr: float, fnr: float, releases: int, noise_multiplier: float) -> None:
    """riskcal stops within 1e-4 of the false negative rate, on a grid of privacy losses of step 1e-3."""
    found = calibrated_noise_multiplier(releases, tpr_at_fpr=(1 - fnr, fpr))
    assert found == pytest.approx(noise_multiplier, rel=1e-3)
    assert float(gaussian(1 / found, releases).tradeoff(fpr)) == pytest.approx(fnr, abs=1e-4)
    assert float(gaussian(1 / noise_multiplier, releases).tradeoff(fpr)) == pytest.approx(fnr, abs=1e-4)
