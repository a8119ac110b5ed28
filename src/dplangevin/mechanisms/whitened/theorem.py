"""Privacy of whitened descent: adaptive composition of Gaussian mechanisms."""

from __future__ import annotations

import math

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.theorem import Theorem, round_up
from dplangevin.mechanisms.whitened.spec import N_SLOPE_MEANS, WhitenedSpec
from dplangevin.problem.constants import Constants

EXACT_RECORD_ASSUMPTION = (
    "a record's integers depend on that record and on public or released values only: sums and products of whole "
    "numbers below 2^53 are exact in doubles, and elementwise operations give the same answer wherever a record stands "
    "(docs/theory/exact_sums.md)"
)
ADAPTIVE_STEPS_ASSUMPTION = (
    "the noisy gradients of the first steps determine how many follow, or whether the classes are counted again "
    "instead; the noise of these grows with their number, so that all of it costs the same"
)


class WhitenedComposition(
    Theorem[WhitenedSpec], name="whitened-composition", proof="docs/theory/converging_fits.md, section 1"
):
    """Composition of n_moment_releases Gaussian mechanisms on second moments, n_steps on gradients, and curvature.

    Each mechanism depends on the releases before it.

    Counts of the classes, if the spec asks for them: a record adds its weight to one class, so the vector of means of
    weight x indicator moves by at most weight_bound / n (add-remove), a replaced record by sqrt(2) weight_bound / n.

    Moments: in the isometric coordinates of symmetric matrices (the diagonal, sqrt 2 times the entries above it) the
    noise is moment_noise_std N(0, I). A row x of norm at most 1 moves the mean by |x x'|_F / n <= 1 / n (add-remove),
    a replaced one by sqrt(|x|^4 + |y|^4 - 2 <x, y>^2) / n <= sqrt(2) / n. The same holds for rows w B' x / R, which
    depend on x and released values alone.

    Gradients: a record adds weight r w B' x / (R n), of norm at most weight_bound slope_bound / n whatever B, R and
    the point are: L / (row_norm n), and twice that for a replaced one. With a the number of approach steps, each of
    the T - a steps after them, T a function of what they released, has noise noise_std sqrt((T - a) / (n_steps - a)):
    together they cost the same mu^2 whatever T is.

    Curvature: given the releases before it, a record adds the positive semidefinite matrix v v' / n, |v| <= 1, and the
    bound for moments holds. The two squared slopes are a pair in [0, 1]^2 / n, which one record moves by at most
    sqrt(2) / n, whether it is added, removed or replaced.

    A secure run has the same sensitivities and the same noise: the integers of a record are checked against the same
    bounds, sums over records are exact, and the ideal release is rounded (docs/theory/exact_sums.md).

    A second count, with recount_noise_std, takes the place of the steps after the approach where what was released
    until then decides so. It costs at most what they do, so that given the earlier releases the rest has the same mu.

    Coordinates, weights of rows, step sizes, momentum, averages and shrinkage are functions of released values. No
    convexity is used. The budget fractions are public, so adaptive composition holds: mu^2 is the sum of squares.
    """

    is_plain_composition = True
    holds_for_rounded_noise = True
    reference = "Dong, Roth and Su (2022), Theorems 2.7 and 3.2"
    holds_beyond_n = "it releases sums over records, and one record's term does not depend on the others"
    secure_holds_beyond_n = True

    def derive_guarantee(self, constants: Constants, spec: WhitenedSpec) -> Guarantee:
        is_replace_one = constants.adjacency == "replace-one"
        matrix_sensitivity = math.sqrt(2) if is_replace_one else 1.0
        moment = matrix_sensitivity / (constants.n * spec.moment_noise_std)
        record = (2.0 if is_replace_one else 1.0) * constants.lipschitz / self.row_norm(constants)
        step, first = (record / (constants.n * noise) for noise in (spec.noise_std, spec.approach_noise_std))
        steps = Gaussian(mu=round_up(step), count=spec.n_steps - spec.n_approach_steps)
        approach = (
            (Gaussian(mu=round_up(first), count=spec.n_approach_steps),) if spec.n_approach_steps else ()
        )
        counts: tuple[Gaussian, ...] = ()
        if spec.count_noise_std is not None:
            changed = (math.sqrt(2) if is_replace_one else 1.0) * constants.weight_bound
            counts = (Gaussian(mu=round_up(changed / (constants.n * spec.count_noise_std)), count=1),)
            if spec.recount_noise_std is not None:
                recount = round_up(changed / (constants.n * spec.recount_noise_std))
                if not recount**2 <= steps.mu**2 * steps.count:
                    raise self.refuse(
                        "the second count of the classes costs more than the steps it takes the place of",
                        "Raise recount_noise_std.",
                    )
        curvature = []
        if spec.curvature_noise_std:
            matrix = matrix_sensitivity / (constants.n * spec.curvature_noise_std)
            curvature.append(Gaussian(mu=round_up(matrix)))
        if spec.slope_noise_std:
            pair = math.sqrt(N_SLOPE_MEANS) / (constants.n * spec.slope_noise_std)
            curvature.append(Gaussian(mu=round_up(pair)))
        return self.guarantee(
            constants,
            spec,
            (
                *counts,
                Gaussian(mu=round_up(moment), count=spec.n_moment_releases),
                *approach,
                steps,
                *curvature,
            ),
            (
                "second moments are of rows alone: neither labels nor sample weights enter them",
                *((ADAPTIVE_STEPS_ASSUMPTION,) if spec.n_approach_steps else ()),
                *((EXACT_RECORD_ASSUMPTION,) if spec.secure else ()),
            ),
        )
