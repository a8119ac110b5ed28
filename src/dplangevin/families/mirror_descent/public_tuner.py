"""Step sizes, clips, ridges and numbers of steps from public data alone, by simulating private runs on it.

One round: the public sample is cut into A and B. Pretend that theta_all, the minimiser of the whole sample, is the
truth, that B is a private sample of the real size n, and that A is the public sample:

- the map is A's; the start is theta_all + r (theta_A - theta_all), r^2 = (|A| - d) / |B| with d = tr H (H + s)^-1: then
  its error has the size of that of theta_all itself, which is what the real run starts with (d/(m - d) is the error of
  a least-squares fit to m rows, and errors of nested fits differ by orthogonal parts);
- the gradient is that of B's loss less its value at theta_all, so that the truth is stationary, as for large n; the
  noise is the real one, for the real n, budget, adjacency and number of steps;
- few rows make a Hessian with a few large eigenvalues, in which every descent looks fast: B's loss and gradient are
  mixed with those of a quadratic, by the weight of Ledoit and Wolf (see PublicSample.smoothed);
- residuals of a squared loss are scaled up by sqrt(m / (m - d)), what the fit to m rows has taken from them;
- the score is the Bregman divergence of that loss from theta_all, an excess loss free of label noise.

The candidate with the least mean score wins. Private data is never touched: the noise of a plan, and with it the
promise, follows from the chosen public numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._progress import progress
from dplangevin.errors import InvalidParameter
from dplangevin.families.mirror_descent._public_rounds import PublicSetting, Round
from dplangevin.families.mirror_descent.mirror_map import MirrorMap
from dplangevin.families.mirror_descent.public_sample import PublicSample
from dplangevin.families.mirror_descent.schedule import Mode, PublicMirrorSchedule
from dplangevin.families.mirror_descent.theorem import mirror_noise
from dplangevin.privacy.plan import Plan
from dplangevin.problem import Problem

METHODS = ("mirror", "mirror-loss", "mix", "warm-start", "public-only")
MODES: dict[str, Mode] = {"mix": "mix", "warm-start": "gradient"}
START_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # in units of the mean eigenvalue of the public Hessian
MAP_RIDGES = (1e-2, 1e-1, 1.0, 10.0, 100.0)
MIRROR_STEPS, MIRROR_SIZES = (5, 10, 20, 40, 80), (0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0)
GRADIENT_STEPS, GRADIENT_SIZES = (10, 30, 100, 400), (0.1, 0.3, 1.0, 1.8)
MIX_STEPS, MIXINGS = (10, 30, 100), (0.5, 0.9)
FOLDS, USED, LARGE, LARGE_USED = 10, 5, 200, 2  # tenths held out: five, or two in many dimensions
REPEATS = 4  # draws of the noise in each round; one in many dimensions, where a draw says more
LEAST_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What public data chose for a method: a plan, and the map it is to run with.

    Parameters
    ----------
    method : one of METHODS. plan : problem, schedule and guarantee. mirror : of the whole public sample.
    excess : expected excess of the mean loss after the run, on held-out public data. An estimate, not a bound.
    deviation : standard error of it over the folds.
    start_ridge : of the public minimiser. n_public : number of public rows.
    """

    method: str
    plan: Plan
    mirror: MirrorMap = field(repr=False, compare=False)
    excess: float
    deviation: float
    start_ridge: float
    n_public: int


