"""Least squares from noisy moments: always solvable, whatever the noise."""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data._moments import moments as moments
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.families._minimise import quadratic_minimiser
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.moments.integers import secure_moments
from dplangevin.families.moments.schedule import SufficientStatisticsSchedule
from dplangevin.problem import Problem, WholeSpace


class SufficientStatistics(FitMechanism[SufficientStatisticsSchedule]):
    """Release G + noise and c + noise, floor the eigenvalues of G, and solve (G + n ridge I) theta = c over the set.

    The problem's loss is Clipped(Squared(), bound): the bound plays no part here, since moments need bounded rows
    and targets only, and the plain squared loss is minimised.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang (2014), Analyze Gauss, Algorithm 1.
    """

    def check(self, schedule: SufficientStatisticsSchedule, problem: Problem) -> None:
        """Only the squared loss is a function of moments."""
        loss = problem.loss
        if not loss.plain.is_quadratic:
            raise InvalidParameter(
                f"moments determine the minimiser of the squared loss only; the problem has the {loss.name} loss. "
                "Use Clipped(Squared(), bound) (any bound), or another mechanism."
            )

    def draw(self, run: Fit[SufficientStatisticsSchedule]) -> Draw:
        """The solution; everything after the noise is post-processing."""
        schedule, data, rng = run.schedule, run.data, run.rng
        return Draw(value=data.problem.constraint.project(_solution(schedule, data, rng)))


def _solution(schedule: SufficientStatisticsSchedule, data: Dataset, rng: np.random.Generator) -> Floats:
    problem = data.problem
    gram, cross = secure_moments(schedule, data) if schedule.secure else _noisy_moments(schedule, data, rng)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, schedule.eigenvalue_floor) + problem.n * problem.ridge
    solution = vectors @ ((vectors.T @ cross) / values)
    if isinstance(problem.constraint, WholeSpace):
        return np.asarray(solution)
    matrix = (vectors * values) @ vectors.T
    accuracy = 1e-10 * float(np.linalg.norm(cross))
    return quadratic_minimiser(matrix, -cross, problem.constraint, solution, accuracy)


def _noisy_moments(
    schedule: SufficientStatisticsSchedule, data: Dataset, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    gram, cross = moments(data)
    noisy = gram + schedule.gram_noise_std * symmetric_noise(len(cross), rng)
    return noisy, cross + schedule.cross_noise_std * rng.standard_normal(len(cross))


def symmetric_noise(size: int, rng: np.random.Generator) -> Floats:
    """Isotropic in the Frobenius norm: N(0, 1) on the diagonal, N(0, 1/2) off it."""
    draws = rng.standard_normal((size, size))
    symmetric: Floats = (draws + draws.T) / 2
    return symmetric
