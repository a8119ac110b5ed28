"""Privacy of noisy sums, report noisy max, and counts with generalized Gaussian or L-infinity noise.

Noisy sums. Adding a record changes a group of sums by one contribution, of norm at most `unit`. Replacing a record
changes it by a - b, and two contributions have a non-negative inner product (their entries are non-negative, or they
are positive semidefinite matrices), so |a - b|^2 <= |a|^2 + |b|^2 <= 2 unit^2; a single sum changes by at most unit.
For counts the entries of a contribution add up to at most unit, so the L1 sensitivity is at most 2 unit. Groups are
answered together: costs add (pure), squared costs add (Gaussian).

Report noisy max (permute-and-flip). Fix the noise of every candidate but i. Candidate i wins when its noise exceeds
t = max_j (q_j + e_j) - q_i, so with probability min(1, exp(-t / scale)), and epsilon is the largest change of t over
scale. Replacing a record changes each total by at most unit either way, hence t by at most 2 unit. Adding a record
changes every total by 0 to unit in the SAME direction (contributions are non-negative), hence t by at most unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dplangevin import _check
from dplangevin.accounting.conversions import divide_up, gdp_mu
from dplangevin.accounting.generalized_gaussian import CorrectedNoise, GeneralizedGaussian
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure
from dplangevin.accounting.theorem import (
    ANSWER_ASSUMPTIONS,
    COMMON_ASSUMPTIONS,
    Theorem,
    noise_assumptions,
    round_down,
    round_up,
)
from dplangevin.errors import CalibrationFailed
from dplangevin.mechanisms.noisy_answers.spec import (
    CorrectedAnswersSpec,
    CountsSpec,
    MaxNormSpec,
    NoisyAnswersSpec,
    NoisyMaxSpec,
    NoisySumsSpec,
    SumGroup,
    SumNoise,
)
from dplangevin.problem.constants import Adjacency

REFERENCES: dict[SumNoise, str] = {
    "geometric": "Ghosh, Roughgarden and Sundararajan (2012), Theorem 2.1 (geometric mechanism)",
    "gamma": "Hardt and Talwar (2010), Theorem 4.3 (K-norm mechanism, Euclidean ball)",
    "gaussian": "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism)",
}


class NoisySumsTheorem(Theorem[NoisySumsSpec], name="noisy sums", proof=""):
    """The sum over the groups of sensitivity / scale (pure epsilon), or of its squares (mu^2 of GDP).

    Examples
    --------
    >>> group = SumGroup(answers=40, unit=1, scale=2.0)
    >>> bins = NoisySumsSpec(groups=(group,), noise="geometric", adjacency="replace-one")
    >>> round(NoisySumsTheorem().certify(None, bins).epsilon(), 6)  # replacing a record changes two counts by 1
    1.0
    """

    holds_for_rounded_noise = True
    reference = "; ".join(REFERENCES.values())

    def derive_guarantee(self, constants: None, spec: NoisySumsSpec) -> Guarantee:
        costs = [group.sensitivity(spec.noise, spec.adjacency) / group.scale for group in spec.groups]
        part: PrivacyPart
        if spec.noise == "gaussian":
            part = Gaussian(mu=round_up(math.hypot(*costs)))
        else:
            part = Pure(value=round_up(math.fsum(costs)))
        assumptions = (*spec.assumptions, *noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure))
        return self.guarantee_of_answers(spec, part, assumptions, reference=REFERENCES[spec.noise])


def calibrate_noisy_sums(
    groups: Sequence[tuple[int, float, float]],
    *,
    epsilon: float,
    delta: float = 0.0,
    noise: SumNoise,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    secure: bool = False,
) -> NoisySumsSpec:
    """Return the spec with the least noise under (epsilon, delta).

    Parameters
    ----------
    groups : (answers, unit, budget fraction) of each; the fractions, of epsilon for pure noise and of mu^2 for
        Gaussian noise, add up to 1.
    rows_per_person : the guarantee of the spec is for one record; guarantee.group(rows_per_person), for all rows of a
        person, meets (epsilon, delta).
    """
    rows = _check.check_count("rows_per_person", rows_per_person)
    if noise == "gaussian":
        budget = (
            round_down(
                gdp_mu(_check.check_positive("epsilon", epsilon), _check.check_open_unit("delta", delta))
            )
            / rows
        )
    else:
        budget = round_down(_check.check_positive("epsilon", epsilon)) / rows
    if not budget > 2e-12:
        raise CalibrationFailed(f"epsilon = {epsilon!r} is too small for double precision; raise it.")
    calibrated = []
    for answers, unit, fraction in groups:
        cost = budget * (math.sqrt(fraction) if noise == "gaussian" else fraction)
        group = SumGroup(answers=answers, unit=unit, scale=1.0)
        scale = group.sensitivity(noise, adjacency) / cost * (1 + 1e-9)
        calibrated.append(replace(group, scale=scale))
    return NoisySumsSpec(groups=tuple(calibrated), noise=noise, adjacency=adjacency, secure=secure)


class NoisyMaxTheorem(Theorem[NoisyMaxSpec], name="report noisy max", proof=""):
    """Pure epsilon = 2 unit / scale (unit / scale under add-remove).

    Examples
    --------
    >>> spec = NoisyMaxSpec(candidates=5, unit=1, scale=4.0, adjacency="replace-one")
    >>> NoisyMaxTheorem().certify(None, spec).epsilon()
    0.5...
    """

    holds_for_rounded_noise = True
    reference = (
        "McKenna and Sheldon (2020), Permute-and-Flip, Theorem 1; "
        "Ding et al. (2021): the same law as report noisy max with exponential noise"
    )

    def derive_guarantee(self, constants: None, spec: NoisyMaxSpec) -> Guarantee:
        part = Pure(value=round_up(_max_sensitivity(spec.unit, spec.adjacency) / spec.scale))
        assumptions = (*spec.assumptions, *noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure))
        return self.guarantee_of_answers(spec, part, assumptions)


def calibrate_noisy_max(
    *,
    candidates: int,
    unit: float,
    epsilon: float,
    adjacency: Adjacency,
    rows_per_person: int = 1,
    assumptions: tuple[str, ...] = (),
    conditions: tuple[Condition, ...] = (),
    secure: bool = False,
) -> NoisyMaxSpec:
    """Return the spec with the least noise under pure epsilon for a person with rows_per_person rows.

    The guarantee of the spec itself is for one record.
    """
    budget = round_down(_check.check_positive("epsilon", epsilon)) / _check.check_count(
        "rows_per_person", rows_per_person
    )
    _check.check_positive("epsilon, after rounding,", budget)
    return NoisyMaxSpec(
        candidates=candidates,
        unit=unit,
        scale=_max_sensitivity(unit, adjacency) / budget * (1 + 1e-9),
        adjacency=adjacency,
        assumptions=assumptions,
        conditions=conditions,
        secure=secure,
    )


def _max_sensitivity(unit: float, adjacency: Adjacency) -> float:
    return unit if adjacency == "add-remove" else 2 * unit


WORST_SHIFT_THEOREM = "worst-shift"
WORST_SHIFT_REFERENCE = (
    "Ganesh (2022), chapter 2; Dong, Roth and Su (2022), tensor products of trade-off functions"
)


class WorstShift(
    Theorem[NoisyAnswersSpec], name=WORST_SHIFT_THEOREM, proof="docs/theory/thesis.md, Worst shift"
):
    """The worst neighbour changes `changed` answers by the whole sensitivity: GDP for p = 2, else numerical."""

    holds_for_rounded_noise = True
    reference = WORST_SHIFT_REFERENCE

    def derive_guarantee(self, constants: None, spec: NoisyAnswersSpec) -> Guarantee:
        fields = _guarantee_fields(spec, "the queries, p and sigma are public")
        if spec.p == 2:
            shift = spec.sensitivity / spec.sigma
            part: PrivacyPart = Gaussian(mu=math.sqrt(2 * spec.changed) * shift * (1 + 1e-14))
        else:
            part = _noise_part(spec)
        return self.guarantee_of_answers(spec, part, **fields)


class CorrectedWorstShift(
    Theorem[CorrectedAnswersSpec], name=WORST_SHIFT_THEOREM, proof="docs/theory/thesis.md, Worst shift"
):
    """The noise and all sparse-vector corrections, accounted in one sum of privacy losses."""

    reference = WORST_SHIFT_REFERENCE

    def derive_guarantee(self, constants: None, spec: CorrectedAnswersSpec) -> Guarantee:
        fields = _guarantee_fields(
            spec.noise,
            "the queries, p and sigma are public",
            "the threshold, the number of corrections and the order of the answers do not depend on the data",
        )
        part = CorrectedNoise(
            noise=_noise_part(spec.noise),
            n_corrections=spec.max_corrections,
            search_epsilon=spec.search_epsilon,
            answer_epsilon=spec.answer_epsilon,
        )
        return self.guarantee_of_answers(spec.noise, part, **fields)


class MaxNormTheorem(Theorem[MaxNormSpec], name="norm noise", proof="docs/theory/thesis.md, Norm noise"):
    """Pure epsilon = sensitivity / scale, with the trade-off function of one Laplace answer of that epsilon.

    |x|_K = max(|x|_inf, |x|_1 / changed) is the norm whose unit ball is the convex hull of the changes: at most
    `changed` coordinates, each by at most 1. Along the line of a change the log density is concave with slopes of at
    most |change|_K / scale, so its trade-off function is above the Laplace one. In secure mode answers change by
    whole steps of the grid, at most D = sensitivity / grid in the norm, and so does the norm rounded up: pure D grid
    / scale.

    Examples
    --------
    >>> spec = MaxNormSpec(answers=100, changed=100, sensitivity=1.0, scale=2.0)
    >>> round(MaxNormTheorem().certify(None, spec).epsilon(), 6)
    0.5
    """

    holds_for_rounded_noise = True
    reference = "Hardt and Talwar (2010), K-norm mechanism; Ganesh (2022), section 2.1"

    def derive_guarantee(self, constants: None, spec: MaxNormSpec) -> Guarantee:
        fields = _guarantee_fields(spec, "the queries and the scale are public")
        cost = divide_up(spec.sensitivity, spec.scale)
        part: PrivacyPart = GeneralizedGaussian(p=1.0, shift=cost, changed=1, answers=1)
        if spec.secure:
            part = Pure(value=round_up(cost))
        return self.guarantee_of_answers(spec, part, **fields)


def _noise_part(spec: NoisyAnswersSpec) -> GeneralizedGaussian:
    return GeneralizedGaussian(
        p=spec.p,
        shift=divide_up(spec.sensitivity, spec.sigma),
        changed=spec.changed,
        answers=spec.answers,
    )


def _guarantee_fields(spec: CountsSpec, public: str, *assumptions: str) -> dict[str, Any]:
    """Return the assumptions and the rows per person of a guarantee about noisy counts."""
    rows = spec.rows_per_person
    if rows > 1:
        assumptions = (*assumptions, f"holds for all rows of a person who owns at most {rows}")
    all_assumptions = (
        f"neighbouring data sets change at most {spec.changed} of {spec.answers} answers, "
        f"each by at most {spec.sensitivity:g}",
        noise_assumptions(COMMON_ASSUMPTIONS, secure=spec.secure)[0],
        f"{public} and not chosen from the private data",
        *spec.assumptions,
        *assumptions,
    )
    return {"assumptions": all_assumptions, "rows_per_person": rows}
