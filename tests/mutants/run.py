"""Change one line of privacy-critical code at a time and ask its tests: every change must be noticed.

    python tests/mutants/run.py [--workers 2] [--only module[,module]] [--first 0] [--slow]

Each worker has its own copy of the tree. Survivors are printed and the exit status is 1, unless they are argued to be
equivalent in the list.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

from _accounting import ACCOUNTING  # noqa: E402
from _list import EQUIVALENT, FILES, TESTS  # noqa: E402
from _releases import RELEASES  # noqa: E402

MUTANTS = ACCOUNTING + RELEASES
Mutant = tuple[str, str, str]


def copied(place: Path) -> Path:
    """The tree without what tests do not read."""
    for name in ("src", "tests", "pyproject.toml", "docs", "Makefile", "README.md", "CHANGELOG.md"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, place / name)
    return place


def verdict(tree: Path, mutant: Mutant, slow: bool, seconds: float = 900.0) -> str:
    """killed, survived, or stale (the old text does not occur exactly once)."""
    module, old, new = mutant
    path = tree / FILES[module]
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        return "stale"
    path.write_text(text.replace(old, new), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [] if slow else ["-m", "not slow"]
    try:
        done = subprocess.run(
            [*command, *TESTS[module]],
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        return "survived" if done.returncode == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "killed"  # it hangs: noticed
    finally:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    chosen = [m for m in MUTANTS[options.first :] if not only or m[0] in only]
    found: dict[str, list[Mutant]] = {"killed": [], "survived": [], "stale": []}
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as room:
        for number in range(options.workers):
            trees.put(copied(Path(room) / f"tree{number}"))

        def tried(mutant: Mutant) -> None:
            tree, begun = trees.get(), time.monotonic()
            try:
                answer = verdict(tree, mutant, options.slow)
            finally:
                trees.put(tree)
            if answer == "survived" and mutant in EQUIVALENT:
                answer = "killed"
            found[answer].append(mutant)
            print(
                f"{answer:9}{time.monotonic() - begun:6.0f}s  {mutant[0]}: {mutant[1]!r} -> {mutant[2]!r}",
                flush=True,
            )

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(tried, chosen))
    print(", ".join(f"{len(mutants)} {answer}" for answer, mutants in found.items()))
    return 1 if found["survived"] or found["stale"] else 0


if __name__ == "__main__":
    sys.exit(main())
