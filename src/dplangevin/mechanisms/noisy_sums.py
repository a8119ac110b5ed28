"""Sums over private records plus noise, and the index of the largest noisy total."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplangevin._rng import generator
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.spender import Spender, under_head
from dplangevin.privacy.theorems.noisy_max import NoisyMax
from dplangevin.privacy.theorems.noisy_sums import NoisySums, SumGroup
from dplangevin.samplers.gamma_norm import gamma_norm

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class SumsRelease:
    """The noisy sums, one array per group of the plan; for a noisy max, the index."""

    values: tuple[Floats, ...]
    plan: NoisySums | NoisyMax
    seeded: bool

    def digest(self) -> str:
        """A hash of the released numbers, for the ledger."""
        content = hashlib.sha256()
        for value in self.values:
            content.update(np.ascontiguousarray(value).tobytes())
        return content.hexdigest()


def release_sums(
    plan: NoisySums,
    sums: Callable[[], Sequence[Floats]],
    random_state: object = None,
    *,
    ledger: Spender | None = None,
) -> SumsRelease:
    """Charge the plan, then read the records (`sums` does) and add the plan's noise."""

    def answer(rng: np.random.Generator) -> tuple[Floats, ...]:
        exact = [np.asarray(values, float) for values in sums()]
        if [values.size for values in exact] != [group.answers for group in plan.groups]:
            raise InvalidParameter("the sums are not those of the plan: the numbers of answers differ.")
        return tuple(
            values + sum_noise(plan, group, rng).reshape(values.shape)
            for values, group in zip(exact, plan.groups, strict=True)
        )

    return _released(plan, answer, random_state, ledger)


def release_best(
    plan: NoisyMax,
    totals: Callable[[], Floats],
    random_state: object = None,
    *,
    ledger: Spender | None = None,
) -> SumsRelease:
    """Charge the plan, then release the index of the largest total + Exponential(scale)."""

    def answer(rng: np.random.Generator) -> tuple[Floats, ...]:
        exact = np.asarray(totals(), float)
        if exact.shape != (plan.candidates,):
            raise InvalidParameter("the totals are not those of the plan: the number of candidates differs.")
        noisy = exact + plan.scale * rng.standard_exponential(plan.candidates)
        return (np.array([float(np.argmax(noisy))]),)

    return _released(plan, answer, random_state, ledger)


def sum_noise(plan: NoisySums, group: SumGroup, rng: np.random.Generator) -> Floats:
    """The noise of one group."""
    if plan.noise == "gaussian":
        return group.scale * rng.standard_normal(group.answers)
    if plan.noise == "gamma":
        return gamma_norm(group.answers, group.scale, 1, rng)[:, 0]
    success = -np.expm1(-1 / group.scale)
    draws = rng.geometric(success, (2, group.answers))
    return np.asarray(draws[0] - draws[1], float)


def _released(
    plan: NoisySums | NoisyMax,
    answer: Callable[[np.random.Generator], tuple[Floats, ...]],
    random_state: object,
    ledger: Spender | None,
) -> SumsRelease:
    rng, seeded = generator(random_state)
    token = ledger.reserve(plan) if ledger is not None else None
    release = SumsRelease(values=answer(rng), plan=plan, seeded=seeded)
    if ledger is not None and token is not None:
        under_head(release, ledger.commit(token, release.digest()))
    return release
