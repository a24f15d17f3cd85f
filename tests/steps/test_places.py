"""A sequence is a command: it reaches only for what its own pipeline has, however it is spelled. Ten ways to escape."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeseal import ledger as ledgers
from lakeseal.commit.proposal import Operation
from lakeseal.errors import NotAllowed
from lakeseal.protocol.actions import AddFile
from lakeseal.steps import (
    CommitSequence,
    FsRenameCommitStep,
    HighWatermarkCommitStep,
    LedgerStepStore,
    Rename,
    SequenceState,
    StepContext,
    WatermarkChange,
    checksum_of,
    recover,
)
from lakeseal.steps.abort import abort
from lakeseal.steps.branch_merge import BranchMergeStep
from lakeseal.steps.places import StepPlaces, staging_below
from lakeseal.steps.sequence import SequenceBuilder
from lakeseal.steps.table_commit import TableCommitStep
from lakeseal.storage import open_store
from lakeseal.table import Table

PIPELINE, DATASET = "clicks", "urn:events"
PRECIOUS = "precious.txt"


class Lake:
    """A pipeline's directory and table, its staging, and beside them what is somebody else's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out, self.table, self.other = root / "out", root / "table", root / "other"
        for place in (self.out / "_lakeseal_jobs" / "run-1", self.out / "day=1", self.other, root / "out-2"):
            place.mkdir(parents=True)
            (place / PRECIOUS).write_text("precious")
        (self.out / "_lakeseal_jobs" / "run-1" / "a.txt").write_text("rows")
        self.places = StepPlaces(
            directories=(str(self.out),),
            tables=(str(self.table),),
            staging=(*staging_below(str(self.out)), *staging_below(str(self.table))),
        )

    def builder(self) -> SequenceBuilder:
        return CommitSequence.builder(PIPELINE, DATASET, epoch=1)

    def rename(self, source: Path, source_key: str, target: Path, target_key: str) -> FsRenameCommitStep:
        store = open_store(source)
        file = Rename(source_key, target_key, store.head(source_key).size, checksum_of(store, source_key))
        return FsRenameCommitStep.of(str(source), str(target), [file])

    def honest(self) -> SequenceBuilder:
        return self.builder().add(self.rename(self.out, "_lakeseal_jobs/run-1/a.txt", self.out, "day=2/a.txt"))

    def everything(self) -> dict[str, str]:
        found = {}
        for folder, _, names in os.walk(self.root, followlinks=False):
            for name in names:
                file = Path(folder) / name
                if file.suffix == ".txt":
                    found[str(file.relative_to(self.root))] = file.read_text()
        return found


def _removes_what_is_elsewhere(lake: Lake) -> SequenceBuilder:
    return lake.honest().then_remove(str(lake.root), "other/")


def _removes_what_was_published(lake: Lake) -> SequenceBuilder:
    return lake.honest().then_remove(str(lake.out), "day=1/")


def _removes_through_a_link(lake: Lake) -> SequenceBuilder:
    (lake.out / "_lakeseal_jobs" / "link").symlink_to(lake.out / "day=1")
    return lake.honest().then_remove(str(lake.out), "_lakeseal_jobs/link/")


def _removes_above_by_dots(lake: Lake) -> SequenceBuilder:
    return lake.honest().then_remove(f"{lake.out}/_lakeseal_jobs/..", "day=1/")


def _takes_files_from_elsewhere(lake: Lake) -> SequenceBuilder:
    return lake.builder().add(lake.rename(lake.other, PRECIOUS, lake.out, "day=2/stolen.txt"))


def _writes_to_a_sibling(lake: Lake) -> SequenceBuilder:
    step = lake.rename(lake.out, "_lakeseal_jobs/run-1/a.txt", lake.root / "out-2", "a.txt")
    return lake.builder().add(step)


def _writes_through_a_link(lake: Lake) -> SequenceBuilder:
    (lake.out / "elsewhere").symlink_to(lake.other)
    step = lake.rename(lake.out, "_lakeseal_jobs/run-1/a.txt", lake.out / "elsewhere", "a.txt")
    return lake.builder().add(step)


def _writes_to_another_store(lake: Lake) -> SequenceBuilder:
    step = lake.rename(lake.out, "_lakeseal_jobs/run-1/a.txt", lake.out, "a.txt")
    return lake.builder().add(FsRenameCommitStep(source=step.source, target="s3://bucket/out", files=step.files))


def _writes_to_a_log(lake: Lake) -> SequenceBuilder:
    step = lake.rename(lake.out, "_lakeseal_jobs/run-1/a.txt", lake.out, "_delta_log/00000000000000000000.json")
    return lake.builder().add(step)


