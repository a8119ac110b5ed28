"""What is frozen: about 300 small results, each made from fixed seeds by a function without arguments.

Everything that calls the package stands in the first part, "Adapters", and imports by the table `PLACES`: after a
renaming, change that table and renames.toml ([options] for keyword arguments, [values] for names, [flags] for the
command line); the cases stay as they are. Keys of results, such as "coef", are labels of this file.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from golden.frozen import Document, flag_names, option_names

# --- Adapters: the only code here that knows the package ----------------------------------------------------------

PLACES = {
    "dplangevin": (
        "DPLogisticRegression DPLinearSVC DPRidge DPHuberRegressor DPQuantileRegressor "
        "DPPoissonRegressor DPAdditiveClassifier DPAdditiveRegressor DPModelSearch SchemaEncoder Schema "
        "Ledger Guarantee Plan CertifiedSpec Constants account calibrate plan_fit run_plan save_plan "
        "load_plan save_model load_model private_score private_selection plan_sampler check_schema "
        "choose_epsilon lower_bound_epsilon NoisyGradientSpec"
    ),
    "dplangevin.errors": ("BudgetExceeded DplangevinError"),
    "dplangevin.accounting.plan": ("certify_plan"),
    "dplangevin.accounting.registry": ("mechanism_for plannable_mechanisms spec_types"),
    "dplangevin.accounting.parts": ("Pure Gaussian Approximate BoundedRange SampledGaussian"),
    "dplangevin.problem": (
        "Problem DataBounds Ball Box WholeSpace Logistic Squared Mean Clipped Softmax Huber"
    ),
    "dplangevin.data": ("ArrayDataset"),
    "dplangevin.mechanisms.whitened.spec": ("WhitenedSpec"),
    "dplangevin.mechanisms.whitened_objective.spec": ("WhitenedObjectiveSpec"),
    "dplangevin.mechanisms.perturbation.spec": ("ObjectivePerturbationSpec OutputPerturbationSpec"),
    "dplangevin.mechanisms.moments.spec": ("SufficientStatisticsSpec"),
    "dplangevin.mechanisms.exponential.spec": ("ExponentialSpec GibbsSpec IteratedExponentialSpec"),
    "dplangevin.mechanisms.underdamped.spec": ("UnderdampedSpec"),
    "dplangevin.mechanisms.mirror_descent.spec": ("PublicMirrorSpec"),
    "dplangevin.mechanisms.mirror_descent.mechanism": ("PublicMirrorDescent"),
    "dplangevin.mechanisms.mirror_descent.mirror_map": ("QuadraticMap"),
    "dplangevin.mechanisms.rashomon.spec": ("RashomonSpec RashomonChainSpec"),
    "dplangevin.mechanisms.rashomon_region.spec": ("SlackSpec"),
    "dplangevin.mechanisms.noisy_answers.spec": (
        "NoisySumsSpec SumGroup NoisyMaxSpec NoisyAnswersSpec MaxNormSpec CorrectedAnswersSpec"
    ),
    "dplangevin.mechanisms.learned_schema.spec": ("LearnedSchemaSpec"),
    "dplangevin.mechanisms.repeated_selection.spec": ("RepeatedSelectionSpec"),
    "dplangevin.queries": ("count_queries count_marginals count_file column Marginals"),
    "dplangevin.rashomon": ("RashomonRegion RashomonSampler private_counts"),
    "dplangevin.cli.main": ("run_command_line:command_line"),
}
"""Module -> the names that are used from it; "name:alias" where the name is taken."""


def get(name: str) -> Any:
    """An object of the package by its alias, or its name."""
    for module, names in PLACES.items():
        for entry in names.split():
            if name == entry.rpartition(":")[2]:
                return getattr(import_module(module), entry.partition(":")[0])
    raise KeyError(name)


def make(name: str, /, *arguments: Any, **options: Any) -> Any:
    """Call an object of the package with keyword arguments in the names, and units, of this file."""
    return get(name)(*arguments, **option_names(options, name))


def numbers(guarantee: Any, deltas: tuple[float, ...] = (1e-3, 1e-6), epsilon: float = 0.5) -> dict[str, Any]:
    """Everything a guarantee says in numbers."""
    plain = guarantee.composition
    return {
        "epsilon": [guarantee.epsilon(delta) for delta in deltas],
        "delta": guarantee.delta(epsilon),
        "mu": guarantee.mu,
        "composition": None if plain is None else [plain.epsilon(delta) for delta in deltas],
        "theorem": guarantee.theorem,
        "kind": guarantee.kind,
        "conditions": len(guarantee.assumptions),
        "rows_per_person": guarantee.rows_per_person,
    }


def conversions(guarantee: Any) -> dict[str, Any]:
    """The same guarantee in other definitions."""
    return {
        "rdp": np.asarray(guarantee.rdp([2.0, 8.0, 32.0])),
        "zcdp": guarantee.zcdp(),
        "tradeoff": np.asarray(guarantee.tradeoff([0.01, 0.1, 0.5])),
        **numbers(guarantee),
    }


def certified(spec: Any, constants: Any = None, theorem: str | None = None) -> Any:
    """The guarantee of a spec."""
    return make("certify_plan", constants, spec, delta=1e-6, theorem=theorem)


def calibrated(**options: Any) -> Any:
    """The certified spec with the least noise."""
    return make("calibrate", **options)


def plan_of(problem: Any, spec: Any, delta: float = 1e-5, theorem: str | None = None) -> Any:
    """A plan that can be run."""
    return make("Plan", problem=problem, spec=spec, delta=delta, theorem=theorem)


def planned_fit(**options: Any) -> Any:
    """What the planner chooses, as a plan."""
    return make("plan_fit", **options).plan


def released(plan: Any, data: Any, seed: int = 7) -> dict[str, Any]:
    """A run of a plan that solves a problem."""
    release = make("run_plan", plan, data, seed)
    auxiliary = [np.asarray(release.auxiliary[name]) for name in sorted(release.auxiliary)]
    iterates = [np.asarray(release.iterates[step]) for step in sorted(release.iterates)]
    return {"value": np.asarray(release.value), "auxiliary": auxiliary, "iterates": iterates}


def answered(spec: Any, *exact: Any, seed: int = 7) -> dict[str, Any]:
    """A release of noisy answers."""
    certified_spec = make("CertifiedSpec", spec=spec, delta=1e-6)
    release = make("mechanism_for", type(spec)).run(certified_spec, lambda: list(exact), seed)
    return {"values": [np.asarray(value) for value in release.values]}


def mirrored(problem: Any, spec: Any, data: Any, seed: int = 7) -> dict[str, Any]:
    """Descent in a public geometry."""
    matrix = np.diag(np.linspace(0.5, 2.0, problem.dimension))
    mirror = make("QuadraticMap", matrix, start=np.zeros(problem.dimension), constraint=problem.constraint)
    release = make("PublicMirrorDescent", mirror).run(plan_of(problem, spec), data, seed)
    return {"value": np.asarray(release.value)}


def fitted(name: str, X: Any, y: Any, weights: Any = None, **options: Any) -> Any:
    """A fitted estimator."""
    more = {} if weights is None else {"sample_weight": weights}
    return make(name, **options).fit(X, y, **more)


def outputs(model: Any, X: Any, y: Any = None) -> dict[str, Any]:
    """Everything that a fitted estimator answers."""
    result = {"coef": np.asarray(model.coef_), "intercept": np.asarray(model.intercept_)}
    result |= {"predict": np.asarray(model.predict(X)), **numbers(model.privacy_)}
    if hasattr(model, "predict_proba"):
        result["proba"] = np.asarray(model.predict_proba(X))
    if y is not None:
        result["score"] = float(model.score(X, y))
    return result


def plan_file(plan: Any) -> Document:
    """A plan as its file says it, which must be read again."""
    return _file("plan.json", lambda path: (make("save_plan", plan, path), make("load_plan", path)))


def model_file(model: Any) -> Document:
    """A model as its file says it, which must be read again."""
    return _file("model.json", lambda path: (make("save_model", model, path), make("load_model", path)))


def _file(name: str, write: Callable[[Path], Any]) -> Document:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return Document(json.loads(path.read_text(encoding="utf-8")))


def command(lines: str, files: Mapping[str, str], reads: str = "") -> Document:
    """Run commands in a folder with these files; the JSON that the last one prints, or that is in the file `reads`."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in files.items():
            Path(name).write_text(text, encoding="utf-8")
        for line in lines.split(" && "):
            printed, errors = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
                code = make("command_line", flag_names(shlex.split(line)))
            assert code == 0, f"{line}: {errors.getvalue()}"
        text = Path(reads).read_text(encoding="utf-8") if reads else printed.getvalue()
    return Document(json.loads(text))


