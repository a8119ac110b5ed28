"""Laws every theorem on offer obeys: more noise never costs more, a stranger adjacency is never silently accepted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.privacy.registry import FAMILIES, THEOREMS
from dplangevin.privacy.theorem import Theorem
from dplangevin.problem.constants import Constants
from dplangevin.schedules import NoisyGradientSchedule

DELTA = 1e-5
BASE = Constants(n=1000, lipschitz=1.0, smoothness=0.3, strong_convexity=0.05, diameter=1.0)
RUNS: dict[str, tuple[Constants, NoisyGradientSchedule]] = {
    "full": (BASE, NoisyGradientSchedule(step_size=0.5, noise_scale=0.05, n_steps=60)),
    "cyclic": (
        BASE,
        NoisyGradientSchedule(
            step_size=0.5, noise_scale=0.4, n_steps=60, batch_size=50, sampling="cyclic", order="secret"
        ),
    ),
    "shuffle": (
        BASE,
        NoisyGradientSchedule(step_size=0.5, noise_scale=0.4, n_steps=60, batch_size=50, sampling="shuffle"),
    ),
    "without-replacement": (
        BASE,
        NoisyGradientSchedule(
            step_size=0.5, noise_scale=0.4, n_steps=60, batch_size=50, sampling="without-replacement"
        ),
    ),
    "poisson": (
        replace(BASE, adjacency="add-remove", gradient_sensitivity=math.nan),
        NoisyGradientSchedule(step_size=0.1, noise_scale=0.4, n_steps=60, batch_size=50, sampling="poisson"),
    ),
}


def home(theorem: Theorem) -> tuple[Constants, NoisyGradientSchedule]:
    for constants, schedule in RUNS.values():
        try:
            theorem.certify(constants, schedule)
        except (AssumptionFailed, InvalidParameter):
            continue
        return constants, schedule
    raise AssertionError(f"{theorem.name} applies to none of the reference runs")


@pytest.fixture(params=sorted(THEOREMS), scope="module")
def theorem(request: pytest.FixtureRequest) -> Theorem:
    return THEOREMS[request.param]


def cost(theorem: Theorem, constants: Constants, schedule: NoisyGradientSchedule) -> float:
    return theorem.certify(constants, schedule).epsilon(DELTA)


def test_more_noise_never_costs_more(theorem: Theorem) -> None:
    constants, schedule = home(theorem)
    here = cost(theorem, constants, schedule)
    assert 0 < here < math.inf
    noisier = replace(schedule, noise_scale=1.5 * float(schedule.noise_scale))  # type: ignore[arg-type]
    assert cost(theorem, constants, noisier) <= here * (1 + 1e-9)


def test_more_records_or_less_sensitivity_never_cost_more(theorem: Theorem) -> None:
    constants, schedule = home(theorem)
    here = cost(theorem, constants, schedule)
    gentler = replace(constants, gradient_sensitivity=0.8 * constants.gradient_sensitivity)
    assert cost(theorem, gentler, schedule) <= here * (1 + 1e-9)
    if schedule.sampling == "full":
        assert cost(theorem, replace(constants, n=2000), schedule) <= here * (1 + 1e-9)


def test_more_steps_never_cost_less(theorem: Theorem) -> None:
    constants, schedule = home(theorem)
    longer = replace(schedule, n_steps=2 * int(schedule.n_steps))  # whole epochs
    assert cost(theorem, constants, longer) >= cost(theorem, constants, schedule) * (1 - 1e-6)


def test_never_cheaper_than_one_participation_of_an_exact_instance(theorem: Theorem) -> None:
    from dplangevin.privacy.lower_bounds import lower_bound_epsilon

    constants, schedule = home(theorem)
    lower = lower_bound_epsilon(constants, schedule, DELTA)
    if lower is None:
        pytest.skip("no exact instance is implemented for this sampling")
    assert cost(theorem, constants, schedule) >= lower * (1 - 1e-9)


def test_what_it_says(theorem: Theorem) -> None:
    constants, schedule = home(theorem)
    g = theorem.certify(constants, schedule)
    assert g.theorem == theorem.name
    assert len(g.reference) > 10
    assert g.adjacency == constants.adjacency
    assert g.release == "last-iterate"
    assert len(g.assumptions) >= 2
    assert (2 * g).epsilon(DELTA) >= g.epsilon(DELTA)


def test_uncovered_releases_are_refused(theorem: Theorem) -> None:
    constants, schedule = home(theorem)
    if theorem.name == "composition":
        assert cost(theorem, constants, replace(schedule, release="trajectory")) == cost(
            theorem, constants, schedule
        )
        return
    for change in ({"release": "trajectory"}, {"release": "average"}, {"momentum": True}):
        with pytest.raises(AssumptionFailed, match=theorem.name):
            theorem.certify(constants, replace(schedule, **change))  # type: ignore[arg-type]


def test_meaningless_sampling_is_refused_by_every_theorem(theorem: Theorem) -> None:
    poisson = RUNS["poisson"][1]
    subsets = RUNS["without-replacement"][1]
    if (
        theorem.name != "composition"
    ):  # which has a proof for every pair of records, see test_poisson_replace_one
        with pytest.raises((InvalidParameter, AssumptionFailed)):
            theorem.certify(BASE, poisson)
    with pytest.raises((InvalidParameter, AssumptionFailed)):
        theorem.certify(RUNS["poisson"][0], subsets)


def test_every_family_has_named_theorems() -> None:
    for family, theorems in FAMILIES.items():
        assert theorems, family
        assert all(name == theorem.name for name, theorem in theorems.items())
