"""The spec of ridge-whitened descent, the descent that its second moments choose, and its privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_up
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.whitened.spec import EXACT_RECORD_ASSUMPTION
from dplangevin.problem.constants import Constants

MAX_MOMENT_RELEASES = 3
TAIL_FRACTION = 0.5
"""Fraction of the iterates of an accelerated descent that is averaged, from the last."""
PLAIN_STEP_FACTOR = 1.39
"""Factor on the steps of a plain descent, whose last iterate then has had the time of an accelerated one."""


class PlannedDescent(NamedTuple):
    """n_steps steps of this size and noise, in coordinates whose rows are at most R long.

    is_accelerated : with momentum, and the mean of the last half of the iterates; else plain, and the last iterate.
    excess : the step whose noise is little enough, over the cap; time is the limit where it is above 1.
    """

    n_steps: int
    step_size: float
    noise_std: float
    is_accelerated: bool
    excess: float = 0.0

    @property
    def average_from(self) -> int:
        """The first step (from 0) whose iterate is part of the mean."""
        tail = math.ceil(TAIL_FRACTION * self.n_steps) if self.is_accelerated else 1
        return self.n_steps - tail


@dataclass(frozen=True, kw_only=True)
class RidgeWhitenedSpec(Spec):
    """Up to three noisy second moments, then noisy gradient steps; what was released decides how many of each.

    Rows are in units of the largest norm, x / row_norm, of norm at most 1. With B the matrix of the coordinates
    (theta = B q / row_norm), R the bound on rows in them and w(x) = min(1, R / |B' x|) a weight of x alone,

        first moment      mean x x' + moment_noise_std (Z + Z') / 2
        further moments   mean z z' + further_noise_std (Z + Z') / 2,  z = w B' x / R in the coordinates so far
        gradients         mean w r B' x / R + noise N(0, I),  r the slopes of the loss at the scores of the row

    where a mean is a sum over the public divisor n. The first moment has a budget of its own. All that follows shares
    one: each further moment takes the fraction `further_fraction` of it, and T steps after k of them have noise
    noise_std sqrt(T / (1 - k further_fraction)), so that together they cost what one gradient with noise_std would.

    Parameters
    ----------
    moment_noise_std : standard deviation of the noise on a diagonal entry of the first moment; off-diagonal entries
        get 1 / sqrt 2 of it. Not used without moment releases.
    noise_std : standard deviation of the noise on a coordinate of a single gradient that had the whole budget of the
        further moments and of the steps, in units of R.
    step_cap : the largest step in a direction of second moment 1.
    min_steps, max_steps : least and largest numbers of steps.
    max_moment_releases : 0 (coordinates are those of the rows), or up to 3.
    further_noise_std, further_fraction : the noise of a further moment, in the units of the first, and its fraction of
        the budget of all that follows the first. Not used with fewer than two moment releases.
    count_noise_std : standard deviation of the noise on the mean of weight x indicator of each class, at whose constant
        model the descent starts; None releases no counts.
    secure : sums over records are exact, and their noise is drawn exactly on public grids.
    """

    mechanism: ClassVar[str] = "ridge-whitened-gd"
    capabilities: ClassVar[Capabilities] = Capabilities(
        secure=True, holds_beyond_n=True, ridge_and_radius=False
    )
    moment_noise_std: float
    noise_std: float
    step_cap: float
    min_steps: int = 8
    max_steps: int = 32
    max_moment_releases: int = 1
    further_noise_std: float = 1.0
    further_fraction: float = 0.0
    count_noise_std: float | None = None
    release: Literal["noisy-answers"] = "noisy-answers"
    secure: bool = False

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            moment_noise_std=_check.check_scale,
            noise_std=_check.check_scale,
            further_noise_std=_check.check_scale,
        )
        _check.validate_fields(self, step_cap=_check.check_positive)
        _check.validate_fields(self, min_steps=_check.check_count, max_steps=_check.check_count)
        _check.validate_fields(self, further_fraction=_check.check_nonnegative, secure=_check.check_flag)
        releases = _check.check_count("max_moment_releases", self.max_moment_releases, minimum=0)
        _check.set_frozen(self, max_moment_releases=releases)
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("noisy-answers",)))
        if self.count_noise_std is not None:
            _check.validate_fields(self, count_noise_std=_check.check_scale)
        if releases > MAX_MOMENT_RELEASES:
            raise InvalidParameter(
                f"max_moment_releases must be at most {MAX_MOMENT_RELEASES}, got {releases!r}."
            )
        if self.max_steps < self.min_steps:
            raise InvalidParameter(f"max_steps = {self.max_steps} is less than min_steps = {self.min_steps}.")
        if releases > 1 and not 0 < (releases - 1) * self.further_fraction < 1:
            raise InvalidParameter(
                "further moments must have a part of the budget and leave some of it to the steps, got "
                f"further_fraction = {self.further_fraction!r} for {releases - 1}."
            )

    def plan_descent(
        self, effective_dimension: float, score_noise: float, n_further_moments: int
    ) -> PlannedDescent:
        """Return the descent in coordinates whose rows have this second moment in all, R^2.

        Steps are such that noise moves a score by about min_steps score_noise, whatever their number. Where steps of at
        most the cap do that within max_steps, they are plain. Else time is the limit: the time of an accelerated
        descent is T^2 times its step.
        """
        left = 1 - n_further_moments * self.further_fraction
        step = score_noise * math.sqrt(left) / (self.noise_std * effective_dimension)
        excess = min(step / self.step_cap, 1e12)
        n_plain = max(math.ceil(PLAIN_STEP_FACTOR * self.min_steps * excess), self.min_steps)
        is_accelerated = n_plain > self.max_steps
        if is_accelerated:
            n_steps = min(math.ceil(self.min_steps * math.sqrt(excess)), self.max_steps)
            step_size = min(step * (self.min_steps / n_steps) ** 2, self.step_cap)
        else:
            n_steps = n_plain
            step_size = PLAIN_STEP_FACTOR * step * self.min_steps / n_steps
        return PlannedDescent(
            n_steps=n_steps,
            step_size=step_size,
            noise_std=self.noise_std * math.sqrt(n_steps / left),
            is_accelerated=is_accelerated,
            excess=excess,
        )


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
