"""Least squares from noisy second moments, in floating point or exactly on an integer grid; and its planner."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.accounting.plan import Plan
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.kernels import second_moments as second_moments
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec, calibrate_sufficient_statistics
from dplangevin.mechanisms.newton import minimize_quadratic
from dplangevin.planner import fit_plan as risk
from dplangevin.planner.fit_plan import FitPlan, Request, low_signal_warning
from dplangevin.problem import Problem, WholeSpace
from dplangevin.sampling.exact_noise import ByteSource, add_rounded_noise, gaussian_density_scale

Integers = NDArray[np.int64]
RECORD_BITS = 17
"""Entries of a record are integers up to 2^17: their products, up to 2^34, are summed exactly in doubles over 2^19
records, and in 64-bit integers over 2^29 records."""
_SHRINK_FACTOR = (
    1 - 2.0**-30
)  # shrinks by more than the rounding error of a record that was scaled back to its bound
_ROWS_PER_PRODUCT = 1 << 18
MAX_SECURE_ROWS = 1 << 28


def release_secure_moments(
    spec: SufficientStatisticsSpec, data: Dataset, source: ByteSource = os.urandom
) -> tuple[Floats, Floats]:
    """Release (G + noise, c + noise) on public grids: noise of gram_noise_std on the diagonal, / sqrt 2 off it."""
    if data.n_samples > MAX_SECURE_ROWS:
        raise InvalidParameter(
            f"secure moments are exact for up to {MAX_SECURE_ROWS} records; use noisy gradient descent."
        )
    row_unit, label_unit = integer_units(data)
    both = data.sum_over_blocks(_sum_integer_moments)
    triangle = np.triu_indices(len(both))
    entries, on_diagonal = both[triangle], triangle[0] == triangle[1]
    noisy = np.empty(len(entries))
    for mask, deviation in (
        (on_diagonal, spec.gram_noise_std),
        (~on_diagonal, spec.gram_noise_std * math.sqrt(0.5)),
    ):
        scale = gaussian_density_scale(deviation)
        noisy[mask] = add_rounded_noise(entries[mask], row_unit**2, scale, 2.0, source)
    gram = np.zeros((len(both), len(both)))
    gram[triangle] = noisy
    gram.T[triangle] = noisy
    scale = gaussian_density_scale(spec.cross_noise_std)
    return gram, add_rounded_noise(both[:, -1], row_unit * label_unit, scale, 2.0, source)


def integer_units(data: Dataset) -> tuple[float, float]:
    """Return the units, powers of two, that rows and labels are rounded to; the largest record has 2^17 of them."""
    constants = data.problem.constants
    lengths = (constants.row_norm or 0.0, constants.label_bound or 0.0)
    largest = (max(math.sqrt(constants.weight_bound) * length, 2.0**-400) for length in lengths)
    row, label = (2.0 ** (math.frexp(value)[1] - RECORD_BITS) for value in largest)
    return row, label


def integer_limits(data: Dataset) -> tuple[int, int]:
    """Return the largest |u|^2 and |t| of a record's integers, from weight_bound B^2 and weight_bound Y^2."""
    constants, (row, label) = data.problem.constants, integer_units(data)
    weight = Fraction(constants.weight_bound)
    square = weight * Fraction(constants.row_norm or 0.0) ** 2 / Fraction(row) ** 2
    height = weight * Fraction(constants.label_bound or 0.0) ** 2 / Fraction(label) ** 2
    return math.floor(square), math.isqrt(math.floor(height))


def _sum_integer_moments(data: Dataset) -> Integers:
    """Return [sum u u^T, sum t u] in integers: exact in whatever order a matrix product adds them."""
    columns = data.problem.n_columns
    total = np.zeros((columns, columns + 1), np.int64)
    n_rows = 0
    for block in data.blocks():
        integers, labels = round_records(data, block)
        for start in range(0, len(integers), _ROWS_PER_PRODUCT):
            part = integers[start : start + _ROWS_PER_PRODUCT]
            total[:, :-1] += (part.T @ part).astype(np.int64)
            total[:, -1] += (part.T @ labels[start : start + _ROWS_PER_PRODUCT]).astype(np.int64)
        n_rows += len(integers)
    data.check_row_count(n_rows)
    return total


def round_records(data: Dataset, block: Block) -> tuple[Floats, Floats]:
    """Return (u, t): sqrt(w) x and sqrt(w) y in units, rounded towards zero; a record beyond its limits becomes zero.

    No record within the stated bounds is beyond them. Everything is elementwise, so that the result does not depend
    on a record's position.
    """
    (row, label), (square, height) = integer_units(data), integer_limits(data)
    weights = np.ones(len(block.labels)) if block.weights is None else np.sqrt(block.weights)
    with np.errstate(over="ignore", invalid="ignore"):
        integers = np.trunc(block.rows * (weights * (_SHRINK_FACTOR / row))[:, None])
        labels = np.trunc(block.labels * (weights * (_SHRINK_FACTOR / label)))
        is_within = (np.einsum("ij,ij->i", integers, integers) <= square) & (np.abs(labels) <= height)
    return np.where(is_within[:, None], integers, 0.0), np.where(is_within, labels, 0.0)


