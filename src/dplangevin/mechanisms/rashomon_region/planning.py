"""Plan a region: centre, curvature, slack and flip-cost levels, charged as one composed guarantee.

e_j = min F(theta) - F(c) over the models within rho of the centre that classify input j differently. The k-th
smallest e_j is the threshold at which k inputs are ambiguous. Each e_j, times n / Lam, changes by at most one
contribution per record, hence so does the k-th smallest; the minimisers' tolerance is part of the sensitivity. Proof:
docs/theory/rashomon_region.md, section 9.

They are calibrated together: whatever the centre's guarantee (Gaussian, pure or a curve), the noise of the rest is
the smallest with which the COMPOSED guarantee meets (epsilon, delta). Nothing here depends on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.data.dataset import Dataset
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup
from dplangevin.mechanisms.rashomon_region.minimizers import (
    ROUNDING_TOLERANCE,
    excess_totals,
    has_proved_minimum,
    minimize_near,
    rounding_error,
)
from dplangevin.mechanisms.rashomon_region.objective import PAIR_WEIGHT, RegionObjective, check_outer
from dplangevin.mechanisms.rashomon_region.spec import SlackSpec, slack_spec
from dplangevin.problem.constants import MAX_EXACT_COLUMNS

FLIP_TOLERANCE = 0.25  # error of the minimisers, as a fraction of one record's largest contribution
MAX_FLIP_INPUTS = 100  # levels refer to the first so many inputs
MAX_FLIP_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class FlipLevel:
    """The threshold at which `count` of the `inputs` are ambiguous among models within `radius` of the released one.

    With the stated confidence: at every psi below `low` fewer than `count` inputs are each classified differently by
    some model, and at every psi above `high` at least `count` are. Both are infinite where no models within the
    radius classify that many differently.
    """

    fraction: float
    count: int
    n_inputs: int
    radius: float
    low: float
    high: float


def check_flips(objective: RegionObjective, radius: float) -> None:
    """Check that there are two classes, and that a public and affordable number of steps finds the minimisers."""
    if not objective.loss.sign_decides:
        raise InvalidParameter("flip_shares are for classifiers of two classes; leave them out.")
    if n_flip_steps(objective, radius) > MAX_FLIP_STEPS:
        raise InvalidParameter(
            f"flip_shares would take {n_flip_steps(objective, radius):,} steps at this n and radius; state a smaller "
            "radius in the estimator, or leave them out."
        )


def max_loss_difference(objective: RegionObjective, radius: float) -> float:
    """Return Lam, a bound on the difference of one record's loss between two models at distance `radius`."""
    return objective.loss.slope_bound * objective.row_norm * radius * (1 + 1e-12)


def n_flip_steps(objective: RegionObjective, radius: float) -> int:
    """Return the steps that reach the tolerance, less rounding, on every data set: 2 M rho^2 / (steps + 1)^2."""
    tolerance = (
        (FLIP_TOLERANCE - 2 * ROUNDING_TOLERANCE) * max_loss_difference(objective, radius) / objective.n
    )
    return math.ceil(radius * math.sqrt(2 * objective.smoothness / tolerance))


def can_flip(rows: Floats, center: Floats, rho: float) -> NDArray[np.bool_]:
    """Return which rows some model within rho of the centre classifies differently: public once the centre is."""
    lengths = np.linalg.norm(rows, axis=1)
    return np.asarray((lengths > 0) & (np.abs(rows @ center) <= lengths * rho * (1 - 1e-9)))


def flip_totals(
    data: Dataset,
    objective: RegionObjective,
    center: Floats,
    rows: Floats,
    rho: float,
    *,
    proved: bool = True,
) -> Floats:
    """Return n e_j / Lam of each row, too large by at most the tolerance; inf where no model within rho flips it."""
    scores = rows @ center
    target_signs = np.where(scores > 0, -1.0, 1.0)
    lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
    normals = (target_signs / lengths)[:, None] * rows  # a step d flips the row where normal'd >= offset
    offsets = -target_signs * scores / lengths
    totals = np.full(len(rows), math.inf)
    possible = np.flatnonzero(can_flip(rows, center, rho))
    if not possible.size:
        return totals
    sides, ends = normals[possible].T, offsets[possible]

    def project(steps: Floats) -> Floats:
        return project_on_flip_set(steps, sides, ends, rho)

    # the projection of 0 is within rho of every feasible step, because 0 is
    start = project(np.zeros(sides.shape))
    n_steps = n_flip_steps(objective, rho)
    steps = minimize_near(data, objective, center, start, project, rho, n_steps, proved=proved)
    totals[possible] = excess_totals(data, objective, center, steps, max_loss_difference(objective, rho))
    return totals


