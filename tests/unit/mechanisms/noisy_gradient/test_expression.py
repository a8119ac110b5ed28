"""Formulas in the step: read, never run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import parse_per_step


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("0.5/sqrt(t)", lambda t, T: 0.5 / math.sqrt(t)),
        ("1e-2 * (1 - t / (2*T))", lambda t, T: 1e-2 * (1 - t / (2 * T))),
        ("2 * t ^ -0.5", lambda t, T: 2 * t**-0.5),
        ("2 ** 3 ** 2 / t", lambda t, T: 512 / t),
        ("-(-t) + .5", lambda t, T: t + 0.5),
        ("max(0.1, exp(-t)) + min(t, 3)", lambda t, T: max(0.1, math.exp(-t)) + min(t, 3)),
        ("1 - 2 - 3 + 8*t/4/2 + log(T)", lambda t, T: -4 + t + math.log(T)),
        ("-t^2 + 100", lambda t, T: 100 - t * t),
    ],
)
def test_formulas(text: str, at: object) -> None:
    found = parse_per_step("step_size", text, 7)
    assert found == pytest.approx([at(t, 7) for t in range(1, 8)], rel=1e-14)  # type: ignore[operator]


def test_a_constant_stays_one_number() -> None:
    assert parse_per_step("step_size", " 2 * 0.25 ", math.inf) == 0.5


BAD = [
    "", "t +", "(t", "t)", "sqrt t", "sqrt(t, 2)", "min(t)", "x", "__import__('os')", "t.real", "1;2", "lambda: 1",
    "0.5//t", "t t", "1..2", "2e", "t" * 300, "(" * 60 + "t" + ")" * 60, "2" + "^2" * 60, "[1]", "t if t else 1",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_not_a_formula_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParameter, match="step_size"):
        parse_per_step("step_size", text, 5)


def test_a_formula_needs_a_number_of_steps() -> None:
    for steps in (math.inf, 10**9):
        with pytest.raises(InvalidParameter, match="number of steps"):
            parse_per_step("noise_std", "1/t", steps)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="tT0123456789.+-*/^(), sqrtlogexpminmax_'\"[]{}:;=@!x", max_size=40))
def test_any_text_gives_numbers_or_our_error(text: str) -> None:
    try:
        found = parse_per_step("step_size", text, 3)
    except InvalidParameter:
        return
    assert isinstance(found, float) or (isinstance(found, tuple) and len(found) == 3)
