"""The plan of a region: centre, curvature and slack, each with its own theorem, charged as one composed guarantee.

The three are calibrated together: whatever the centre promises (Gaussian, pure or a curve), the noise of the rest is
the least with which the COMPOSED guarantee meets (epsilon, delta). Nothing here depends on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

from scipy.special import ndtri

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.families.noisy_answers.schedule import NoisySumsSchedule, SumGroup
from dplangevin.families.rashomon_region.flips import FLIP_TOLERANCE, check_flips, largest_share, noise_reach
from dplangevin.families.rashomon_region.objective import RegionObjective
from dplangevin.families.rashomon_region.outer import PAIR, check_outer
from dplangevin.families.rashomon_region.schedule import SlackSchedule, slack_of
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Plan, Price

CENTRE_SHARE = 0.5  # of mu^2
SLACK_SHARE = 0.6  # of what the centre leaves; the curvature takes the rest
GAP_SHARE = 0.2  # of the slack's, where the best model is the reference
GRADIENT_SHARE = 0.5  # of the slack's, where outer statements are asked for
FLIP_SHARE = 0.5  # of the slack's, where flip-cost levels are asked for
GAP_TOLERANCE = (
    0.05  # of one record's largest share: the error of the minimiser that the gap is measured with
)
WORTHWHILE = 0.5  # a region scaled below this shows more of the noise than of the set
NEEDS_DELTA = (
    "a region needs delta > 0: its curvature and its slack carry Gaussian noise. State a delta, or draw models with "
    "RashomonSampler, which makes pure promises."
)


def centre_epsilon(epsilon: float, delta: float) -> float:
    """The epsilon of the centre: its share of mu^2."""
    if delta == 0:
        raise InvalidParameter(NEEDS_DELTA)
    mu = cv.gdp_mu(_check.positive("epsilon", epsilon), _check.open_unit("delta", delta))
    return math.nextafter(cv.gdp_epsilon(math.sqrt(CENTRE_SHARE) * mu, delta), 0.0)


@dataclass(frozen=True, kw_only=True)
class RegionPlan:
    """What a region will release, what it promises, and what to expect of it.

    Parameters
    ----------
    centre : the plan of the fit. objective : F, whose good models are asked for.
    curvature, slack, gap, gradient, flips : the prices of the majorant's matrix, of the slack, of the distance to the
        best model (None where the released model is the reference), of the gradient (None without outer statements)
        and of flip-cost levels (None without flip_shares).
    thresholds : psi, in increasing order. confidence : of every certificate, jointly. radius : rho, how far from the
        centre the best model is looked for.
    """

    centre: Plan
    objective: RegionObjective
    curvature: Price
    slack: Price
    gap: Price | None = None
    gradient: Price | None = None
    flips: Price | None = None
    flip_shares: tuple[float, ...] = ()
    thresholds: tuple[float, ...]
    confidence: float
    radius: float
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        total = self.centre.guarantee + self.curvature.guarantee + self.slack.guarantee
        for more in (self.gap, self.gradient, self.flips):
            if more is not None:
                total += more.guarantee
        total = replace(total, release=f"{self.centre.schedule.release} + noisy-answers")
        _check.put(self, guarantee=replace(total, at_delta=self.centre.delta, composition=None))

    @property
    def curvature_deviation(self) -> float:
        """s_A: standard deviation of the noise on one packed entry of A (Z1 + Z2 / PAIR where two are released)."""
        times = math.sqrt(1 + PAIR**-2) if self.paired else self.objective.curvature_noise_factor
        return times * self._entry_deviation

    @property
    def paired(self) -> bool:
        """Whether the Hessian is released beside the majorant; for the squared loss they are the same."""
        return self.gradient is not None and not self.objective.loss.is_quadratic

    @property
    def _entry_deviation(self) -> float:
        sums = self.curvature.schedule
        assert isinstance(sums, NoisySumsSchedule)
        return sums.groups[0].scale / self.objective.n

    @property
    def hessian_floor(self) -> float:
        """No eigenvalue of the noise on the Hessian exceeds it, with probability 1 - beta."""
        return noise_eigenvalue(self._entry_deviation, self.objective.n_columns, self.failure)

    @property
    def slack_deviation(self) -> float:
        """s_T."""
        slack = self.slack.schedule
        assert isinstance(slack, SlackSchedule)
        return slack.scale / self.objective.n

    @property
    def failure(self) -> float:
        """beta of a noise: the slack's; the gap's and the curvature's; the gradient's and the Hessian's; the flips'."""
        parts = 1 + 2 * (self.gap is not None) + 2 * (self.gradient is not None) + (self.flips is not None)
        return (1 - self.confidence) / parts

    @property
    def floor(self) -> float:
        """q: no eigenvalue of the noise on A exceeds it, with probability 1 - beta."""
        return noise_eigenvalue(self.curvature_deviation, self.objective.n_columns, self.failure)

    @property
    def quantile(self) -> float:
        """z of the one-sided bound on the slack's noise."""
        return float(ndtri(1 - self.failure))

    def squared_radius(self, threshold: float) -> float:
        """r^2 of the ellipsoid that is tried first; an exact quadratic has no slack, so it starts inside."""
        return (1.6 if self.objective.loss.is_quadratic else 2.0) * threshold

    def expected_scale(self, threshold: float) -> float:
        """The least scale to expect, at T = 0, in the directions that the noise hides: an estimate."""
        if threshold <= 0:
            return 0.0
        length = math.sqrt(self.squared_radius(threshold) / (self.floor + self.objective.ridge))
        return threshold / (threshold + self.quantile * self.slack_deviation * self._steepness() * length)

    @property
    def least_threshold(self) -> float:
        """The smallest psi worth asking: the one whose expected scale is a half."""
        lost = self.quantile * self.slack_deviation * self._steepness()
        return self.squared_radius(1.0) * lost**2 / (self.floor + self.objective.ridge)

    def least_records(self, threshold: float) -> int:
        """About how many records would make this threshold worth asking: the expected loss falls as 1 / n."""
        return math.ceil(self.objective.n * max(1.0, self.least_threshold / threshold))

    def _steepness(self) -> float:
        slope = self.objective.loss.slope_bound
        if math.isinf(slope):  # squared loss: of a model with scores up to 1 and targets up to Y
            slope = 1 + self.objective.label_bound
        return slope * self.objective.row_norm

    @property
    def gap_deviation(self) -> float:
        """Standard deviation of the noise on the gap, about (scores of the centre are taken to be small)."""
        if self.gap is None:
            return math.nan
        return slack_of(self.gap).scale / self.objective.n * self._steepness() * self.radius

    @property
    def level_width(self) -> float:
        """How far the two bounds of a flip-cost level are apart: known beforehand."""
        if self.flips is None:
            return math.nan
        reach = noise_reach(slack_of(self.flips).scale, len(self.flip_shares), self.failure)
        return (2 * reach + FLIP_TOLERANCE) * largest_share(self.objective, self.radius) / self.objective.n

    def __str__(self) -> str:
        problem, promise = self.centre.problem, self.guarantee
        delta = promise.at_delta or 0.0
        lines = [
            f"Region of good models: n = {problem.n}, {problem.n_features} columns, {self.objective.loss.name} loss, "
            f"ridge {self.objective.ridge:g}",
            f"  promise: epsilon = {promise.epsilon(delta):.4g}, delta = {delta:.3g}, {promise.adjacency}, for the "
            "centre, the curvature and the slack together; everything else is post-processing",
            f"  centre: {self.centre.schedule.mechanism}; curvature noise {self.curvature_deviation:.3g} an entry, "
            f"slack noise {self.slack_deviation:.3g}",
            *(
                f"  psi = {psi:g}: expected scale {self.expected_scale(psi):.2f} or more (estimate, before the centre "
                "is known)"
                for psi in self.thresholds
            ),
            f"  smallest psi worth asking at this n and budget: about {self.least_threshold:.2g}",
        ]
        if self.gradient is not None:
            lines.append("  outer statements: a noisy gradient, and the Hessian beside the majorant")
        if self.flips is not None:
            shares = ", ".join(f"{share:g}" for share in self.flip_shares)
            lines.append(
                f"  flip-cost levels: the psi at which a share of {shares} of the inputs is ambiguous, between bounds "
                f"that are {self.level_width:.2g} apart; models within {self.radius:g} of the centre"
            )
        if self.gap is not None:
            lines.append(
                f"  reference: the best model within {self.radius:g} of the centre; its gap is known to about "
                f"{self.quantile * self.gap_deviation:.2g}, and a threshold below that certifies nothing"
            )
        return "\n".join(lines)