def has_proved_flips(objective: RegionObjective, center: Floats, rho: float) -> bool:
    """Return whether the totals are within their tolerance on every data set: public once the centre is."""
    limit, steps = max_loss_difference(objective, rho), n_flip_steps(objective, rho)
    return rounding_error(objective, center, rho, steps, limit) <= ROUNDING_TOLERANCE


def project_on_flip_set(steps: Floats, normals: Floats, offsets: Floats, rho: float) -> Floats:
    """Project each column onto {|d| <= rho, normal'd >= offset}: onto half-space, ball, or their common edge."""
    shortfall = offsets - (normals * steps).sum(axis=0)
    half = steps + np.maximum(shortfall, 0.0) * normals
    size = np.maximum(np.sqrt(np.square(steps).sum(axis=0)), 1e-300)
    ball = steps * np.minimum(1.0, rho / size)
    across = steps - normals * (normals * steps).sum(axis=0)
    wide = np.maximum(np.sqrt(np.square(across).sum(axis=0)), 1e-300)
    edge = offsets * normals + across / wide * np.sqrt(np.maximum((rho - offsets) * (rho + offsets), 0.0))
    in_ball = np.square(half).sum(axis=0) <= rho**2
    in_half = (normals * ball).sum(axis=0) >= offsets
    return np.asarray(np.where(in_ball, half, np.where(in_half, ball, edge)))


def smallest_totals(totals: Floats, fractions: tuple[float, ...]) -> tuple[Floats, tuple[int, ...]]:
    """Return the k-th smallest total for each fraction of the inputs (k rounded up), and these k."""
    counts = tuple(max(1, math.ceil(fraction * len(totals))) for fraction in fractions)
    return np.sort(totals)[np.array(counts) - 1], counts


def noise_bound(deviation: float, levels: int, failure: float) -> float:
    """Return a bound that no level's noise exceeds in absolute value, with probability 1 - failure."""
    return float(ndtri(1 - failure / (2 * levels))) * deviation


def bound_levels(
    noisy: Floats,
    possible: int,
    counts: tuple[int, ...],
    fractions: tuple[float, ...],
    *,
    n_inputs: int,
    radius: float,
    unit: float,
    deviation: float,
    failure: float,
) -> tuple[FlipLevel, ...]:
    """Return the bounds that noisy totals imply; unit is Lam / n, failure is split over both sides of all levels."""
    noise_margin = noise_bound(deviation, len(fractions), failure)
    levels = []
    for value, count, fraction in zip(noisy.tolist(), counts, fractions, strict=True):
        low = unit * (value - noise_margin - FLIP_TOLERANCE)
        high = unit * (value + noise_margin + ROUNDING_TOLERANCE)
        if count > possible:
            low = high = math.inf
        levels.append(
            FlipLevel(
                fraction=fraction,
                count=count,
                n_inputs=n_inputs,
                radius=radius,
                low=max(0.0, low),
                high=max(0.0, high),
            )
        )
    return tuple(levels)


CENTER_BUDGET_FRACTION = 0.5  # of mu^2
SLACK_BUDGET_FRACTION = 0.6  # of what the centre leaves; the curvature takes the rest
GAP_BUDGET_FRACTION = 0.2  # of the slack's budget, where the best model is the reference
GRADIENT_BUDGET_FRACTION = 0.5  # of the slack's budget, where outer statements are requested
FLIP_BUDGET_FRACTION = 0.5  # of the slack's budget, where flip-cost levels are requested
GAP_TOLERANCE = 0.05  # error of the gap's minimiser, as a fraction of one record's largest contribution
MIN_USEFUL_SCALE = 0.5  # a region scaled below this says more about the noise than about the set
DELTA_REQUIRED_MESSAGE = (
    "a region needs delta > 0: its curvature and its slack carry Gaussian noise. State a delta, or draw models with "
    "RashomonSampler, which has pure guarantees."
)


