"""RecordReader: private records that nobody reads before the budget is charged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import final

from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Problem


@final
class RecordReader:
    """What a mechanism takes in place of a Dataset: it reads the records once, after the charge.

    Parameters
    ----------
    problem : whose bounds the records will be clipped to; public.
    read : reads and clips the records.
    """

    def __init__(self, problem: Problem, read: Callable[[], Dataset]) -> None:
        self.problem, self._read = problem, read

    @cached_property
    def dataset(self) -> Dataset:
        """The clipped records; the first use reads them."""
        made = self._read()
        if made.problem != self.problem:
            raise InvalidParameter(
                "the records were clipped for another problem than the one that was charged."
            )
        return made


def read_records(data: Dataset | RecordReader) -> Dataset:
    """The records, read now if they were not before: for code that runs after the charge."""
    return data.dataset if isinstance(data, RecordReader) else data
