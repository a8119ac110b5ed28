"""Tuning of mirror descent (steps, clips, ridges) on public data alone, by simulating private runs on it.

In each round the public sample is split into A and B. The simulation takes theta_all, the minimiser of the whole
sample, as the truth, B as a private sample of the real size n, and A as the public sample:

- the map is that of A; the start is theta_all + r (theta_A - theta_all), r^2 = (|A| - d) / |B| with
  d = tr H (H + s)^-1: then its error has the size of that of theta_all itself, which is what the real run starts with
  (d/(m - d) is the error of a least-squares fit to m rows, and errors of nested fits differ by orthogonal parts);
- the gradient is that of B's loss less its value at theta_all, so that the truth is stationary, as for large n; the
  noise is the real one, for the real n, budget, adjacency and number of steps;
- the Hessian of few rows has a few large eigenvalues, which makes every descent look fast: B's loss and gradient are
  mixed with those of a quadratic, by the weight of Ledoit and Wolf (see `PublicSample.fit_shrinkage`);
- residuals of a squared loss are scaled up by sqrt(m / (m - d)), to undo their reduction by the fit to m rows;
- the score is the Bregman divergence of that loss from theta_all, an excess loss free of label noise.

The setting with the least mean score is chosen. No private data is read: the noise of a plan, and with it the
guarantee, follows from the chosen public numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.accounting.plan import Plan
from dplangevin.data.dataset import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mirror_descent.mechanism import take_step
from dplangevin.mechanisms.mirror_descent.mirror_map import MirrorMap, PublicSample, QuadraticMap
from dplangevin.mechanisms.mirror_descent.spec import PublicMirrorSpec, StepMode, calibrate_mirror_noise
from dplangevin.problem import Problem


@dataclass(frozen=True, kw_only=True)
class TuningSetting:
    """A candidate setting: index of the problem (its clip), ridge of the map, steps, step size, mixing, averaging."""

    problem: int = 0
    ridge: float = 0.0
    n_steps: int = 0
    step_size: float = 1.0
    mixing: float | None = None
    average: bool = False


class TuningRound:
    """One split of the public sample into a simulated public part A and a simulated private part B."""

    def __init__(
        self,
        sample: PublicSample,
        rows: NDArray[np.intp],
        truth: Floats,
        start_ridge: float,
        residual_factor: float,
    ) -> None:
        self.public_part = sample.select_rows(np.setdiff1d(np.arange(sample.size), rows))
        private_part = sample.select_rows(rows)
        self.private_part = (
            private_part.scale_residuals(truth, residual_factor)
            if private_part.is_quadratic
            else private_part
        )
        self.truth, self.start_ridge = truth, start_ridge
        fitted = self.public_part.fit_minimizer(start_ridge)
        self.hessian = self.public_part.hessian(fitted)
        eigenvalues = np.linalg.eigvalsh(self.hessian)
        freedom = float(np.sum(eigenvalues / (eigenvalues + start_ridge)))
        residual_freedom = max(self.public_part.size - freedom, 0.05 * self.public_part.size)
        self.start = sample.problem.constraint.project(
            truth + math.sqrt(residual_freedom / self.private_part.size) * (fitted - truth)
        )
        self.truth_gradient = self.private_part.mean_gradient(truth)
        self.shrinkage = self.private_part.fit_shrinkage(truth)

    def score_settings(
        self,
        mode: StepMode,
        candidates: Iterable[TuningSetting],
        problems: Sequence[Problem],
        noises: Sequence[float],
        n_repeats: int,
        seed: Sequence[int],
    ) -> Iterator[tuple[TuningSetting, float]]:
        """Iterate over (setting, excess loss) of simulated private runs, each setting `n_repeats` times.

        `noises` holds the noise of a one-step run for each problem; T steps have sqrt(T) times as much. Settings that
        differ only in steps and step sizes run together.
        """
        grouped = itertools.groupby(candidates, key=lambda c: (c.ridge, c.problem, c.mixing))
        mirror, last = None, math.nan
        for (ridge, number, mixing), group in grouped:
            if mirror is None or ridge != last:
                last, added = ridge, ridge or self.start_ridge
                constraint = self.public_part.problem.constraint
                mirror = QuadraticMap(self.hessian, start=self.start, constraint=constraint, ridge=added)
            settings = [candidate for candidate in group if not candidate.average] * n_repeats
            scales = noises[number] * np.sqrt([candidate.n_steps for candidate in settings])
            run = Simulation(mirror=mirror, mode=mode, mixing=mixing or 1.0, noises=scales)
            gradient = self._simulated_gradient(problems[number])
            runs = run(self.start, gradient, settings, n_repeats, np.random.default_rng(seed))
            for average, thetas in zip((False, True), runs, strict=True):
                for candidate, score in zip(settings, self._excess_loss(thetas), strict=True):
                    yield replace(candidate, average=average), float(score)

    def start_excess(self) -> float:
        """Return the excess loss of the start, which uses public data alone."""
        return float(self._excess_loss(self.start[:, None])[0])

    def _simulated_gradient(self, problem: Problem) -> Callable[[Floats], Floats]:
        """Return the simulated private mean gradient, zero at the truth up to the bias of clipping."""
        data, truth = self.private_part.with_loss(problem.loss), self.truth[:, None]
        at_truth = _mean_gradient(data, truth)
        offset = at_truth if self.private_part.is_quadratic else self.truth_gradient[:, None]
        weight = self.shrinkage.weight

        def gradient(theta: Floats) -> Floats:
            shift = theta - truth
            rows = _mean_gradient(data, theta) - offset
            smooth = self.private_part.unclipped_fractions(problem.loss, theta) * self.shrinkage.multiply(
                shift
            )
            return (1 - weight) * rows + weight * smooth + problem.ridge * shift

        return gradient

    def _excess_loss(self, thetas: Floats) -> Floats:
        """Return the Bregman divergence from the truth; infinite for runs that overflowed."""
        shift = thetas - self.truth[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.private_part.mean_losses(thetas) - self.private_part.mean_losses(
                self.truth[:, None]
            )
            smooth = (shift * self.shrinkage.multiply(shift)).sum(axis=0) / 2
            weight = self.shrinkage.weight
            excess = (1 - weight) * (values - self.truth_gradient @ shift) + weight * smooth
        return np.where(np.isfinite(excess), excess, np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """Simulated runs from one start with the noise of the real run, a column for each setting."""

    mirror: MirrorMap
    mode: StepMode
    mixing: float
    noises: Floats

    def __call__(
        self,
        start: Floats,
        gradient: Callable[[Floats], Floats],
        settings: list[TuningSetting],
        n_repeats: int,
        rng: np.random.Generator,
    ) -> tuple[Floats, Floats]:
        """Return the last iterates, and the means of the second halves; `settings` is repeated `n_repeats` times."""
        steps = np.array([candidate.n_steps for candidate in settings])
        sizes = np.array([candidate.step_size for candidate in settings])
        theta = np.repeat(start[:, None], len(settings), axis=1)
        total = np.zeros_like(theta)
        # settings share the noise of a repeat
        repeat_index = np.repeat(np.arange(n_repeats), len(settings) // n_repeats)
        for t in range(int(steps.max())):
            active = np.flatnonzero(steps > t)
            now = theta[:, active]
            noise = rng.standard_normal((len(now), n_repeats))[:, repeat_index[active]]
            noisy = gradient(now) + self.noises[active] * noise
            with np.errstate(over="ignore", invalid="ignore"):
                theta[:, active] = take_step(self.mirror, self.mode, now, noisy, sizes[active], self.mixing)
            averaged = active[t >= steps[active] // 2]
            total[:, averaged] += theta[:, averaged]
        return theta, total / (steps - steps // 2)


def _mean_gradient(data: ArrayDataset, theta: Floats) -> Floats:
    return data.gradient_sum(data.problem.loss, theta) / data.n_samples


TUNING_METHODS = ("mirror", "mirror-loss", "mix", "warm-start", "public-only")
MODE_OF_METHOD: dict[str, StepMode] = {"mix": "mix", "warm-start": "gradient"}
START_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # in units of the mean eigenvalue of the public Hessian
MAP_RIDGES = (1e-2, 1e-1, 1.0, 10.0, 100.0)
MIRROR_STEP_COUNTS, MIRROR_STEP_SIZES = (5, 10, 20, 40, 80), (0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0)
GRADIENT_STEP_COUNTS, GRADIENT_STEP_SIZES = (10, 30, 100, 400), (0.1, 0.3, 1.0, 1.8)
MIX_STEP_COUNTS, MIXINGS = (10, 30, 100), (0.5, 0.9)
N_FOLDS = 10
N_FOLDS_USED = 5  # folds that are held out in turn
N_FOLDS_USED_LARGE = 2  # the same above MIN_LARGE_DIMENSION, where each takes longer
MIN_LARGE_DIMENSION = 200
N_NOISE_REPEATS = 4  # noise draws per round; one in many dimensions, where a single draw suffices
MIN_PUBLIC_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """The tuned plan of a method, and the mirror map to run it with.

    Parameters
    ----------
    method : one of TUNING_METHODS.
    plan : problem, spec and guarantee.
    mirror : the mirror map of the whole public sample.
    excess : expected excess of the mean loss after the run, on held-out public data. An estimate, not a bound.
    deviation : standard error of `excess` over the folds.
    start_ridge : ridge of the public minimiser.
    n_public : number of public rows. n_public_enough : from about how many on they are a better start than 0.
    """

    method: str
    plan: Plan
    mirror: MirrorMap = field(repr=False, compare=False)
    excess: float
    deviation: float
    start_ridge: float
    n_public: int
    n_public_enough: float


class PublicTuner:
    """A tuner that simulates private runs on a public sample.

    Parameters
    ----------
    X, y : the public sample.
    problems : the private problem, once for each clip to try; all else must be equal.
    epsilon, delta : the guarantee of the real run.
    seed : seed of folds and simulated noise; privacy does not depend on it.
    secure : whether the real run uses exact noise on an integer grid.

    Examples
    --------
    >>> from dplangevin.problem import Clipped, DataBounds, Squared
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 3))
    >>> y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(200), -1, 1)
    >>> problem = Problem(loss=Clipped(Squared(), 0.25), bounds=DataBounds(data_norm=2.0, target=(-1, 1)), n=5000,
    ...                   n_features=3)
    >>> tuned = PublicTuner(X, y, [problem], epsilon=1.0, delta=1e-6).tune("mirror")
    >>> tuned.plan.spec.mode, bool(tuned.plan.guarantee.epsilon() <= 1.0)
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
        self.epsilon, self.delta = (
            _check.check_positive("epsilon", epsilon),
            _check.check_open_unit("delta", delta),
        )
        self.sample = PublicSample(X, y, self.problems[0])
        if self.sample.size < MIN_PUBLIC_ROWS:
            raise InvalidParameter(
                f"{self.sample.size} public rows are too few to hold any out; give at least {MIN_PUBLIC_ROWS}, or run "
                "PublicMirrorDescent with a spec of your own."
            )
        self._seed, self._secure = seed, secure
        self._results: dict[str, TuningResult] = {}
        self._ridge_unit = self.sample.mean_curvature()
        self._noise = [
            calibrate_mirror_noise(p.constants, 1, epsilon=epsilon, delta=delta) for p in self.problems
        ]
        large = self.sample.problem.dimension > MIN_LARGE_DIMENSION
        self.n_repeats = 1 if large else N_NOISE_REPEATS
        order = np.random.default_rng([seed, 1]).permutation(self.sample.size)
        self._folds = np.array_split(order, N_FOLDS)[: N_FOLDS_USED_LARGE if large else N_FOLDS_USED]
        self.start_ridge = self._choose_start_ridge()
        self._n_public_enough = self.sample.count_enough_rows(self.start_ridge)

    def tune(self, method: str = "mirror") -> TuningResult:
        """Return the best setting of a method, as a plan for the private data.

        "mirror-loss" gets the setting of "mirror", the quadratic model of its map, and runs with the exact one.
        """
        _check.check_choice("method", method, TUNING_METHODS)
        if method not in self._results:
            self._results[method] = self._tune_method(method)
        return self._results[method]

    def _tune_method(self, method: str) -> TuningResult:
        if method == "mirror-loss":
            model = self.tune("mirror")
            mirror = self.sample.make_mirror_map(
                ridge=model.mirror.ridge, start_ridge=self.start_ridge, exact=True
            )
            return replace(model, method=method, mirror=mirror)
        scores: dict[TuningSetting, list[float]] = {}
        rounds = self._rounds
        for number, fold in iterate_with_progress(
            enumerate(rounds), "tuning on public rows", total=len(rounds)
        ):
            if method == "public-only":
                scores.setdefault(TuningSetting(), []).append(fold.start_excess())
                continue
            seed = [self._seed, 2, number]  # the same noise for every method and setting
            runs = fold.score_settings(
                MODE_OF_METHOD.get(method, "mirror"),
                self._candidate_settings(method),
                self.problems,
                self._noise,
                self.n_repeats,
                seed,
            )
            round_scores: dict[TuningSetting, list[float]] = {}
            for candidate, score in runs:
                round_scores.setdefault(candidate, []).append(score)
            for candidate, repeated in round_scores.items():
                scores.setdefault(candidate, []).append(_mean(repeated))
        best = min(scores, key=lambda candidate: _mean(scores[candidate]))
        fold_scores = scores[best]
        spread = (
            float(np.std(fold_scores, ddof=1)) / math.sqrt(len(fold_scores))
            if len(fold_scores) > 1
            else math.nan
        )
        mirror = self.sample.make_mirror_map(
            ridge=best.ridge or self._ridge_unit, start_ridge=self.start_ridge, exact=False
        )
        return TuningResult(
            method=method,
            plan=self._make_plan(method, best),
            mirror=mirror,
            excess=_mean(fold_scores),
            deviation=spread,
            start_ridge=self.start_ridge,
            n_public=self.sample.size,
            n_public_enough=self._n_public_enough,
        )

    def compare_methods(
        self, methods: Sequence[str] = ("public-only", "warm-start", "mirror")
    ) -> dict[str, TuningResult]:
        """Tune each method, on the same held-out public rows with the same simulated noise."""
        return {method: self.tune(method) for method in methods}

    def _candidate_settings(self, method: str) -> Iterator[TuningSetting]:
        """Iterate over the settings to try; gradient steps are over the largest eigenvalue of the public Hessian."""
        mirror = method == "mirror"
        ridges = [fraction * self._ridge_unit for fraction in MAP_RIDGES] if mirror else [0.0]
        sizes = (
            MIRROR_STEP_SIZES
            if mirror
            else tuple(size / self._max_eigenvalue() for size in GRADIENT_STEP_SIZES)
        )
        steps = MIRROR_STEP_COUNTS if mirror else MIX_STEP_COUNTS if method == "mix" else GRADIENT_STEP_COUNTS
        mixings: tuple[float | None, ...] = MIXINGS if method == "mix" else (None,)
        for ridge, problem, mixing in itertools.product(ridges, range(len(self.problems)), mixings):
            for n_steps, size, average in itertools.product(steps, sizes, (False, True)):
                yield TuningSetting(
                    problem=problem,
                    ridge=ridge,
                    n_steps=n_steps,
                    step_size=size,
                    mixing=mixing,
                    average=average,
                )

    def _make_plan(self, method: str, best: TuningSetting) -> Plan:
        problem, noise = (
            self.problems[best.problem],
            self._noise[best.problem] * math.sqrt(max(best.n_steps, 1)),
        )
        spec = PublicMirrorSpec(
            step_size=best.step_size,
            noise_std=noise,
            secure=self._secure,
            n_steps=best.n_steps,
            mode=MODE_OF_METHOD.get(method, "mirror"),
            mixing=best.mixing,
            release="average" if best.average else "last-iterate",
            average_from=best.n_steps // 2 if best.average else 0,
        )
        return Plan(problem=problem, spec=spec, delta=self.delta)

    def _choose_start_ridge(self) -> float:
        """Return the start's ridge with the least held-out loss of the public minimiser."""
        totals = dict.fromkeys(START_RIDGES, 0.0)
        for rows in self._folds:
            rest = self.sample.select_rows(np.setdiff1d(np.arange(self.sample.size), rows))
            held_out = self.sample.select_rows(rows)
            for fraction in START_RIDGES:
                totals[fraction] += held_out.mean_loss(rest.fit_minimizer(fraction * self._ridge_unit))
        return min(totals, key=lambda fraction: totals[fraction]) * self._ridge_unit

    @cached_property
    def _reference_minimizer(self) -> Floats:
        return self.sample.fit_minimizer(self.start_ridge)

    @cached_property
    def _eigenvalues(self) -> Floats:
        return np.asarray(np.linalg.eigvalsh(self.sample.hessian(self._reference_minimizer)))

    def _max_eigenvalue(self) -> float:
        return float(self._eigenvalues[-1])

    @cached_property
    def _rounds(self) -> list[TuningRound]:
        freedom_fraction = (
            float(np.sum(self._eigenvalues / (self._eigenvalues + self.start_ridge))) / self.sample.size
        )
        residual_factor = 1 / math.sqrt(max(1 - freedom_fraction, 0.05))
        return [
            TuningRound(self.sample, rows, self._reference_minimizer, self.start_ridge, residual_factor)
            for rows in self._folds
        ]


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
