"""The branch store of its own: trees in any store, heads in the ledger."""

from lakeseal.branches.embedded.store import EmbeddedBranchStore, create, open

__all__ = ["EmbeddedBranchStore", "create", "open"]
