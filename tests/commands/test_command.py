"""The three steps of every command: decide, run, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct

from lakeseal import Repository, Table, errors, ledger
from lakeseal.commands.branch_write import BranchWriteCommand, PlannedBranchWrite
from lakeseal.commands.clone import CloneCommand
from lakeseal.commands.command import EVERY_TIME, Command, CommandContext, FilesToWrite, NothingToDo, PlannedChange
from lakeseal.commands.convert import ConvertCommand
from lakeseal.commands.delete import DeleteCommand
from lakeseal.commands.merge.clauses import Clause, MergeCommand
from lakeseal.commands.merge.command import ArrowMerge, read_source
from lakeseal.commands.optimize import OptimizeCommand
from lakeseal.commands.planned_job import PlannedJob
from lakeseal.commands.restore import RestoreCommand
from lakeseal.commands.running import run
from lakeseal.commands.staged_write import PlannedStagedWrite
from lakeseal.commands.update import UpdateCommand
from lakeseal.commands.write import Write, WriteCommand
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.jobs.engine import WriteInput
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.jobs.staged_commit_protocol import SequenceJob
from lakeseal.protocol.arrow import from_arrow
from lakeseal.steps.context import StepContext
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.storage import StoreSpec


def begin(table: Table) -> OptimisticTransaction:
    route = table._router.route()
    return OptimisticTransaction.begin(route.log, route.owner)


def done(command: Command, table: Table, txn: OptimisticTransaction | None = None) -> CommitResult | NothingToDo:
    return run(command, txn or begin(table), engine=InProcessEngine(1), store=table.spec)


def merge(source: pa.Table) -> ArrowMerge:
    clauses = (
        Clause(kind="matched", action="update", values={"name": "s.name"}),
        Clause(kind="not_matched", action="insert", values={"id": "s.id"}),
    )
    return ArrowMerge(asked=MergeCommand(on="t.id = s.id", clauses=clauses), source=read_source(source))


# Each makes a command for a table of the ids 0 to 5 in two files, and says which ids there are afterwards.
CHANGES: dict[str, tuple[Callable[[Any, Table], Command], list[int]]] = {
    "append": (lambda tables, _: Write(asked=WriteCommand(), data=tables.people(9)), [0, 1, 2, 3, 4, 5, 9]),
    "replace": (
        lambda tables, _: Write(asked=WriteCommand(mode="overwrite", replace_where="id >= 2"), data=tables.people(9)),
        [0, 1, 9],
    ),
    "delete": (lambda _tables, _: DeleteCommand(where="id = 1"), [0, 2, 3, 4, 5]),
    "update": (lambda _tables, _: UpdateCommand(values={"id": "id + 10"}, where="id = 1"), [0, 2, 3, 4, 5, 11]),
    "merge": (lambda tables, _: merge(tables.people(5, 9)), [0, 1, 2, 3, 4, 5, 9]),
    "optimize": (lambda _tables, _: OptimizeCommand(), [0, 1, 2, 3, 4, 5]),
    "restore": (lambda _tables, table: RestoreCommand(target=table.snapshot(0)), [0, 1, 2]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_command_that_only_decides_has_written_nothing(tables: Any, name: str) -> None:
    table = tables(range(3), range(3, 6))
    make, _ = CHANGES[name]
    files = tables.files_on_disk()
    with ExitStack() as until_end:
        context = CommandContext(txn=begin(table), engine=InProcessEngine(1), store=table.spec, until_end=until_end)
        assert isinstance(make(tables, table).decide(context), PlannedChange)
    assert tables.files_on_disk() == files
    assert table.version() == 1


@pytest.mark.parametrize("name", CHANGES)
def test_a_command_can_be_run_again_after_a_conflict(tables: Any, name: str) -> None:
    """It is a value, and what it decided is the transaction's."""
    table = tables(range(3), range(3, 6))
    make, expected = CHANGES[name]
    command = make(tables, table)
    lost = begin(table)
    table.add_columns(pa.schema({"late": pa.int64()}))
    with pytest.raises(errors.ConcurrentModification):
        done(command, table, lost)
    assert table.version() == 2
    result = done(command, table)
    assert isinstance(result, CommitResult)
    assert tables.ids(table) == expected
    tables.check(table)


