"""Commands that are interrupted at random moments: nothing lost, nothing free, nothing charged twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
DRIVER = Path(__file__).with_name("_delivery_driver.py")


def attack(folder: Path, times: int, seed: int, *signals: str) -> dict[str, Any]:
    command = [sys.executable, str(DRIVER), str(folder), str(times), str(seed), *signals]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    print(found)
    return found


@pytest.mark.slow
def test_interrupts_lose_nothing(tmp_path: Path) -> None:
    found = attack(tmp_path, 200, 1, "SIGINT", "SIGTERM")
    assert found["tally"]["hit after the charge"] >= 60
    assert found["entries"] == 206  # one charge a command, and six to begin with
    assert found["unnoted"] == 0
    assert found["left"] == []


@pytest.mark.slow
def test_kills_lose_single_releases_only_and_say_so(tmp_path: Path) -> None:
    found = attack(tmp_path, 200, 2, "SIGKILL")
    lost = found["tally"].get("charged, lost and reported", 0)
    assert found["tally"]["hit after the charge"] >= 60
    assert found["entries"] == 206 + lost
    assert found["unnoted"] == lost
    assert found["left"] == []
