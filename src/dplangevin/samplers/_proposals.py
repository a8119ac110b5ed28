"""Exact backward draws of the proximal samplers: proposals in blocks, the first accepted one of each chain."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import Body

Columns = NDArray[np.intp]
_LARGEST_BLOCK = 64


class BackwardOracle(ABC):
    """Draws of the backward law, one chain a column; what envelopes and block sizes learn is from the past only.

    A subclass places envelopes (`_begin`, `_improve`) and proposes from them (`_proposed`).
    """

    def __init__(self, body: Body, step_size: float) -> None:
        self.body, self.step_size = body, step_size
        self.proposals = self.accepted = 0

    def draw(self, y: Floats, rng: np.random.Generator) -> Floats:
        """One exact draw of the backward law at each column of y."""
        result, pending = np.empty_like(y), np.arange(y.shape[1])
        self._begin(y, pending)
        while True:
            chosen, accepted = self._propose(y, pending, rng)
            result[:, pending[accepted]] = chosen[:, accepted]
            pending = pending[~accepted]
            if pending.size == 0:
                return result
            self._improve(y, pending)

    @abstractmethod
    def _begin(self, y: Floats, pending: Columns) -> None:
        """Place the envelopes of all chains."""

    @abstractmethod
    def _improve(self, y: Floats, pending: Columns) -> None:
        """Better envelopes for the chains whose proposals were all refused."""

    @abstractmethod
    def _proposed(
        self, y: Floats, pending: Columns, columns: Columns, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """One point per column, drawn from its chain's envelope, and by how much the potential is above it."""

    def _propose(
        self, y: Floats, pending: Columns, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """One block of proposals per pending chain; the first accepted one of each."""
        block = self._block(pending.size)
        columns = np.repeat(pending, block)
        x, above = self._proposed(y, pending, columns, rng)
        kept = (rng.standard_exponential(columns.size) >= above).reshape(pending.size, block)
        first = np.argmax(kept, axis=1)
        accepted = kept[np.arange(pending.size), first]
        self.proposals += int(np.sum(np.where(accepted, first + 1, block)))
        self.accepted += int(np.sum(accepted))
        return x.reshape(x.shape[0], pending.size, block)[:, np.arange(pending.size), first], accepted

    def _block(self, chains: int) -> int:
        """Enough proposals for one acceptance in a single matrix product, for few chains."""
        if chains * 4 > _LARGEST_BLOCK:
            return 1
        rate = (self.accepted + 1) / (self.proposals + 2)
        return int(min(max(1, math.ceil(1.2 / rate)), _LARGEST_BLOCK // chains))


def checked_start(start: Floats, body: Body) -> Floats:
    """A copy of the starting points, one a column, all inside the body."""
    x = np.array(start, float)
    if x.ndim != 2 or x.shape[0] != body.dimension or not np.all(body.contains(x)):
        raise InvalidParameter(
            f"start must be [{body.dimension}, k] points inside the body; project them first."
        )
    return x
