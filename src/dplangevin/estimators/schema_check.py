"""Check of a schema against PUBLIC rows: unmatched categories, clipped values and missing cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.schema import CategoricalColumn, Column, DateColumn, HashedColumn, Schema
from dplangevin.tables import as_table
from dplangevin.tables.cells import replace_decimal_comma


@dataclass(frozen=True, kw_only=True)
class ColumnCheck:
    """How one column of the schema matches the public rows.

    Parameters
    ----------
    name, kind : of the column.
    unmatched : categories that no row has.
    unlisted, below, above, missing : fractions of the rows outside the list, clipped at either end, or missing.
    commas : fraction of the rows with a decimal comma, which are among the missing.
    """

    name: str
    kind: str
    unmatched: tuple[str, ...] = ()
    unlisted: float = 0.0
    below: float = 0.0
    above: float = 0.0
    missing: float = 0.0
    commas: float = 0.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on what should be checked by hand."""
        remarks = []
        if self.unmatched:
            remarks.append(f"no row matches {', '.join(map(repr, self.unmatched))}")
        fractions = {
            "outside the list or missing": self.unlisted,
            "clipped at the low end": self.below,
            "clipped at the high end": self.above,
            "missing or not a number": self.missing,
        }
        remarks += [f"{_format_percent(fraction)} {what}" for what, fraction in fractions.items() if fraction]
        if self.commas:
            remarks.append(
                f"{_format_percent(self.commas)} with a decimal comma: read them with --decimal , "
                "(Dialect(decimal=',')), in pandas decimal=','"
            )
        return tuple(remarks)


@dataclass(frozen=True, kw_only=True, repr=False)
class SchemaCheck:
    """Result of `check_schema`: one ColumnCheck for each column of the schema, the target last."""

    n_rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def is_clean(self) -> bool:
        """Whether there are no remarks."""
        return not any(column.remarks for column in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        columns = {each.name: {**each.__dict__, "unmatched": list(each.unmatched)} for each in self.columns}
        return {"n_rows": self.n_rows, "is_clean": self.is_clean, "columns": columns}

    def __repr__(self) -> str:
        lines = [f"{self.n_rows} public rows against the schema:"]
        lines += [
            f"  {each.name} ({each.kind}): {'; '.join(each.remarks) or 'fits'}" for each in self.columns
        ]
        return "\n".join(lines)


def check_schema(schema: Any, public: Any) -> SchemaCheck:
    """Check how a schema matches PUBLIC rows; the result depends on single rows, so never pass private ones.

    Cells are read by SchemaEncoder itself, so that the check agrees with the encoding. The target may be absent.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"age": [20, 200, 50, 60], "job": ["a", "a", "b", "z"]})
    >>> check_schema({"columns": {"age": {"range": [17, 90]}, "job": {"categories": ["a", "b", "c"]}}}, rows)
    4 public rows against the schema:
      age (range 17 to 90): 25% clipped at the high end
      job (3 categories): no row matches 'c'; 25% outside the list or missing
    """
    stated = as_schema(schema)
    names = {str(name) for name in getattr(public, "columns", getattr(public, "names", ()))}
    stated.validate(names)
    columns = list(stated.columns)
    if stated.target is not None and stated.target.name in names:
        columns.append(stated.target)
    return SchemaCheck(n_rows=len(public), columns=tuple(_check_column(column, public) for column in columns))


def _check_column(column: Column, public: Any) -> ColumnCheck:
    """Check one column: encode it alone, with a wider range or list, to see what falls outside."""
    if isinstance(column, CategoricalColumn):
        encoder, rows = _encode_alone(replace(column, other="own"), public)
        hits = rows[:, : len(column.categories)] > 0
        pairs = zip(column.categories, hits.any(axis=0), strict=True)
        return ColumnCheck(
            name=column.name,
            kind=column.extent,
            unmatched=tuple(str(category) for category, has_match in pairs if not has_match),
            unlisted=_mean_of(~hits.any(axis=1)),
        )
    if isinstance(column, HashedColumn):
        encoder, rows = _encode_alone(column, public)
        return ColumnCheck(name=column.name, kind=column.extent, missing=_mean_of(rows.sum(axis=1) == 0))
    if isinstance(column, DateColumn):
        trend = replace(column, parts=("trend",), basis=None).features[0]
        days = np.asarray(trend.cells(as_table(public, [column.name])).numbers())
        return ColumnCheck(
            name=column.name,
            kind=column.extent,
            below=_mean_of(days < column.low),
            above=_mean_of(days > column.high),
            missing=_mean_of(np.isnan(days)),
        )
    width = column.high - column.low
    line = replace(column, transform="identity", basis=None, monotone=None)
    wide = replace(line, low=column.low - width, high=column.high + width)
    encoder, rows = _encode_alone(wide, public)
    # In the wide range the stated one is [-1/3, 1/3]; the slack covers rounding in the encoder.
    absent = rows[:, encoder.index(f"{column.name} missing")] > 0
    return ColumnCheck(
        name=column.name,
        kind=f"range {column.extent}",
        below=_mean_of(~absent & (rows[:, 0] < -1 / 3 - 1e-12)),
        above=_mean_of(~absent & (rows[:, 0] > 1 / 3 + 1e-12)),
        missing=_mean_of(absent),
        commas=_mean_of(_has_decimal_comma(column.name, public)),
    )


def _has_decimal_comma(name: str, public: Any) -> NDArray[np.bool_]:
    """Return which public cells are numbers once their comma is a point."""
    cells = as_table(public, [name]).column(name)
    texts, numbers = cells.texts(), cells.numbers()
    is_changed = [text is not None and replace_decimal_comma(text) != text for text in texts]
    return np.asarray(np.isnan(numbers) & np.array(is_changed, bool))


def _encode_alone(column: Column, public: Any) -> tuple[list[str], Any]:
    """Return names and values of the encoded column, before rows are scaled to their norm."""
    schema = Schema(columns=(column,)).to_dict()
    schema["columns"][column.name].pop("missing", None)  # missing cells must show whatever the column's rule
    encoder = SchemaEncoder({**schema, "missing": "own"})
    rows = encoder.transform(public)
    return list(encoder.get_feature_names_out()), rows[:, :-1] / rows[:, -1:]


def _mean_of(hits: Any) -> float:
    return float(np.mean(hits)) if len(hits) else 0.0


def _format_percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"
