"""The minimiser of a perturbed objective, rounded to a public grid exactly: the solver decides nothing.

The objective is an ideal one: whole rows, whole limits as weights, a ridge, and ideal noise. At any point q with
binary digits its gradient is known with a proved error, and by strong convexity the minimiser is within (|gradient| +
error) / ridge of q. Digits are added until that ball lies within one cell of the grid, and the cell is released: a
function of the ideal minimiser, whatever found q. So its guarantee is that of the ideal minimiser, with nothing for a
tolerance, and there is no run that fails. docs/theory/exact_sums.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dplangevin._arrays import Floats
from dplangevin._rng import noise_observer
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.exact_records import lower_limits, measure_rows
from dplangevin.data.integer_grids import (
    IntegerTransform,
    RowGrid,
    Words,
    WordSum,
    carry,
    piece_rows,
    to_integers,
)
from dplangevin.data.slope_enclosures import (
    DECIMAL_SLOPE_ERROR,
    MAX_LOW_PART,
    check_enclosable,
    decimal_slopes,
    enclosed_slopes,
    slope_error,
)
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.newton import TiltedObjective, search_line, solve_newton_step
from dplangevin.problem import Problem, WholeSpace
from dplangevin.problem.constants import MAX_EXACT_COLUMNS
from dplangevin.sampling.lazy_noise import LazyNoise

Integers = NDArray[Any]
GRID_BITS = 10
"""The grid of a minimiser is 2^-10 of the least noise that any data leave on it: rounding is free."""
FIRST_BITS = 64
"""Binary digits of a grid step in the first point; every further precision adds as many."""
LIMB_BITS = 20
POINT_BITS = 32
_MAX_ROUGH_STEPS = 60


def check_exact_minimizer(problem: Problem) -> None:
    """Refuse a problem whose minimiser has no exact rounding."""
    check_enclosable(problem.loss)
    if not isinstance(problem.constraint, WholeSpace):
        raise AssumptionFailed(
            "the rounding of a minimiser on a constraint is not bounded: a projection has no proved error"
        )
    if problem.n_columns > MAX_EXACT_COLUMNS:
        raise AssumptionFailed(f"exact sums are for at most {MAX_EXACT_COLUMNS} columns")


def minimizer_grid(problem: Problem, deviation: float, ridge: float) -> Fraction:
    """Return the public grid: noise of this deviation on the gradient moves the minimiser by at least 2^10 of it."""
    steepest = problem.n * (problem.constants.data_smoothness + ridge)
    return Fraction(2.0 ** (math.floor(math.log2(deviation / steepest)) - GRID_BITS))


def limit_squares(data: Dataset, block: Block, grid: RowGrid, transform: IntegerTransform) -> Floats:
    """Return m of each record: whole numbers in [0, M] with m |B' x|^2 <= M R^2, so that m |B' x| <= M R as well.

    They are made by bounding lengths twice: m' c <= M R, then m c <= m' R, each checked between exact numbers, for c
    an upper bound on |B' x|.
    """
    most, reach = grid.max_limit, transform.max_steps
    limits = np.full(len(block.rows), most)
    for start in range(0, len(limits), step := piece_rows(block.rows.shape[1])):
        index, _, lengths = measure_rows(block.rows[start : start + step], transform)
        shares = np.full(len(index), most)
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(2):
                top = shares * reach  # at most 20 + 32 binary digits
                shares = np.minimum(shares, np.floor(top / lengths))
                shares[~(shares * lengths <= top)] = 0.0
        limits[start + index] = shares
    weights, bound = block.weights, data.problem.bounds.weight_bound
    if weights is None and bound != 1:
        weights = np.ones(len(limits))
    return limits if weights is None else lower_limits(limits, weights, bound)


@dataclass(kw_only=True, eq=False)
class EnclosedGradient:
    """sum_i weight_i B' x_i slope_i at a point in Python integers, with a proved error; weight_i = W m_i / M.

    Parameters
    ----------
    data : records with rows on the grid and limits m as weights, m_i |B' x_i| <= M R.
    grid, transform : of the rows, and B and R; without a transform B = 1.
    """

    data: Dataset
    grid: RowGrid
    transform: IntegerTransform | None = None

    @property
    def _shape(self) -> tuple[int, int]:
        return self.data.problem.n_columns, self.data.problem.loss.score_dimension

    @cached_property
    def _basis(self) -> Integers:
        """B in units of two to the least of its exponents."""
        assert self.transform is not None
        shifts = (self.transform.exponents - self.transform.exponents.min()).astype(object)
        return np.asarray(self.transform.basis.astype(np.int64).astype(object) << shifts)

    @property
    def _mass(self) -> Fraction:
        """A bound on sum_i weight_i |B' x_i|."""
        length = self.grid.max_norm if self.transform is None else self.transform.bound
        weight = Fraction(self.data.problem.bounds.weight_bound)
        return weight * max(self.data.n_samples, 1) * Fraction(length) * Fraction(self.grid.unit)

    def _turn(self, total: Integers) -> tuple[Integers, Fraction]:
        """Return B' S of a sum in Python integers, and its unit."""
        if self.transform is None:
            return total, Fraction(1)
        return self._basis.T @ total, Fraction(2) ** int(self.transform.exponents.min())

    def sum_in_doubles(self, theta: Integers, unit: Fraction) -> tuple[Integers, Fraction, float | Fraction]:
        """Return sum_i weight_i B' x_i slope_i as integers, their unit, and a bound on the norm of the error."""
        loss, columns = self.data.problem.loss, len(theta)
        high, rest, _ = _split_point(theta, unit)
        low, last, low_norm = _split_point(rest, unit)
        row_norm = self.data.problem.row_norm * (1 + 1e-9)
        if not low_norm * row_norm <= MAX_LOW_PART:
            return theta, unit, math.inf
        power = 2.0 ** math.frexp(loss.slope_bound)[1]
        sums = self.data.sum_over_blocks(_sum_limbs, high, low, power, self.grid)
        total, first = np.zeros(theta.shape, object), 2 * LIMB_BITS
        for k, limb in enumerate(np.split(to_integers(carry(sums)).astype(object), 3, axis=1)):
            total = total + (limb << (first - k * LIMB_BITS))
        turned, turned_unit = self._turn(total)
        bounds = self.data.problem.bounds
        labels = max(abs(v) for v in bounds.label_range) if bounds.classes is None else 1.0
        residual = float(unit) * math.sqrt(columns) * max(abs(int(v)) for v in (*last.ravel(), 0)) * row_norm
        each = slope_error(loss, labels) + power * 2.0**-52 + loss.curvature_bound * residual
        weight = Fraction(bounds.weight_bound) * Fraction(power * self.grid.unit / self.grid.max_limit)
        error = float(self._mass) * math.sqrt(theta.shape[1]) * each * (1 + 1e-9)
        return turned, turned_unit * weight / (1 << first), error

    def sum_in_decimals(
        self, theta: Integers, unit: Fraction, digits: int
    ) -> tuple[Integers, Fraction, float | Fraction]:
        """Return the same, record by record, with slopes of so many binary digits."""
        total = self.data.sum_over_blocks(_sum_decimals, theta, unit, self.grid, digits)
        turned, turned_unit = self._turn(np.asarray(total).reshape(theta.shape))
        weight = Fraction(self.data.problem.bounds.weight_bound) / int(self.grid.max_limit)
        error = self._mass * DECIMAL_SLOPE_ERROR * theta.shape[1] / (1 << digits)
        return turned, turned_unit * weight * Fraction(self.grid.unit) / (1 << digits), error


