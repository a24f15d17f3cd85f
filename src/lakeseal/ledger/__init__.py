"""The database of ratified facts: schema, migrations, transactions. It does not know what the facts mean."""

from lakeseal.ledger.ledger import PATIENCE, Ledger, open, open_unmade
from lakeseal.ledger.tx import Row, Tx
from lakeseal.ledger.types import key
from lakeseal.ledger.url import LedgerUrl, parse

__all__ = ["PATIENCE", "Ledger", "LedgerUrl", "Row", "Tx", "key", "open", "open_unmade", "parse"]
