"""The independent checker agrees with the library where it has rules, and refuses what understates a cost."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from decimal import Decimal as D, localcontext
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

import dplangevin_check as checker
from dplangevin import (
    DPHuberRegressor,
    DPLogisticRegression,
    DPQuantileRegressor,
    DPRidge,
    InvalidParameter,
    Ledger,
    Schema,
    account,
    plan_fit,
)
from dplangevin._plain import add_digest
from dplangevin.accounting.certificate import certificate_to_plain, check_guarantee
from dplangevin.accounting.generalized_gaussian import GeneralizedGaussian
from dplangevin.accounting.parts import Gaussian, Pure
from dplangevin.accounting.plan import CertifiedSpec, plan_to_plain
from dplangevin.cli.main import app
from dplangevin.estimators.model_file import load_model, model_to_plain
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.mechanisms.noisy_answers.mechanism import GeneralizedGaussianMechanism
from dplangevin.mechanisms.noisy_answers.spec import calibrate_noisy_max, calibrate_noisy_sums
from dplangevin.queries import column, count_queries
from dplangevin.signing import Signer, create_key, verify_file

SOURCE = Path(checker.__file__)
N = 400


def _table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (N, 3)), columns=["a", "b", "c"])
    return frame.assign(kind=rng.choice(["x", "y"], N)), (frame["a"] > 0).astype(int).to_numpy()


def _fit(cls: Any = DPLogisticRegression, **options: Any) -> Any:
    frame, labels = _table()
    stated: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0, "data_norm": 2.0}
    if cls is DPLogisticRegression:
        stated["classes"] = [0, 1]
    else:
        stated["target_bounds"] = (0.0, 1.0)
    if "schema" in options:
        return cls(**{**stated, "data_norm": None, **options}).fit(frame.assign(y=labels), "y")
    return cls(**{**stated, **options}).fit(frame[["a", "b", "c"]].to_numpy(), labels)


TO_LEARN = Schema.learn({"a": "number", "b": "number", "c": "number", "kind": "category"})
MODELS: dict[str, dict[str, Any]] = {
    "whitened": {},
    "add-remove": {"adjacency": "add-remove", "n_public": N},
    "learned number of rows": {"adjacency": "add-remove", "n_public": "learn"},
    "two rows": {"max_rows_per_person": 2},
    "intervals": {"intervals": True},
    "learned": {"schema": TO_LEARN},
    "descent": {"mechanism": "noisy-gd"},
    "moments": {"cls": DPRidge, "mechanism": "sufficient-statistics"},
    "pure": {"delta": 0.0},
    "perturbed": {"delta": 0.0, "mechanism": "objective-perturbation", "secure": False},
    "pure, not exact": {"delta": 0.0, "secure": False},
    "two rows, pure": {"delta": 0.0, "max_rows_per_person": 2},
    "center": {"cls": DPHuberRegressor},
    "center, Gaussian": {"cls": DPHuberRegressor, "epsilon": 8.0},
    "center, two rows": {"cls": DPQuantileRegressor, "max_rows_per_person": 2},
    "center, pure": {"cls": DPQuantileRegressor, "delta": 0.0},
}


@cache
def _model(name: str) -> str:
    """Return the text of a model file."""
    return json.dumps(model_to_plain(_fit(**MODELS[name])))


def _sums(noise: Any, delta: float) -> Any:
    groups = [(4, 1.0, 0.3), (1, 2.0, 0.7)]
    spec = calibrate_noisy_sums(groups, epsilon=0.7, delta=delta, noise=noise, adjacency="replace-one")
    return CertifiedSpec(spec=spec, delta=delta).guarantee


def _max(epsilon: float = 0.5) -> Any:
    spec = calibrate_noisy_max(candidates=3, unit=1.0, epsilon=epsilon, adjacency="replace-one")
    return CertifiedSpec(spec=spec, delta=0.0).guarantee


def _counts(**options: Any) -> Any:
    return GeneralizedGaussianMechanism(**{"k": 9, "epsilon": 0.9, "delta": 0.0, **options}).plan.guarantee


def _steps(**options: Any) -> Any:
    run = {
        "n": 1000,
        "lipschitz": 1.0,
        "noise_std": 0.02,
        "step_size": 1.0,
        "n_steps": 7,
        "theorem": "composition",
    }
    return account(**{**run, "delta": 1e-6, **options})


def _ridge_whitened(**options: Any) -> Any:
    stated = {
        "model": "multinomial",
        "n": 60_000,
        "n_features": 200,
        "epsilon": 1.0,
        "delta": 1e-6,
        "n_classes": 10,
    }
    more = {
        "adjacency": "replace-one",
        "fit_intercept": False,
        "data_norm": 1.0,
        "mechanism": "ridge-whitened-gd",
    }
    return plan_fit(**{**stated, **more, **options}).plan.guarantee


GUARANTEES: dict[str, Any] = {
    "ridge-whitened": _ridge_whitened,
    "ridge-whitened, add-remove": lambda: _ridge_whitened(adjacency="add-remove", epsilon=4.0),
    "geometric sums": lambda: _sums("geometric", 0.0),
    "gamma sums": lambda: _sums("gamma", 0.0),
    "Gaussian sums": lambda: _sums("gaussian", 1e-7),
    "noisy max": _max,
    "Laplace counts": lambda: _counts(p=1.0, changed_counts=3, delta=1e-6),
    "Gaussian counts": lambda: _counts(p=2.0, delta=1e-6),
    "norm noise": lambda: _counts(p=np.inf),
    "secure norm noise": lambda: _counts(p=np.inf, secure=True),
    "epochs": lambda: _steps(sampling="cyclic", batch_size=90, n_steps=25),
    "Gaussian and pure": lambda: _steps() + _sums("geometric", 0.0),
    "thrice": lambda: 3 * _steps(),
}


def test_it_is_small_and_imports_the_standard_library_alone() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= 400


def test_it_runs_without_any_installed_package(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(_model("whitened"), encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(SOURCE), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    path.write_text(_model("whitened").replace('"epsilon": 0.99', '"epsilon": 0.9'), encoding="utf-8")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


@settings(deadline=None, max_examples=60)
@given(st.floats(-20, 60))
def test_its_normal_tail_encloses_the_exact_one(x: float) -> None:
    with localcontext(checker.CONTEXT), mpmath.workdps(100):
        low, high = (mpmath.mpf(str(bound)) for bound in checker.tail(D(x)))
        exact = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        assert low <= exact <= high
        assert high - low < exact * mpmath.mpf("1e-50")


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.01, 2.0), st.integers(1, 3)), max_size=3),
    st.floats(0.0, 2.0),
    st.floats(0.05, 3.0),
)
def test_its_composition_is_that_of_the_dominating_pairs(
    responses: list[tuple[float, int]], mu: float, epsilon: float
) -> None:
    costs = [checker.Cost("pure", D(value), count) for value, count in responses]
    costs += [checker.Cost("gaussian", D(mu))] if mu > 0.01 else []
    with localcontext(checker.CONTEXT):
        delta = float(checker.composed_delta(costs, D(epsilon)))
    atoms = [(1.0, 0.0)]  # probabilities and losses of all randomised responses
    for value, count in responses:
        for _ in range(count):
            up = 1 / (1 + np.exp(-value))
            atoms = [(p * q, x + y) for p, x in atoms for q, y in ((up, value), (1 - up, -value))]
    size = mu if mu > 0.01 else 0.0
    exact = sum(p * _gaussian_delta(size, epsilon - loss) for p, loss in atoms)
    assert delta == pytest.approx(exact, rel=1e-9, abs=1e-13)


def _gaussian_delta(mu: float, epsilon: float) -> float:
    if mu == 0:
        return max(0.0, 1 - float(np.exp(epsilon)))
    near, far = mpmath.ncdf(-epsilon / mu + mu / 2), mpmath.ncdf(-epsilon / mu - mu / 2)
    return float(near - mpmath.exp(epsilon) * far)


@pytest.mark.parametrize("name", MODELS)
def test_it_agrees_with_the_guarantee_of_a_model(name: str) -> None:
    plain = json.loads(_model(name))
    [epsilon] = checker.check(plain)
    certificate = plain["certificate"]
    assert certificate["epsilon"] * (1 - 1e-6) < epsilon <= certificate["epsilon"]


@pytest.mark.parametrize("name", GUARANTEES)
def test_it_agrees_with_other_guarantees(name: str) -> None:
    guarantee = GUARANTEES[name]()
    epsilon, _ = check_guarantee(guarantee)
    assert epsilon is not None
    stated = certificate_to_plain(guarantee)
    assert stated is not None
    assert stated["epsilon"] * (1 - 2e-4) < epsilon <= stated["epsilon"]


def _laplace_delta(m: int, shift: float, epsilon: float) -> float:
    with localcontext(checker.CONTEXT):
        cost = checker.Cost("generalized-gaussian", D(m) * D(shift), 1, m)
        return float(checker.composed_delta([cost], D(epsilon)))


def _enclosed_laplace_delta(m: int, shift: float, epsilon: float, steps: int = 4000) -> tuple[float, float]:
    """Bounds on delta of m Laplace answers: their losses on a grid, all rounded down, or all up, and convolved."""
    step = 2 * shift / steps
    edges = np.exp(-np.arange(steps + 1) * step / 2) / 2
    bounds = []
    for first in (1, 0):  # a deficit in the cell (j h, (j + 1) h] becomes (j + 1) h, or j h
        one = np.zeros(steps + 1)
        one[first : steps + first] += edges[:-1] - edges[1:]
        one[0] += 0.5
        one[-1] += edges[-1]
        total = np.ones(1)
        for _ in range(m):
            total = np.convolve(total, one)
        losses = m * shift - step * np.arange(len(total))
        bounds.append(float(total @ np.maximum(0.0, -np.expm1(epsilon - losses))))
    return bounds[0], bounds[1]


@pytest.mark.parametrize("m", [1, 2, 3, 6])
@pytest.mark.parametrize("shift", [0.05, 1.3])
@pytest.mark.parametrize("part", [0.02, 0.4, 0.999])
def test_its_profile_of_laplace_answers_is_the_exact_one(m: int, shift: float, part: float) -> None:
    epsilon = m * shift - 2 * shift * part
    low, high = _enclosed_laplace_delta(m, shift, epsilon)
    found = _laplace_delta(m, shift, epsilon)
    assert low <= found * (1 + 1e-9)
    assert found <= high * (1 + 1e-9) + 1e-60
    if epsilon > 0:
        assert found == pytest.approx(
            GeneralizedGaussian(p=1.0, shift=shift, changed=m, answers=m).delta(epsilon), rel=2e-3, abs=1e-12
        )
    half = (m * shift - epsilon) / 2  # with half of the mean of N it would be below what is attained
    assert low > _laplace_delta(m, shift, m * shift - half)


def test_its_profile_of_laplace_answers_is_one_where_it_is_not_known() -> None:
    assert _laplace_delta(3, 1.0, 0.9) == 1.0
    assert _laplace_delta(3, 1.0, 1.0) == 1.0
    assert 0 < _laplace_delta(3, 1.0, 1.1) < 1
    assert _laplace_delta(3, 1.0, 3.0) == 0.0


def test_what_has_no_rule_is_not_covered() -> None:
    epsilon, text = check_guarantee(_steps(theorem="optimal-shift", smoothness=1.0, diameter=1.0))
    assert epsilon is None
    assert "optimal-shift" in text


def test_a_model_keeps_its_certificate_when_it_is_loaded_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(_model("learned"), encoding="utf-8")
    again = model_to_plain(load_model(path))
    assert again["certificate"] == json.loads(_model("learned"))["certificate"]
    assert checker.check(json.loads(json.dumps(again)))


def test_a_plan_file_is_checked() -> None:
    frame, labels = _table()
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=2.0, classes=[0, 1])
    plain = plan_to_plain(model.fit(frame[["a", "b", "c"]].to_numpy(), labels).plan_.plan)
    assert checker.check(plain)[0] <= 1.0
    understated = copy.deepcopy(plain)
    understated["guarantee"]["epsilon"] *= 0.9
    with pytest.raises(checker.Refused):
        checker.check(add_digest({name: value for name, value in understated.items() if name != "digest"}))


# --- certificates that understate -----------------------------------------------------------------------------------

WORSE = {
    "moment_noise_std": 0.9, "noise_std": 0.9, "n_steps": 2, "n_moment_releases": 2, "approach_noise_std": 0.9,
    "count_noise_std": 0.9, "recount_noise_std": 0.01, "curvature_noise_std": 0.9, "slope_noise_std": 0.9, "scale": 0.9,
    "threshold": 0.95, "n_numbers": 2, "n_categories": 2, "rows_per_person": 2, "gram_noise_std": 0.9,
    "cross_noise_std": 0.9, "density_scale": 0.9, "tolerance": 2.0, "release_density_scale": 0.5, "ridge": 0.5,
    "moment_density_scale": 0.9, "count_density_scale": 0.9, "recount_density_scale": 0.001, "unit": 2,
    "further_noise_std": 0.1,
    "sensitivity": 1.1, "sigma": 0.9, "changed": 2, "batch_size": 0.5, "count": 2, "epsilon": 0.999, "delta": 0.5,
    "extra_delta": 0.5, "mu": 0.999, "value": 0.999, "shift": 0.999,
}  # fmt: skip
"""By what each number is multiplied so that less is stated than holds."""
WORSE_CONSTANTS = {
    "whitened-composition": {"n": 0.9, "lipschitz": 1.1, "row_norm": 0.9, "gradient_sensitivity": 0.5},
    "composition": {"n": 0.5, "lipschitz": 1.1, "gradient_sensitivity": 0.5},
    "ridge-whitened-composition": {"n": 0.9, "lipschitz": 1.1, "row_norm": 0.9, "gradient_sensitivity": 0.5},
    "sufficient-statistics": {"row_norm": 1.1, "label_bound": 1.1, "weight_bound": 1.1},
    "objective-perturbation": {
        "n": 0.9,
        "lipschitz": 1.1,
        "smoothness": 1.5,
        "hessian_rank": 2,
        "strong_convexity": 0.5,
    },
    "whitened-objective-perturbation": {"n": 0.9, "lipschitz": 1.1, "smoothness": 1.5, "hessian_rank": 2},
}
NAMES = {
    "adjacency": {"add-remove": "replace-one", "replace-one": "add-remove"},
    "noise": {"gaussian": "geometric", "geometric": "gaussian", "gamma": "gaussian"},
    "sampling": {"cyclic": "full"},
    "kind": {"gaussian": "pure", "pure": "gaussian"},
    "start": {"data-independent": "unknown"},
}


def _mutants(
    content: Any, worse: dict[str, float], path: tuple[Any, ...] = ()
) -> list[tuple[tuple[Any, ...], Any]]:
    """Return (path, new value) of every number or name that can be changed for the worse."""
    found: list[tuple[tuple[Any, ...], Any]] = []
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        here = (*path, key)
        if key == "constants":
            found += _mutants(value or {}, WORSE_CONSTANTS.get(content["theorem"], {}), here)
        elif isinstance(value, (dict, list)):
            answers = key == "spec" and "changed" in value  # their rows are part of what is stated to change
            unused = {"rows_per_person": 1} if answers else {}
            if key == "spec" and not value.get("n_approach_steps", 1):
                unused = {"approach_noise_std": 1}
            if key == "spec" and value.get("max_moment_releases", 2) < 2:
                unused = {"further_noise_std": 1}
            if key == "spec" and value.get("release_density_scale") == 0:  # an exact minimiser
                unused = {"tolerance": 1}
            found += _mutants(value, {**worse, **unused}, here)
        elif isinstance(value, str):
            found += [(here, other) for old, other in NAMES.get(key, {}).items() if value == old]
        elif (
            worse.get(key, 1) != 1
            and isinstance(value, (int, float))
            and not isinstance(value, bool)
            and value
        ):
            new = value * worse[key]
            found.append((here, max(1, int(new)) if isinstance(value, int) else new))
    return found


def _with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(content)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@cache
def _all_mutants() -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Return every mutant of every file, with its digest made anew."""
    files = {name: json.loads(_model(name)) for name in MODELS}
    files |= {name: {"certificate": certificate_to_plain(make())} for name, make in GUARANTEES.items()}
    mutants = []
    for name, content in files.items():
        bare = {key: value for key, value in content.items() if key != "digest"}
        for part in {"certificate", "guarantee"} & set(bare):
            for path, value in _mutants(bare[part], WORSE):
                mutants.append((name, path, add_digest(_with_value(bare, (part, *path), value))))
    return mutants


