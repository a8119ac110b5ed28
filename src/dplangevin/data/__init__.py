"""Private records, clipped once, and the sums over them."""

from dplangevin.data.dataset import ArrayDataset, Block, Dataset

__all__ = ["ArrayDataset", "Block", "Dataset"]
