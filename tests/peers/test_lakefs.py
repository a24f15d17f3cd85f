"""The branch store on a real lakeFS server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from lakeseal.branches import lakefs
from lakeseal.branches.lakefs import LakeFSBranchStore
from lakeseal.testing.branch_contract import BranchStoreContract

pytestmark = pytest.mark.peers


@pytest.fixture
def repo(lakefs_server: dict[str, str]) -> Iterator[LakeFSBranchStore]:
    made = lakefs.create(f"lakefs://test-{uuid.uuid4().hex[:16]}", storage_options=lakefs_server)
    yield made
    made.close()


class TestLakeFS(BranchStoreContract):
    counts_entries = False
