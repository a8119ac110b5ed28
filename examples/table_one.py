"""Table 1 of the Langevin paper as code: every row is planned, run once on synthetic data, and its rates are computed.

Usage: python examples/table_one.py [ROW ...]     (default: all rows; writes table_one.md)

A row is "pure" or "approximate", "convex", "strongly-convex" or "non-convex", and "erm" or "sco" (empirical or
population risk), joined by "/". The slopes are those of the risk bounds with explicit constants (log-log, n from 1e5 to
1e8 and p from 5 to 80); population rows have two terms, so the slope of the private term alone is given as well.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dplangevin import plan_sampler, run_plan
from dplangevin.accounting import gdp_mu
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms import SamplerPlan, exponential_temperature, plan_iterated, plan_stages
from dplangevin.problem import Ball, Constants, DataBounds, Logistic, Problem, Sigmoid, risk

EPSILON, DELTA = 1.0, 1e-6
MU = gdp_mu(EPSILON, DELTA)
RIDGE = 0.5
N, P = 3000, 2


def constants(n: float, p: float, ridge: float = 0.0) -> Constants:
    return Constants(
        n=int(n),
        lipschitz=1.0,
        smoothness=0.25 + ridge,
        strong_convexity=ridge,
        diameter=2.0,
        dimension=int(p),
    )


# --- the bounds: (n, p) -> (private term, statistical term) -------------------------------------------


def pure_convex(n: float, p: float) -> float:
    return risk.exponential_excess(int(p), exponential_temperature(constants(n, p), EPSILON))


def pure_strongly_convex(n: float, p: float) -> float:
    return plan_stages(constants(n, p, RIDGE), EPSILON, 1e-12, 1 + RIDGE).risk


def pure_non_convex(n: float, p: float) -> float:
    return risk.nonconvex_excess(int(p), exponential_temperature(constants(n, p), EPSILON), 1.0, 2.0)


def approximate_convex(n: float, p: float) -> float:
    return risk.langevin_convex_excess(int(p), MU, int(n), 1.0, 1.0)


def approximate_strongly_convex(n: float, p: float) -> float:
    return risk.langevin_strongly_convex_excess(int(p), MU, 2 / n, 1.0, RIDGE)[2]


def pure_convex_population(n: float, p: float) -> float:
    beta = exponential_temperature(constants(n, p), EPSILON)
    ridge = risk.regularized_exponential_ridge(1.0, 1.0, int(n))
    return risk.regularized_exponential_excess(int(p), beta, ridge, 1.0, 1.0, int(n))


def approximate_convex_population(n: float, p: float) -> float:
    return risk.langevin_convex_population_excess(int(p), MU, int(n), 1.0, 1.0)


def stable(bound: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda n, p: bound(n, p) + risk.gibbs_stability(1.0, RIDGE, int(n))


# --- the runs ------------------------------------------------------------------------------------------------


def problem(ridge: float, convex: bool = True) -> Problem:
    return Problem(
        loss=Logistic() if convex else Sigmoid(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=N,
        n_features=P,
        constraint=Ball(1.0),
        ridge=ridge,
        fit_intercept=False,
    )


def drawn(ridge: float, delta: float, tier: str, convex: bool = True, grid: int = 0) -> SamplerPlan:
    return plan_sampler(problem(ridge, convex), EPSILON, delta, tier, grid=grid, verbose=False)  # type: ignore[arg-type]


POPULATION_RIDGE = risk.regularized_exponential_ridge(1.0, 1.0, N)
ROWS = {
    "pure/convex/erm": (pure_convex, None, lambda: drawn(0.0, 0.0, "pure")),
    "pure/strongly-convex/erm": (pure_strongly_convex, None, lambda: plan_iterated(problem(RIDGE), EPSILON)),
    "pure/non-convex/erm": (pure_non_convex, None, lambda: drawn(0.0, 0.0, "exact", convex=False, grid=25)),
    "approximate/convex/erm": (approximate_convex, None, lambda: drawn(0.0, DELTA, "process")),
    "approximate/strongly-convex/erm": (
        approximate_strongly_convex,
        None,
        lambda: drawn(RIDGE, DELTA, "process"),
    ),
    # no better than pure: this is the lower bound for non-convex losses
    "approximate/non-convex/erm": (
        pure_non_convex,
        None,
        lambda: drawn(0.0, DELTA, "exact", convex=False, grid=25),
    ),
    "pure/convex/sco": (pure_convex_population, pure_convex, lambda: drawn(POPULATION_RIDGE, 0.0, "pure")),
    "pure/strongly-convex/sco": (
        stable(pure_strongly_convex),
        pure_strongly_convex,
        lambda: plan_iterated(problem(RIDGE), EPSILON, population=True),
    ),
    "approximate/convex/sco": (
        approximate_convex_population,
        approximate_convex,
        lambda: drawn(0.0, DELTA, "process"),
    ),
    "approximate/strongly-convex/sco": (
        stable(approximate_strongly_convex),
        approximate_strongly_convex,
        lambda: drawn(RIDGE, DELTA, "process"),
    ),
}


def slope(bound: Callable[[float, float], float], axis: str) -> float:
    """Least-squares slope of log bound against log n or log p."""
    if axis == "n":
        at = np.geomspace(1e5, 1e8, 7)
        values = [bound(n, 20) for n in at]
    else:
        at = np.array([5, 10, 20, 40, 80])
        values = [bound(1e7, p) for p in at]
    return float(np.polyfit(np.log(at), np.log(values), 1)[0])


def rows_of(size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    features = rng.standard_normal((size, P))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = rng.random(size) < 1 / (1 + np.exp(-features @ np.array([3.0, -2.0])))
    return features, labels.astype(float)


def measured(found: SamplerPlan, population: bool) -> float:
    """Excess of the released point over the best of a fine grid, on the training rows or on fresh ones."""
    of = found.plan.problem
    assert of is not None
    rng = np.random.default_rng(0)
    X, y = rows_of(N, rng)
    theta = run_plan(found.plan, ArrayDataset(X, y, of), rng).value
    if population:
        X, y = rows_of(50_000, rng)
    best, width = np.zeros((2, 1)), 1.0
    for _ in range(4):  # increasingly fine grids around the best point
        axis = width * np.linspace(-1, 1, 21)
        grid = best + np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
        grid = np.column_stack([grid[:, np.linalg.norm(grid, axis=0) <= 1], theta])
        values = of.loss.value(X @ grid, y[:, None]).mean(axis=0) + of.ridge / 2 * (grid**2).sum(axis=0)
        best, width = grid[:, [int(values.argmin())]], width / 8
    return float(values[-1] - values.min())


def line(name: str) -> str:
    bound, private, plan = ROWS[name]
    found = plan()
    rates = [f"{slope(bound, axis):+.2f}" for axis in ("n", "p")]
    if private is not None:
        rates = [
            f"{rate} ({slope(private, axis):+.2f})" for rate, axis in zip(rates, ("n", "p"), strict=True)
        ]
    guarantee = found.plan.guarantee
    delta = DELTA if name.startswith("approximate") else 0.0
    return (
        f"| {name} | {found.plan.spec.mechanism} | {found.tier} | {guarantee.epsilon(delta):.3f} | {rates[0]} | "
        f"{rates[1]} | {bound(N, P):.2g} | {measured(found, name.endswith('sco')):.2g} |"
    )


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if name in ROWS]
    lines = [
        f"Risk bounds at epsilon = {EPSILON:g} (delta = {DELTA:g}); one run at n = {N}, p = {P}.",
        "",
        "| row | mechanism | tier | epsilon | slope in n | slope in p | bound | measured |",
        "|---|---|---|---|---|---|---|---|",
        *(line(name) for name in wanted or ROWS),
    ]
    Path("table_one.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
