"""Private counts, sums, means and quantiles of tables."""

from dplangevin.queries.count import (
    CountTable,
    clip_nonnegative,
    count_file,
    count_marginals,
    count_queries,
    make_totals_consistent,
    round_to_integers,
)
from dplangevin.queries.learned_groups import GroupCounts, count_learned_groups
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.row_queries import Predicate, column
from dplangevin.queries.summaries import SummaryTable, summarize_table

__all__ = [
    "CountTable",
    "GroupCounts",
    "Marginals",
    "Predicate",
    "SummaryTable",
    "clip_nonnegative",
    "column",
    "count_file",
    "count_learned_groups",
    "count_marginals",
    "count_queries",
    "make_totals_consistent",
    "round_to_integers",
    "summarize_table",
]
