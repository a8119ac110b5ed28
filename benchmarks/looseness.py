"""How loose each theorem is: claimed epsilon over the epsilon that an exact attack attains. Writes LOOSENESS.md.

Usage: python benchmarks/looseness.py > benchmarks/LOOSENESS.md. Every theorem of the registry has a row, in which a
ratio of 1 is perfect. An attack is a pair of neighbours whose releases have laws in closed form or on a grid, so that
the epsilon it attains is computed and not estimated. Where no such attack is known here, the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench_looseness import CASES
from scipy.optimize import brentq

from dplangevin import account, lower_bound_epsilon
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import certify_plan
from dplangevin.accounting.registry import load_theorems
from dplangevin.accounting.theorem import Theorem
from dplangevin.errors import DplangevinError
from dplangevin.mechanisms.learned_schema.spec import calibrate_learned_schema
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec
from dplangevin.mechanisms.noisy_answers.noisy_counts import GeneralizedGaussianMechanism
from dplangevin.mechanisms.noisy_answers.theorem import calibrate_noisy_max, calibrate_noisy_sums
from dplangevin.mechanisms.noisy_gradient.options import parse_descent_options
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
    minimizer_sensitivity,
)
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem.constants import Constants

DELTA = 1e-6


@dataclass(frozen=True)
class Cell:
    """One cell: where, claimed and attained epsilon."""

    where: str
    claimed: float
    attained: float

    @property
    def ratio(self) -> float:
        return self.claimed / self.attained


Attack = Callable[[], Iterator[Cell]]


def gradient_cells(name: str) -> Iterator[Cell]:
    """Yield the cells of the tightness benchmark in which a theorem about noisy gradients holds, and three more."""
    more = {"n": 1000, "lipschitz": 1.0, "noise_std": 0.02, "step_size": 1.0, "delta": DELTA}
    smooth = {"n_steps": 200, "smoothness": 1.0}
    cells = [(what, options) for what, options, *_ in CASES]
    cells += [
        ("full batch, 50 steps, all released", {**more, "n_steps": 50, "release": "trajectory"}),
        ("cyclic, 20 epochs of 10 batches", {**more, **smooth, "batch_size": 100, "sampling": "cyclic"}),
        ("full batch, ridge 0.1, 200 steps, the last", {**more, **smooth, "strong_convexity": 0.1}),
    ]
    for what, options in cells:
        delta = float(options["delta"])  # type: ignore[arg-type]
        run = {key: value for key, value in options.items() if key != "delta"}
        try:
            claimed = account(**options, theorem=name).epsilon(delta)  # type: ignore[arg-type]
        except DplangevinError:
            continue
        attained = lower_bound_epsilon(*parse_descent_options(**run), delta)
        if attained and math.isfinite(claimed):
            yield Cell(what, claimed, attained)


def whitened_cells() -> Iterator[Cell]:
    """Yield the rows of a replaced record at the worst angle, in coordinates that keep angles, and one added record."""
    for adjacency in ("add-remove", "replace-one"):
        for epsilon in (0.1, 1.0):
            plan = plan_fit(
                model="logistic", n=30_000, n_features=20, epsilon=epsilon, delta=DELTA, adjacency=adjacency,
                data_norm=1.0, fit_intercept=False,
            ).plan  # fmt: skip
            spec: Any = plan.spec
            constants = plan.constants
            gradient = constants.lipschitz / constants.row_norm / constants.n
            steps = (spec.n_steps - spec.n_approach_steps) / spec.noise_std**2
            steps += spec.n_approach_steps / spec.approach_noise_std**2
            moments = spec.n_moment_releases / (constants.n * spec.moment_noise_std) ** 2
            counts = 0.0 if spec.count_noise_std is None else 1 / (constants.n * spec.count_noise_std) ** 2
            slopes = gradient**2 * steps
            if adjacency == "add-remove":
                square = moments + counts + slopes
            else:
                angle = min(1.0, slopes / (2 * moments))  # one weight, opposite slopes or rows
                square = 2 * moments * (1 - angle**2) + 2 * slopes * (1 + angle) + 2 * counts
            attained = cv.gdp_epsilon(math.sqrt(square), DELTA)
            yield Cell(f"{adjacency}, epsilon {epsilon:g}", plan.guarantee.epsilon(DELTA), attained)


def moment_cells() -> Iterator[Cell]:
    """Yield rows at the worst angle, found on a grid of angles in the plane."""
    for gram, cross in ((20.0, 20.0), (20.0, 80.0)):
        constants = Constants(n=1000, lipschitz=1.0, row_norm=1.0, label_bound=1.0)
        spec = SufficientStatisticsSpec(gram_noise_std=gram, cross_noise_std=cross, eigenvalue_floor=1.0)
        cosines = np.linspace(-1, 1, 20_001)
        squares = 2 * (1 - cosines**2) / gram**2 + 2 * (1 - cosines) / cross**2
        claimed = certify_plan(constants, spec, delta=DELTA).epsilon(DELTA)
        yield Cell(f"noise {gram:g}, {cross:g}", claimed, cv.gdp_epsilon(math.sqrt(squares.max()), DELTA))


def answer_cells(kind: str) -> Iterator[Cell]:
    """Yield answers whose worst change is a single shift of known law."""
    for epsilon in (0.1, 1.0):
        where = f"epsilon {epsilon:g}"
        if kind == "sums":
            groups = [(4, 1.0, 0.5), (1, 1.0, 0.5)]
            spec: Any = calibrate_noisy_sums(
                groups, epsilon=epsilon, delta=DELTA, noise="gaussian", adjacency="replace-one"
            )
            shift = math.hypot(
                *(group.sensitivity("gaussian", "replace-one") / group.scale for group in spec.groups)
            )
            yield Cell(
                where, certify_plan(None, spec, delta=DELTA).epsilon(DELTA), cv.gdp_epsilon(shift, DELTA)
            )
        elif kind == "max":
            spec = calibrate_noisy_max(candidates=2, unit=1.0, epsilon=epsilon, adjacency="replace-one")
            gaps = np.array(
                [4.0, 2.0]
            )  # the worse of two candidates wins with probability exp(-gap / scale) / 2
            attained = float(np.ptp(gaps)) / spec.scale
            yield Cell(where, certify_plan(None, spec, delta=0.0).epsilon(0.0), attained)
        elif kind == "norm":
            mechanism = GeneralizedGaussianMechanism(k=20, epsilon=epsilon, delta=0.0, p=math.inf)
            yield Cell(where, mechanism.guarantee.epsilon(0.0), mechanism.sensitivity / mechanism.sigma)
        else:
            mechanism = GeneralizedGaussianMechanism(k=20, epsilon=epsilon, delta=DELTA, p=2.0)
            shift = math.sqrt(2 * mechanism.changed_counts) * mechanism.sensitivity / mechanism.sigma
            yield Cell(where, mechanism.guarantee.epsilon(DELTA), cv.gdp_epsilon(shift, DELTA))


def schema_cells() -> Iterator[Cell]:
    """Yield a record that alone has its labels: listed with the stated probability, else only its counts move."""
    for mu in (0.03, 0.3):
        spec = calibrate_learned_schema(
            n_numbers=3, n_cells=129, n_categories=2, mu=mu, threshold_delta=1e-7, adjacency="add-remove"
        )
        rare, shift = spec.threshold_delta, spec.sensitivity / spec.scale * math.sqrt(3 / 5)

        def excess(epsilon: float, rare: float = rare, shift: float = shift) -> float:
            return rare + (1 - rare) * float(cv.gdp_delta(shift, epsilon)) - DELTA

        yield Cell(
            f"mu {mu:g}", certify_plan(None, spec, delta=DELTA).epsilon(DELTA), brentq(excess, 0.0, 50.0)
        )


def minimizer_cells(noise: str) -> Iterator[Cell]:
    """Yield the law of the minimiser of logistic losses in one dimension, on a grid; the release noise is left out."""
    for adjacency in ("add-remove", "replace-one"):
        for ridge in (0.001, 0.05):
            delta = 0.0 if noise == "gamma" else DELTA
            constants = Constants(
                n=200, lipschitz=1.0, smoothness=0.25 + ridge, strong_convexity=ridge, dimension=1, hessian_rank=1,
                adjacency=adjacency,  # type: ignore[arg-type]
            )  # fmt: skip
            spec = calibrate_objective_perturbation(constants, epsilon=2.0, delta=delta)
            power = 1 if noise == "gamma" else 2
            theta = np.linspace(-400, 400, 400_001)
            slope = 1 / (1 + np.exp(-theta))
            total = constants.n * ridge

            def law(positive: int, negative: int, at: Any = (total, spec, theta, slope, power)) -> Any:
                total, spec, theta, slope, power = at
                size = np.abs(total * theta + negative * slope - positive * (1 - slope)) / spec.density_scale
                return -(size**power) / power + np.log(total + (positive + negative) * slope * (1 - slope))

            best = 0.0
            for positive, negative in ((0, 0), (99, 99), (199, 0), (0, 199), (50, 149)):
                first = law(positive + 1, negative)
                second = law(positive, negative + (adjacency == "replace-one"))
                masses = [np.exp(each - each.max()) for each in (first, second)]
                p, q = (mass / mass.sum() for mass in masses)
                for one, other in ((p, q), (q, p)):
                    best = max(best, _epsilon_of_masses(one, other, delta))
            claimed = certify_plan(constants, spec, delta=delta).epsilon(delta)
            yield Cell(f"logistic, {adjacency}, ridge {ridge:g}", claimed, best)


def _epsilon_of_masses(p: Any, q: Any, delta: float) -> float:
    inside = (p > 1e-250) & (q > 1e-250)
    losses = np.log(p[inside] / q[inside])
    if delta == 0:
        return float(losses.max())

    def excess(epsilon: float) -> float:
        return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 50.0))


def output_cells() -> Iterator[Cell]:
    """Yield two records whose slopes are at their bound on both sides of both minimisers."""
    for epsilon in (0.1, 1.0):
        constants = Constants(
            n=1000, lipschitz=1.0, smoothness=0.25 + 0.01, strong_convexity=0.01, dimension=5
        )
        spec = calibrate_output_perturbation(constants, epsilon=epsilon, delta=DELTA)
        shift = minimizer_sensitivity(constants, 0.0) / spec.density_scale
        claimed = certify_plan(constants, spec, delta=DELTA).epsilon(DELTA)
        yield Cell(f"epsilon {epsilon:g}", claimed, cv.gdp_epsilon(shift, DELTA))


EXACT: dict[str, tuple[str, Attack]] = {
    "whitened-composition": ("slopes at their bound, rows at the worst angle, unit coordinates", whitened_cells),
    "sufficient-statistics": ("two records at the worst angle in the plane", moment_cells),
    "noisy sums": ("Gaussian noise: one shift", lambda: answer_cells("sums")),
    "report noisy max": ("two candidates: the worse one wins", lambda: answer_cells("max")),
    "worst-shift": ("Gaussian noise: the worst shift", lambda: answer_cells("counts")),
    "norm noise": ("one shift, at delta = 0", lambda: answer_cells("norm")),
    "learned schema": ("labels of one record, and its counts", schema_cells),
    "objective-perturbation": ("law of the minimiser in one dimension", lambda: minimizer_cells("gamma")),
    "gaussian-objective-perturbation": ("law of the minimiser in one dimension", lambda: minimizer_cells("gaussian")),
    "output-perturbation": ("minimisers moved by records at their slope bound", output_cells),
}  # fmt: skip
"""The attack on each theorem that is not about noisy gradients, in words, and its cells."""


def theorem_kinds() -> list[type[Theorem[Any]]]:
    """Return every theorem of the registry, once."""
    load_theorems()
    found: dict[str, type[Theorem[Any]]] = {}
    pending = Theorem.__subclasses__()
    while pending:
        kind = pending.pop(0)
        pending += kind.__subclasses__()
        if "name" in vars(kind) and kind.__module__.startswith("dplangevin."):
            found.setdefault(kind.name, kind)
    return list(found.values())


def row(kind: type[Theorem[Any]]) -> str:
    """Return the row of one theorem."""
    is_gradient = "noisy_gradient" in kind.__module__
    attack = (
        "linear losses, and rotations of the plane" if is_gradient else EXACT.get(kind.name, ("", None))[0]
    )
    cells = (
        list(gradient_cells(kind.name))
        if is_gradient
        else list(EXACT[kind.name][1]())
        if kind.name in EXACT
        else []
    )
    if not cells:
        page = f": see {kind.proof}" if kind.proof else ""
        return f"| {kind.name} | | | | | none in this script{page} |"
    ordered = sorted(cells, key=lambda cell: cell.ratio)
    worst, typical = ordered[-1], ordered[len(ordered) // 2 - (len(ordered) % 2 == 0)]
    texts = [
        f"{cell.claimed:.4g} / {cell.attained:.4g} = {cell.ratio:.3f}: {cell.where}"
        for cell in (typical, worst)
    ]
    return f"| {kind.name} | {len(cells)} | {ordered[0].ratio:.3f} | {texts[0]} | {texts[1]} | {attack} |"


def main() -> None:
    """Print the page."""
    print(
        "# How loose each theorem is\n\n"
        "Claimed over attained epsilon; 1 is perfect. Attained is what an exact attack on two neighbours reaches,\n"
        "so the true value lies between. Written by `make bench` (`benchmarks/looseness.py`); delta is 1e-6, that of\n"
        "the cell in RESULTS.md, or 0 for pure guarantees. For theorems without numbers no attack is in this\n"
        "script: their pages and [audits](../docs/audit.md) have others. A theorem is not always the one that a plan\n"
        "uses in a cell: the tightest is.\n"
    )
    print("| theorem | cells | best | median cell | worst cell | attack |\n|---|---|---|---|---|---|")
    for kind in theorem_kinds():
        print(row(kind), flush=True)


if __name__ == "__main__":
    main()
