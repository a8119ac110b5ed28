"""Canaries: pairs of neighbouring data sets, within the stated bounds, that a run finds hard to hide."""

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
_TILT = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Canary:
    """Two neighbouring data sets (X, y), and a score of a released vector if a good one is known.

    score maps released vectors [runs, dimension] to [runs]; None learns a direction from runs that are not certified.
    """

    name: str
    first: Records
    second: Records
    score: Score | None = None


@dataclass(frozen=True)
class _Maker:
    """Builds pairs for one problem: `others` are the common records, the record in question stands last."""

    problem: Problem

    @property
    def low(self) -> float:
        return self.problem.bounds.label_range[0]

    @property
    def high(self) -> float:
        return self.problem.bounds.label_range[1]

    def row(self, *entries: float) -> Floats:
        """A row of the largest admissible norm in the direction of these first entries."""
        row = np.zeros(self.problem.n_features)
        row[: len(entries)] = entries[: len(row)]
        length = float(np.linalg.norm(row))
        return row * (self.problem.bounds.data_norm / length if length else 0.0)

    def flat(self) -> Records:
        """Blank rows whose labels cancel."""
        count = self.problem.n - 1
        labels = np.where(np.arange(count) % 2, self.low, self.high)
        return np.zeros((count, self.problem.n_features)), labels

    def same(self, row: Floats, label: float) -> Records:
        count = self.problem.n - 1
        return np.tile(row, (count, 1)), np.full(count, label)

    def pair(
        self,
        name: str,
        others: Records,
        one: tuple[Floats, float],
        other: tuple[Floats, float],
        at: int | None = None,
    ) -> Canary:
        """The record `one` against the record `other`, or against no record under add-remove."""
        place = len(others[1]) if at is None else at

        def with_record(record: tuple[Floats, float]) -> Records:
            return np.insert(others[0], place, record[0], axis=0), np.insert(others[1], place, record[1])

        second = with_record(other) if self.problem.adjacency == "replace-one" else others
        return Canary(name=name, first=with_record(one), second=second)


def canaries(problem: Problem) -> tuple[Canary, ...]:
    """The named pairs of a problem.

    worst-direction : a longest row whose label is exchanged, among blank rows; in the first batch.
    last-batch : the same record in the last place, where cyclic batches see it last.
    mislabelled : a wrong label among longest rows in every coordinate that are labelled right.
    blank : a longest row against a row of zeros (replace-one only).
    common-drift : the others push in one direction so that both versions of the record have slopes at their bound.
    corner : the others push into a corner of the set, the record pulls out of it.
    """
    if not isinstance(problem, Problem):
        raise InvalidParameter(f"problem must be a Problem, got {type(problem).__name__}.")
    make = _Maker(problem)
    low, high, along = make.low, make.high, make.row(1.0)
    diagonal = make.row(*np.ones(problem.n_features))
    spread = np.array(
        [make.row(*np.eye(problem.n_features)[i % problem.n_features]) for i in range(problem.n - 1)]
    )
    spread = spread.reshape(problem.n - 1, problem.n_features)
    tilt = math.sqrt(1 - _TILT**2)
    drift = make.row(0.0, 1.0) if problem.n_features > 1 else along
    above, below = (make.row(tilt, sign * _TILT) if problem.n_features > 1 else along for sign in (1, -1))
    found = [
        make.pair("worst-direction", make.flat(), (along, high), (along, low), at=0),
        make.pair("last-batch", make.flat(), (along, high), (along, low)),
        make.pair("mislabelled", (spread, np.full(problem.n - 1, high)), (along, low), (along, high)),
        make.pair("common-drift", make.same(drift, high), (above, low), (below, high)),
        make.pair("corner", make.same(diagonal, high), (diagonal, low), (diagonal, high)),
    ]
    if problem.adjacency == "replace-one":
        found.append(make.pair("blank", make.flat(), (along, high), (np.zeros(problem.n_features), high)))
    return tuple(found)


def neighbours(first: Records, second: Records) -> bool:
    """Whether two data sets differ in at most one record (exchanged, added or removed)."""
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
