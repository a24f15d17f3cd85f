"""What every way to an owner must do."""

from __future__ import annotations

import pytest

from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.storage import Store
from lakeseal.testing.owner_contract import CommitOwnerContract, OwnedTable


class TestManagedOwner(CommitOwnerContract):
    @pytest.fixture(params=[1, 2, 100], ids="batchSize{}".format)
    def endpoint(self, request, any_url, open_owner) -> LedgerOwner:
        return open_owner(any_url, batch_size=request.param)

    @pytest.fixture
    def owned(self, endpoint: LedgerOwner, memory: Store) -> OwnedTable:
        return OwnedTable(ManagedOwner(endpoint, memory), memory)
