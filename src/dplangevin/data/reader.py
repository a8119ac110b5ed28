"""Deferred reading: private records that are not read before the budget is charged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import final

from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Problem


@final
class RecordReader:
    """Data set that a mechanism reads itself, once, after the budget is charged.

    Parameters
    ----------
    problem : the public problem to whose bounds the records will be clipped.
    read : function without arguments that reads and clips the records.
    is_single_use : one mechanism reads the records, and nobody after it.
    """

    def __init__(self, problem: Problem, read: Callable[[], Dataset], *, is_single_use: bool = False) -> None:
        self.problem, self._read, self.is_single_use = problem, read, is_single_use

    @cached_property
    def dataset(self) -> Dataset:
        """Clipped records, read at first use."""
        dataset = self._read()
        if dataset.problem != self.problem:
            raise InvalidParameter(
                "the records were clipped for another problem than the one that was charged."
            )
        return dataset


def read_records(data: Dataset | RecordReader) -> Dataset:
    """Return the records, reading them now if needed; for code that runs after the budget is charged."""
    return data.dataset if isinstance(data, RecordReader) else data
