"""Build the source archive and the wheel, and test the wheel as a user would. Usage: python tools/dist.py

The wheel is installed into empty environments, without extras and with all of them. There, away from the source, the
README's code and the examples run; mypy and pyright check a caller's types against the installed package.
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
DEVELOPMENT_EXTRAS = ("dev", "docs", "bench", "dist", "demo")
CALLER = """
from dplangevin import DPLogisticRegression, Guarantee, account
from dplangevin.ledger import Ledger

guarantee: Guarantee = account(
    n=100, lipschitz=1.0, smoothness=1.0, step_size=0.1, noise_std=1.0, n_steps=10, delta=1e-6
)
epsilon: float = guarantee.epsilon()
model: DPLogisticRegression = DPLogisticRegression(epsilon=epsilon)
name: str = guarantee.theorem


def owner(url: str) -> Ledger:
    return Ledger.open(url)
"""
WRONG = "from dplangevin import account\ntext: str = account(n=1, delta=1e-6).epsilon()\n"


def run_command(
    arguments: Sequence[str | Path], cwd: Path, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command without the Python settings of this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        sys.exit(f"FAILED: {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done


def build_wheel(target: Path) -> Path:
    """Build the wheel from the source archive, which is thereby checked to be complete."""
    shutil.rmtree(target, ignore_errors=True)
    run_command([sys.executable, "-m", "build", "--outdir", target, ROOT], ROOT)
    [wheel] = target.glob("*.whl")
    return wheel


def create_environment(folder: Path, wheel: Path, extras: Sequence[str] = ()) -> Path:
    """Return the interpreter of a new environment that contains only the wheel and the extras."""
    venv.create(folder, with_pip=True)
    requirement = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    python = folder / "bin" / "python"
    run_command([python, "-m", "pip", "install", "--quiet", requirement], folder)
    return python


def readme_block() -> str:
    """Return the first block of code of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def run_examples(python: Path, folder: Path, *, all_extras: bool) -> str:
    """Run every example; without extras, one that needs an extra must name it."""
    n_ran, needing = 0, []
    for script in sorted((ROOT / "examples").glob("*.py")):
        done = run_command([python, script], folder, check=False)
        missing = re.search(r"(?:pip install .?dplangevin\[|No module named ')(\w+)", done.stderr)
        if done.returncode and (all_extras or missing is None):
            sys.exit(f"FAILED: {script.name}\n{done.stdout}{done.stderr}")
        if done.returncode and missing is not None:
            needing.append(f"{script.stem} ({missing[1]})")
        else:
            n_ran += 1
    return f"{n_ran} examples ran" + (f"; asking for an extra: {', '.join(needing)}" if needing else "")


def check_types(python: Path, folder: Path) -> str:
    """Check a caller's types against the installed package; a wrong one must be an error."""
    (folder / "caller.py").write_text(CALLER)
    (folder / "wrong.py").write_text(WRONG)
    tools = {
        "mypy": [sys.executable, "-m", "mypy", "--strict", "--python-executable", python],
        "pyright": [sys.executable, "-m", "pyright", "--pythonpath", python],
    }
    for name, command in tools.items():
        run_command([*command, "caller.py"], folder)
        if run_command([*command, "wrong.py"], folder, check=False).returncode == 0:
            sys.exit(f"FAILED: {name} does not see the types of the installed package")
    return "types complete for mypy --strict and pyright"


def placeholders() -> list[str]:
    """Return lines of pyproject.toml and of the conda recipe that a person has to fill in."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "conda/recipe.yaml")]
    return [line.lstrip("# ") for text in texts for line in text.splitlines() if "PLACEHOLDER" in line]


def main() -> None:
    """Run all checks in order; stop at the first failure."""
    start = time.monotonic()

    def print_step(message: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {message}", flush=True)

    wheel = build_wheel(ROOT / "dist")
    print_step(f"built {', '.join(sorted(path.name for path in (ROOT / 'dist').iterdir()))}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name in project["optional-dependencies"] if name not in DEVELOPMENT_EXTRAS]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for label, selected in (("no extras", []), (f"extras {', '.join(extras)}", extras)):
            environment = folder / ("all" if selected else "plain")
            python = create_environment(environment, wheel, selected)
            run_command([python.parent / "dplangevin", "--version"], folder)
            run_command([python, "-c", readme_block()], folder)
            print_step(f"{label}: installed, the README's code ran")
            print_step(f"{label}: {run_examples(python, folder, all_extras=bool(selected))}")
        print_step(check_types(folder / "all" / "bin" / "python", folder))
    for line in placeholders():
        print_step(f"TO BE FILLED IN: {line}")
    print_step("done")


if __name__ == "__main__":
    main()
