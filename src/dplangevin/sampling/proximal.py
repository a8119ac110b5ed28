"""The proximal sampler with an exact oracle: no discretisation bias, and a rate with explicit constants.

    forward:   y ~ N(x, step_size I)
    backward:  x' ~ density proportional to exp(-V(x') - |x' - y|^2 / (2 step_size)) on the support

Both are conditionals of one joint law, so exp(-V) is stationary whatever the step size. The backward draw is exact:
for any anchor a of the support, V(x) >= V(a) + <g, x - a> + m |x - a|^2 / 2, so an isotropic Gaussian on the support
is an envelope. `accounting.proximal_certificate` bounds the distance between the chain's output and exp(-V).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.sampling.log_concave import check_envelope
from dplangevin.sampling.potential import CountingPotential, Potential, SamplerOutput
from dplangevin.sampling.supports import ConvexSupport

Columns = NDArray[np.intp]
_MAX_BLOCK = 64


class BackwardOracle(ABC):
    """Exact draws of the backward law, one chain per column, by rejection in blocks of proposals.

    Envelopes and block sizes depend on the past only, so they never bias a draw. A subclass places envelopes
    (`_place_envelopes`, `_improve_envelopes`) and draws proposals from them (`_sample_proposals`).
    """

    def __init__(self, support: ConvexSupport, step_size: float) -> None:
        self.support, self.step_size = support, step_size
        self.n_proposals = self.n_accepted = 0

    def sample(self, y: Floats, rng: np.random.Generator) -> Floats:
        """Return one exact draw of the backward law for each column of y."""
        result, pending = np.empty_like(y), np.arange(y.shape[1])
        self._place_envelopes(y, pending)
        while True:
            proposals, accepted = self._propose_block(y, pending, rng)
            result[:, pending[accepted]] = proposals[:, accepted]
            pending = pending[~accepted]
            if pending.size == 0:
                return result
            self._improve_envelopes(y, pending)

    @abstractmethod
    def _place_envelopes(self, y: Floats, pending: Columns) -> None:
        """Place the envelopes of all chains."""

    @abstractmethod
    def _improve_envelopes(self, y: Floats, pending: Columns) -> None:
        """Improve the envelopes of the chains whose proposals were all rejected."""

    @abstractmethod
    def _sample_proposals(
        self, y: Floats, pending: Columns, columns: Columns, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Draw one point per column from its chain's envelope; return it with the potential minus the envelope."""

    def _propose_block(
        self, y: Floats, pending: Columns, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Draw a block of proposals per pending chain; return the first accepted one of each, and which have one."""
        block = self._block_size(pending.size)
        columns = np.repeat(pending, block)
        x, above = self._sample_proposals(y, pending, columns, rng)
        mask = (rng.standard_exponential(columns.size) >= above).reshape(pending.size, block)
        first = np.argmax(mask, axis=1)
        accepted = mask[np.arange(pending.size), first]
        self.n_proposals += int(np.sum(np.where(accepted, first + 1, block)))
        self.n_accepted += int(np.sum(accepted))
        return x.reshape(x.shape[0], pending.size, block)[:, np.arange(pending.size), first], accepted

    def _block_size(self, chains: int) -> int:
        """Return enough proposals for one acceptance in a single matrix product, for few chains."""
        if chains * 4 > _MAX_BLOCK:
            return 1
        rate = (self.n_accepted + 1) / (self.n_proposals + 2)
        return int(min(max(1, math.ceil(1.2 / rate)), _MAX_BLOCK // chains))


def check_start(start: Floats, support: ConvexSupport) -> Floats:
    """Return a copy of the starting points, one per column, after checking that all lie in the support."""
    x = np.array(start, float)
    if x.ndim != 2 or x.shape[0] != support.dimension or not np.all(support.contains(x)):
        raise InvalidParameter(
            f"start must be [{support.dimension}, k] points inside the support; project them first."
        )
    return x


ProgressCallback = Callable[[int, int], None]


def run_proximal_chain(
    potential: Potential,
    support: ConvexSupport,
    start: Floats,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
    progress: ProgressCallback | None = None,
) -> SamplerOutput:
    """Run one independent chain per column of start for n_steps and return the last points.

    The potential must be convex on the support with its stated strong_convexity. Each step draws proposals until one
    is accepted: their number depends on the data, the number of steps does not.
    """
    step_size, n_steps = (
        _check.check_positive("step_size", step_size),
        _check.check_count("n_steps", n_steps),
    )
    x = check_start(start, support)
    counted = CountingPotential(potential)
    oracle = _TangentOracle(counted, support, step_size, x)
    done: int
    for done in _progress.iterate_with_progress(range(1, n_steps + 1), "proximal steps"):
        y = x + math.sqrt(step_size) * rng.standard_normal(x.shape)
        x = oracle.sample(y, rng)
        if progress is not None:
            progress(done, n_steps)
    return SamplerOutput(theta=x, evaluations=counted.count, n_proposals=oracle.n_proposals)


class _TangentOracle(BackwardOracle):
    """Envelopes from the tangent at an anchor. Anchors come from the past only, so they never bias a draw."""

    def __init__(
        self, potential: CountingPotential, support: ConvexSupport, step_size: float, start: Floats
    ) -> None:
        super().__init__(support, step_size)
        self.potential = potential
        self.curvature = potential.strong_convexity
        self.precision = 1 / step_size + self.curvature
        self.anchor = start
        self.gradient = potential.gradient(start)
        self.height = np.empty(start.shape[1])

    def _place_envelopes(self, y: Floats, pending: Columns) -> None:
        # The last step's gradient usually places the anchor near the mode, so one gradient per step suffices.
        guess = y / self.step_size - self.gradient + self.curvature * self.anchor
        self.anchor = self.support.project(guess / self.precision)
        self.gradient = self.potential.gradient(self.anchor)
        self.height = np.full(y.shape[1], np.nan)
        self._refine_anchors(y, pending, allowed=10.0, n_steps=20)

    def _improve_envelopes(self, y: Floats, pending: Columns) -> None:
        self._refine_anchors(y, pending, allowed=0.5, n_steps=4)

    def _refine_anchors(self, y: Floats, columns: Columns, allowed: float, n_steps: int) -> None:
        """Make proximal gradient steps for the anchors that cost more than `allowed` in log acceptance."""
        if math.isinf(self.potential.smoothness):
            return
        step = 1 / (self.potential.smoothness + 1 / self.step_size)
        for _ in range(n_steps):
            anchor = self.anchor[:, columns]
            slope = self.gradient[:, columns] + (anchor - y[:, columns]) / self.step_size
            moved = self.support.project(anchor - step * slope)
            offset = np.linalg.norm(moved - anchor, axis=0) / (step * self.precision)
            far = self.potential.smoothness * offset**2 / 2 > allowed
            if not np.any(far):
                return
            columns = columns[far]
            self.anchor[:, columns] = moved[:, far]
            self.gradient[:, columns] = self.potential.gradient(moved[:, far])
            self.height[columns] = np.nan

    def _sample_proposals(
        self, y: Floats, pending: Columns, columns: Columns, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        anchor, gradient = self.anchor[:, columns], self.gradient[:, columns]
        linear = y[:, columns] / self.step_size - gradient + self.curvature * anchor
        x = self.support.sample_gaussian(linear, self.precision, rng)
        # missing values at anchors are computed in the same pass as those at the proposals
        unknown = pending[np.isnan(self.height[pending])]
        values = self.potential.value(np.concatenate([self.anchor[:, unknown], x], axis=1))
        self.height[unknown], values = values[: unknown.size], values[unknown.size :]
        move = x - anchor
        lower = self.height[columns] + np.sum((gradient + 0.5 * self.curvature * move) * move, axis=0)
        check_envelope(lower - values, values)
        return x, values - lower
