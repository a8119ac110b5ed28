"""Reports: the numbers people read are the numbers programs read, and nothing in a page can run or fetch."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from dplangevin import report
from dplangevin.accounting.guarantee import Guarantee, NotPrivate
from dplangevin.accounting.parts import Approximate, Gaussian, Pure
from dplangevin.accounting.plan import Plan
from dplangevin.audit import gaussian_claim, many_run_attack
from dplangevin.cli.main import run_command_line as command
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.estimators import DPLogisticRegression, DPRidge, model_file
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.release import Release
from dplangevin.planner.fit_plan import plan_fit
from dplangevin.problem import Ball, DataBounds, Logistic, Problem
from dplangevin.report.answer import format_number
from dplangevin.report.document import write_document
from dplangevin.report.plots import Line, Plot
from dplangevin.report.release import release_document, tradeoff_at

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (500, 3))
Y = (X[:, 0] > 0).astype(float)
PROBLEM = Problem(
    loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=500, n_features=3, constraint=Ball(2.0), ridge=0.01,
    fit_intercept=False,
)  # fmt: skip


def _release(**changes: Any) -> Release:
    options: dict[str, Any] = {"step_size": 1.0, "noise_std": 0.1, "n_steps": 40, **changes}
    plan = Plan(problem=PROBLEM, spec=NoisyGradientSpec(**options), delta=1e-6)
    return run_plan(plan, ArrayDataset(X, Y, PROBLEM))


def _make_guarantee(*parts: Any, **fields: Any) -> Guarantee:
    words = {"adjacency": "replace-one", "release": "draw", "theorem": "t", "reference": "r", **fields}
    return Guarantee(parts=parts, **words)


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.values: list[float] = []
        self.script = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "data":
            self.values.append(float(dict(attrs)["value"] or "nan"))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.script += data


def _numbers(plain: Any) -> set[float]:
    if isinstance(plain, dict):
        return set().union(*map(_numbers, plain.values())) if plain else set()
    if isinstance(plain, list):
        return set().union(*map(_numbers, plain)) if plain else set()
    return {float(plain)} if isinstance(plain, (int, float)) and not isinstance(plain, bool) else set()


def _written(thing: Any, folder: Path, **options: Any) -> tuple[_Page, dict[str, Any], str]:
    document = release_document(thing, **options)
    page = write_document(document, folder / "out.html")
    plain = json.loads(write_document(document, folder / "out.json").read_text())
    text = write_document(document, folder / "out.md").read_text()
    return _Page(page.read_text()), plain, text


def _subjects(folder: Path) -> dict[str, Any]:
    estimator = {"epsilon": 1.0, "data_norm": 2.0, "random_state": 0}
    logistic = DPLogisticRegression(**estimator, delta=1e-6, classes=[0.0, 1.0]).fit(X, Y)
    model_file.save_model(logistic, folder / "model.json")
    return {
        "last iterate": _release(),
        "average": _release(release="average", momentum=True),
        "per step": _release(n_steps=3, noise_std=(0.1, 0.2, 0.3)),
        "cyclic": _release(sampling="cyclic", batch_size=100),
        "without replacement": _release(sampling="without-replacement", batch_size=50),
        "checkpoints": _release(release="checkpoints", checkpoints=(10, 40)),
        "plan": _release().plan,
        "endless": Plan(
            problem=PROBLEM,
            spec=NoisyGradientSpec(step_size=1.0, noise_std=0.1, n_steps=math.inf),
            delta=1e-6,
        ),
        "recipe": plan_fit(
            model="logistic", n=500, n_features=3, epsilon=1.0, delta=1e-6, adjacency="add-remove", data_norm=1.0,
            fit_intercept=True,
        ),
        "estimator": logistic,
        "pure": DPLogisticRegression(**estimator, delta=0, classes=[0.0, 1.0]).fit(X, Y),
        "moments": DPRidge(
            **estimator, delta=1e-6, target_bounds=(0, 1), mechanism="sufficient-statistics", max_rows_per_person=2
        ).fit(X, Y),
        "output": DPRidge(**estimator, delta=1e-6, target_bounds=(0, 1), mechanism="output-perturbation").fit(X, Y),
        "loaded": model_file.load_model(folder / "model.json"),
        "guarantee": _make_guarantee(Pure(value=0.5)),
        "endless epsilon": _make_guarantee(Gaussian(mu=1.0)),
    }  # fmt: skip


def test_every_number_people_read_is_in_the_json(tmp_path: Path) -> None:
    for name, thing in _subjects(tmp_path).items():
        page, plain, text = _written(thing, tmp_path)
        embedded = json.loads(page.script)
        assert embedded == plain, name
        known = _numbers(plain) | {math.inf}
        assert page.values, name
        assert set(page.values) <= known, name
        assert "privacy report" in text, name
        assert (tmp_path / "out.html").stat().st_size < 2_000_000, name


def test_a_page_cannot_fetch_or_run_anything(tmp_path: Path) -> None:
    page, _, _ = _written(_release(), tmp_path)
    assert not [
        tag for tag, _ in page.tags if tag in ("img", "iframe", "object", "embed", "base", "form", "a")
    ]
    assert [attrs.get("type") for tag, attrs in page.tags if tag == "script"] == ["application/json"]
    links = [attrs for tag, attrs in page.tags if tag == "link"]
    assert [attrs["href"] for attrs in links] == ["data:,"]
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert "url(" not in (tmp_path / "out.html").read_text()
    assert "@import" not in (tmp_path / "out.html").read_text()


def test_words_of_the_user_stay_words(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)> | [a](javascript:x) `b`\x1b[31m"
    thing = _make_guarantee(Gaussian(mu=1.0), assumptions=(evil,), at_delta=1e-5)
    page, plain, text = _written(thing, tmp_path)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert plain["guarantee"]["assumptions"] == [evil]
    assert "<script" not in text
    assert "\x1b" not in text
    assert r"\[a\]" in text


@pytest.mark.parametrize(
    "words", ["[x](javascript:1)", r"\[x\](javascript:1)", "\\\\[x](javascript:1)", "a\\|b"]
)
def test_no_words_become_a_link_in_markdown(words: str, tmp_path: Path) -> None:
    """A backslash of the user's own before a bracket undid the escape of the bracket."""
    thing = _make_guarantee(Gaussian(mu=1.0), assumptions=(words,), at_delta=1e-5)
    _, _, text = _written(thing, tmp_path)
    shown = next(line for line in text.splitlines() if "javascript" in line or "a\\" in line)
    free = re.sub(r"\\[\\|\[\]`*]", "", shown)  # what is left after every escaped character
    assert not set("[]|\\") & set(free.removeprefix("- ").strip("| "))


