"""`dplangevin rashomon --route region`: plan, say what is being done, release, and write what is asked."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import typer

from dplangevin._progress import watching


def made(
    template: Any, thresholds: list[float], confidence: float, reference: str, options: dict[str, Any]
) -> Any:
    """The region that is asked for."""
    from dplangevin.rashomon import RashomonRegion

    chosen = {"n_models": 100, **{name: value for name, value in options.items() if value is not None}}
    return RashomonRegion(
        template, thresholds=tuple(thresholds), confidence=confidence, reference=reference, **chosen
    )


def run(
    region: Any,
    features: Any,
    labels: Any,
    inputs: tuple[Any, Any, Any, str],
    report: Path | None,
    output: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Release, compare and write; progress goes to standard error."""
    from dplangevin.cli import _outputs
    from dplangevin.cli.rashomon import _keep
    from dplangevin.report.document import finite, write_document
    from dplangevin.report.region import region_document

    said = _Said(quiet)
    rows, truth, groups, words = inputs
    region.set_params(public_inputs=rows, public_labels=truth, groups=groups)
    _outputs.folder_ready("--output", output)
    said(f"Releasing a centre, its curvature and one slack number for {len(rows):,} public inputs ...")
    with warnings.catch_warnings(), watching(quiet=quiet, log=True):
        warnings.filterwarnings("default", message=".*holds the noise of this run")
        region.fit(features, labels)
    said(
        f"Released {region.release_.scales.size:,} certified points; comparing them on the public inputs ..."
    )
    table = region.multiplicity()
    document = region_document(region, table, words)
    _keep(region.models_, output)
    if report is not None:
        _outputs.deliver(
            lambda path: write_document(document, path), report, "the report", document.to_markdown
        )
    if as_json:
        typer.echo(json.dumps(finite(document.plain), indent=1))
    elif not quiet:
        typer.echo(f"{region.plan_}\n{table}")
        if report is not None:
            typer.echo(f"Wrote {report}.")


class _Said:
    """Lines with the seconds since the start: public stages, whatever the records are."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._start = quiet, time.monotonic()

    def __call__(self, words: str) -> None:
        if not self._quiet:
            typer.echo(f"[{time.monotonic() - self._start:5.1f} s] {words}", err=True)
