"""The persistent privacy budget of a data set: charged before data is read, whoever and wherever the spender is."""

from dplangevin.ledger._evidence import entered_file, head_in
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.ledger.entry import Entry, Remaining
from dplangevin.ledger.ledger import Ledger

__all__ = ["DatasetBudget", "Entry", "Ledger", "Remaining", "entered_file", "head_in"]