@pytest.mark.parametrize("name", ["append", "replace", "delete", "update", "merge", "optimize"])
def test_files_of_a_commit_that_failed_stay_for_its_outcome_might_be_unknown(tables: Any, name: str) -> None:
    table = tables(range(3), range(3, 6))
    make, _ = CHANGES[name]
    lost = begin(table)
    table.add_columns(pa.schema({"late": pa.int64()}))
    before = tables.files_on_disk()
    with pytest.raises(errors.ConcurrentModification):
        done(make(tables, table), table, lost)
    assert tables.files_on_disk() > before


def test_a_place_without_a_table_gets_one_by_clone_and_by_convert(tables: Any, tmp_path: Path) -> None:
    source = tables(range(3))
    clone, converted = Table(tmp_path / "clone"), Table(tmp_path / "converted")
    done(CloneCommand(source=source.snapshot()), clone)
    (tmp_path / "converted").mkdir()
    pq.write_table(tables.people(7, 8), tmp_path / "converted" / "part.parquet")
    done(ConvertCommand(), converted)
    assert (tables.ids(clone), tables.ids(converted)) == ([0, 1, 2], [7, 8])
    for command in (CloneCommand(source=source.snapshot()), ConvertCommand()):
        with pytest.raises(errors.AlreadyExists):
            done(command, clone)


class Keeping(Struct, frozen=True, kw_only=True):
    """Keeps something until it has ended, and fails on demand."""

    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = EVERY_TIME

    data: pa.Table
    fails: str = ""
    heard: list[str]

    def decide(self, context: CommandContext) -> PlannedChange:
        context.until_end.callback(self.heard.append, "end")
        self._fail("decide")

        def batches() -> Any:
            self._fail("run")
            yield from self.data.to_batches()

        def finish(written: Any) -> Any:
            self._fail("finish")
            self.heard.append(f"{len(written)} files")
            return [*written], Operation(name="TEST", metrics={"numFiles": len(written)})

        stream = pa.RecordBatchReader.from_batches(self.data.schema, batches())
        return PlannedChange(finish=finish, writes=(FilesToWrite(data=stream), FilesToWrite(data=self.data)))

    def _fail(self, step: str) -> None:
        if self.fails == step:
            raise errors.InvalidInput(f"{step} failed")


def test_what_jobs_wrote_is_committed_with_how_long_it_took_to_decide_and_to_write(tables: Any) -> None:
    table = tables(range(3))
    heard: list[str] = []
    result = done(Keeping(data=tables.people(7), heard=heard), table)
    assert isinstance(result, CommitResult)
    assert heard == ["2 files", "end"]
    assert list(result.metrics) == ["numFiles", *EVERY_TIME]
    times = {name: int(result.metrics[name]) for name in EVERY_TIME}
    assert times["executionTimeMs"] >= times["scanTimeMs"] + times["rewriteTimeMs"]
    assert tables.ids(table) == [0, 1, 2, 7, 7]
    assert table.history(1)[0]["operationMetrics"] == {name: str(value) for name, value in result.metrics.items()}


@pytest.mark.parametrize("step", ["decide", "run", "finish"])
def test_what_a_command_keeps_is_given_up_whatever_step_fails(tables: Any, step: str) -> None:
    table = tables(range(3))
    files = tables.files_on_disk()
    heard: list[str] = []
    with pytest.raises(errors.InvalidInput, match=f"{step} failed") as caught:
        done(Keeping(data=tables.people(7), fails=step, heard=heard), table)
    assert caught.value.table == table.uri
    assert heard == ["end"]
    assert table.version() == 0
    if step != "finish":
        assert tables.files_on_disk() == files


def test_what_a_command_keeps_is_given_up_after_a_conflict(tables: Any) -> None:
    table = tables(range(3))
    heard: list[str] = []
    lost = begin(table)
    table.add_columns(pa.schema({"late": pa.int64()}))
    with pytest.raises(errors.ConcurrentModification):
        done(Keeping(data=tables.people(7), heard=heard), table, lost)
    assert heard == ["2 files", "end"]


# How often a text becomes a schema: once for each value that goes to tasks as JSON, however many of them ask for it.
PARSED = {"append": 1, "replace": 4, "delete": 3, "update": 3, "merge": 2, "optimize": 2, "restore": 1}