def test_a_number_of_any_size_is_shown() -> None:
    thing = _make_guarantee(Gaussian(mu=1.0), at_delta=1e-320)
    assert "1e-320" in release_document(thing, None).to_markdown()
    assert format_number(5e-324) == "5e-324"


def test_the_trade_off_curve_of_known_guarantees() -> None:
    alphas = (0.0, 0.01, 0.05, 0.5, 1.0)
    found = tradeoff_at(_make_guarantee(Gaussian(mu=1.3)), alphas)
    assert found == pytest.approx([norm.cdf(norm.isf(a) - 1.3) for a in alphas])
    eps = 0.7
    exact = [max(0, 1 - math.exp(eps) * a, math.exp(-eps) * (1 - a)) for a in alphas]
    assert tradeoff_at(_make_guarantee(Pure(value=eps)), alphas) == pytest.approx(exact, abs=2e-3)
    slack = tradeoff_at(_make_guarantee(Approximate(value=eps, slack=0.1)), alphas)
    assert slack[0] == pytest.approx(0.9)
    # a curve made of finitely many eps is below the true one, never above
    for curve in (tradeoff_at(_make_guarantee(Pure(value=eps)), alphas),):
        assert all(a <= b + 1e-12 for a, b in zip(curve, exact, strict=True))