def max_loss_difference_within(objective: RegionObjective, center: Floats, radius: float) -> float:
    """Return Lam for the whole ball around the centre."""
    size = float(np.linalg.norm(center))
    along = center / size if size > 0 else np.eye(len(center))[0]
    return float(objective.loss_difference_bounds(center, (center + radius * along)[:, None])[0])


def n_gap_steps(objective: RegionObjective, radius: float, limit: float) -> int:
    """Return the steps that reach the gap's tolerance on every data set: 2 M rho^2 / (steps + 1)^2 <= tolerance."""
    tolerance = GAP_TOLERANCE * limit / objective.n
    return math.ceil(radius * math.sqrt(2 * objective.smoothness / tolerance))


def center_epsilon(epsilon: float, delta: float) -> float:
    """Return the epsilon of the centre, whose mu^2 is CENTER_BUDGET_FRACTION of the whole."""
    if delta == 0:
        raise InvalidParameter(DELTA_REQUIRED_MESSAGE)
    mu = cv.gdp_mu(_check.check_positive("epsilon", epsilon), _check.check_open_unit("delta", delta))
    return math.nextafter(cv.gdp_epsilon(math.sqrt(CENTER_BUDGET_FRACTION) * mu, delta), 0.0)


@dataclass(frozen=True, kw_only=True)
class RegionPlan:
    """The releases of a region, their composed guarantee, and the accuracy to expect.

    Parameters
    ----------
    center : the plan of the fit. objective : F, whose good models form the region.
    curvature, slack, gap, gradient, flips : the certified specs of the majorant's matrix, of the slack, of the excess
        over the best model (None where the released model is the reference), of the gradient (None without outer
        statements) and of flip-cost levels (None without flip_shares).
    flip_shares : fractions of the inputs whose flip-cost levels are released.
    thresholds : psi, in increasing order. confidence : of all certificates jointly.
    radius : rho, the distance from the centre within which the best model is sought.

    Attributes
    ----------
    guarantee : the composed guarantee of all releases.
    """

    center: Plan
    objective: RegionObjective
    curvature: CertifiedSpec
    slack: CertifiedSpec
    gap: CertifiedSpec | None = None
    gradient: CertifiedSpec | None = None
    flips: CertifiedSpec | None = None
    flip_shares: tuple[float, ...] = ()
    thresholds: tuple[float, ...]
    confidence: float
    radius: float
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        total = self.center.guarantee + self.curvature.guarantee + self.slack.guarantee
        for more in (self.gap, self.gradient, self.flips):
            if more is not None:
                total += more.guarantee
        total = replace(total, release=f"{self.center.spec.release} + noisy-answers")
        _check.set_frozen(self, guarantee=replace(total, at_delta=self.center.delta, composition=None))

    @property
    def curvature_noise_std(self) -> float:
        """s_A: standard deviation of the noise on one packed entry of A (Z1 + Z2 / PAIR_WEIGHT for two matrices)."""
        factor = (
            math.sqrt(1 + PAIR_WEIGHT**-2) if self.releases_hessian else self.objective.curvature_noise_factor
        )
        return factor * self._entry_noise_std

    @property
    def releases_hessian(self) -> bool:
        """Whether the Hessian is released in addition to the majorant; for the squared loss they are equal."""
        return self.gradient is not None and not self.objective.loss.is_quadratic

    @property
    def is_exact(self) -> bool:
        """Whether all releases are of whole numbers, with exact noise."""
        return self.slack.spec.secure

    @property
    def curvature_sum_noise_std(self) -> float:
        """Standard deviation of the noise on one packed entry of the curvature's sum."""
        sums = self.curvature.spec
        assert isinstance(sums, NoisySumsSpec)
        return sums.groups[0].scale

    @property
    def _entry_noise_std(self) -> float:
        return self.curvature_sum_noise_std / self.objective.n

    @property
    def hessian_noise_floor(self) -> float:
        """Bound on the largest eigenvalue of the noise on the Hessian, with probability 1 - beta."""
        return noise_eigenvalue_bound(
            self._entry_noise_std, self.objective.n_columns, self.failure_probability
        )

    @property
    def slack_noise_std(self) -> float:
        """s_T: standard deviation of the noise on the slack."""
        slack = self.slack.spec
        assert isinstance(slack, SlackSpec)
        return slack.scale / self.objective.n

    @property
    def failure_probability(self) -> float:
        """beta of each noise: of the slack; of gap and curvature; of gradient and Hessian; of the flip levels."""
        parts = 1 + 2 * (self.gap is not None) + 2 * (self.gradient is not None) + (self.flips is not None)
        return (1 - self.confidence) / parts

    @property
    def noise_floor(self) -> float:
        """q: bound on the largest eigenvalue of the noise on A, with probability 1 - beta."""
        return noise_eigenvalue_bound(
            self.curvature_noise_std, self.objective.n_columns, self.failure_probability
        )

    @property
    def noise_quantile(self) -> float:
        """The normal quantile z of the one-sided bound on the slack's noise."""
        return float(ndtri(1 - self.failure_probability))

    def squared_radius(self, threshold: float) -> float:
        """Return r^2 of the ellipsoid before scaling; an exact quadratic has no slack, so it starts inside."""
        return (1.6 if self.objective.loss.is_quadratic else 2.0) * threshold

    def expected_scale(self, threshold: float) -> float:
        """Estimate the smallest scale to expect, at T = 0, where eigenvalues do not stand above the noise."""
        if threshold <= 0:
            return 0.0
        length = math.sqrt(self.squared_radius(threshold) / (self.noise_floor + self.objective.ridge))
        return threshold / (
            threshold + self.noise_quantile * self.slack_noise_std * self._score_lipschitz() * length
        )

    @property
    def min_threshold(self) -> float:
        """The smallest useful psi: the one whose expected scale is a half."""
        slack_noise = self.noise_quantile * self.slack_noise_std * self._score_lipschitz()
        return self.squared_radius(1.0) * slack_noise**2 / (self.noise_floor + self.objective.ridge)

    def min_records(self, threshold: float) -> int:
        """Estimate how many records would make this threshold useful: the smallest useful one decreases as 1 / n."""
        return math.ceil(self.objective.n * max(1.0, self.min_threshold / threshold))

    def _score_lipschitz(self) -> float:
        slope = self.objective.loss.slope_bound
        if math.isinf(slope):  # squared loss: of a model with scores up to 1 and targets up to Y
            slope = 1 + self.objective.label_bound
        return slope * self.objective.row_norm

    @property
    def gap_noise_std(self) -> float:
        """Approximate standard deviation of the noise on the gap (the centre's scores are assumed to be small)."""
        if self.gap is None:
            return math.nan
        return slack_spec(self.gap).scale / self.objective.n * self._score_lipschitz() * self.radius

    @property
    def level_width(self) -> float:
        """Distance between the two bounds of a flip-cost level, known beforehand."""
        if self.flips is None:
            return math.nan
        noise_margin = noise_bound(
            slack_spec(self.flips).scale, len(self.flip_shares), self.failure_probability
        )
        return (
            (2 * noise_margin + FLIP_TOLERANCE + ROUNDING_TOLERANCE)
            * max_loss_difference(self.objective, self.radius)
            / self.objective.n
        )

    def __str__(self) -> str:
        problem, guarantee = self.center.problem, self.guarantee
        delta = guarantee.at_delta or 0.0
        lines = [
            f"Region of good models: n = {problem.n}, {problem.n_features} columns, {self.objective.loss.name} loss, "
            f"ridge {self.objective.ridge:g}",
            f"  guarantee: epsilon = {guarantee.epsilon(delta):.4g}, delta = {delta:.3g}, {guarantee.adjacency}, for "
            "the centre, the curvature and the slack together; everything else is post-processing",
            f"  centre: {self.center.spec.mechanism}; curvature noise {self.curvature_noise_std:.3g} per entry, "
            f"slack noise {self.slack_noise_std:.3g}",
            *(
                f"  psi = {psi:g}: expected scale {self.expected_scale(psi):.2f} or more (estimate, before the centre "
                "is known)"
                for psi in self.thresholds
            ),
            f"  smallest useful psi at this n and budget: about {self.min_threshold:.2g}",
            "  exact: what is released are whole numbers, and their noise is drawn exactly"
            if self.is_exact
            else "  floating point: no guarantee covers the low-order bits of the noise",
        ]
        if self.gradient is not None:
            lines.append("  outer statements: a noisy gradient, and the Hessian in addition to the majorant")
        if self.flips is not None:
            fractions = ", ".join(f"{fraction:g}" for fraction in self.flip_shares)
            lines.append(
                f"  flip-cost levels: the psi at which a fraction of {fractions} of the inputs is ambiguous, between "
                f"bounds that are {self.level_width:.2g} apart; models within {self.radius:g} of the centre"
            )
        if self.gap is not None:
            lines.append(
                f"  reference: the best model within {self.radius:g} of the centre; its gap is known to about "
                f"{self.noise_quantile * self.gap_noise_std:.2g}, and a threshold below that certifies nothing"
            )
        return "\n".join(lines)


