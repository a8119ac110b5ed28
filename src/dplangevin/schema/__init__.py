"""What is public about a table: its columns, their ranges and their categories."""

from dplangevin.schema.basis import Basis
from dplangevin.schema.columns import CategoricalColumn, Column, NumericColumn
from dplangevin.schema.learned import SchemaToLearn, as_schema, load_any
from dplangevin.schema.schema import Schema

__all__ = [
    "Basis",
    "CategoricalColumn",
    "Column",
    "NumericColumn",
    "Schema",
    "SchemaToLearn",
    "as_schema",
    "load_any",
]