def guarantee(*parts: Any, adjacency: str = "replace-one", **more: Any) -> Any:
    """A guarantee of known parts."""
    return make(
        "Guarantee",
        parts=parts,
        adjacency=adjacency,
        release="draw",
        theorem="composition",
        reference="none",
        **more,
    )


def admissions(
    declared: Mapping[str, Any], releases: list[Any], parts: list[str] | None = None
) -> dict[str, Any]:
    """Which of these releases a ledger admits, one after the other, and what is left after each."""
    admitted, left = [], []
    with tempfile.TemporaryDirectory() as folder:
        ledger = get("Ledger").create(f"sqlite:///{folder}/ledger.db")
        budget = ledger.declare("table", **option_names(declared))
        for index, each in enumerate(releases):
            spender = budget if parts is None or not parts[index] else budget.for_part(parts[index])
            try:
                spender.charge(each)
                admitted.append("yes")
            except get("DplangevinError") as refusal:
                admitted.append(type(refusal).__name__)
            rest = budget.remaining()
            left.append([rest.pure_epsilon, rest.gaussian_mu, rest.gaussian_epsilon])
    return {"admitted": admitted, "left": np.array(left, dtype=float)}


# --- Records ------------------------------------------------------------------------------------------------------

N, WIDTH, BOTH = 60, 3, ("replace-one", "add-remove")