def noise_eigenvalue_bound(deviation: float, size: int, failure: float) -> float:
    """Return q, which the largest eigenvalue of the symmetric noise exceeds with probability at most `failure`.

    E lambda_max <= s sqrt(2 p) by Sudakov and Fernique, and lambda_max is 1-Lipschitz in the packed entries.

    Examples
    --------
    >>> [round(noise_eigenvalue_bound(1.0, p, 0.05), 6) for p in (2, 10, 50)]
    [4.447747, 6.919883, 12.447747]
    """
    return deviation * (math.sqrt(2 * size) + math.sqrt(2 * math.log(1 / failure)))


def plan_region(
    center: Plan,
    objective: RegionObjective,
    *,
    thresholds: tuple[float, ...],
    epsilon: float,
    delta: float,
    confidence: float = 0.95,
    best: bool = False,
    radius: float = 1.0,
    outer: bool = False,
    flip_shares: tuple[float, ...] = (),
    secure: bool | None = False,
) -> RegionPlan:
    """Plan a region whose composed guarantee, that of the centre included, meets (epsilon, delta).

    secure : True: exact sums and noise, or refused; None: exact where that has a proof; False: floating point.
    """
    if delta == 0:
        raise InvalidParameter(DELTA_REQUIRED_MESSAGE)
    has_minima = best or len(flip_shares) > 0
    obstacle = exactness_obstacle(
        center, objective, outer=outer, minima_within=radius if has_minima else None
    )
    if secure and obstacle is not None:
        raise InvalidParameter(f"secure=True has no proof for this region: {obstacle}.")
    if (best or flip_shares) and center.problem.allow_more_rows:
        # a minimiser's tolerance rests on the curvature of at most n records
        name = "reference='best'" if best else "flip_shares"
        raise InvalidParameter(
            f"{name} is proved for at most n records, and with n_public the data may hold more: leave n_public out "
            f"(the number of rows is then public), or leave {name} out."
        )
    if outer:
        check_outer(objective)
    if flip_shares:
        check_flips(objective, radius)
    goal = cv.gdp_mu(_check.check_positive("epsilon", epsilon), _check.check_open_unit("delta", delta))

    certify_releases = partial(
        _certify_releases,
        objective,
        delta=delta,
        best=best,
        outer=outer,
        levels=len(flip_shares),
        secure=secure is not False and obstacle is None,
    )

    def make_plan(rest: float) -> RegionPlan:
        return RegionPlan(
            center=center,
            objective=objective,
            thresholds=thresholds,
            confidence=confidence,
            radius=radius,
            flip_shares=flip_shares,
            **certify_releases(rest),
        )

    known = center.guarantee.mu
    if known is not None:
        return _check_budget(make_plan(math.sqrt(max(goal**2 - known**2, 0.0)) * (1 - 1e-7)), epsilon, delta)
    low, high, best_plan = 0.0, goal, None
    for _ in range(10):
        middle = (low + high) / 2
        plan = make_plan(middle)
        if plan.guarantee.epsilon(delta) <= epsilon:
            low, best_plan = middle, plan
        else:
            high = middle
    if best_plan is None:
        raise CalibrationFailed(
            f"the centre leaves nothing of epsilon = {epsilon:g} for the region; raise epsilon, or leave mechanism and "
            "theorem to the planner."
        )
    return _check_budget(best_plan, epsilon, delta)