def _commits_to_another_table(lake: Lake) -> SequenceBuilder:
    return lake.builder().add(_table_commit(lake.other, "part.parquet"))


def _adds_a_file_of_elsewhere_to_its_own_table(lake: Lake) -> SequenceBuilder:
    return lake.builder().add(_table_commit(lake.table, f"file://{lake.other}/{PRECIOUS}"))


def _moves_watermarks_of_another_pipeline(lake: Lake) -> SequenceBuilder:
    change = WatermarkChange(partition="p", expected=None, value=9)
    return lake.honest().add(HighWatermarkCommitStep.of("another", DATASET, [change]))


def _merges_into_a_repository(lake: Lake) -> SequenceBuilder:
    return lake.builder().add(BranchMergeStep(repository=str(lake.other), commit="c" * 64, dest="main"))


def _table_commit(table: Path, path: str) -> TableCommitStep:
    add = AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
    import pyarrow as pa

    Table(table).write(pa.table({"x": [1]}))
    return TableCommitStep.of(Table(table).snapshot(), [add], Operation(name="WRITE"), app_id="app")


ESCAPES: dict[str, Callable[[Lake], SequenceBuilder]] = {
    name.removeprefix("_").replace("_", " "): make
    for name, make in list(globals().items())
    if name.startswith(("_removes", "_takes", "_writes", "_commits", "_adds", "_moves", "_merges"))
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_there_are_at_least_ten_escapes() -> None:
    assert len(ESCAPES) >= 10


@pytest.mark.field_bug("S4")
@pytest.mark.parametrize("escape", ESCAPES)
def test_a_sequence_that_reaches_elsewhere_is_not_recorded(escape: str, lake: Lake, tmp_path: Path) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        sequence = ESCAPES[escape](lake).build()
        before = lake.everything()
        store, context = LedgerStepStore(ledger), StepContext(ledger=ledger, places=lake.places)
        with pytest.raises(NotAllowed, match="not a place of this pipeline") as caught:
            sequence.commit(store, context)
        assert caught.value.hint
        assert store.status(PIPELINE, DATASET) is None
        assert lake.everything() == before


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_record_that_reaches_elsewhere_is_neither_finished_nor_undone(
    escape: str, lake: Lake, tmp_path: Path
) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        sequence = ESCAPES[escape](lake).build()
        before = lake.everything()
        store, context = LedgerStepStore(ledger), StepContext(ledger=ledger, places=lake.places)
        store.put(sequence)  # by somebody who may write to the ledger
        found = recover(store, PIPELINE, context)
        assert "not a place of this pipeline" in found.not_clear[DATASET]
        status = store.status(PIPELINE, DATASET)
        assert status is not None
        assert (status.state, status.tries) == (SequenceState.SET_ASIDE, 1)
        with pytest.raises(NotAllowed):
            abort(store, PIPELINE, DATASET, context, epoch=1)
        assert lake.everything() == before
        abort(store, PIPELINE, DATASET, context, epoch=1, drop_broken=True)
        assert store.status(PIPELINE, DATASET) is None
        assert lake.everything() == before


def test_a_sequence_of_the_pipelines_own_places_is_done(lake: Lake, tmp_path: Path) -> None:
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        change = WatermarkChange(partition="p", expected=None, value=9)
        sequence = (
            lake.honest()
            .add(HighWatermarkCommitStep.of(PIPELINE, DATASET, [change]))
            .then_remove(str(lake.out), "_lakeseal_jobs/run-1/")
            .build()
        )
        sequence.commit(LedgerStepStore(ledger), StepContext(ledger=ledger, places=lake.places))
        assert (lake.out / "day=2" / "a.txt").read_text() == "rows"
        assert not (lake.out / "_lakeseal_jobs" / "run-1").exists()
        assert (lake.out / "day=1" / PRECIOUS).exists()


def test_a_pipeline_that_is_named_by_a_link_still_has_its_places(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "by-link").symlink_to(lake.out)
    places = StepPlaces.anything_below([str(tmp_path / "by-link")])
    with ledgers.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        lake.honest().build().commit(LedgerStepStore(ledger), StepContext(ledger=ledger, places=places))
    assert (lake.out / "day=2" / "a.txt").exists()


def test_places_travel_with_the_settings_of_tasks(lake: Lake) -> None:
    from lakeseal.steps import StepSettings

    settings = StepSettings(ledger="sqlite:///x.db", places=lake.places)
    assert StepSettings.from_json(settings.to_json()).places == lake.places
    assert json.loads(settings.to_json())["places"]["directories"] == [str(lake.out)]
