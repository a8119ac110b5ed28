"""Counting front ends: predicates, histograms and marginals of private tables, with noise."""

from dplangevin.queries.count import count_file, count_marginals, count_queries
from dplangevin.queries.count_table import CountTable
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.postprocess import consistent_totals, nonnegative, rounded
from dplangevin.queries.row_queries import Predicate, column

__all__ = [
    "CountTable",
    "Marginals",
    "Predicate",
    "column",
    "consistent_totals",
    "count_file",
    "count_marginals",
    "count_queries",
    "nonnegative",
    "rounded",
]
