"""Noisy sums of bounded contributions: counts, histograms, means and moments, released once.

Proof. Adding a record moves a group of sums by one contribution, of length at most `unit`. Replacing a record moves it
by a - b, and two contributions have a non-negative inner product (their entries are non-negative, or they are positive
semidefinite matrices), so |a - b|^2 <= |a|^2 + |b|^2 <= 2 unit^2; a single sum moves by at most unit. For counts the
entries of a contribution add up to at most unit, so the l1 distance is at most 2 unit. Groups are answered together:
costs add (pure), squared costs add (Gaussian).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure
from dplangevin.privacy.theorem import inflated
from dplangevin.privacy.theorems._minimiser import deflated
from dplangevin.problem.constants import ADJACENCIES, Adjacency

SumNoise = Literal["geometric", "gamma", "gaussian"]
SUM_NOISES: tuple[SumNoise, ...] = ("geometric", "gamma", "gaussian")

NAME = "noisy sums"
REFERENCES: dict[SumNoise, str] = {
    "geometric": "Ghosh, Roughgarden and Sundararajan (2012), Theorem 2.1 (geometric mechanism)",
    "gamma": "Hardt and Talwar (2010), Theorem 4.3 (K-norm mechanism, Euclidean ball)",
    "gaussian": "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism)",
}
ASSUMPTIONS = (
    "noise is ideal noise from a secret seed",
    "the bounds of a contribution, the noise and the bins are public and not chosen from the private data",
)


@dataclass(frozen=True, kw_only=True)
class SumGroup:
    """Sums released with one scale of noise.

    Parameters
    ----------
    answers : number of sums.
    unit : bound on one record's contribution: on the sum of its (non-negative) entries for geometric noise, on its
        Euclidean (Frobenius) length otherwise.
    scale : geometric: P(k) proportional to exp(-|k| / scale) on the integers; gamma: density proportional to
        exp(-|z| / scale); gaussian: standard deviation.
    """

    answers: int
    unit: float
    scale: float

    def __post_init__(self) -> None:
        _check.put(self, answers=_check.count("answers", self.answers))
        _check.put(self, unit=_check.positive("unit", self.unit))
        _check.put(self, scale=_check.positive("scale", self.scale))

    def reach(self, noise: SumNoise, adjacency: Adjacency) -> float:
        """The largest move of the group between neighbours, in the norm of the noise."""
        if adjacency == "add-remove" or self.answers == 1:
            return self.unit
        return (2.0 if noise == "geometric" else math.sqrt(2.0)) * self.unit

    def deviation(self, noise: SumNoise) -> float:
        """Standard deviation of the (continuous) noise on one sum of the group."""
        return self.scale * (math.sqrt(self.answers + 1) if noise == "gamma" else 1.0)


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """The public parameters of one release of sums, with the guarantee they have; no other one can be stated.

    Examples
    --------
    >>> bins = NoisySums(groups=(SumGroup(answers=40, unit=1, scale=2.0),), noise="geometric", adjacency="replace-one")
    >>> round(bins.guarantee.epsilon(), 6)  # one record moves two counts by 1 each
    1.0
    """

    groups: tuple[SumGroup, ...]
    noise: SumNoise
    adjacency: Adjacency
    delta: float = 0.0
    assumptions: tuple[str, ...] = ()
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        _check.put(self, noise=_check.choice("noise", self.noise, SUM_NOISES))
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        if not self.groups:
            raise InvalidParameter("groups must hold at least one group of sums.")
        if self.noise == "geometric" and any(group.unit != int(group.unit) for group in self.groups):
            raise InvalidParameter("geometric noise is for whole numbers: state a whole unit for each group.")
        costs = [group.reach(self.noise, self.adjacency) / group.scale for group in self.groups]
        part: Part
        if self.noise == "gaussian":
            part = Gaussian(mu=inflated(math.hypot(*costs)))
        else:
            part = Pure(value=inflated(math.fsum(costs)))
        promise = Guarantee(
            parts=(part,),
            adjacency=self.adjacency,
            release="noisy-answers",
            theorem=NAME,
            reference=REFERENCES[self.noise],
            assumptions=(*self.assumptions, *ASSUMPTIONS),
            at_delta=self.delta,
        )
        _check.put(self, guarantee=promise)

    def with_assumptions(self, *words: str) -> NoisySums:
        """The same release with more to assume."""
        return replace(self, assumptions=(*self.assumptions, *words))


def calibrated_sums(
    groups: Sequence[tuple[int, float, float]],
    *,
    epsilon: float,
    delta: float = 0.0,
    noise: SumNoise,
    adjacency: Adjacency,
    rows_per_person: int = 1,
) -> NoisySums:
    """The least noise that meets (epsilon, delta) for groups (answers, unit, share); shares add up to 1.

    A share is of epsilon for pure noise, of mu^2 for Gaussian noise. The plan's guarantee is for one record; that of
    a person with rows_per_person rows, guarantee.group(rows_per_person), is what meets (epsilon, delta).
    """
    rows = _check.count("rows_per_person", rows_per_person)
    if noise == "gaussian":
        budget = (
            deflated(gdp_mu(_check.positive("epsilon", epsilon), _check.open_unit("delta", delta))) / rows
        )
    else:
        budget = deflated(_check.positive("epsilon", epsilon)) / rows
    if not budget > 2e-12:
        raise CalibrationFailed(f"epsilon = {epsilon!r} is too small for double precision; raise it.")
    made = []
    for answers, unit, share in groups:
        cost = budget * (math.sqrt(share) if noise == "gaussian" else share)
        group = SumGroup(answers=answers, unit=unit, scale=1.0)
        scale = group.reach(noise, adjacency) / cost * (1 + 1e-9)
        made.append(replace(group, scale=scale))
    return NoisySums(groups=tuple(made), noise=noise, adjacency=adjacency, delta=delta)