def test_mutants_are_refused_by_deriving_them_again() -> None:
    mutants, by_rule, missed = _all_mutants(), 0, []
    for name, path, content in mutants:
        try:
            checker.check(json.loads(json.dumps(content)))
            missed.append((name, path))
        except checker.NotCovered:
            pass
        except checker.Refused as error:
            by_rule += "altered" not in str(error)
    assert not missed, f"{len(missed)} of {len(mutants)}: {missed}"
    assert by_rule >= 150, f"{by_rule} of {len(mutants)} mutants"


def test_the_files_that_were_mutated_are_accepted() -> None:
    for name in MODELS:
        assert checker.check(json.loads(_model(name)))


def test_a_mutant_with_a_signature_of_its_own_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    create_key(key)
    mutants = [each for each in _all_mutants() if each[0] == "whitened"][:12]
    assert len(mutants) == 12
    path = tmp_path / "model.json"
    for _, _, content in mutants:
        path.write_text(Signer(key).sign_text(json.dumps(content)), encoding="utf-8")
        assert verify_file(path, tmp_path / "key.pub") is not None
        done = CliRunner().invoke(app, ["verify", str(path), "--key", str(tmp_path / "key.pub")])
        assert done.exit_code != 0 or "not checked" in done.output
    path.write_text(Signer(key).sign_text(_model("whitened")), encoding="utf-8")
    done = CliRunner().invoke(app, ["verify", str(path)])
    assert done.exit_code == 0
    assert "checked independently: epsilon" in done.output


