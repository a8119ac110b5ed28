"""One round of the public tuner: simulated private runs on one cut of the public sample (see public_tuner)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.dataset import ArrayDataset
from dplangevin.families.mirror_descent.mechanism import advance
from dplangevin.families.mirror_descent.mirror_map import MirrorMap, QuadraticMap
from dplangevin.families.mirror_descent.public_sample import PublicSample
from dplangevin.families.mirror_descent.schedule import Mode
from dplangevin.problem import Problem


@dataclass(frozen=True, kw_only=True)
class PublicSetting:
    """One setting: problem number (its clip), ridge of the map, steps, step size, mixing, and whether to average."""

    problem: int = 0
    ridge: float = 0.0
    n_steps: int = 0
    step_size: float = 1.0
    mixing: float | None = None
    average: bool = False


class Round:
    """One cut of the public sample into a pretended public part A and a pretended private part B."""

    def __init__(
        self, sample: PublicSample, rows: NDArray[np.intp], truth: Floats, start_ridge: float, widen: float
    ) -> None:
        self.known = sample.part(np.setdiff1d(np.arange(sample.size), rows))
        held = sample.part(rows)
        self.held = held.widened(truth, widen) if held.quadratic else held
        self.truth, self.start_ridge = truth, start_ridge
        fitted = self.known.minimiser(start_ridge)
        self.hessian = self.known.hessian(fitted)
        eigenvalues = np.linalg.eigvalsh(self.hessian)
        freedom = float(np.sum(eigenvalues / (eigenvalues + start_ridge)))
        spare = max(self.known.size - freedom, 0.05 * self.known.size)
        self.start = sample.problem.constraint.project(
            truth + math.sqrt(spare / self.held.size) * (fitted - truth)
        )
        self.pull = self.held.mean_gradient(truth)
        self.smooth = self.held.smoothed(truth)

    def scores(
        self,
        mode: Mode,
        candidates: Iterable[PublicSetting],
        problems: Sequence[Problem],
        noises: Sequence[float],
        repeats: int,
        seed: Sequence[int],
    ) -> Iterator[tuple[PublicSetting, float]]:
        """(setting, excess loss) of simulated private runs, each setting `repeats` times.

        noises are those of one step, for each problem; T steps have sqrt(T) times as much. Settings that differ only in
        steps and sizes run together.
        """
        grouped = itertools.groupby(candidates, key=lambda c: (c.ridge, c.problem, c.mixing))
        mirror, last = None, math.nan
        for (ridge, number, mixing), group in grouped:
            if mirror is None or ridge != last:
                last, added = ridge, ridge or self.start_ridge
                constraint = self.known.problem.constraint
                mirror = QuadraticMap(self.hessian, start=self.start, constraint=constraint, ridge=added)
            settings = [candidate for candidate in group if not candidate.average] * repeats
            scales = noises[number] * np.sqrt([candidate.n_steps for candidate in settings])
            run = Simulation(mirror=mirror, mode=mode, mixing=mixing or 1.0, noises=scales)
            gradient = self._gradient(problems[number])
            runs = run(self.start, gradient, settings, repeats, np.random.default_rng(seed))
            for average, thetas in zip((False, True), runs, strict=True):
                for candidate, score in zip(settings, self._excess(thetas), strict=True):
                    yield replace(candidate, average=average), float(score)

    def start_excess(self) -> float:
        """The excess loss of the start: public data alone."""
        return float(self._excess(self.start[:, None])[0])

    def _gradient(self, problem: Problem) -> Callable[[Floats], Floats]:
        """The pretended private mean gradient at the columns of theta, zero at the truth but for the clip's bias."""
        data, truth = self.held.with_loss(problem.loss), self.truth[:, None]
        at_truth = _mean_gradient(data, truth)
        pull = at_truth if self.held.quadratic else self.pull[:, None]
        weight = self.smooth.weight

        def gradient(theta: Floats) -> Floats:
            shift = theta - truth
            rows = _mean_gradient(data, theta) - pull
            smooth = self.held.clip_shares(problem.loss, theta) * self.smooth.product(shift)
            return (1 - weight) * rows + weight * smooth + problem.ridge * shift

        return gradient

    def _excess(self, thetas: Floats) -> Floats:
        """The Bregman divergence from the truth; infinite for runs that left the numbers."""
        shift = thetas - self.truth[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.held.mean_losses(thetas) - self.held.mean_losses(self.truth[:, None])
            smooth = (shift * self.smooth.product(shift)).sum(axis=0) / 2
            weight = self.smooth.weight
            excess = (1 - weight) * (values - self.pull @ shift) + weight * smooth
        return np.where(np.isfinite(excess), excess, np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """Runs from one start with the noise of the real run, a column for each setting."""

    mirror: MirrorMap
    mode: Mode
    mixing: float
    noises: Floats

    def __call__(
        self,
        start: Floats,
        gradient: Callable[[Floats], Floats],
        settings: list[PublicSetting],
        repeats: int,
        rng: np.random.Generator,
    ) -> tuple[Floats, Floats]:
        """Last iterates, and means of the second halves; the settings are listed `repeats` times over."""
        steps = np.array([candidate.n_steps for candidate in settings])
        sizes = np.array([candidate.step_size for candidate in settings])
        theta = np.repeat(start[:, None], len(settings), axis=1)
        total = np.zeros_like(theta)
        draw = np.repeat(np.arange(repeats), len(settings) // repeats)  # settings share the noise of a repeat
        for t in range(int(steps.max())):
            live = np.flatnonzero(steps > t)
            now = theta[:, live]
            noise = rng.standard_normal((len(now), repeats))[:, draw[live]]
            noisy = gradient(now) + self.noises[live] * noise
            with np.errstate(over="ignore", invalid="ignore"):
                theta[:, live] = advance(self.mirror, self.mode, now, noisy, sizes[live], self.mixing)
            late = live[t >= steps[live] // 2]
            total[:, late] += theta[:, late]
        return theta, total / (steps - steps // 2)


def _mean_gradient(data: ArrayDataset, theta: Floats) -> Floats:
    return data.gradient_sum(data.problem.loss, theta) / data.n_samples
