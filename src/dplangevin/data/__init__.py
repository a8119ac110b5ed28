"""Private records, clipped once, and the sums over them."""

from dplangevin.data._kernels import Block
from dplangevin.data.dataset import ArrayDataset, Dataset
from dplangevin.data.scratch import ScratchDataset
from dplangevin.data.sources import ArraySource, ArrowSource, Source

__all__ = ["ArrayDataset", "ArraySource", "ArrowSource", "Block", "Dataset", "ScratchDataset", "Source"]