@dataclass(kw_only=True, eq=False)
class IdealObjective(EnclosedGradient):
    """sum_i weight_i loss_i(B (center + q)) + (ridge / 2) |q|^2 + <noise, q>, with weight_i = W m_i / M.

    Parameters
    ----------
    noise : ideal noise, the digits of which are drawn as they are needed.
    ridge : on the sum of losses.
    cell : the step of the grid of q, a power of two.
    center : public or released numbers; from here on they are rounded to 2^-64 cell.
    """

    noise: LazyNoise
    ridge: Fraction
    cell: Fraction
    center: Floats | None = None

    @cached_property
    def rough(self) -> TiltedObjective:
        """M / W times the objective, in doubles."""
        factor = self.grid.max_limit / self.data.problem.bounds.weight_bound
        return TiltedObjective(
            data=self.data,
            ridge=float(self.ridge) * factor,
            tilt=self.noise.doubles() * factor,
            center=self.center,
            basis=None if self.transform is None else self.transform.real,
        )

    @cached_property
    def _center(self) -> Integers:
        """The center in units of 2^-FIRST_BITS cell."""
        rows, scores = self._shape
        given = np.zeros(rows * scores) if self.center is None else self.center
        return self.to_point(given)

    def to_point(self, q: Floats) -> Integers:
        """Return the nearest point in units of 2^-FIRST_BITS cell."""
        return np.array([round(Fraction(float(v)) / self.cell * (1 << FIRST_BITS)) for v in q], object)

    def _theta(self, point: Integers, bits: int) -> tuple[Integers, Fraction]:
        """Return B (center + q) as Python integers [p, K] times a unit, exactly."""
        q = ((self._center << (bits - FIRST_BITS)) + point).reshape(self._shape)
        unit = self.cell / (1 << bits)
        if self.transform is None:
            return q, unit
        return self._basis @ q, unit * Fraction(2) ** int(self.transform.exponents.min())

    def gradient(self, point: Integers, bits: int) -> tuple[Integers, int | None]:
        """Return the gradient at q = point 2^-bits cell over the ridge, in these units, and a bound on the error.

        The bound is for the Euclidean norm; None where doubles prove nothing.
        """
        theta, unit = self._theta(point, bits)
        is_first = bits == FIRST_BITS
        if is_first:
            total, total_unit, error = self.sum_in_doubles(theta, unit)
        else:
            share = self._mass / (self.ridge * self.cell)
            more = max(share.numerator.bit_length() - share.denominator.bit_length(), 0)
            total, total_unit, error = self.sum_in_decimals(theta, unit, bits + 16 + more)
        if not math.isfinite(error):
            return point, None
        per_unit = Fraction(1 << bits) / (self.ridge * self.cell)
        noise, noise_error = self.noise.enclose(1 / per_unit)
        factor = total_unit * per_unit
        sums = np.array([math.floor(int(v) * factor) for v in total.ravel()], object)
        rounding = (noise_error + 1) * (math.isqrt(len(point)) + 1)
        return sums + noise + point, rounding + math.ceil(Fraction(error) * per_unit)


