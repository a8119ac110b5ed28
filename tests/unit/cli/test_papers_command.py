"""`dplangevin papers`, and every line to run that the concordance states."""

from __future__ import annotations

import shlex

import pytest

from dplangevin.cli.main import run_command_line
from dplangevin.papers.concordance import PAPERS, ROWS, Row
from dplangevin.papers.gallery.langevin import table_one

EXAMPLES = [row for row in ROWS if row.example]


def test_papers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["papers"]) == 0
    text = capsys.readouterr().out
    assert all(paper.title in text and paper.authors in text for paper in PAPERS)


@pytest.mark.parametrize(
    ("query", "number"), [("altschuler", "Theorem 4.1"), ("mirror", "Theorem 74"), ("tanh", "I.2")]
)
def test_statements_are_found(query: str, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["papers", "search", query]) == 0
    assert number in capsys.readouterr().out


def test_several_words_must_all_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["papers", "search", "altschuler", "private", "select"]) == 0
    assert "unconstrained problems" in capsys.readouterr().out
    assert run_command_line(["papers", "search", "altschuler", "rashomon"]) == 2


def test_a_statement_is_shown_with_a_line_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["papers", "show", "theorem f.1", "--paper", "2022"]) == 0
    text = capsys.readouterr().out
    assert "Ganesh, Thakurta and Upadhyay (2022), Theorem F.1" in text
    assert "try        dplangevin plan --mechanism langevin" in text
    assert run_command_line(["papers", "show", "Theorem 99.9"]) == 2


@pytest.mark.parametrize("row", EXAMPLES, ids=[f"{row.paper} {row.number}" for row in EXAMPLES])
def test_every_stated_line_runs(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = shlex.split(row.example)
    assert program == "dplangevin"
    assert run_command_line(words) == 0, capsys.readouterr().err


def test_every_row_has_a_use_and_a_line() -> None:
    assert {row.use for row in ROWS} == {"runs on data", "computes a bound", "printed formula", "refused"}
    assert all(row.command for row in ROWS)


def test_the_tour_runs_and_measures_below_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    for _, _, measured, bound, _ in table_one():
        assert -1e-9 <= measured <= bound
    assert run_command_line(["papers", "tour"]) == 0
    assert "The universality of Langevin diffusion" in capsys.readouterr().out
