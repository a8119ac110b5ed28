"""Exact draws of exp(-V) by rejection, and the proximal sampler that uses them as its oracle.

Piecewise envelope. The bounding box of the support is divided into cells. In the cell around c, with half diagonal r,
V(x) >= V(c) - L r                                  (V is L-Lipschitz), V(x) >= V(c) + <grad V(c), x - c> - M r^2 / 2
(grad V is M-Lipschitz), and the lower of the two envelopes exp(-bound) is taken. Both have masses in closed form and
are drawn exactly: a cell by its mass, then a uniform point, or coordinates of exponential laws truncated to the cell.
No convexity is needed; the bounds are proved, never fitted. For convex V the tangent is a bound by itself (M = 0, any
subgradient): corners and thresholds need no smoothing, and cells are divided where the envelope has most of its mass.

Finite grid. Index j has probability exp(-score_j) / sum, EXACTLY for the doubles given: a uniform index is accepted
with probability exp(-(score_j - min score)), which is decided by comparing random bits with an interval around the
exponential; more bits of both are computed while they overlap. Reference for exact exponential coins: Canonne, Kamath
and Steinke (2020).

forward:   y ~ N(x, step_size I)
    backward:  x' ~ density proportional to exp(-V(x') - |x' - y|^2 / (2 step_size)) on the support

Both are conditionals of one joint law, so exp(-V) is stationary whatever the step size. The backward draw is exact:
for any anchor a of the support, V(x) >= V(a) + <g, x - a> + m |x - a|^2 / 2, so an isotropic Gaussian on the support
is an envelope. `accounting.proximal_certificate` bounds the distance between the chain's output and exp(-V).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.log_concave import check_envelope
from dplangevin.sampling.potential import CountingPotential, Evaluations, Potential, SamplerOutput
from dplangevin.sampling.supports import ConvexSupport

_MAX_BATCH = 4096


def sample_by_rejection(
    propose: Callable[[int], tuple[Floats, Floats]],
    dimension: int,
    size: int,
    max_proposals: int | None,
    scale: float,
    rng: np.random.Generator,
) -> tuple[Floats, int]:
    """Accept proposals with probability exp(log acceptance) until there are `size`; return (draws, proposals made).

    `propose(batch)` makes that many proposals and returns those that lie in the support with their log acceptances,
    which must not exceed 0; `scale` is the magnitude of the potential, for the rounding allowed in that check.
    """
    size = _check.check_count("size", size)
    limit = math.inf if max_proposals is None else _check.check_count("max_proposals", max_proposals)
    result, proposals = np.empty((dimension, size)), 0

    def accepted_draws() -> Iterator[int]:
        """Yield once per accepted draw, for the progress bar."""
        nonlocal proposals
        filled, batch = 0, 16
        while filled < size:
            if proposals >= limit:
                raise AssumptionFailed(
                    f"fewer than {size} draws after {max_proposals} proposals; raise max_proposals or use the proximal "
                    "sampler."
                )
            batch = int(min(batch, limit - proposals))
            x, excess = propose(batch)
            proposals += batch
            check_envelope(excess, np.full(1, scale))
            points = x[:, -rng.standard_exponential(excess.size) <= excess][:, : size - filled]
            result[:, filled : filled + points.shape[1]] = points
            yield from range(points.shape[1])
            filled += points.shape[1]
            batch = int(min(max(16, 1.2 * (size - filled) * proposals / max(filled, 1)), _MAX_BATCH))

    # private: when draws are accepted depends on the data
    for _ in iterate_with_progress(accepted_draws(), "draws", total=size, private=True):
        pass
    return result, proposals


def sample_isotropic_gaussian(
    mean: ArrayLike, variance: float, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    """Return `size` exact draws of N(mean, variance I) conditioned on the support."""
    variance = _check.check_positive("variance", variance)
    center = _check_vector("mean", mean, support)
    return support.sample_gaussian(np.tile((center / variance)[:, None], size), 1 / variance, rng)


def sample_quadratic_gaussian(
    mean: ArrayLike,
    precision: ArrayLike,
    support: ConvexSupport,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> Floats:
    """Return `size` draws of N(mean, precision^-1) conditioned on the support, by rejection.

    The acceptance probability is the Gaussian mass of the support. Without a limit the draw is exact; a limit of N
    proposals changes the law by sup over data sets of (1 - acceptance)^N, which the caller must account for.
    """
    center = _check_vector("mean", mean, support)
    matrix = np.atleast_2d(np.asarray(precision, float))
    if matrix.shape != (support.dimension, support.dimension) or not np.allclose(matrix, matrix.T):
        raise InvalidParameter(
            f"precision must be a symmetric matrix of size {support.dimension}, got {matrix.shape}."
        )
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= 0:
        raise InvalidParameter(
            "precision must be positive definite."
        )  # its eigenvalues may depend on records

    def propose(batch: int) -> tuple[Floats, Floats]:
        normal = rng.standard_normal((support.dimension, batch)) / np.sqrt(values)[:, None]
        x = center[:, None] + vectors @ normal
        x = support.project(x[:, support.contains(x)])
        return x, np.zeros(x.shape[1])

    return sample_by_rejection(propose, support.dimension, size, max_proposals, 0.0, rng)[0]


def _check_vector(name: str, value: ArrayLike, support: ConvexSupport) -> Floats:
    vector = np.atleast_1d(np.asarray(value, float))
    if vector.shape != (support.dimension,) or not np.all(np.isfinite(vector)):
        raise InvalidParameter(f"{name} must be {support.dimension} finite numbers, got {value!r}.")
    return vector


_BLOCK_SIZE = 512
_N_SHARES, _N_TEST_PROPOSALS, _MAX_EVALUATIONS = 100, 64, 50_000
"""Cells with a larger share of the envelope's mass are divided, until most of a test batch is accepted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvelopeCells:
    """The cells [p, C] of one potential with their envelopes.

    Parameters
    ----------
    centers, half : centres and half widths [p, C] of the cells.
    values, slopes : V [C] and its gradient [p, C] at the centres.
    lipschitz, smoothness : L and M, of V on the whole box; M = 0 for a convex V, whose slopes may be subgradients.
    """

    centers: Floats
    half: Floats
    values: Floats
    slopes: Floats
    lipschitz: float
    smoothness: float

    @property
    def radius(self) -> Floats:
        """Half the diagonals of the cells."""
        return np.asarray(np.linalg.norm(self.half, axis=0))

    @cached_property
    def tilted_mask(self) -> NDArray[np.bool_]:
        """The cells where the envelope that follows the gradient has the smaller mass."""
        return self._log_tilted < self._log_flat

    @cached_property
    def _log_flat(self) -> Floats:
        return np.asarray(self.lipschitz * self.radius - self.values + np.log(2 * self.half).sum(axis=0))

    @cached_property
    def _log_tilted(self) -> Floats:
        if math.isinf(self.smoothness):
            return np.full(self.values.shape, np.inf)
        size = np.abs(self.slopes) * self.half
        # log of the integral of e^{-g t} over [-h, h] = |g| h + log(h (1 - e^{-2 |g| h}) / (|g| h))
        with np.errstate(divide="ignore", invalid="ignore"):
            wide = np.where(size > 1e-8, -np.expm1(-2 * size) / np.where(size > 0, size, 1.0), 2.0)
        mass = size + np.log(wide * self.half)
        return np.asarray(self.curvature_term - self.values + mass.sum(axis=0))

    @cached_property
    def log_masses(self) -> Floats:
        """Logarithms of the masses of the cells' envelopes."""
        return np.asarray(np.minimum(self._log_flat, self._log_tilted))

    @cached_property
    def cumulative(self) -> Floats:
        """Cumulative probabilities of the cells."""
        total = np.cumsum(np.exp(self.log_masses - self.log_masses.max()))
        return np.asarray(total / total[-1])

    def propose(self, batch: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw points [p, batch] of the envelope, and return them with the log of the envelope there."""
        cell_index = np.minimum(
            np.searchsorted(self.cumulative, rng.random(batch), side="right"), len(self.values) - 1
        )
        tilted_mask, slopes = self.tilted_mask[cell_index], self.slopes[:, cell_index]
        rates = np.where(tilted_mask, np.abs(slopes), 0.0)
        uniform = rng.random(slopes.shape)
        width = 2 * self.half[:, cell_index]
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = -np.log1p(uniform * np.expm1(-rates * width)) / rates
        away = np.where(rates * width > 1e-8, steep, uniform * width)
        moves = np.where(slopes > 0, away, width - away) - width / 2
        follow = np.where(
            tilted_mask,
            (slopes * moves).sum(axis=0) - self.curvature_term[cell_index],
            -self.lipschitz * self.radius[cell_index],
        )
        return self.centers[:, cell_index] + moves, -(self.values[cell_index] + follow)

    @property
    def curvature_term(self) -> Floats:
        """M r^2 / 2, or 0 when no cell is tilted."""
        return (0.0 if math.isinf(self.smoothness) else self.smoothness / 2) * self.radius**2

    def find_heavy(self, n_shares: int) -> NDArray[np.intp]:
        """Return the cells with more than one of n_shares equal shares of the envelope's mass, or the heaviest."""
        masses = np.exp(self.log_masses - self.log_masses.max())
        return np.flatnonzero(masses >= min(1.0, float(masses.sum()) / n_shares))

    def replace_cells(self, index: NDArray[np.intp], others: EnvelopeCells) -> EnvelopeCells:
        """Return these cells without those at `index`, and with the others."""
        keep = np.setdiff1d(np.arange(self.values.size), index)
        return replace(
            self,
            centers=np.hstack([self.centers[:, keep], others.centers]),
            half=np.hstack([self.half[:, keep], others.half]),
            values=np.concatenate([self.values[keep], others.values]),
            slopes=np.hstack([self.slopes[:, keep], others.slopes]),
        )


def sample_cell_envelope(
    potential: Potential,
    support: ConvexSupport,
    low: Floats,
    high: Floats,
    per_axis: int,
    lipschitz: float,
    smoothness: float,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> SamplerOutput:
    """Return `size` independent draws of exp(-V) on a support inside the box [low, high], by per_axis^p cells.

    lipschitz and smoothness are those of V on the whole box; one of them may be infinite.
    """
    half = (high - low) / (2 * per_axis)
    axes = [a + h * (2 * np.arange(per_axis) + 1) for a, h in zip(low, half, strict=True)]
    centers = np.stack([mesh.ravel() for mesh in np.meshgrid(*axes, indexing="ij")])
    halves = np.broadcast_to(half[:, None], centers.shape)
    cells = _make_cells(potential, support, centers, halves, lipschitz, smoothness)
    return _sample_from_cells(potential, support, cells, cells.values.size, size, rng, max_proposals)


def sample_tangent_envelope(
    potential: Potential,
    support: ConvexSupport,
    low: Floats,
    high: Floats,
    size: int,
    rng: np.random.Generator,
) -> SamplerOutput:
    """Return `size` independent draws of exp(-V), V convex on the box [low, high], on a support inside it.

    The envelope is the tangent at the centre of each cell. Cells that hold much of its mass are divided until a test
    batch, which is discarded, is accepted often: they depend on the data, but any envelope gives exact draws.
    """
    half = (high - low) / 2
    cells = _make_cells(potential, support, (low + half)[:, None], half[:, None], math.inf, 0.0)
    corners = np.stack([mesh.ravel() for mesh in np.meshgrid(*[(-0.5, 0.5)] * len(low), indexing="ij")])
    n_evaluations = 1
    while n_evaluations < _MAX_EVALUATIONS and _acceptance_rate(potential, support, cells, rng) < 0.2:
        heavy = cells.find_heavy(_N_SHARES)
        halves = np.repeat(cells.half[:, heavy], corners.shape[1], axis=1)
        centers = np.repeat(cells.centers[:, heavy], corners.shape[1], axis=1)
        centers = centers + np.tile(corners, heavy.size) * halves
        children = _make_cells(potential, support, centers, halves / 2, math.inf, 0.0)
        n_evaluations += children.values.size + _N_TEST_PROPOSALS
        cells = cells.replace_cells(heavy, children)
    return _sample_from_cells(potential, support, cells, n_evaluations, size, rng, None)


def _acceptance_rate(
    potential: Potential, support: ConvexSupport, cells: EnvelopeCells, rng: np.random.Generator
) -> float:
    """Estimate the probability that a proposal is accepted."""
    points, envelope = cells.propose(_N_TEST_PROPOSALS, rng)
    inside = support.contains(points)
    if not inside.any():
        return 0.0
    return float(np.exp(-potential.value(points[:, inside]) - envelope[inside]).sum()) / _N_TEST_PROPOSALS


def _make_cells(
    potential: Potential,
    support: ConvexSupport,
    centers: Floats,
    halves: Floats,
    lipschitz: float,
    smoothness: float,
) -> EnvelopeCells:
    """Evaluate V at the centres of those cells that may meet the support."""
    # a cell whose centre is farther from the support than its half diagonal does not meet it
    distances = np.linalg.norm(centers - support.project(centers), axis=0)
    near = distances <= np.linalg.norm(halves, axis=0) * (1 + 1e-9)
    centers, halves = centers[:, near], halves[:, near]
    parts = np.array_split(centers, max(1, centers.shape[1] // _BLOCK_SIZE), axis=1)
    values = np.concatenate([potential.value(part) for part in parts])
    slopes = np.zeros_like(centers)
    if math.isfinite(smoothness):
        slopes = np.concatenate([potential.gradient(part) for part in parts], axis=1)
    return EnvelopeCells(
        centers=centers, half=halves, values=values, slopes=slopes, lipschitz=lipschitz, smoothness=smoothness
    )


def _sample_from_cells(
    potential: Potential,
    support: ConvexSupport,
    cells: EnvelopeCells,
    n_evaluations: int,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None,
) -> SamplerOutput:
    def propose(batch: int) -> tuple[Floats, Floats]:
        points, envelope = cells.propose(batch, rng)
        inside = support.contains(points)
        points = points[:, inside]
        return points, -potential.value(points) - envelope[inside] if inside.any() else np.empty(0)

    scale = float(np.abs(cells.values).max()) + 1
    theta, proposals = sample_by_rejection(propose, len(cells.centers), size, max_proposals, scale, rng)
    passes = Evaluations(n_values=n_evaluations + proposals, n_gradients=n_evaluations)
    return SamplerOutput(theta=theta, n_proposals=proposals, evaluations=passes)


def sample_finite_grid(scores: ArrayLike, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return `size` independent indices with probabilities proportional to exp(-scores), exactly.

    Examples
    --------
    >>> sample_finite_grid([0.0, 800.0], 3, np.random.default_rng(0)).tolist()
    [0, 0, 0]
    """
    values = np.asarray(scores, float)
    if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values)):
        raise InvalidParameter("scores must be a non-empty one-dimensional array of finite numbers.")
    size = _check.check_count("size", size)
    least = float(values.min())
    result, filled = np.empty(size, np.intp), 0
    while filled < size:
        index = rng.integers(0, values.size, size=max(1024, size))
        accepted = index[flip_exponential_coins(values[index], least, rng)][: size - filled]
        result[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return result


def flip_exponential_coins(
    scores: Floats, least: float, rng: np.random.Generator, bits: int = 53
) -> NDArray[np.bool_]:
    """Flip independent coins with probability of heads exactly exp(-(score - least)), least <= every score."""
    gap = scores - least
    probability = np.exp(-gap)
    margin = probability * (gap + 4) * 2.0**-52 + 1e-300
    digits = rng.integers(0, 2**bits, size=scores.size)
    low = digits * 2.0**-bits
    heads = low + 2.0**-bits <= probability - margin
    unsure = ~heads & (low < probability + margin)
    for i in np.flatnonzero(unsure):
        heads[i] = _decide_coin(int(digits[i]), bits, float(scores[i]), least, rng)
    return heads


def _decide_coin(digits: int, bits: int, score: float, least: float, rng: np.random.Generator) -> bool:
    """Return whether a uniform number with these leading bits is below exp(-(score - least)); draws more bits."""
    while True:
        digits = (digits << 32) | int(rng.integers(0, 2**32))
        bits += 32
        with localcontext() as context:
            # 40 digits more than the bits need: differences of doubles are exact and exp is correctly rounded
            context.prec = 1200 + bits
            gap = Decimal(score) - Decimal(least)
            context.prec = bits // 3 + 40
            probability = (-gap).exp()
            error = probability * Decimal(10) ** -(bits // 3 + 30) + Decimal(10) ** -(bits // 3 + 400)
            low = Decimal(digits) / Decimal(2) ** bits
            high = Decimal(digits + 1) / Decimal(2) ** bits
            tiny = Decimal(10) ** -(bits // 3 + 35)
            if high + tiny <= probability - error:
                return True
            if low - tiny >= probability + error:
                return False


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