def test_the_report_says_what_the_guarantee_says(tmp_path: Path) -> None:
    release = _release()
    _, plain, text = _written(release, tmp_path)
    guarantee = release.guarantee
    assert plain["guarantee"]["epsilon"] == guarantee.epsilon()
    assert plain["composition_epsilon"] == guarantee.composition.epsilon()  # type: ignore[union-attr]
    assert 0 < plain["lower_bound_epsilon"] <= guarantee.epsilon()
    assert plain["release_hash"] == release.digest()
    here = [row for row in plain["epsilon_against_steps"] if row["steps"] == 40]
    assert here[0]["epsilon"] == pytest.approx(guarantee.epsilon())
    assert all(
        row["lower_bound"] is None or row["lower_bound"] <= row["epsilon"]
        for row in plain["epsilon_against_steps"]
    )
    assert guarantee.theorem in text
    assert "number of records" in text
    assert plain["data_bounds"]["data_norm"] == "1"


def test_rows_per_person_and_seeds_are_said(tmp_path: Path) -> None:
    seeded = run_plan(_release().plan, ArrayDataset(X, Y, PROBLEM), 7)
    assert "anyone who knows it" in _written(seeded, tmp_path)[2]
    model = DPRidge(
        epsilon=1.0,
        delta=1e-6,
        data_norm=2.0,
        target_bounds=(0, 1),
        max_rows_per_person=3,
        mechanism="noisy-gd",
    ).fit(X, Y)
    _, plain, text = _written(model, tmp_path)
    assert "all records (at most 3) of one person" in text
    steps = [row for row in plain["epsilon_against_steps"] if row["steps"] == plain["steps"]]
    assert steps[0]["epsilon"] == pytest.approx(plain["guarantee"]["epsilon"])


def test_the_budget_that_is_left(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/ledger.db").declare("people <b>", epsilon=3.0, delta=1e-5)
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=2.0, classes=[0, 1], ledger=budget).fit(
        X, Y
    )
    page, plain, _ = _written(model, tmp_path)
    assert plain["ledger"]["fitting_text"] == budget.remaining().fitting_text()
    assert plain["ledger"]["entries"] == 1
    assert "spent_epsilon" not in plain["ledger"]  # a running figure is no guarantee
    assert plain["ledger"]["epsilon"] in page.values
    assert _written(_release(), tmp_path)[1]["ledger"] is None


