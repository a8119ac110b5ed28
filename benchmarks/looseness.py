"""How loose each theorem is: claimed epsilon over the epsilon that an exact attack attains. Writes LOOSENESS.md.

Usage: python benchmarks/looseness.py > benchmarks/LOOSENESS.md. Every theorem of the registry has a row, in which a
ratio of 1 is perfect. An attack is a pair of neighbours whose releases have laws in closed form or on a grid, so that
the epsilon it attains is computed and not estimated. Theorems without an attack of their own here get the random trials
of tests/privacy/_accountant_others.py, by which the fuzz tests attack them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from bench_looseness import CASES
from scipy.optimize import brentq, minimize
from scipy.special import ndtr

from dplangevin import account, lower_bound_epsilon
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import Theorem, certify_plan
from dplangevin.accounting.registry import load_theorems, theorems_for
from dplangevin.errors import DplangevinError
from dplangevin.mechanisms.learned_schema.spec import calibrate_learned_schema
from dplangevin.mechanisms.moments.spec import SufficientStatisticsSpec
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism
from dplangevin.mechanisms.noisy_answers.spec import calibrate_noisy_max, calibrate_noisy_sums
from dplangevin.mechanisms.noisy_gradient.spec import parse_descent_options
from dplangevin.mechanisms.perturbation.spec import (
    calibrate_objective_perturbation,
    calibrate_output_perturbation,
    minimizer_sensitivity,
)
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem.constants import Constants

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from privacy._accountant_others import THEOREM_KINDS

DELTA = 1e-6
N_TRIALS = 40


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


def trial_cells(name: str) -> Iterator[Cell]:
    """Yield random trials of the fuzz tests, where the attack attains between .01 and 30."""
    rng = np.random.default_rng(38)
    for number, draw in enumerate(islice(cycle(THEOREM_KINDS[name]), N_TRIALS), 1):
        trial = draw(rng)
        theorem = theorems_for(type(trial.spec)).get(name)
        try:
            claimed = theorem.certify(trial.constants, trial.spec).epsilon(DELTA) if theorem else math.inf
        except DplangevinError:
            continue

        def excess(epsilon: float, trial: Any = trial) -> float:
            return float(trial.truth(epsilon)) - DELTA

        if math.isfinite(claimed) and excess(0.01) > 0 > excess(30.0):
            attained = float(brentq(excess, 0.01, 30.0))
            yield Cell(f"{trial.kind}, trial {number}", claimed, attained)


WIDTHS, KAPPAS, KNOTS = (5.0, 10.0, 20.0), (0.05, 0.2, 1.0, 4.0), 16


def varying_drift_rows() -> Iterator[str]:
    """Yield endless convex runs: proved, attained by a constant drift, and by a drift that changes in time."""
    delta = 1e-5
    for width in WIDTHS:
        for kappa in KAPPAS:
            step = 500 * kappa / width  # noise 1 on the iterate, which a record moves by kappa / width
            options = {"n": 1000, "lipschitz": 1.0, "smoothness": 1e-4, "diameter": width, "step_size": step}
            options |= {"noise_std": 1 / step, "n_steps": math.inf}
            proved = account(**options, delta=delta, theorem="block-recursion").epsilon(delta)  # type: ignore[arg-type]
            constant = lower_bound_epsilon(*parse_descent_options(**options), delta)
            assert constant
            drift = best_varying_drift(width, kappa, delta)
            varying = walk_with_drift(width, kappa, drift, delta, 400)[0]
            assert proved > varying
            yield (
                f"| {width:g} | {kappa:g} | {proved:.4g} | {constant:.4g} | {varying:.4g} | {proved / constant:.2f} | "
                f"{proved / varying:.2f} | {varying / constant:.2f} | "
                f"{', '.join(f'{-drift[-k]:.2f}' for k in (1, 3, 10, 30))} |"
            )


def walk_with_drift(width: float, kappa: float, drift: Any, delta: float, n_cells: int) -> tuple[float, Any]:
    """Return the epsilon of the best half-line for x -> clamp(x + g_t +- s/2 + N(0, 1)), and its gradient in g.

    s = kappa / width. The start is 0, the lower end; a point of the grid gets the mass of the cell around it.
    """
    grid = np.linspace(0, width, n_cells + 1)
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    shifts = (kappa / width / 2, -kappa / width / 2)
    laws = [np.eye(n_cells + 1)[[0]].repeat(len(drift) + 1, axis=0) for _ in shifts]
    for t, move in enumerate(drift):
        for law, shift in zip(laws, shifts, strict=True):
            law[t + 1] = law[t] @ np.diff(ndtr(edges[None, :] - (grid + move + shift)[:, None]), axis=1)
    power, size = (law[-1, ::-1].cumsum()[::-1] for law in laws)
    ratios = np.log(np.maximum(power - delta, 1e-300) / np.maximum(size, 1e-300))
    cut = int(np.argmax(ratios))
    values = [(np.arange(n_cells + 1) >= cut).astype(float) for _ in shifts]
    gradient = np.zeros(len(drift))
    if n_cells > 200:  # evaluated only
        return float(ratios[cut]), gradient
    for t in reversed(range(len(drift))):
        for i, scale in enumerate((1 / (power[cut] - delta), -1 / size[cut])):
            z = edges[None, 1:-1] - (grid + drift[t] + shifts[i])[:, None]
            falls = values[i][:-1] - values[i][1:]
            gradient[t] -= scale * float(laws[i][t] @ (np.exp(-z * z / 2) @ falls)) / math.sqrt(2 * math.pi)
            values[i] = values[i][-1] + ndtr(z) @ falls
    return float(ratios[cut]), gradient


def best_varying_drift(width: float, kappa: float, delta: float) -> Any:
    """Return drifts g_t of 2 width^2 steps that attain most, linear in the logarithm of the steps that are left."""
    left = np.log(np.arange(round(2 * width**2), 0, -1))
    knots = np.linspace(0, left[0], KNOTS)
    basis = np.array([np.interp(left, knots, row) for row in np.eye(KNOTS)])

    def loss(heights: Any) -> tuple[float, Any]:
        value, gradient = walk_with_drift(width, kappa, heights @ basis, delta, 100)
        return -value, -(basis @ gradient)

    start = -0.6 * math.sqrt(-math.log(delta) / 2) * np.exp(-knots / 2)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 40})
    return found.x @ basis


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
        attack = "random trials: " + "; ".join(
            dict.fromkeys(_first_sentence(each) for each in THEOREM_KINDS[kind.name])
        )
        cells = list(trial_cells(kind.name))
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


def _first_sentence(draw: Callable[..., Any]) -> str:
    text = " ".join((draw.__doc__ or "").split()).split(". ")[0].rstrip(".")
    return text[:1].lower() + text[1:]


def main() -> None:
    """Print the page."""
    print(
        "# How loose each theorem is\n\n"
        "Claimed over attained epsilon; 1 is perfect. Attained is what an exact attack on two neighbours reaches,\n"
        "so the true value lies between. Written by `make bench` (`benchmarks/looseness.py`); delta is 1e-6, that of\n"
        "the cell in RESULTS.md, or 0 for pure guarantees. Random trials (seed 38) are those of the fuzz tests where\n"
        "they attain between .01 and 30: their worst cell is often a weak attack, not a loose theorem. A theorem is\n"
        "not always the one that a plan uses in a cell: the tightest is.\n"
    )
    print("| theorem | cells | best | median cell | worst cell | attack |\n|---|---|---|---|---|---|")
    for kind in theorem_kinds():
        print(row(kind), flush=True)
    print(
        "\n## Endless convex runs\n\n"
        "The block recursion for runs of any length, delta 1e-5. Proofs by shifts and blocks hold for maps that vary\n"
        "from step to step, so what a common drift that varies attains is a lower bound for every proof of this kind\n"
        "([derivation](../docs/theory/noisy_sgd.md)). Drifts are away from the tested end, in units of v.\n\n"
        "| D / v | kappa | proved | attained, constant drift | attained, varying drift | proved / constant "
        "| proved / varying | varying / constant | drift 1, 3, 10, 30 steps before the end |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for line in varying_drift_rows():
        print(line, flush=True)


if __name__ == "__main__":
    main()
