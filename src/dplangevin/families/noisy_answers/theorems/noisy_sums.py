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
from dataclasses import replace

from dplangevin import _check
from dplangevin.errors import CalibrationFailed
from dplangevin.families._minimiser import deflated
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule, SumGroup, SumNoise
from dplangevin.privacy.conversions import gdp_mu
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure
from dplangevin.privacy.theorem import ANSWER_ASSUMPTIONS, Theorem, inflated, noise_words
from dplangevin.problem.constants import Adjacency

REFERENCES: dict[SumNoise, str] = {
    "geometric": "Ghosh, Roughgarden and Sundararajan (2012), Theorem 2.1 (geometric mechanism)",
    "gamma": "Hardt and Talwar (2010), Theorem 4.3 (K-norm mechanism, Euclidean ball)",
    "gaussian": "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism)",
}


class NoisySumsTheorem(Theorem[NoisySumsSchedule], name="noisy sums", proof=""):
    """Reach over scale, added up over the groups: pure epsilons, or mu of GDP in squares.

    Examples
    --------
    >>> group = SumGroup(answers=40, unit=1, scale=2.0)
    >>> bins = NoisySumsSchedule(groups=(group,), noise="geometric", adjacency="replace-one")
    >>> round(NoisySumsTheorem().certify(None, bins).epsilon(), 6)  # one record moves two counts by 1 each
    1.0
    """

    reference = "; ".join(REFERENCES.values())

    def promise(self, constants: None, schedule: NoisySumsSchedule) -> Guarantee:
        costs = [group.reach(schedule.noise, schedule.adjacency) / group.scale for group in schedule.groups]
        part: Part
        if schedule.noise == "gaussian":
            part = Gaussian(mu=inflated(math.hypot(*costs)))
        else:
            part = Pure(value=inflated(math.fsum(costs)))
        words = (*schedule.assumptions, *noise_words(ANSWER_ASSUMPTIONS, secure=schedule.secure))
        return self.of_answers(schedule, part, words, reference=REFERENCES[schedule.noise])


def calibrated_sums(
    groups: Sequence[tuple[int, float, float]],
    *,
    epsilon: float,
    delta: float = 0.0,
    noise: SumNoise,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    secure: bool = False,
) -> NoisySumsSchedule:
    """The least noise that meets (epsilon, delta) for groups (answers, unit, share); shares add up to 1.

    A share is of epsilon for pure noise, of mu^2 for Gaussian noise. The guarantee is for one record; that of a person
    with rows_per_person rows, guarantee.group(rows_per_person), is what meets (epsilon, delta).
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
    return NoisySumsSchedule(groups=tuple(made), noise=noise, adjacency=adjacency, secure=secure)
