"""Laws that every theorem of every family obeys, on one run each; the registry says which theorems there are."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from _registered import THEOREMS, THEOREMS_BY_SPEC
from contracts._theorem_cases import BASE, CASES, Case
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, Spec, Theorem, load_plan, save_plan
from dplangevin.accounting.serialize import guarantee_from_json, guarantee_to_json
from dplangevin.errors import AssumptionFailed, DplangevinError, InvalidParameter
from dplangevin.mechanisms.langevin.spec import DiffusionSpec, LangevinSpec
from dplangevin.mechanisms.noisy_gradient.lower_bounds import SELF_CHECK_VARIABLE, epsilon_lower_bound
from dplangevin.mechanisms.noisy_gradient.spec import RELEASE_MODES, NoisyGradientSpec
from dplangevin.problem.constants import Constants

DELTA = 1e-5
KEYS = sorted(CASES, key=lambda key: (key[0].__name__, key[1]))
GRADIENT = [key for key in KEYS if key[0] is NoisyGradientSpec]


@pytest.fixture(autouse=True)
def _full_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SELF_CHECK_VARIABLE, "full")


def named(key: tuple[type[Spec], str]) -> str:
    return f"{key[0].__name__}-{key[1]}"


every_theorem = pytest.mark.parametrize("key", KEYS, ids=named)
every_gradient_theorem = pytest.mark.parametrize("key", GRADIENT, ids=named)


def of(key: tuple[type[Spec], str]) -> tuple[Theorem[Spec], Case]:
    return THEOREMS_BY_SPEC[key[0]][key[1]], CASES[key]


@cache
def cost(theorem: Theorem[Spec], constants: Constants | None, spec: Spec) -> float:
    return theorem.certify(constants, spec).epsilon(DELTA)  # type: ignore[arg-type]


@cache
def leak(constants: Constants, spec: NoisyGradientSpec) -> float:
    return epsilon_lower_bound(constants, spec, DELTA, full=True) or 0.0


def test_every_theorem_on_offer_has_a_case() -> None:
    offered = {(family, name) for family, theorems in THEOREMS_BY_SPEC.items() for name in theorems}
    assert offered == set(CASES)
    assert len(CASES) >= 35  # an empty table would prove nothing
    for family, theorems in THEOREMS_BY_SPEC.items():
        assert theorems, family
        assert all(name == theorem.name for name, theorem in theorems.items())


@every_theorem
def test_more_noise_never_costs_more(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    here = cost(theorem, case.constants, case.spec)
    assert 0 < here < math.inf
    assert cost(theorem, case.constants, replace(case.spec, **case.noisier)) < here


@every_theorem
def test_less_sensitivity_or_more_records_never_cost_more(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    here = cost(theorem, case.constants, case.spec)
    if case.constants is None:
        assert cost(theorem, None, replace(case.spec, **case.gentler)) < here
        return
    largest = case.constants.gradient_sensitivity
    gentler = replace(
        case.constants, lipschitz=0.8 * case.constants.lipschitz, gradient_sensitivity=0.8 * largest
    )
    if case.constants.row_norm is not None and not case.in_rows:
        gentler = replace(gentler, row_norm=0.8)
    assert cost(theorem, gentler, case.spec) < here
    if getattr(case.spec, "batch_size", None) is None and case.constants.row_norm is None:
        more = replace(case.constants, n=2 * case.constants.n)
        assert cost(theorem, more, case.spec) <= here * (1 + 1e-9)


@every_theorem
def test_more_steps_never_cost_less(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    if not case.longer:
        pytest.skip("one draw has no steps")
    longer = replace(case.spec, **case.longer)
    assert cost(theorem, case.constants, longer) >= cost(theorem, case.constants, case.spec) * (1 - 1e-6)


@every_theorem
def test_each_hypothesis_is_refused_by_name(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    for words, constants, spec in case.broken:
        with pytest.raises((AssumptionFailed, InvalidParameter), match=words):
            theorem.certify(replace(case.constants, **constants), replace(case.spec, **spec))


@every_theorem
def test_many_releases_are_their_sum(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    g = theorem.certify(case.constants, case.spec)
    added = (g + g + g).epsilon(DELTA)
    assert (3 * g).epsilon(DELTA) == pytest.approx(added, rel=1e-9)
    assert added >= g.epsilon(DELTA)
    assert (3 * g).extra_delta == pytest.approx((g + g + g).extra_delta, rel=1e-12)
    assert (1 * g).epsilon(DELTA) == g.epsilon(DELTA)


@every_theorem
def test_what_is_written_is_proved_again(key: tuple[type[Spec], str], tmp_path: Path) -> None:
    theorem, case = of(key)
    plan = CertifiedSpec(
        constants=case.constants,  # type: ignore[arg-type]
        spec=case.spec,
        delta=DELTA,
        theorem=theorem.name,
    )
    assert guarantee_from_json(guarantee_to_json(plan.guarantee)) == plan.guarantee
    if case.constants is None:  # not written to plan files
        return
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.spec == case.spec
    assert again.guarantee == plan.guarantee
    text = (tmp_path / "plan.json").read_text()
    claimed = repr(plan.guarantee.epsilon())
    assert claimed in text
    (tmp_path / "plan.json").write_text(text.replace(claimed, repr(0.9 * plan.guarantee.epsilon())))
    with pytest.raises(InvalidParameter):
        load_plan(tmp_path / "plan.json")


@every_theorem
def test_what_it_says(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    g: Guarantee = theorem.certify(case.constants, case.spec)
    assert g.theorem == theorem.name
    assert len(g.reference) > 10
    assert g.adjacency == (case.constants or case.spec).adjacency  # type: ignore[union-attr]
    assert g.release == case.spec.release
    assert len(g.assumptions) >= 2


@every_theorem
def test_every_release_is_covered_or_refused(key: tuple[type[Spec], str]) -> None:
    """Who sees more than the last iterate never pays less, and never less than is known to leak."""
    theorem, case = of(key)
    if isinstance(case.spec, DiffusionSpec):  # it is accounted and never run
        return
    if "checkpoints" not in {f.name for f in fields(case.spec)}:
        assert case.spec.release in ("draw", "noisy-answers", "last-iterate")
        return
    steps = int(case.spec.n_steps)  # type: ignore[attr-defined]
    last = replace(case.spec, release="last-iterate")
    try:
        least = cost(theorem, case.constants, last)
    except AssumptionFailed:
        least = 0.0
    for release in RELEASE_MODES:
        places = (steps // 3, steps) if release == "checkpoints" else ()
        exact = {"secure": True} if release == "last-state" and type(case.spec) is NoisyGradientSpec else {}
        try:
            seen = replace(case.spec, release=release, checkpoints=places, **exact)
        except InvalidParameter:  # states of runs in floating point, of batches, or with momentum
            assert release == "last-state"
            continue
        try:
            found = theorem.certify(case.constants, seen)
        except AssumptionFailed:
            continue
        assert found.release == release
        assert found.epsilon(DELTA) >= least * (1 - 1e-9)
        if isinstance(seen, NoisyGradientSpec):
            plain = seen.to_descent() if isinstance(seen, LangevinSpec) else seen
            assert found.epsilon(DELTA) >= leak(case.constants, plain)


@every_gradient_theorem
@pytest.mark.parametrize("steps", [1, 20, 60, math.inf])
@pytest.mark.parametrize("release", ["last-iterate", "checkpoints"])
def test_unknown_starts_are_covered_or_refused(
    key: tuple[type[Spec], str], steps: float, release: str
) -> None:
    theorem, case = of(key)
    places = (
        {1: (1,), 20: (1, 20), 60: (20, 60)}.get(int(min(steps, 60)), ()) if release == "checkpoints" else ()
    )
    known = replace(case.spec, n_steps=steps, release=release, checkpoints=places)
    unknown = replace(known, start="unknown")
    assert isinstance(unknown, NoisyGradientSpec)
    try:
        found = cost(theorem, case.constants, unknown)
    except AssumptionFailed:
        return
    assert theorem.name in ("optimal-shift", "cyclic-shift")
    assert found >= cost(theorem, case.constants, known)
    assert found >= leak(case.constants, unknown)


@every_gradient_theorem
def test_an_endless_run_costs_at_least_any_other(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    if theorem.name in ("composition", "opposite-records", "secret-permutation"):
        with pytest.raises(AssumptionFailed):
            theorem.certify(case.constants, replace(case.spec, n_steps=math.inf))
        return
    endless = cost(theorem, case.constants, replace(case.spec, n_steps=math.inf))
    for steps in (20, 60, 1000, 10_000_000):  # whole epochs
        here = cost(theorem, case.constants, replace(case.spec, n_steps=steps))
        assert here <= endless * (1 + 1e-6), steps


@every_gradient_theorem
def test_never_below_an_exact_instance(key: tuple[type[Spec], str]) -> None:
    theorem, case = of(key)
    assert isinstance(case.spec, NoisyGradientSpec)
    for constants in (case.constants, replace(case.constants, diameter=math.inf)):
        for steps in (20, 60, math.inf):
            run = replace(case.spec, n_steps=steps)
            try:
                found = cost(theorem, constants, run)
            except AssumptionFailed:
                continue
            assert found >= leak(constants, run)


@pytest.mark.parametrize("name", sorted(THEOREMS))
def test_meaningless_sampling_is_refused_by_every_theorem(name: str) -> None:
    poisson = CASES[NoisyGradientSpec, "participation-start"]
    subsets = CASES[NoisyGradientSpec, "hidden-state-sgd"]
    if name in ("composition", "opposite-records"):  # those that cover Poisson batches under replace-one
        assert THEOREMS[name].certify(BASE, poisson.spec).epsilon(DELTA) < math.inf  # type: ignore[arg-type]
    else:
        with pytest.raises(DplangevinError):
            THEOREMS[name].certify(BASE, poisson.spec)  # type: ignore[arg-type]
    with pytest.raises(DplangevinError):
        THEOREMS[name].certify(poisson.constants, subsets.spec)  # type: ignore[arg-type]
