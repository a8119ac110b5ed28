"""Drafts: the answers of a user on the way to one release, kept on disk; the commands and notebook that do the same.

A draft becomes at most one release, whose folder has the draft's name: that is what makes a second click harmless.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shlex
import threading
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplangevin import _files
from dplangevin._version import __version__
from dplangevin.errors import InvalidParameter

if TYPE_CHECKING:
    from dplangevin.ui.releases import PageRelease


DRAFT_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
ROLES = {
    "number": "number",
    "category": "category",
    "target": "to predict",
    "person": "identifies a person",
    "none": "leave out",
}
COUNTS, REGION = "count", "rashomon"
MODEL_TEXTS = {
    "logistic": ("Logistic regression", "two or more classes; probabilities"),
    "svc": ("Linear support vector classifier", "two classes; decisions only"),
    "additive": ("Additive classifier", "two classes, with a curve for every number"),
    "ridge": ("Linear regression", "a number; squared error with a ridge"),
    "huber": ("Robust linear regression", "a number with outliers"),
    "quantile": ("Quantile regression", "the median of a number"),
    "poisson": ("Poisson regression", "how many; needs a stated range from 0"),
    "additive-regression": ("Additive regression", "a number, with a curve for every number column"),
    COUNTS: ("Tables of counts", "how many rows are in each cell; needs a stated schema"),
    REGION: (
        "Rashomon region",
        "the equally good models and whom they treat differently; needs a stated schema",
    ),
}


@dataclass(frozen=True, kw_only=True)
class ColumnChoice:
    """What the user says about a column; empty texts mean that the range or the list is learned."""

    role: str = ""
    low: str = ""
    high: str = ""
    listed: str = ""


def choice_from_entry(entry: dict[str, Any]) -> ColumnChoice:
    """Return the choice that states an entry of a schema."""
    if isinstance(entry.get("range"), list):
        low, high = entry["range"]
        return ColumnChoice(role="number", low=f"{low:g}", high=f"{high:g}")
    if isinstance(entry.get("categories"), list):
        return ColumnChoice(role="category", listed="\n".join(map(str, entry["categories"])) + "\n")
    return ColumnChoice()


def is_learned(choice: ColumnChoice) -> bool:
    """Whether the ranges or categories of a column are left to be learned."""
    if choice.role == "number":
        return not choice.low.strip() and not choice.high.strip()
    return choice.role == "category" and not parse_list(choice.listed)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The answers so far; texts are as the user typed them.

    Parameters
    ----------
    id : of the draft and of its release.
    file, names : path of the table, and the names of its columns: all that is read of it.
    is_public : the user states that every row is public, so that rows may be shown.
    columns : one choice per column.
    rows : "count" if the number of rows is public, "stated" if the user states a public divisor.
    n : that number.
    """

    id: str
    file: str
    names: tuple[str, ...]
    is_public: bool = False
    columns: tuple[ColumnChoice, ...] = ()
    rows: str = ""
    n: int | None = None
    model: str = "logistic"
    labels: str = ""
    target_low: str = ""
    target_high: str = ""
    max_rows_per_person: int = 1
    intervals: bool = False
    thresholds: str = "0.01, 0.03"
    region_model: str = "logistic"
    group: str = ""
    ways: int = 1
    bins: int = 10
    dataset: str = ""
    epsilon: float = 1.0
    delta: float = 1e-6
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def digest(self) -> str:
        """Return a hash of all answers: a release is of exactly the summary that was shown."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    # --- what the answers mean -----------------------------------------------------------------------------------

    def names_of(self, role: str) -> list[str]:
        """Return the columns of this role."""
        return [name for name, choice in self.choices if choice.role == role]

    @property
    def choices(self) -> list[tuple[str, ColumnChoice]]:
        """Every column with its choice."""
        blank = ColumnChoice()
        chosen = [*self.columns, *[blank] * (len(self.names) - len(self.columns))]
        return list(zip(self.names, chosen, strict=True))

    @property
    def target(self) -> str | None:
        """The column to be predicted."""
        return next(iter(self.names_of("target")), None)

    @property
    def person(self) -> str | None:
        """The column that identifies persons."""
        return next(iter(self.names_of("person")), None)

    @property
    def adjacency(self) -> str:
        """Neighbouring tables: where the number of rows is not public, they differ in it."""
        return "replace-one" if self.rows == "count" else "add-remove"

    @property
    def estimator_model(self) -> str:
        """The model that is fitted."""
        return self.region_model if self.model == REGION else self.model

    @property
    def is_classifier(self) -> bool:
        """Whether the target has labels."""
        from dplangevin.cli.models import CLASSIFIERS

        return self.estimator_model in CLASSIFIERS

    def parsed_thresholds(self) -> tuple[float, ...]:
        """Return psi of a Rashomon region."""
        from dplangevin.cli.account import parse_numbers

        thresholds = parse_numbers("psi", self.thresholds, "numbers such as 0.01, 0.03")
        if not thresholds:
            raise InvalidParameter("state psi, how much worse an equally good model may be, such as 0.01.")
        return thresholds

    def check_columns(self) -> None:
        """Raise where the answers about the columns are not complete or do not go together."""
        open_names = [name for name, choice in self.choices if choice.role not in ROLES]
        if open_names:
            raise InvalidParameter(
                f"say what {_list_names(open_names)} {'is' if len(open_names) == 1 else 'are'}; no kind is guessed, "
                "because that would mean reading cells."
            )
        for role in ("target", "person"):
            if len(self.names_of(role)) > 1:
                raise InvalidParameter(f"only one column may be {ROLES[role]!r}; choose one.")
        if not self.names_of("number") and not self.names_of("category"):
            raise InvalidParameter("choose at least one number or category to learn from.")
        if self.rows not in ("count", "stated"):
            raise InvalidParameter("say whether the number of rows is public.")
        if self.person is not None and self.rows == "count":
            raise InvalidParameter(
                "with a column that identifies persons the number of rows depends on who is in the table: state about "
                "how many rows to expect instead."
            )
        self.schema_content(with_target=False)

    def schema_content(self, *, with_target: bool = True) -> dict[str, Any]:
        """Return the schema that the answers state, as plain data."""
        columns: dict[str, Any] = {}
        for name, choice in self.choices:
            if choice.role == "number":
                bounds = _parse_range(f"the range of {name!r}", choice.low, choice.high)
                columns[name] = {"range": "learn" if bounds is None else list(bounds)}
            elif choice.role == "category":
                listed = parse_list(choice.listed)
                columns[name] = {"categories": listed or "learn"}
        content: dict[str, Any] = {"version": 1, "columns": columns}
        if with_target and self.target is not None:
            entry = self._target_entry(self.target)
            if self.model != COUNTS:
                content["target"] = {"name": self.target, **entry}
            elif "classes" in entry:
                columns[self.target] = {"categories": entry["classes"]}
            else:
                columns[self.target] = entry
        return content

    def _target_entry(self, name: str) -> dict[str, Any]:
        labels = parse_list(self.labels)
        bounds = _parse_range(f"the range of {name!r}", self.target_low, self.target_high)
        if self.is_classifier or (self.model == COUNTS and labels):
            if len(labels) < 2:
                raise InvalidParameter(
                    f"state the labels of {name!r}, at least two: reading them from the table would publish them."
                )
            return {"classes": labels}
        return {"range": "learn" if bounds is None else list(bounds)}

    def build_schema(self) -> Any:
        """Return the schema, checked by the library; with something to learn, a learnable one."""
        from dplangevin.schema import Schema
        from dplangevin.schema.learned import LearnableSchema, asks_to_learn

        if self.model != COUNTS and self.target is None:
            raise InvalidParameter("choose the column that is to be predicted, in the step about columns.")
        content = self.schema_content()
        if not asks_to_learn(content):
            return Schema.from_dict(content)
        if self.model in (COUNTS, REGION):
            kind = "Counts" if self.model == COUNTS else "A Rashomon region"
            raise InvalidParameter(
                f"{kind.lower()} need stated ranges and lists: fill them in, or first release a model whose schema is "
                "learned, and start from its release."
            )
        return LearnableSchema.from_dict(content)

    def build_estimator(self, epsilon: float, delta: float) -> Any:
        """Return the estimator that the command fits, without a ledger."""
        from dplangevin import estimators
        from dplangevin.cli.models import ESTIMATOR_BY_MODEL

        options: dict[str, Any] = {"schema": self.build_schema(), "adjacency": self.adjacency}
        if self.is_classifier:
            options["classes"] = None  # the schema's target lists them
        if self.model != REGION:
            options |= {
                "epsilon": epsilon,
                "delta": delta,
                "n_public": self.n if self.rows == "stated" else None,
                "person": self.person,
                "max_rows_per_person": self.max_rows_per_person,
                "intervals": self.intervals,
            }
        return getattr(estimators, ESTIMATOR_BY_MODEL[self.estimator_model])(**options)

    # --- the command -----------------------------------------------------------------------------------------------

    def command_arguments(self, ledger: str) -> list[str]:
        """Return the arguments of the `dplangevin` command that makes the release, run in the release's folder."""
        budget = [f"--epsilon={self.epsilon!r}", f"--delta={self.delta!r}", "--schema=schema.json"]
        budget += [f"--adjacency={self.adjacency}", f"--ledger={ledger}", f"--dataset={self.dataset}"]
        budget += ["--checkpoint=run.state", "--json"]
        if self.max_rows_per_person != 1 and self.model != REGION:
            budget.append(f"--max-rows-per-person={self.max_rows_per_person}")
        if self.model == COUNTS:
            marginals = [f"--marginals={self.ways}", f"--bins={self.bins}", "--output=counts.csv"]
            return ["count", *budget, *marginals, "--", self.file]
        arguments = [f"--target={self.target}", f"--model={self.estimator_model}", "--report=report.html"]
        if self.model == REGION:
            arguments += [f"--threshold={value!r}" for value in self.parsed_thresholds()]
            arguments += [f"--group={self.group}"] if self.group else []
            return ["rashomon", *arguments, *budget, "--output=models", "--", self.file]
        arguments += [f"--n-public={self.n}"] if self.rows == "stated" else []
        arguments += [f"--person={self.person}"] if self.person is not None else []
        arguments += ["--intervals"] if self.intervals else []
        return ["fit", *arguments, *budget, "--output=model.json", "--", self.file]

    def plan_arguments(self) -> list[str] | None:
        """Return the arguments of `dplangevin plan` that show the same plan; None for counts and regions."""
        if self.model in (COUNTS, REGION):
            return None
        arguments = [f"--n={self.n}", f"--epsilon={self.epsilon!r}", f"--delta={self.delta!r}"]
        arguments += ["--schema=schema.json", f"--model={self.model}", f"--adjacency={self.adjacency}"]
        arguments += ["--allow-more-rows"] if self.rows == "stated" else []
        arguments += [f"--person={self.person}"] if self.person is not None else []
        if self.max_rows_per_person != 1:
            arguments.append(f"--max-rows-per-person={self.max_rows_per_person}")
        return ["plan", *arguments, *(["--intervals"] if self.intervals else [])]


