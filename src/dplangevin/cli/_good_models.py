"""What `dplangevin rashomon` does on every route: say what is going on, run, and write what is asked."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from dplangevin import _files
from dplangevin._progress import watching


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Public inputs (rows, labels, groups, words on where they come from), and what is written where."""

    inputs: tuple[Any, Any, Any, str]
    report: Path | None
    output: Path | None
    as_json: bool
    quiet: bool
    delivery: Any


class Said:
    """Lines with the seconds since the start: public stages, whatever the records are."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._start = quiet, time.monotonic()

    def __call__(self, words: str) -> None:
        if not self._quiet:
            typer.echo(f"[{time.monotonic() - self._start:5.1f} s] {words}", err=True)


def region(made: Any, features: Any, labels: Any, wanted: Wanted) -> None:
    """Release a region, compare and write."""
    from dplangevin.cli import _outputs
    from dplangevin.report.region import region_document

    said = Said(wanted.quiet)
    rows, truth, groups, words = wanted.inputs
    made.set_params(public_inputs=rows, public_labels=truth, groups=groups)
    _outputs.folder_ready("--output", wanted.output)
    said(f"Releasing a centre, its curvature and one slack number for {len(rows):,} public inputs ...")
    _fit(made, features, labels, wanted.quiet)
    said(f"Released {made.release_.scales.size:,} certified points; comparing them on the public inputs ...")
    table = made.multiplicity()
    _write(made, lambda: (region_document(made, table, words), table), wanted)


def sampler(made: Any, features: Any, labels: Any, wanted: Wanted, known: Callable[[Any, Any], Any]) -> None:
    """Draw models, compare and write; known(labels, sampler) gives public labels as the models write them."""
    from dplangevin.families.rashomon.work import spoken
    from dplangevin.report.rashomon import rashomon_document

    said = Said(wanted.quiet)
    recipe = made.recipe(features, labels)
    if (caution := recipe.caution()) is not None:
        said(caution)
    said(f"{recipe.sentence()} Drawing takes about {spoken(recipe.seconds)} on this machine (estimate) ...")
    _fit(made, features, labels, wanted.quiet)
    said("Drawn; comparing the models on the public inputs ...")
    rows, truth, groups, words = wanted.inputs
    found = made.multiplicity(rows, known(truth, made), groups=groups)
    _write(made, lambda: (rashomon_document(made, found, words), found), wanted)


def _fit(made: Any, features: Any, labels: Any, quiet: bool) -> None:
    with warnings.catch_warnings(), watching(quiet=quiet, log=True):
        if hasattr(
            made, "threshold"
        ):  # the sampler's caution has been said, the one about the state file has not
            warnings.filterwarnings("ignore", category=UserWarning)
        warnings.filterwarnings("default", message=".*holds the noise of this run")
        made.fit(features, labels)


def _write(made: Any, told: Callable[[], tuple[Any, Any]], wanted: Wanted) -> None:
    """Everything that is asked for, on the disk before the release is noted."""
    from dplangevin.cli import _outputs
    from dplangevin.report.document import finite, write_document

    models, delivery = made.models_, wanted.delivery
    if wanted.output is not None:
        delivery.put("the models", wanted.output, lambda place: _save(models, place), lambda: _text(models))
    document, table = told()
    if wanted.report is not None:
        delivery.put(
            "the report", wanted.report, lambda path: write_document(document, path), document.to_markdown
        )
    text = ""
    if wanted.as_json:
        text = json.dumps(finite(document.plain), indent=1) + "\n"
    elif not wanted.quiet:
        text = f"{made.plan_}\n{table}\n"
    if text or (wanted.output is None and wanted.report is None):
        _outputs.put_text(delivery, "the comparison", None, text)
    delivery.finish()
    if wanted.report is not None and not wanted.quiet and not wanted.as_json:
        typer.echo(f"Wrote {wanted.report}.")


def _save(models: list[Any], folder: Path) -> None:
    """All of them or none: the folder gets its name when the last one is written."""
    from dplangevin.estimators import model_file

    partial = folder.with_name(f"{folder.name}.part")
    partial.mkdir(parents=True)
    for i, model in enumerate(models):
        _files.write_text(partial / f"model_{i:04d}.json", model_file.dumps(model))
    os.replace(partial, folder)
    _files.sync_folder(folder.parent)


def _text(models: list[Any]) -> str:
    from dplangevin.estimators import model_file

    return "\n".join(map(model_file.dumps, models))