# --- ledgers ---------------------------------------------------------------------------------------------------------


def _exported(tmp_path: Path, **declared: Any) -> dict[str, Any]:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    budget = ledger.declare("people", **{"epsilon": 3.0, "delta": 1e-5, **declared})
    _fit(ledger=budget, random_state=None)
    if "expects" not in declared:
        _fit(schema=TO_LEARN, ledger=budget, random_state=None, epsilon=0.5)
    frame, _ = _table()
    count_queries(
        frame, {"a": column("a") > 0}, epsilon=0.2, delta=0.0, ledger=budget, adjacency="replace-one"
    )
    return dict(json.loads(json.dumps(ledger.export())))


@pytest.mark.parametrize("declared", [{}, {"expects": "counts"}])
def test_the_filter_of_a_ledger_is_derived_again(tmp_path: Path, declared: Any) -> None:
    exported = _exported(tmp_path, **declared)
    plans = [entry["plan"] for entry in exported["datasets"][0]["entries"]]
    assert all("certificate" in plan for plan in plans)
    if any(plan["charged"].startswith("curve") for plan in plans):
        with pytest.raises(checker.NotCovered):
            checker.check(exported)
        covered = [
            each for each in exported["datasets"][0]["entries"] if "curve" not in each["plan"]["charged"]
        ]
        exported["datasets"][0]["entries"] = covered
    assert checker.check(exported) == [3.0]


