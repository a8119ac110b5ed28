"""The steps to a release: nothing is read before it, every number is the command line's, and errors say the cure."""

from __future__ import annotations

import io
import json
import math
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from dplangevin.cli.main import run_command_line
from ui._page import find_error


def run_json(*arguments: str) -> Any:
    """What a command prints as JSON."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run_command_line(arguments) == 0
    return json.loads(printed.getvalue())


def shown_numbers(text: str) -> list[float]:
    """The numbers of a page, in full precision."""
    return [float(value) for value in re.findall(r'<data value="([^"]+)">', text)]


def draft_of(page: Any, address: str) -> Any:
    return page.routes.drafts.load(address.rpartition("/")[2])


def test_nothing_but_the_names_of_columns_is_read_before_the_release(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dplangevin.tables import files

    secret = "zebra-cell-77"
    page.table.write_text(f"age,income,job,sex,sick\n1,2,{secret},f,no\n")

    def refuse(*_: Any) -> Any:
        raise AssertionError("a cell was read")

    for owner, name in (
        (files.TableFiles, "batches"),
        (files.TableFiles, "read_table"),
        (files.TextFile, "batches"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(files.TableFiles, "count_rows", refuse)
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    answer = visitor.answer_columns(draft, rows="stated", n="5,000")
    assert find_error(answer.text) == ""
    summary = visitor.review(draft)
    pages = [visitor.get(f"{draft}/{step}").text for step in ("columns", "model", "budget", "review")]
    pages += [visitor.get(f"{draft}/plan?epsilon={epsilon}").text for epsilon in (0.1, 0.5, 2)]
    assert all(secret not in text for text in (summary.text, *pages))
    assert draft_of(page, draft).n == 5000


def test_the_number_of_rows_is_counted_only_where_it_is_public(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dplangevin.tables import files

    counted = []
    real = files.TableFiles.count_rows
    monkeypatch.setattr(files.TableFiles, "count_rows", lambda self: counted.append(1) or real(self))
    draft = page.visitor.open_table(page.table)
    page.visitor.answer_columns(draft, rows="stated", n="1000")
    assert not counted
    page.visitor.answer_columns(draft)
    assert counted == [1]
    assert draft_of(page, draft).n == 1500
    assert draft_of(page, draft).adjacency == "replace-one"


@pytest.mark.parametrize(
    ("learned", "model"),
    [
        (True, {"model": "logistic", "labels": "no, yes"}),
        (False, {"model": "logistic", "labels": "no, yes", "intervals": "yes"}),
        (False, {"model": "additive", "labels": "no, yes"}),
        (True, {"model": "additive", "labels": "no, yes"}),
        (False, {"model": "logistic", "labels": "no, yes", "max_rows_per_person": "2"}),
    ],
)
def test_the_plan_is_that_of_the_command_line(page: Any, learned: bool, model: dict[str, str]) -> None:
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    (visitor.answer_columns if learned else visitor.state_columns)(draft)
    answer = visitor.post(f"{draft}/model", **model)
    assert str(answer.url).endswith("/budget"), find_error(answer.text)
    stored = draft_of(page, draft)
    stored.build_schema().save(page.folder / "schema.json")
    for epsilon in (0.3, 1.0):
        sent = visitor.get(f"{draft}/plan.json?epsilon={epsilon}").json()
        arguments = [
            word.replace("schema.json", str(page.folder / "schema.json")) for word in stored.plan_arguments()
        ]
        arguments = [f"--epsilon={epsilon}" if word.startswith("--epsilon=") else word for word in arguments]
        printed = run_json(*arguments, "--json")
        assert sent == printed
        numbers = shown_numbers(visitor.get(f"{draft}/plan?epsilon={epsilon}").text)
        assert printed["guarantee"]["epsilon"] in numbers
        assert printed["predicted_excess_risk"] in numbers
        assert printed["score_error"] in numbers
        assert set(printed["tpr_at_fpr"].values()) <= set(numbers)


def test_a_person_column_needs_a_stated_number_of_rows_and_is_planned_as_the_command_does(page: Any) -> None:
    visitor = page.visitor
    page.table.write_text("patient,age,sick\n1,30,no\n")
    draft = visitor.open_table(page.table)
    assert "patient" in visitor.get(f"{draft}/columns").text
    roles = {"role_0": "person", "role_1": "number", "role_2": "target"}
    refused = visitor.post(f"{draft}/columns", **roles, rows="count")
    assert "state about how many rows" in find_error(refused.text)
    assert str(visitor.post(f"{draft}/columns", **roles, rows="stated", n="3000").url).endswith("/model")
    visitor.post(f"{draft}/model", model="logistic", labels="no, yes", max_rows_per_person="3")
    stored = draft_of(page, draft)
    stored.build_schema().save(page.folder / "schema.json")
    arguments = [
        word.replace("schema.json", str(page.folder / "schema.json")) for word in stored.plan_arguments()
    ]
    assert visitor.get(f"{draft}/plan.json").json() == run_json(*arguments, "--json")
    summary = visitor.review(draft, max_rows_per_person="3")
    assert "all rows of a" in summary.text
    assert "max-rows-per-person=3" in " ".join(stored.command_arguments(page.ledger))


def test_the_ledger_and_the_accountant_show_the_numbers_of_the_command_line(page: Any) -> None:
    visitor = page.visitor
    visitor.post(
        "/ledger/declare", name="people", epsilon="2", delta="1e-6", rows="1", adjacency="replace-one"
    )
    assert visitor.get("/ledger.json").json() == run_json("ledger", "show", "--ledger", page.ledger, "--json")
    shown = shown_numbers(visitor.get("/ledger").text)
    assert {2.0, 1e-6, 0.0} <= set(shown)
    runs = {
        "sgd": "n=10000 lipschitz=1 batch_size=100 noise_std=0.05 step_size=1 n_steps=50 delta=1e-6",
        "descent": "n=10000 lipschitz=1 noise_std=0.02 step_size=1 smoothness=0.26 strong_convexity=0.01 "
        "n_steps=1000 delta=1e-6",
        "diffusion": "n=10000 lipschitz=1 smoothness=0.26 strong_convexity=0.01 inverse_temperature=2000 time=20 "
        "n_steps=1000 delta=1e-6",
    }
    extra = {"sgd": ["--sampling=poisson"], "descent": [], "diffusion": ["--mechanism=langevin"]}
    for method, text in runs.items():
        query = "&".join([f"method={method}", *text.split()])
        flags = [f"--{word.replace('_', '-')}" for word in text.split()]
        flags = [flag.replace("--inverse-temperature", "--beta") for flag in flags]
        printed = run_json("account", *flags, *extra[method], "--json")
        assert visitor.get(f"/account.json?{query}").json() == printed, method
        answer = visitor.get(f"/account?{query}")
        assert answer.status_code == 200, find_error(answer.text)
        assert printed["epsilon"] in shown_numbers(answer.text)
        assert "<svg" in answer.text


def test_what_is_left_after_a_release_is_what_the_ledger_then_says(page: Any) -> None:
    from dplangevin.ledger import Ledger
    from dplangevin.ui import plans

    draft = page.visitor.open_table(page.table)
    page.visitor.state_columns(draft)
    page.visitor.review(draft)
    plan = plans.plan_draft(draft_of(page, draft))
    view = plans.view_budget(page.ledger, "people", plan)
    budget = Ledger.open(page.ledger).dataset("people")
    assert budget.remaining().entries == 0  # looking charges nothing
    budget.charge(plan.guarantee)
    assert budget.remaining() == view.after
    too_much = page.visitor.get(f"{draft}/plan?epsilon=9&dataset=people").text
    assert "Does not fit:" in too_much


def test_a_public_file_fills_in_ranges_and_lists_and_shows_rows(page: Any) -> None:
    draft = page.visitor.open_table(page.table, is_public="yes")
    stored = draft_of(page, draft)
    roles = {name: choice.role for name, choice in stored.choices}
    assert (roles["age"], roles["job"]) == ("number", "category")
    text = page.visitor.get(f"{draft}/columns").text
    assert "First rows, which you marked as public" in text
    assert "nurse" in text
    private = page.visitor.get(page.visitor.open_table(page.table) + "/columns").text
    assert "nurse" not in private


def test_an_epsilon_for_a_goal_is_simulated_without_the_table(page: Any) -> None:
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    visitor.answer_columns(draft, rows="stated", n="20000")
    visitor.post(f"{draft}/model", model="logistic", labels="no, yes")
    page.table.unlink()
    text = visitor.get(f"{draft}/budget?excess=0.05").text
    assert find_error(text) == ""
    assert "reaches it in simulated fits" in text
    stated = float(re.search(r'name="epsilon" id="epsilon" value="([^"]+)"', text)[1])
    assert 0.01 < stated < 10


@pytest.mark.parametrize("person", [False, True])
def test_what_is_left_for_people_with_several_rows_is_what_the_ledger_then_says(
    tmp_path: Path, person: bool
) -> None:
    import numpy as np
    import pandas as pd

    from dplangevin import DPLogisticRegression, Ledger, preview_fit

    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"id": rng.integers(0, 500, 1000), "age": rng.uniform(0, 100, 1000)})
    schema = {"columns": {"age": {"range": [0, 100]}}, "target": {"name": "y", "classes": ["a", "b"]}}
    more = {"person": "id", "n_public": 1000, "adjacency": "add-remove"} if person else {}
    budget = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}").declare(
        "people", epsilon=3, delta=1e-5, max_rows_per_person=2, adjacency=more.get("adjacency")
    )
    model = DPLogisticRegression(
        epsilon=1.0, delta=1e-6, schema=schema, ledger=budget, max_rows_per_person=2, **more
    )
    preview = preview_fit(model, n=1000, names=["id", "age", "y"], target="y")
    after = budget.remaining_after(preview.guarantee)
    assert budget.remaining().entries == 0
    model.fit(frame, np.where(rng.random(1000) < 0.5, "a", "b"))
    assert model.privacy_.epsilon(1e-6) == preview.guarantee.epsilon(1e-6)
    assert budget.remaining() == after


BAD_ANSWERS: dict[str, tuple[str, dict[str, str], str]] = {
    "no kind": ("columns", {"role_0": ""}, "say what 'age' is"),
    "two targets": ("columns", {"role_0": "target"}, "only one column may be"),
    "half a range": ("columns", {"low_0": "3"}, "needs two numbers"),
    "a range of arguments": ("columns", {"low_0": "a", "high_0": "b"}, "needs two numbers"),
    "an empty range": ("model", {"low_0": "5", "high_0": "5"}, ""),
    "no rows": ("columns", {"rows": ""}, "say whether the number of rows is public"),
    "rows of arguments": ("columns", {"rows": "stated", "n": "many"}, "must be a whole number"),
    "no features": ("columns", {f"role_{i}": "none" for i in range(4)}, "choose at least one"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_bad_answer_about_columns_is_one_sentence_and_is_kept(page: Any, case: str) -> None:
    step, changes, message = BAD_ANSWERS[case]
    draft = page.visitor.open_table(page.table)
    answer = page.visitor.answer_columns(draft, **changes)
    if step == "model":
        answer = page.visitor.post(f"{draft}/model", model="logistic", labels="no, yes")
    error = find_error(answer.text)
    assert message in error.replace("&#39;", "'")
    assert error.startswith("Not yet:")
    assert answer.status_code == 422
    if changes.get("low_0"):
        assert draft_of(page, draft).columns[0].low == changes["low_0"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"model": "logistic", "labels": ""}, "state the labels"),
        ({"model": "logistic", "labels": "no"}, "at least two"),
        ({"model": "count"}, "need stated ranges"),
        ({"model": "rashomon", "labels": "no, yes"}, "need stated ranges"),
        ({"model": "poisson"}, "range"),
        ({"model": "magic"}, "choose what to release"),
        ({"model": "logistic", "labels": "no, yes", "max_rows_per_person": "0"}, "whole number above 0"),
    ],
)
def test_a_model_that_cannot_be_planned_is_refused_with_a_cure(
    page: Any, model: dict[str, str], message: str
) -> None:
    draft = page.visitor.open_table(page.table)
    page.visitor.answer_columns(draft)
    answer = page.visitor.post(f"{draft}/model", **model)
    assert message in find_error(answer.text)


def test_files_that_are_no_tables_are_refused_without_their_content(page: Any, tmp_path: Path) -> None:
    secret = "zebra-cell-77"
    damaged = tmp_path / "damaged.parquet"
    damaged.write_text(secret)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    twice = tmp_path / "twice.csv"
    twice.write_text(f"a,a\n{secret},1\n")
    for name in (damaged, empty, twice, tmp_path / "absent.csv", tmp_path, Path("/dev/null")):
        answer = page.visitor.post("/draft", path=str(name))
        assert answer.status_code == 422
        assert find_error(answer.text)
        assert secret not in answer.text
    assert "choose a file" in find_error(page.visitor.post("/draft", path="").text)
    assert "no such file" in find_error(page.visitor.post("/draft", path="a\0b.csv").text)
    assert page.visitor.get("/?folder=a%00b").status_code == 200


def test_numbers_in_addresses_that_are_none_are_refused(page: Any) -> None:
    draft = page.visitor.open_table(page.table)
    page.visitor.answer_columns(draft)
    page.visitor.post(f"{draft}/model", model="logistic", labels="no, yes")
    for epsilon in ("x", "nan", "inf", "-1", "0", "1e400"):
        answer = page.visitor.get(f"{draft}/plan?epsilon={epsilon}")
        assert find_error(answer.text), epsilon
    for path in (
        "/draft/../etc/columns",
        "/draft/x/columns",
        "/release/x",
        "/release/20200101-000000-00000000",
    ):
        assert page.visitor.get(path).status_code == 404


def test_the_error_bar_is_that_of_simulated_fits() -> None:
    """The estimate of the error bar against fits with noise and without, on rows that no rule was chosen on."""
    import numpy as np

    from dplangevin import DPRidge
    from dplangevin.estimators.fit_preview import preview_fit

    rng = np.random.default_rng(5)
    n, width = 4000, 4
    names = [f"x{j}" for j in range(width)]
    rows = rng.uniform(-1, 1, (n, width))
    target = np.clip(rows @ np.array([0.5, -0.3, 0.2, 0.0]) + 0.2 * rng.standard_normal(n), -1, 1)
    schema = {"columns": {name: {"range": [-1, 1]} for name in names}, "missing": "never",
              "target": {"name": "y", "range": [-1, 1]}}  # fmt: skip
    table = {name: rows[:, j] for j, name in enumerate(names)}
    import pandas as pd

    frame = pd.DataFrame(table)

    def scores(epsilon: float, seed: int) -> Any:
        model = DPRidge(epsilon=epsilon, delta=1e-6, schema=schema, random_state=seed, secure=False)
        return model.fit(frame, target).predict(frame)

    preview = preview_fit(
        DPRidge(epsilon=0.5, delta=1e-6, schema=schema), n=n, names=[*names, "y"], target="y"
    )
    best = scores(200.0, 0)
    errors = [math.sqrt(np.mean((scores(0.5, seed) - best) ** 2)) for seed in range(1, 9)]
    measured = 1.96 * math.sqrt(np.mean(np.square(errors)))
    assert measured / 3 < preview.score_error < 3 * measured
