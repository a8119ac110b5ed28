"""Every sampler of noise at the ends of its range: the largest and the smallest accepted scale give noise of the right
size, and a scale beyond is refused before anything is charged.

The median of |noise| / scale over 20,000 draws is compared with its law within 10%. A median has a relative deviation
of at most 1.03% here (Laplace noise; half-normal .83%), so 10% is nine deviations or more: the false-alarm rate is
below 1e-15 for each of the cases, and every draw is seeded. Whole numbers are spread evenly over their cells first:
the median of a lattice jumps by a whole cell, and at a scale of 8 a cell is 19% of the median.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dplangevin import Ledger, account
from dplangevin._check import MAX_INTEGER_SCALE, MAX_PARAMETER, MIN_PARAMETER
from dplangevin.accounting import compose
from dplangevin.accounting.parts import Pure
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.registry import mechanism_for
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums, sample_generalized_gaussian
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.sampling.exact_noise import (
    MAX_SCALE,
    add_rounded_noise,
    sample_geometric_noise,
    sample_rounded_noise,
)
from dplangevin.sampling.float_noise import (
    sample_discrete_laplace,
    sample_gamma_norm,
    sample_wishart_difference,
)
from dplangevin.sampling.langevin import UnderdampedStep

SIZE = 20_000
UNDERFLOWING = [(1e-60, 1e-60)]
HALF_NORMAL, LAPLACE = float(stats.halfnorm.median()), math.log(2)


def rng() -> np.random.Generator:
    return np.random.default_rng(20261118)


def wishart_entries(scale: float) -> Any:
    """Diagonals of 1 x 1 differences: of chi-square(2) / 2, exponential, so Laplace."""
    generator = rng()
    return np.array([sample_wishart_difference(1, scale, generator)[0, 0] for _ in range(SIZE)])


def secure(function: Callable[..., Any], *arguments: Any) -> Any:
    generator = rng()
    return function(*arguments, source=generator.bytes)


SAMPLERS: dict[str, tuple[Callable[[float], Any], float, float, float]] = {
    # name: noise of a scale, smallest and largest scale, median of |noise| / scale
    "normal": (lambda s: s * rng().standard_normal(SIZE), MIN_PARAMETER, MAX_PARAMETER, HALF_NORMAL),
    "gamma norm": (lambda s: sample_gamma_norm(1, s, SIZE, rng())[0], MIN_PARAMETER, MAX_PARAMETER, LAPLACE),
    "wishart": (wishart_entries, MIN_PARAMETER, MAX_PARAMETER, LAPLACE),
    "discrete laplace": (lambda s: sample_discrete_laplace(s, SIZE, rng()), 8.0, MAX_INTEGER_SCALE, LAPLACE),
    "generalized gaussian 1": (
        lambda s: s * sample_generalized_gaussian(SIZE, 1.0, rng()), MIN_PARAMETER, MAX_PARAMETER, LAPLACE
    ),
    "generalized gaussian 2": (
        lambda s: s * sample_generalized_gaussian(SIZE, 2.0, rng()), MIN_PARAMETER, MAX_PARAMETER,
        HALF_NORMAL / math.sqrt(2)
    ),
    "secure laplace": (lambda s: secure(sample_rounded_noise, s, 1.0, SIZE, None), 8.0, MAX_SCALE, LAPLACE),
    "secure gaussian": (
        lambda s: secure(sample_rounded_noise, s, 2.0, SIZE, None), 8.0, MAX_SCALE, HALF_NORMAL / math.sqrt(2)
    ),
    "secure geometric": (lambda s: secure(sample_geometric_noise, s, SIZE), 8.0, MAX_SCALE, LAPLACE),
    "secure sums": (
        lambda s: secure(add_rounded_noise, np.zeros(SIZE, np.int64), 2.0**-20, s, 2.0), 2.0**-6, 2.0**30,
        HALF_NORMAL / math.sqrt(2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("end", ["smallest", "largest"])
def test_noise_has_its_size_at_the_ends_of_the_range(name: str, end: str) -> None:
    sample, smallest, largest, median = SAMPLERS[name]
    scale = smallest if end == "smallest" else largest
    noise = np.asarray(sample(scale))
    if scale >= 1 and np.array_equal(noise, np.rint(noise)):
        noise = noise + rng().uniform(-0.5, 0.5, noise.shape)
    assert float(np.median(np.abs(noise))) / scale == pytest.approx(median, rel=0.1)


@pytest.mark.parametrize("friction", [1e-60, 1e-20, 1.0, 1e20])
@pytest.mark.parametrize("step_size", [1e-60, 1e-20, 1.0, 1e20])
def test_an_underdamped_step_has_its_noise_or_is_refused(friction: float, step_size: float) -> None:
    """The position's own noise is at least a tenth of its whole noise for a step below 1 / friction."""
    if (friction, step_size) in UNDERFLOWING:
        with pytest.raises(InvalidParameter, match="underflows"):
            UnderdampedStep.from_parameters(friction, 1.0, step_size)
        return
    step = UnderdampedStep.from_parameters(friction, 1.0, step_size)
    assert step.own_noise > 0.1 * math.sqrt(step.variance_x) > 0
    if friction * step_size < 1e-3:  # to leading order u^3 / (6 gamma^2), without the velocity's part
        exact = friction * step_size * step_size**2 / 6
        assert step.own_noise**2 == pytest.approx(exact, rel=0.05)


