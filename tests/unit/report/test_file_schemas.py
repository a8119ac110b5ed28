"""JSON Schemas of files: they accept what is written and what loads, and refuse another layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from dplangevin import DPLogisticRegression, DPRidge, Ledger, _plain, report
from dplangevin.accounting.certificate import certificate_to_plain
from dplangevin.accounting.guarantee import Condition, Guarantee
from dplangevin.accounting.parts import Gaussian, Profile, Pure, RenyiCurve, SampledGaussian
from dplangevin.accounting.plan import CertifiedSpec, plan_from_plain, plan_to_plain
from dplangevin.accounting.serialize import guarantee_from_plain, guarantee_to_plain
from dplangevin.audit import Canary, audit, gaussian_claim
from dplangevin.errors import DplangevinError
from dplangevin.estimators import model_file
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.run_state import RunState
from dplangevin.problem import Constants
from dplangevin.queries import Marginals, count_file, count_learned_groups, summarize_table
from dplangevin.rashomon import RashomonRegion, RashomonSampler
from dplangevin.report import audit_document, rashomon_document, region_document, write_document
from dplangevin.report.answer import answer_account, answer_calibration, answer_to_dict
from dplangevin.report.file_schemas import file_schemas
from dplangevin.schema import Schema

SCHEMAS = file_schemas()
TABLE = {"age": np.linspace(20, 60, 200), "job": np.array(["a", "b"] * 100)}
SCHEMA = {"columns": {"age": {"range": [0, 100]}, "job": {"categories": ["a", "b"]}}}
PLAN = CertifiedSpec(
    constants=Constants(n=1000, lipschitz=1.0, smoothness=1.0, diameter=2.0),
    spec=NoisyGradientSpec(step_size=1.0, noise_std=0.1, n_steps=20),
    delta=1e-5,
)
WORDS = {"adjacency": "replace-one", "release": "draw", "theorem": "t", "reference": "r"}
GUARANTEE = Guarantee(
    parts=(
        Gaussian(mu=0.5), Pure(value=np.inf), RenyiCurve(orders=(2.0, 3.0), values=(0.1, 0.2)),
        Profile(epsilons=(0.0, 1.0), deltas=(0.1, 0.0)),
        SampledGaussian(rate=0.1, noise_multiplier=1.0, sampling="poisson"),
    ),
    conditions=(Condition(kind="file-integrity", text="t"),), composition=Guarantee(parts=(Pure(value=1.0),), **WORDS),
    rows_per_person=2, at_delta=1e-6, **WORDS,
)  # fmt: skip


def _model() -> DPRidge:
    rows = np.column_stack([TABLE["age"] / 100, TABLE["age"] / 200])
    return DPRidge(epsilon=1.0, delta=1e-5, data_norm=1.0, target_bounds=(0, 1), random_state=0).fit(
        rows, TABLE["age"] / 100
    )


def _state(folder: Path) -> Any:
    state = RunState(folder / "state.json", PLAN)
    with pytest.warns(UserWarning, match="keep it secret"):
        state.start(0)
    state.close()
    return json.loads((folder / "state.json").read_text())


def _written_files(folder: Path) -> Iterator[tuple[str, Any]]:
    model, schema = _model(), Schema.from_dict(SCHEMA)
    yield "model", model_file.model_to_plain(model)
    yield "scorecard", model.to_scorecard()
    for thing in (model, PLAN, GUARANTEE):
        yield "report", json.loads(report.write_report(thing, folder / "report.json").read_text())
    yield "plan", plan_to_plain(PLAN)
    yield "guarantee", guarantee_to_plain(GUARANTEE)
    yield "schema", schema.to_dict()
    yield "state", _state(folder)
    summary = summarize_table(TABLE, schema, ["age"], epsilon=1.0, delta=1e-5)
    yield "summary", json.loads(summary.to_json())
    lines = [f"{age:.2f},{job}" for age, job in zip(TABLE["age"], TABLE["job"], strict=True)]
    (folder / "table.csv").write_text("\n".join(["age,job", *lines]))
    tables = Marginals.from_schema(schema, ways=1, bins=4)
    counts = count_file(folder / "table.csv", schema=schema, marginals=tables, epsilon=1.0, delta=1e-5)
    yield "counts", counts.to_dict()
    yield "certificate", certificate_to_plain(model.privacy_)
    ledger = Ledger.create(f"sqlite:///{folder}/l.db")
    budget = ledger.declare("people", epsilon=9.0, delta=1e-4)
    count_learned_groups(TABLE, "job", epsilon=1.0, delta=1e-5, ledger=budget)
    yield "ledger", ledger.export()
    run = {"n": 1000, "lipschitz": 1.0, "smoothness": 1.0, "step_size": 0.1, "n_steps": 20, "delta": 1e-5}
    asked = answer_account({**run, "noise_std": 0.1}, reasons=False, with_lower_bound=True, orders=(2.0,))
    yield "account", answer_to_dict(asked)
    yield (
        "account",
        answer_to_dict(answer_calibration({**run, "epsilon": 1.0}, reasons=False, with_lower_bound=False)),
    )
    row = np.zeros((1, 1))
    pair = Canary(name="one more", first=(row, np.zeros(1)), second=(row, np.ones(1)))
    attacked = audit(
        lambda X, y, rng: y.sum() + rng.standard_normal(), claim=gaussian_claim(1.0, 1e-5), canary=pair, runs=4000,
        random_state=0,
    )  # fmt: skip
    yield "audit", json.loads(write_document(audit_document(attacked), folder / "audit.json").read_text())
    rows, labels = np.column_stack([np.linspace(-0.5, 0.5, 600), np.zeros(600)]), np.arange(600) // 300
    stated = DPLogisticRegression(data_norm=1.0, classes=[0, 1])
    region = RashomonRegion(
        stated, thresholds=[0.1], n_models=2, epsilon=4.0, public_inputs=rows[::60], random_state=0
    )
    yield "region", region_document(region.fit(rows, labels), region.multiplicity(), "").plain
    draws = RashomonSampler(stated, thresholds=0.3, n_models=2, epsilon=1.0, radius=1.0, random_state=0)
    yield "rashomon", rashomon_document(draws.fit(rows, labels), draws.multiplicity(rows[::60]), "").plain
    yield "counts", count_learned_groups(TABLE, "job", epsilon=1.0, delta=1e-5).to_dict()


def test_what_is_written_satisfies_its_schema(tmp_path: Path) -> None:
    kinds = set()
    for kind, plain in _written_files(tmp_path):
        kinds.add(kind)
        plain = json.loads(_plain.format_json(plain))
        validator = Draft202012Validator(SCHEMAS[kind])
        validator.check_schema(SCHEMAS[kind])
        validator.validate(plain)
        assert not validator.is_valid({**plain, "unheard of": 1}), kind
        for name in SCHEMAS[kind]["required"]:
            assert not validator.is_valid({key: value for key, value in plain.items() if key != name}), (
                kind,
                name,
            )
    assert kinds == set(SCHEMAS)


def test_the_published_schemas_are_those_of_this_version() -> None:
    folder = Path(__file__).parents[3] / "docs/assets/schemas"
    assert {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")} == SCHEMAS


VALUES = (
    None,
    True,
    -1,
    0,
    0.5,
    2,
    1e300,
    "inf",
    "x",
    [],
    ["x"],
    {},
    {"kind": "pure", "count": 1, "value": 1},
)


def _mutants(plain: Any) -> Iterator[Any]:
    """Yield the data with one value, at any depth, replaced or removed."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield {key: item for key, item in plain.items() if key != name}
            yield from ({**plain, name: other} for other in (*VALUES, *_mutants(value)))
    elif isinstance(plain, list):
        for i, value in enumerate(plain):
            yield from ([*plain[:i], other, *plain[i + 1 :]] for other in (*VALUES, *_mutants(value)))


@pytest.mark.parametrize(
    ("kind", "plain", "load"),
    [
        ("guarantee", guarantee_to_plain(GUARANTEE), guarantee_from_plain),
        (
            "plan",
            {k: v for k, v in plan_to_plain(PLAN).items() if k not in ("digest", "certificate")},
            plan_from_plain,
        ),
    ],
)
def test_every_file_that_loads_satisfies_its_schema(
    kind: str, plain: Any, load: Callable[[Any], Any]
) -> None:
    validator, n_loaded, n_refused = Draft202012Validator(SCHEMAS[kind]), 0, 0
    for mutant in _mutants(plain):
        try:
            load(mutant)
        except DplangevinError:
            n_refused += not validator.is_valid(mutant)
            continue
        n_loaded += 1
        validator.validate(mutant)
    assert n_loaded > 10
    assert n_refused > 50  # else the schema would say nothing