def records(
    classes: int = 2, low: float = -1.0, high: float = 1.0, norm: float = 2.0
) -> tuple[Any, Any, Any]:
    """Rows, targets and weights: some rows are longer than the norm."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((N, WIDTH)) * norm / 2
    score = X @ np.linspace(1.0, -0.5, WIDTH) + 0.3 * rng.standard_normal(N)
    if classes:
        y = np.clip(np.round((classes - 1) * (0.5 + score / norm / 2)), 0, classes - 1).astype(int)
        y[:classes] = np.arange(classes)
    else:
        y = np.clip(low + (high - low) * (0.5 + score / norm / 3), low, 1.2 * high)
    return X, y, rng.uniform(0.5, 2.5, N)


def table(n: int = N) -> pd.DataFrame:
    """A table with numbers, texts, missing cells and people."""
    rng = np.random.default_rng(12)
    frame = pd.DataFrame(
        {
            "age": rng.integers(15, 95, n).astype(float),
            "gain": rng.exponential(2000.0, n),
            "job": rng.choice(["a", "b", "c", "zz"], n),
            "who": rng.integers(0, n // 2, n),
        }
    )
    frame["y"] = np.where(frame.age + 5 * (frame.job == "a") + rng.normal(0, 10, n) > 55, "yes", "no")
    frame.loc[3, "age"], frame.loc[5, "gain"], frame.loc[7, "job"] = np.nan, np.nan, None
    return frame


FEATURES = ["age", "gain", "job"]
COLUMNS = {"age": {"range": [17, 90]}, "gain": {"range": [0, 9999]}, "job": {"categories": ["a", "b", "c"]}}
STATED: dict[str, Any] = {"version": 1, "columns": COLUMNS, "target": {"name": "y", "classes": ["no", "yes"]}}
NUMERIC = {
    **STATED,
    "columns": {"age": COLUMNS["age"], "job": COLUMNS["job"]},
    "target": {"name": "gain", "range": [0, 9999]},
}


def schema(content: Mapping[str, Any] = STATED) -> Any:
    return get("Schema").from_dict(content)


def learned(category: bool = True) -> Any:
    kinds = {"age": "number", "gain": "number"} | ({"job": "category"} if category else {})
    return get("Schema").learn(kinds, target=STATED["target"])


def problem(loss: str = "Logistic", adjacency: str = "replace-one", **changes: Any) -> tuple[Any, Any]:
    """A problem and its data set."""
    X, y, _ = records(2 if loss == "Logistic" else 0)
    target = {"classes": 2} if loss == "Logistic" else {"target": (-1.0, 1.0)}
    function = make(loss) if loss == "Logistic" else make("Clipped", make(loss), 0.5)
    options: dict[str, Any] = {
        "loss": function,
        "bounds": make("DataBounds", data_norm=2.0, **target),
        "n": N,
    }
    options |= {"n_features": WIDTH, "ridge": 0.1, "constraint": make("Ball", 1.0), "fit_intercept": False}
    stated = make("Problem", adjacency=adjacency, **(options | changes))
    return stated, make("ArrayDataset", X[:, : stated.n_features], y.astype(float), stated)


# --- Cases --------------------------------------------------------------------------------------------------------

CASES: dict[str, Callable[[], Any]] = {}


def case(name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """One entry of the table."""
    assert name not in CASES, name
    CASES[name] = partial(function, *arguments, **options)


# Guarantees by theorem

BASE = {
    "n": 1000,
    "lipschitz": 1.0,
    "smoothness": 0.3,
    "strong_convexity": 0.05,
    "diameter": 1.0,
    "dimension": 4,
    "hessian_rank": 1,
}
MOMENTS = BASE | {"row_norm": 1.0, "label_bound": 0.5}
FLAT = MOMENTS | {"strong_convexity": 0.0, "smoothness": 0.25, "diameter": math.inf}
FULL = {"step_size": 0.5, "noise_std": 0.05, "n_steps": 60}
BATCHES = {"step_size": 0.5, "noise_std": 0.4, "n_steps": 60, "batch_size": 50}
REPLACE: dict[str, Any] = {"adjacency": "replace-one"}
ANSWERS = {"answers": 20, "changed": 2, "sensitivity": 1.0, "p": 2.5, "sigma": 8.0}
SUMS = {"noise": "gaussian", "adjacency": "replace-one"}
LEARNED_COUNTS = {
    "n_numbers": 2,
    "n_cells": 9,
    "n_categories": 1,
    "scale": 8.0,
    "threshold": 60.0,
    "adjacency": "replace-one",
}
THEOREMS: list[tuple[str, str, Any, dict[str, Any], dict[str, Any]]] = [
    # spec, theorem, constants, fields, fields that differ in the second variant
    ("NoisyGradientSpec", "composition", BASE, FULL, {"release": "trajectory", "momentum": True}),
    ("NoisyGradientSpec", "opposite-records", BASE, BATCHES | {"sampling": "poisson"}, {"n_steps": 20}),
    ("NoisyGradientSpec", "optimal-shift", BASE, FULL, {"n_steps": math.inf}),
    ("NoisyGradientSpec", "cyclic-shift", BASE, BATCHES | {"sampling": "cyclic"}, {"n_steps": 120}),
    ("NoisyGradientSpec", "shuffled-shift", BASE, BATCHES | {"sampling": "shuffle"}, {"n_steps": 120}),
    (
        "NoisyGradientSpec",
        "secret-permutation",
        BASE,
        BATCHES | {"sampling": "shuffle"},
        {"noise_std": 0.6},
    ),
    ("NoisyGradientSpec", "block-recursion", BASE, FULL, {"noise_std": 0.08}),
    ("NoisyGradientSpec", "dobrushin", BASE | {"diameter": 0.02}, FULL, {"n_steps": math.inf}),
    (
        "NoisyGradientSpec",
        "hidden-state-sgd",
        BASE,
        BATCHES | {"sampling": "without-replacement"},
        {"n_steps": 30},
    ),
    (
        "NoisyGradientSpec",
        "every-step-shift",
        BASE,
        BATCHES | {"sampling": "without-replacement"},
        {"n_steps": 30},
    ),
    (
        "NoisyGradientSpec",
        "participation-start",
        BASE | {"adjacency": "add-remove"},
        BATCHES | {"sampling": "poisson", "step_size": 0.1},
        {"n_steps": 30},
    ),
    (
        "NoisyGradientSpec",
        "block-sgd",
        BASE,
        BATCHES | {"sampling": "without-replacement", "n_steps": 20},
        {"noise_std": 0.6},
    ),
    (
        "ObjectivePerturbationSpec",
        "objective-perturbation",
        BASE,
        {"density_scale": 3.0, "tolerance": 1e-6, "release_density_scale": 1e-3},
        {"density_scale": 5.0},
    ),
    (
        "ObjectivePerturbationSpec",
        "gaussian-objective-perturbation",
        BASE,
        {"density_scale": 3.0, "tolerance": 1e-6, "release_density_scale": 1e-3, "noise": "gaussian"},
        {"density_scale": 5.0},
    ),
    (
        "OutputPerturbationSpec",
        "output-perturbation",
        BASE,
        {"density_scale": 0.02, "tolerance": 1e-6, "noise": "gaussian"},
        {"noise": "gamma"},
    ),
    ("PublicMirrorSpec", "public-mirror-descent", BASE, FULL, {"n_steps": 120}),
    (
        "WhitenedSpec",
        "whitened-composition",
        MOMENTS,
        {
            "moment_noise_std": 0.01,
            "noise_std": 0.05,
            "n_steps": 32,
            "step_size": 4.0,
            "coef_bound": 10.0,
            "n_moment_releases": 2,
        },
        {"n_moment_releases": 1},
    ),
    (
        "WhitenedObjectiveSpec",
        "whitened-objective-perturbation",
        FLAT,
        {
            "moment_density_scale": 0.01,
            "ridge": 0.05,
            "density_scale": 10.0,
            "tolerance": 1e-6,
            "release_density_scale": 1e-4,
        },
        {"moment_density_scale": 0.02},
    ),
    (
        "SufficientStatisticsSpec",
        "sufficient-statistics",
        MOMENTS,
        {"gram_noise_std": 2.0, "cross_noise_std": 1.0, "eigenvalue_floor": 1.0},
        {"secure": True},
    ),
    (
        "RashomonSpec",
        "rashomon-draws",
        BASE,
        {
            "n_models": 3,
            "threshold": 0.05,
            "inverse_temperature": 100.0,
            "tolerance": 1e-6,
            "max_excess": 2.1,
        },
        {"n_models": 6},
    ),
    (
        "RashomonChainSpec",
        "rashomon-chains",
        BASE,
        {
            "n_models": 2,
            "threshold": 0.05,
            "inverse_temperature": 20.0,
            "tolerance": 1e-6,
            "full_lipschitz": 2.0,
            "step_size": 1e-3,
            "n_steps": 50,
            "ramp": 0.1,
        },
        {"n_steps": 100},
    ),
    (
        "NoisyMaxSpec",
        "report noisy max",
        None,
        REPLACE | {"candidates": 5, "unit": 1.0, "scale": 4.0},
        {"scale": 8.0},
    ),
    (
        "RepeatedSelectionSpec",
        "repeat and select",
        None,
        REPLACE | {"mu": 0.2, "repetitions": 10},
        {"law": "poisson"},
    ),
    ("LearnedSchemaSpec", "learned schema", None, LEARNED_COUNTS | {"noise": "gaussian"}, {"n_numbers": 1}),
    ("SlackSpec", "noisy slack", None, REPLACE | {"unit": 1.0, "scale": 8.0}, {"answers": 2}),
    ("NoisyAnswersSpec", "worst-shift", None, ANSWERS, {"p": 1.0, "rows_per_person": 2}),
    (
        "UnderdampedSpec",
        "underdamped-trajectory",
        BASE,
        {"inverse_temperature": 50.0, "step_size": 0.1, "n_steps": 40},
        {"friction": 3.0},
    ),
    (
        "MaxNormSpec",
        "norm noise",
        None,
        {"answers": 20, "changed": 4, "sensitivity": 1.0, "scale": 8.0},
        {"changed": 20, "secure": True},
    ),
    (
        "ExponentialSpec",
        "exponential-mechanism",
        BASE,
        {"inverse_temperature": 100.0},
        {"inverse_temperature": 50.0},
    ),
    (
        "ExponentialSpec",
        "strongly-convex-gibbs",
        BASE,
        {"inverse_temperature": 100.0},
        {"inverse_temperature": 50.0},
    ),
    (
        "GibbsSpec",
        "exponential-mechanism",
        BASE,
        {"inverse_temperature": 100.0},
        {"inverse_temperature": 50.0},
    ),
    (
        "GibbsSpec",
        "strongly-convex-gibbs",
        BASE,
        {"inverse_temperature": 100.0},
        {"inverse_temperature": 50.0},
    ),
]


def theorem_case(spec: str, theorem: str, constants: Any, fields: dict[str, Any]) -> dict[str, Any]:
    of = None if constants is None else make("Constants", **constants)
    return numbers(certified(make(spec, **fields), of, theorem))


def nested_case(which: str) -> dict[str, Any]:
    """Specs that are made of others."""
    if which == "iterated":
        stage = make("ExponentialSpec", inverse_temperature=100.0)
        spec = make("IteratedExponentialSpec", draws=(stage, stage), radii=(0.2,))
        return numbers(certified(spec, make("Constants", **BASE)))
    if which == "corrected":
        noise = make("NoisyAnswersSpec", **ANSWERS)
        fields = {"max_corrections": 2, "search_epsilon": 0.05, "answer_epsilon": 0.05, "threshold": 10.0}
        return numbers(certified(make("CorrectedAnswersSpec", noise=noise, **fields)))
    group = make("SumGroup", answers=3, unit=1.0, scale=4.0)
    other = make("SumGroup", answers=1, unit=2.0, scale=9.0)
    return numbers(
        certified(make("NoisySumsSpec", groups=(group, other), noise=which, adjacency="add-remove"))
    )


for _spec, _theorem, _constants, _fields, _change in THEOREMS:
    case(f"theorem/{_spec}/{_theorem}", theorem_case, _spec, _theorem, _constants, _fields)
    case(f"theorem/{_spec}/{_theorem}/changed", theorem_case, _spec, _theorem, _constants, _fields | _change)
    if _constants is not None and "adjacency" not in _constants and not _fields.get("batch_size"):
        case(
            f"theorem/{_spec}/{_theorem}/add-remove",
            theorem_case,
            _spec,
            _theorem,
            _constants | {"adjacency": "add-remove"},
            _fields,
        )
    elif _constants is None and "adjacency" in _fields:
        case(
            f"theorem/{_spec}/{_theorem}/add-remove",
            theorem_case,
            _spec,
            _theorem,
            None,
            _fields | {"adjacency": "add-remove"},
        )
for _which in ("iterated", "corrected", "gaussian", "gamma", "geometric"):
    case(f"theorem/nested/{_which}", nested_case, _which)

# Guarantees by options, calibration and composition

RUN = {"n": 10_000, "lipschitz": 1.0, "smoothness": 0.26, "strong_convexity": 0.01, "step_size": 1.0}
SMOOTH = {"n": 1000, "lipschitz": 1.0, "smoothness": 0.3, "strong_convexity": 0.05, "dimension": 4}
DRAWS = {"mechanism": "exponential", **SMOOTH, "diameter": 1.0}
CHAIN = {"mechanism": "underdamped", "n": 1000, "lipschitz": 1.0, "step_size": 0.1, "n_steps": 50}
ACCOUNTS: dict[str, dict[str, Any]] = {
    "full batch": RUN | {"noise_std": 0.012, "n_steps": 1000},
    "endless": RUN | {"noise_std": 0.012, "n_steps": math.inf},
    "add-remove": RUN | {"noise_std": 0.012, "n_steps": 1000, "adjacency": "add-remove"},
    "composition": {"n": 1000, "lipschitz": 1.0, "step_size": 1.0, "noise_std": 0.1, "n_steps": 10},
    "formulas": RUN | {"noise_std": "0.02/sqrt(t)", "step_size": "0.5/sqrt(t)", "n_steps": 40},
    "checkpoints": RUN
    | {"noise_std": 0.012, "n_steps": 100, "release": "checkpoints", "checkpoints": (50, 100)},
    "average": RUN | {"noise_std": 0.03, "n_steps": 100, "release": "average"},
    "momentum": RUN | {"noise_std": 0.03, "n_steps": 100, "momentum": True},
    "ball": RUN | {"noise_std": 0.012, "n_steps": 500, "diameter": 0.5},
    "cyclic": RUN | {"noise_std": 0.1, "n_steps": 300, "sampling": "cyclic", "batch_size": 100},
    "shuffle": RUN | {"noise_std": 0.1, "n_steps": 300, "sampling": "shuffle", "batch_size": 100},
    "without replacement": RUN
    | {"noise_std": 0.1, "n_steps": 100, "sampling": "without-replacement", "batch_size": 100},
    "poisson": RUN
    | {"noise_std": 0.1, "n_steps": 100, "sampling": "poisson", "batch_size": 100, "release": "average"},
    "poisson, add-remove": RUN
    | {"noise_std": 0.1, "n_steps": 100, "sampling": "poisson", "batch_size": 100, "adjacency": "add-remove"},
    "objective": SMOOTH | {"mechanism": "objective-perturbation", "density_scale": 5.0},
    "objective, gamma": SMOOTH
    | {"mechanism": "objective-perturbation", "density_scale": 5.0, "noise": "gamma"},
    "output": SMOOTH | {"mechanism": "output-perturbation", "density_scale": 0.1},
    "output, gamma": SMOOTH | {"mechanism": "output-perturbation", "density_scale": 0.1, "noise": "gamma"},
    "exponential": DRAWS | {"inverse_temperature": 100.0},
    "gibbs": DRAWS | {"mechanism": "gibbs", "inverse_temperature": 100.0},
    "underdamped": CHAIN | {"inverse_temperature": 100.0},
    "rashomon": DRAWS
    | {"mechanism": "rashomon", "n_models": 3, "threshold": 0.05, "inverse_temperature": 100.0},
    "counting": {"mechanism": "counting", "answers": 50, "changed": 2, "sigma": 9.0, "p": 3.0},
    "laplace": {
        "mechanism": "counting",
        "answers": 50,
        "sigma": 90.0,
        "p": 1.0,
        "adjacency": "add-remove",
    },
    "largest norm": {"mechanism": "largest-norm", "answers": 50, "changed": 5, "scale": 9.0},
}
CALIBRATIONS: dict[str, dict[str, Any]] = {
    "endless": RUN | {"n_steps": math.inf, "epsilon": 1.0, "delta": 1e-6},
    "full batch": RUN | {"n_steps": 1000, "epsilon": 0.5, "delta": 1e-6},
    "add-remove": RUN | {"n_steps": 1000, "epsilon": 0.5, "delta": 1e-6, "adjacency": "add-remove"},
    "trajectory": RUN | {"n_steps": 50, "epsilon": 1.0, "delta": 1e-6, "release": "trajectory"},
    "most steps": RUN | {"noise_std": 0.01, "epsilon": 1.0, "delta": 1e-6},
    "cyclic": RUN | {"n_steps": 300, "sampling": "cyclic", "batch_size": 100, "epsilon": 1.0, "delta": 1e-6},
    "mu": RUN | {"n_steps": 1000, "mu": 0.3},
    "zcdp": RUN | {"n_steps": 1000, "zcdp": 0.1},
    "rdp": RUN | {"n_steps": 1000, "rdp": (8.0, 0.5)},
    "objective": SMOOTH | {"mechanism": "objective-perturbation", "epsilon": 1.0, "delta": 1e-6},
    "objective, pure": SMOOTH
    | {"mechanism": "objective-perturbation", "noise": "gamma", "epsilon": 1.0, "delta": 0.0},
    "output": SMOOTH | {"mechanism": "output-perturbation", "epsilon": 1.0, "delta": 1e-6},
    "output, pure": SMOOTH
    | {"mechanism": "output-perturbation", "noise": "gamma", "epsilon": 1.0, "delta": 0.0},
    "exponential": DRAWS | {"epsilon": 1.0, "delta": 0.0},
    "gibbs": DRAWS | {"mechanism": "gibbs", "epsilon": 1.0, "delta": 1e-6},
    "underdamped": CHAIN | {"epsilon": 1.0, "delta": 1e-6},
    "counting": {"mechanism": "counting", "answers": 50, "p": 2.0, "epsilon": 1.0, "delta": 1e-6},
    "largest norm": {"mechanism": "largest-norm", "answers": 50, "changed": 5, "epsilon": 1.0, "delta": 0.0},
}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "pure": ("Pure", {"value": 0.3, "count": 2}),
    "gaussian": ("Gaussian", {"mu": 0.4}),
    "approximate": ("Approximate", {"value": 0.2, "slack": 1e-7}),
    "bounded range": ("BoundedRange", {"value": 0.3}),
    "sampled": (
        "SampledGaussian",
        {"rate": 0.01, "noise_multiplier": 2.0, "sampling": "poisson", "count": 50},
    ),
}


def part(name: str) -> Any:
    return make(PARTS[name][0], **PARTS[name][1])


def account_case(options: dict[str, Any]) -> dict[str, Any]:
    return numbers(make("account", delta=1e-6, **options))


def delta_case(options: dict[str, Any]) -> float:
    return float(make("account", epsilon=1.0, **options).delta(1.0))


def calibrate_case(options: dict[str, Any]) -> dict[str, Any]:
    certified_spec = calibrated(**options)
    document: dict[str, Any] = (
        {"plan": plan_file(certified_spec)} if certified_spec.constants is not None else {}
    )
    return document | numbers(certified_spec.guarantee)


def composed_case(first: str, second: str) -> dict[str, Any]:
    return numbers(guarantee(part(first)) + 2 * guarantee(part(second)))


for _name, _options in ACCOUNTS.items():
    case(f"account/{_name}", account_case, _options)
for _name in ("full batch", "objective", "counting"):
    case(f"account/{_name}/delta at epsilon", delta_case, ACCOUNTS[_name])
for _name, _options in CALIBRATIONS.items():
    case(f"calibrate/{_name}", calibrate_case, _options)
for _first in PARTS:
    case(f"part/{_first}", lambda name: conversions(guarantee(part(name))), _first)
    if _first not in ("approximate", "sampled"):  # no group guarantee is proved for them
        case(f"part/{_first}/group", lambda name: numbers(guarantee(part(name)).group(3)), _first)
    for _second in PARTS:
        if _first < _second:
            case(f"compose/{_first} and {_second}", composed_case, _first, _second)
case("compose/all", lambda: numbers(sum((guarantee(part(name)) for name in PARTS), start=guarantee())))
for _name, _fields in (
    ("full", FULL),
    ("trajectory", FULL | {"release": "trajectory"}),
    ("longer", FULL | {"n_steps": 600}),
):
    case(
        f"lower bound/{_name}",
        lambda **fields: float(
            make(
                "lower_bound_epsilon",
                make("Constants", **BASE),
                make("NoisyGradientSpec", **fields),
                1e-6,
            )
        ),
        **_fields,
    )

# Releases of mechanisms

STEPS = {"step_size": 0.3, "noise_std": 0.2, "n_steps": 12}
GRADIENT_RUNS: dict[str, dict[str, Any]] = {
    "full": {},
    "average": {"release": "average", "average_from": 4},
    "checkpoints": {"release": "checkpoints", "checkpoints": (5, 12)},
    "trajectory": {"release": "trajectory"},
    "momentum": {"momentum": True, "release": "trajectory"},
    "varying": {
        "step_size": tuple(0.3 / (t + 1) for t in range(12)),
        "noise_std": tuple(0.2 + 0.01 * t for t in range(12)),
    },
    "cyclic": {"sampling": "cyclic", "batch_size": 20},
    "shuffle": {"sampling": "shuffle", "batch_size": 20},
    "secret order": {"sampling": "shuffle", "batch_size": 20, "order": "secret"},
    "without replacement": {"sampling": "without-replacement", "batch_size": 20, "release": "average"},
    "poisson": {"sampling": "poisson", "batch_size": 20, "release": "trajectory"},
}
SOLVED = {"tolerance": 1e-7}
DIRECT_RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "objective, gamma": (
        "ObjectivePerturbationSpec",
        SOLVED | {"density_scale": 30.0, "release_density_scale": 1e-4},
        {"constraint": ("WholeSpace",)},
    ),
    "objective, gaussian": (
        "ObjectivePerturbationSpec",
        SOLVED | {"density_scale": 30.0, "release_density_scale": 1e-4, "noise": "gaussian"},
        {"constraint": ("WholeSpace",)},
    ),
    "output, gamma": ("OutputPerturbationSpec", SOLVED | {"density_scale": 0.2}, {}),
    "output, gaussian": (
        "OutputPerturbationSpec",
        SOLVED | {"density_scale": 0.2, "noise": "gaussian"},
        {},
    ),
    "moments": (
        "SufficientStatisticsSpec",
        {"gram_noise_std": 2.0, "cross_noise_std": 1.0, "eigenvalue_floor": 1.0},
        {"loss": "Squared"},
    ),
    "underdamped": (
        "UnderdampedSpec",
        {"inverse_temperature": 5.0, "step_size": 0.3, "n_steps": 20},
        {"constraint": ("WholeSpace",)},
    ),
    "exponential on a grid": ("ExponentialSpec", {"inverse_temperature": 20.0}, {"n_features": 1}),
    "gibbs": ("GibbsSpec", {"inverse_temperature": 20.0}, {"n_features": 1}),
}
MODELS: dict[str, dict[str, Any]] = {
    "logistic": {},
    "ridge": {"target_bounds": (-1.0, 1.0)},
    "multinomial": {"n_classes": 3},
    "poisson": {"target_bounds": (0.0, 5.0)},
    "svc": {},
    "quantile": {"target_bounds": (-1.0, 1.0), "quantile": 0.3},
    "huber": {"target_bounds": (-1.0, 1.0)},
}
PURE_MECHANISMS = (
    "auto",
    "objective-perturbation",
    "output-perturbation",
    "whitened-objective",
    "exponential",
    "iterated-exponential",
)
MECHANISMS = (*PURE_MECHANISMS, "noisy-gd", "langevin", "whitened-gd", "gibbs")


def gradient_case(changes: dict[str, Any], **of: Any) -> dict[str, Any]:
    stated, data = problem(**of)
    return released(plan_of(stated, make("NoisyGradientSpec", **(STEPS | changes)), 1e-3), data)


def direct_case(spec: str, fields: dict[str, Any], of: dict[str, Any]) -> dict[str, Any]:
    kept = {name: make(*value) if isinstance(value, tuple) else value for name, value in of.items()}
    stated, data = problem(**kept)
    return released(plan_of(stated, make(spec, **fields)), data)


def mirror_case(**fields: Any) -> dict[str, Any]:
    stated, data = problem()
    return mirrored(stated, make("PublicMirrorSpec", **(STEPS | fields)), data)


def planned_options(mechanism: str, model: str, adjacency: str, delta: float) -> dict[str, Any]:
    stated = {
        "n": N,
        "n_features": WIDTH,
        "epsilon": 4.0,
        "delta": delta,
        "adjacency": adjacency,
        "data_norm": 2.0,
    }
    return {"model": model, "mechanism": mechanism, "fit_intercept": True, **stated, **MODELS[model]}


def planned_case(mechanism: str, model: str, adjacency: str, delta: float) -> dict[str, Any]:
    """A planned run: the plan file, and what it releases."""
    plan = planned_fit(**planned_options(mechanism, model, adjacency, delta))
    bounds = MODELS[model].get("target_bounds")
    X, y, _ = records(MODELS[model].get("n_classes", 2) if bounds is None else 0)
    data = make("ArrayDataset", X, y.astype(float), plan.problem)
    return {"plan": plan_file(plan), **released(plan, data)}


def sampler_case(tier: str, delta: float, **of: Any) -> dict[str, Any]:
    stated, data = problem(**of)
    planned = make("plan_sampler", stated, 4.0, delta, tier, verbose=False)
    return {
        "plan": plan_file(planned.plan),
        "passes": planned.n_gradient_evaluations,
        **released(planned.plan, data),
    }


def answers_case(spec: str, *exact: Any, **fields: Any) -> dict[str, Any]:
    return answered(make(spec, **fields), *(np.asarray(each, float) for each in exact))


def sums_case(noise: str) -> dict[str, Any]:
    groups = (
        make("SumGroup", answers=3, unit=1.0, scale=4.0),
        make("SumGroup", answers=2, unit=2.0, scale=9.0),
    )
    spec = make("NoisySumsSpec", groups=groups, noise=noise, adjacency="replace-one")
    return answered(spec, np.array([5.0, 7.0, 1.0]), np.array([20.0, 30.0]))


def corrected_case() -> dict[str, Any]:
    noise = make("NoisyAnswersSpec", **ANSWERS)
    fields = {"max_corrections": 2, "search_epsilon": 0.05, "answer_epsilon": 0.05, "threshold": 10.0}
    return answered(make("CorrectedAnswersSpec", noise=noise, **fields), np.arange(20.0))


for _name, _changes in GRADIENT_RUNS.items():
    case(f"run/noisy gradient/{_name}", gradient_case, _changes)
case("run/noisy gradient/add-remove", gradient_case, {}, adjacency="add-remove")
case("run/noisy gradient/squared", gradient_case, {}, loss="Squared")
for _name, _direct in DIRECT_RUNS.items():
    case(f"run/{_name}", direct_case, *_direct)
case("run/mirror", mirror_case)
case("run/mirror, average", mirror_case, release="average", average_from=3)
case("run/mirror, mixed", mirror_case, mode="mix", mixing=0.7)
case("run/mirror, gradient", mirror_case, mode="gradient")
for _adjacency in BOTH:
    for _delta in (1e-3, 0.0):
        for _mechanism in MECHANISMS if _delta else PURE_MECHANISMS:
            for _model in ("logistic", "ridge"):
                case(
                    f"planned/{_mechanism}/{_model}/{_adjacency}/{_delta}",
                    planned_case,
                    _mechanism,
                    _model,
                    _adjacency,
                    _delta,
                )
    case(
        f"planned/sufficient-statistics/ridge/{_adjacency}",
        planned_case,
        "sufficient-statistics",
        "ridge",
        _adjacency,
        1e-3,
    )
    for _model in ("multinomial", "poisson", "svc", "quantile", "huber"):
        case(f"planned/auto/{_model}/{_adjacency}", planned_case, "auto", _model, _adjacency, 1e-3)
for _tier, _delta in (("exact", 0.0), ("pure", 0.0), ("certified", 1e-3), ("process", 1e-3), ("auto", 1e-3)):
    case(f"sampler/{_tier}", sampler_case, _tier, _delta, n_features=1 if _tier == "exact" else 2)
for _p in (1.0, 2.0, 2.5):
    case(f"answers/p = {_p:g}", answers_case, "NoisyAnswersSpec", range(20), **(ANSWERS | {"p": _p}))
case(
    "answers/largest norm",
    answers_case,
    "MaxNormSpec",
    range(20),
    answers=20,
    changed=4,
    sensitivity=1.0,
    scale=8.0,
)
case(
    "answers/largest norm, all",
    answers_case,
    "MaxNormSpec",
    range(5),
    answers=5,
    changed=5,
    sensitivity=1.0,
    scale=8.0,
)
case(
    "answers/max",
    answers_case,
    "NoisyMaxSpec",
    range(5),
    candidates=5,
    unit=1.0,
    scale=4.0,
    adjacency="replace-one",
)
case(
    "answers/slack",
    answers_case,
    "SlackSpec",
    [3.0, 4.0],
    unit=1.0,
    scale=8.0,
    answers=2,
    adjacency="add-remove",
)
case("answers/corrected", corrected_case)
for _noise in ("gaussian", "gamma", "geometric"):
    case(f"answers/sums, {_noise}", sums_case, _noise)

# Estimators

ESTIMATORS: dict[str, dict[str, Any]] = {
    "DPLogisticRegression": {"classes": [0, 1]},
    "DPLinearSVC": {"classes": [0, 1]},
    "DPRidge": {"target_bounds": (-1.0, 1.0)},
    "DPHuberRegressor": {"target_bounds": (-1.0, 1.0)},
    "DPQuantileRegressor": {"target_bounds": (-1.0, 1.0)},
    "DPPoissonRegressor": {"target_bounds": (0.0, 5.0)},
}
PUBLIC = (np.random.default_rng(5).standard_normal((30, WIDTH)), np.arange(30) % 2)
FITS: dict[str, dict[str, Any]] = {
    "weights": {"weight_bound": 2.0, "weighted": True},
    "class weights": {"class_weight": {0: 1.0, 1: 3.0}},
    "three rows a person": {"max_rows_per_person": 3},
    "noisy-gd": {"mechanism": "noisy-gd"},
    "output perturbation": {"mechanism": "output-perturbation"},
    "objective perturbation": {"mechanism": "objective-perturbation", "delta": 0.0},
    "pure": {"delta": 0.0, "epsilon": 30.0},
    "learned norm": {"data_norm": "learn"},
    "pure intervals": {"intervals": True, "delta": 0.0, "epsilon": 30.0},
    "no intercept": {"fit_intercept": False},
    "radius and ridge": {"radius": 1.0, "alpha": 0.05},
    "bad rows": {"bad_rows": "zero"},
}


def fit_case(
    name: str, *, weighted: bool = False, n_classes: int = 2, file: bool = False, **changes: Any
) -> Any:
    bounds = ESTIMATORS[name].get("target_bounds")
    X, y, weights = records(n_classes if bounds is None else 0, *(bounds or ()))
    options = {"epsilon": 5.0, "delta": 1e-3, "data_norm": 2.0, "random_state": 3, **ESTIMATORS[name]}
    if changes.get("adjacency") == "add-remove":
        options["n_public"] = N
    if n_classes > 2:
        options["classes"] = list(range(n_classes))
    model = fitted(name, X, y, weights if weighted else None, **(options | changes))
    result = outputs(model, X[:20], y[:20])
    if changes.get("intervals"):
        result["intervals"] = np.asarray(model.predict_interval(X[:20]))
    return result | ({"file": model_file(model)} if file else {})


def table_case(
    name: str, stated: Callable[[], Any], *, file: bool = False, person: bool = False, **changes: Any
) -> Any:
    frame, options = table(), {"epsilon": 5.0, "delta": 1e-3, "random_state": 3, "schema": stated()}
    target = "gain" if "Regressor" in name or name == "DPRidge" else "y"
    columns = [column for column in FEATURES if column in options["schema"].names and column != target]
    if person:
        options |= {"person": "who", "max_rows_per_person": 2, "n_public": N}
    if changes.get("adjacency") == "add-remove":
        options["n_public"] = N
    model = fitted(
        name, frame[[*columns, target, *(["who"] if person else [])]], target, **(options | changes)
    )
    result = outputs(model, frame[columns].head(20))
    if hasattr(model, "schema_"):
        result["schema"] = Document(model.schema_.to_dict())
    if "Additive" in name:
        effect = model.partial_effect("age", at=[20.0, 50.0, 80.0])
        result["effect"] = np.asarray(effect.values)
    return result | ({"file": model_file(model)} if file else {})


for _adjacency in BOTH:
    for _name in ESTIMATORS:
        case(
            f"fit/{_name}/{_adjacency}",
            fit_case,
            _name,
            adjacency=_adjacency,
            file=_adjacency == "replace-one",
        )
        case(f"fit/{_name}/{_adjacency}/pure", fit_case, _name, adjacency=_adjacency, delta=0.0, epsilon=20.0)
    for _name, _changes in FITS.items():
        case(
            f"fit/logistic, {_name}/{_adjacency}",
            fit_case,
            "DPLogisticRegression",
            adjacency=_adjacency,
            **_changes,
        )
    case(
        f"fit/multinomial/{_adjacency}",
        fit_case,
        "DPLogisticRegression",
        adjacency=_adjacency,
        n_classes=3,
        file=True,
    )
    case(
        f"fit/sufficient statistics/{_adjacency}",
        fit_case,
        "DPRidge",
        adjacency=_adjacency,
        mechanism="sufficient-statistics",
    )
    case(f"fit/ridge, intervals/{_adjacency}", fit_case, "DPRidge", adjacency=_adjacency, intervals=True)
    case(
        f"fit/stated schema/{_adjacency}",
        table_case,
        "DPLogisticRegression",
        schema,
        adjacency=_adjacency,
        file=True,
    )
    case(
        f"fit/learned schema/{_adjacency}", table_case, "DPLogisticRegression", learned, adjacency=_adjacency
    )
    case(
        f"fit/persons/{_adjacency}",
        table_case,
        "DPLogisticRegression",
        schema,
        adjacency=_adjacency,
        person=True,
    )
    case(
        f"fit/additive classifier/{_adjacency}",
        table_case,
        "DPAdditiveClassifier",
        schema,
        adjacency=_adjacency,
    )
case("fit/three classes, svc", fit_case, "DPLinearSVC", n_classes=3)
case("fit/logistic, langevin", fit_case, "DPLogisticRegression", mechanism="langevin")
case("fit/logistic, intervals", fit_case, "DPLogisticRegression", intervals=True, file=True)
case(
    "fit/learned schema/pure",
    table_case,
    "DPLogisticRegression",
    partial(learned, False),
    delta=0.0,
    epsilon=30.0,
    file=True,
)
case("fit/learned schema, persons", table_case, "DPLogisticRegression", learned, person=True)
case(
    "fit/additive classifier/pure",
    table_case,
    "DPAdditiveClassifier",
    schema,
    delta=0.0,
    epsilon=20.0,
    file=True,
)
case("fit/additive regressor", table_case, "DPAdditiveRegressor", lambda: schema(NUMERIC), file=True)
case("fit/ridge of a table", table_case, "DPRidge", lambda: schema(NUMERIC))
case("fit/public data", fit_case, "DPLogisticRegression", public_data=PUBLIC)
case("encode/schema", lambda: np.asarray(make("SchemaEncoder", schema()).fit_transform(table()[FEATURES])))

# Everything else that charges


class FixedModel:
    """Decides by the sign of the first column."""

    classes_ = np.array([0, 1])

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign

    def predict(self, rows: Any) -> Any:
        return (self.sign * np.asarray(rows)[:, 0] > 0).astype(int)

    def predict_proba(self, rows: Any) -> Any:
        sure = 0.999 * self.predict(rows)
        return np.column_stack([1 - sure, sure])


def score_case(**options: Any) -> dict[str, Any]:
    X, y, _ = records()
    score = make("private_score", FixedModel(), X, y, epsilon=1.0, random_state=3, **options)
    return {"value": float(score.value), "interval": np.array(score.interval), **numbers(score.guarantee)}


def selection_case() -> dict[str, Any]:
    X, y, _ = records()
    found = make("private_selection", [FixedModel(), FixedModel(-1.0)], X, y, epsilon=1.0, random_state=3)
    return {"index": int(found.index), **numbers(found.guarantee)}


def counts_of(counts: Any) -> dict[str, Any]:
    """A table of counts, raw and after post-processing."""
    low, high = counts.intervals()
    return {
        "values": np.asarray(counts.values),
        "intervals": np.stack([low, high]),
        "document": Document(counts.postprocess().to_dict()),
        **numbers(counts.guarantee),
    }


def count_case(sql: bool = False, **options: Any) -> dict[str, Any]:
    column = get("column")
    asked = [column("age") > 40, column("job") == "a", (column("age") > 30) & (column("gain") < 900)]
    stated = {"epsilon": 1.0, "delta": 1e-6, "random_state": 3}
    if not sql:
        return counts_of(make("count_queries", table(), asked, **(stated | options)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table().to_csv(path, index=False)
        texts = ["age > 40", "job = 'a' OR gain < 900"]
        return counts_of(make("count_file", path, queries=texts, schema=schema(), **(stated | options)))


def marginals_case(**options: Any) -> dict[str, Any]:
    stated = {"epsilon": 2.0, "delta": 1e-6, "random_state": 3, "bins": 4}
    return counts_of(make("count_marginals", table(), schema(), **(stated | options)))


def groups_case(**options: Any) -> dict[str, Any]:
    X, y, _ = records()
    decisions = np.stack([X[:, 0] > 0, X[:, 0] > X[0, 0]])
    groups = (X[:, 1] > 0).astype(int)
    counts, paid = make(
        "private_counts", decisions, groups, [0, 1], y, epsilon=1.0, random_state=3, **options
    )
    return {"counts": np.asarray(counts), **numbers(paid)}


def search_case(adjacency: str) -> dict[str, Any]:
    X, y, _ = records()
    model = make(
        "DPLogisticRegression",
        data_norm=2.0,
        classes=[0, 1],
        adjacency=adjacency,
        n_public=N if adjacency == "add-remove" else None,
    )
    found = make(
        "DPModelSearch",
        model,
        {"data_norm": [2.0, 1.0]},
        epsilon=30.0,
        delta=1e-3,
        repetitions=3,
        random_state=3,
    )
    found.fit(X, y)
    return {
        "coef": np.asarray(found.best_estimator_.coef_),
        "score": float(found.best_score_),
        **numbers(found.privacy_),
    }


def region_case(
    adjacency: str = "replace-one", radius: float | None = None, **options: Any
) -> dict[str, Any]:
    X, y, _ = records()
    model = make(
        "DPLogisticRegression",
        data_norm=2.0,
        classes=[0, 1],
        adjacency=adjacency,
        radius=radius,
        n_public=N if adjacency == "add-remove" else None,
    )
    stated = {
        "epsilon": 20.0,
        "delta": 1e-3,
        "public_inputs": PUBLIC[0][:5],
        "n_models": 2,
        "random_state": 3,
    }
    region = make("RashomonRegion", model, **(stated | options)).fit(X, y)
    models = [np.append(each.coef_.ravel(), each.intercept_) for each in (region.center_, *region.models_)]
    return {
        "models": np.array(models),
        "table": Document(region.multiplicity().to_dict()),
        **numbers(region.privacy_),
    }


def good_models_case(**options: Any) -> dict[str, Any]:
    X, y, _ = records()
    model = make(
        "DPLogisticRegression", data_norm=2.0, classes=[0, 1], radius=1.0, alpha=0.1, fit_intercept=False
    )
    stated = {"thresholds": 0.2, "n_models": 2, "epsilon": 8.0, "random_state": 3}
    if options["route"] == "trajectory":  # needs a radius that holds every minimiser
        model.set_params(**option_names({"radius": 3.0, "alpha": 2.0}))
    sampler = make("RashomonSampler", model, **(stated | options)).fit(X[:, :2], y)
    return {"models": np.array([each.coef_.ravel() for each in sampler.models_]), **numbers(sampler.privacy_)}


for _adjacency in BOTH:
    case(f"score/accuracy/{_adjacency}", score_case, adjacency=_adjacency)
    case(f"score/log-loss/{_adjacency}", score_case, adjacency=_adjacency, metric="log-loss", delta=1e-3)
    case(f"counts/gaussian/{_adjacency}", count_case, adjacency=_adjacency, p=2.0)
    case(f"counts/pure/{_adjacency}", count_case, adjacency=_adjacency, p=1.0, delta=0.0)
    case(f"counts/least error/{_adjacency}", count_case, adjacency=_adjacency)
    case(f"counts/sql/{_adjacency}", count_case, sql=True, adjacency=_adjacency)
    case(f"counts/groups/{_adjacency}", groups_case, adjacency=_adjacency)
    case(f"search/{_adjacency}", search_case, _adjacency)
    case(f"region/{_adjacency}", region_case, _adjacency)
case("score/calibration", score_case, metric="calibration", bins=4)
case("selection", selection_case)
case("counts/persons", count_case, max_rows_per_person=3)
case("counts/marginals", marginals_case, ways=2)
case("counts/marginals, pure", marginals_case, columns=["job"], delta=0.0, p=1.0)
case("counts/groups, persons", groups_case, max_rows_per_person=3)
case(
    "region/best", region_case, reference="best", outer=True, flip_shares=[0.2], radius=0.25, thresholds=50.0
)
for _route, _delta in (("pure", 0.0), ("ramp", 1e-3), ("trajectory", 1e-3)):
    case(f"good models/{_route}", good_models_case, route=_route, delta=_delta)

# Plans that are not run here: secure ones draw their noise from the operating system

for _adjacency in BOTH:
    for _model in ("logistic", "ridge"):
        case(
            f"plan/secure/{_model}/{_adjacency}",
            lambda *what, **more: plan_file(planned_fit(**planned_options(*what), **more)),
            "auto",
            _model,
            _adjacency,
            1e-3,
            secure=True,
        )
for _n in (1000, 100_000):
    case(
        f"plan/n = {_n}",
        lambda *what, n: plan_file(planned_fit(**(planned_options(*what) | {"n": n, "n_features": 20}))),
        "auto",
        "logistic",
        "replace-one",
        1e-5,
        n=_n,
    )
case(
    "plan/noisy-sgd",
    lambda *what: plan_file(planned_fit(**planned_options(*what))),
    "noisy-sgd",
    "logistic",
    "replace-one",
    1e-3,
)

# Command lines

FLAGS = "--n 10000 --lipschitz 1 --smoothness 0.26 --strong-convexity 0.01"
STEP, AT = "--step-size 1", "--delta 1e-6 --json"
BALL, COUNTS = (
    "--dimension 3 --diameter 1",
    "--schema schema.json --epsilon 2 --delta 1e-6 --random-state 3 --json",
)
TABLE = "table.csv --target y --schema schema.json --delta 1e-3 --random-state 3"
PLANNED = "plan --n 10000 --n-features 5 --epsilon 1"
LEDGER = "--ledger sqlite:///ledger.db --dataset t"
FILES = {"table.csv": table().to_csv(index=False), "schema.json": json.dumps(STATED)}
COMMANDS = {
    "account": f"account {FLAGS} {STEP} --noise-std 0.012 --n-steps 1000 {AT}",
    "account endless": f"account {FLAGS} {STEP} --noise-std 0.012 --n-steps inf {AT}",
    "account orders": f"account {FLAGS} {STEP} --noise-std 0.012 --n-steps 100 --order 2,8 {AT}",
    "account epsilon": f"account {FLAGS} {STEP} --noise-std 0.012 --n-steps 100 --epsilon 1 --json",
    "account batches": f"account {FLAGS} {STEP} --noise-std 0.1 --n-steps 300 --sampling cyclic --batch-size 100 {AT}",
    "account counting": f"account --mechanism counting --answers 50 --changed 2 --sigma 9 --p 3 {AT}",
    "account rashomon": f"account --mechanism rashomon {FLAGS} {BALL} --n-models 3 --threshold 0.05 "
    f"--inverse-temperature 100 {AT}",
    "calibrate": f"calibrate {FLAGS} {STEP} --n-steps inf --epsilon 1 {AT}",
    "calibrate steps": f"calibrate {FLAGS} {STEP} --noise-std 0.01 --epsilon 1 {AT}",
    "calibrate mu": f"calibrate {FLAGS} {STEP} --n-steps 100 --mu 0.3 --json",
    "calibrate exponential": f"calibrate --mechanism exponential {FLAGS} {BALL} --epsilon 1 --delta 0 --json",
    "plan": f"{PLANNED} --json",
    "plan ridge": f"{PLANNED} --model ridge --adjacency add-remove --json",
    "plan pure": f"{PLANNED} --delta 0 --json",
    "plan secure": f"{PLANNED} --secure --json",
    "schema check": "schema check schema.json table.csv --json",
    "fit": f"fit {TABLE} --epsilon 5 --output model.json --json",
    "count": f"count table.csv --marginals 1 --bins 4 {COUNTS}",
    "count where": f"count table.csv --where 'age > 40' --raw {COUNTS}",
    "sample": f"sample {TABLE} --radius 1 --alpha 0.1 --epsilon 4 --tier process --quiet --json",
    "rashomon": f"rashomon {TABLE} --threshold 0.5 --n-models 2 --epsilon 20 --json",
    "ledger": f"ledger init {LEDGER} --epsilon 9 --delta 1e-2 && "
    f"fit {TABLE} --epsilon 5 --output model.json {LEDGER} && ledger show {LEDGER} --json",
    "model file > model.json": f"fit {TABLE} --epsilon 5 --output model.json --quiet",
    "plan file > plan.json": f"{PLANNED} --output plan.json",
    "model report > report.json": f"fit {TABLE} --epsilon 5 --output model.json --quiet && "
    "report model.json report.json",
    "plan report > report.json": f"{PLANNED} --output plan.json && report plan.json report.json",
}
"""What is run, by name; after ">" the file that is compared instead of what is printed."""
for _name, _line in COMMANDS.items():
    case(f"command/{_name}", command, _line, FILES, reads=_name.partition(" > ")[2])

# Ledgers


def admission_case(
    declared: dict[str, Any], names: list[str], parts: list[str] | None = None, **more: Any
) -> Any:
    return admissions(declared, [guarantee(part(name), **more) for name in names], parts)


MIXED = ["gaussian", "pure", "sampled", "approximate", "bounded range"] * 4
BUDGET = {"epsilon": 3.0, "delta": 1e-5}
case("ledger/gaussian", admission_case, BUDGET, ["gaussian"] * 8)
case("ledger/pure", admission_case, {"epsilon": 3.0, "delta": 0.0}, ["pure"] * 6 + ["gaussian"])
case("ledger/mixed", admission_case, BUDGET, MIXED)
case("ledger/fits", admission_case, BUDGET | {"expects": "fits"}, MIXED)
case("ledger/counts", admission_case, BUDGET | {"expects": "counts"}, MIXED)
case("ledger/reserve", admission_case, BUDGET | {"delta_share": 0.3, "pure_reserve": 1.0}, MIXED)
case("ledger/persons", admission_case, BUDGET | {"max_rows_per_person": 2}, ["gaussian", "pure"] * 4)
case(
    "ledger/add-remove",
    admission_case,
    BUDGET | {"adjacency": "add-remove"},
    ["pure"] * 6,
    adjacency="add-remove",
)
case("ledger/other adjacency", admission_case, BUDGET | {"adjacency": "add-remove"}, ["pure", "gaussian"])
case(
    "ledger/parts",
    admission_case,
    BUDGET | {"parts": ["north", "south"]},
    ["gaussian"] * 9,
    ["north", "south", ""] * 3,
)
case("ledger/additive delta", admission_case, BUDGET, MIXED[:8], extra_delta=1e-6)
