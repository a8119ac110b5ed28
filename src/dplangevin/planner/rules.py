"""The planner's rules: clip, steps, averaging, ridge and second moments from n, p, the budget and stated bounds.

Units: rows are scaled to norm 1 (theta' = B theta for row norm B), s = 1 (add-remove) or 2 (replace-one). The budget
enters as effective_n = n mu / s (GDP) or n epsilon / (s sqrt p) (pure, whose noise is sqrt(p + 1) times larger): over
the whole run, one coordinate of the mean gradient is then known to within C / effective_n. signal_to_noise =
effective_n / p. docs/planner.md explains the rules and the measurements behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplangevin.problem.losses.base import ModelDefaults

if TYPE_CHECKING:
    from dplangevin.planner.fit_plan import Request

MAX_STEPS = 200
MAX_SHORT_PASS_CELLS = 1e6
"""A pass over more cells than this takes a millisecond, so fewer steps are made."""
MAX_PURE_NOISE_RATIO = 0.7
"""Gamma-norm noise is used for (epsilon, delta) when sqrt(p + 1) mu is below this fraction of epsilon."""
MOMENT_BUDGET_FRACTION = 0.1
"""Fraction of the privacy budget (in mu^2) for the second-moment matrix of the features."""
MAX_RESOLVABLE_EDGE = 0.6
"""Largest edge of the noise spectrum at which enough eigenvalues stand above the noise to be worth the budget."""
MAX_EDGE_FOR_SECOND_RELEASE = 0.5
"""Largest p times the edge, at half the budget, at which the second moments are released twice."""
MAX_EDGE_WITH_LONG_ROWS = 0.125
"""The same with longer rows: they scale the noise of the second release and of the gradients by row_norm_factor^2."""
MAX_COLUMNS_IN_NOISE, MIN_WIDE_SIGNAL = 256, 3.0
"""Columns beyond which second moments are released once only where the signal-to-noise ratio is at least this: with
less, most eigenvalues do not stand above the noise, and steps that converge in all directions overfit."""
PURE_MOMENT_BUDGET_FRACTIONS = (0.1, 0.2)
"""Fractions of epsilon for the second moments of a pure guarantee: the larger one where the edge at the smaller one
is below MAX_PURE_EDGE_FOR_LARGER_FRACTION, since noise on the minimiser then costs less than unidentified
directions."""
MAX_PURE_EDGE_FOR_LARGER_FRACTION = 0.0625
MAX_RESOLVABLE_PURE_EDGE = 0.5
"""As MAX_RESOLVABLE_EDGE, for the second moments of a pure guarantee."""
PURE_EDGE_FACTOR = 1.6651
"""Edge of the noise spectrum of pure second moments over (p + 1) scale, by free convolution of two Wishart laws:
(1 + u) / (2 sqrt(u) (1 - u)) at u = sqrt(5) - 2."""


def choose_clip(defaults: ModelDefaults, signal_to_noise: float, pure: bool = False) -> float | None:
    """Return sqrt(signal_to_noise / unclipped_signal), at least min_clip and at most 1; None without clipping.

    A small clip costs signal, a large one noise.
    """
    if defaults.min_clip is None:
        return None
    fraction = signal_to_noise / (defaults.unclipped_signal_pure if pure else defaults.unclipped_signal)
    return min(max(math.sqrt(fraction), defaults.min_clip), 1.0)


def convex_clip(defaults: ModelDefaults, signal_to_noise: float, pure: bool = False) -> float | None:
    """Return the clip for a guarantee that needs a convex loss; None where clipping would destroy convexity."""
    return choose_clip(defaults, signal_to_noise, pure) if defaults.clip_is_convex else None


@dataclass(frozen=True, kw_only=True)
class DescentPlan:
    """Accelerated descent with rows of norm 1: n_steps of size step_size, mean of the iterates from average_from."""

    n_steps: int
    step_size: float
    average_from: int


def max_descent_steps(n: int, columns: int, curvature: float) -> int:
    """Return the largest T: MAX_STEPS, and where passes are long at most max(128, 2 p) sqrt(4 M).

    More directions need more steps.
    """
    if n * columns <= MAX_SHORT_PASS_CELLS:
        return MAX_STEPS
    return min(MAX_STEPS, math.ceil(max(128, 2 * columns) * math.sqrt(4 * curvature)))


def plan_descent(
    defaults: ModelDefaults,
    effective_n: float,
    signal_to_noise: float,
    slope: float,
    curvature: float,
    max_steps: int = MAX_STEPS,
) -> DescentPlan:
    """Return the descent of total time (coef_bound / C) min(1, 0.4 signal_to_noise) effective_n.

    T = sqrt(4 M time), at most max_steps, and eta = min(1/M, 4 time / T^2). In a flat direction the output is
    (total time) x (gradient + noise), so the rule fixes the size of that noise, whatever n, p and epsilon are. With
    momentum T grows as the square root of the time.
    """
    time = defaults.coef_bound / slope * min(1.0, 0.4 * signal_to_noise) * effective_n
    steps = int(min(max_steps, max(2, math.ceil(math.sqrt(4 * curvature * time)))))
    return DescentPlan(
        n_steps=steps,
        step_size=min(1 / curvature, 4 * time / steps**2),
        average_from=steps - math.ceil(defaults.averaged_fraction * steps),
    )


def objective_ridge(defaults: ModelDefaults, noise: float, signal_to_noise: float, pure: bool) -> float:
    """Return Lambda = k noise on the SUM of losses; noise = s sqrt(p) / epsilon (pure) or s sqrt(p) / mu.

    k = 0.2 in units of the model, more where noise dominates (signal_to_noise below 1) and less where bias does
    (above 30); half of it for Gaussian noise, whose norm is of order sqrt(p) and not p.
    """
    unit = min(10 / defaults.coef_bound, 5.0) * (1.0 if pure else 0.5)
    k = min(1.0, 0.2 / math.sqrt(min(signal_to_noise, 1.0))) * min(1.0, max(0.5, 30 / signal_to_noise))
    return unit * k * noise


def output_ridge(noise_square: float, curvature: float, radius: float) -> float:
    """Return the ridge m (per record) that minimizes (M/2) noise_square / m^2 + m r^2 / 2 for output perturbation."""
    return float((2 * curvature * noise_square / radius**2) ** (1 / 3))


MIN_COUNT_FRACTION, MAX_COUNT_FRACTION = 0.02, 0.5
"""Fractions of the privacy budget (in mu^2, or in epsilon) for the counts of the classes, at least and at most."""
MAX_FIRST_COUNT_FRACTION = 0.1
"""The same at most, where a first count only shows whether a class is rare: if so, the classes may be counted again."""


def count_budget_fraction(request: Request) -> float:
    """Return the fraction of the budget for the counts of the classes.

    The noise of a fit is spread over p directions, that of the counts is in one: their noise on the scores is equal
    for 1 / (1 + p), and the rule takes half of that. Where noise leaves little to learn beyond the shares of the
    classes (a signal-to-noise ratio of a few units), its inverse is more. 0 where no column is known to be constant,
    and for models that are better off without counts, unless noise hides everything but the constant.
    """
    if not (request.has_constant and request.uses_defaults):
        return 0.0
    if not (request.defaults.counts_classes or hides_features(request)):
        return 0.0
    signal_to_noise = request.effective_n(pure=request.delta == 0) / request.n_columns
    fraction = max(0.5 / (1 + request.n_columns), 1 / signal_to_noise, MIN_COUNT_FRACTION)
    return min(fraction, MAX_FIRST_COUNT_FRACTION if request.target_bounds is None else MAX_COUNT_FRACTION)


CENTER_RECORDS, SPREAD_RECORDS = 60.0, 60.0
"""epsilon n at which few records lie between the choice of a center and the median (for another quantile, over twice
the smaller part of them on one side of it), and at which the choice of a spread is hardly off by a candidate."""
MAX_GAUSSIAN_CENTER_FRACTION = 0.1
"""Largest fraction of mu^2 for both choices. Their guarantees are pure, and cost a descent, whose noise is Gaussian, as
much as if they were far weaker, so where more is needed they have a fraction of epsilon of their own."""
PURE_CENTER_FRACTIONS = (0.05, 0.5)
"""That fraction of epsilon, at least and at most."""
MIN_PURE_SIGNAL, MAX_NEEDED_FRACTION = 3.0, 0.75
"""Signal-to-noise ratio of a pure fit below which, and fraction of epsilon that both choices need above which, noise
hides all features."""
HIDDEN_CENTER_FRACTION, HIDDEN_SPREAD_SHARE = 0.95, 0.05
"""Fraction of epsilon for both choices then, and the part of it for the spread."""


def chooses_center(request: Request) -> bool:
    """Return whether a fit starts at a released center of its targets, and suits its loss to their spread."""
    return (
        request.uses_defaults
        and request.has_constant
        and not request.curvature_fraction
        and request.make_loss(None).center_level is not None
        and not (request.needs_gaussian and _needed_fraction(request) > MAX_GAUSSIAN_CENTER_FRACTION)
    )


def has_gaussian_center(request: Request) -> bool:
    """Return whether the choice of a center costs a fraction of mu^2, and not one of epsilon."""
    return request.delta > 0 and _needed_fraction(request) <= MAX_GAUSSIAN_CENTER_FRACTION


def center_budget_fraction(request: Request) -> float:
    """Return the fraction of the budget (in mu^2, or in epsilon) for the choice of a center and a spread."""
    if has_gaussian_center(request):
        return max(count_budget_fraction(request), _needed_fraction(request))
    if _hides_all(request):
        return HIDDEN_CENTER_FRACTION
    least, most = PURE_CENTER_FRACTIONS
    return min(max(_needed_fraction(replace(request, delta=0.0)), least), most)


def center_shares(request: Request) -> tuple[float, float]:
    """Return the parts of the two choices: of epsilon, or of the root of the sum of the squares of both."""
    center = _center_records(request)
    if has_gaussian_center(request):
        total = math.hypot(center, SPREAD_RECORDS)
    elif _hides_all(request):
        return 1 - HIDDEN_SPREAD_SHARE, HIDDEN_SPREAD_SHARE
    else:
        total = center + SPREAD_RECORDS
    return center / total, SPREAD_RECORDS / total


def _hides_all(request: Request) -> bool:
    """Return whether noise hides all features from a fit that has epsilon for a center."""
    if _needed_fraction(replace(request, delta=0.0)) > MAX_NEEDED_FRACTION:
        return True
    if request.delta > 0:
        return hides_features(request)
    return request.effective_n(pure=True) < MIN_PURE_SIGNAL * request.n_columns


def _center_records(request: Request) -> float:
    """Return the epsilon n that the choice of a center needs."""
    level = request.make_loss(None).center_level
    assert level is not None
    return CENTER_RECORDS / (2 * min(level, 1 - level))


def _needed_fraction(request: Request) -> float:
    """Return the fraction of the budget that both choices need; epsilon costs sqrt(pi / 2) epsilon of mu."""
    center = _center_records(request)
    if request.delta == 0:
        return (center + SPREAD_RECORDS) / (request.n * request.epsilon)
    return math.pi / 2 * (math.hypot(center, SPREAD_RECORDS) / (request.n * request.mu)) ** 2


def hides_features(request: Request) -> bool:
    """Return whether noise hides all features, so that little but the constant model can be learned.

    Descent from 0 would not even reach that constant: with few rows and a target off the middle of its range its loss
    was 5 to 18 times that of the noisy constant.
    """
    return (
        request.delta > 0
        and request.n_columns <= MAX_COLUMNS_IN_NOISE
        and not MomentBudget.for_request(request).is_worthwhile
    )


def prefers_pure_noise(dimension: int, epsilon: float, mu: float) -> bool:
    """Return whether pure objective perturbation is expected to beat noisy descent under (epsilon, delta).

    That is the case for few parameters.
    """
    return math.sqrt(dimension + 1) * mu <= MAX_PURE_NOISE_RATIO * epsilon


@dataclass(frozen=True, kw_only=True)
class MomentBudget:
    """The budget of noisy second-moment releases under a guarantee with delta > 0, and whether they are worth it.

    Parameters
    ----------
    effective_n : n mu / s.
    n_moment_releases : how often the second moments are released, twice where effective_n allows it.
    edge : f = tau sqrt(2 p), the edge of the noise spectrum of one release.
    row_norm_factor : norm up to which whitened rows have full weight, over the expected norm; the bias of the weights
        decreases with it.
    is_worthwhile : whether the releases are worth their fraction of the budget.
    """

    effective_n: float
    n_moment_releases: int
    edge: float
    row_norm_factor: float
    is_worthwhile: bool

    @classmethod
    def for_request(cls, request: Request) -> MomentBudget:
        """Decide from tau = a / (effective_n sqrt(budget fraction)), a = 1 (add-remove) or 1 / sqrt 2 (replace-one).

        Replacing a row changes x x' by at most sqrt 2, not 2. p times the edge at half the budget is the noise of a
        second release relative to the eigenvalues of white rows.
        """
        effective_n, columns = request.effective_n(pure=False), request.n_columns
        sensitivity = math.sqrt(0.5) if request.adjacency == "replace-one" else 1.0
        full_edge, half_edge = (
            sensitivity / (effective_n * math.sqrt(fraction)) * math.sqrt(2 * columns)
            for fraction in (MOMENT_BUDGET_FRACTION, MOMENT_BUDGET_FRACTION / 2)
        )
        scaled_edge = columns * half_edge
        releases_twice = scaled_edge <= MAX_EDGE_FOR_SECOND_RELEASE
        return cls(
            effective_n=effective_n,
            n_moment_releases=2 if releases_twice else 1,
            edge=half_edge if releases_twice else full_edge,
            row_norm_factor=math.sqrt(max(1.0, MAX_EDGE_WITH_LONG_ROWS / scaled_edge)),
            is_worthwhile=full_edge <= MAX_RESOLVABLE_EDGE
            and (columns <= MAX_COLUMNS_IN_NOISE or effective_n >= MIN_WIDE_SIGNAL * columns),
        )


@dataclass(frozen=True, kw_only=True)
class PureMomentBudget:
    """The budget of one noisy second-moment release under a pure guarantee, and whether it is worth it.

    Parameters
    ----------
    effective_n : n epsilon / s. n_columns : p.
    """

    effective_n: float
    n_columns: int

    @classmethod
    def for_request(cls, request: Request) -> PureMomentBudget:
        """Build it from a request; delta plays no part."""
        return cls(
            effective_n=request.n * request.epsilon / request.n_changed_records, n_columns=request.n_columns
        )

    def edge(self, budget_fraction: float) -> float:
        """Return the edge of the noise spectrum of a release with this fraction of epsilon."""
        return PURE_EDGE_FACTOR * (self.n_columns + 1) / (budget_fraction * self.effective_n)

    @property
    def budget_fraction(self) -> float:
        """The fraction of epsilon for the release."""
        small, large = PURE_MOMENT_BUDGET_FRACTIONS
        return large if self.edge(small) <= MAX_PURE_EDGE_FOR_LARGER_FRACTION else small

    @property
    def is_worthwhile(self) -> bool:
        """Whether the release is worth its fraction of the budget."""
        return self.edge(self.budget_fraction) <= MAX_RESOLVABLE_PURE_EDGE
