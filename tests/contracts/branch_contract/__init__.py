"""What every `BranchStore` must do, as tests: one suite for the embedded store, for lakeFS, and for those of users.

Derive a class whose name starts with `Test` and give it a fixture `repo`, a store with a branch `main` without files:

    class TestMyStore(BranchStoreContract):
        @pytest.fixture
        def repo(self): ...

What a store is allowed not to do, it says by the class variables.
"""

from __future__ import annotations

from contracts.branch_contract.commits import CommitsContract
from contracts.branch_contract.contents import checksum, content, run_job, write
from contracts.branch_contract.files import FilesContract
from contracts.branch_contract.jobs import JobsContract
from contracts.branch_contract.merges import MergesContract
from contracts.branch_contract.refs import RefsContract


class BranchStoreContract(RefsContract, FilesContract, CommitsContract, MergesContract, JobsContract):
    """The whole suite."""


__all__ = ["BranchStoreContract", "checksum", "content", "run_job", "write"]
