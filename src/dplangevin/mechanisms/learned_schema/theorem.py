"""Privacy of a learned schema: a Gaussian (or geometric) histogram, and labels above a threshold."""

from __future__ import annotations

import math

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure
from dplangevin.accounting.theorem import ANSWER_ASSUMPTIONS, Theorem, noise_assumptions, round_up
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec, absence_mu


class LearnedSchemaTheorem(
    Theorem[LearnedSchemaSpec], name="learned schema", proof="docs/theory/learned_schema.md"
):
    """GDP (or pure epsilon) for the counts of labels in both neighbours, plus delta for labels in only one of them.

    Gaussian noise: GDP with mu^2 = (sensitivity / scale)^2 + mu_0^2, where mu_0 is that of pure epsilon -log(1 - t),
    and t = threshold_delta, the probability of releasing a label that only one neighbour has, is added to delta.
    Geometric noise, without labels: pure epsilon = sensitivity / scale.

    Exact runs release functions of the ideal release: noisy counts are rounded, and a label is released where its
    rounded count exceeds the threshold by half a step of the grid or more, so that the unrounded one exceeds it too.

    Examples
    --------
    >>> spec = LearnedSchemaSpec(n_numbers=3, n_cells=129, n_categories=1, noise="gaussian", scale=80.0,
    ...                          threshold=400.0, adjacency="replace-one")
    >>> guarantee = LearnedSchemaTheorem().certify(None, spec)
    >>> round(guarantee.parts[0].mu, 6), f"{guarantee.extra_delta:.1e}"
    (0.035355, '3.1e-07')
    """

    holds_for_rounded_noise = True
    reference = (
        "Korolova, Kenthapadi, Mishra and Ntoulas (2009) and Wilkins, Kifer, Zhang and Karrer (2024), for thresholds; "
        "Dong, Roth and Su (2022), Theorem 2.7; Ghosh, Roughgarden and Sundararajan (2012); joint over columns, "
        "adjacencies and persons as proved here"
    )

    def derive_guarantee(self, constants: None, spec: LearnedSchemaSpec) -> Guarantee:
        cost, threshold_delta = spec.sensitivity / spec.scale, spec.threshold_delta
        if not threshold_delta < 1:
            raise self.refuse(
                "a label of a single row exceeds the threshold with certainty",
                "Raise the threshold above the noise.",
            )
        part: PrivacyPart
        if spec.noise == "gaussian":
            part = Gaussian(mu=round_up(math.hypot(cost, absence_mu(threshold_delta))))
        else:
            part = Pure(value=round_up(cost))
        rows = spec.rows_per_person
        group_assumption = (f"holds for all rows of a person who owns at most {rows}",) if rows > 1 else ()
        noise = noise_assumptions(ANSWER_ASSUMPTIONS, secure=spec.secure)
        assumptions = (*spec.assumptions, *noise, *group_assumption)
        return self.guarantee_of_answers(
            spec, part, assumptions, extra_delta=threshold_delta * (1 + 1e-9), rows_per_person=rows
        )
