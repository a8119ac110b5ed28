"""Privacy of a learned schema: a Gaussian (or geometric) histogram, and labels behind a threshold."""

from __future__ import annotations

import math

from dplangevin.families.learned_schema.schedule import LearnedSchemaSchedule, appearing
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure
from dplangevin.privacy.theorem import ANSWER_ASSUMPTIONS, Theorem, inflated


class LearnedSchemaTheorem(
    Theorem[LearnedSchemaSchedule], name="learned schema", proof="docs/theory/learned_schema.md"
):
    """Counts that both neighbours have move by `reach`; a label that only one has is released with chance `tail`.

    Gaussian noise: GDP with mu^2 = (reach / scale)^2 + mu_0^2, where mu_0 is that of pure epsilon -log(1 - tail), and
    `tail` added to delta. Geometric noise, without labels: pure epsilon = reach / scale.

    Examples
    --------
    >>> learned = LearnedSchemaSchedule(numbers=3, cells=129, categories=1, noise="gaussian", scale=80.0,
    ...                                 threshold=400.0, adjacency="replace-one")
    >>> found = LearnedSchemaTheorem().certify(None, learned)
    >>> round(found.parts[0].mu, 6), f"{found.extra_delta:.1e}"
    (0.035355, '3.1e-07')
    """

    reference = (
        "Korolova, Kenthapadi, Mishra and Ntoulas (2009) and Wilkins, Kifer, Zhang and Karrer (2024), for thresholds; "
        "Dong, Roth and Su (2022), Theorem 2.7; Ghosh, Roughgarden and Sundararajan (2012); joint over columns, "
        "adjacencies and persons as proved here"
    )

    def promise(self, constants: None, schedule: LearnedSchemaSchedule) -> Guarantee:
        cost, tail = schedule.reach / schedule.scale, schedule.tail
        if not tail < 1:
            raise self.refuse(
                "a label of one row passes the threshold for certain", "Raise the threshold above the noise."
            )
        part: Part
        if schedule.noise == "gaussian":
            part = Gaussian(mu=inflated(math.hypot(cost, appearing(tail))))
        else:
            part = Pure(value=inflated(cost))
        rows = schedule.rows_per_person
        whole = (f"holds for all rows of a person who owns at most {rows}",) if rows > 1 else ()
        words = (*schedule.assumptions, *ANSWER_ASSUMPTIONS, *whole)
        return self.of_answers(schedule, part, words, extra_delta=tail * (1 + 1e-9), rows_per_person=rows)