def exactness_obstacle(
    center: Plan, objective: RegionObjective, *, outer: bool, minima_within: float | None
) -> str | None:
    """Return why these releases have no exact form; None where they have one.

    minima_within : the radius of the gap and of flip levels; None without them.
    """
    if minima_within is not None:
        if not has_proved_minimum(objective.loss):
            return f"the value of the {objective.loss.name} loss has no proved error, which minima need"
        origin = np.zeros(objective.dimension)
        limit = max_loss_difference_within(objective, origin, minima_within)
        steps = n_gap_steps(objective, minima_within, limit)
        if not rounding_error(objective, origin, minima_within, steps, limit) <= ROUNDING_TOLERANCE:
            return f"the rounding of minima over {objective.n:,} records is not below their tolerance"
    if outer and objective.loss.slope_formula is None:
        return f"the slope of the {objective.loss.name} loss has no formula"
    if center.guarantee.arithmetic != "discrete-grid":
        return "the fit of its centre is in floating point"
    if objective.n_columns > MAX_EXACT_COLUMNS:
        return f"exact sums are for at most {MAX_EXACT_COLUMNS} columns"
    return None


def _certify_releases(
    objective: RegionObjective,
    rest: float,
    *,
    delta: float,
    best: bool,
    outer: bool,
    levels: int,
    secure: bool,
) -> dict[str, CertifiedSpec]:
    """Certify the other releases, which share the budget that the centre leaves, mu = rest."""
    slack, certified = SLACK_BUDGET_FRACTION * rest**2, {}
    if outer:
        slope, slack = GRADIENT_BUDGET_FRACTION * slack, (1 - GRADIENT_BUDGET_FRACTION) * slack
        certified["gradient"] = _slack_spec(objective, math.sqrt(slope), answers=objective.n_columns)
    if best:
        gap, slack = GAP_BUDGET_FRACTION * slack, (1 - GAP_BUDGET_FRACTION) * slack
        certified["gap"] = _slack_spec(objective, math.sqrt(gap), GAP_TOLERANCE)
    if levels:
        flips, slack = FLIP_BUDGET_FRACTION * slack, (1 - FLIP_BUDGET_FRACTION) * slack
        certified["flips"] = _flip_spec(objective, math.sqrt(flips), levels)
    matrices = 2 if outer and not objective.loss.is_quadratic else 1
    curvature = _curvature_spec(objective, math.sqrt(1 - SLACK_BUDGET_FRACTION) * rest, matrices)
    specs = {"curvature": curvature, "slack": _slack_spec(objective, math.sqrt(slack)), **certified}
    return {
        name: CertifiedSpec(spec=replace(spec, secure=secure), delta=delta) for name, spec in specs.items()
    }