def test_a_ledger_that_states_less_than_it_spent_is_refused(tmp_path: Path) -> None:
    exported = _exported(tmp_path)
    exported["datasets"][0]["entries"] = exported["datasets"][0]["entries"][:2]
    assert checker.check(exported) == [3.0]
    for name, value in (
        ("epsilon", 0.9),
        ("delta", 1e-9),
        ("adjacency", "add-remove"),
        ("max_rows_per_person", 2),
    ):
        with pytest.raises(checker.Refused):
            checker.check(_with_value(exported, ("datasets", 0, name), value))
    with pytest.raises(checker.Refused):
        checker.check(
            _with_value(exported, ("datasets", 0, "entries", 0, "guarantee", "parts", 0, "mu"), 1e-3)
        )
    again = copy.deepcopy(exported)
    again["datasets"][0]["entries"] *= 9
    with pytest.raises(checker.Refused):
        checker.check(again)


def _entry(guarantee: Any, charged: str = "parts", **changes: Any) -> dict[str, Any]:
    certificate = dict(json.loads(json.dumps(certificate_to_plain(guarantee)))) | changes
    stated = {name: certificate[name] for name in ("parts", "extra_delta", "adjacency", "rows_per_person")}
    return {"plan": {"certificate": certificate, "charged": charged}, "guarantee": stated, "part": ""}


