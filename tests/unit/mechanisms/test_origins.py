"""Every theorem says whether it is a paper's or this project's own, and the proofs are where it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from _registered import THEOREMS_BY_SPEC
from dplangevin.accounting import guarantee
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian

ROOT = Path(__file__).parents[3]
NAMES = sorted({name for family in THEOREMS_BY_SPEC.values() for name in family})


@pytest.mark.parametrize("name", NAMES)
def test_every_theorem_has_an_origin_and_its_proof_exists(name: str) -> None:
    found = guarantee.origin_of(name)
    assert found.kind in (guarantee.PUBLISHED, guarantee.PROVED_HERE)
    assert (found.kind == guarantee.PROVED_HERE) == bool(found.proofs)
    for place in found.proofs:
        page, _, section = place.partition(", ")
        text = (ROOT / page).read_text()
        heading = section.rpartition(", ")[2].removeprefix("section ")
        marks = (f"## {heading}.", f"### {heading},", f"## {heading}")
        assert not section or any(mark in text for mark in marks)


@pytest.mark.parametrize(
    "family", THEOREMS_BY_SPEC.values(), ids=[spec.__name__ for spec in THEOREMS_BY_SPEC]
)
def test_a_reference_to_our_own_pages_is_never_called_published(family: dict[str, object]) -> None:
    for name, theorem in family.items():
        if "docs/theory" in theorem.reference or "corrected" in theorem.reference:  # type: ignore[attr-defined]
            assert guarantee.origin_of(name).kind == guarantee.PROVED_HERE


def test_composed_and_unknown_guarantees() -> None:
    assert guarantee.origin_of("composition + block-recursion").proofs == (
        "docs/theory/noisy_sgd.md, section 3, B3",
    )
    assert guarantee.origin_of("exponential mechanism, certified sampler").kind == guarantee.PROVED_HERE
    assert guarantee.origin_of("composition + nobody's").kind == guarantee.NOT_STATED


def test_one_name_has_one_origin_whatever_was_imported_first() -> None:
    rival = (
        "from dplangevin.accounting.plan import Theorem; from dplangevin.accounting.guarantee import origin_of\n"
        "class Rival(Theorem, name='composition', proof='docs/theory/accountant.md'): ...\n"
        "origin_of('optimal-shift')"
    )
    two = subprocess.run([sys.executable, "-c", rival], capture_output=True, text=True, check=False)
    assert two.returncode != 0
    assert "TypeError: two theorems are called 'composition'" in two.stderr
    asked = (
        "from dplangevin.accounting.guarantee import origin_of; print(origin_of('underdamped trajectory'))"
    )
    first = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert first.stdout.strip() == str(guarantee.origin_of("underdamped-trajectory"))
    assert guarantee.origin_of("underdamped-trajectory").kind == guarantee.PROVED_HERE


@pytest.mark.parametrize(
    "family", THEOREMS_BY_SPEC.values(), ids=[spec.__name__ for spec in THEOREMS_BY_SPEC]
)
def test_published_theorems_say_where_in_the_paper(family: dict[str, object]) -> None:
    for name, theorem in family.items():
        if guarantee.origin_of(name).kind == guarantee.PUBLISHED:
            place = r"(Theorems?|Propositions?|Lemmas?|Corollary|Algorithm|sections?) [0-9A-D]"
            assert re.search(place, theorem.reference), name  # type: ignore[attr-defined]
            assert re.match(r"[^;]*" + place, theorem.reference), name  # type: ignore[attr-defined]


def test_reports_show_it() -> None:
    g = Guarantee(
        parts=(Gaussian(mu=1.0),),
        adjacency="replace-one",
        release="last-iterate",
        theorem="dobrushin",
        reference="Dobrushin (1956)",
        at_delta=1e-6,
    )
    assert g.to_dict()["origin"] == "proved here"
    assert g.to_dict()["proofs"] == ["docs/theory/noisy_sgd.md, section 3, B4"]
    assert "by dobrushin (proved here): Dobrushin (1956)" in str(g)
    assert "- proof: docs/theory/noisy_sgd.md, section 3, B4" in str(g)