def _split_point(theta: Integers, unit: Fraction) -> tuple[Floats, Integers, float]:
    """Return the leading 32 binary digits of a point [p, K] as doubles, what is left of it, and the norm of the former.

    Columns are shortened alike, so that none is longer than 2^32 (1 + 2^-20) units of the shortening.
    """
    length = max(math.isqrt(sum(int(v) ** 2 for v in column)) + 1 for column in theta.T)
    shift = max(length.bit_length() - POINT_BITS, 0)
    whole = (theta + ((1 << shift) >> 1)) >> shift
    values = np.array([float(int(v)) for v in whole.ravel()]).reshape(theta.shape)
    values *= float(unit * (1 << shift))
    return values, theta - (whole << shift), float(np.linalg.norm(values)) * (1 + 1e-9)


def _sum_limbs(data: Dataset, high: Floats, low: Floats, power: float, grid: RowGrid) -> Words:
    """sum m slope / power x over records as three limbs of 20 binary digits: words [2, p, 3 K].

    Scores are exact: their high and low parts are sums below 2^53 each.
    """
    loss, (columns, scores), seen = data.problem.loss, high.shape, 0
    total, scale = WordSum((columns, 3 * scores)), 2.0**LIMB_BITS
    points = np.concatenate([high, low], axis=1)
    for block in data.blocks():
        seen += len(block.labels)
        for start in range(0, len(block.labels), step := piece_rows(columns)):
            part = slice(start, start + step)
            rows, labels = block.rows[part], np.asarray(block.labels[part], np.float64)
            both = rows @ points
            slopes = enclosed_slopes(loss, both[:, :scores], both[:, scores:], labels)
            rest = slopes * (1 / power)
            rest *= np.asarray(block.weights)[part, None]
            limbs = []
            for _ in range(3):
                limbs.append(np.rint(rest))
                rest = (rest - limbs[-1]) * scale
            sums = rows.T @ np.concatenate(limbs, axis=1)
            sums /= grid.unit
            total.add(sums)
    data.check_row_count(seen)
    return total.words()


def _sum_decimals(data: Dataset, theta: Integers, unit: Fraction, grid: RowGrid, bits: int) -> Integers:
    """sum m slope x over records in units of 2^-bits, slopes in decimals."""
    total, seen = np.zeros(theta.shape, object), 0
    for block in data.blocks():
        rows = np.rint(block.rows / grid.unit).astype(np.int64).astype(object)
        slopes = decimal_slopes(
            data.problem.loss, rows @ theta, unit * Fraction(grid.unit), np.asarray(block.labels), bits
        )
        limits = np.asarray(block.weights).astype(np.int64).astype(object)
        total = total + rows.T @ (slopes * limits[:, None])
        seen += len(block.labels)
    data.check_row_count(seen)
    return total


