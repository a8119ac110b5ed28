"""audit_pipeline: find records that change how a pipeline treats other records.

A proof of privacy starts from records. If one null turns a column of integers into floats, or one label renumbers the
others, neighbouring tables differ in n rows after the pipeline and not in one, and the guarantee is lost before any
noise is added. The table is built again from raw records for every neighbour, the pipeline runs on both, and all other
rows must have the same results.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dplangevin import _check
from dplangevin.audit.containers import (
    ADVERSARIAL_CELLS,
    CONTAINER_BUILDERS,
    LONG_RECORD,
    SHORT_RECORD,
    UNSUPPORTED_CELLS,
    WHOLE_RECORD_CONTAINERS,
    PipelineOutcome,
    outcome_distance,
    read_outcome,
    read_records,
    schema_boundary_cells,
)
from dplangevin.errors import InvalidParameter
from dplangevin.schema import Schema

Effect = Literal["changed", "rows", "columns", "distance", "raised", "warned"]
_MAX_LINES, _MAX_ROWS, _MAX_NAMES = 40, 5, 6


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One neighbouring table on which a pipeline treated other records differently.

    Parameters
    ----------
    container : how the table was built.
    column, canary, row : the column and the number of the record that the canary was put into.
    effect : "changed" (other rows have other results), "rows" or "columns" (the result has another number or other
        names of them), "distance" (beyond the bound), "raised", or "warned".
    others : numbers of the other rows that changed. detail : types, counts or a distance; never a cell.
    """

    container: str
    column: str
    canary: str
    row: int
    effect: Effect
    others: tuple[int, ...] = ()
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {**self.__dict__, "others": list(self.others)}


