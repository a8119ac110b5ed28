"""Changing one record leaves what every other record becomes as it was: containers x types x odd cells, every entry.

`make test` runs samples with fixed seeds, `make audit` the full product on the reader. The old reader, which let NumPy
read a list wherever it managed, is kept here as a broken variant and is caught.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.tables import as_column, as_matrix, read_label, read_number
from dplangevin.tables.cells import MAX_NUMBER_LENGTH, read_person
from fuzz import _matrix as matrix
from fuzz._odd_objects import Jax, Raising, Speaking, Tensor
from fuzz._old_reader import old_column

SOME = 1500
UNTOUCHED = (
    "list", "tuple", "deque", "own list", "array of objects", "structured array", "Series of objects", "lists",
    "tuples", "deques", "dictionaries", "arrays of objects", "dictionary of columns", "dictionary of arrays",
)  # fmt: skip
"""Containers that hold a cell as it is."""


def read(container: str, cells: list[Any], folder: Path, column: Any = matrix.column_of) -> list[Any] | None:
    """What each cell becomes; None where the container refuses. Nothing is raised, warned of or printed."""
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()):
            given = matrix.build(container, cells, folder)
    except matrix.Unbuildable:
        return None
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said):
        warnings.simplefilter("error")
        found = matrix.readings(column(container, given))
    assert not said.getvalue()
    return found


def faults(
    cases: Iterator[tuple[str, str, str]], folder: Path, column: Any = matrix.column_of
) -> tuple[int, list[Any]]:
    """How many cases could be built, and those in which another record changed or something was raised."""
    plain: dict[tuple[str, str], Any] = {}
    found, built = [], 0
    for container, base, poison in cases:
        if container == "column of an array" and base in ("arrays of one", "lists of one"):
            continue  # three dimensions: refused by their shape, which is public
        if (container, base) not in plain:
            plain[container, base] = read(container, matrix.base_cells(base), folder, column)
        first = plain[container, base]
        try:
            second = read(container, matrix.with_poison(base, poison), folder, column) if first else None
        except Exception as error:
            found.append((container, base, poison, type(error).__name__))
            continue
        if first is None or second is None:
            continue
        built += 1
        others = [i for i in range(matrix.ROWS) if i != matrix.PLACE]
        if [first[i] for i in others] != [second[i] for i in others]:
            found.append((container, base, poison, "changed"))
    return built, [case for case in found if not matrix.changed_by_container(*case[:3])]


def test_the_matrix_has_its_size() -> None:
    assert len(matrix.CONTAINERS) >= 27
    assert len(matrix.BASES) >= 45
    assert len(matrix.POISONS) >= 54


def test_one_odd_cell_changes_its_own_reading_only(tmp_path: Path) -> None:
    built, found = faults(matrix.product(seed=0, most=SOME), tmp_path)
    assert found == []
    assert built > SOME // 2


@pytest.mark.slow
def test_one_odd_cell_changes_its_own_reading_only_in_the_full_product(tmp_path: Path) -> None:
    built, found = faults(matrix.product(), tmp_path)
    assert found == []
    assert built > 50_000


def test_the_old_reader_is_caught(tmp_path: Path) -> None:
    cases = [
        ("list", base, poison)
        for base in ("arrays without dimensions", "tensors")
        for poison in ("null", "text")
    ]
    assert len(faults(iter(cases), tmp_path, old_column)[1]) >= 2
    assert faults(iter(cases), tmp_path)[1] == []


@pytest.mark.parametrize("container", UNTOUCHED)
def test_shortcuts_agree_with_the_rule_of_one_cell(container: str, tmp_path: Path) -> None:
    """Whether a shortcut is taken depends on all cells; what it gives does not."""
    for cells in [
        *(matrix.base_cells(base) for base in matrix.BASES),
        *([p] for p in matrix.POISONS.values()),
    ]:
        with warnings.catch_warnings(action="ignore"):
            column = matrix.column_of(container, matrix.build(container, cells, tmp_path))
        np.testing.assert_array_equal(column.numbers(), [read_number(cell) for cell in cells])
        for text in (False, True):
            assert column.texts(text=text).tolist() == [read_label(cell, text=text) for cell in cells]
        places, names = column.persons()
        assert [names[i] if i >= 0 else None for i in places] == [read_person(cell) for cell in cells]


def test_scalars_of_other_libraries_are_their_item() -> None:
    scalars = [Tensor(1), Jax(1), np.array(1), np.array([1]), [1], (1,), Tensor([1]), [[1]]]
    for name, make in (("torch", "tensor"), ("jax.numpy", "array")):
        with contextlib.suppress(ImportError):
            scalars += list(getattr(importlib.import_module(name), make)([1, 1]))
    for scalar in scalars:
        assert (read_number(scalar), read_label(scalar), read_person(scalar)) == (1.0, "1", "1")
    for several in (np.array([1, 2]), np.array([]), Tensor([1, 2]), [], [1, 2], np.ma.masked, {1}, {"a": 1}):
        assert np.isnan(read_number(several))
        assert read_label(several) is read_person(several) is None
    nested: list[Any] = []
    nested.append(nested)
    assert np.isnan(read_number(nested))


@pytest.mark.parametrize("kind", [list, tuple, np.array, Tensor])
def test_rows_of_every_kind_are_one_table(kind: Callable[[Any], Any]) -> None:
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    np.testing.assert_array_equal(as_matrix([kind(row) for row in rows]), rows)
    for odd in ([None, 7.0], [7.0], 7.0, "7", None, Speaking(), Raising(), {"a": 1}):
        found = as_matrix([kind(rows[0]), odd, kind(rows[2])], 2)
        np.testing.assert_array_equal(found[[0, 2]], [rows[0], rows[2]])


def test_the_time_of_a_cell_is_linear_in_its_length() -> None:
    """10 MB cells of every shape that a pattern might try again and again; 15 s for 20 kB before.

    A text is cut off by its length before any pattern sees it, so that the largest work is that of MAX_NUMBER_LENGTH
    characters; the rest is decoding. The limits are a hundred times what is measured.
    """
    shapes = ["9{}x", "({}+0j)x", " {}x", "{}", "2020-01-01 00:00:00.{}x", "-{}.{}e{}x", "inf{}", "e{}\0"]
    for length in (MAX_NUMBER_LENGTH - 60, 10**7):
        for shape in shapes:
            text = shape.replace("{}", "{0}").format("9" * (length // shape.count("{}")))
            for cell in (text, text.encode(), [text]):
                start = time.process_time()
                read_number(cell), read_label(cell), read_label(cell, text=True), read_person(cell)
                assert time.process_time() - start < 5.0
    start = time.process_time()
    as_column(["9" * 20_000 + "x"] * 200, "x").numbers()
    assert time.process_time() - start < 5.0


def test_objects_that_raise_are_missing_and_containers_that_raise_are_refused_without_their_words() -> None:
    assert np.isnan(read_number(Raising()))
    assert read_label(Raising()) is read_person(Raising()) is None
    for read_column in (lambda: as_column(Speaking(), "y"), lambda: as_matrix(Speaking())):
        with pytest.raises(ValueError, match="must be") as error:
            read_column()
        assert "SECRET" not in str(error.value)
        assert error.value.__suppress_context__