@pytest.mark.parametrize("name", CHANGES)
def test_a_schema_is_parsed_once_per_object(tables: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakeseal.protocol import schema

    table = tables(range(3), range(3, 6))
    make, _ = CHANGES[name]
    command = make(tables, table)
    parsed: list[str | bytes] = []
    parse = schema._parsed_text
    monkeypatch.setattr(schema, "_parsed_text", lambda text: (parsed.append(text), parse(text))[1])
    done(command, table)
    assert len(parsed) == PARSED[name]


IDS = pa.schema({"id": pa.int64()})
COLUMNS = from_arrow(IDS)


class BranchPlace:
    """A branch of a repository, on which files of the ids 0 to 2 are."""

    def __init__(self, root: Path, book: ledger.Ledger) -> None:
        self.root = root / "repo"
        self.repo = Repository.create(self.root, ledger=f"sqlite:///{root}/ledger.db")
        self.planned("before").run(source(0, 1, 2))

    def planned(self, job_id: str) -> PlannedJob[Any]:
        command = BranchWriteCommand(branch="main", path="out")
        return PlannedBranchWrite(self.repo.store, command, COLUMNS, job_id=job_id)

    def texts(self) -> Iterator[bytes]:
        for entry in self.repo.list("main", "out"):
            if entry.path.endswith(".parquet"):
                yield self.repo.read("main", entry.path)

    def under_way(self) -> list[str]:
        return [job.id for job in self.repo.jobs()]


class StagedPlace:
    """A directory with the same."""

    def __init__(self, root: Path, book: ledger.Ledger) -> None:
        self.root = root / "out"
        self.book = book
        self.planned("before").run(source(0, 1, 2))

    def planned(self, job_id: str) -> PlannedJob[Any]:
        steps, context = LedgerStepStore(self.book), StepContext(ledger=self.book, owners={})
        job = SequenceJob(steps, context, store="pipeline", dataset="events")
        return PlannedStagedWrite(StoreSpec(uri=str(self.root)), COLUMNS, job_id=job_id, job=job)

    def texts(self) -> Iterator[bytes]:
        return (path.read_bytes() for path in self.root.rglob("part-*") if "_lakeseal_jobs" not in path.parts)

    def under_way(self) -> list[str]:
        return [path.name for path in (self.root / "_lakeseal_jobs").glob("*")]


Place = BranchPlace | StagedPlace


@pytest.fixture(params=[BranchPlace, StagedPlace])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ledger.open(f"sqlite:///{tmp_path}/ledger.db") as book:
        yield request.param(tmp_path, book)


def source(*ids: int, fails: bool = False) -> WriteInput:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(ids, pa.int64())], schema=IDS)
        if fails:
            raise errors.InvalidInput("no more")

    return InProcessEngine(1).open(pa.RecordBatchReader.from_batches(IDS, batches()))


def ids_of(place: Place) -> list[int]:
    return sorted(number for text in place.texts() for number in pq.read_table(BytesIO(text))["id"].to_pylist())


def files_below(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_job_that_only_decides_has_written_nothing(place: Place) -> None:
    before = files_below(place.root)
    assert isinstance(place.planned("job").decide(), WriteJobSpec)
    assert files_below(place.root) == before
    assert ids_of(place) == [0, 1, 2]


def test_a_job_decides_the_same_again_and_its_files_count_once(place: Place) -> None:
    """In the process that dies then, in another one, and in the one that runs it."""
    planned, another = place.planned("job"), place.planned("job")
    decided = [one.decide() for one in (planned, planned, another)]
    assert all(isinstance(spec, WriteJobSpec) for spec in decided)
    assert len({msgspec.structs.replace(spec, now=decided[0].now).to_json() for spec in decided}) == 1
    another.run(source(7, 8))
    assert ids_of(place) == [0, 1, 2, 7, 8]
    assert place.under_way() == []


def test_a_job_whose_tasks_failed_leaves_nothing_and_can_be_run_again(place: Place) -> None:
    before, planned = files_below(place.root), place.planned("job")
    with pytest.raises(errors.InvalidInput, match="no more"):
        planned.run(source(7, fails=True))
    assert (place.under_way(), ids_of(place), files_below(place.root)) == ([], [0, 1, 2], before)
    planned.run(source(7, 8))
    assert ids_of(place) == [0, 1, 2, 7, 8]
