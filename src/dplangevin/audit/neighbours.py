"""neighbours: does one odd record change how a pipeline reads everybody else?

A proof of privacy begins at records. If one null turns a column of integers into floats, or one label renumbers the
others, a neighbour differs in n rows and not in one, and the promise is lost before the noise. Here the table is built
again from raw records for every neighbour, the pipeline runs on both, and all other rows must come out the same.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dplangevin import _check
from dplangevin.audit._outcome import Outcome, distance, outcome_of
from dplangevin.audit.containers import CONTAINERS, UNHELD, WHOLE_RECORD, records_of
from dplangevin.audit.neighbour_result import Finding, NeighbourResult
from dplangevin.audit.troublemakers import LONG, SHORT, TROUBLEMAKERS, stated_cells
from dplangevin.errors import InvalidParameter
from dplangevin.schema import Schema

Norm = Literal["l2", "l1", "max"]
Records = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class _Neighbour:
    """A table in which one record was replaced."""

    column: str
    canary: str
    row: int
    records: Records


def neighbours(
    pipeline: Any,
    table: Any,
    schema: Any = None,
    *,
    containers: Sequence[str] | None = None,
    canaries: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    rows: Sequence[int] = (0, -1),
    bound: float | None = None,
    norm: Norm = "l2",
) -> NeighbourResult:
    """Run a pipeline on a table and on its neighbours, and say which record changed what.

    Parameters
    ----------
    pipeline : a callable that takes a table (target included) and returns one result per row: an array, a DataFrame,
        a list, or a tuple of them (features, labels); or an object with fit_transform or transform, which gets the
        table without the schema's target. Noise must have a fixed seed.
    table : a few dozen records suffice: a list of mappings, an array, a pandas, polars or Arrow table, a CSV or
        Parquet file. Only names and row numbers of it are ever shown.
    schema : a Schema or its plain data: names the target, and adds the ends of its ranges and lists to the canaries.
    containers : "records", "numpy", "pandas", "polars", "arrow", "csv", "parquet" (the last two hand over a path); None
        takes all that are installed and on which the pipeline runs.
    canaries : cells by name instead of TROUBLEMAKERS. columns : where to put them; None: everywhere.
    rows : numbers of the records to replace, one at a time.
    bound : for a result that is not one per row (sums, coefficients): how far replacing one record may move it, in
        `norm` "l2", "l1" or "max". It is then the stated sensitivity that is tested.

    Examples
    --------
    >>> people = [{"age": 40, "job": "a"}, {"age": 50, "job": "b"}, {"age": 60, "job": "a"}]
    >>> careless = neighbours(lambda rows: [r["age"] / max(x["age"] for x in rows) for r in rows], people,
    ...     containers=["records"], canaries={"one old man": 120}, columns=["age"], rows=[0])
    >>> careless
    FAILED on 1 of 1 neighbours (3 records)
      records, age: 2 other rows changed (1, 2); by row 0 = one old man
      tables built as: records
    >>> neighbours(lambda rows: [min(r["age"], 100) for r in rows], people,
    ...     containers=["records"], canaries={"one old man": 120}, columns=["age"]).passed
    True
    """
    stated = schema if schema is None or isinstance(schema, Schema) else Schema.from_dict(schema)
    call, without_target = _callable(pipeline)
    records = _records(table, stated, without_target)
    wanted, places = _columns(records, columns), _places(rows, len(records))
    limit = None if bound is None else _check.nonnegative("bound", bound)
    _check.choice("norm", norm, ("l2", "l1", "max"))
    chosen, skipped = _runnable(call, records, containers, limit is None)
    parts = [
        _compared(call, container, base, _neighbours(records, wanted, places, container, canaries, stated), limit, norm)
        for container, base in chosen.items()
    ]  # fmt: skip
    return NeighbourResult(
        findings=tuple(finding for part, _ in parts for finding in part), n_records=len(records),
        n_neighbours=sum(count for _, count in parts), containers=tuple(chosen), skipped=tuple(skipped.items()),
    )  # fmt: skip


def _compared(
    call: Callable[[Any], Any],
    container: str,
    base: Outcome,
    others: Iterator[_Neighbour],
    bound: float | None,
    norm: Norm,
) -> tuple[list[Finding], int]:
    """What the neighbours in one container show, and how many there were."""
    findings: list[Finding] = []
    known: set[tuple[str, str]] = set()
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for neighbour in others:
            if (neighbour.column, neighbour.canary) in known:
                continue  # the same fault in another row says nothing new
            total += 1
            found = _run(call, container, neighbour.records, Path(folder), neighbour.row)
            faults = list(_faults(base, found, neighbour, container, bound, norm))
            findings += faults
            known |= {(fault.column, fault.canary) for fault in faults}
    return findings, total


def _records(table: Any, schema: Schema | None, without_target: bool) -> Records:
    """Raw records that all have the columns of the first."""
    target = None if schema is None or schema.target is None else schema.target.name
    stated = () if schema is None else (*schema.names, *(() if target is None else (target,)))
    records = records_of(table, stated)
    names = [name for name in records[0] if not (without_target and name == target)]
    return [{name: record.get(name) for name in names} for record in records]


def _callable(pipeline: Any) -> tuple[Callable[[Any], Any], bool]:
    """How the pipeline is called, and whether it wants the features alone."""
    for method in ("fit_transform", "transform"):
        if hasattr(pipeline, method) and not isinstance(pipeline, type):
            return getattr(pipeline, method), True
    if not callable(pipeline):
        raise InvalidParameter(
            f"pipeline must be a callable or have fit_transform or transform, got {type(pipeline).__name__}."
        )
    return pipeline, False


def _columns(records: Records, wanted: Sequence[str] | None) -> list[str]:
    names = list(records[0])
    unknown = [name for name in wanted or () if name not in names]
    if unknown or isinstance(wanted, str):
        raise InvalidParameter(f"columns must be names of the table ({', '.join(names)}), got {wanted!r}.")
    return names if wanted is None else list(wanted)


def _places(rows: Sequence[int], n: int) -> list[int]:
    if n < 2:
        raise InvalidParameter("table must have two rows or more: the others are what is watched.")
    if not len(rows) or not all(-n <= row < n for row in rows):
        raise InvalidParameter(f"rows must be numbers of records between {-n} and {n - 1}, got {list(rows)}.")
    return list(dict.fromkeys(row % n for row in rows))


def _runnable(
    call: Callable[[Any], Any], records: Records, wanted: Sequence[str] | None, by_row: bool
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """What the pipeline gives for the table itself, for each container; and where it does not run at all."""
    names = CONTAINERS if wanted is None else wanted
    found: dict[str, Outcome] = {}
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            _check.choice("containers", name, CONTAINERS)
            first, again = (_run(call, name, records, Path(folder), None) for _ in range(2))
            if again.error is not None:
                skipped[name] = again.error
                continue
            if first.content != again.content:
                raise InvalidParameter(
                    "pipeline gives two results for one table; fix its seed, or audit the step before its noise."
                )
            if by_row and again.n_rows != len(records):
                raise InvalidParameter(
                    f"pipeline gives {again.n_rows} rows for {len(records)} records; for a result that is not one per "
                    "row state how far one record may move it with bound."
                )
            found[name] = again
    failed = ", ".join(f"{name} ({error})" for name, error in skipped.items())
    if skipped and (wanted is not None or not found):
        raise InvalidParameter(f"pipeline does not run on the table itself, built as {failed}.")
    return found, skipped


def _neighbours(
    records: Records,
    columns: Sequence[str],
    places: Sequence[int],
    container: str,
    canaries: Mapping[str, Any] | None,
    schema: Schema | None,
) -> Iterator[_Neighbour]:
    for column in columns:
        cells = {**(TROUBLEMAKERS if canaries is None else canaries)}
        if canaries is None:
            cells |= stated_cells(schema, column)
        for canary, cell in cells.items():
            if (container, canary) in UNHELD:
                continue
            for row in places:
                replaced = {**records[row], column: cell}
                yield _Neighbour(column=column, canary=canary, row=row, records=_with(records, row, replaced))
    if canaries is None:
        for canary in (SHORT, LONG):
            if container in WHOLE_RECORD[canary]:
                for row in places:
                    yield _Neighbour(
                        column="", canary=canary, row=row, records=_with(records, row, _length(records[row], canary))
                    )  # fmt: skip


def _length(record: Mapping[str, Any], canary: str) -> dict[str, Any]:
    if canary == LONG:
        return {**record, "a surplus cell": "x", "another": "y"}
    return dict(list(record.items())[: max(1, len(record) // 2)])


def _with(records: Records, row: int, replaced: dict[str, Any]) -> Records:
    return [*records[:row], replaced, *records[row + 1 :]]


def _run(
    call: Callable[[Any], Any], container: str, records: Records, folder: Path, odd: int | None
) -> Outcome:
    """The pipeline's result, or the type of its error; with the places of its warnings."""
    try:
        built = CONTAINERS[container](records, folder, odd)
    except ImportError as error:
        return Outcome(error=type(error).__name__)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = outcome_of(call(built))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # polars panics are no Exception
            found = Outcome(error=type(error).__name__)
    said = Counter(f"{each.category.__name__} at {Path(each.filename).name}:{each.lineno}" for each in caught)
    return found.with_warnings(said)


