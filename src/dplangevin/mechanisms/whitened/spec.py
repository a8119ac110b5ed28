"""The spec of whitened descent, the response of its averaged windows to a quadratic risk, and its privacy.

For accelerated descent on one coordinate of curvature h with step size eta, the response depends on u = eta h alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, PrivacyPart, Pure
from dplangevin.accounting.plan import Capabilities, Spec, Theorem, round_up
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.spec import CenterScales, check_center_scales
from dplangevin.problem.constants import Constants

WINDOW_END_FRACTIONS = (0.25, 0.5, 1.0)
"""Fractions of the steps at which windows end."""
WINDOW_TAIL_FRACTION = 2 / 3
_CURVATURE_GRID = np.geomspace(1e-9, 2.0, 121)


class Window(NamedTuple):
    """A window of iterates: `first` (from 0) up to `last`, the latter not included."""

    first: int
    last: int


class DescentPath(NamedTuple):
    """The windows of a descent, the last of which ends with it, and the relative noise of its early steps."""

    windows: tuple[Window, ...]
    n_early_steps: int = 0
    early_noise_factor: float = 1.0


def equal_noise_path(steps: int) -> DescentPath:
    """Return the path with equal noise and windows: the last 2/3 of the first quarter, of the first half, of all."""
    ends = [max(1, round(end * steps)) for end in WINDOW_END_FRACTIONS]
    return DescentPath(tuple(Window(end - math.ceil(WINDOW_TAIL_FRACTION * end), end) for end in ends))


class WindowResponse(NamedTuple):
    """How the windows' means respond to a quadratic risk.

    Parameters
    ----------
    reached_fraction : phi [..., 3], the fraction of the minimiser that a window's mean reaches.
    noise : N [..., 3, 3] with eta^2 sigma^2 N the covariance of the windows' noise.
    """

    reached_fraction: Floats
    noise: Floats


@lru_cache(maxsize=64)
def _response_table(path: DescentPath) -> tuple[Floats, Floats]:
    """Return phi and N on the grid of u; the first entry is the limit u = 0."""
    grid = np.concatenate([[0.0], _CURVATURE_GRID])
    windows, steps = path.windows, path.windows[-1].last
    theta = previous = np.zeros_like(grid)
    reached_fraction = np.zeros((len(windows), len(grid)))
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - grid * (point - 1)
        for row, window in zip(reached_fraction, windows, strict=True):
            if window.first <= t < window.last:
                row += theta / (window.last - window.first)
    weights = np.zeros((len(windows), steps, len(grid)))
    for index, window in enumerate(windows):
        weight = 1 / (window.last - window.first)
        current = later = np.zeros_like(grid)
        for t in reversed(range(window.last)):
            total = current + (weight if t >= window.first else 0.0)
            weights[index, t] = total
            propagated = (1 - grid) * total
            current, later = (1 + t / (t + 3)) * propagated + later, -t / (t + 3) * propagated
    weights[:, : path.n_early_steps] *= path.early_noise_factor
    return reached_fraction.T, np.einsum("jtg,ltg->gjl", weights, weights)


def window_response(path: DescentPath, u: Floats) -> WindowResponse:
    """Return phi and N at each u >= 0, interpolated linearly in log u; sigma is that of the last step."""
    reached_fraction, noise = _response_table(path)
    position = np.interp(
        np.log(np.maximum(u, _CURVATURE_GRID[0])),
        np.log(_CURVATURE_GRID),
        np.arange(1.0, len(_CURVATURE_GRID) + 1),
    )
    low = np.minimum(position.astype(int), len(_CURVATURE_GRID) - 1)
    part = position - low
    low = np.where(u < _CURVATURE_GRID[0], 0, low)
    between = part[..., None]
    return WindowResponse(
        reached_fraction[low] * (1 - between) + reached_fraction[low + 1] * between,
        noise[low] * (1 - between[..., None]) + noise[low + 1] * between[..., None],
    )


ALLOWED_MOMENT_RELEASES = (1, 2)
CURVATURE_ROW_FACTOR = 1.25
"""k: a row of weight w counts in full in the curvature while w h'' |B' x|^2 is at most k M R^2, which it adds at most.
At 1, rows slightly longer than R would count less than in the gradient."""
N_SLOPE_MEANS = 2
"""Means of squared slopes that are released with a curvature: weighted as gradients are, and unweighted."""
MIN_FLAT_SCORE = 2.0
"""Root mean square of the scores above which the loss counts as flat and the descent is longer."""


@dataclass(frozen=True, kw_only=True)
class WhitenedSpec(Spec):
    """One or two noisy second moments of the rows, then n_steps noisy gradient steps in whitened coordinates.

    Rows are in units of the largest norm, x / row_norm, of norm at most 1. With B the matrix of the coordinates
    (theta = B q / row_norm), R > 0 the bound on whitened rows and w(x) = min(1, R / |B' x|) a weight of x alone,

        moments    mean x x' + moment_noise_std (Z + Z') / 2, the second one of w B' x / R
        gradients  mean w r B' x / R + noise_std N(0, I),  r the slope of the loss at the score of the row

    where a mean is a sum over the public divisor n. B, R and w are functions of the released moments. With
    count_noise_std, noisy counts of the classes come first, and the descent starts at the constant model they give.
    For confidence intervals, two more releases follow at the released coefficients, with k = CURVATURE_ROW_FACTOR, C
    the bound on |r| and M at most that on h'', a function of what was released before:

        curvature       mean min(w h'' / (k M), R^2 / |B' x|^2) (B' x)(B' x)' / R^2 + curvature_noise_std (Z + Z') / 2
        squared slopes  mean min(w^2 |B' x|^2 / R^2, 1) r^2 / C^2 and mean r^2 / C^2, each + slope_noise_std N(0, 1)

    Parameters
    ----------
    moment_noise_std : standard deviation of the noise on a diagonal entry of the mean of x x'; off-diagonal entries
        get 1 / sqrt 2 of it.
    noise_std : standard deviation of the noise on a coordinate of the mean of w r B' x / R (a mean gradient over R).
    n_steps : number of accelerated steps.
    n_moment_releases : number of noisy second-moment releases, 1 or 2.
    n_approach_steps, approach_noise_std : the first steps, with their own noise in the same units; the iterate after
        them determines how many follow. 0 for n_steps equal steps.
    max_steps : the most steps, where the approach found large scores, so that the loss is flat (see
        `choose_n_steps`).
    row_norm_factor : R in units of the expected norm of a whitened row. Longer rows get less weight, which biases the
        minimiser.
    step_size : the largest step in a direction of second moment 1; 1 / (curvature of the loss x weight bound).
    coef_bound : largest standard deviation of the noise in a coefficient (rows of norm 1), which limits step sizes.
    average_from : first step (from 0) of the tail that is averaged.
    shrink : whether the average is shrunk by empirical Bayes (post-processing, no privacy depends on it).
    secure : sums over records are exact, and their noise is drawn exactly on public grids.
    count_noise_std : standard deviation of the noise on the mean of weight x indicator of each class; None releases
        no counts.
    center_scale, spread_scale : scales of the exponential noise, in records of the largest weight, with which a center
        of the targets and their spread are chosen in place of counts; None chooses none. The loss that runs
        may then have a smaller bound on its slopes than the problem's, and noise on gradients in proportion.
    gaussian_center : whether that choice costs mu, so that the guarantee is one of Gaussian DP, or epsilon.
    recount_noise_std : the same for a second count, which may take the place of the steps after the approach; it
        costs no more than they do. None never counts again.
    curvature_noise_std : standard deviation of the noise on a diagonal entry of the curvature, in its unit; 0 releases
        no curvature.
    slope_noise_std : standard deviation of the noise on each mean of squared slopes; 0 releases none.

    Attributes
    ----------
    combined_noise : the noise of a single gradient that had the whole budget of the descent.
    """

    mechanism: ClassVar[str] = "whitened-gd"
    capabilities: ClassVar[Capabilities] = Capabilities(
        secure=True, holds_beyond_n=True, ridge_and_radius=False, checkpoints=True, curvature=True
    )
    moment_noise_std: float
    noise_std: float
    n_steps: int
    step_size: float
    coef_bound: float
    n_moment_releases: int = 1
    row_norm_factor: float = 1.0
    average_from: int = 0
    shrink: bool = False
    n_approach_steps: int = 0
    approach_noise_std: float = 1.0
    max_steps: int = 0
    release: Literal["noisy-answers"] = "noisy-answers"
    secure: bool = False
    count_noise_std: float | None = None
    recount_noise_std: float | None = None
    curvature_noise_std: float = 0.0
    slope_noise_std: float = 0.0
    center_scale: float | None = None
    spread_scale: float | None = None
    gaussian_center: bool | None = None
    combined_noise: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.validate_fields(
            self,
            moment_noise_std=_check.check_scale,
            noise_std=_check.check_scale,
            n_steps=_check.check_count,
        )
        _check.validate_fields(
            self,
            step_size=_check.check_positive,
            coef_bound=_check.check_positive,
            n_moment_releases=_check.check_count,
        )
        _check.validate_fields(self, row_norm_factor=_check.check_positive)
        for name in ("average_from", "n_approach_steps", "max_steps"):
            _check.set_frozen(self, **{name: _check.check_count(name, getattr(self, name), minimum=0)})
        _check.validate_fields(
            self, shrink=_check.check_flag, approach_noise_std=_check.check_scale, secure=_check.check_flag
        )
        if (self.center_scale, self.spread_scale) != (None, None):
            check_center_scales(self)
        if self.gaussian_center is not None:
            _check.validate_fields(self, gaussian_center=_check.check_flag)
        if self.center_scale is not None and (self.count_noise_std or self.curvature_noise_std):
            raise InvalidParameter("a center of the targets goes with neither counts nor a curvature.")
        for name in ("count_noise_std", "recount_noise_std"):
            if getattr(self, name) is not None:
                _check.set_frozen(self, **{name: _check.check_scale(name, getattr(self, name))})
        if self.recount_noise_std is not None and not (self.count_noise_std and self.n_approach_steps):
            raise InvalidParameter("a second count needs a first one, and an approach that decides on it.")
        _check.set_frozen(self, release=_check.check_choice("release", self.release, ("noisy-answers",)))
        for name in ("curvature_noise_std", "slope_noise_std"):
            if getattr(self, name) != 0:
                _check.set_frozen(self, **{name: _check.check_scale(name, getattr(self, name))})
        if self.slope_noise_std and not self.curvature_noise_std:
            raise InvalidParameter("squared slopes are released with a curvature; state curvature_noise_std.")
        if self.n_moment_releases not in ALLOWED_MOMENT_RELEASES:
            raise InvalidParameter(f"n_moment_releases must be 1 or 2, got {self.n_moment_releases!r}.")
        if self.average_from >= self.n_steps:
            raise InvalidParameter(
                f"average_from = {self.average_from} leaves nothing to average of n_steps = {self.n_steps}."
            )
        if self.n_approach_steps and (
            self.average_from < self.n_approach_steps or self.n_approach_steps >= self.n_steps
        ):
            raise InvalidParameter(
                "an approach must end before the steps do and before the averaged tail begins."
            )
        first = self.n_approach_steps / self.approach_noise_std**2
        later = (self.n_steps - self.n_approach_steps) / self.noise_std**2
        _check.set_frozen(self, combined_noise=1 / math.sqrt(first + later))

    @property
    def center_scales(self) -> CenterScales | None:
        """Both scales of the choice of a center and a spread, or None."""
        if self.center_scale is None or self.spread_scale is None:
            return None
        return CenterScales(self.center_scale, self.spread_scale)

    def choose_n_steps(self, score: float) -> int:
        """Return the total number of steps when the approach ended with scores of this root mean square.

        A logistic loss has the fraction 4 e^-|score| of its largest curvature. Scores still grow when the approach
        ends, so the number grows with the inverse curvature and not with its root, and never beyond `max_steps`.
        """
        if not self.n_approach_steps or not score > MIN_FLAT_SCORE:  # NaN gives n_steps
            return self.n_steps
        return max(
            self.n_steps,
            min(self.max_steps, math.ceil(self.n_steps * math.exp(min(score - MIN_FLAT_SCORE, 40.0)))),
        )

    def noise_at_step(self, step: int, n_steps: int) -> float:
        """Return the noise of a step (from 0) of n_steps; steps after the approach have equal noise."""
        if step < self.n_approach_steps:
            return self.approach_noise_std
        return self.noise_std * math.sqrt(
            (n_steps - self.n_approach_steps) / (self.n_steps - self.n_approach_steps)
        )

    def descent_path(self, n_steps: int) -> DescentPath:
        """Return the windows and the noise of a descent of n_steps; the last window is the tail.

        The tail, whose mean is released, lies within the last two thirds of a longer descent.
        """
        *early, _ = equal_noise_path(n_steps).windows
        tail = self.average_from if n_steps == self.n_steps else max(self.average_from, n_steps // 3)
        early_noise_factor = self.noise_at_step(0, n_steps) / self.noise_at_step(n_steps - 1, n_steps)
        return DescentPath((*early, Window(tail, n_steps)), self.n_approach_steps, early_noise_factor)


EXACT_RECORD_ASSUMPTION = (
    "a record's integers depend on that record and on public or released values only: sums and products of whole "
    "numbers below 2^53 are exact in doubles, and elementwise operations give the same answer wherever a record stands "
    "(docs/theory/exact_sums.md)"
)
ADAPTIVE_STEPS_ASSUMPTION = (
    "the noisy gradients of the first steps determine how many follow, or whether the classes are counted again "
    "instead; the noise of these grows with their number, so that all of it costs the same"
)


PURE_TO_GAUSSIAN = math.sqrt(math.pi / 2) * (1 + 1e-15)
"""epsilon-DP is this times epsilon GDP: the one corner of its trade-off curve lies above that of the Gaussian."""


class WhitenedComposition(
    Theorem[WhitenedSpec], name="whitened-composition", proof="docs/theory/converging_fits.md, section 1"
):
    """Composition of n_moment_releases Gaussian mechanisms on second moments, n_steps on gradients, and curvature.

    Each mechanism depends on the releases before it.

    Counts of the classes, if the spec asks for them: a record adds its weight to one class, so the vector of means of
    weight x indicator moves by at most weight_bound / n (add-remove), a replaced record by sqrt(2) weight_bound / n.

    A center and a spread of the targets, if the spec asks for them: each is the place of the largest of several scores
    with exponential noise, which a record changes by at most 1, so each is 2 / scale differentially private, and
    sqrt(pi / 2) times that GDP (docs/theory/privacy_filter.md). The spec says in which of both it is stated: the first
    is smaller, the second adds up with Gaussian parts. Given them, the loss that runs is fixed, and noise on gradients
    has the same ratio to the bound on its slopes as stated.

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
        counts: tuple[PrivacyPart, ...] = ()
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
        if spec.center_scales is not None:
            costs = spec.center_scales.costs
            counts = tuple(
                Gaussian(mu=round_up(cost * PURE_TO_GAUSSIAN))
                if spec.gaussian_center
                else Pure(value=round_up(cost))
                for cost in costs
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
