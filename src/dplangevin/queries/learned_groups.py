"""Counts of groups that nobody lists: the values of a column that are common enough, with their noisy counts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from dplangevin import _check
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec, public_noise_grid
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.learned_schema.mechanism import (
    CellCounts,
    LearnedSchemaMechanism,
    add_counts,
    count_cells,
)
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec, calibrate_learned_schema
from dplangevin.mechanisms.mechanism import check_seed
from dplangevin.mechanisms.run_state import CheckpointPath
from dplangevin.problem.constants import Adjacency
from dplangevin.queries.count import MARGIN_COLUMN, MARGIN_LEVEL, WritableCounts, hide_reader_errors
from dplangevin.schema import CategoricalColumn
from dplangevin.tables import Dialect, Table, as_table, is_path, is_streamed, open_files
from dplangevin.tables.lazy import open_stored_table

DELTA_FRACTIONS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Parts of delta tried for values that only one person has; the one with the lowest threshold is taken."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupCounts(WritableCounts):
    """The common values of some columns with their noisy counts; values below the threshold are not in it.

    Parameters
    ----------
    counts : by column, the noisy count of each listed value, the largest first.
    plan : the certified release.
    seeded : whether the noise came from a user's seed; whoever knows it can remove the noise.
    text : whether values were compared character by character.
    ledger_head : head of the ledger's chain after this release was charged; None without a ledger.
    """

    counts: Mapping[str, Mapping[str, float]]
    plan: CertifiedSpec
    seeded: bool
    text: bool = False
    ledger_head: str | None = field(default=None, repr=False)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release."""
        return self.plan.guarantee

    @property
    def _spec(self) -> LearnedSchemaSpec:
        assert isinstance(self.plan.spec, LearnedSchemaSpec)
        return self.plan.spec

    def __len__(self) -> int:
        return sum(map(len, self.counts.values()))

    def margin(self, level: float = MARGIN_LEVEL) -> float:
        """Return the distance that the noise on one count exceeds with probability 1 - level."""
        spread = float(ndtri((1 + _check.check_open_unit("level", level)) / 2))
        rounding = max(1.0, public_noise_grid(math.sqrt(2) * self._spec.scale)) / 2
        return self._spec.scale * spread + (rounding if self._spec.secure else 0.0)

    def column(self, name: str) -> CategoricalColumn:
        """Return the listed values as a column of a schema, public from now on; all other values are "other"."""
        values = tuple(self.counts.get(name, ()))
        if not values:
            raise InvalidParameter(f"no value of {name!r} was common enough to be listed.")
        return CategoricalColumn(name=name, categories=values, other="own", text=self.text)

    def column_blocks(self) -> Iterator[dict[str, Any]]:
        """Yield table, cell, count and margin, one column at a time."""
        for name, counts in self.counts.items():
            yield {
                "table": np.full(len(counts), name, dtype=f"<U{max(1, len(name))}"),
                "cell": np.array([f"{name}={value}" for value in counts], dtype=str),
                "count": np.array(list(counts.values()), float),
                MARGIN_COLUMN: np.full(len(counts), self.margin()),
            }

    def metadata(self) -> dict[str, Any]:
        """Return the guarantee and the noise, as plain data."""
        spec = self._spec
        mechanism = {"sigma": spec.scale, "threshold": spec.threshold, "margin_95": self.margin()}
        return {
            "mechanism": {**mechanism, "guarantee": self.guarantee.to_dict()},
            "seeded": self.seeded,
            "processed": [],
        }

    def describe_error(self) -> str:
        """Return sentences on the guarantee, the threshold and the error."""
        guarantee, spec = self.guarantee, self._spec
        seed = (
            " The noise came from a given seed: do not publish the seed, nor the counts if the seed is known."
            if self.seeded
            else ""
        )
        return (
            f"({guarantee.epsilon():.4g}, {guarantee.at_delta:.4g})-differential privacy for {guarantee.adjacency} "
            f"neighbours. A value is listed if its noisy count is at least {spec.threshold:.0f}; a count is within "
            f"{self.margin():.4g} of the truth with 95% probability, except that counts near the threshold are listed "
            f"only where the noise is high.{seed}"
        )

    def digest(self) -> str:
        """Return a hash of the released numbers."""
        return hashlib.sha256(
            repr({name: dict(part) for name, part in self.counts.items()}).encode()
        ).hexdigest()


