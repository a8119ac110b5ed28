"""The pages: steps from a file to a release, the releases, and the views of ledger, accountant and Rashomon regions.

A page shows what the library computes, as the command line does, and computes nothing about privacy itself. Only
`PageRoutes.make_release` charges a budget.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dplangevin._templates import template_environment
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.report.document import ReportNumber
from dplangevin.ui import plans
from dplangevin.ui.drafts import (
    COUNTS,
    MODEL_TEXTS,
    REGION,
    ROLES,
    ColumnChoice,
    Draft,
    DraftStore,
    choice_from_entry,
    command_lines,
    is_learned,
)
from dplangevin.ui.plans import ACCOUNT_FIELDS, ACCOUNT_METHODS, answer_form, draw_curve
from dplangevin.ui.releases import (
    RESULT_FILES,
    ReleaseRunner,
    describe_result,
    file_content,
    learned_answers,
    progress_line,
)
from dplangevin.ui.server import REPORT_POLICY, RequestGuard, first_values

MAX_LISTED_FILES = 300
MAX_NAME_CHARACTERS = 80
_TABLE_SUFFIXES = (
    ".csv",
    ".tsv",
    ".txt",
    ".parquet",
    ".pq",
    ".arrow",
    ".feather",
    ".ipc",
    ".csv.gz",
    ".tsv.gz",
)
_STEPS = (("columns", "Columns"), ("model", "Model"), ("budget", "Budget"), ("review", "Release"))
# Characters that a browser does not show, or that turn the direction of the text around them.
_HIDDEN = {
    code: f"⟨U+{code:04X}⟩"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F),
                 *range(0x2060, 0x2070), 0xFEFF)
}  # fmt: skip


def show_name(text: object) -> Markup:
    """Return a name from a file as text that cannot act on the page: shortened, isolated, without hidden characters."""
    whole = str(text)
    shown = whole[:MAX_NAME_CHARACTERS].translate(_HIDDEN)
    if len(whole) > MAX_NAME_CHARACTERS:
        shown += f"… ({len(whole)} characters)"
    return Markup('<bdi class="name">{}</bdi>').format(shown)


def show_number(value: float | None, pattern: str = "{:.4g}") -> Markup:
    """Return a rounded number that carries its full precision."""
    if value is None:
        return Markup("–")
    if isinstance(value, float) and math.isinf(value):
        return Markup('<data value="inf">infinite</data>')
    return Markup('<data value="{}">{}</data>').format(repr(value), pattern.format(value))


def show_cell(text: str) -> Markup:
    """Return the value of a public input: a number in five digits, or a label."""
    try:
        return show_name(f"{float(text):.5g}")
    except ValueError:
        return show_name(text)


class PageRoutes:
    """The pages of one server.

    Parameters
    ----------
    start : the folder whose files are shown first.
    folder : of releases and drafts.
    ledger : URL of the ledger.
    """

    def __init__(self, start: Path, folder: Path, ledger: str) -> None:
        self._start = start
        self.ledger = ledger
        self.drafts = DraftStore(folder / ".drafts")
        self.runner = ReleaseRunner(folder, ledger)
        self.guard: RequestGuard | None = None
        self._templates = template_environment()
        self._templates.filters |= {
            "name": show_name,
            "number": show_number,
            "percent": lambda value: ReportNumber(value=value, percent=True),
            "cell": show_cell,
        }
        self._declaring = threading.Lock()

    def build_app(self, token: str, port: int) -> RequestGuard:
        """Return the server with its guard."""
        pages: list[tuple[str, Callable[[Request], Response], str]] = [
            ("/", self.show_start, "GET"),
            ("/draft", self.open_file, "POST"),
            ("/draft/{id}/columns", self.show_columns, "GET"),
            ("/draft/{id}/columns", self.save_columns, "POST"),
            ("/draft/{id}/model", self.show_model, "GET"),
            ("/draft/{id}/model", self.save_model, "POST"),
            ("/draft/{id}/budget", self.show_budget, "GET"),
            ("/draft/{id}/budget", self.save_budget, "POST"),
            ("/draft/{id}/plan", self.show_plan, "GET"),
            ("/draft/{id}/plan.json", self.send_plan, "GET"),
            ("/draft/{id}/review", self.show_review, "GET"),
            ("/draft/{id}/release", self.make_release, "POST"),
            ("/release/{id}", self.show_release, "GET"),
            ("/release/{id}/state.json", self.send_state, "GET"),
            ("/release/{id}/again", self.start_again, "POST"),
            ("/release/{id}/resume", self.resume_release, "POST"),
            ("/release/{id}/file/{file}", self.send_file, "GET"),
            ("/ledger", self.show_ledger, "GET"),
            ("/ledger.json", self.send_ledger, "GET"),
            ("/ledger/declare", self.declare_budget, "POST"),
            ("/account", self.show_account, "GET"),
            ("/account.json", self.send_account, "GET"),
            ("/rashomon", self.show_regions, "GET"),
            ("/static/{file}", self.send_static, "GET"),
        ]
        routes = [Route(path, _report_errors(self, page), methods=[method]) for path, page, method in pages]
        handlers: Any = {404: lambda request, error: self._show_missing(request)}
        self.guard = RequestGuard(Starlette(routes=routes, exception_handlers=handlers), token, port)
        return self.guard

    def _render(self, template: str, request: Request, status: int = 200, **values: Any) -> HTMLResponse:
        form_token = "" if self.guard is None else self.guard.form_token
        common = {
            "version": __version__,
            "form_token": form_token,
            "path": request.url.path,
            "steps": _STEPS,
            "error": "",
            "ledger_url": self.ledger,
            "notes": self.runner.notes[-3:],
        }
        text = self._templates.get_template(f"page/{template}").render(common | values)
        return HTMLResponse(text, status_code=status)

    def show_error(self, request: Request, message: str, status: int) -> Response:
        """Show one sentence about what went wrong."""
        return self._render("error.html", request, status, message=message)

    def _show_missing(self, request: Request) -> Response:
        return self.show_error(request, "There is no such page; begin at the start.", 404)

    # --- the file ----------------------------------------------------------------------------------------------------

    def show_start(self, request: Request, error: str = "", path: str = "") -> Response:
        """Show files to choose from, and earlier drafts and releases."""
        folder = Path(request.query_params.get("folder") or self._start)
        listing, listing_error = _list_folder(folder)
        return self._render(
            "start.html",
            request,
            422 if error else 200,
            folder=folder,
            listing=listing,
            error=error or listing_error,
            typed_path=path,
            releases=self.runner.list_releases()[:10],
            drafts=[draft for draft in self.drafts.recent() if not self.runner.is_released(draft)][:4],
            model_texts=MODEL_TEXTS,
        )

    def open_file(self, request: Request) -> Response:
        """Open a table: read the names of its columns, and nothing else."""
        form = first_values(request.state.form)
        text = (form.get("path") or form.get("typed_path") or "").strip()
        try:
            if not text:
                raise InvalidParameter("choose a file, or type its path.")
            path = Path(os.path.abspath(Path(text).expanduser()))
            if "\0" in text or not path.is_file():
                raise InvalidParameter(
                    "there is no such file; choose one from the list, or correct the path."
                )
            names = plans.read_column_names(str(path))
        except DplangevinError as error:
            return self.show_start(request, str(error), text)
        is_public = form.get("is_public") == "yes"
        draft = self.drafts.create(str(path), names, is_public=is_public)
        if is_public:
            draft = self._fill_from_public_rows(draft)
        return RedirectResponse(f"/draft/{draft.id}/columns", status_code=303)

    def _fill_from_public_rows(self, draft: Draft) -> Draft:
        """Fill in kinds, ranges and lists as `dplangevin schema init` drafts them from public rows."""
        import tomllib

        from dplangevin.audit.containers import read_records
        from dplangevin.schema.learned import draft_schema_from_public

        try:
            content = tomllib.loads(draft_schema_from_public(read_records(Path(draft.file))))
        except (DplangevinError, tomllib.TOMLDecodeError, ValueError, IndexError):
            return draft
        choices = tuple(choice_from_entry(content["columns"].get(name, {})) for name in draft.names)
        n = plans.count_rows(draft.file)
        return self.drafts.update(draft.id, columns=choices, rows="count", n=n) or draft

    # --- the steps ---------------------------------------------------------------------------------------------------

    def _find_draft(self, request: Request) -> Draft | Response:
        """Return the draft that a request names; a draft that was released leads to its release."""
        draft = self.drafts.load(request.path_params["id"])
        if draft is None:
            return self.show_error(request, "There is no such draft; begin at the start.", 404)
        if self.runner.is_released(draft):
            return RedirectResponse(f"/release/{draft.id}", status_code=303)
        return draft

    def show_columns(self, request: Request, error: str = "") -> Response:
        """Show the columns by name; rows only where the file is public."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        return self._render(
            "columns.html",
            request,
            422 if error else 200,
            draft=draft,
            roles=ROLES,
            step="columns",
            error=error,
            advice=plans.advise_about_columns(draft),
            rows=plans.read_public_rows(draft.file) if draft.is_public else [],
        )

    def save_columns(self, request: Request) -> Response:
        """Store what the user says about the columns."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        form = first_values(request.state.form)
        columns = tuple(
            ColumnChoice(
                role=form.get(f"role-{index}", ""),
                low=form.get(f"low-{index}", ""),
                high=form.get(f"high-{index}", ""),
                listed=form.get(f"listed-{index}", ""),
            )
            for index in range(len(draft.names))
        )
        rows = form.get("rows", "")
        try:
            draft = self._update(draft, columns=columns, rows=rows)
            draft.check_columns()
            n = (
                plans.count_rows(draft.file)
                if rows == "count"
                else _read_count(form.get("n", ""), "the number of rows")
            )
            self._update(draft, n=n)
        except DplangevinError as error:
            return self.show_columns(request, str(error))
        return RedirectResponse(f"/draft/{draft.id}/model", status_code=303)

    def _update(self, draft: Draft, **answers: Any) -> Draft:
        updated = self.drafts.update(draft.id, **answers)
        if updated is None:
            raise InvalidParameter("the draft is gone; begin at the start.")
        return updated

    def show_model(self, request: Request, error: str = "") -> Response:
        """Show the models and what each needs to know."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        return self._render(
            "model.html",
            request,
            422 if error else 200,
            draft=draft,
            models=MODEL_TEXTS,
            step="model",
            error=error,
            counts=COUNTS,
            region=REGION,
        )

    def save_model(self, request: Request) -> Response:
        """Store the model, and check that the library can plan it."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        form = first_values(request.state.form)
        try:
            model = form.get("model", "")
            if model not in MODEL_TEXTS:
                raise InvalidParameter("choose what to release.")
            draft = self._update(
                draft,
                model=model,
                labels=form.get("labels", ""),
                target_low=form.get("target_low", ""),
                target_high=form.get("target_high", ""),
                intervals=form.get("intervals") == "yes",
                thresholds=form.get("thresholds", ""),
                region_model=form.get("region_model", "logistic"),
                group=_name_at(draft, form.get("group", "")),
                max_rows_per_person=_read_count(form.get("max_rows_per_person", "1"), "the rows of a person"),
                ways=_read_count(form.get("ways", "1"), "the number of columns of a table"),
                bins=_read_count(form.get("bins", "10"), "the number of intervals"),
            )
            plans.plan_draft(draft)
        except DplangevinError as error:
            return self.show_model(request, str(error))
        return RedirectResponse(f"/draft/{draft.id}/budget", status_code=303)

    def show_budget(
        self, request: Request, error: str = "", declared: dict[str, str] | None = None
    ) -> Response:
        """Show the budget: a data set of the ledger, epsilon, and the plan."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        budgets = self._budgets()
        dataset = draft.dataset or next(iter(budgets), "")
        epsilon, delta = draft.epsilon, draft.delta
        goal_text, goal = request.query_params.get("excess", ""), None
        if goal_text and not error:
            try:
                goal = plans.choose_epsilon_for_goal(draft, _read_number(goal_text, "the goal"))
                epsilon = float(f"{goal.epsilon * 1.0005:.3g}")
            except DplangevinError as problem:
                error = str(problem)
        return self._render(
            "budget.html",
            request,
            422 if error else 200,
            draft=replace(draft, epsilon=epsilon, dataset=dataset),
            budgets=budgets,
            step="budget",
            error=error,
            goal=goal,
            goal_text=goal_text,
            declared=declared
            or {"name": Path(draft.file).name.partition(".")[0], "epsilon": "3", "delta": "1e-5"},
            **self._plan_values(draft, epsilon, delta, dataset if dataset in budgets else ""),
        )

    def _plan_values(self, draft: Draft, epsilon: float, delta: float, dataset: str) -> dict[str, Any]:
        """Return the plan and what is left after it, or the sentence on why there is none."""
        values: dict[str, Any] = {"plan": None, "budget": None, "plan_error": "", "budget_advice": []}
        changed = replace(draft, epsilon=epsilon, delta=delta)
        values["shown_epsilon"], values["shown_delta"] = epsilon, delta
        try:
            values["plan"] = plans.plan_draft(draft, epsilon, delta)
            values["budget_advice"] = plans.advise_about_budget(changed, values["plan"])
            if dataset:
                values["budget"] = plans.view_budget(self.ledger, dataset, values["plan"])
        except DplangevinError as error:
            values["plan_error"] = str(error)
        return values

    def show_plan(self, request: Request) -> Response:
        """Show the plan at another epsilon: what the slider asks for. No data are read."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        epsilon, delta, dataset = self._asked_budget(request, draft)
        return self._render("_plan.html", request, **self._plan_values(draft, epsilon, delta, dataset))

    def send_plan(self, request: Request) -> Response:
        """Send the plan as `dplangevin plan --json` prints it."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        epsilon, delta, _ = self._asked_budget(request, draft)
        return JSONResponse(plans.plan_draft(draft, epsilon, delta).plain)

    def _asked_budget(self, request: Request, draft: Draft) -> tuple[float, float, str]:
        query = request.query_params
        epsilon = _read_number(query.get("epsilon", repr(draft.epsilon)), "epsilon")
        delta = _read_number(query.get("delta", repr(draft.delta)), "delta")
        dataset = query.get("dataset", draft.dataset)
        return epsilon, delta, dataset if dataset in self._budgets() else ""

    def save_budget(self, request: Request) -> Response:
        """Store epsilon and the data set, whose budget is declared if it is new; nothing is charged."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        form = first_values(request.state.form)
        declared = {name: form.get(f"new_{name}", "") for name in ("name", "epsilon", "delta")}
        try:
            draft = self._update(
                draft,
                epsilon=_read_number(form.get("epsilon", ""), "epsilon"),
                delta=_read_number(form.get("delta", ""), "delta"),
            )
            plan = plans.plan_draft(draft)
            dataset = form.get("dataset", "")
            if not dataset:
                dataset = self._declare(draft, declared)
            view = plans.view_budget(self.ledger, dataset, plan)
            draft = self._update(draft, dataset=view.dataset)
            if view.refusal:
                raise InvalidParameter(view.refusal)
        except DplangevinError as error:
            return self.show_budget(request, str(error), declared)
        return RedirectResponse(f"/draft/{draft.id}/review", status_code=303)

    def _declare(self, draft: Draft | None, declared: dict[str, str], **options: Any) -> str:
        """Declare a budget, as `dplangevin ledger declare` does; create the ledger where there is none."""
        from dplangevin.ledger import Ledger

        epsilon, delta = (
            _read_number(declared[each], f"the budget's {each}") for each in ("epsilon", "delta")
        )
        if not declared["name"].strip():
            raise InvalidParameter("name the data set whose budget is declared.")
        if draft is not None:
            options |= {"adjacency": draft.adjacency, "max_rows_per_person": draft.max_rows_per_person}
        with self._declaring:
            ledger = self._open_ledger() or Ledger.create(self.ledger)
            return ledger.declare(declared["name"].strip(), epsilon=epsilon, delta=delta, **options).name

    def _open_ledger(self) -> Any:
        """Return the ledger; None where the file of an SQLite ledger does not exist yet."""
        if self.ledger.startswith("sqlite:///") and not Path(self.ledger.removeprefix("sqlite:///")).exists():
            return None
        from dplangevin.ledger import Ledger

        return Ledger.open(self.ledger)

    def _budgets(self) -> dict[str, Any]:
        return {} if self._open_ledger() is None else plans.list_budgets(self.ledger)

    # --- the release -------------------------------------------------------------------------------------------------

    def show_review(self, request: Request, error: str = "") -> Response:
        """Show what will be spent and what becomes public."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):
            return draft
        try:
            values = self._plan_values(draft, draft.epsilon, draft.delta, draft.dataset)
            if values["plan_error"]:
                raise InvalidParameter(values["plan_error"])
            if values["budget"] is None:
                raise InvalidParameter("choose the data set whose budget is charged.")
        except DplangevinError as problem:
            return self.show_error(request, f"{problem} Go back to the earlier steps.", 409)
        return self._render(
            "review.html",
            request,
            409 if error else 200,
            draft=draft,
            step="review",
            error=error,
            model_text=MODEL_TEXTS[draft.model][0],
            learned=[name for name, choice in draft.choices if is_learned(choice)],
            region=REGION,
            counts=COUNTS,
            digest=draft.digest(),
            **values,
        )

    def make_release(self, request: Request) -> Response:
        """Make the release of a draft: the only page that charges, and only once for each draft."""
        draft = self._find_draft(request)
        if isinstance(draft, Response):  # it was released before: nothing is charged again
            return draft
        if first_values(request.state.form).get("digest") != draft.digest():
            return self.show_review(
                request, "The answers were changed in another window; this is the new summary."
            )
        view = plans.view_budget(self.ledger, draft.dataset, plans.plan_draft(draft))
        if view.refusal:
            return self.show_review(request, view.refusal)
        self.runner.start(draft)
        return RedirectResponse(f"/release/{draft.id}", status_code=303)

    def show_release(self, request: Request) -> Response:
        """Show a release: its progress, its results, or why there are none."""
        release = self.runner.find(request.path_params["id"])
        if release is None:
            return self.show_error(request, "There is no such release; begin at the start.", 404)
        state = release.state
        values: dict[str, Any] = {"model_text": MODEL_TEXTS[release.draft.model][0], "step": "review"}
        if state == "done":
            values |= describe_result(release)
            budgets = self._budgets()
            values["budget"] = budgets.get(release.draft.dataset)
            values["commands"] = command_lines(release, values["budget"])
        values |= {"counts": COUNTS, "region": REGION, "progress": progress_line(release)}
        return self._render(
            "release.html", request, release=release, draft=release.draft, state=state, **values
        )

    def send_state(self, request: Request) -> Response:
        """Send whether a release is running."""
        release = self.runner.find(request.path_params["id"])
        if release is None:
            return JSONResponse({"state": "missing", "progress": ""}, status_code=404)
        return JSONResponse({"state": release.state, "progress": progress_line(release)})

    def resume_release(self, request: Request) -> Response:
        """Finish a release that was charged and interrupted; it is not charged again."""
        release = self.runner.find(request.path_params["id"])
        if release is None:
            return self.show_error(request, "There is no such release; begin at the start.", 404)
        if release.state == "failed" and not self.runner.resume(release):
            message = "This run was not charged, or left nothing to be finished from; change the answers and try again."
            return self.show_error(request, message, 409)
        return RedirectResponse(f"/release/{release.id}", status_code=303)

    def start_again(self, request: Request) -> Response:
        """Begin another draft with the same answers; with the learned schema where one was learned."""
        release = self.runner.find(request.path_params["id"])
        if release is None:
            return self.show_error(request, "There is no such release; begin at the start.", 404)
        answers: dict[str, Any] = {}
        if first_values(request.state.form).get("learned") == "yes" and release.state == "done":
            answers = learned_answers(release)
        draft = self.drafts.copy(release.draft, **answers)
        return RedirectResponse(f"/draft/{draft.id}/columns", status_code=303)

    def send_file(self, request: Request) -> Response:
        """Send a file of a release, or one that is made from it."""
        release = self.runner.find(request.path_params["id"])
        name = request.path_params["file"]
        if release is None or release.state != "done" or name not in RESULT_FILES:
            return self._show_missing(request)
        content = file_content(release, name, self._budgets)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        if name == "report.html":
            headers = {"content-security-policy": REPORT_POLICY}
        return Response(content, media_type=RESULT_FILES[name], headers=headers)

    # --- views -------------------------------------------------------------------------------------------------------

    def show_ledger(
        self, request: Request, error: str = "", declared: dict[str, str] | None = None
    ) -> Response:
        """Show the budgets, what fits, and the history of charges."""
        budgets, histories = self._budgets(), {}
        if budgets:
            from dplangevin.ledger import Ledger

            ledger = Ledger.open(self.ledger)
            histories = {name: _describe_history(ledger.dataset(name).history()) for name in budgets}
        return self._render(
            "ledger.html",
            request,
            422 if error else 200,
            budgets=budgets,
            histories=histories,
            error=error,
            declared=declared
            or {"name": "", "epsilon": "3", "delta": "1e-5", "adjacency": "replace-one", "rows": "1"},
        )

    def send_ledger(self, request: Request) -> Response:
        """Send the budgets as `dplangevin ledger show --json` prints them."""
        from dplangevin.cli.ledger import ledger_to_json

        return Response(
            ledger_to_json(plans.budgets_to_plain(self._budgets())), media_type="application/json"
        )

    def declare_budget(self, request: Request) -> Response:
        """Declare the budget of a data set; nothing is charged."""
        form = first_values(request.state.form)
        declared = {name: form.get(name, "") for name in ("name", "epsilon", "delta", "adjacency", "rows")}
        try:
            rows = _read_count(declared["rows"], "the rows of a person")
            self._declare(None, declared, adjacency=declared["adjacency"], max_rows_per_person=rows)
        except DplangevinError as error:
            return self.show_ledger(request, str(error), declared)
        return RedirectResponse("/ledger", status_code=303)

    def show_account(self, request: Request) -> Response:
        """Show the guarantee of a run from its parameters, and epsilon against the number of steps."""
        query = dict(request.query_params)
        method = query.get("method", "sgd")
        values: dict[str, Any] = {"answer": None, "curve": None, "error": ""}
        if "delta" in query:
            try:
                values["answer"], rows = answer_form(method, query)
                values["curve"] = draw_curve(rows)
                values["rows"] = rows
            except DplangevinError as error:
                values["error"] = str(error)
        return self._render(
            "account.html",
            request,
            422 if values["error"] else 200,
            method=method if method in ACCOUNT_METHODS else "sgd",
            methods=ACCOUNT_METHODS,
            fields=ACCOUNT_FIELDS,
            query=query,
            **values,
        )

    def send_account(self, request: Request) -> Response:
        """Send the account as `dplangevin account --json` prints it."""
        from dplangevin.report.answer import answer_to_json

        query = dict(request.query_params)
        answer, _ = answer_form(query.get("method", "sgd"), query, curve=False)
        return Response(answer_to_json(answer), media_type="application/json")

    def show_regions(self, request: Request) -> Response:
        """Show whom equally good models treat differently, for every region that was released here."""
        regions = [
            each
            for each in self.runner.list_releases()
            if each.draft.model == REGION and each.state == "done"
        ]
        described = [(release, describe_result(release)) for release in regions[:5]]
        return self._render("rashomon.html", request, regions=described)

    def send_static(self, request: Request) -> Response:
        """Send the style or the script."""
        name = request.path_params["file"]
        kinds = {"page.css": "text/css", "page.js": "text/javascript"}
        if name not in kinds:
            return self._show_missing(request)
        return Response(read_static(name), media_type=kinds[name])


