"""Seeded releases, epsilons, documents and admissions are what they were when golden.json was written.

Bits are compared where the machine rounds as the one that froze the case, else numbers to 1e-9. What has another name
since then is listed in renames.toml. `PYTHONPATH=tests python -m golden.write` freezes anew.
"""

from __future__ import annotations

import pytest

from golden.cases import CASES
from golden.frozen import differences, frozen_result, load, machine_name, renamed, without_added

FROZEN = load()
MACHINE = machine_name()


def test_every_case_is_frozen() -> None:
    assert sorted(CASES) == sorted(FROZEN["values"])


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    exact = FROZEN["frozen_on"][name] == MACHINE
    found = without_added(frozen_result(CASES[name]))
    different = list(differences(without_added(renamed(FROZEN["values"][name])), found, exact))
    assert not different, "\n".join([f"{name} (bit for bit: {exact})", *different[:20]])
