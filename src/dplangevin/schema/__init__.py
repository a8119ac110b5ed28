"""Public schema of a table: its columns, their ranges and their categories."""

from dplangevin.schema.columns import (
    CategoricalColumn,
    Column,
    DateColumn,
    Feature,
    HashedColumn,
    NumericColumn,
    SplineBasis,
)
from dplangevin.schema.learned import LearnableSchema, as_schema, load_schema
from dplangevin.schema.schema import Schema

__all__ = [
    "CategoricalColumn",
    "Column",
    "DateColumn",
    "Feature",
    "HashedColumn",
    "LearnableSchema",
    "NumericColumn",
    "Schema",
    "SplineBasis",
    "as_schema",
    "load_schema",
]
