"""Searches return what was seen to hold, next to what was not."""

from __future__ import annotations

import math

import pytest

from dplangevin._search import bisect_integers, bisect_safe_side, expand_bracket, golden_section_minimum


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
