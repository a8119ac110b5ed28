"""Sums over records that a region needs: the majorant's matrix, and how much worse than the centre each point is.

Tasks of `Dataset.summed`: they run block by block, and part by part where the data are in parts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.curvature import packed
from dplangevin.families.rashomon_region.objective import RegionObjective, majorant
from dplangevin.families.rashomon_region.outer import PAIR

_ROWS, _TILE = 256, 256  # scores in work at a time stay in the cache


def majorant_sum(data: Dataset, objective: RegionObjective, centre: Floats) -> Floats:
    """The packed triangle of sum a(x'c) x x' (softmax: of the second moment)."""
    matrix, seen = np.zeros((objective.n_columns, objective.n_columns)), 0
    for block in _blocks(data):
        scores = block.rows @ centre.reshape(objective.n_columns, -1)
        scores = np.nan_to_num(scores[:, 0], posinf=1e300, neginf=-1e300)
        weights = majorant(objective.loss, scores, block.labels)
        matrix += block.rows.T @ (weights[:, None] * block.rows)
        seen += len(scores)
    data.check_rows(seen)
    return packed(matrix)


def pair_sum(data: Dataset, objective: RegionObjective, centre: Floats) -> Floats:
    """The packed triangles of sum l'' x x' and of PAIR sum (a - l'') x x', one after the other: two for one price."""
    size = objective.n_columns
    bent, more, seen = np.zeros((size, size)), np.zeros((size, size)), 0
    for block in _blocks(data):
        scores = np.nan_to_num(block.rows @ centre, posinf=1e300, neginf=-1e300)
        weights = majorant(objective.loss, scores, block.labels)
        bends = np.clip(objective.loss.curvature(scores, block.labels), 0.0, weights)
        bent += block.rows.T @ (bends[:, None] * block.rows)
        more += block.rows.T @ ((PAIR * (weights - bends))[:, None] * block.rows)
        seen += len(scores)
    data.check_rows(seen)
    return np.concatenate([packed(bent), packed(more)])


def slope_sum(data: Dataset, objective: RegionObjective, centre: Floats, steepest: float) -> Floats:
    """sum_i l'(x'c) x / (steepest B): each record's share is no longer than 1."""
    total, seen = np.zeros(objective.n_columns), 0
    for block in _blocks(data):
        scores = np.nan_to_num(block.rows @ centre, posinf=1e150, neginf=-1e150)
        slopes = np.clip(objective.loss.slope(scores, block.labels), -steepest, steepest)
        total += block.rows.T @ slopes
        seen += len(scores)
    data.check_rows(seen)
    return np.asarray(total / (steepest * objective.row_norm))


def excess_sums(
    data: Dataset,
    objective: RegionObjective,
    centre: Floats,
    directions: Floats,
    lengths: Floats,
    limits: Floats,
) -> Floats:
    """sum_i clip(l(x'v) - l(x'c), -Lam_v, Lam_v) / Lam_v for v = centre + length direction; flat [lengths, points].

    Every record is clipped by itself: a difference of two sums would lose the bound to rounding. limits[lengths,
    directions] are positive and finite.
    """
    total, seen = np.zeros(limits.shape), 0
    tiles = range(0, directions.shape[1], _TILE)
    for block in _blocks(data):
        for start in range(0, len(block.labels), _ROWS):
            rows, labels = block.rows[start : start + _ROWS], block.labels[start : start + _ROWS]
            base = _scores(rows, centre, objective.classes)
            here = objective.loss.value(base, labels[:, None])
            for first in tiles:
                tile = slice(first, first + _TILE)
                moves = _scores(rows, directions[:, tile], objective.classes)
                for index, length in enumerate(lengths):
                    points = length * moves
                    points += base
                    worse = objective.loss.excess(points, labels[:, None], here)
                    bound = limits[index, tile]
                    np.clip(worse, -bound, bound, out=worse)
                    total[index, tile] += worse.sum(axis=0)
        seen += len(block.labels)
    data.check_rows(seen)
    return np.asarray(total / limits).ravel()


def _scores(rows: Floats, theta: Floats, classes: int) -> Floats:
    """[rows, points], or [rows, points, classes]."""
    if classes == 1:
        return np.asarray(np.nan_to_num(rows @ theta.reshape(rows.shape[1], -1), posinf=1e150, neginf=-1e150))
    cube = theta.reshape(rows.shape[1], classes, -1).transpose(0, 2, 1)
    flat = rows @ np.ascontiguousarray(cube).reshape(rows.shape[1], -1)
    return np.asarray(np.nan_to_num(flat, posinf=1e150, neginf=-1e150)).reshape(len(rows), -1, classes)


def _blocks(data: Dataset) -> Iterator[Block]:
    for block in data.blocks():
        if block.weights is not None:
            raise InvalidParameter("a region is offered for equally weighted records only.")
        yield block
