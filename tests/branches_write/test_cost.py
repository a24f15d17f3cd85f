"""What a job costs beyond its data: calls to the store and to the ledger, and bytes to the driver."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal import Repository
from lakeseal.branches import embedded
from lakeseal.ledger import Ledger
from lakeseal.ledger import open as open_ledger
from lakeseal.protocol.arrow import from_arrow
from lakeseal.storage import Store, StoreSpec
from lakeseal.testing.faults import FaultyStore
from lakeseal.write.branch_commit_protocol import BranchCommitProtocol
from lakeseal.write.branch_write import BranchWriteCommand, PlannedBranchWrite
from lakeseal.write.file_commit_protocol import TaskContext, WrittenFile

FILES = 4_000


class Watched:
    """Counts what passes through every store and the ledger, data files apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores: list[FaultyStore] = []
        self.transactions: Counter[str] = Counter()
        opened = StoreSpec.open

        def watched(spec: StoreSpec) -> Store:
            self.stores.append(FaultyStore(opened(spec), []))
            return self.stores[-1]

        monkeypatch.setattr(StoreSpec, "open", watched)
        for name in ("read", "write"):
            self._count(monkeypatch, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        original = getattr(Ledger, name)

        def counted(ledger: Ledger, *args: object, **kwargs: object) -> object:
            self.transactions[name] += 1
            return original(ledger, *args, **kwargs)

        monkeypatch.setattr(Ledger, name, counted)

    def forget(self) -> None:
        for store in self.stores:
            store.calls.clear()
        self.transactions.clear()

    def store_calls(self) -> list[str]:
        calls = (call for store in self.stores for call in store.calls)
        return [f"{call.name} {', '.join(call.keys)}" for call in calls]


def planned(repo: Repository, path: str, job_id: str) -> PlannedBranchWrite:
    schema = from_arrow(pa.schema({"p": pa.int64(), "v": pa.int64()}))
    command = BranchWriteCommand(branch="main", path=path, mode="overwrite", partition_by=("p",))
    return PlannedBranchWrite(repo.store, command, schema, job_id=job_id)


def run_job(repo: Repository, path: str, files: int, job_id: str = "job") -> int:
    """A job whose data files are only claimed to be there; gives the size of its task's message."""
    write = planned(repo, path, job_id)
    spec = write.begin()
    assert spec is not None
    task = TaskContext(job_id=write.job_id, split=0)
    protocol = BranchCommitProtocol(path=path, job_id=write.job_id, **spec.protocol.options)
    protocol.setup_task(task)
    written = [
        WrittenFile(
            key=protocol.new_task_file(task, f"p={n}", "-c000.snappy.parquet").key,
            size=1000 + n,
            modified_ms=0,
            num_records=10,
            checksum=f"sha256:{n:064x}",
        )
        for n in range(files)
    ]
    message = protocol.commit_task(task, written)
    write.commit([message])
    return len(message.to_json())


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_job_of_4000_files_makes_at_most_10_store_calls_and_no_more_than_one_of_4(
    watched: Watched, tmp_path: Path
) -> None:
    repo = Repository(embedded.create(tmp_path / "repo", ledger=open_ledger(f"sqlite:///{tmp_path}/ledger.db")))
    counts = {}
    for number, files in enumerate((4, FILES, FILES)):
        # A writer of its own each time: nothing is remembered from the job before. Fixed ids, because names decide
        # where ranges of entries are cut: one in ten thousand begins a new one.
        repo = Repository(embedded.open(tmp_path / "repo", ledger=repo.store.ledger))  # type: ignore[attr-defined]
        watched.forget()
        run_job(repo, "out", files, job_id=f"job-{number}")
        calls = watched.store_calls()
        assert len(calls) <= 10, calls
        counts[files] = (len(calls), dict(watched.transactions))
    assert counts[FILES][0] <= counts[4][0] + 1
    assert counts[FILES][1] == counts[4][1]
    assert len(repo.list("main", "out")) == FILES + 1


def test_the_message_of_4000_files_is_small(repo: Repository) -> None:
    assert run_job(repo, "out", FILES) < 1_200_000


def test_a_task_writes_its_files_and_asks_for_nothing_else(watched: Watched, tmp_path: Path) -> None:
    repo = Repository(embedded.create(tmp_path / "repo", ledger=open_ledger(f"sqlite:///{tmp_path}/ledger.db")))
    watched.forget()
    repo.write(pa.table({"p": list(range(50)), "v": list(range(50))}), "main", "out", partition_by="p")
    data = [call for call in watched.store_calls() if "-c000." in call]
    assert len(data) == 50
    assert {call.partition(" ")[0] for call in data} == {"put"}
    assert len(watched.store_calls()) - 50 <= 10
