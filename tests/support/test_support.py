"""The table of what works with what says what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplangevin import DPRidge, InvalidParameter
from dplangevin.accounting.certificate import check_guarantee
from support._page import PAGE, generalize_refusal, read_page, render_page
from support._trials import FEATURES, NO_OPTION, ROWS, YES, Ignored, TriedRelease, cell, fit

CELLS = [(row, feature) for row in ROWS for feature in FEATURES]
SLOW = ("Dask", "public data", "intervals")


def _quick(row: str, feature: str, turn: int) -> bool:
    """Refusals are quick, and a fifth of the runs."""
    if read_page().get((row, feature)) != YES:
        return (row, feature) != ('mechanism="noisy-sgd"', "rows per person")
    return turn % 5 == 0 and feature not in SLOW and "noisy-sgd" not in row


FAST_CASES = [each for turn, each in enumerate(CELLS) if _quick(*each, turn)]


def test_every_cell_is_on_the_page() -> None:
    assert list(read_page()) == CELLS
    assert len({*read_page().values()} - {YES, NO_OPTION}) > 10
    assert render_page(read_page()) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("row", "feature"), FAST_CASES)
def test_some_cells_are_as_written(row: str, feature: str) -> None:
    assert generalize_refusal(row, cell(ROWS[row], feature)) == read_page()[row, feature]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "feature"), CELLS)
def test_every_cell_is_as_written(row: str, feature: str) -> None:
    assert generalize_refusal(row, cell(ROWS[row], feature)) == read_page()[row, feature]


RULES = {
    "whitened-composition", "composition", "sufficient-statistics", "objective-perturbation", "learned schema",
    "whitened-objective-perturbation", "noisy sums", "report noisy max", "worst-shift", "norm noise",
}  # fmt: skip
"""The theorems for which docs/checker.md says that the independent checker has a rule."""


@pytest.mark.slow
@pytest.mark.parametrize(("row", "feature"), [each for each in CELLS if read_page().get(each) == YES])
def test_the_independent_checker_agrees_wherever_it_has_a_rule(
    row: str, feature: str, tmp_path: Path
) -> None:
    guarantee = ROWS[row](feature, tmp_path).guarantee
    epsilon, text = check_guarantee(guarantee)
    theorems = {each.theorem for each in guarantee.derivations}
    is_sampled = any(getattr(each.spec, "sampling", "full") == "poisson" for each in guarantee.derivations)
    assert (epsilon is not None) == (bool(theorems) and theorems <= RULES and not is_sampled), text
    if epsilon is not None:
        assert guarantee.epsilon() * (1 - 1e-6) < epsilon <= guarantee.epsilon()


def test_the_sampler_of_cells_meets_every_row_and_kind() -> None:
    assert {row for row, _ in FAST_CASES} == set(ROWS)
    found = {read_page()[each] for each in FAST_CASES}
    assert {YES, NO_OPTION} < found


def test_a_refusal_is_quoted_to_its_first_sentence() -> None:
    def refusing(feature: str, folder: Path) -> TriedRelease:
        raise InvalidParameter("this cannot be. Do that.")

    assert cell(refusing, "pure") == "this cannot be."


def test_an_option_that_is_ignored_is_noticed() -> None:
    def deaf(feature: str, folder: Path) -> TriedRelease:
        return fit(DPRidge)("replace-one", folder)

    with pytest.raises(Ignored, match="rows per person"):
        cell(deaf, "rows per person")
