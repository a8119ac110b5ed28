"""The planner of least squares from noisy moments."""

from __future__ import annotations

from dplangevin.accounting.plan import Plan
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.moments.spec import calibrate_sufficient_statistics
from dplangevin.planner import fit_plan as risk
from dplangevin.planner.fit_plan import FitPlan, Request, low_signal_warning


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
