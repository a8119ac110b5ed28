"""Data sets of private records, clipped once, and the sums over them that mechanisms use."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach_lazy_names

if TYPE_CHECKING:
    from dplangevin.data.dask import DaskDataset as DaskDataset
    from dplangevin.data.dataset import ArrayDataset as ArrayDataset, Dataset as Dataset
    from dplangevin.data.kernels import Block as Block
    from dplangevin.data.sources import (
        ArraySource as ArraySource,
        ArrowSource as ArrowSource,
        RecordReader as RecordReader,
        RecordSource as RecordSource,
        ScratchDataset as ScratchDataset,
    )

__getattr__, __dir__, __all__ = attach_lazy_names(__name__)
