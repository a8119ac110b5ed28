"""Adding guarantees up is counting: against a list of single uses, and rationals where numbers add.

Groups are in tests/unit/privacy; here is what is done with guarantees once they are made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from dplangevin.accounting import serialize
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    PrivacyPart,
    Profile,
    Pure,
    RenyiCurve,
    SampledGaussian,
)
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.problem.constants import Constants

PARTS: tuple[PrivacyPart, ...] = (
    Pure(value=0.3),
    BoundedRange(value=0.7, count=2),
    Gaussian(mu=0.4, count=3),
    Concentrated(rho=0.01),
    RenyiCurve(orders=(2.0, 8.0), values=(0.1, 0.5)),
    SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="poisson", count=5),
    Profile(epsilons=(0.0, 1.0), deltas=(0.1, 1e-6)),
    Approximate(value=0.2, slack=1e-7),
)


def make_guarantee(*parts: PrivacyPart, **changes: object) -> Guarantee:
    stated: dict[str, object] = {"extra_delta": 2.0**-20, "at_delta": 1e-5}
    return Guarantee(
        parts=parts, adjacency="add-remove", release="draw", theorem="composition", reference="", **(stated | changes)
    )  # type: ignore[arg-type]  # fmt: skip


def uses(guarantee: Guarantee) -> Counter[PrivacyPart]:
    """Every single use, however counts are kept."""
    found: Counter[PrivacyPart] = Counter()
    for part in guarantee.parts:
        found[replace(part, count=1)] += part.count
    return found


@pytest.mark.parametrize(("first", "second"), list(product(PARTS, PARTS)))
def test_a_sum_has_all_uses_of_both(first: PrivacyPart, second: PrivacyPart) -> None:
    one, two = make_guarantee(first), make_guarantee(second, second, Gaussian(mu=0.4))
    total = one + two
    assert uses(total) == uses(one) + uses(two)
    assert Fraction(total.extra_delta) == Fraction(one.extra_delta) + Fraction(two.extra_delta)
    assert total.adjacency == "add-remove"
    assert total.rows_per_person == 1
    assert serialize.guarantee_from_json(serialize.guarantee_to_json(total)) == total


@pytest.mark.parametrize("times", [1, 2, 3, 7])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_multiple_is_a_repeated_sum(part: PrivacyPart, times: int) -> None:
    one = make_guarantee(part, Pure(value=0.3))
    repeated = one
    for _ in range(times - 1):
        repeated = repeated + one
    assert uses(times * one) == uses(repeated) == Counter({use: times * n for use, n in uses(one).items()})
    assert Fraction((times * one).extra_delta) == times * Fraction(one.extra_delta)
    assert uses(replace(one, parts=(part.repeat(times),))) == Counter(
        {replace(part, count=1): times * part.count}
    )


def test_what_is_kept_beside_is_added_beside() -> None:
    """Plain composition of a sum is the sum of the plain compositions; of a multiple, the multiple."""
    beside = make_guarantee(Gaussian(mu=2.0))
    one = make_guarantee(Gaussian(mu=1.0), composition=beside)
    assert (one + one).composition == beside + beside
    assert (3 * one).composition == 3 * beside
    assert (one + make_guarantee(Pure(value=0.1))).composition is None


def test_the_weaker_arithmetic_and_every_condition_stay() -> None:
    secure = make_guarantee(Gaussian(mu=1.0), arithmetic="discrete-grid", assumptions=("first",))
    plain = make_guarantee(Gaussian(mu=1.0), assumptions=("second", "first"))
    for total in (secure + plain, plain + secure):
        assert total.arithmetic == "real"
        assert set(total.assumptions) == {"first", "second"}
    assert (secure + secure).arithmetic == "discrete-grid"
    assert (5 * secure).assumptions == ("first",)
    assert (secure + replace(secure, at_delta=1e-3)).at_delta is None


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [
        *(
            (sampling, "replace-one")
            for sampling in ("full", "cyclic", "shuffle", "without-replacement", "poisson")
        ),
        ("full", "add-remove"),
        ("poisson", "add-remove"),
    ],
)
def test_noise_stated_per_step_costs_what_the_same_constant_noise_costs(
    sampling: str, adjacency: str
) -> None:
    constants = Constants(n=100, lipschitz=1.0, adjacency=adjacency)  # type: ignore[arg-type]
    batch: dict[str, Any] = {} if sampling == "full" else {"sampling": sampling, "batch_size": 10}
    specs = [
        NoisyGradientSpec(step_size=0.1, noise_std=noise, n_steps=20, release="trajectory", **batch)
        for noise in (0.3, (0.3,) * 20)
    ]
    constant, stated = (Composition().certify(constants, spec).epsilon(1e-5) for spec in specs)
    assert stated == pytest.approx(constant, rel=1e-6)
