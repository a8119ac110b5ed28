"""The ledger: persistent privacy budgets of data sets, shared by users and machines, charged before data are read."""

from dplangevin.ledger._heads import read_head, read_release_file
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.ledger.entry import Entry, Remaining
from dplangevin.ledger.ledger import Ledger

__all__ = ["DatasetBudget", "Entry", "Ledger", "Remaining", "read_head", "read_release_file"]
