"""The table of what works with what says what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplangevin.errors import InvalidParameter
from support._page import PAGE, rendered, written
from support._trials import FEATURES, NO_OPTION, ROWS, YES, Ignored, Released, cell, fit

CELLS = [(row, feature) for row in ROWS for feature in FEATURES]
SLOW = ("Dask", "public data", "intervals")
QUICK = [each for each in CELLS[::7] if each[1] not in SLOW]


def test_every_cell_is_on_the_page() -> None:
    assert list(written()) == CELLS
    assert rendered(written()) == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("row", "feature"), QUICK)
def test_some_cells_are_as_written(row: str, feature: str) -> None:
    assert cell(ROWS[row], feature) == written()[row, feature]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "feature"), CELLS)
def test_every_cell_is_as_written(row: str, feature: str) -> None:
    assert cell(ROWS[row], feature) == written()[row, feature]


def test_the_sampler_of_cells_meets_every_row_and_kind() -> None:
    assert {row for row, _ in QUICK} == set(ROWS)
    found = {written()[each] for each in QUICK}
    assert {YES, NO_OPTION} < found


def test_an_option_that_is_ignored_is_noticed() -> None:
    def deaf(feature: str, folder: Path) -> Released:
        return fit(next(iter(fit_classes())))("replace-one", folder)

    def fit_classes() -> list[type]:
        from estimators._models import EVERY

        return list(EVERY)

    with pytest.raises(Ignored, match="rows per person"):
        cell(deaf, "rows per person")


def test_a_refusal_is_quoted_to_its_first_sentence() -> None:
    def refusing(feature: str, folder: Path) -> Released:
        raise InvalidParameter("this cannot be. Do that.")

    assert cell(refusing, "pure") == "this cannot be."
