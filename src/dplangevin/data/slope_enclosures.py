"""Slopes of losses with a proved error: in doubles by sums, products and quotients alone, or in decimals.

No exponential of a library is relied on: exp is a table, a polynomial and a power of two. docs/theory/exact_sums.md,
section 11, has the bounds.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed
from dplangevin.problem.losses.base import Loss, SlopeFormula
from dplangevin.problem.losses.classification import Softmax

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