@dataclass(frozen=True, kw_only=True, repr=False)
class PipelineAuditResult:
    """The findings of a pipeline audit; a pass is no proof, since other records may still affect each other.

    Parameters
    ----------
    findings : one for every neighbour that shows a fault; canary names and row numbers, never cells.
    n_records : rows of the table. n_neighbors : tables that were compared with it.
    containers : how tables were built. skipped : containers on which the pipeline does not run, with the error's type.
    """

    findings: tuple[Finding, ...]
    n_records: int
    n_neighbors: int
    containers: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def has_passed(self) -> bool:
        """Whether no record changed anything but its own row."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "passed": self.has_passed,
            "n_records": self.n_records,
            "n_neighbors": self.n_neighbors,
            "containers": list(self.containers),
            "skipped": dict(self.skipped),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=True)

    def __repr__(self) -> str:
        n_failed, size = (
            len({_neighbor_key(finding) for finding in self.findings}),
            f"{self.n_records} records",
        )
        lines = [f"FAILED on {n_failed} of {self.n_neighbors} neighbours ({size})"]
        if self.has_passed:
            lines = [f"passed: no record changed another's result ({self.n_neighbors} neighbours, {size})"]
        groups: dict[tuple[Any, ...], list[Finding]] = {}
        for finding in self.findings:
            kind = (
                finding.container,
                finding.column,
                finding.effect,
                finding.row,
                len(finding.others),
                finding.detail,
            )
            groups.setdefault(kind, []).append(finding)
        lines += [_group_line(group) for group in list(groups.values())[:_MAX_LINES]]
        if len(groups) > _MAX_LINES:
            lines.append(f"  ... and {len(groups) - _MAX_LINES} more kinds; see findings")
        lines.append("  tables built as: " + ", ".join(self.containers))
        lines += [f"  not run on {name}: the pipeline raises {error}" for name, error in self.skipped]
        return "\n".join(lines)


def _neighbor_key(finding: Finding) -> tuple[str, str, str, int]:
    return finding.container, finding.column, finding.canary, finding.row


def _group_line(group: Sequence[Finding]) -> str:
    first = group[0]
    names = ", ".join(finding.canary for finding in group[:_MAX_NAMES])
    if len(group) > _MAX_NAMES:
        names += f" and {len(group) - _MAX_NAMES} more"
    rows = ", ".join(map(str, first.others[:_MAX_ROWS])) + ("..." if len(first.others) > _MAX_ROWS else "")
    effect_text = {
        "changed": f"{len(first.others)} other rows changed ({rows})",
        "rows": "the number of rows changed",
        "columns": "the columns changed",
        "distance": "the result moved beyond the bound",
        "raised": "raised",
        "warned": "warnings changed",
    }[first.effect]
    detail = f": {first.detail}" if first.detail else ""
    return f"  {first.container}, {first.column or 'whole record'}: {effect_text}{detail}; by row {first.row} = {names}"


Norm = Literal["l2", "l1", "max"]
Records = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class _NeighborTable:
    """A table in which one record was replaced."""

    column: str
    canary: str
    row: int
    records: Records


def audit_pipeline(
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
) -> PipelineAuditResult:
    """Run a pipeline on a table and on its neighbours, and report which record changed what.

    Parameters
    ----------
    pipeline : a callable that takes a table (target included) and returns one result per row: an array, a DataFrame,
        a list, or a tuple of them (features, labels); or an object with fit_transform or transform, which gets the
        table without the schema's target. Noise must have a fixed seed.
    table : a list of mappings, an array, a pandas, polars or Arrow table, a CSV or Parquet file; a few dozen records
        suffice. Only its names and row numbers are ever shown.
    schema : a Schema or its plain data: names the target, and adds the ends of its ranges and lists to the canaries.
    containers : "records", "numpy", "pandas", "polars", "arrow", "csv", "parquet" (the last two hand over a path); None
        takes all that are installed and on which the pipeline runs.
    canaries : cells by name instead of ADVERSARIAL_CELLS. columns : where to put them; None: everywhere.
    rows : numbers of the records to replace, one at a time.
    bound : for a result that is not one per row (sums, coefficients): largest change by replacing one record, in
        `norm` "l2", "l1" or "max". This tests the stated sensitivity.

    Examples
    --------
    >>> people = [{"age": 40, "job": "a"}, {"age": 50, "job": "b"}, {"age": 60, "job": "a"}]
    >>> audit_pipeline(lambda rows: [r["age"] / max(x["age"] for x in rows) for r in rows], people,
    ...     containers=["records"], canaries={"one old man": 120}, columns=["age"], rows=[0])
    FAILED on 1 of 1 neighbours (3 records)
      records, age: 2 other rows changed (1, 2); by row 0 = one old man
      tables built as: records
    >>> audit_pipeline(lambda rows: [min(r["age"], 100) for r in rows], people,
    ...     containers=["records"], canaries={"one old man": 120}, columns=["age"]).has_passed
    True
    """
    stated_schema = schema if schema is None or isinstance(schema, Schema) else Schema.from_dict(schema)
    call, without_target = _pipeline_call(pipeline)
    records = _table_records(table, stated_schema, without_target)
    column_names, positions = _check_columns(records, columns), _row_positions(rows, len(records))
    limit = None if bound is None else _check.check_nonnegative("bound", bound)
    _check.check_choice("norm", norm, ("l2", "l1", "max"))
    base_outcomes, skipped = _run_base_table(call, records, containers, limit is None)
    parts = []
    for container, base in base_outcomes.items():
        neighbors = _generate_neighbors(records, column_names, positions, container, canaries, stated_schema)
        parts.append(_compare_neighbors(call, container, base, neighbors, limit, norm))
    return PipelineAuditResult(
        findings=tuple(finding for part, _ in parts for finding in part), n_records=len(records),
        n_neighbors=sum(count for _, count in parts), containers=tuple(base_outcomes), skipped=tuple(skipped.items()),
    )  # fmt: skip


def _compare_neighbors(
    call: Callable[[Any], Any],
    container: str,
    base: PipelineOutcome,
    others: Iterator[_NeighborTable],
    bound: float | None,
    norm: Norm,
) -> tuple[list[Finding], int]:
    """Return the findings for the neighbours in one container, and the number of neighbours."""
    findings: list[Finding] = []
    faulty_cells: set[tuple[str, str]] = set()
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for neighbor in others:
            if (neighbor.column, neighbor.canary) in faulty_cells:
                continue  # the same fault in another row adds nothing
            total += 1
            outcome = _run_pipeline(call, container, neighbor.records, Path(folder), neighbor.row)
            faults = list(_find_faults(base, outcome, neighbor, container, bound, norm))
            findings += faults
            faulty_cells |= {(fault.column, fault.canary) for fault in faults}
    return findings, total


def _table_records(table: Any, schema: Schema | None, without_target: bool) -> Records:
    """Return raw records that all have the columns of the first."""
    target = None if schema is None or schema.target is None else schema.target.name
    stated = () if schema is None else (*schema.names, *(() if target is None else (target,)))
    records = read_records(table, stated)
    names = [name for name in records[0] if not (without_target and name == target)]
    return [{name: record.get(name) for name in names} for record in records]


def _pipeline_call(pipeline: Any) -> tuple[Callable[[Any], Any], bool]:
    """Return the pipeline as a callable, and whether it takes the features alone."""
    for method in ("fit_transform", "transform"):
        if hasattr(pipeline, method) and not isinstance(pipeline, type):
            return getattr(pipeline, method), True
    if not callable(pipeline):
        raise InvalidParameter(
            f"pipeline must be a callable or have fit_transform or transform, got {type(pipeline).__name__}."
        )
    return pipeline, False


def _check_columns(records: Records, columns: Sequence[str] | None) -> list[str]:
    names = list(records[0])
    unknown = [name for name in columns or () if name not in names]
    if unknown or isinstance(columns, str):
        raise InvalidParameter(f"columns must be names of the table ({', '.join(names)}), got {columns!r}.")
    return names if columns is None else list(columns)


def _row_positions(rows: Sequence[int], n: int) -> list[int]:
    if n < 2:
        raise InvalidParameter(
            "table must have two rows or more: the results of the other rows are compared."
        )
    if not len(rows) or not all(-n <= row < n for row in rows):
        raise InvalidParameter(f"rows must be numbers of records between {-n} and {n - 1}, got {list(rows)}.")
    return list(dict.fromkeys(row % n for row in rows))


def _run_base_table(
    call: Callable[[Any], Any], records: Records, containers: Sequence[str] | None, by_row: bool
) -> tuple[dict[str, PipelineOutcome], dict[str, str]]:
    """Return the pipeline's result on the table itself per container, and the error's type where it does not run."""
    names = CONTAINER_BUILDERS if containers is None else containers
    base_outcomes: dict[str, PipelineOutcome] = {}
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            _check.check_choice("containers", name, CONTAINER_BUILDERS)
            first, second = (_run_pipeline(call, name, records, Path(folder), None) for _ in range(2))
            if second.error is not None:
                skipped[name] = second.error
                continue
            if first.content != second.content:
                raise InvalidParameter(
                    "pipeline gives two results for one table; fix its seed, or audit the step before its noise."
                )
            if by_row and second.n_rows != len(records):
                raise InvalidParameter(
                    f"pipeline gives {second.n_rows} rows for {len(records)} records; for a result that is not one per "
                    "row, state with bound how far one record may move it."
                )
            base_outcomes[name] = second
    failed = ", ".join(f"{name} ({error})" for name, error in skipped.items())
    if skipped and (containers is not None or not base_outcomes):
        raise InvalidParameter(f"pipeline does not run on the table itself, built as {failed}.")
    return base_outcomes, skipped


def _generate_neighbors(
    records: Records,
    columns: Sequence[str],
    positions: Sequence[int],
    container: str,
    canaries: Mapping[str, Any] | None,
    schema: Schema | None,
) -> Iterator[_NeighborTable]:
    for column in columns:
        cells = {**(ADVERSARIAL_CELLS if canaries is None else canaries)}
        if canaries is None:
            cells |= schema_boundary_cells(schema, column)
        for canary, cell in cells.items():
            if (container, canary) in UNSUPPORTED_CELLS:
                continue
            for row in positions:
                replaced = {**records[row], column: cell}
                yield _NeighborTable(
                    column=column, canary=canary, row=row, records=_replace_record(records, row, replaced)
                )
    if canaries is None:
        for canary in (SHORT_RECORD, LONG_RECORD):
            if container in WHOLE_RECORD_CONTAINERS[canary]:
                for row in positions:
                    neighbor = _replace_record(records, row, _change_length(records[row], canary))
                    yield _NeighborTable(column="", canary=canary, row=row, records=neighbor)


def _change_length(record: Mapping[str, Any], canary: str) -> dict[str, Any]:
    if canary == LONG_RECORD:
        return {**record, "a surplus cell": "x", "another": "y"}
    return dict(list(record.items())[: max(1, len(record) // 2)])


def _replace_record(records: Records, row: int, replaced: dict[str, Any]) -> Records:
    return [*records[:row], replaced, *records[row + 1 :]]


def _run_pipeline(
    call: Callable[[Any], Any], container: str, records: Records, folder: Path, replaced_row: int | None
) -> PipelineOutcome:
    """Return the pipeline's result or the type of its error, with the locations of its warnings."""
    try:
        table = CONTAINER_BUILDERS[container](records, folder, replaced_row)
    except ImportError as error:
        return PipelineOutcome(error=type(error).__name__)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = read_outcome(call(table))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # polars panics are no Exception
            outcome = PipelineOutcome(error=type(error).__name__)
    warning_counts = Counter(
        f"{each.category.__name__} at {Path(each.filename).name}:{each.lineno}" for each in caught
    )
    return outcome.with_warnings(warning_counts)