def noise_eigenvalue(deviation: float, size: int, failure: float) -> float:
    """q: the largest eigenvalue of the symmetric noise exceeds it with probability at most `failure`.

    E lambda_max <= s sqrt(2 p) by Sudakov and Fernique, and lambda_max is 1-Lipschitz in the packed entries.

    Examples
    --------
    >>> [round(noise_eigenvalue(1.0, p, 0.05), 6) for p in (2, 10, 50)]
    [4.447747, 6.919883, 12.447747]
    """
    return deviation * (math.sqrt(2 * size) + math.sqrt(2 * math.log(1 / failure)))


def plan_region(
    centre: Plan,
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
) -> RegionPlan:
    """The plan whose composed guarantee meets (epsilon, delta), given that of the centre."""
    if delta == 0:
        raise InvalidParameter(NEEDS_DELTA)
    if (best or flip_shares) and centre.problem.more_rows:
        # a minimiser's tolerance rests on the curvature of at most n records
        name = "reference='best'" if best else "flip_shares"
        raise InvalidParameter(
            f"{name} is proved for at most n records, and with a stated n the data may hold more: leave n out (the "
            f"number of rows is then public), or leave {name} out."
        )
    if outer:
        check_outer(objective)
    if flip_shares:
        check_flips(objective, radius)
    goal = cv.gdp_mu(_check.positive("epsilon", epsilon), _check.open_unit("delta", delta))

    prices = partial(_prices, objective, delta=delta, best=best, outer=outer, levels=len(flip_shares))

    def made(rest: float) -> RegionPlan:
        return RegionPlan(
            centre=centre,
            objective=objective,
            thresholds=thresholds,
            confidence=confidence,
            radius=radius,
            flip_shares=flip_shares,
            **prices(rest),
        )

    known = centre.guarantee.mu
    if known is not None:
        return _checked(made(math.sqrt(max(goal**2 - known**2, 0.0)) * (1 - 1e-7)), epsilon, delta)
    low, high, best_plan = 0.0, goal, None
    for _ in range(10):
        middle = (low + high) / 2
        plan = made(middle)
        if plan.guarantee.epsilon(delta) <= epsilon:
            low, best_plan = middle, plan
        else:
            high = middle
    if best_plan is None:
        raise CalibrationFailed(
            f"the centre's promise leaves nothing of epsilon = {epsilon:g} for the region; raise epsilon, or leave "
            "mechanism and theorem to the planner."
        )
    return _checked(best_plan, epsilon, delta)


