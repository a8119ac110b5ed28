"""`dplangevin audit` and the reports of an audit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dplangevin.audit import gaussian_claim, many_run_attack
from dplangevin.cli.main import run_command_line
from dplangevin.report import write_report

COMMAND = ["audit", "--model", "ridge", "--epsilon", "2", "--alpha", "50", "--runs", "900", "--random-state", "1",
           "--canary", "worst-direction"]  # fmt: skip


def test_the_honest_model_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([*COMMAND, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["refuted"] is False
    assert answer["claimed"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert 0 < answer["mu_lower"] < answer["claimed"]["mu"]


def test_a_broken_model_falls_with_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "audit.html"
    assert run_command_line([*COMMAND, "--noise-divisor", "4", "--report", str(page)]) == 3
    assert "REFUTED" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--model", "nonsense"], "--model must be one of"),
        (["--noise-divisor", "-1"], "--noise-divisor must be positive"),
        (["--runs", "4"], "too few"),
        (["--report", "audit.pdf"], "must end in"),
        (["--canary", "nonsense"], "canary must be one of"),
    ],
)
def test_bad_input(more: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([*COMMAND, *more]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".html", ".md", ".json"])
def test_reports(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 1000))
    result = many_run_attack(first, second + 1, gaussian_claim(0.5, 1e-5), delta=1e-5, canary="<script>")
    text = write_report(result, tmp_path / f"audit{suffix}").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    if suffix == ".json":
        plain = json.loads(text)
        assert plain["audit"]["refuted"] is True
        assert len(plain["trade_off_curve"]["claimed"]) > 50
    else:
        assert "REFUTED" in text
        assert "false positive rate" in text or "claimed: no attack" in text
