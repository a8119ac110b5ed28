"""Privacy of whitened descent: adaptive composition of Gaussian mechanisms."""

from __future__ import annotations

import math

from dplangevin.families.whitened.schedule import WhitenedSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian
from dplangevin.privacy.theorem import Theorem, inflated
from dplangevin.problem.constants import Constants

CHOSEN = (
    "how many steps follow the first ones is read off the noisy gradients of these; their noise grows with their "
    "number, so that any number costs the same"
)


class WhitenedComposition(
    Theorem[WhitenedSchedule], name="whitened-composition", proof="docs/theory/converging_fits.md, section 1"
):
    """`looks` Gaussian mechanisms on second moments, then `n_steps` on gradients, each given all releases before it.

    Moments: in the isometric coordinates of symmetric matrices (the diagonal, sqrt 2 times the entries above it) the
    noise is moment_noise_std N(0, I). A row x of norm at most 1 moves the mean by |x x'|_F / n <= 1 / n (add-remove), a
    replaced one by sqrt(|x|^4 + |y|^4 - 2 <x, y>^2) / n <= sqrt(2) / n. So it is for rows w B' x / R, which depend on
    x and released values alone.
    Gradients: a record adds weight r w B' x / (R n), of norm at most weight_bound slope_bound / n whatever B, R and the
    point are: L / (row_norm n), and twice that for a replaced one.
    The approach is given; each of the T - approach steps after it, T a function of what it released, has noise_std
    sqrt((T - approach) / (n_steps - approach)): together they cost the same squares of mu whatever T is.
    Coordinates, weights of rows, step sizes, momentum, averages and shrinkage are functions of released values. No
    convexity is used. The shares are public, so that adaptive composition holds: mu^2 is the sum of squares.
    """

    is_plain_composition = True
    reference = "Dong, Roth and Su (2022), Theorems 2.7 and 3.2"
    beyond_n = "sums over records, of which one record's part does not depend on the others"

    def promise(self, constants: Constants, schedule: WhitenedSchedule) -> Guarantee:
        replaced = constants.adjacency == "replace-one"
        moment = (math.sqrt(2) if replaced else 1.0) / (constants.n * schedule.moment_noise_std)
        record = (2.0 if replaced else 1.0) * constants.lipschitz / self.row_norm(constants)
        step, first = (
            record / (constants.n * noise) for noise in (schedule.noise_std, schedule.approach_noise_std)
        )
        steps = Gaussian(mu=inflated(step), count=schedule.n_steps - schedule.approach)
        approach = (Gaussian(mu=inflated(first), count=schedule.approach),) if schedule.approach else ()
        return self.guarantee(
            constants,
            schedule,
            (Gaussian(mu=inflated(moment), count=schedule.looks), *approach, steps),
            (
                "second moments are of rows alone: neither labels nor sample weights enter them",
                *((CHOSEN,) if schedule.approach else ()),
            ),
        )