def _prices(
    objective: RegionObjective, rest: float, *, delta: float, best: bool, outer: bool, levels: int
) -> dict[str, Price]:
    """What the centre leaves, mu = rest, shared between the other releases."""
    slack, prices = SLACK_SHARE * rest**2, {}
    if outer:
        slope, slack = GRADIENT_SHARE * slack, (1 - GRADIENT_SHARE) * slack
        prices["gradient"] = _slack(objective, math.sqrt(slope), answers=objective.n_columns)
    if best:
        gap, slack = GAP_SHARE * slack, (1 - GAP_SHARE) * slack
        prices["gap"] = _slack(objective, math.sqrt(gap), GAP_TOLERANCE)
    if levels:
        flips, slack = FLIP_SHARE * slack, (1 - FLIP_SHARE) * slack
        prices["flips"] = _flips(objective, math.sqrt(flips), levels)
    matrices = 2 if outer and not objective.loss.is_quadratic else 1
    curvature = _curvature(objective, math.sqrt(1 - SLACK_SHARE) * rest, matrices)
    schedules = {"curvature": curvature, "slack": _slack(objective, math.sqrt(slack)), **prices}
    return {name: Price(schedule=schedule, delta=delta) for name, schedule in schedules.items()}


def _checked(plan: RegionPlan, epsilon: float, delta: float) -> RegionPlan:
    spent = plan.guarantee.epsilon(delta)
    if not spent <= epsilon:
        raise CalibrationFailed(
            f"the composed promise of the region is epsilon = {spent:.6g}, above {epsilon:.6g}; raise epsilon."
        )
    return plan


def _curvature(objective: RegionObjective, mu: float, matrices: int = 1) -> NoisySumsSchedule:
    """Positive semidefinite terms: the hypothesis of noisy sums, so replace-one costs sqrt 2 and not 2."""
    size = matrices * (objective.n_columns * (objective.n_columns + 1) // 2)
    group = SumGroup(answers=size, unit=objective.curvature_unit, scale=1.0)
    reach = group.reach("gaussian", objective.adjacency)
    return NoisySumsSchedule(
        groups=(replace(group, scale=reach / max(mu, 1e-12)),),
        noise="gaussian",
        adjacency=objective.adjacency,
    )


def _slack(objective: RegionObjective, mu: float, tolerance: float = 0.0, answers: int = 1) -> SlackSchedule:
    """Shares of either sign; a tolerance of the minimiser moves the number by as much again on both sides."""
    unit = (1 + 2 * tolerance) * (1 + 1e-9)
    schedule = SlackSchedule(unit=unit, scale=1.0, answers=answers, adjacency=objective.adjacency)
    return replace(schedule, scale=schedule.reach / max(mu, 1e-12))


def _flips(objective: RegionObjective, mu: float, levels: int) -> SlackSchedule:
    """Each level moves by one share of a record (two, replaced), and by the tolerance of its minimiser."""
    unit = (1 + FLIP_TOLERANCE) * math.sqrt(levels) * (1 + 1e-9)
    schedule = SlackSchedule(unit=unit, scale=1.0, answers=levels, adjacency=objective.adjacency)
    return replace(schedule, scale=schedule.reach / max(mu, 1e-12))
