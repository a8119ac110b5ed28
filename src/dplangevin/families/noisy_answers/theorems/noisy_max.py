"""Report noisy max with one-sided exponential noise (permute-and-flip): the index of a good candidate, pure epsilon.

Proof. Fix the noise of every candidate but i. Candidate i wins when its noise exceeds t = max_j (q_j + e_j) - q_i, so
with probability min(1, exp(-t / scale)), and the cost is the largest change of t over scale. Replacing a record moves
each total by at most unit either way: t moves by at most 2 unit. Adding a record moves every total by 0 to unit in the
SAME direction (contributions are non-negative), so both terms of t move together and t moves by at most unit.
"""

from __future__ import annotations

from dplangevin import _check
from dplangevin.families._minimiser import deflated
from dplangevin.families.noisy_answers.schedule import NoisyMaxSchedule
from dplangevin.privacy.conditions import Condition
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Pure
from dplangevin.privacy.theorem import ANSWER_ASSUMPTIONS, Theorem, inflated, noise_words
from dplangevin.problem.constants import Adjacency


class NoisyMaxTheorem(Theorem[NoisyMaxSchedule], name="report noisy max", proof=""):
    """Twice the unit over the scale (once under add-remove), pure.

    Examples
    --------
    >>> schedule = NoisyMaxSchedule(candidates=5, unit=1, scale=4.0, adjacency="replace-one")
    >>> NoisyMaxTheorem().certify(None, schedule).epsilon()
    0.5...
    """

    reference = (
        "McKenna and Sheldon (2020), Permute-and-Flip, Theorem 1; "
        "Ding et al. (2021): the same law as report noisy max with exponential noise"
    )

    def promise(self, constants: None, schedule: NoisyMaxSchedule) -> Guarantee:
        part = Pure(value=inflated(_reach(schedule.unit, schedule.adjacency) / schedule.scale))
        words = (*schedule.assumptions, *noise_words(ANSWER_ASSUMPTIONS, secure=schedule.secure))
        return self.of_answers(schedule, part, words)


def calibrated_max(
    *,
    candidates: int,
    unit: float,
    epsilon: float,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
    conditions: tuple[Condition, ...] = (),
    secure: bool = False,
) -> NoisyMaxSchedule:
    """The least noise that meets pure epsilon for a person with rows_per_person rows; its guarantee is for one."""
    budget = deflated(_check.positive("epsilon", epsilon)) / _check.count("rows_per_person", rows_per_person)
    _check.positive("epsilon, after rounding,", budget)
    return NoisyMaxSchedule(
        candidates=candidates,
        unit=unit,
        scale=_reach(unit, adjacency) / budget * (1 + 1e-9),
        adjacency=adjacency,
        assumptions=assumptions,
        conditions=conditions,
        secure=secure,
    )


def _reach(unit: float, adjacency: Adjacency) -> float:
    return unit if adjacency == "add-remove" else 2 * unit
