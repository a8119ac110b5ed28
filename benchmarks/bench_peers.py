"""Logistic regression on Adult, compared with scikit-learn, diffprivlib, Opacus and DP-EBM (untuned, one thread)."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
import venv
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Row, readable
from loaders import FILES, Unavailable, load

HERE = Path(__file__).parent
OURS, COMPILED = "dplangevin, delta = 1e-5, replace-one", ", compiled"
NEEDS = {
    "diffprivlib": ["diffprivlib==0.6.6", "scikit-learn<1.8"],
    "opacus": ["torch==2.13.0", "opacus==1.6.0"],
    "interpret": ["interpret-core==0.7.8", "pandas"],
}


def rows() -> list[Row]:
    """Measure accuracy at three budgets and the processor time of one fit; peers that cannot run are reported."""
    try:
        X, y, X_test, y_test = load("adult")
    except Unavailable as reason:
        return [Row(what="Adult", asked="", measured="not run", note=str(reason))]
    results = _ours(X, y, X_test, y_test)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adult.npz"
        np.savez(file, X=X, y=y, X_test=X_test, y_test=y_test)
        for peer in NEEDS:  # trees take the raw columns
            raw = Path(os.environ["DPLANGEVIN_DATA"]) / FILES["adult"]
            results += _peer(peer, raw if peer == "interpret" else file)
    return _table(results)


def _ours(X: Any, y: Any, X_test: Any, y_test: Any) -> list[dict[str, Any]]:
    from sklearn.linear_model import LogisticRegression

    from dplangevin import DPLogisticRegression

    warnings.simplefilter("ignore")
    kinds: list[tuple[str, float, Any]] = [
        ("scikit-learn, not private", 0.0, LogisticRegression(fit_intercept=False))
    ]
    compiled = [(OURS + COMPILED, 1e-5, "replace-one")] if find_spec("numba") else []
    for name, delta, adjacency in (
        (OURS, 1e-5, "replace-one"),
        *compiled,
        ("dplangevin, delta = 1e-5, add-remove", 1e-5, "add-remove"),
        ("dplangevin, pure, replace-one", 0.0, "replace-one"),
    ):
        for epsilon in (0.1, 0.5, 1.0):
            model = DPLogisticRegression(
                epsilon=epsilon,
                delta=delta,
                adjacency=adjacency,
                data_norm=1.0,
                fit_intercept=False,
                classes=[0, 1],
            )
            kinds.append((name, epsilon, model))
    results = []
    for turn in range(8):  # they take turns, so that other jobs disturb all of them alike
        for name, epsilon, model in kinds:
            os.environ["DPLANGEVIN_KERNEL"] = "numba" if name.endswith(COMPILED) else "numpy"
            start = time.process_time()
            model.fit(X, y)
            spent = time.process_time() - start
            if turn:  # the first one loads imports and compiled code
                accuracy = model.score(X_test, y_test)
                results.append({"who": name, "epsilon": epsilon, "accuracy": accuracy, "seconds": spent})
    return results


def peer_python(name: str) -> Path:
    """Return the interpreter of a peer's own environment, which is created on first use."""
    home = HERE / ".peers" / name
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *NEEDS[name]], check=True, capture_output=True)
        (home / "ready").touch()
    return python


def _peer(name: str, file: Path) -> list[dict[str, Any]]:
    """Return what a peer prints in its own environment."""
    try:
        run = subprocess.run(
            [peer_python(name), HERE / f"_peer_{name}.py", file],
            check=True,
            capture_output=True,
            text=True,
            timeout=900,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return [{"who": name, "failed": type(error).__name__}]
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def _table(results: list[dict[str, Any]]) -> list[Row]:
    result = []
    times = {}
    for who in dict.fromkeys(entry["who"] for entry in results):
        mine = [entry for entry in results if entry["who"] == who]
        if "failed" in mine[0]:
            result.append(Row(what=who, asked="", measured="could not be run", note=mine[0]["failed"]))
            continue
        cells = []
        for epsilon in sorted({entry["epsilon"] for entry in mine}):
            scores = [entry["accuracy"] for entry in mine if entry["epsilon"] == epsilon]
            label = f"epsilon {epsilon:g}: " if epsilon else ""
            cells.append(f"{label}{100 * statistics.mean(scores):.2f}%")
        times[who] = statistics.median(entry["seconds"] for entry in mine)
        result.append(
            Row(what=who, asked="", measured=", ".join(cells), note=f"{readable(times[who])} per fit")
        )
    for who, share, extra in (
        ("Opacus, its own loader", 0.2, ""),
        ("Opacus, direct indexing", 0.5, ""),
        ("scikit-learn, not private", 4.0, ""),
        ("scikit-learn, not private", 2.0, COMPILED),
    ):
        if OURS + extra in times and who in times:
            ratio = times[OURS + extra] / times[who]
            result.append(
                Row(
                    what=f"fit time{extra} over {who}",
                    asked=f"<= {share:g}",
                    measured=f"{ratio:.2f}",
                    met=ratio <= share,
                )
            )
    return result
