from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.branch_contract import BranchStoreContract
from lakeseal.branches import embedded
from lakeseal.branches.embedded.store import EmbeddedBranchStore
from lakeseal.branches.store import BranchStore
from lakeseal.branches.tree.ranges import TreeShape

TINY = TreeShape(cut=2, longest=3, node_cut=2, node_longest=2)


class TestEmbedded(BranchStoreContract):
    @pytest.fixture(params=["memory", "local and sqlite", "s3 and postgresql"])
    def repo(
        self,
        request: pytest.FixtureRequest,
        tmp_path: Path,
        opened: Callable[[EmbeddedBranchStore], EmbeddedBranchStore],
    ) -> BranchStore:
        match request.param:
            case "memory":
                ledger = request.getfixturevalue("memory_ledger")
                return opened(embedded.create(f"memory://{uuid.uuid4().hex}/repo", ledger=ledger, shape=TINY))
            case "local and sqlite":
                return opened(embedded.create(tmp_path / "repo", ledger=request.getfixturevalue("file_ledger")))
        s3 = request.getfixturevalue("s3")
        url = request.getfixturevalue("postgres_url")
        uri = s3.uri(uuid.uuid4().hex)
        return opened(embedded.create(uri, ledger=url, storage_options=s3.storage_options))
