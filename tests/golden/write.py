"""Freeze the results of all cases anew: `PYTHONPATH=tests python -m golden.write`, or with the names of some cases.

The values are written in the names of today, so renames.toml must be emptied when all of them are written.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from fnmatch import fnmatch

from golden.cases import CASES
from golden.frozen import HERE, fingerprint, frozen_result, load


def main(patterns: list[str]) -> None:
    """Write golden.json; patterns (fnmatch) choose cases, and the others keep their values."""
    chosen = [name for name in CASES if not patterns or any(fnmatch(name, each) for each in patterns)]
    values = {} if not patterns else load()["values"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPLANGEVIN_STATE"] = folder
        for name in chosen:
            values[name] = frozen_result(CASES[name])
    content = {"fingerprint": fingerprint(), "values": {name: values[name] for name in CASES}}
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    (HERE / "golden.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(chosen)} of {len(CASES)} cases written")


if __name__ == "__main__":
    main(sys.argv[1:])