def _faults(
    base: Outcome, found: Outcome, neighbour: _Neighbour, container: str, bound: float | None, norm: Norm
) -> Iterator[Finding]:
    def finding(effect: Any, others: tuple[int, ...] = (), detail: str = "") -> Finding:
        return Finding(
            container=container, column=neighbour.column, canary=neighbour.canary, row=neighbour.row,
            effect=effect, others=others, detail=detail,
        )  # fmt: skip

    if found.error is not None:
        yield finding("raised", detail=found.error)
        return
    if base.warnings != found.warnings:
        names = sorted({name.split(" at ")[0] for name in base.warnings ^ found.warnings})
        yield finding("warned", detail=", ".join(names))
    if bound is not None:
        moved = distance(base, found, norm)
        if not moved <= bound * (1 + 1e-9):
            yield finding("distance", detail=f"{moved:.6g} > {bound:.6g}")
        return
    if found.n_rows != base.n_rows:
        yield finding("rows", detail=f"{base.n_rows} to {found.n_rows}")
        return
    if found.names != base.names:
        yield finding("columns", detail=f"{len(base.names)} to {len(found.names)}")
        return
    others = tuple(i for i in range(base.n_rows) if i != neighbour.row and base.rows[i] != found.rows[i])
    if others:
        pairs = [pair for pair in zip(base.types, found.types, strict=True) if pair[0] != pair[1]]
        types = ", ".join(dict.fromkeys(f"{old} became {new}" for old, new in pairs))
        yield finding("changed", others, types)
