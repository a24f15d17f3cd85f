from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakeseal
from lakeseal.commit.proposal import Operation
from lakeseal.errors import ConcurrentModification, StepImpossible
from lakeseal.ledger import Ledger
from lakeseal.owner.connect import Owners, connect
from lakeseal.owner.routing import Router
from lakeseal.protocol import codec
from lakeseal.protocol.actions import AddFile
from lakeseal.protocol.arrow import from_arrow
from lakeseal.steps import CommitSequence, HighWatermarkCommitStep, StepContext, WatermarkChange, Watermarks, step
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.steps.recovery import RecoveryOutcome, recover
from lakeseal.steps.table_commit import TableCommitStep
from lakeseal.storage import open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from support.published_rows import STORE, URN

APP = "steps/clicks/events"
APPEND = Operation(name="WRITE", parameters={"mode": "Append"}, metrics={"numFiles": 1})


class Staging:
    """A table, and files that lie in its directory without being part of it."""

    def __init__(self, root: Path, owner: str | None = None) -> None:
        self.uri = str(root / "table")
        self.owner = owner
        self.endpoint = None if owner is None else connect(owner)
        self.table = lakeseal.create(self.uri, pa.schema([("id", pa.int64())]), owner=owner)
        self.store = open_store(self.uri)
        self.context = StepContext(owners=Owners() if self.endpoint is None else {self.endpoint.name: self.endpoint})

    def staged(self, first: int, rows: int) -> TableCommitStep:
        side = lakeseal.create(f"{self.uri}-side-{first}", pa.schema([("id", pa.int64())]))
        side.write(pa.table({"id": pa.array(range(first, first + rows), pa.int64())}))
        found = side.snapshot().files.to_pylist()[0]
        self.store.put(found["path"], open_store(f"{self.uri}-side-{first}").get(found["path"]))
        add = AddFile(
            path=found["path"],
            partition_values={},
            size=found["size"],
            modification_time=found["modificationTime"],
            data_change=True,
            stats=found["stats"],
        )
        snapshot = self.router().snapshot()
        assert snapshot is not None
        return TableCommitStep.of(snapshot, [add], APPEND, app_id=APP)

    def router(self) -> Router:
        return Router(self.store, self.context.owners)

    def rows(self) -> list[int]:
        return sorted(lakeseal.Table(self.uri, owner=self.owner).to_arrow()["id"].to_pylist())


@pytest.fixture(params=["file system", "managed"])
def staging(request: pytest.FixtureRequest, tmp_path: Path) -> Staging:
    return Staging(tmp_path, None if request.param == "file system" else f"sqlite:///{tmp_path}/owner.db")


def test_staged_rows_are_visible_once_after_any_number_of_replays(staging: Staging) -> None:
    staged = staging.staged(0, 10)
    assert staging.rows() == []
    assert not staged.verify(staging.context)

    staged.execute(staging.context)
    assert staged.verify(staging.context)
    staged.execute(staging.context)
    again = step.decode(step.encode(staged))
    assert again == staged
    again.execute(staging.context)

    assert staging.rows() == list(range(10))


def test_others_may_append_between_staging_and_replay(staging: Staging) -> None:
    staged = staging.staged(0, 10)
    staging.table.write(pa.table({"id": pa.array([100], pa.int64())}))

    assert not staged.verify(staging.context)
    staged.execute(staging.context)
    staging.table.write(pa.table({"id": pa.array([101], pa.int64())}))

    assert staged.verify(staging.context)
    assert staging.rows() == [*range(10), 100, 101]


def test_a_commit_whose_reply_was_lost_is_found_by_its_txn_id(staging: Staging, tmp_path: Path) -> None:
    """Bugs 1 and 38: what was done is known by the commit's own id, not by where it came from."""
    staged = staging.staged(0, 10)
    staged.execute(staging.context)  # and the process died before it could say so
    other = staging.staged(10, 10)

    assert staged.verify(staging.context)
    assert not other.verify(staging.context)
    other.execute(staging.context)

    assert staging.rows() == list(range(20))


@pytest.mark.field_bug(39)
def test_two_steps_under_one_number_are_an_error_and_neither_is_dropped(staging: Staging) -> None:
    """Bug 39: the second of two commits under one key was dropped."""
    first, second = staging.staged(0, 10), staging.staged(10, 10)
    assert (first.app_id, first.app_version) == (second.app_id, second.app_version)
    first.execute(staging.context)

    with pytest.raises(StepImpossible, match="was used by another commit"):
        second.verify(staging.context)
    with pytest.raises((StepImpossible, ConcurrentModification)):
        second.execute(staging.context)

    assert staging.rows() == list(range(10))


