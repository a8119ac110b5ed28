"""One row of the audit table: a mechanism in a stated configuration, honest and broken."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.audit import AuditResult, many_run_attack
from dplangevin.audit.auditor import score_runs
from dplangevin.mechanisms.noisy_answers import mechanism
from dplangevin.sampling import exact_noise

Draw = Callable[[int, int, np.random.Generator], np.ndarray]
CONFIDENCE = 0.999
"""Per audit. Two one-sided bounds must fail together, so a false alarm is in fact rarer; seeds are fixed."""
TIGHT = 0.7


@dataclass(frozen=True, kw_only=True)
class Case:
    """Draws are functions (side 0 or 1, runs, rng) -> scores [runs] or vectors [runs, dimension].

    covers : the classes this row is about. exact_ratio : exact value over claimed value (mu where the claim is GDP,
    epsilon at delta otherwise); None where only `loose` says what is known.
    broken variants : what was broken, by at least a factor 2 in mu (or in epsilon) unless `loose` says otherwise.
    slow : left to `make audit` and the slow suite.
    """

    name: str
    configuration: str
    covers: tuple[str, ...]
    claim: Guarantee
    honest: Draw
    broken_variants: Mapping[str, Draw]
    exact_ratio: float | None = None
    runs: int = 900
    loose: str = ""
    seed: int = 3
    slow: bool = False

    def audit(self, draw: Draw, seed: int, many: int) -> AuditResult:
        """Attack `many` times the stated number of runs a side."""
        rng = np.random.default_rng(seed)
        with secure_bytes(seed):
            first, second = (np.asarray(draw(side, many * self.runs, rng), float) for side in (0, 1))
        if first.ndim == 2:
            first, second = score_runs(first, second, None)
        delta = self.claim.at_delta or 0.0
        return many_run_attack(
            first, second, self.claim, delta=delta, confidence=CONFIDENCE, canary=self.configuration
        )


@contextmanager
def secure_bytes(seed: int) -> Iterator[None]:
    """Secure noise made of bytes of a seeded generator instead of the system's, so that no audit varies."""
    source, kept = np.random.default_rng(seed + 1000).bytes, {}
    for module in (exact_noise, mechanism):
        for function in vars(module).values():
            if inspect.isfunction(function) and os.urandom in (function.__defaults__ or ()):
                kept[function] = function.__defaults__
    try:
        for function, defaults in kept.items():
            function.__defaults__ = tuple(source if value is os.urandom else value for value in defaults)
        yield
    finally:
        for function, defaults in kept.items():
            function.__defaults__ = defaults


def attained(case: Case, result: AuditResult) -> float:
    """Audited over claimed: in mu where the claim is Gaussian, in epsilon otherwise."""
    if result.claimed_mu:
        return result.mu_lower / result.claimed_mu
    claimed = result.claimed_epsilon
    return result.epsilon_lower / claimed if claimed else math.nan