def parse_list(text: str) -> list[str]:
    """Return the items of a list: one per line, or separated by commas on a single line.

    Examples
    --------
    >>> parse_list("no, yes"), parse_list("a, b\\nc")
    (['no', 'yes'], ['a, b', 'c'])
    """
    parts = text.splitlines() if "\n" in text.strip() else text.split(",")
    return [part.strip() for part in parts if part.strip()]


def _parse_range(what: str, low: str, high: str) -> tuple[float, float] | None:
    """Return a stated range; None where both ends are empty, which means that it is learned."""
    if not low.strip() and not high.strip():
        return None
    try:
        return float(low), float(high)
    except ValueError:
        raise InvalidParameter(
            f"{what} needs two numbers, or none to learn it; got {low!r} and {high!r}."
        ) from None


def _list_names(names: list[str]) -> str:
    shown = ", ".join(f"{name[:60]!r}" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more columns"


class DraftStore:
    """The drafts of a user, one private file each; a restarted server finds them again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def create(self, file: str, names: tuple[str, ...], **answers: Any) -> Draft:
        """Store a new draft."""
        draft_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        draft = Draft(id=draft_id, file=file, names=names, **answers)
        self._write(draft)
        return draft

    def copy(self, draft: Draft, **answers: Any) -> Draft:
        """Store a new draft with the same answers: another release."""
        plain = {each.name: getattr(draft, each.name) for each in fields(draft)}
        for name in ("id", "created"):
            del plain[name]
        return self.create(**(plain | answers))

    def load(self, draft_id: str) -> Draft | None:
        """Return a draft; None where there is none."""
        if DRAFT_ID.fullmatch(draft_id) is None:
            return None
        try:
            return draft_from_plain(_files.read_json(self._path(draft_id), "the draft"))
        except (InvalidParameter, OSError):
            return None

    def update(self, draft_id: str, **answers: Any) -> Draft | None:
        """Store new answers to a draft, and return it."""
        with self._lock:
            draft = self.load(draft_id)
            if draft is not None:
                draft = replace(draft, **answers)
                self._write(draft)
            return draft

    def recent(self, limit: int = 8) -> list[Draft]:
        """Return the newest drafts."""
        names = sorted((path.stem for path in self._folder.glob("*.json")), reverse=True)[:limit]
        return [draft for name in names if (draft := self.load(name)) is not None]

    def _path(self, draft_id: str) -> Path:
        return self._folder / f"{draft_id}.json"

    def _write(self, draft: Draft) -> None:
        _files.write_private(self._path(draft.id), json.dumps(asdict(draft)))


def draft_from_plain(plain: Any) -> Draft:
    """Return a draft from its file; an error where the file is of another version."""
    try:
        columns = tuple(ColumnChoice(**choice) for choice in plain.pop("columns"))
        return Draft(**(plain | {"names": tuple(plain["names"]), "columns": columns}))
    except (AttributeError, KeyError, TypeError):
        raise InvalidParameter("the draft is of another version of the page; start again.") from None


def command_lines(release: PageRelease, remaining: Any = None) -> str:
    """Return the commands of a release for a shell: the budget, the plan, the release and the report."""
    draft = release.draft
    lines = [f"cd {shlex.quote(str(release.folder))}"]
    if remaining is not None:
        declare = [
            "dplangevin",
            "ledger",
            "declare",
            f"--ledger={release.ledger}",
            f"--dataset={draft.dataset}",
        ]
        declare += [f"--epsilon={remaining.epsilon!r}", f"--delta={remaining.delta!r}"]
        declare += [f"--adjacency={remaining.adjacency}"]
        declare += [f"--max-rows-per-person={remaining.max_rows_per_person}"]
        lines += ["# the budget, declared once", _join_arguments(declare)]
    if (plan := draft.plan_arguments()) is not None:
        lines += [
            "# what the release would cost and bring; reads no data",
            _join_arguments(["dplangevin", *plan]),
        ]
    lines += [
        "# the release; giving it again makes another one, and charges again",
        _join_arguments(["dplangevin", *release.arguments]),
    ]
    if draft.model not in (COUNTS, REGION):
        lines += ["# the report of the model, at no cost", "dplangevin report model.json report.html"]
    return "\n".join(lines) + "\n"


def _join_arguments(arguments: list[str]) -> str:
    """Return a command for a shell, one option per line."""
    lines: list[list[str]] = [[]]
    for word in arguments:
        if word.startswith("--") and lines[-1] != ["--"]:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def build_notebook(release: PageRelease) -> str:
    """Return a Jupyter notebook that makes the same release from Python."""
    draft = release.draft
    write = {COUNTS: _count_cells, REGION: _region_cells}.get(draft.model, _fit_cells)
    intro = (
        f"# {Path(draft.file).stem}: a private release\n\nWritten by the page of dplangevin {__version__}. Running the "
        "cell that releases makes a NEW release of the same kind and charges the ledger again; the first one is in "
        f"`{release.folder}`."
    )
    cells = [_markdown_cell(intro), *write(draft, release)]
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1)


def _setup_cell(draft: Draft, release: PageRelease, imports: str) -> dict[str, Any]:
    return _code_cell(
        f"{imports}\n\n"
        f"FILE = {draft.file!r}\n"
        f"SCHEMA = {draft.build_schema().to_dict()!r}\n"
        f"budget = Ledger.open({release.ledger!r}).dataset({draft.dataset!r})\n"
        "budget.remaining()"
    )


def _fit_cells(draft: Draft, release: PageRelease) -> list[dict[str, Any]]:
    name = type(draft.build_estimator(draft.epsilon, draft.delta)).__name__
    options = [f"epsilon={draft.epsilon!r}", f"delta={draft.delta!r}", "schema=SCHEMA"]
    options += [f"adjacency={draft.adjacency!r}"]
    options += [f"n_public={draft.n!r}"] if draft.rows == "stated" else []
    options += [f"person={draft.person!r}"] if draft.person is not None else []
    if draft.max_rows_per_person != 1:
        options.append(f"max_rows_per_person={draft.max_rows_per_person}")
    options += ["intervals=True"] if draft.intervals else []
    return [
        _setup_cell(
            draft,
            release,
            f"from dplangevin import {name}, Ledger, preview_fit",
        ),
        _code_cell(
            f"model = {name}(\n    {', '.join(options)}\n)\n"
            f"NAMES = {list(draft.names)!r}\n"
            f"print(preview_fit(model, n={draft.n}, names=NAMES, target={draft.target!r}))  # reads no data"
        ),
        _markdown_cell("The release. It charges the budget."),
        _code_cell(f"model.set_params(ledger=budget)\nmodel.fit(FILE, {draft.target!r})\nmodel.privacy_"),
        _code_cell("print(model.model_card())"),
    ]


def _region_cells(draft: Draft, release: PageRelease) -> list[dict[str, Any]]:
    name = type(draft.build_estimator(draft.epsilon, draft.delta)).__name__
    return [
        _setup_cell(
            draft,
            release,
            f"import pandas as pd\n\nfrom dplangevin import {name}, Ledger\n"
            "from dplangevin.rashomon import RashomonRegion\n"
            "from dplangevin.rashomon.region_request import schema_inputs\n"
            "from dplangevin.schema import Schema",
        ),
        _code_cell(
            "inputs = pd.DataFrame(schema_inputs(Schema.from_dict(SCHEMA)))  # public: drawn from the schema\n"
            f"region = RashomonRegion(\n    {name}(schema=SCHEMA, adjacency={draft.adjacency!r}),\n"
            f"    thresholds={draft.parsed_thresholds()!r}, n_models=100,\n"
            f"    epsilon={draft.epsilon!r}, delta={draft.delta!r},\n"
            "    public_inputs=inputs,\n)"
        ),
        _markdown_cell("The release. It charges the budget."),
        _code_cell(
            f"region.set_params(ledger=budget)\nregion.fit(FILE, {draft.target!r})\nprint(region.multiplicity())"
        ),
    ]


def _count_cells(draft: Draft, release: PageRelease) -> list[dict[str, Any]]:
    return [
        _setup_cell(
            draft,
            release,
            "from dplangevin import Ledger\nfrom dplangevin.queries import Marginals, count_file\n"
            "from dplangevin.schema import Schema",
        ),
        _code_cell(
            "schema = Schema.from_dict(SCHEMA)\n"
            f"tables = Marginals.from_schema(schema, ways={draft.ways}, bins={draft.bins})"
        ),
        _markdown_cell("The release. It charges the budget."),
        _code_cell(
            "counts = count_file(\n    FILE, schema=schema, marginals=tables, "
            f"epsilon={draft.epsilon!r}, delta={draft.delta!r},\n    adjacency={draft.adjacency!r}, "
            f"max_rows_per_person={draft.max_rows_per_person}, ledger=budget,\n)\ncounts.postprocess().to_dict()"
        ),
    ]


def _markdown_cell(text: str) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "metadata": {},
        "source": text.splitlines(keepends=True),
        "id": _cell_id(text),
    }


def _code_cell(code: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": code.splitlines(keepends=True),
        "id": _cell_id(code),
    }


def _cell_id(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]