@pytest.mark.field_bug(39)
def test_a_step_is_known_to_be_done_after_its_marker_has_expired(tmp_path: Path) -> None:
    """Bug 39: the marker went with its snapshot, and the rows came twice."""
    staging = Staging(tmp_path)
    staging.table.set_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    staged = staging.staged(0, 10)
    staged.execute(staging.context)
    staging.table.checkpoint()

    assert staged.verify(staging.context)
    assert staging.rows() == list(range(10))


def test_where_the_log_is_gone_the_applications_number_decides(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    staged = staging.staged(0, 10)
    staged.execute(staging.context)
    for row in range(3):
        staging.table.write(pa.table({"id": pa.array([100 + row], pa.int64())}))
    staging.table.checkpoint()
    staging.store.delete([f"_delta_log/{version:020}.json" for version in range(4)])

    assert staged.verify(staging.context)
    assert not replace(staged, app_version=1, txn_id="another").verify(staging.context)


def test_a_table_that_changed_under_a_staged_commit_sets_the_dataset_aside(tmp_path: Path, book: Ledger) -> None:
    staging = Staging(tmp_path)
    staged = staging.staged(0, 10)
    staging.table.write(pa.table({"id": pa.array([1], pa.int64()), "more": pa.array(["x"])}), merge_schema=True)
    steps = LedgerStepStore(book)
    steps.put(CommitSequence.builder(STORE, URN).add(staged).build())

    result: Any = recover(steps, STORE, staging.context, sleep=lambda _: None).datasets[0]

    assert result.outcome is RecoveryOutcome.SET_ASIDE
    assert staging.rows() == [1]


def test_a_step_follows_a_table_that_got_an_owner_meanwhile(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    staged = staging.staged(0, 10)
    owner = f"sqlite:///{tmp_path}/owner.db"
    staging.table.take_over(owner)
    endpoint = connect(owner)
    staging.owner = owner
    context = StepContext(owners={endpoint.name: endpoint})

    staged.execute(context)

    assert staged.verify(context)
    assert staging.rows() == list(range(10))


class Died(BaseException):
    """As if the process had been killed: nothing catches it, and nothing is cleaned up."""


@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_REPLY])
def test_w3_rows_of_a_table_and_watermark_are_equal_after_a_crash_at_any_write(
    tmp_path: Path, sqlite_ledger: Ledger, how: How
) -> None:
    steps, marks = LedgerStepStore(sqlite_ledger), Watermarks(sqlite_ledger)
    for at in count(1):
        staging = Staging(tmp_path / str(at))
        name = f"events {at}"
        change = WatermarkChange(partition="0", expected=None, value=10)
        sequence = (
            CommitSequence.builder(STORE, name)
            .add(staging.staged(0, 10))
            .add(HighWatermarkCommitStep(pipeline=STORE, dataset=name, changes=(change,)))
            .then_remove(staging.store.uri, "_leftover/")
            .build()
        )
        staging.store.put("_leftover/x", b"")
        dying = FaultyStore(staging.store, [Fault(call, how=how, nth=at, error=Died) for call in ("put*", "delete")])  # type: ignore[arg-type]
        try:
            sequence.commit(steps, StepContext(ledger=sqlite_ledger, owners={}, open_store=lambda _, s=dying: s))
        except Died:
            died = True
        else:
            died = False
        context = StepContext(ledger=sqlite_ledger, owners={})
        assert recover(steps, STORE, context).not_clear == {}
        assert staging.rows() == list(range(10))
        assert marks.read(STORE, name) == {"0": 10}
        assert list(staging.store.list("_leftover/")) == []
        if not died:
            break
    assert at > 1


def test_metadata_that_changes_with_the_files_is_committed_with_them(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    staged = staging.staged(0, 10)
    snapshot = staging.router().snapshot()
    assert snapshot is not None
    wider = replace(
        snapshot.metadata,
        schema_string=from_arrow(pa.schema([("id", pa.int64()), ("more", pa.string())])).to_json(),
    )
    both = TableCommitStep.of(snapshot, [wider, *codec.decode(staged.actions.encode())], APPEND, app_id=APP)
    staging.table.set_properties({"delta.appendOnly": "true"})

    both.execute(staging.context)
    both.execute(staging.context)

    table = lakeseal.Table(staging.uri)
    assert table.schema().names == ["id", "more"]
    assert staging.rows() == list(range(10))
    assert table.snapshot().metadata.configuration["delta.appendOnly"] == "true"
