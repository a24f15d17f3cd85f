"""What a job costs beyond its data: calls to the store and to the ledger, and bytes to the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal import Repository
from lakeseal.branches import embedded
from lakeseal.branches.store import Check
from lakeseal.ledger import Ledger
from lakeseal.ledger import open as open_ledger
from lakeseal.protocol.arrow import from_arrow
from lakeseal.storage import Store, StoreSpec
from lakeseal.testing.faults import FaultyStore
from lakeseal.write.branch_commit_protocol import BranchCommitProtocol
from lakeseal.write.branch_job import BranchWrite
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

    def store_calls(self, since: int = 0) -> list[str]:
        """Of all stores, or of those that were opened since there were so many."""
        calls = (call for store in self.stores[since:] for call in store.calls)
        return [f"{call.name} {', '.join(call.keys)}" for call in calls]


class ClaimedJob:
    """A job whose data files are only claimed to be there. Fixed ids, because names decide where ranges of entries are
    cut: one in five thousand begins a new one."""

    def __init__(
        self, repo: Repository, path: str, files: int, *, job_id: str, mode: str, checks: Sequence[Check] = ()
    ) -> None:
        schema = from_arrow(pa.schema({"p": pa.int64(), "v": pa.int64()}))
        command = BranchWriteCommand(branch="main", path=path, mode=mode, partition_by=("p",))
        self._write = PlannedBranchWrite(repo.store, command, schema, job_id=job_id, checks=checks)
        spec = self._write.begin()
        assert spec is not None
        task = TaskContext(job_id=job_id, split=0)
        protocol = BranchCommitProtocol(path=path, job_id=job_id, **spec.protocol.options)
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
        self.message = protocol.commit_task(task, written)

    def commit(self) -> BranchWrite:
        return self._write.commit([self.message])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def reopened(repo: Repository) -> Repository:
    """A writer of its own: nothing is remembered from jobs before."""
    store = repo.store
    assert isinstance(store, embedded.EmbeddedBranchStore)
    return Repository(embedded.open(store.uri, ledger=store.ledger))


def beside_ranges(calls: Sequence[str]) -> list[str]:
    return [call for call in calls if "/ranges/" not in call]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_of_4000_files_makes_at_most_10_store_calls_and_no_more_than_one_of_4(
    mode: str, watched: Watched, repo: Repository
) -> None:
    calls, transactions = [], []
    for number, files in enumerate((FILES, 4, FILES, FILES)):
        writer = reopened(repo)
        watched.forget()
        ClaimedJob(writer, "out", files, job_id=f"job-{number}", mode=mode).commit()
        assert len(watched.store_calls()) <= 10, watched.store_calls()
        calls.append(beside_ranges(watched.store_calls()))
        transactions.append(dict(watched.transactions))
    assert len({*map(len, calls[1:])}) == 1
    assert all(found == transactions[0] for found in transactions)
    assert len(repo.list("main", "out")) == 1 + (FILES if mode == "overwrite" else 3 * FILES + 4)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_lost_race_costs_as_many_calls_for_4000_files_as_for_4(mode: str, watched: Watched, repo: Repository) -> None:
    def race(files: int) -> list[str]:
        """What a job asks of the store when another gets through right before it."""
        path = f"out-{files}"
        first = ClaimedJob(reopened(repo), path, files, job_id="first", mode=mode)
        others = len(watched.stores)

        def slip_in(_: object) -> None:
            if others == len(watched.stores) - 2:  # the second job has opened its repository, and put its shape
                first.commit()

        second = ClaimedJob(reopened(repo), path, files, job_id="second", mode=mode, checks=[slip_in])
        watched.forget()
        assert second.commit().attempts == 2
        assert len(repo.list("main", path)) == 1 + files * (1 if mode == "overwrite" else 2)
        return [call for call in watched.store_calls(others) if not call.startswith("put data/first")]

    few, many = race(4), race(FILES)
    assert len(many) <= 10 + 8, many
    assert len(beside_ranges(few)) == len(beside_ranges(many))


def test_the_message_of_4000_files_is_small(repo: Repository) -> None:
    assert len(ClaimedJob(repo, "out", FILES, job_id="job", mode="overwrite").message.to_json()) < 1_200_000


def test_a_task_writes_its_files_and_asks_for_nothing_else(watched: Watched, tmp_path: Path) -> None:
    repo = Repository(embedded.create(tmp_path / "repo", ledger=open_ledger(f"sqlite:///{tmp_path}/ledger.db")))
    watched.forget()
    repo.write(pa.table({"p": list(range(50)), "v": list(range(50))}), "main", "out", partition_by="p")
    data = [call for call in watched.store_calls() if "-c000." in call]
    assert len(data) == 50
    assert {call.partition(" ")[0] for call in data} == {"put"}
    assert len(watched.store_calls()) - 50 <= 10
