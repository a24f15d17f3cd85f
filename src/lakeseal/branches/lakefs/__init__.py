"""The branch store of a lakeFS server."""

from lakeseal.branches.lakefs.store import LakeFSBranchStore, create, open

__all__ = ["LakeFSBranchStore", "create", "open"]