def _report_errors(pages: PageRoutes, page: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Return the page with errors as one sentence; an unknown error by its name alone, since it may quote cells."""

    def show_page(request: Request) -> Response:
        try:
            return page(request)
        except DplangevinError as error:
            return pages.show_error(request, " ".join(str(error).split()), 422)
        except OSError as error:
            return pages.show_error(
                request, f"A file cannot be used: {error.strerror or 'unknown reason'}.", 500
            )
        except Exception as error:
            if os.environ.get("DPLANGEVIN_TRACEBACK"):
                raise
            message = (
                f"Internal error, please report it: {type(error).__name__}. Nothing was charged by this page."
            )
            return pages.show_error(request, message, 500)

    return show_page


@lru_cache(maxsize=4)
def read_static(name: str) -> bytes:
    """Return a file that the page loads from this server."""
    return files("dplangevin.ui").joinpath("static", name).read_bytes()


def _list_folder(folder: Path) -> tuple[list[tuple[str, str, bool]], str]:
    """Return the tables and folders of a folder, as (name, path, whether it is a folder)."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name.lower())
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or "it is not a path"
        return [], f"This folder cannot be shown: {reason}. Type the path of a file."
    shown = []
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            shown.append((entry.name, entry.path, True))
        elif entry.name.lower().endswith(_TABLE_SUFFIXES):
            shown.append((entry.name, entry.path, False))
    shown.sort(key=lambda each: each[2])
    return shown[:MAX_LISTED_FILES], ""


def _name_at(draft: Draft, index: str) -> str:
    """Return the name of a column by its number; empty where none is chosen."""
    return draft.names[int(index)] if index.isdecimal() and int(index) < len(draft.names) else ""


def _read_number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidParameter(f"{what} must be a number; got {text[:40]!r}.") from None
    if not math.isfinite(value):
        raise InvalidParameter(f"{what} must be finite; got {text[:40]!r}.")
    return value


def _read_count(text: str, what: str) -> int:
    digits = text.strip().replace(",", "").replace("_", "").replace(" ", "")
    if not digits.isdecimal() or not 0 < int(digits[:20]) < 10**15:
        raise InvalidParameter(f"{what} must be a whole number above 0; got {text[:40]!r}.")
    return int(digits)


def _describe_history(entries: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return the charges of a data set with their epsilon, as `dplangevin ledger history` prints them."""
    costs: dict[Any, float] = {}
    rows = []
    for entry in entries:
        guarantee = entry.guarantee
        delta = guarantee.at_delta or 0.0
        if guarantee not in costs:
            costs[guarantee] = guarantee.epsilon(delta)
        rows.append(
            {
                "sequence": entry.sequence,
                "created": entry.created[:16].replace("T", " "),
                "epsilon": costs[guarantee],
                "delta": delta,
                "theorem": guarantee.theorem,
                "release": entry.release_hash[:12] if entry.release_hash else "",
                "label": entry.label,
            }
        )
    return rows[::-1]
