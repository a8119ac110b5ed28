"""The minimiser of a perturbed objective, rounded to a public grid exactly: the solver decides nothing.

No exponential of a library is relied on: exp is a table, a polynomial and a power of two. docs/theory/exact_sums.md,
section 11, has the bounds.

The objective is an ideal one: whole rows, whole limits as weights, a ridge, and ideal noise. At any point q with
binary digits its gradient is known with a proved error, and by strong convexity the minimiser is within (|gradient| +
error) / ridge of q. Digits are added until that ball lies within one cell of the grid, and the cell is released: a
function of the ideal minimiser, whatever found q. So its guarantee is that of the ideal minimiser, with nothing for a
tolerance, and there is no run that fails. docs/theory/exact_sums.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dplangevin._arrays import Floats
from dplangevin._rng import noise_observer
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.exact_sums import lower_limits, measure_rows
from dplangevin.data.integer_grids import (
    IntegerTransform,
    RowGrid,
    Words,
    WordSum,
    carry,
    piece_rows,
    to_integers,
)
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.newton import TiltedObjective, search_line, solve_newton_step
from dplangevin.problem import Problem, WholeSpace
from dplangevin.problem.constants import MAX_EXACT_COLUMNS
from dplangevin.problem.losses.base import Loss, SlopeFormula
from dplangevin.problem.losses.classification import Softmax
from dplangevin.sampling.lazy_noise import LazyNoise

MAX_LOW_PART = 2.0**-10
"""Largest |low part| of a score at which the bounds on doubles hold."""
_LARGEST_EXPONENT = 700.0
_STEPS = 64
_SLOPE_ERROR = 2.0**-49


def _table() -> tuple[Floats, float, float]:
    """2^(j / 64), and log(2) / 64 as a number of 36 binary digits and the rest."""
    with localcontext(Context(prec=60)):
        powers = np.array([float(Decimal(2) ** (Decimal(j) / _STEPS)) for j in range(_STEPS)])
        step = Decimal(2).ln() / _STEPS
        high = math.floor(step * 2**42) / 2**42
        return powers, high, float(step - Decimal(high))


_POWERS, _STEP_HIGH, _STEP_LOW = _table()


def exponential(high: Floats, low: Floats) -> Floats:
    """exp(high + low) within 2^-51 of it, for |high| <= 700 and |low| <= 2^-9."""
    steps = high * (_STEPS / math.log(2))
    np.rint(steps, out=steps)
    whole = steps.astype(np.int64)
    spare = steps * _STEP_HIGH
    rest = high - spare
    np.multiply(steps, _STEP_LOW, out=spare)
    rest -= spare
    rest += low
    tail = np.divide(rest, 6.0, out=spare)
    tail += 1.0
    for k in (5.0, 4.0, 3.0, 2.0):
        np.divide(rest, k, out=steps)
        tail *= steps
        tail += 1.0
    tail *= rest
    powers = _POWERS[whole & (_STEPS - 1)]
    tail *= powers
    powers += tail
    # times a power of two: results are normal numbers, so that their exponents can be added to
    whole >>= _STEPS.bit_length() - 1
    whole <<= 52
    powers.view(np.int64)[...] += whole
    return np.asarray(powers)


def check_enclosable(loss: Loss) -> None:
    """Refuse a loss whose slope has no enclosure."""
    formula = loss.slope_formula
    bounded = loss.slope_bound < 1e100 and math.isfinite(loss.curvature_bound)
    if not bounded or not (formula is not None or (isinstance(loss, Softmax) and loss.slope_clip is None)):
        raise AssumptionFailed(
            f"the slope of the {loss.name} loss has no formula with a proved error, which the rounding of a minimiser "
            "needs"
        )


def slope_error(loss: Loss, label_bound: float) -> float:
    """Bound on the error of each slope of `enclosed_slopes`."""
    formula = loss.slope_formula
    if formula is None:
        return (loss.score_dimension + 3) * _SLOPE_ERROR
    size = abs(formula.shift) + 1.0
    if formula.kind == "exponential":
        size += label_bound
    if formula.kind in ("affine", "exponential"):
        size += max(abs(formula.low), abs(formula.high))
    return size * _SLOPE_ERROR


def enclosed_slopes(loss: Loss, high: Floats, low: Floats, labels: Floats) -> Floats:
    """Slopes at the scores high + low [n, K], within `slope_error`; |low| <= MAX_LOW_PART.

    For a loss of one score also at several points, high [n, k] with labels [n, 1].
    """
    formula = loss.slope_formula
    if formula is None:
        best = high.argmax(axis=1)[:, None]
        top = np.take_along_axis(high, best, axis=1)
        rest = low - np.take_along_axis(low, best, axis=1)
        powers = exponential(np.maximum(high - top, -_LARGEST_EXPONENT), rest)
        powers /= powers.sum(axis=1, keepdims=True)
        powers[np.arange(len(labels)), labels.astype(np.intp)] -= 1.0
        return powers
    if high.shape[1] != 1 or labels.ndim > 1:  # one score at several points
        return _formula_slopes(formula, high, low, labels)
    return _formula_slopes(formula, high[:, 0], low[:, 0], labels)[:, None]


def _formula_slopes(formula: SlopeFormula, high: Floats, low: Floats, labels: Floats) -> Floats:
    if formula.kind == "logistic":
        is_low = high < 0
        power = exponential(-np.minimum(np.abs(high), _LARGEST_EXPONENT), np.where(is_low, low, -low))
        slopes = np.where(is_low, power, 1.0)
        power += 1.0
        slopes /= power
        slopes -= labels
    elif formula.kind == "exponential":
        slopes = exponential(np.clip(high, -_LARGEST_EXPONENT, _LARGEST_EXPONENT), low) - labels
    elif formula.kind == "affine":
        slopes = formula.scale * ((high - labels) + low) + formula.shift
    else:
        sign = np.where(labels > 0.5, 1.0, -1.0)
        slopes = formula.scale * ((high - sign) + low)
        slopes = np.clip(slopes, -(1 + sign) / 2, (1 - sign) / 2)
    if math.isinf(formula.low) and math.isinf(formula.high):
        return np.asarray(slopes)
    return np.asarray(np.clip(slopes, formula.low, formula.high))


def check_enclosable_value(loss: Loss) -> None:
    """Refuse a loss whose slope or value has no enclosure."""
    formula = loss.slope_formula
    if formula is None:
        is_proved = isinstance(loss, Softmax) and loss.slope_clip is None
    elif formula.kind == "logistic":
        is_proved = formula.low <= -1 and formula.high >= 1
    else:
        is_proved = formula.kind in ("affine", "hinge")
    if not is_proved:
        raise AssumptionFailed(f"the value of the {loss.name} loss has no formula with a proved error")


def enclosed_losses(loss: Loss, scores: Floats, labels: Floats) -> Floats:
    """Losses at scores of one class or [..., K], within 2^-46 (1 + slope bound times the largest score and label).

    Losses with affine slopes are sums and products; logarithms are checked by the exponential.
    """
    formula = loss.slope_formula
    if formula is None:
        below = scores - scores.max(axis=-1, keepdims=True)
        own = np.take_along_axis(
            below, np.broadcast_to(labels, below.shape[:-1])[..., None].astype(np.intp), -1
        )
        powers = exponential(np.maximum(below, -_LARGEST_EXPONENT), np.zeros(1))
        return np.asarray(logarithm(powers.sum(axis=-1)) - own[..., 0])
    if formula.kind == "logistic":
        power = exponential(-np.minimum(np.abs(scores), _LARGEST_EXPONENT), np.zeros(1))
        return np.asarray(logarithm(1.0 + power) + (np.maximum(scores, 0.0) - labels * scores))
    return np.asarray(loss.value(scores, labels), np.float64)


def logarithm(values: Floats) -> Floats:
    """log(v) within 2^-48 (1 + log v) for 1 <= v <= 2^500: Newton steps from any start, by the proved exponential.

    With r = v exp(-y) - 1, log(v) = y + log(1 + r), and |log(1 + r) - r| <= r^2 for |r| <= 1/2.
    """
    logs = np.log(values)
    while True:
        rest = values * exponential(-logs, np.zeros(1)) - 1.0
        logs = logs + rest
        if (np.abs(rest) <= 2.0**-25).all():
            return np.asarray(logs)
        logs = np.clip(np.nan_to_num(logs), 0.0, _LARGEST_EXPONENT / 2)


DECIMAL_SLOPE_ERROR = 4
"""Bound on the error of each number of `decimal_slopes`, in units of 2^-bits."""


def decimal_slopes(loss: Loss, scores: NDArray[Any], unit: Fraction, labels: Floats, bits: int) -> Any:
    """Slopes at the scores `scores` unit (Python integers [n, K]), in units of 2^-bits, as Python integers."""
    digits = math.ceil(0.302 * bits) + 30
    result = np.empty(scores.shape, object)
    with localcontext(Context(prec=digits, Emax=10**9, Emin=-(10**9))):
        for i, label in enumerate(labels):
            exact = [int(score) * unit for score in scores[i]]
            values = _decimal_slope(loss, exact, float(label), bits)
            result[i] = [math.floor(value * (1 << bits)) for value in values]
    return result


def _decimal_slope(loss: Loss, scores: list[Fraction], label: float, bits: int) -> list[Fraction]:
    formula = loss.slope_formula
    if formula is None:
        top = max(scores)
        powers = [_decimal_exponential(max(score - top, Fraction(-bits - 100))) for score in scores]
        total = sum(powers)
        return [Fraction(power / total) - int(label == k) for k, power in enumerate(powers)]
    score, y = scores[0], Fraction(label)
    if formula.kind == "logistic":
        power = _decimal_exponential(-min(abs(score), Fraction(bits + 100)))
        slope = Fraction((power if score < 0 else 1) / (1 + power)) - y
    elif formula.kind == "exponential":
        slope = Fraction(_decimal_exponential(max(min(score, Fraction(800)), Fraction(-bits - 100)))) - y
    elif formula.kind == "affine":
        slope = Fraction(formula.scale) * (score - y) + Fraction(formula.shift)
    else:
        sign = 1 if label > 0.5 else -1
        slope = Fraction(formula.scale) * (score - sign)
        slope = min(max(slope, -Fraction(1 + sign, 2)), Fraction(1 - sign, 2))
    if formula.low > -math.inf:
        slope = max(slope, Fraction(formula.low))
    if formula.high < math.inf:
        slope = min(slope, Fraction(formula.high))
    return [slope]


def _decimal_exponential(power: Fraction) -> Decimal:
    return (Decimal(power.numerator) / Decimal(power.denominator)).exp()


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
