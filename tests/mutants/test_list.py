"""The list of mutants fits the code: every old text occurs exactly once, every module has tests."""

from __future__ import annotations

from pathlib import Path

from mutants._accounting import ACCOUNTING
from mutants._list import EQUIVALENT, FILES, TESTS
from mutants._other_mechanisms import OTHER_MECHANISMS
from mutants._releases import RELEASES
from mutants._slips_list import HARMLESS_SLIPS, SLIP_FILES, SLIP_TESTS, SLIPS
from mutants._wiring_list import WIRING

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = ACCOUNTING + RELEASES + OTHER_MECHANISMS + WIRING + SLIPS
FILES, TESTS, EQUIVALENT = FILES | SLIP_FILES, TESTS | SLIP_TESTS, EQUIVALENT | HARMLESS_SLIPS


def test_every_mutant_has_its_place() -> None:
    assert len(MUTANTS) >= 150
    assert len(set(MUTANTS)) == len(MUTANTS)
    texts = {module: (ROOT / path).read_text(encoding="utf-8") for module, path in FILES.items()}
    for module, old, new in MUTANTS:
        assert texts[module].count(old) == 1, (module, old)
        assert old != new
    assert {module for module, _, _ in MUTANTS} == set(FILES) == set(TESTS)
    assert set(EQUIVALENT) <= set(MUTANTS)


def test_every_module_is_asked_by_tests_that_exist() -> None:
    for module, files in TESTS.items():
        assert files, module
        assert all((ROOT / file.partition("::")[0]).exists() for file in files), module