@pytest.mark.parametrize(
    ("thing", "name", "error", "words"),
    [
        (_make_guarantee(Pure(value=1.0)), "out.pdf", InvalidParameter, "must end in"),
        (_make_guarantee(Pure(value=1.0)), "no/where.html", InvalidParameter, "does not exist"),
        (object(), "out.html", InvalidParameter, "no report can be written about a object"),
        (DPRidge(), "out.html", InvalidParameter, "call fit"),
    ],
)
def test_what_cannot_be_reported(
    thing: Any, name: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        report.write_report(thing, tmp_path / name)


def test_no_guarantee_no_report(tmp_path: Path) -> None:
    model = DPRidge()
    model.privacy_ = NotPrivate("tested")
    with pytest.raises(NotPrivateError, match="tested"):
        report.write_report(model, tmp_path / "out.html")


def test_infinite_epsilon_is_null_and_said(tmp_path: Path) -> None:
    _, plain, text = _written(_make_guarantee(Gaussian(mu=1.0)), tmp_path)
    assert plain["guarantee"]["epsilon"] is None
    assert plain["guarantee"]["epsilon_infinite"] is True
    assert "infinite" in text


def test_the_command_line_writes_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    np.savetxt(table, np.column_stack([X, Y]), delimiter=",", header="a,b,c,y", comments="")
    model, page = tmp_path / "model.json", tmp_path / "fit.html"
    arguments = [
        "fit",
        str(table),
        "--target",
        "y",
        "--classes",
        "0,1",
        "--epsilon",
        "1",
        "--data-norm",
        "2",
        "--output",
        str(model),
    ]
    assert command([*arguments, "--report", str(page), "-q"]) == 0
    assert command(["report", str(model), str(tmp_path / "again.md")]) == 0
    assert "## The guarantee" in (tmp_path / "again.md").read_text()
    assert _Page(page.read_text()).values
    assert command(["report", str(model), str(tmp_path / "again.pdf")]) == 2
    assert command(["report", str(tmp_path / "none.json"), str(tmp_path / "a.md")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_plots_survive_odd_points() -> None:
    line = Line(label="<x>", points=[(1.0, math.inf), (math.nan, 2.0)])
    empty = Plot(lines=[line], x_label="x", y_label="y", description="odd").to_svg()
    assert "nothing to draw" in empty
    for log in (False, True):
        for points in (
            [(1.0, 1.0)],
            [(1.0, 2.0), (10.0, 2.0)],
            [(1e-9, 1e9), (1e9, 1e-9)],
            [(3.0, 0.0), (3.0, 5.0)],
        ):
            plot = Plot(
                lines=[Line(label="a", points=points)],
                x_label="x",
                y_label="y",
                description="w",
                log=log,
            )
            drawn = plot.to_svg()
            assert "nan" not in drawn
            places = [float(v) for v in re.findall(r"c[xy]=\"([-\d.]+)\"", drawn)]
            assert all(-1 <= place <= 500 for place in places)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_a_browser_shows_it_without_complaint(tmp_path: Path) -> None:
    report.write_report(_release(), tmp_path / "out.html")
    plain = json.loads(report.write_report(_release().plan, tmp_path / "out.json").read_text())
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={tmp_path}/profile", "--proxy-server=127.0.0.1:9", "--window-size=375,800",
         "--virtual-time-budget=2000", "--dump-dom", f"file://{tmp_path}/out.html"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line or "Refused" in line]
    assert not complaints
    dom = _Page(done.stdout)
    assert plain["guarantee"]["epsilon"] in dom.values
    assert {tag for tag, _ in dom.tags} >= {"svg", "polyline", "table", "h1"}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_the_browser_would_complain(tmp_path: Path) -> None:
    bad = '<img src="http://127.0.0.1:9/x.png"><script>console.error("seen")</script></body>'
    page = release_document(_release()).to_html().replace("</body>", bad)
    (tmp_path / "bad.html").write_text(page)
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{tmp_path}/bad.html"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "Content Security Policy" in done.stderr


def test_a_run_that_composes_says_so_instead_of_drawing_a_line() -> None:
    composed = release_document(_release(momentum=True))
    assert "accounted by composition" in composed.to_html()
    assert composed.to_html().count("<svg") == 1  # the trade-off curve
    assert "<td>-</td>" not in composed.to_html()
    assert len(composed.plain["epsilon_against_steps"]) > 5  # programs still get all of it
    forgetting = release_document(_release())
    assert "accounted by composition" not in forgetting.to_html()
    assert forgetting.to_html().count("<svg") == 2


def test_an_audit_shows_its_sampling_error() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(0.4, 1, 3000), rng.normal(0, 1, 3000)
    page = report.audit_document(
        many_run_attack(*scores, claim=gaussian_claim(1.0, 1e-5), delta=1e-5)
    ).to_html()
    assert page.count("<polygon") == 1
    assert "2,000 runs on each data set" in page
    assert (
        "no attack could certify more than epsilon = 6.2" in page
    )  # log(1 / 0.00184): two thirds of 3000 runs
    assert "<polygon" not in release_document(_make_guarantee(Pure(value=1.0))).to_html()


def test_documents_are_reusable() -> None:
    document = release_document(_make_guarantee(Pure(value=1.0)))
    assert document.to_html().startswith("<!DOCTYPE html>")
    assert json.loads(document.to_json())["format"] == "dplangevin-report"
