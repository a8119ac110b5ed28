"""Searches return what was seen to hold, next to what was not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from dplangevin._search import (
    bisect_integers,
    bisect_safe_side,
    expand_bracket,
    find_root,
    golden_section_minimum,
)


@pytest.mark.parametrize("edge", [0.3, 1.0, 17.25, 1e6])
def test_the_answer_holds_and_the_next_does_not(edge: float) -> None:
    low = bisect_safe_side(lambda value: value <= edge, 0.0, 2e6, rounds=200)
    assert low == edge
    high = bisect_safe_side(lambda value: value >= edge, 2e6, 0.0, rounds=200)
    assert high == edge
    rough = bisect_safe_side(lambda value: value >= edge, 2e6, 1e-3, relative=0.01, geometric=True)
    assert edge <= rough <= edge * 1.01


@pytest.mark.parametrize("edge", [1, 2, 3, 99, 12345])
def test_whole_numbers(edge: int) -> None:
    assert bisect_integers(lambda count: count >= edge, 10**6, 0) == edge
    assert bisect_integers(lambda count: count <= edge, 0, 10**6) == edge
    rough = bisect_integers(lambda count: count >= edge, 10**6, 1, digits=20, geometric=True)
    assert edge <= rough <= max(edge + 1, edge * 1.05)


def test_growing() -> None:
    assert expand_bracket(lambda value: value >= 9, 1) == 16
    assert expand_bracket(lambda value: value >= 9, 1, factor=10) == 10
    assert expand_bracket(lambda value: True, 3.0) == 3.0
    assert expand_bracket(lambda value: False, 1, 1000) is None


def test_golden_sections() -> None:
    assert golden_section_minimum(math.cosh, -3.0, 2.0, 1e-6) == pytest.approx(0.0, abs=1e-6)


def test_roots_are_those_of_scipy_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b, c, d = rng.standard_normal(4)
        functions = (
            lambda x, a=a, b=b: np.tanh(a * 9 * x) + b / 9,
            lambda x, a=a, b=b, c=c: x**3 * a + x * b + c,
            lambda x, d=d: math.exp(x) - 10 * abs(d),
            lambda x, c=c: abs(x - c) ** 0.3 * np.sign(x - c),
        )
        for function in functions:
            if function(-4.0) * function(5.0) < 0:
                for options in ({}, {"xtol": 1e-300, "rtol": 1e-14}, {"xtol": 1e-3}):
                    expected = optimize.brentq(function, -4.0, 5.0, maxiter=500, **options)
                    assert find_root(function, -4.0, 5.0, max_steps=500, **options) == expected
    assert find_root(lambda x: x - 1, 1.0, 2.0) == 1.0
    assert find_root(lambda x: x - 2, 1.0, 2.0) == 2.0
    with pytest.raises(ValueError, match="different signs"):
        find_root(lambda x: x * x + 1, 0.0, 1.0)
    with pytest.raises(ValueError, match="no root was found in 2 steps"):
        find_root(lambda x: x**3 - 0.3, 0.0, 1e9, max_steps=2)
