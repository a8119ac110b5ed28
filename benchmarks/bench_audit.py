"""Audits: time of an attack, and a known fault of another library that an audit finds."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Row, readable
from bench_peers import HERE, peer_python

from dplangevin.accounting.conversions import gdp_mu
from dplangevin.audit import gaussian_claim, many_run_attack

EPSILON, NORM, RUNS, SEED = 0.1, 100.0, 20_000, 1


def rows() -> list[Row]:
    """Measure an attack on 100,000 scores, and audit diffprivlib's logistic regression."""
    return [_attack_time(), _diffprivlib()]


def _attack_time() -> Row:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 50_000))
    mu = gdp_mu(2.0, 1e-5)
    start = time.process_time()
    result = many_run_attack(first, second + 1.3 * mu, gaussian_claim(mu, 1e-5), delta=1e-5)
    spent = time.process_time() - start
    return Row(
        what="attack on 100,000 scores, noise / 1.3, claimed (2, 1e-5)",
        asked="refuted",
        measured="refuted" if result.refuted else "not refuted",
        note=f"mu at least {result.mu_lower:.3f}, claimed {mu:.3f}; {readable(spent)}",
        met=result.refuted,
    )


def _diffprivlib() -> Row:
    """Audit objective perturbation with data_norm 100 and epsilon 0.1: a row of norm 100 against a row of zeros.

    A long row makes the objective steep near 0, which shows in the density of the released coefficient; the library's
    correction uses the norm instead of its square. The score is minus the distance from 0.
    """
    what = f"diffprivlib 0.6.6 LogisticRegression, data_norm {NORM:g}, epsilon {EPSILON:g}: audited epsilon"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fits.npz"
        arguments: list[Any] = [EPSILON, NORM, RUNS, SEED, file]
        try:
            python = peer_python("diffprivlib")
            script = HERE / "_peer_diffprivlib_audit.py"
            subprocess.run(
                [python, script, *map(str, arguments)], check=True, capture_output=True, timeout=1800
            )
        except (OSError, subprocess.SubprocessError) as error:
            return Row(what=what, asked="> 0.5", measured="could not be run", note=type(error).__name__)
        fits = np.load(file)
    result = many_run_attack(-np.abs(fits["side0"]), -np.abs(fits["side1"]), (EPSILON, 0.0), delta=0.0)
    return Row(
        what=what,
        asked="> 0.5",
        measured=f">= {result.epsilon_lower:.3f} at confidence {result.confidence:g}",
        note=f"{result.runs:,} fits, seed {SEED}; claim {'refuted' if result.refuted else 'not refuted'}",
        met=result.epsilon_lower > 0.5,
    )
