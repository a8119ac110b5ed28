"""No release comes from a state file of which a field was changed, and nothing but the library's errors."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dplangevin.errors import DplangevinError
from dplangevin.mechanisms import run_state
from fuzz import _states as states

SOME = 600
MANY = int(os.environ.get("DPLANGEVIN_FUZZ", "100000"))
SHARE = 0.25
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> list[states.Case | states.Fit]:
    found: list[states.Case | states.Fit] = []
    for i, name in enumerate(states.KINDS):
        folder = tmp_path_factory.mktemp("states")
        found.append(states.stopped(name, folder, paid=i % 2 == 0))
    found += [states.stopped_fit(name, tmp_path_factory.mktemp("states")) for name in states.FITS]
    folder = tmp_path_factory.mktemp("states")
    return [*found, states.stopped(states.KINDS[0], folder, paid=True, left=0)]  # no record was read yet


def _shake(cases: list[states.Case | states.Fit], path: Path, count: int, seed: int) -> Counter[str]:
    rng, outcomes = np.random.default_rng(seed), Counter[str]()
    plains = [json.loads(case.content) for case in cases]
    for i in range(count):
        which = i % len(cases)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        text = json.dumps(states.changed(plains[which], rng))
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            cases[which].resumed(path)
            outcomes["released"] += 1
        except DplangevinError:
            outcomes["refused"] += 1
        except Exception as error:
            outcomes[f"{type(error).__name__}: {str(error)[:60]}"] += 1
    return outcomes


def test_an_unchanged_state_goes_on(stopped: list[states.Case | states.Fit], tmp_path: Path) -> None:
    """The honest twin: written anew, in another order and with other spaces, each case is released."""
    for case in stopped:
        path = tmp_path / "run.state"
        path.touch(mode=0o600)
        path.write_text(json.dumps(json.loads(case.content), indent=2, sort_keys=True))
        assert case.resumed(path).digest()


def test_no_release_from_a_changed_state(stopped: list[states.Case | states.Fit], tmp_path: Path) -> None:
    assert _shake(stopped, tmp_path / "run.state", SOME, 1) == {"refused": SOME}


def test_the_fuzzer_sees_a_release(
    stopped: list[states.Case | states.Fit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: without the two codes, changed states are released."""
    monkeypatch.setattr(run_state.hmac, "compare_digest", lambda one, two: True)
    assert _shake(stopped, tmp_path / "run.state", 90, 1)["released"] > 3


@pytest.mark.slow
def test_no_release_from_very_many_changed_states(
    stopped: list[states.Case | states.Fit], tmp_path: Path
) -> None:
    count = int(MANY * SHARE)
    assert _shake(stopped, tmp_path / "run.state", count, 2) == {"refused": count}