def _budget(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    stated = {
        "epsilon": 2.0,
        "delta": 1e-5,
        "adjacency": "replace-one",
        "max_rows_per_person": 1,
        "delta_share": 0.25,
    }
    dataset = {**stated, "pure_reserve": 0.0, "fixed_cost_entries": 0, "entries": list(entries), **changes}
    return {"format": "dplangevin-ledger", "datasets": [dataset]}


def test_files_made_to_admit_more_than_a_budget_are_refused() -> None:
    """Each of these was admitted once, or would have been without one of the checks."""
    one = _entry(_steps())
    assert checker.check(_budget(one)) == [2.0]
    for changes in (
        {"delta_share": 5.0},
        {"delta_share": 1.0},
        {"delta": 0.0},
    ):  # more slack than delta; none at all
        with pytest.raises(checker.Refused):
            checker.check(_budget(one, **changes))
        with pytest.raises(checker.Refused):
            checker.check(_budget(one, expects="counts", **changes))
    tiny = _entry(_steps(noise_std=200.0), epsilon=2.0)  # underflows even in decimals: not pure all the same
    with pytest.raises(checker.Refused):
        checker.check(_budget(tiny, delta=0.0))
    with pytest.raises(checker.Refused):  # a Gaussian release has no epsilon at delta = 0
        checker.check({**tiny["plan"]["certificate"], "epsilon": 1e6, "delta": 0.0})
    unknown = _budget(one, adjacency=None)
    unknown["datasets"][0]["entries"][0]["guarantee"]["adjacency"] = None
    with pytest.raises(checker.Refused):
        checker.check(unknown)
    both = _max(1.4) + _max(
        0.1
    )  # in equal parts they would be charged less, and a budget of 7 would hold them
    parts = certificate_to_plain(both)["parts"]  # type: ignore[index]
    evened = [{**part, "value": 0.75 * (1 + 1e-12)} for part in parts]
    for stated in (parts, evened):
        with pytest.raises(checker.Refused):
            checker.check(_budget(_entry(both, parts=stated), epsilon=7.0, expects="counts"))
        assert checker.check(_budget(_entry(both, parts=stated), epsilon=9.0, expects="counts")) == [9.0]


def test_the_additive_delta_of_a_group_is_not_that_of_a_row() -> None:
    """Labels of two rows: the second moves the first's by e^eps, so twice the probability of one is too little."""
    spec = LearnedSchemaSpec(
        n_numbers=1, n_cells=9, n_categories=1, noise="gaussian", scale=20.0, threshold=100.0, adjacency="replace-one"
    )  # fmt: skip
    plain = certificate_to_plain(CertifiedSpec(spec=spec, delta=1e-5).guarantee)
    assert plain is not None
    assert checker.check(json.loads(json.dumps(plain)))
    group = json.loads(json.dumps(plain))
    group["releases"][0]["group"], group["rows_per_person"] = 2, 2
    group["parts"][0]["mu"] *= 2
    group["epsilon"] = 10.0
    with pytest.raises(checker.Refused):
        checker.check(group)


def test_a_slope_of_a_logistic_loss_above_one_is_refused() -> None:
    """It would make the gradient of every slope smaller."""
    content = json.loads(_model("perturbed"))["certificate"]
    assert content["releases"][0]["constants"]["logistic_slope_bound"] <= 1
    with pytest.raises(checker.Refused, match="slope"):
        checker.check(_with_value(content, ("releases", 0, "constants", "logistic_slope_bound"), 4.0))


def test_a_pure_release_that_does_not_fit_a_split_budget_is_refused() -> None:
    budget = checker.Fields("the budget", {"delta_share": 0.1})
    with localcontext(checker.CONTEXT):
        left = checker.charge(
            [D(0), D(0), D("0.25")], [checker.Cost("pure", D("0.1"))], D(0), "parts", budget
        )
        assert 0 < left[2] < D("0.25")
        for size in ("0.9", "5"):
            with pytest.raises(checker.Refused):
                checker.charge(
                    [D(0), D(0), D("0.25")], [checker.Cost("pure", D(size))], D(0), "parts", budget
                )


def test_a_guarantee_that_contradicts_the_checker_is_an_error() -> None:
    from dataclasses import replace

    guarantee = _steps()
    with pytest.raises(InvalidParameter, match="checker"):
        check_guarantee(replace(guarantee, parts=(Gaussian(mu=0.01, count=7),)))
    assert check_guarantee(replace(guarantee, parts=(Pure(value=0.1),), derivations=()))[0] is None
