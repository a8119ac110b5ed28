"""A release is charged once, whatever is clicked, and what was charged is delivered, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.ledger import Ledger
from ui._page import Server, find_error, run_server, write_people


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server in a process of its own."""
    folder = tmp_path_factory.mktemp("page")
    write_people(folder / "people.csv")
    with run_server(folder) as running:
        yield running, folder


def open_budget(folder: Path) -> Any:
    return Ledger.open(f"sqlite:///{folder / 'releases' / 'ledger.db'}").dataset("people")


def release_folder(folder: Path, draft: str) -> Path:
    return folder / "releases" / draft.rpartition("/")[2]


def run_notebook(text: str) -> dict[str, Any]:
    """Run the cells of a notebook; return its names."""
    names: dict[str, Any] = {}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    return names


def find_command(folder: Path, name: str) -> list[int]:
    """The processes whose working folder is that of a release."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and Path(os.readlink(entry / "cwd")).name == name:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_fifty_double_clicks_reloads_and_second_tabs_charge_once(server: tuple[Server, Path]) -> None:
    running, folder = server
    visitor = running.visit()
    draft = visitor.open_table(folder / "people.csv")
    visitor.answer_columns(draft)
    summary = visitor.review(draft, epsilon="0.5").text
    assert open_budget(folder).remaining().entries == 0  # nothing is charged before the button
    other_tab = running.visit()
    second_summary = other_tab.get(f"{draft}/review").text

    def click(number: int) -> int:
        tab, text = ((visitor, summary), (other_tab, second_summary))[number % 2]
        if number % 5 == 4:
            tab.get(f"{draft}/review")  # back, and a reload
        return int(tab.release(draft, text).status_code)

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(click, range(50))) == {200}
    assert visitor.wait_for_release(draft) == "done"
    assert open_budget(folder).remaining().entries == 1
    assert set(map(click, range(6))) == {200}  # back once more, long afterwards
    assert visitor.post(f"{draft}/budget", epsilon="2", delta="1e-6", dataset="people").status_code == 200
    assert open_budget(folder).remaining().entries == 1
    assert len(find_command(folder, draft.rpartition("/")[2])) == 0

    text = visitor.get(draft.replace("/draft/", "/release/")).text
    for name in (
        "report.html",
        "model.json",
        "model_card.md",
        "learned_schema.json",
        "commands.sh",
        "notebook.ipynb",
    ):
        answer = visitor.get(f"{draft.replace('/draft/', '/release/')}/file/{name}")
        assert answer.status_code == 200, name
        assert name in text
    assert (
        "sandbox"
        in visitor.get(f"{draft.replace('/draft/', '/release/')}/file/report.html").headers[
            "content-security-policy"
        ]
    )
    for name in ("run.state", "request.json", "..%2fledger.db", "log.txt", "nothing"):
        assert visitor.get(f"{draft.replace('/draft/', '/release/')}/file/{name}").status_code == 404
    model = json.loads((release_folder(folder, draft) / "model.json").read_text())
    assert model["version"]
    check_onnx_file(visitor, draft, release_folder(folder, draft))
    assert not (release_folder(folder, draft) / "run.state").exists()


def check_onnx_file(visitor: Any, draft: str, folder: Path) -> None:
    """The ONNX file of the page predicts what the model predicts; where the extra is absent, a sentence says so."""
    from dplangevin.estimators.model_file import load_model

    answer = visitor.get(f"{draft.replace('/draft/', '/release/')}/file/model.onnx")
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        assert "exports" in visitor.get(draft.replace("/draft/", "/release/")).text
        return
    import onnxruntime
    import pandas as pd

    assert answer.status_code == 200
    model, table = load_model(folder / "model.json"), pd.read_csv(folder.parents[1] / "people.csv").head(50)
    session = onnxruntime.InferenceSession(answer.content)
    feeds = {}
    for each in session.get_inputs():
        cells = table[each.name]
        values = cells.to_numpy(float) if pd.api.types.is_numeric_dtype(cells) else cells.to_numpy(object)
        feeds[each.name] = values.reshape(-1, 1) if len(each.shape) == 2 else values
    outputs = dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds), strict=True))
    probabilities = next(value for value in outputs.values() if np.ndim(value) == 2)
    np.testing.assert_allclose(probabilities, model.predict_proba(table), atol=1e-5)


def test_the_guarantee_of_the_release_is_the_one_that_was_planned(server: tuple[Server, Path]) -> None:
    from dplangevin.estimators.model_file import load_model
    from dplangevin.ui import plans
    from dplangevin.ui.releases import ReleaseRunner

    _, folder = server
    runner = ReleaseRunner(folder / "releases", "sqlite:///unused.db")
    release = runner.list_releases()[-1]
    model = load_model(release.result_path)
    planned = plans.plan_draft(release.draft).guarantee
    assert model.privacy_.epsilon(1e-6) == planned.epsilon(1e-6)
    entry = open_budget(folder).history()[0]
    assert entry.guarantee.epsilon(1e-6) == planned.epsilon(1e-6)
    assert entry.release_hash is not None


def test_the_notebook_makes_the_same_kind_of_release(
    server: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, folder = server
    visitor = running.visit()
    address = (
        f"/release/{sorted(path.parent.name for path in (folder / 'releases').glob('*/request.json'))[0]}"
    )
    before = open_budget(folder).remaining().entries
    names = run_notebook(visitor.get(f"{address}/file/notebook.ipynb").text)
    assert open_budget(folder).remaining().entries == before + 1
    assert names["model"].privacy_.epsilon(1e-6) == open_budget(folder).history()[0].guarantee.epsilon(1e-6)
    commands = visitor.get(f"{address}/file/commands.sh").text
    assert subprocess.run(["bash", "-n"], input=commands, text=True, check=False).returncode == 0
    assert "dplangevin fit" in commands
    assert "dplangevin ledger declare" in commands


def test_counts_and_a_region_from_a_learned_schema(server: tuple[Server, Path]) -> None:
    """What a model has learned is public: another release may state it."""
    running, folder = server
    visitor = running.visit()
    first = sorted(path.parent.name for path in (folder / "releases").glob("*/request.json"))[0]
    answer = visitor.post(f"/release/{first}/again", learned="yes")
    draft = "/draft/" + str(answer.url).split("/")[-2]
    assert 'placeholder="learned"' in answer.text
    fields = {}
    for index in (0, 1):
        fields |= {f"low_{index}": "0", f"high_{index}": "90000" if index else "100"}
    fields |= {"listed_2": "nurse, clerk, farmer", "listed_3": "f, m"}
    visitor.answer_columns(draft, **fields)
    visitor.review(draft, epsilon="0.4", dataset="people", model="count", ways="1", bins="4")
    summary = visitor.get(f"{draft}/review").text
    assert "noisy tables" in summary
    visitor.release(draft, summary)
    again = visitor.post(f"/release/{draft.rpartition('/')[2]}/again")
    region = "/draft/" + str(again.url).split("/")[-2]
    visitor.state_columns(region)
    visitor.review(region, epsilon="1", dataset="people", model="rashomon", thresholds="0.05, 0.2", group="3")
    summary = visitor.get(f"{region}/review").text
    assert "equally good models" in summary
    visitor.release(region, summary)
    assert visitor.wait_for_release(draft) == "done", visitor.get(draft.replace("draft", "release")).text
    text = visitor.get(draft.replace("/draft/", "/release/")).text
    assert "counts.csv" in text
    assert "nurse" in text
    assert visitor.wait_for_release(region) == "done", visitor.get(region.replace("draft", "release")).text
    text = visitor.get("/rashomon").text
    plain = json.loads((release_folder(folder, region) / "answer.json").read_text())
    for level in plain["multiplicity"]["levels"]:
        assert f'value="{level["mean_width"]!r}"' in text
    assert plain["applicants"]
    for row in plain["applicants"]:
        assert f'value="{row["low"]!r}"' in text
        assert f'value="{row["high"]!r}"' in text
    entries = open_budget(folder).remaining().entries
    for draft_address, result in ((draft, "counts"), (region, "region")):
        names = run_notebook(
            visitor.get(f"{draft_address.replace('draft', 'release')}/file/notebook.ipynb").text
        )
        assert names[result] is not None
    assert open_budget(folder).remaining().entries == entries + 2


def test_a_summary_that_another_window_changed_is_shown_again(page: Any) -> None:
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    visitor.state_columns(draft)
    summary = visitor.review(draft, epsilon="0.5").text
    visitor.review(draft, epsilon="2.5", dataset="people")
    answer = visitor.release(draft, summary)
    assert "changed in another window" in find_error(answer.text)
    assert not list(page.folder.glob("*/request.json"))
    assert Ledger.open(page.ledger).dataset("people").remaining().entries == 0


def test_a_release_that_does_not_fit_or_whose_file_is_gone_charges_nothing(page: Any) -> None:
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    visitor.state_columns(draft)
    summary = visitor.review(draft, epsilon="2", total="3").text
    budget = Ledger.open(page.ledger).dataset("people")
    from dplangevin.ui import plans

    page.table.unlink()
    visitor.release(draft, summary)
    assert visitor.wait_for_release(draft) == "failed"
    text = visitor.get(draft.replace("/draft/", "/release/")).text
    assert "there is no file" in find_error(text)
    assert budget.remaining().entries == 0
    again = visitor.post(f"{draft.replace('/draft/', '/release/')}/again")
    other = "/draft/" + str(again.url).split("/")[-2]
    budget.charge(plans.plan_draft(page.routes.drafts.load(other.rpartition("/")[2])).guarantee)
    budget.charge(plans.plan_draft(page.routes.drafts.load(other.rpartition("/")[2])).guarantee)
    answer = visitor.get(f"{other}/review")
    assert "does not fit" in find_error(answer.text)
    assert "disabled" in answer.text
    refused = visitor.release(other, answer.text)
    assert "does not fit" in find_error(refused.text)
    assert budget.remaining().entries == 2


def test_a_killed_server_and_a_killed_command_deliver_what_was_charged(tmp_path: Path) -> None:
    """kill -9 of both right after the charge: the next start delivers, and charges nothing."""
    write_people(tmp_path / "people.csv", 60_000)
    first = Server(tmp_path, {})
    visitor = first.visit()
    draft = visitor.open_table(tmp_path / "people.csv")
    visitor.answer_columns(draft)
    summary = visitor.review(draft).text
    budget = open_budget(tmp_path)
    visitor.release(draft, summary)
    deadline = time.monotonic() + 60
    while budget.remaining().entries == 0:
        assert time.monotonic() < deadline
    first.process.kill()
    commands = find_command(tmp_path, draft.rpartition("/")[2])
    for number in commands:
        os.kill(number, signal.SIGKILL)
    first.process.wait()
    first.process.stderr.close()
    assert commands, "the command ended before it could be killed"
    assert not (release_folder(tmp_path, draft) / "model.json").exists()
    with run_server(tmp_path) as second:
        visitor = second.visit()
        deadline = time.monotonic() + 90
        while not (release_folder(tmp_path, draft) / "model.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert visitor.wait_for_release(draft) == "done"
        assert "its run goes on and is not charged again" in visitor.get("/").text
    (entry,) = budget.history()
    assert entry.release_hash is not None


def test_a_command_outlives_its_server(tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv", 20_000)
    first = Server(tmp_path, {})
    visitor = first.visit()
    draft = visitor.open_table(tmp_path / "people.csv")
    visitor.state_columns(draft)
    visitor.release(draft, visitor.review(draft).text)
    first.process.kill()
    first.process.wait()
    first.process.stderr.close()
    deadline = time.monotonic() + 60
    while not (release_folder(tmp_path, draft) / "model.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert open_budget(tmp_path).remaining().entries == 1


def test_what_was_not_charged_is_not_started_again(page: Any) -> None:
    """A folder whose command died before its charge stays as it is: starting it again would charge."""
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    visitor.state_columns(draft)
    visitor.review(draft)
    stored = page.routes.drafts.load(draft.rpartition("/")[2])
    started: list[Any] = []
    page.routes.runner._spawn = lambda *arguments: started.append(arguments)
    assert page.routes.runner.start(stored)
    assert not page.routes.runner.start(stored)
    assert len(started) == 1
    assert page.routes.runner.deliver_interrupted() == []
    assert len(started) == 1
    address = draft.replace("/draft/", "/release/")
    assert "nothing was charged" in find_error(visitor.get(address).text)
    assert visitor.post(f"{address}/resume").status_code == 409
    assert len(started) == 1


def test_complete_results_of_two_killed_commands_are_placed_without_a_charge(
    page: Any, monkeypatch: Any
) -> None:
    """Both commands died with their results written: none of them may be given again, which would be charged."""
    from dplangevin.accounting import delivery

    visitor, drafts = page.visitor, []
    for _ in range(2):
        draft = visitor.open_table(page.table)
        visitor.state_columns(draft)
        visitor.review(draft, epsilon="0.5", dataset="people" if drafts else "")
        stored = page.routes.drafts.load(draft.rpartition("/")[2])
        monkeypatch.setattr(page.routes.runner, "_spawn", lambda *_: None)
        page.routes.runner.start(stored)
        monkeypatch.undo()
        drafts.append(stored)
        folder = page.folder / stored.id
        script = (  # as the command does it, until the result is written; then it is killed
            "import os, signal, sys\n"
            "from dplangevin.accounting import delivery\n"
            "from dplangevin.cli.main import run_command_line\n"
            "delivery.Delivery._commit_release = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
            "run_command_line(sys.argv[1:])\n"
        )
        arguments = stored.command_arguments(page.ledger)
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], cwd=folder, capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert not (folder / "model.json").exists()
    assert delivery.has_deliverable_charge(
        delivery.fingerprint_command(stored.command_arguments(page.ledger), str(folder)),
        Ledger.open(page.ledger).dataset,
    )
    assert page.routes.runner.deliver_interrupted() == []
    for stored in drafts:
        assert (page.folder / stored.id / "model.json").exists()
    history = Ledger.open(page.ledger).dataset("people").history()
    assert len(history) == 2
    assert all(entry.release_hash for entry in history)


def test_nothing_is_released_where_no_record_of_a_charge_can_be_kept(page: Any, monkeypatch: Any) -> None:
    visitor = page.visitor
    draft = visitor.open_table(page.table)
    visitor.state_columns(draft)
    summary = visitor.review(draft).text
    monkeypatch.setenv("DPLANGEVIN_STATE", "off")
    answer = visitor.release(draft, summary)
    assert "DPLANGEVIN_STATE" in find_error(answer.text)
    assert not list(page.folder.glob("*/request.json"))
