"""Private records, clipped once, and the sums over them."""

from typing import TYPE_CHECKING

from dplangevin._lazy import attach

if TYPE_CHECKING:
    from dplangevin.data._kernels import Block as Block
    from dplangevin.data.dask import DaskDataset as DaskDataset
    from dplangevin.data.dataset import ArrayDataset as ArrayDataset, Dataset as Dataset
    from dplangevin.data.reader import RecordReader as RecordReader
    from dplangevin.data.scratch import ScratchDataset as ScratchDataset
    from dplangevin.data.sources import (
        ArraySource as ArraySource,
        ArrowSource as ArrowSource,
        Source as Source,
    )

__getattr__, __dir__, __all__ = attach(__name__)