def _check_budget(plan: RegionPlan, epsilon: float, delta: float) -> RegionPlan:
    spent = plan.guarantee.epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"the releases of the region compose to epsilon = {spent:.6g}, above {epsilon:.6g}; raise epsilon."
        )
    return plan


def _curvature_spec(objective: RegionObjective, mu: float, matrices: int = 1) -> NoisySumsSpec:
    """Return the spec of the curvature; its terms are positive semidefinite, so replace-one costs sqrt 2, not 2."""
    size = matrices * (objective.n_columns * (objective.n_columns + 1) // 2)
    group = SumGroup(answers=size, unit=objective.curvature_unit, scale=1.0)
    sensitivity = group.sensitivity("gaussian", objective.adjacency)
    return NoisySumsSpec(
        groups=(replace(group, scale=sensitivity / max(mu, 1e-12)),),
        noise="gaussian",
        adjacency=objective.adjacency,
    )


def _slack_spec(objective: RegionObjective, mu: float, tolerance: float = 0.0, answers: int = 1) -> SlackSpec:
    """Return the spec of a sum of contributions of either sign.

    A minimiser's tolerance may change the answers of both neighbours.
    """
    unit = (1 + 2 * tolerance) * (1 + 1e-9)
    spec = SlackSpec(unit=unit, scale=1.0, answers=answers, adjacency=objective.adjacency)
    return replace(spec, scale=spec.sensitivity / max(mu, 1e-12))


def _flip_spec(objective: RegionObjective, mu: float, levels: int) -> SlackSpec:
    """Return the spec of flip levels: each changes by one contribution per record and its minimiser's tolerance."""
    unit = (1 + FLIP_TOLERANCE) * math.sqrt(levels) * (1 + 1e-9)
    spec = SlackSpec(unit=unit, scale=1.0, answers=levels, adjacency=objective.adjacency)
    return replace(spec, scale=spec.sensitivity / max(mu, 1e-12))