def release_minimizer(objective: IdealObjective) -> Floats:
    """Return the minimiser rounded to the grid, and report the noise to an audit."""
    observer = noise_observer.get()
    if observer is None:
        return _round_minimizer(objective)
    law = "norm" if objective.noise.noise == "gamma" else "gaussian"
    rough = objective.rough
    factor = float(rough.ridge / objective.ridge)
    untilted = replace(rough, tilt=np.zeros(objective.noise.size))
    tilt = observer.observe_noise(objective.noise.doubles(), law, float(objective.noise.scale))
    return np.asarray(
        observer.observe_minimizer(
            tilt, lambda _: _round_minimizer(objective), lambda q: untilted.gradient(q) / factor
        )
    )


def _round_minimizer(objective: IdealObjective) -> Floats:
    """Enclose the minimiser in smaller and smaller balls until one lies within a cell.

    Newton steps, with a curvature in doubles, are taken while they halve the gradient. One that does not is undone,
    and a gradient step follows, which shrinks the gradient by 1 - ridge / curvature at least: so the search ends.
    """
    rough = objective.rough
    point, bits = objective.to_point(_minimize_roughly(rough)), FIRST_BITS
    best: tuple[int, Integers, Integers] | None = None
    factor, steepest = _factor_curvature(objective, point, bits), _curvature_bound(objective)
    while True:
        gradient, error = objective.gradient(point, bits)
        if error is not None:
            size = math.isqrt(sum(int(v) ** 2 for v in gradient)) + 1
            cells = _decide_cells(point, size + error, bits)
            if cells is not None:
                return cells.astype(np.float64) * float(objective.cell)
        if error is None or size <= 2 * error:
            point, bits, best = point << FIRST_BITS, bits + FIRST_BITS, None
            continue
        if best is None or 2 * size <= best[0]:
            best, step = (size, point, gradient), None
            if factor is not None:
                values = np.array([int(v) / (1 << bits) for v in gradient])
                step = rough.ridge * cho_solve(factor, values)
            if step is not None and np.isfinite(step).all():
                point = point - np.array([round(Fraction(float(v)) * (1 << bits)) for v in step], object)
                continue
        _, point, gradient = best
        point = point - np.array([round(int(v) * steepest) for v in gradient], object)
        factor, best = _factor_curvature(objective, point, bits), None


def _curvature_bound(objective: IdealObjective) -> Fraction:
    """Return the ridge over a bound on the curvature: the length of a gradient step."""
    data = objective.data
    records = max(data.n_samples, 1) * Fraction(data.problem.constants.data_smoothness)
    return objective.ridge / (records * Fraction(1 + 1e-9) + objective.ridge)


def _factor_curvature(objective: IdealObjective, point: Integers, bits: int) -> Any:
    """Return a Cholesky factor of the curvature at a point, or None."""
    q = np.array([float(Fraction(int(v), 1 << bits) * objective.cell) for v in point])
    try:
        return cho_factor(objective.rough.hessian(q))
    except (np.linalg.LinAlgError, ValueError):
        return None


def _decide_cells(point: Integers, radius: int, bits: int) -> Integers | None:
    """Return the cells of all points within the radius, if they are the same."""
    low, high = ((point + ((1 << (bits - 1)) + side)) >> bits for side in (-radius, radius))
    return low if (low == high).all() else None


def _minimize_roughly(objective: TiltedObjective) -> Floats:
    """Return a point near the minimiser in doubles: any would do, a near one saves time."""
    q = np.zeros(len(objective.tilt))
    value = objective.value(q)
    for _ in range(_MAX_ROUGH_STEPS):
        gradient = objective.gradient(q)
        step = solve_newton_step(objective, objective.data.problem.constraint, q, gradient, 0.0)
        if step is None or not np.isfinite(step).all():
            break
        decrease = -float(gradient @ step)
        q, value = search_line(objective, q, value, step, -decrease)
        if not decrease > 1e-11 * abs(value):
            break
    return q if np.isfinite(q).all() else np.zeros_like(q)
