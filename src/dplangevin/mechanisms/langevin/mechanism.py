"""Langevin dynamics as a mechanism, full-batch gradient steps with the noise of the diffusion; and its planner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dplangevin import _check
from dplangevin.accounting.plan import Plan
from dplangevin.mechanisms.exponential.planning import add_gaussian_ridge
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.langevin.temperatures import (
    LangevinChoice,
    choose_langevin_run,
    choose_stated_run,
    max_start_distance,
)
from dplangevin.mechanisms.noisy_gradient.mechanism import NoisyGradientDescent
from dplangevin.planner.fit_plan import FitPlan, Request
from dplangevin.problem import Problem


class LangevinDynamics(NoisyGradientDescent):
    """Langevin steps theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)), with the plan's spec.

    Parameters
    ----------
    n_steps, stop : as in `NoisyGradientDescent`. With release="trajectory" `stop` may end the run at any time: the
        guarantee covers every iterate (Lemma C.1), so that a rule may look at all of them.

    Privacy
    -------
    The plan's guarantee covers the released iterates only (`spec.release`).

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), equations (1) and (2); Ganesh, Thakurta and Upadhyay (2023), Lemma 2.2.

    Examples
    --------
    >>> from dplangevin.accounting.plan import Plan
    >>> from dplangevin.data.dataset import ArrayDataset
    >>> from dplangevin.problem import DataBounds, Logistic, Problem
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=4, n_features=1)
    >>> spec = LangevinSpec(inverse_temperature=2.0, time=1.0, n_steps=8, release="trajectory")
    >>> plan = Plan(problem=problem, spec=spec, delta=1e-6)
    >>> data = ArrayDataset([[0.5], [1.0], [-1.0], [-0.5]], [1, 1, 0, 0], problem)
    >>> release = LangevinDynamics(stop=lambda step, theta: step == 3).run(plan, data)
    >>> release.n_steps, sorted(release.iterates)
    (3, [1, 2, 3])
    """

    spec_type = LangevinSpec


STATED_PARAMETERS = ("inverse_temperature", "time", "n_steps")


def plan_langevin(request: Request) -> FitPlan:
    """Plan Langevin diffusion: temperatures, time, steps and what is released, with the smallest risk bound.

    Where temperature, time or steps are stated, the uniform average of the run of Theorem F.1 is released. Without a
    stated ridge, the problem as it is (uniform average) is compared with one that has a ridge (weighted average or
    last iterate), the bias of which counts as risk.
    """
    population, mu = request.objective == "population", request.mu * (1 - 1e-7)
    if request.mechanism_options:
        problem = request.make_problem(request.needed_clip, 0.0)
        choice = choose_stated_run(problem, mu, **_check_options(request.mechanism_options))
        return _make_fit_plan(request, problem, choice)
    problems = [request.make_problem(request.needed_clip, 0.0)]
    if request.alpha is None:
        problems.append(add_gaussian_ridge(request))
    candidates = [(problem, choose_langevin_run(problem, mu, population=population)) for problem in problems]
    problem, choice = min(candidates, key=lambda pair: _predict_risk(pair[0], pair[1], population))
    return _make_fit_plan(request, problem, choice)


def _make_fit_plan(request: Request, problem: Problem, choice: LangevinChoice) -> FitPlan:
    return FitPlan(
        model=request.model,
        plan=Plan(problem=problem, spec=choice.spec, delta=request.delta, theorem=choice.theorem),
        reasons=(*choice.describe(), *_explain_risk(problem, choice)),
        predicted_excess_risk=_predict_risk(problem, choice, request.objective == "population"),
    )


def _check_options(options: Mapping[str, float]) -> dict[str, Any]:
    """Return the stated parameters of the run after checking their names."""
    for name in options:
        _check.check_choice("an option of mechanism='langevin'", name, STATED_PARAMETERS)
    return dict(options)


def _predict_risk(problem: Problem, choice: LangevinChoice, population: bool) -> float:
    bias = problem.ridge / 2 * max_start_distance(problem) ** 2
    return choice.excess_risk + bias + (choice.stability if population else 0.0)


def _explain_risk(problem: Problem, choice: LangevinChoice) -> tuple[str, ...]:
    """Return the ridge and the bound for new records, which is known on a bounded set."""
    ridge = f"ridge alpha = {problem.ridge:.3g} per record"
    if not math.isfinite(problem.constants.diameter):
        return (f"{ridge}; no bound for new records without a radius, since the coefficients are unbounded",)
    bound = _predict_risk(problem, choice, population=True)
    return (f"{ridge}; on new records an excess of at most {bound:.3g}",)
