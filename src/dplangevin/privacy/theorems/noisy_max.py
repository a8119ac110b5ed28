"""Report noisy max with one-sided exponential noise (permute-and-flip): the index of a good candidate, pure epsilon.

Proof. Fix the noise of every candidate but i. Candidate i wins when its noise exceeds t = max_j (q_j + e_j) - q_i, so
with probability min(1, exp(-t / scale)), and the cost is the largest change of t over scale. Replacing a record moves
each total by at most unit either way: t moves by at most 2 unit. Adding a record moves every total by 0 to unit in the
SAME direction (contributions are non-negative), so both terms of t move together and t moves by at most unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dplangevin import _check
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Pure
from dplangevin.privacy.theorem import inflated
from dplangevin.privacy.theorems._minimiser import deflated
from dplangevin.privacy.theorems.noisy_sums import ASSUMPTIONS
from dplangevin.problem.constants import ADJACENCIES, Adjacency

NAME = "report noisy max"
REFERENCE = (
    "McKenna and Sheldon (2020), Permute-and-Flip, Theorem 1; "
    "Ding et al. (2021): the same law as report noisy max with exponential noise"
)


@dataclass(frozen=True, kw_only=True)
class NoisyMax:
    """argmax of total_i + Exponential(scale), where one record adds between 0 and unit to each total.

    Examples
    --------
    >>> NoisyMax(candidates=5, unit=1, scale=4.0, adjacency="replace-one").guarantee.epsilon()
    0.5...
    """

    candidates: int
    unit: float
    scale: float
    adjacency: Adjacency
    assumptions: tuple[str, ...] = ()
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        _check.put(self, candidates=_check.count("candidates", self.candidates, least=2))
        _check.put(self, unit=_check.positive("unit", self.unit))
        _check.put(self, scale=_check.positive("scale", self.scale))
        _check.put(self, adjacency=_check.choice("adjacency", self.adjacency, ADJACENCIES))
        promise = Guarantee(
            parts=(Pure(value=inflated(_reach(self.unit, self.adjacency) / self.scale)),),
            adjacency=self.adjacency,
            release="draw",
            theorem=NAME,
            reference=REFERENCE,
            assumptions=(*self.assumptions, *ASSUMPTIONS),
            at_delta=0.0,
        )
        _check.put(self, guarantee=promise)


def calibrated_max(
    *,
    candidates: int,
    unit: float,
    epsilon: float,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
) -> NoisyMax:
    """The least noise that meets pure epsilon for a person with rows_per_person rows; its guarantee is for one."""
    budget = deflated(_check.positive("epsilon", epsilon)) / _check.count("rows_per_person", rows_per_person)
    _check.positive("epsilon, after rounding,", budget)
    return NoisyMax(
        candidates=candidates,
        unit=unit,
        scale=_reach(unit, adjacency) / budget * (1 + 1e-9),
        adjacency=adjacency,
        assumptions=assumptions,
    )


def _reach(unit: float, adjacency: Adjacency) -> float:
    return unit if adjacency == "add-remove" else 2 * unit
