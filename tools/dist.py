"""Build the source archive and the wheel, and use the wheel as a stranger would. Usage: python tools/dist.py

The wheel is installed into empty environments, without extras and with all of them. There, away from the source, the
README's code and the examples run; mypy and pyright check a caller's types against what was installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_FOR_USE = ("dev", "docs", "bench", "dist", "demo")
CALLER = """
from dplangevin import DPLogisticRegression, Guarantee, account
from dplangevin.ledger import Ledger

promise: Guarantee = account(n=100, lipschitz=1.0, smoothness=1.0, step_size=0.1, noise_std=1.0, steps=10, delta=1e-6)
epsilon: float = promise.epsilon()
model: DPLogisticRegression = DPLogisticRegression(epsilon=epsilon)
name: str = promise.theorem


def owner(url: str) -> Ledger:
    return Ledger.open(url)
"""
WRONG = "from dplangevin import account\nwords: str = account(n=1, delta=1e-6).epsilon()\n"


def call(words: Sequence[str | Path], cwd: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run without anything of this checkout in the way."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        sys.exit(f"FAILED: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done


def built(target: Path) -> Path:
    """The wheel; it comes from the source archive, so the archive is complete."""
    shutil.rmtree(target, ignore_errors=True)
    call([sys.executable, "-m", "build", "--outdir", target, ROOT], ROOT)
    [wheel] = target.glob("*.whl")
    return wheel


def environment(place: Path, wheel: Path, extras: Sequence[str] = ()) -> Path:
    """The python of a new environment that holds the wheel and nothing else."""
    venv.create(place, with_pip=True)
    named = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    python = place / "bin" / "python"
    call([python, "-m", "pip", "install", "--quiet", named], place)
    return python


def readme_block() -> str:
    """The first block of code of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def examples(python: Path, folder: Path, *, all_extras: bool) -> str:
    """Run every example; without extras, one that needs an extra must say which."""
    ran, needing = 0, []
    for script in sorted((ROOT / "examples").glob("*.py")):
        done = call([python, script], folder, check=False)
        missing = re.search(r"(?:pip install .?dplangevin\[|No module named ')(\w+)", done.stderr)
        if done.returncode and (all_extras or missing is None):
            sys.exit(f"FAILED: {script.name}\n{done.stdout}{done.stderr}")
        if done.returncode and missing is not None:
            needing.append(f"{script.stem} ({missing[1]})")
        else:
            ran += 1
    return f"{ran} examples ran" + (f"; asking for an extra: {', '.join(needing)}" if needing else "")


def types(python: Path, folder: Path) -> str:
    """A caller's types against the installed package; a wrong one must be noticed."""
    (folder / "caller.py").write_text(CALLER)
    (folder / "wrong.py").write_text(WRONG)
    tools = {
        "mypy": [sys.executable, "-m", "mypy", "--strict", "--python-executable", python],
        "pyright": [sys.executable, "-m", "pyright", "--pythonpath", python],
    }
    for name, words in tools.items():
        call([*words, "caller.py"], folder)
        if call([*words, "wrong.py"], folder, check=False).returncode == 0:
            sys.exit(f"FAILED: {name} does not see the types of the installed package")
    return "types complete for mypy --strict and pyright"


def placeholders() -> list[str]:
    """Lines of pyproject.toml that a person has to fill in."""
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    return [line.lstrip("# ") for line in lines if "PLACEHOLDER" in line]


def main() -> None:
    """Everything in order; the first failure ends it."""
    start = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {words}", flush=True)

    wheel = built(ROOT / "dist")
    say(f"built {', '.join(sorted(path.name for path in (ROOT / 'dist').iterdir()))}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name in project["optional-dependencies"] if name not in NOT_FOR_USE]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for label, chosen in (("no extras", []), (f"extras {', '.join(extras)}", extras)):
            place = folder / ("all" if chosen else "plain")
            python = environment(place, wheel, chosen)
            call([python.parent / "dplangevin", "--version"], folder)
            call([python, "-c", readme_block()], folder)
            say(f"{label}: installed, the README's code ran")
            say(f"{label}: {examples(python, folder, all_extras=bool(chosen))}")
        say(types(folder / "all" / "bin" / "python", folder))
    for line in placeholders():
        say(f"TO BE FILLED IN: {line}")
    say("done")


if __name__ == "__main__":
    main()