def test_an_underdamped_run_without_noise_is_refused_before_it_is_charged(tmp_path: Any) -> None:
    problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=10, n_features=2)
    spec = UnderdampedSpec(
        inverse_temperature=1.0, friction=1e-60, inverse_mass=1.0, step_size=1e-60, n_steps=2
    )
    with pytest.raises(InvalidParameter, match="underflows"):
        mechanism_for(UnderdampedSpec).check_problem(spec, problem)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoisySumsSpec(
            groups=(SumGroup(answers=1, unit=1.0, scale=1e20),), noise="geometric", adjacency="replace-one"
        ),
        lambda: NoisySumsSpec(
            groups=(SumGroup(answers=1, unit=1.0, scale=1e20),), noise="gaussian", adjacency="replace-one",
            secure=True,
        ),
        lambda: LearnedSchemaSpec(
            n_numbers=1, n_cells=4, n_categories=0, noise="geometric", scale=1e20, adjacency="replace-one"
        ),
    ],
)  # fmt: skip
def test_scales_beyond_the_range_are_refused_when_they_are_stated(make: Callable[[], Any]) -> None:
    """Two geometric draws above 2^63 cancelled: exact counts were released under a claim of 1e-20."""
    with pytest.raises(InvalidParameter, match="largest scale of noise on whole numbers"):
        make()


def test_exact_counts_are_never_released_at_a_tiny_epsilon(tmp_path: Any) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=1.0, delta=0.0)
    spec = NoisySumsSpec(
        groups=(SumGroup(answers=3, unit=1.0, scale=1e13),), noise="geometric", adjacency="replace-one"
    )
    released = NoisySums().run(
        CertifiedSpec(spec=spec, delta=0.0), lambda: [np.array([1.0, 2.0, 3.0])], ledger=budget
    )
    assert np.abs(released.values[0]).min() > 1e9


def test_a_formula_that_overflows_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Extreme(Pure):
        def epsilon(self, delta: float) -> float:
            raise OverflowError("math range error")

        def rdp(self, orders: Any) -> Any:
            raise OverflowError("math range error")

    part = Extreme(value=3.0)
    assert (
        compose.compose_epsilon((part, part), 1e-5) == 6.0
    )  # the sum is proved before the other formulas are asked
    assert compose.compose_delta((part, part), 1.0) == 1.0
    from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition

    monkeypatch.setattr(Composition, "derive_guarantee", lambda *_: 10.0**400)
    with pytest.raises(AssumptionFailed, match="overflows"):
        account(
            n=5, batch_size=4, sampling="without-replacement", n_steps=250_000, release="checkpoints", checkpoints=(9,),
            lipschitz=1.0, noise_std=1.0, step_size=0.1, delta=1e-5, theorem="composition",
        )  # fmt: skip
