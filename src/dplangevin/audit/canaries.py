"""Canaries: pairs of neighbouring data sets, within the stated bounds, that attacks tell apart most easily."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Problem

Records = tuple[Floats, Floats]
Score = Callable[[Floats], Floats]
_TILT_SINE = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
    """Two neighbouring data sets (X, y), and optionally a score of released vectors.

    Parameters
    ----------
    name : of the canary.
    first, second : the data sets.
    score : maps released vectors [runs, dimension] to [runs]; None learns a direction from runs that do not certify.
    """

    name: str
    first: Records
    second: Records
    score: Score | None = None


@dataclass(frozen=True)
class _CanaryBuilder:
    """Builds pairs of neighbouring data sets for one problem."""

    problem: Problem

    @property
    def label_low(self) -> float:
        return self.problem.bounds.label_range[0]

    @property
    def label_high(self) -> float:
        return self.problem.bounds.label_range[1]

    def longest_row(self, *entries: float) -> Floats:
        """Return a row of the largest admissible norm in the direction of these first entries."""
        row = np.zeros(self.problem.n_features)
        row[: len(entries)] = entries[: len(row)]
        length = float(np.linalg.norm(row))
        return row * (self.problem.bounds.data_norm / length if length else 0.0)

    def blank_records(self) -> Records:
        """Return rows of zeros whose labels cancel."""
        count = self.problem.n - 1
        labels = np.where(np.arange(count) % 2, self.label_low, self.label_high)
        return np.zeros((count, self.problem.n_features)), labels

    def repeated_records(self, row: Floats, label: float) -> Records:
        count = self.problem.n - 1
        return np.tile(row, (count, 1)), np.full(count, label)

    def build_pair(
        self,
        name: str,
        others: Records,
        one: tuple[Floats, float],
        other: tuple[Floats, float],
        at: int | None = None,
    ) -> Canary:
        """Return the pair of `others` with record `one` and with record `other` (add-remove: without it).

        at : index of the differing record; None puts it last.
        """
        position = len(others[1]) if at is None else at

        def with_record(record: tuple[Floats, float]) -> Records:
            return np.insert(others[0], position, record[0], axis=0), np.insert(
                others[1], position, record[1]
            )

        second = with_record(other) if self.problem.adjacency == "replace-one" else others
        return Canary(name=name, first=with_record(one), second=second)


def make_canaries(problem: Problem) -> tuple[Canary, ...]:
    """Return the named canaries of a problem; a longest row is one of the largest admissible norm.

    worst-direction : a longest row whose label is exchanged, among rows of zeros; in the first batch.
    last-batch : the same record at the end, in the last of cyclic batches.
    mislabelled : a wrong label among correctly labelled longest rows in every coordinate.
    blank : a longest row against a row of zeros (replace-one only).
    common-drift : the others move theta so that both versions of the record have gradients at the clipping bound.
    corner : the others push theta into a corner of the set, the record pulls it out.
    """
    if not isinstance(problem, Problem):
        raise InvalidParameter(f"problem must be a Problem, got {type(problem).__name__}.")
    builder = _CanaryBuilder(problem)
    low, high, along = builder.label_low, builder.label_high, builder.longest_row(1.0)
    diagonal = builder.longest_row(*np.ones(problem.n_features))
    spread = np.array(
        [
            builder.longest_row(*np.eye(problem.n_features)[i % problem.n_features])
            for i in range(problem.n - 1)
        ]
    )
    spread = spread.reshape(problem.n - 1, problem.n_features)
    tilt = math.sqrt(1 - _TILT_SINE**2)
    drift = builder.longest_row(0.0, 1.0) if problem.n_features > 1 else along
    above, below = (
        builder.longest_row(tilt, sign * _TILT_SINE) if problem.n_features > 1 else along for sign in (1, -1)
    )
    pairs = [
        builder.build_pair("worst-direction", builder.blank_records(), (along, high), (along, low), at=0),
        builder.build_pair("last-batch", builder.blank_records(), (along, high), (along, low)),
        builder.build_pair(
            "mislabelled", (spread, np.full(problem.n - 1, high)), (along, low), (along, high)
        ),
        builder.build_pair(
            "common-drift", builder.repeated_records(drift, high), (above, low), (below, high)
        ),
        builder.build_pair(
            "corner", builder.repeated_records(diagonal, high), (diagonal, low), (diagonal, high)
        ),
    ]
    if problem.adjacency == "replace-one":
        pairs.append(
            builder.build_pair(
                "blank", builder.blank_records(), (along, high), (np.zeros(problem.n_features), high)
            )
        )
    return tuple(pairs)


def are_neighbors(first: Records, second: Records) -> bool:
    """Return whether two data sets differ in at most one record (replaced, added or removed)."""
    longer, shorter = (first, second) if len(first[1]) >= len(second[1]) else (second, first)
    rows, others = (np.column_stack([X, y]) for X, y in (longer, shorter))
    if rows.shape[1] != others.shape[1]:
        return False
    if len(rows) == len(others):
        return int(np.sum(np.any(rows != others, axis=1))) <= 1
    if len(rows) != len(others) + 1:
        return False
    differs = np.flatnonzero(np.any(rows[:-1] != others, axis=1))
    return differs.size == 0 or bool(np.array_equal(np.delete(rows, differs[0], axis=0), others))
