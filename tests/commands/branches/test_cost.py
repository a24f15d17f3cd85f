"""What a job costs beyond its data: calls to the store and to the ledger, and bytes to the driver."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Repository
from lakeseal.branches import embedded
from lakeseal.branches.store import Changes, Check, Entry, entry_table
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.commands.branch_write import BranchWriteCommand, PlannedBranchWrite
from lakeseal.jobs.branch_commit_protocol import BranchCommitProtocol, BranchWrite
from lakeseal.jobs.file_commit_protocol import TaskContext, WrittenFile
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.ledger import Ledger
from lakeseal.ledger import open as open_ledger
from lakeseal.protocol.arrow import from_arrow
from lakeseal.storage import Store, StoreSpec
from lakeseal.testing.faults import FaultyStore

FILES = 4_000


def checksum(text: str) -> str:
    """As random as real ones, so that trees take as many bytes as they would."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


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
        """Of all stores, or of those that were opened since there were so many. Keys that are asked for together count
        each, and so do parts of an object."""
        calls = (call for store in self.stores[since:] for call in store.calls)
        return [f"{call.name} {key}" for call in calls for key in call.keys]


class ClaimedJob:
    """A job whose data files are only claimed to be there."""

    def __init__(
        self, repo: Repository, path: str, files: int, *, job_id: str, mode: str, checks: Sequence[Check] = ()
    ) -> None:
        schema = from_arrow(pa.schema({"p": pa.int64(), "v": pa.int64()}))
        command = BranchWriteCommand(branch="main", path=path, mode=mode, partition_by=("p",))
        self._write = PlannedBranchWrite(repo.store, command, schema, job_id=job_id, checks=checks)
        spec = self._write.decide()
        assert isinstance(spec, WriteJobSpec)
        task = TaskContext(job_id=job_id, split=0)
        protocol = BranchCommitProtocol(path=path, job_id=job_id, **spec.protocol.options)
        protocol.setup_task(task)
        written = [
            WrittenFile(
                key=protocol.new_task_file(task, f"p={n}", "-c000.snappy.parquet").key,
                size=1000 + n,
                modified_ms=0,
                num_records=10,
                checksum=checksum(f"{job_id} {n}"),
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


@pytest.fixture(params=["a small tree", "a tree with nodes"])
def store(request: pytest.FixtureRequest, tmp_path: Path, shared_ledger: str) -> Repository:
    shape = (
        TreeShape() if request.param == "a small tree" else TreeShape(cut=128, longest=640, node_cut=8, node_longest=16)
    )
    repo = embedded.create(tmp_path / "repo", ledger=shared_ledger, shape=shape)
    others = [
        Entry(path=f"{place}/{n:05}", address=f"data/others/{n}", size=n, checksum=checksum(f"{place} {n}"))
        for place in ("before", "outer", "parted", "zzz")
        for n in range(1_500)
    ]
    repo.commit("main", Changes(puts=entry_table(others)))
    return Repository(repo)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_of_4000_files_makes_at_most_10_store_calls_whatever_its_names(
    mode: str, watched: Watched, store: Repository
) -> None:
    """Names decide where ranges of entries are cut. The first job of a place also puts a file that tells its shape, and
    an append looks whether anybody else has put files there."""
    most = {}
    transactions: dict[bool, set[Any]] = {True: set(), False: set()}
    for number, files in enumerate((FILES, 4, FILES, FILES, FILES, FILES)):
        writer = reopened(store)
        watched.forget()
        ClaimedJob(writer, f"out-{number % 2}", files, job_id=uuid.uuid4().hex, mode=mode).commit()
        most[number] = watched.store_calls()
        transactions[number < 2].add(tuple(sorted(watched.transactions.items())))
    assert max(map(len, most.values())) <= 10, most
    assert [len(found) for found in transactions.values()] == [1, 1], "as many for 4 files as for 4,000"


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_of_4000_files_that_loses_a_race_makes_at_most_10_store_calls(
    mode: str, watched: Watched, store: Repository
) -> None:
    """Another job of 4,000 files gets through right before it: at first in a new place, then where files are."""
    for number in range(3):
        path = f"out-{number // 2}"
        first = ClaimedJob(reopened(store), path, FILES, job_id=uuid.uuid4().hex, mode=mode)
        others = len(watched.stores)
        slipped: list[BranchWrite] = []

        def slip_in(_: object, first: ClaimedJob = first, slipped: list[BranchWrite] = slipped) -> None:
            if not slipped:
                before = len(watched.stores)
                slipped.append(first.commit())
                del watched.stores[before:]

        writer = reopened(store)
        watched.forget()
        second = ClaimedJob(writer, path, FILES, job_id=uuid.uuid4().hex, mode=mode, checks=[slip_in])
        assert second.commit().attempts == 2
        assert len(watched.store_calls(others)) <= 10, watched.store_calls(others)
    jobs = 1 if mode == "overwrite" else 4
    assert len(store.list("main", "out-0")) == 1 + FILES * jobs


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
