"""Langevin steps are noisy gradient steps: one chain, one guarantee, one run, in whichever parameters it is written."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.accounting.plan import CertifiedSpec, certify_plan, load_plan, plan_from_plain, save_plan
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.langevin.spec import (
    LangevinSpec,
    sgld_last_iterate_guarantee,
    sgld_trajectory_guarantee,
)
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants

RELEASES: tuple[dict[str, Any], ...] = (
    {"release": "last-iterate"},
    {"release": "checkpoints", "checkpoints": (5, 10)},
    {"release": "average"},
    {"release": "trajectory"},
)
GRID = list(product((math.inf, 2.0, 0.2), (0.0, 0.05), (10, 100, 1000), RELEASES))


BETA, ETA = 400.0, 0.005


def bounds(diameter: float, ridge: float) -> Constants:
    return Constants(
        n=1000, lipschitz=1.0, smoothness=0.25 + ridge, strong_convexity=ridge, diameter=diameter
    )


@pytest.mark.parametrize(("diameter", "ridge", "steps", "released"), GRID)
def test_equal_chains_have_equal_guarantees(
    diameter: float, ridge: float, steps: int, released: dict[str, Any]
) -> None:
    constants = bounds(diameter, ridge)
    hot = LangevinSpec(inverse_temperature=BETA, time_step=ETA, n_steps=steps, **released)
    plain = NoisyGradientSpec(
        step_size=ETA * BETA, noise_std=math.sqrt(2 / ETA) / BETA, n_steps=steps, **released
    )
    found = certify_plan(constants, hot, delta=1e-6)
    assert found.epsilon() == certify_plan(constants, plain, delta=1e-6).epsilon()
    # the second derivation, in temperatures
    offers = [sgld_trajectory_guarantee(constants, BETA, ETA, steps)]
    if hot.release == "last-iterate":
        offers.append(sgld_last_iterate_guarantee(constants, BETA, ETA, steps))
    assert found.epsilon() <= min(offer.epsilon(1e-6) for offer in offers) * (1 + 1e-9)
    if ridge == 0 and math.isinf(diameter) and hot.release != "checkpoints":
        assert found.epsilon() == pytest.approx(offers[0].epsilon(1e-6), rel=1e-9)


@pytest.mark.parametrize(("diameter", "ridge", "steps", "released"), GRID[::5])
def test_files_of_langevin_plans_load(
    diameter: float, ridge: float, steps: int, released: dict[str, Any], tmp_path: Path
) -> None:
    """As noisy gradient steps; a file of version 0.1, where Langevin steps had a type of their own, is refused."""
    constants = bounds(diameter, ridge)
    last = released["release"] == "last-iterate"
    claimed = (sgld_last_iterate_guarantee if last else sgld_trajectory_guarantee)(
        constants, BETA, ETA, steps
    ).epsilon(1e-6)
    spec = LangevinSpec(inverse_temperature=BETA, time_step=ETA, n_steps=steps, **released)
    save_plan(CertifiedSpec(constants=constants, delta=1e-6, spec=spec), tmp_path / "plan.json")
    loaded = load_plan(tmp_path / "plan.json")
    assert loaded.spec == spec
    assert loaded.guarantee.epsilon() <= claimed * (1 + 1e-9)
    save_plan(loaded, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == loaded
    plain = json.loads((tmp_path / "plan.json").read_text())
    del plain["digest"], plain["spec"]
    plain["schedule"] = {
        "type": "LangevinSchedule", "inverse_temperature": BETA, "step_size": ETA, "n_steps": steps,
        "release": released["release"], "weights": "uniform", "checkpoints": list(released.get("checkpoints", ())),
    }  # fmt: skip
    plain["theorem"] = "langevin-last-iterate" if last else "langevin-trajectory"
    plain["guarantee"]["epsilon"] = claimed
    plain["version"] = 1
    with pytest.raises(InvalidParameter, match=r"dplangevin 0\.1 wrote.*make it again"):
        plan_from_plain(plain)


def test_temperatures_are_read_back() -> None:
    constant = LangevinSpec(inverse_temperature=BETA, time_step=ETA, n_steps=3)
    assert (constant.inverse_temperature, constant.time_step) == (pytest.approx(BETA), pytest.approx(ETA))
    varying = LangevinSpec(inverse_temperature=(1.0, 2.0, 4.0), time_step=(0.1, 0.2, 0.1), n_steps=3)
    np.testing.assert_allclose(varying.inverse_temperature, (1.0, 2.0, 4.0))
    np.testing.assert_allclose(varying.time_step, (0.1, 0.2, 0.1))
    assert certify_plan(bounds(2.0, 0.05), varying, delta=1e-6).mu is not None
    endless = LangevinSpec(inverse_temperature=BETA, time_step=ETA, n_steps=math.inf)
    assert math.isfinite(certify_plan(bounds(2.0, 0.05), endless, delta=1e-6).epsilon())


@pytest.mark.parametrize(
    "fields",
    [
        {"weights": "geometric"},
        {"weights": "geometric", "release": "average", "average_from": 1},
        {"weights": "geometric", "release": "average", "momentum": True},
        {"weights": "heavy", "release": "average"},
    ],
)
def test_weights_that_mean_nothing_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="weights"):
        NoisyGradientSpec(**({"step_size": 0.1, "noise_std": 1.0, "n_steps": 3} | fields))
