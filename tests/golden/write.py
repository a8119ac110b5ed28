"""Freeze the results of all cases anew: `PYTHONPATH=tests python -m golden.write`, or with the names of some cases.

The values are written in the names of today, so renames.toml must be emptied when all of them are written.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from fnmatch import fnmatch
from typing import Any

from golden.cases import CASES
from golden.frozen import HERE, fingerprint, frozen_result, load, machine_name


def main(patterns: list[str]) -> None:
    """Write golden.json; patterns (fnmatch) choose cases, and the others keep their values."""
    chosen = [name for name in CASES if not patterns or any(fnmatch(name, each) for each in patterns)]
    before: dict[str, Any] = load() if patterns else {"machines": {}, "frozen_on": {}, "values": {}}
    values, frozen_on = before["values"], before["frozen_on"] | dict.fromkeys(chosen, machine_name())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPLANGEVIN_STATE"] = folder
        for name in chosen:
            values[name] = frozen_result(CASES[name])
    machines = before["machines"] | {machine_name(): fingerprint()}
    content = {
        "machines": {name: machines[name] for name in sorted(machines) if name in frozen_on.values()},
        "frozen_on": {name: frozen_on[name] for name in CASES},
        "values": {name: values[name] for name in CASES},
    }
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    (HERE / "golden.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(chosen)} of {len(CASES)} cases written")


if __name__ == "__main__":
    main(sys.argv[1:])
