"""What a process keeps for its user (heads, pending results, checkpoints) goes to a folder of the test run."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_STATE = tempfile.mkdtemp(prefix="dplangevin-tests-")
os.environ["DPLANGEVIN_STATE"] = _STATE  # child processes inherit it
_OWNER = os.getpid()


@atexit.register
def _remove() -> None:
    if os.getpid() == _OWNER:  # not a fork of the test process
        shutil.rmtree(_STATE, ignore_errors=True)
