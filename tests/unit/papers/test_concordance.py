"""The concordance names things that exist, and every citation is an entry of the bibliography."""

from __future__ import annotations

import ast
import calendar
import importlib
import re
from calendar import month_name
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from dplangevin.papers import ITEMS, PAPERS, ROWS, Row, gallery
from dplangevin.papers.concordance import render_concordance

ROOT = Path(__file__).parents[3]
IDS = [f"{row.paper}: {row.number}" for row in ROWS]
NAME = r"[A-Z][\w'-]+"
MONTHS = "|".join(calendar.month_name[1:])
CITATION = re.compile(
    rf"\b(?!{MONTHS})((?:{NAME}(?:, | and |, and ))*{NAME}(?: et al\.)?)(?:,? \(?|, )((?:18|19|20)\d\d)\b(?!,\d)"
)
NOT_CITATIONS = {("Gaussian", "1820"), ("OpenDP", "2022")}  # numbers of a table


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_row_leads_somewhere_and_is_tested(row: Row) -> None:
    assert row.paper in {paper.key for paper in PAPERS}
    assert row.where
    for place in row.where:
        if place.startswith("dplangevin reproduce "):
            assert place.split()[2] in gallery.FIGURES  # test_gallery draws each of them with --quick
        else:
            module, name = place.split(":")
            found = getattr(importlib.import_module(module), name)
            assert (found.__doc__ or "").strip()
    path, test = row.test.split("::")
    assert test in functions_in(ROOT / path)
    if row.status != "full":
        assert row.note


def test_the_table_is_whole() -> None:
    assert len(ROWS) >= 48
    assert max(Counter(IDS).values()) == 1
    assert {row.paper for row in ROWS} == {paper.key for paper in PAPERS}


def test_every_item_of_the_checklist_is_answered() -> None:
    """52 items, each with rows; none is partial, a refusal carries its proof, and every row belongs to an item."""
    assert len(ITEMS) == len({item.name for item in ITEMS}) == 52
    assert {item.status for item in ITEMS} == {"full", "full and refused", "refused"}
    refused = [row for item in ITEMS for row in item.rows if row.status == "refused"]
    assert all(len(row.note) > 60 for row in refused)
    assert {row for item in ITEMS for row in item.rows} == set(ROWS)


def test_the_page_is_the_table() -> None:
    assert (ROOT / "docs" / "papers.md").read_text(encoding="utf-8") == render_concordance()


def test_keys_are_made_of_authors_and_year() -> None:
    for key, authors, year in entries():
        names = [
            re.sub(r"[^a-z]", "", name.split(",")[0].split()[-1].lower()) for name in authors.split(" and ")
        ]
        assert key == "-".join(names) + year


def test_every_citation_is_an_entry_and_every_entry_is_cited() -> None:
    keys = {key for key, _, _ in entries()}
    cited = set()
    for path in pages():
        for authors, year in CITATION.findall(plain(path.read_text(encoding="utf-8"))):
            if (authors, year) in NOT_CITATIONS or authors in month_name:
                continue
            found = matching(authors, year, keys)
            assert found, f"{path.relative_to(ROOT)} cites {authors} ({year}), which references.bib lacks"
            cited |= found
    assert cited == keys


def test_the_detectors_detect() -> None:
    text = plain('"Nobody, Else\n    and Nobody (2031)" "; Dong, Roth and "\n    "Su (2022)"')
    assert CITATION.findall(text) == [("Nobody, Else and Nobody", "2031"), ("Dong, Roth and Su", "2022")]
    keys = {"dong-roth-su2022", "dwork-talwar2014"}
    assert matching("Dwork et al.", "2014", keys) == {"dwork-talwar2014"}
    assert not matching("Dong and Su", "2022", keys)


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def entries() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    found = []
    for body in re.findall(r"^@\w+\{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        key = body.split(",")[0]
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", body, re.MULTILINE))
        found.append((key, fields["author"], fields["year"]))
        assert fields["title"]
    return found


def pages() -> list[Path]:
    patterns = ("src/**/*.py", "docs/**/*.md", "README.md", "benchmarks/*", "examples/*.py")
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [path for path in found if path.suffix in (".py", ".md")]


def plain(text: str) -> str:
    """One line, without the marks of comments and of joined strings."""
    joined = re.sub(r'"\s*\n?\s*[fr]?"', "", text)
    return re.sub(r"\s+", " ", re.sub(r"\n\s*[#>|]?\s*", " ", joined))


def matching(authors: str, year: str, keys: set[str]) -> set[str]:
    names = [re.sub(r"[^a-z]", "", name.lower()) for name in re.split(r", and |, | and ", authors)]
    if authors.endswith("et al."):
        first = re.sub(r"[^a-z]", "", authors.removesuffix(" et al.").lower())
        return {key for key in keys if key.startswith(f"{first}-") and key.endswith(year)}
    return {"-".join(names) + year} & keys
