"""The way out of the page: the commands and a notebook that do what the page did."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from dplangevin._version import __version__
from dplangevin.ui.drafts import COUNTS, REGION, Draft
from dplangevin.ui.releases import Release


def command_lines(release: Release, remaining: Any = None) -> str:
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


def build_notebook(release: Release) -> str:
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


def _setup_cell(draft: Draft, release: Release, imports: str) -> dict[str, Any]:
    return _code_cell(
        f"{imports}\n\n"
        f"FILE = {draft.file!r}\n"
        f"SCHEMA = {draft.build_schema().to_dict()!r}\n"
        f"budget = Ledger.open({release.ledger!r}).dataset({draft.dataset!r})\n"
        "budget.remaining()"
    )


def _fit_cells(draft: Draft, release: Release) -> list[dict[str, Any]]:
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
            f"from dplangevin import {name}, Ledger\nfrom dplangevin.estimators.fit_preview import preview_fit",
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


def _region_cells(draft: Draft, release: Release) -> list[dict[str, Any]]:
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


def _count_cells(draft: Draft, release: Release) -> list[dict[str, Any]]:
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
