"""Guarantees as JSON: exact both ways, every part covered, and nothing but a valid file is read."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import dplangevin.accounting
from dplangevin import account
from dplangevin.accounting import serialize
from dplangevin.accounting.generalized_gaussian import CorrectedNoise, GeneralizedGaussian
from dplangevin.accounting.guarantee import CONDITION_KINDS, Condition, Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    OppositeMixtures,
    PrivacyPart,
    Profile,
    Pure,
    RenyiCurve,
    SampledGaussian,
)
from dplangevin.errors import InvalidParameter

costs = st.floats(0, allow_nan=False, allow_infinity=True, allow_subnormal=True)
probabilities = st.floats(0, 1)
counts = st.integers(1, 10**12)
increasing = st.lists(st.floats(0, 1e6), min_size=1, max_size=6, unique=True).map(lambda x: tuple(sorted(x)))


def _curve(orders: tuple[float, ...]) -> st.SearchStrategy[PrivacyPart]:
    values = st.lists(costs, min_size=len(orders), max_size=len(orders)).map(tuple)
    return st.builds(RenyiCurve, count=counts, orders=st.just(tuple(1.5 + o for o in orders)), values=values)


def _profile(epsilons: tuple[float, ...]) -> st.SearchStrategy[PrivacyPart]:
    size = len(epsilons)
    deltas = st.lists(probabilities, min_size=size, max_size=size).map(lambda x: tuple(sorted(x)[::-1]))
    return st.builds(Profile, count=counts, epsilons=st.just(epsilons), deltas=deltas)


def _spread(orders: tuple[float, ...]) -> bool:
    return len({1.5 + order for order in orders}) == len(orders)


generalized = st.builds(
    GeneralizedGaussian,
    count=counts,
    p=st.floats(1, 64),
    shift=costs,
    changed=st.integers(0, 5),
    answers=st.integers(5, 100),
)
STRATEGIES: dict[type[PrivacyPart], st.SearchStrategy[PrivacyPart]] = {
    Pure: st.builds(Pure, count=counts, value=costs),
    BoundedRange: st.builds(BoundedRange, count=counts, value=costs),
    Gaussian: st.builds(Gaussian, count=counts, mu=costs),
    Concentrated: st.builds(Concentrated, count=counts, rho=costs),
    RenyiCurve: increasing.filter(_spread).flatmap(_curve),
    SampledGaussian: st.builds(
        SampledGaussian,
        count=counts,
        rate=st.floats(0, 1, exclude_min=True),
        noise_multiplier=st.floats(0, exclude_min=True, allow_nan=False),
        sampling=st.sampled_from(["poisson", "without-replacement"]),
    ),
    OppositeMixtures: st.builds(
        OppositeMixtures,
        count=counts,
        rate=st.floats(0, 1, exclude_min=True),
        noise_multiplier=st.floats(0, exclude_min=True, allow_nan=False),
    ),
    Profile: increasing.flatmap(_profile),
    Approximate: st.builds(Approximate, count=counts, value=costs, slack=probabilities),
    GeneralizedGaussian: generalized,
    CorrectedNoise: st.builds(
        CorrectedNoise,
        count=counts,
        noise=generalized,
        n_corrections=st.integers(0, 50),
        search_epsilon=costs,
        answer_epsilon=costs,
    ),
}
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
guarantees = st.builds(
    Guarantee,
    parts=st.lists(st.one_of(*STRATEGIES.values()), max_size=3).map(tuple),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
    release=words,
    theorem=words,
    reference=words,
    assumptions=st.lists(words, max_size=3).map(tuple),
    conditions=st.lists(
        st.builds(Condition, kind=st.sampled_from(CONDITION_KINDS), text=words.filter(bool)), max_size=2
    ).map(tuple),
    arithmetic=st.sampled_from(["real", "discrete-grid"]),
    extra_delta=st.floats(0, 2),
    at_delta=st.none() | probabilities,
)


def make_guarantee(*parts: PrivacyPart, **more: Any) -> Guarantee:
    return Guarantee(
        parts=parts, adjacency="replace-one", release="draw", theorem="composition", reference="none", **more
    )


def _concrete(base: type[PrivacyPart]) -> set[type[PrivacyPart]]:
    below = set(base.__subclasses__())
    return {part for part in below if not inspect.isabstract(part)}.union(
        *(_concrete(part) for part in below)
    )


def test_every_class_of_parts_has_a_json_form() -> None:
    for module in pkgutil.walk_packages(dplangevin.accounting.__path__, "dplangevin.accounting."):
        importlib.import_module(module.name)
    library = {part for part in _concrete(PrivacyPart) if part.__module__.startswith("dplangevin.")}
    assert {kind.part for kind in serialize._PART_FORMATS.values()} == library
    assert set(STRATEGIES) == library


def test_rows_a_person_are_written_where_there_are_several() -> None:
    one = Guarantee(
        parts=(Pure(value=0.5),), adjacency="replace-one", release="draw", theorem="t", reference="r"
    )
    assert "rows_per_person" not in serialize.guarantee_to_json(one)  # files of before stay what they were
    assert serialize.guarantee_from_json(serialize.guarantee_to_json(one.group(3))) == one.group(3)
    assert one.group(3).group(3) == one.group(3).group(2) == one.group(3)
    with pytest.raises(InvalidParameter, match="3 rows per person, not for 4"):
        one.group(3).group(4)
    with pytest.raises(InvalidParameter, match="rows per person"):
        one + one.group(3)


def test_every_field_of_a_guarantee_is_written() -> None:
    # derivations are in certificates, which stand beside a guarantee
    assert {*serialize._FIELDS, "rows_per_person", "composition", "derivations"} == {
        field.name for field in fields(Guarantee)
    }


@given(guarantees, st.none() | guarantees)
@settings(max_examples=300, deadline=None)
def test_the_round_trip_is_exact(guarantee: Guarantee, composition: Guarantee | None) -> None:
    both = Guarantee(**{**vars(guarantee), "composition": composition})
    text = serialize.guarantee_to_json(both)
    back = serialize.guarantee_from_json(text)
    assert back == both
    assert back.composition == composition
    assert serialize.guarantee_to_json(back) == text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_real_guarantees_survive() -> None:
    options: dict[str, Any] = {
        "n": 2000,
        "lipschitz": 1.0,
        "step_size": 0.5,
        "noise_std": 0.05,
        "delta": 1e-6,
    }
    ridge: dict[str, Any] = {"smoothness": 0.3, "strong_convexity": 0.05, "diameter": 4.0}
    found = [
        account(n_steps=20, **options),
        account(n_steps=math.inf, **options, **ridge),
        account(n_steps=40, batch_size=100, sampling="cyclic", **options, **ridge),
        account(n_steps=40, batch_size=100, sampling="shuffle", **options, **ridge),
        account(n_steps=40, batch_size=100, sampling="without-replacement", **options, **ridge),
        account(n_steps=40, batch_size=100, sampling="poisson", adjacency="add-remove", **options, **ridge),
    ]
    for guarantee in found:
        back = serialize.guarantee_from_json(serialize.guarantee_to_json(guarantee))
        assert back == guarantee
        assert back.composition == guarantee.composition
        assert back.epsilon() == guarantee.epsilon()


def test_spellings_of_one_number_agree() -> None:
    same = [
        make_guarantee(Pure(value=1)),
        make_guarantee(Pure(value=1.0)),
        make_guarantee(Pure(value=np.float64(1.0))),
    ]
    assert len({serialize.guarantee_to_json(guarantee) for guarantee in same}) == 1
    assert '"inf"' in serialize.guarantee_to_json(make_guarantee(Pure(value=math.inf)))


def _changed(**changes: Any) -> str:
    plain = serialize.guarantee_to_plain(make_guarantee(Gaussian(mu=0.5)))
    plain.update(changes)
    return json.dumps({name: value for name, value in plain.items() if value != "remove"})


BAD_TEXTS = {
    "no JSON": "parts",
    "empty": "",
    "another thing": '{"format": "model", "version": 1}',
    "a list": "[]",
    "a newer version": _changed(version=3),
    "an older version": _changed(version=1),
    "no version": _changed(version=None),
    "a version that is no number": _changed(version=True),
    "an unknown field": _changed(extra=1),
    "a missing field": _changed(theorem="remove"),
    "an unknown adjacency": _changed(adjacency="swap"),
    "a negative extra delta": _changed(extra_delta=-1e-9),
    "at_delta above one": _changed(at_delta=1.5),
    "words that are no text": _changed(theorem=3),
    "half a character": _changed(theorem="\ud800"),
    "parts that are no list": _changed(parts={}),
    "a part that is no object": _changed(parts=[3]),
    "an unknown part": _changed(parts=[{"kind": "os.system", "count": 1}]),
    "a kind that is no word": _changed(parts=[{"kind": ["pure"], "count": 1, "value": 1.0}]),
    "a negative mu": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": -0.1}]),
    "mu as text": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": "0.1"}]),
    "mu as truth": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": True}]),
    "NaN": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": math.nan}]),
    "infinity as a number": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": math.inf}]),
    "a number too large": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": 0.5}]).replace(
        "0.5", "1e999"
    ),
    "a whole number too large": _changed(parts=[{"kind": "gaussian", "count": 1, "mu": 10**400}]),
    "no uses": _changed(parts=[{"kind": "gaussian", "count": 0, "mu": 0.1}]),
    "half a use": _changed(parts=[{"kind": "gaussian", "count": 1.5, "mu": 0.1}]),
    "too many uses": _changed(parts=[{"kind": "gaussian", "count": 2**60, "mu": 0.1}]),
    "a field of another part": _changed(parts=[{"kind": "gaussian", "count": 1, "rho": 0.1}]),
    "orders that fall": _changed(parts=[{"kind": "renyi", "count": 1, "orders": [3, 2], "values": [1, 1]}]),
    "orders of one": _changed(parts=[{"kind": "renyi", "count": 1, "orders": [1], "values": [1]}]),
    "orders without values": _changed(parts=[{"kind": "renyi", "count": 1, "orders": [2, 3], "values": [1]}]),
    "an empty profile": _changed(parts=[{"kind": "profile", "count": 1, "epsilons": [], "deltas": []}]),
    "a profile that rises": _changed(
        parts=[{"kind": "profile", "count": 1, "epsilons": [0, 1], "deltas": [0.1, 0.2]}]
    ),
    "a rate above one": _changed(
        parts=[
            {
                "kind": "sampled-gaussian",
                "count": 1,
                "rate": 1.1,
                "noise_multiplier": 1,
                "sampling": "poisson",
            }
        ]
    ),
    "an unknown sampling": _changed(
        parts=[
            {"kind": "sampled-gaussian", "count": 1, "rate": 0.1, "noise_multiplier": 1, "sampling": "lucky"}
        ]
    ),
    "more changes than answers": _changed(
        parts=[{"kind": "generalized-gaussian", "count": 1, "p": 2, "shift": 1, "changed": 4, "answers": 3}]
    ),
    "noise of the wrong kind": _changed(
        parts=[
            {
                "kind": "corrected-noise",
                "count": 1,
                "noise": {"kind": "pure", "count": 1, "value": 1},
                "hits": 1,
                "search_epsilon": 1,
                "answer_epsilon": 1,
            }
        ]
    ),
    "a name given twice": '{"format": "dplangevin-guarantee", "format": "dplangevin-guarantee", "version": 1}',
    "deep nesting": "[" * 100_000,
}


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS.keys())
def test_bad_files_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        serialize.guarantee_from_json(text)
    assert serialize.guarantee_from_json(_changed())


def test_nesting_is_bounded() -> None:
    inner = make_guarantee(Pure(value=1.0))
    deep = make_guarantee(Pure(value=1.0), composition=make_guarantee(Pure(value=1.0), composition=inner))
    with pytest.raises(InvalidParameter, match="deeply"):
        serialize.guarantee_to_json(deep)


def test_a_newer_version_says_what_to_do() -> None:
    with pytest.raises(InvalidParameter, match=r"version 3.*upgrade dplangevin"):
        serialize.guarantee_from_json(_changed(version=3))


def test_a_version_without_conditions_does_not_become_unconditional() -> None:
    with pytest.raises(InvalidParameter, match=r"format version 1, which dplangevin 0\.1 wrote"):
        serialize.guarantee_from_json(_changed(version=1, conditions="remove"))
    with pytest.raises(InvalidParameter, match="conditions"):
        serialize.guarantee_from_json(_changed(conditions="remove"))
    for bad in (
        [{"kind": "another", "text": "words"}],
        [{"text": "words"}],
        ["words"],
        [{"kind": "public-labels", "text": 1}],
    ):
        with pytest.raises(InvalidParameter):
            serialize.guarantee_from_json(_changed(conditions=bad))


def test_only_what_can_be_read_again_is_written() -> None:
    with pytest.raises(InvalidParameter, match="mu"):
        serialize.guarantee_to_json(make_guarantee(Gaussian(mu=math.nan)))
    with pytest.raises(InvalidParameter, match="only a Guarantee"):
        serialize.guarantee_to_json({"parts": []})  # type: ignore[arg-type]


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
)


@given(guarantees, st.data())
@settings(max_examples=300, deadline=None)
def test_an_altered_file_is_read_or_refused(guarantee: Guarantee, data: st.DataObject) -> None:
    plain: Any = serialize.guarantee_to_plain(guarantee)
    place: Any = plain
    while True:  # walk to a random value and replace it
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(scalars)
        break
    try:
        found = serialize.guarantee_from_json(json.dumps(plain))
    except InvalidParameter:
        return
    assert serialize.guarantee_from_json(serialize.guarantee_to_json(found)) == found


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        serialize.guarantee_from_json(text)
