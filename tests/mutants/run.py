"""Change one line of privacy-critical code at a time and ask its tests: every change must be noticed.

    python tests/mutants/run.py [--workers 2] [--only module[,module]] [--slow] [--trust]

Each worker has its own copy of the tree. The tests must pass on the code as it is, or they would notice anything: they
are asked first (unless trusted). Survivors are printed and the exit status is 1, unless they are argued to be
equivalent in the list.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dp_accounting.pld  # noqa: F401 - loaded once, for every child
import hypothesis  # noqa: F401
import mpmath  # noqa: F401
import numpy  # noqa: F401
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats  # noqa: F401

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

from _accounting import ACCOUNTING  # noqa: E402
from _list import EQUIVALENT, FILES, TESTS  # noqa: E402
from _other_mechanisms import OTHER_MECHANISMS  # noqa: E402
from _releases import RELEASES  # noqa: E402
from _slips_list import HARMLESS_SLIPS, SLIP_FILES, SLIP_TESTS, SLIPS  # noqa: E402
from _wiring_list import WIRING  # noqa: E402

MUTANTS = ACCOUNTING + RELEASES + OTHER_MECHANISMS + WIRING + SLIPS
FILES, TESTS, EQUIVALENT = FILES | SLIP_FILES, TESTS | SLIP_TESTS, EQUIVALENT | HARMLESS_SLIPS
LONGEST = 900.0  # seconds
Mutant = tuple[str, str, str]


def copied(place: Path) -> Path:
    """The tree without what tests do not read, its bytecode included: what is not mutated is not compiled again."""
    for name in ("src", "tests", "pyproject.toml", "docs", "Makefile", "README.md", "CHANGELOG.md"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, place / name)
    compileall.compile_dir(place / "src", quiet=2)
    return place


def collected(tree: Path, files: Sequence[str]) -> None:
    """The bytecode of the tests, which pytest rewrites."""
    os.waitpid(started(tree, ("--collect-only", *files), True, writing=True), 0)


def started(tree: Path, tests: Sequence[str], slow: bool, writing: bool = False) -> int:
    """A child process that asks these tests; its packages are loaded already, those of the tree are not."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.chdir(tree)
        sys.path.insert(0, str(tree / "src"))
        sys.dont_write_bytecode = not writing
        os.environ["PYTHONPATH"] = str(tree / "src")
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        arguments = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
        status = int(pytest.main(arguments if slow else ["-m", "not slow", *arguments]))
    finally:
        os._exit(status)


@dataclass
class Work:
    """A mutant being asked about."""

    mutant: Mutant
    tree: Path
    text: str  # the file as it was,
    time: int  # and its time, without which its bytecode would be stale
    begun: float


def finished(working: dict[int, Work]) -> tuple[Work, str]:
    """The next answer: killed or survived. A child that hangs is ended: noticed."""
    while True:
        for child, work in list(working.items()):
            late = time.monotonic() - work.begun > LONGEST
            if late:
                os.kill(child, signal.SIGKILL)
            done, status = os.waitpid(child, 0 if late else os.WNOHANG)
            if done:
                file = work.tree / FILES[work.mutant[0]]
                file.write_text(work.text, encoding="utf-8")
                os.utime(file, ns=(work.time, work.time))
                return working.pop(child), "survived" if status == 0 else "killed"
        time.sleep(0.2)


def faulty(mutants: list[Mutant], slow: bool, folder: Path) -> list[str]:
    """The test files that do not pass on the code as it is."""
    tree = copied(folder / "clean")
    files = sorted({file for module, _, _ in mutants for file in TESTS[module]})
    return [file for file in files if os.waitpid(started(tree, (file,), slow), 0)[1]]


def answers(
    mutants: list[Mutant], workers: int, slow: bool, folder: Path
) -> Iterator[tuple[Mutant, str, float]]:
    """(mutant, killed | survived | stale, seconds), in the order in which they are known."""
    free = [copied(folder / f"tree{number}") for number in range(workers)]
    for tree in free:
        collected(tree, sorted({file for module, _, _ in mutants for file in TESTS[module]}))
    waiting, working = list(mutants), dict[int, Work]()
    while waiting or working:
        while waiting and free:
            mutant, tree = waiting.pop(0), free.pop()
            module, old, new = mutant
            file = tree / FILES[module]
            text, age = file.read_text(encoding="utf-8"), file.stat().st_mtime_ns
            if text.count(old) != 1:
                free.append(tree)
                yield mutant, "stale", 0.0
                continue
            file.write_text(text.replace(old, new), encoding="utf-8")
            working[started(tree, TESTS[module], slow)] = Work(mutant, tree, text, age, time.monotonic())
        if working:
            work, answer = finished(working)
            free.append(work.tree)
            yield work.mutant, answer, time.monotonic() - work.begun


def area_of(module: str) -> str:
    """The package of a module; a mechanism by its own name."""
    parts = Path(FILES[module]).parts[2:-1]
    return "/".join(parts[:2]) if parts[0] == "mechanisms" and len(parts) > 1 else parts[0]


def print_areas(areas: dict[str, Counter[str]]) -> None:
    """How many of each area were noticed; then all together."""
    total: Counter[str] = Counter()
    for area, counts in sorted(areas.items()):
        asked = counts.total() - counts["equivalent"]
        print(f"{area:30}{counts['killed']:5} of {asked} noticed")
        total += counts
    print(", ".join(f"{count} {answer}" for answer, count in total.items()))


def main() -> int:
    """Ask about the chosen mutants; 1 when one survives without an argument, or fits the code no more."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--trust", action="store_true")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    chosen = [mutant for mutant in MUTANTS if not only or mutant[0] in only]
    areas: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        failing = [] if options.trust else faulty(chosen, options.slow, Path(folder))
        if failing:
            print("these tests fail on the code as it is:", *failing)
            return 2
        for mutant, found, seconds in answers(chosen, options.workers, options.slow, Path(folder)):
            answer = "equivalent" if found == "survived" and mutant in EQUIVALENT else found
            areas.setdefault(area_of(mutant[0]), Counter())[answer] += 1
            print(f"{answer:11}{seconds:5.0f}s  {mutant[0]}: {mutant[1]!r} -> {mutant[2]!r}", flush=True)
    print_areas(areas)
    return 1 if any(counts["survived"] or counts["stale"] for counts in areas.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