def _find_faults(
    base: PipelineOutcome,
    outcome: PipelineOutcome,
    neighbor: _NeighborTable,
    container: str,
    bound: float | None,
    norm: Norm,
) -> Iterator[Finding]:
    def make_finding(effect: Any, others: tuple[int, ...] = (), detail: str = "") -> Finding:
        return Finding(
            container=container, column=neighbor.column, canary=neighbor.canary, row=neighbor.row,
            effect=effect, others=others, detail=detail,
        )  # fmt: skip

    if outcome.error is not None:
        yield make_finding("raised", detail=outcome.error)
        return
    if base.warnings != outcome.warnings:
        names = sorted({name.split(" at ")[0] for name in base.warnings ^ outcome.warnings})
        yield make_finding("warned", detail=", ".join(names))
    if bound is not None:
        distance = outcome_distance(base, outcome, norm)
        if not distance <= bound * (1 + 1e-9):
            yield make_finding("distance", detail=f"{distance:.6g} > {bound:.6g}")
        return
    if outcome.n_rows != base.n_rows:
        yield make_finding("rows", detail=f"{base.n_rows} to {outcome.n_rows}")
        return
    if outcome.names != base.names:
        yield make_finding("columns", detail=f"{len(base.names)} to {len(outcome.names)}")
        return
    others = tuple(i for i in range(base.n_rows) if i != neighbor.row and base.rows[i] != outcome.rows[i])
    if others:
        pairs = [pair for pair in zip(base.types, outcome.types, strict=True) if pair[0] != pair[1]]
        types = ", ".join(dict.fromkeys(f"{old} became {new}" for old, new in pairs))
        yield make_finding("changed", others, types)