class SufficientStatistics(FitMechanism[SufficientStatisticsSpec]):
    """Least squares from sufficient statistics: solve (G + n ridge I) theta = c with noisy G and c, over the set.

    Eigenvalues of the noisy G are raised to a floor, so that the equations can always be solved. The problem's loss
    is Clipped(Squared(), bound), but the bound is not used: moments need bounded rows and targets only, and the plain
    squared loss is minimised.

    Privacy
    -------
    The noisy G and c are one Gaussian mechanism; the coefficients are post-processing of them.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang (2014), Analyze Gauss, Algorithm 1.
    """

    def check_problem(self, spec: SufficientStatisticsSpec, problem: Problem) -> None:
        """Refuse losses other than the squared loss, whose minimiser alone is a function of the moments."""
        loss = problem.loss
        if not loss.unclipped_loss.is_quadratic:
            raise InvalidParameter(
                f"moments determine the minimiser of the squared loss only; the problem has the {loss.name} loss. "
                "Use Clipped(Squared(), bound) (any bound), or another mechanism."
            )

    def execute(self, inputs: MechanismInput[SufficientStatisticsSpec]) -> MechanismOutput:
        """Return the solution; everything after the noise is post-processing."""
        spec, data, draws = inputs.spec, inputs.data, NoiseDraws.of(inputs)
        return MechanismOutput(value=data.problem.constraint.project(_solve_noisy_moments(spec, data, draws)))


def _solve_noisy_moments(spec: SufficientStatisticsSpec, data: Dataset, draws: NoiseDraws) -> Floats:
    problem = data.problem
    gram, cross = (
        release_secure_moments(spec, data, draws.source)
        if spec.secure
        else _release_noisy_moments(spec, data, draws.rng)
    )
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, spec.eigenvalue_floor) + problem.n * problem.ridge
    solution = vectors @ ((vectors.T @ cross) / values)
    if isinstance(problem.constraint, WholeSpace):
        return np.asarray(solution)
    matrix = (vectors * values) @ vectors.T
    accuracy = 1e-10 * float(np.linalg.norm(cross))
    return minimize_quadratic(matrix, -cross, problem.constraint, solution, accuracy)


def _release_noisy_moments(
    spec: SufficientStatisticsSpec, data: Dataset, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    gram, cross = second_moments(data)
    noisy = gram + spec.gram_noise_std * sample_symmetric_noise(len(cross), rng)
    return noisy, cross + spec.cross_noise_std * rng.standard_normal(len(cross))


def sample_symmetric_noise(size: int, rng: np.random.Generator) -> Floats:
    """Sample symmetric noise, isotropic in the Frobenius norm: N(0, 1) on the diagonal, N(0, 1/2) off it."""
    draws = rng.standard_normal((size, size))
    symmetric: Floats = (draws + draws.T) / 2
    return symmetric


def plan_sufficient_statistics(request: Request) -> FitPlan:
    """Plan the release of a noisy Gram matrix and cross moments, for the squared loss."""
    if not request.make_loss(None).is_quadratic:
        raise InvalidParameter(
            f"mechanism='sufficient-statistics' is for model='ridge' only, got {request.model!r}; leave it at 'auto'."
        )
    problem = request.make_problem(1.0, 0.0)
    spec = calibrate_sufficient_statistics(
        problem.constants, epsilon=request.epsilon, delta=request.delta, secure=request.is_exact
    )
    rows, size, p = problem.row_norm, request.defaults.coef_bound / 2, request.dimension
    tilt = (spec.cross_noise_std / rows) ** 2 + (spec.gram_noise_std / rows**2) ** 2 * p * size**2 / 2
    floor = spec.eigenvalue_floor / (rows**2 * request.weight_bound)
    return FitPlan(
        model=request.model,
        plan=Plan(problem=problem, spec=spec, delta=request.delta, theorem=request.theorem),
        reasons=(
            "the Gram matrix and the cross moments get equal fractions of the budget",
            f"eigenvalues below {spec.eigenvalue_floor:.3g}, the size of the noise, are raised to it: the "
            "equations can always be solved",
        ),
        predicted_excess_risk=risk.ridge_risk(
            ridge=floor, noise_square=p * tilt, size=size, dimension=p, n=request.n
        ),
        warning=low_signal_warning(request, request.effective_n(pure=False) / request.n_columns),
    )
