"""The recipe of noisy moments."""

from __future__ import annotations

from dplangevin.errors import InvalidParameter
from dplangevin.families.moments.theorem import calibrated_sufficient_statistics
from dplangevin.planner import risk
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request, caution
from dplangevin.privacy.plan import Plan


def sufficient_statistics(request: Request) -> Recipe:
    """Noisy Gram matrix and cross moments, for the squared loss."""
    if not request.loss(None).is_quadratic:
        raise InvalidParameter(
            f"mechanism='sufficient-statistics' is for model='ridge' only, got {request.model!r}; leave it at 'auto'."
        )
    problem = request.problem(1.0, 0.0)
    schedule = calibrated_sufficient_statistics(
        problem.constants, epsilon=request.epsilon, delta=request.delta, secure=request.secure
    )
    rows, size, p = problem.row_norm, request.shape.reach / 2, request.dimension
    tilt = (schedule.cross_noise_std / rows) ** 2 + (schedule.gram_noise_std / rows**2) ** 2 * p * size**2 / 2
    floor = schedule.eigenvalue_floor / (rows**2 * request.weight_bound)
    return Recipe(
        model=request.model,
        plan=Plan(problem=problem, schedule=schedule, delta=request.delta, theorem=request.theorem),
        reasons=(
            "Gram matrix and cross moments get equal shares of the budget",
            f"eigenvalues below {schedule.eigenvalue_floor:.3g}, the size of the noise, are raised to it: the "
            "equations can always be solved",
        ),
        predicted_excess_risk=risk.ridge_risk(
            ridge=floor, noise_square=p * tilt, size=size, dimension=p, n=request.n
        ),
        caution=caution(request, request.records(pure=False) / request.columns),
    )
