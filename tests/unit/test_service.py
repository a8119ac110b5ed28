"""Inside a service: fits and counts in threads, forked workers and coroutines give what they give alone, each with
noise of its own, and one budget is charged for all of them."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.errors import BudgetExceeded
from dplangevin.estimators import DPLogisticRegression, DPRidge
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism

rng = np.random.default_rng(0)
X = rng.uniform(-0.5, 0.5, (400, 3))
Y = (X[:, 0] > 0).astype(int)
MODELS: list[tuple[type[Any], dict[str, Any]]] = [
    (DPLogisticRegression, {"classes": [0, 1], "mechanism": "noisy-gd"}),
    (DPLogisticRegression, {"classes": [0, 1], "mechanism": "objective-perturbation"}),
    (DPRidge, {"target_bounds": (0, 1), "mechanism": "sufficient-statistics"}),
    (DPLogisticRegression, {"classes": [0, 1], "secure": True}),
]


def fitted(which: int, seed: int | None = None, **more: Any) -> tuple[float, ...]:
    """The coefficients of a fit."""
    model, options = MODELS[which]
    made = model(epsilon=1.0, delta=1e-5, data_norm=1.0, random_state=seed, **options, **more)
    return tuple(np.ravel(made.fit(X, Y).coef_).tolist())


COUNTERS = [
    GeneralizedGaussianMechanism(k=4, epsilon=1, delta=1e-6, p=2.0, secure=secure) for secure in (False, True)
]


def counted(secure: bool) -> tuple[float, ...]:
    return tuple(COUNTERS[secure].release(np.zeros(4)).tolist())


def test_threads_give_what_is_given_alone() -> None:
    jobs = [(which, seed) for which in range(3) for seed in range(4)]
    alone = [fitted(*job) for job in jobs]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda job: fitted(*job), jobs)) == alone


def test_no_two_threads_share_noise() -> None:
    with ThreadPoolExecutor(6) as pool:
        fits = list(pool.map(lambda i: fitted(i % 4), range(16)))
        counts = list(pool.map(lambda i: counted(i % 2 == 0), range(24)))
    assert len(set(fits)) == 16
    assert len(set(counts)) == 24  # twice the same four secure counts: below 1e-6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_no_two_forks_share_noise() -> None:
    (
        fitted(0),
        fitted(3),
        counted(True),
        counted(False),
    )  # whatever is kept by a process is there before the forks
    seen = []
    for _ in range(4):
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                made = [fitted(0), fitted(2), fitted(3), counted(True), counted(False)]
                os.write(there, repr(made).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(there)
        with os.fdopen(here) as answer:
            seen.append(answer.read())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    parsed = [eval(words, {"__builtins__": {}}) for words in seen]
    parsed.append([fitted(0), fitted(2), fitted(3), counted(True), counted(False)])
    for releases in zip(*parsed, strict=True):
        assert len(set(releases)) == 5


def test_coroutines_fit_under_one_budget(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare("a", epsilon=4, delta=4.01e-5)

    async def many() -> list[Any]:
        jobs = [asyncio.to_thread(fitted, i % 3, ledger=budget) for i in range(24)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    found = asyncio.run(many())
    paid = [each for each in found if isinstance(each, tuple)]
    assert all(isinstance(each, tuple | BudgetExceeded) for each in found)
    assert 4 <= len(paid) < 24
    assert len(set(paid)) == len(paid) == len(budget.history())
    assert all(entry.release_hash for entry in budget.history())
    assert budget.remaining().n_over_budget == 0
