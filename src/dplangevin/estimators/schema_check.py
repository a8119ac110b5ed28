"""What a schema does to PUBLIC rows: categories that never match, values that are clipped, cells that are missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.schema import CategoricalColumn, Column, Schema


@dataclass(frozen=True, kw_only=True)
class ColumnCheck:
    """Shares of the public rows, between 0 and 1; `unmatched` are the categories that no row holds."""

    name: str
    kind: str
    unmatched: tuple[str, ...] = ()
    unlisted: float = 0.0
    below: float = 0.0
    above: float = 0.0
    missing: float = 0.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person should look at."""
        words = []
        if self.unmatched:
            words.append(f"no row matches {', '.join(map(repr, self.unmatched))}")
        shares = {
            "outside the list or missing": self.unlisted,
            "clipped at the low end": self.below,
            "clipped at the high end": self.above,
            "missing or no number": self.missing,
        }
        words += [f"{_percent(share)} {what}" for what, share in shares.items() if share]
        return tuple(words)


@dataclass(frozen=True, kw_only=True, repr=False)
class SchemaCheck:
    """One ColumnCheck for each column of the schema, the target last."""

    n_rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def clean(self) -> bool:
        """True when there is nothing to remark."""
        return not any(column.remarks for column in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        columns = {each.name: {**each.__dict__, "unmatched": list(each.unmatched)} for each in self.columns}
        return {"n_rows": self.n_rows, "clean": self.clean, "columns": columns}

    def __repr__(self) -> str:
        lines = [f"{self.n_rows} public rows against the schema:"]
        lines += [
            f"  {each.name} ({each.kind}): {'; '.join(each.remarks) or 'fits'}" for each in self.columns
        ]
        return "\n".join(lines)


def check_schema(schema: Any, public: Any) -> SchemaCheck:
    """How a schema fits PUBLIC rows. The answer tells about single rows: never give it private ones.

    Cells are read by SchemaEncoder itself, so that what is checked is what happens. The target may be absent.

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
    return SchemaCheck(n_rows=len(public), columns=tuple(_checked(column, public) for column in columns))


def _checked(column: Column, public: Any) -> ColumnCheck:
    """Encode the column alone, with room around its range or list to see what falls outside."""
    if isinstance(column, CategoricalColumn):
        encoder, rows = _encoded(replace(column, other="own"), public)
        hits = rows[:, : len(column.categories)] > 0
        pairs = zip(column.categories, hits.any(axis=0), strict=True)
        return ColumnCheck(
            name=column.name,
            kind=f"{len(column.categories)} categories",
            unmatched=tuple(str(category) for category, found in pairs if not found),
            unlisted=_share(~hits.any(axis=1)),
        )
    width = column.high - column.low
    line = replace(column, transform="identity", basis=None, monotone=None)
    wide = replace(line, low=column.low - width, high=column.high + width)
    encoder, rows = _encoded(wide, public)
    # In the wide range the stated one is [-1/3, 1/3]; a hair of slack for the rounding of the encoder.
    absent = rows[:, encoder.index(f"{column.name} missing")] > 0
    return ColumnCheck(
        name=column.name,
        kind=f"range {column.low:g} to {column.high:g}",
        below=_share(~absent & (rows[:, 0] < -1 / 3 - 1e-12)),
        above=_share(~absent & (rows[:, 0] > 1 / 3 + 1e-12)),
        missing=_share(absent),
    )


def _encoded(column: Column, public: Any) -> tuple[list[str], Any]:
    """Names and values of the encoded column, before rows are scaled to their norm."""
    alone = Schema(columns=(column,)).to_dict()
    alone["columns"][column.name].pop(
        "missing", None
    )  # whatever the column says of them, missing cells are to be seen
    encoder = SchemaEncoder({**alone, "missing": "own"})
    rows = encoder.transform(public)
    return list(encoder.get_feature_names_out()), rows[:, :-1] / rows[:, -1:]


def _share(hits: Any) -> float:
    return float(np.mean(hits)) if len(hits) else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