def count_learned_groups(
    table: Any,
    columns: str | Sequence[str],
    *,
    epsilon: float,
    delta: float,
    text: bool = False,
    max_rows_per_person: int = 1,
    adjacency: Adjacency = "replace-one",
    secure: bool | None = None,
    random_state: object = None,
    ledger: BudgetAccount | None = None,
    checkpoint: CheckpointPath = None,
    dialect: Dialect | None = None,
) -> GroupCounts:
    """Release the common values of columns with noisy counts, where no list of values can be stated in advance.

    Parameters
    ----------
    table : a table, a file or several (Parquet, Arrow, text), or a query; every cell is read on its own.
    columns : columns of the table, each counted by its own values; missing cells are in no group.
    epsilon, delta : the guarantee for everything together; delta > 0, since a value that only one person has must
        almost surely stay unlisted.
    text : compare texts character by character, so that "02139" is not 2139.
    max_rows_per_person : the guarantee covers all rows of a person who owns at most this many.
    secure : None or True: exact noise; True refuses a seed; False: noise in floating point.
    checkpoint : path of a private file from which the same call resumes after a crash, with its noise and its charge.

    Privacy
    -------
    The guarantee is that of a learned schema (docs/theory/learned_schema.md): noise on the counts of values that both
    neighbours have, and a threshold, paid from delta, for those that one of them lacks. The ledger is charged first.

    Examples
    --------
    >>> groups = count_learned_groups({"job": ["nurse"] * 900 + ["clerk"] * 500 + ["astronaut"]}, "job",
    ...                               epsilon=1.0, delta=1e-6, random_state=0)
    >>> list(groups.counts["job"]), groups.column("job").other
    (['nurse', 'clerk'], 'own')
    """
    check_seed(secure, random_state)
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or len(set(names)) < len(names):
        raise InvalidParameter("columns must name at least one column, each once.")
    source: Any
    if is_path(table) or is_streamed(table):
        source = open_files(table, dialect)
        source.require_columns(names)
    else:
        source = as_table(open_stored_table(table))
        for name in names:
            source.column(name)
    plan = plan_learned_groups(
        len(names), epsilon, delta, rows_per_person=max_rows_per_person, adjacency=adjacency, secure=secure
    )

    def count_labels() -> CellCounts:
        blocks: Iterable[Table] = source.blocks() if isinstance(source, Table) else source.batches(names)
        parts = [
            count_cells(block, {}, dict.fromkeys(names, text), outer=True)
            for block in hide_reader_errors(iter(blocks))
        ]
        return add_counts(parts) if parts else CellCounts(np.zeros((0, 0)), [{} for _ in names])

    release = LearnedSchemaMechanism().run(
        plan,
        count_labels,
        random_state,
        ledger=ledger,
        checkpoint=checkpoint,
        rows_per_person=max_rows_per_person,
    )
    counts = {
        name: dict(sorted(labels.items(), key=lambda pair: (-pair[1], pair[0])))
        for name, labels in zip(names, release.labels, strict=True)
    }
    return GroupCounts(
        counts=counts, plan=plan, seeded=release.seeded, text=text, ledger_head=release.ledger_head
    )


def plan_learned_groups(
    n_columns: int,
    epsilon: float,
    delta: float,
    *,
    rows_per_person: int = 1,
    adjacency: Adjacency = "replace-one",
    secure: bool | None = None,
) -> CertifiedSpec:
    """Return the release with the lowest threshold whose guarantee is at most (epsilon, delta)."""
    epsilon = _check.check_positive("epsilon", epsilon)
    if delta == 0:
        raise InvalidParameter(
            "values that nobody lists need delta > 0: under pure epsilon-DP a value that only one person has could "
            "never be told from a common one. State a delta, or the list of values in a schema."
        )
    delta = _check.check_open_unit("delta", delta)
    plans = []
    for fraction in DELTA_FRACTIONS:
        tail = fraction * delta
        try:
            spec = calibrate_learned_schema(
                n_numbers=0, n_cells=0, n_categories=n_columns, threshold_delta=tail,
                mu=cv.gdp_mu(epsilon, delta - tail * (1 + 1e-6)) * (1 - 1e-7), adjacency=adjacency,
                rows_per_person=rows_per_person, secure=secure is not False,
            )  # fmt: skip
        except CalibrationFailed:
            continue
        plan = CertifiedSpec(spec=spec, delta=delta)
        if plan.guarantee.epsilon(delta) <= epsilon:
            plans.append((spec.threshold or 0.0, fraction, plan))
    if not plans:
        raise CalibrationFailed(
            f"no noise meets epsilon = {epsilon:g} at delta = {delta:g}; raise one of them."
        )
    return min(plans, key=lambda entry: entry[:2])[2]