class PublicTuner:
    """Simulated private runs on a public sample.

    Parameters
    ----------
    X, y : the public sample. problems : the private problem, once for each clip to try; all else must be equal.
    epsilon, delta : the promise of the real run. seed : of folds and simulated noise; it has no part in privacy.

    Examples
    --------
    >>> from dplangevin.problem import Clipped, DataBounds, Squared
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 3))
    >>> y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(200), -1, 1)
    >>> problem = Problem(loss=Clipped(Squared(), 0.25), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n=5000,
    ...                   n_features=3)
    >>> tuned = PublicTuner(X, y, [problem], epsilon=1.0, delta=1e-6).tune("mirror")
    >>> tuned.plan.schedule.mode, bool(tuned.plan.guarantee.epsilon() <= 1.0)
    ('mirror', True)
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        problems: Sequence[Problem],
        *,
        epsilon: float,
        delta: float,
        seed: int = 0,
        secure: bool = False,
    ) -> None:
        self.problems = tuple(problems)
        self.epsilon, self.delta = _check.positive("epsilon", epsilon), _check.open_unit("delta", delta)
        self.sample = PublicSample(X, y, self.problems[0])
        if self.sample.size < LEAST_ROWS:
            raise InvalidParameter(
                f"{self.sample.size} public rows are too few to hold any out; give at least {LEAST_ROWS}, or run "
                "PublicMirrorDescent with a schedule of your own."
            )
        self._seed, self._secure = seed, secure
        self._tuned: dict[str, Tuned] = {}
        self._unit = self.sample.mean_curvature()
        self._noise = [mirror_noise(p.constants, 1, epsilon=epsilon, delta=delta) for p in self.problems]
        large = self.sample.problem.dimension > LARGE
        self.repeats = 1 if large else REPEATS
        order = np.random.default_rng([seed, 1]).permutation(self.sample.size)
        self._folds = np.array_split(order, FOLDS)[: LARGE_USED if large else USED]
        self.start_ridge = self._best_start()

    def tune(self, method: str = "mirror") -> Tuned:
        """The best setting of a method, as a plan for the private data.

        "mirror-loss" gets the setting of "mirror", the quadratic model of its map, and runs with the exact one.
        """
        _check.choice("method", method, METHODS)
        if method not in self._tuned:
            self._tuned[method] = self._tune(method)
        return self._tuned[method]

    def _tune(self, method: str) -> Tuned:
        if method == "mirror-loss":
            model = self.tune("mirror")
            mirror = self.sample.mirror_map(
                ridge=model.mirror.ridge, start_ridge=self.start_ridge, exact=True
            )
            return replace(model, method=method, mirror=mirror)
        scores: dict[PublicSetting, list[float]] = {}
        rounds = self._rounds
        for number, fold in progress(enumerate(rounds), "tuning on public rows", total=len(rounds)):
            if method == "public-only":
                scores.setdefault(PublicSetting(), []).append(fold.start_excess())
                continue
            seed = [self._seed, 2, number]  # the same noise for every method and setting
            runs = fold.scores(
                MODES.get(method, "mirror"),
                self._candidates(method),
                self.problems,
                self._noise,
                self.repeats,
                seed,
            )
            mine: dict[PublicSetting, list[float]] = {}
            for candidate, score in runs:
                mine.setdefault(candidate, []).append(score)
            for candidate, repeated in mine.items():
                scores.setdefault(candidate, []).append(_mean(repeated))
        best = min(scores, key=lambda candidate: _mean(scores[candidate]))
        found = scores[best]
        spread = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else math.nan
        mirror = self.sample.mirror_map(
            ridge=best.ridge or self._unit, start_ridge=self.start_ridge, exact=False
        )
        return Tuned(
            method=method,
            plan=self._plan(method, best),
            mirror=mirror,
            excess=_mean(found),
            deviation=spread,
            start_ridge=self.start_ridge,
            n_public=self.sample.size,
        )

    def compare(self, methods: Sequence[str] = ("public-only", "warm-start", "mirror")) -> dict[str, Tuned]:
        """Each method at its best, on the same held-out public rows with the same simulated noise."""
        return {method: self.tune(method) for method in methods}

    def _candidates(self, method: str) -> Iterator[PublicSetting]:
        """The settings to try; gradient steps are in units of the largest eigenvalue of the public Hessian."""
        mirror = method == "mirror"
        ridges = [share * self._unit for share in MAP_RIDGES] if mirror else [0.0]
        sizes = MIRROR_SIZES if mirror else tuple(size / self._largest() for size in GRADIENT_SIZES)
        steps = MIRROR_STEPS if mirror else MIX_STEPS if method == "mix" else GRADIENT_STEPS
        mixings: tuple[float | None, ...] = MIXINGS if method == "mix" else (None,)
        for ridge, problem, mixing in itertools.product(ridges, range(len(self.problems)), mixings):
            for n_steps, size, average in itertools.product(steps, sizes, (False, True)):
                yield PublicSetting(
                    problem=problem,
                    ridge=ridge,
                    n_steps=n_steps,
                    step_size=size,
                    mixing=mixing,
                    average=average,
                )

    def _plan(self, method: str, best: PublicSetting) -> Plan:
        problem, noise = (
            self.problems[best.problem],
            self._noise[best.problem] * math.sqrt(max(best.n_steps, 1)),
        )
        if self._secure:
            noise = mirror_noise(
                problem.constants, best.n_steps, epsilon=self.epsilon, delta=self.delta, secure=True
            )
        schedule = PublicMirrorSchedule(
            step_size=best.step_size,
            noise_std=noise,
            secure=self._secure,
            n_steps=best.n_steps,
            mode=MODES.get(method, "mirror"),
            mixing=best.mixing,
            release="average" if best.average else "last-iterate",
            average_from=best.n_steps // 2 if best.average else 0,
        )
        return Plan(problem=problem, schedule=schedule, delta=self.delta)

    def _best_start(self) -> float:
        """The start's ridge with the least held-out loss of the public minimiser."""
        totals = dict.fromkeys(START_RIDGES, 0.0)
        for rows in self._folds:
            rest = self.sample.part(np.setdiff1d(np.arange(self.sample.size), rows))
            held = self.sample.part(rows)
            for share in START_RIDGES:
                totals[share] += held.mean_loss(rest.minimiser(share * self._unit))
        return min(totals, key=lambda share: totals[share]) * self._unit

    @cached_property
    def _truth(self) -> Floats:
        return self.sample.minimiser(self.start_ridge)

    @cached_property
    def _eigenvalues(self) -> Floats:
        return np.asarray(np.linalg.eigvalsh(self.sample.hessian(self._truth)))

    def _largest(self) -> float:
        return float(self._eigenvalues[-1])

    @cached_property
    def _rounds(self) -> list[Round]:
        taken = float(np.sum(self._eigenvalues / (self._eigenvalues + self.start_ridge))) / self.sample.size
        widen = 1 / math.sqrt(max(1 - taken, 0.05))
        return [Round(self.sample, rows, self._truth, self.start_ridge, widen) for rows in self._folds]


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
