"""Privacy of ridge-whitened descent: adaptive composition of Gaussian mechanisms, with one budget for what adapts."""

from __future__ import annotations

import math

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import Theorem, round_up
from dplangevin.mechanisms.ridge_whitened.spec import RidgeWhitenedSpec
from dplangevin.mechanisms.whitened.theorem import EXACT_RECORD_ASSUMPTION
from dplangevin.problem.constants import Constants

ADAPTIVE_RELEASES_ASSUMPTION = (
    "released second moments determine how many more of them and how many steps follow; whatever the numbers are, all "
    "that follows the first one costs the same"
)


class RidgeWhitenedComposition(
    Theorem[RidgeWhitenedSpec],
    name="ridge-whitened-composition",
    proof="docs/theory/wide_probes.md, section 2",
):
    """Composition of Gaussian mechanisms: counts, the first moment, and one part for all that follows.

    Counts: a record adds its weight to one class, so the vector of means moves by at most weight_bound / n
    (add-remove), a replaced record by sqrt(2) weight_bound / n.

    First moment: in isometric coordinates of symmetric matrices the noise is moment_noise_std N(0, I). A row x of norm
    at most 1 moves the mean by |x x'|_F / n <= 1 / n (add-remove), a replaced one by at most sqrt(2) / n.

    All that follows: given what was released so far, a record enters a further moment as z z', z a function of its own
    row and of released values with |z| <= 1, so that the bounds of the first moment hold. It enters a gradient as
    weight w (B' x / R) r', of norm at most weight_bound slope_bound / n whatever B, R, the point and the number of
    scores are: L / (row_norm n), twice that for a replaced one. Let nu be the mu of one gradient with noise_std. A
    further moment costs at most further_fraction nu^2, which is checked, and T steps after k of them cost
    (1 - k further_fraction) nu^2. So on every branch of the decisions nu^2 is all that they cost together.

    Decisions, coordinates, weights of rows, steps, momentum and averages are functions of released values. No convexity
    is used: slopes of several scores that are clipped in norm are not the gradient of a loss.
    """

    is_plain_composition = True
    holds_for_rounded_noise = True
    reference = "Dong, Roth and Su (2022), Theorems 2.7 and 3.2"
    holds_beyond_n = "it releases sums over records, and one record's term does not depend on the others"
    secure_holds_beyond_n = True

    def derive_guarantee(self, constants: Constants, spec: RidgeWhitenedSpec) -> Guarantee:
        is_replace_one = constants.adjacency == "replace-one"
        matrix = math.sqrt(2) if is_replace_one else 1.0
        record = (2.0 if is_replace_one else 1.0) * constants.lipschitz / self.row_norm(constants)
        rest = round_up(record / (constants.n * spec.noise_std))
        parts = [Gaussian(mu=rest)]
        if spec.max_moment_releases:
            parts.insert(0, Gaussian(mu=round_up(matrix / (constants.n * spec.moment_noise_std))))
        if spec.max_moment_releases > 1:
            further = round_up(matrix / (constants.n * spec.further_noise_std))
            if not further**2 <= spec.further_fraction * rest**2:
                raise self.refuse(
                    "a further second moment costs more than its fraction of the budget of the steps",
                    "Raise further_noise_std or further_fraction.",
                )
        if spec.count_noise_std is not None:
            changed = matrix * constants.weight_bound
            parts.insert(0, Gaussian(mu=round_up(changed / (constants.n * spec.count_noise_std))))
        return self.guarantee(
            constants,
            spec,
            tuple(parts),
            (
                "second moments are of rows alone: neither labels nor sample weights enter them",
                ADAPTIVE_RELEASES_ASSUMPTION,
                *((EXACT_RECORD_ASSUMPTION,) if spec.secure else ()),
            ),
        )
