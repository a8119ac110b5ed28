"""Seeded releases, epsilons, documents and admissions are what they were when golden.json was written.

Bits are compared where the machine rounds as the one that froze them, else numbers to 1e-9. What has another name since
then is listed in renames.toml. `PYTHONPATH=tests python -m golden.write` freezes anew.
"""

from __future__ import annotations

import pytest

from golden.cases import CASES
from golden.frozen import differences, fingerprint, frozen_result, load, renamed, without_added

FROZEN = load()
EXACT = FROZEN["fingerprint"] == fingerprint()


def test_every_case_is_frozen() -> None:
    assert sorted(CASES) == sorted(FROZEN["values"])


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    found = without_added(frozen_result(CASES[name]))
    different = list(differences(without_added(renamed(FROZEN["values"][name])), found, EXACT))
    assert not different, "\n".join([f"{name} (bit for bit: {EXACT})", *different[:20]])
