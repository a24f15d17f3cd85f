"""Whole runs, with tasks in this process: what is published, what is not, and what is remembered."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakeseal.errors import (
    AlreadyExists,
    LakesealError,
    LeaseHeld,
    OutOfSpace,
    QualityFailed,
    RunFailed,
    SourceNotFound,
    SourceUnavailable,
)
from lakeseal.expr.schema_text import parse_schema
from lakeseal.ingest import (
    Check,
    Chunk,
    Dataset,
    Freshness,
    NullShare,
    Plan,
    Retries,
    RowCount,
    Source,
    WorkUnit,
    delegation,
)
from lakeseal.ingest import pipeline as pipelines
from lakeseal.ingest.config import CommitPolicy, OnBadRecord
from lakeseal.ingest.jobs import LocalJobs
from lakeseal.ingest.task import run_orders
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.ledger import open as open_ledger
from lakeseal.protocol.schema import StructType
from lakeseal.steps.leases import Leases
from lakeseal.storage import Store

ON_S3 = True
SCHEMA = "id long, name string"


class NumbersSource(Source, frozen=True, kw_only=True, tag="numbers"):
    """A user's own: some partitions of numbers, of which some break after so many rows."""

    upto: int
    partitions: tuple[str, ...] = ("a", "b")
    breaks: Mapping[str, int] = {}
    hangs: str | None = None
    calls: ClassVar[Counter[str]] = Counter()
    heals_after: ClassVar[int | None] = None
    released: ClassVar[threading.Event] = threading.Event()

    def row_schema(self) -> StructType:
        return parse_schema("id long, part string")

    def plan(self, watermarks: Mapping[str, Any]) -> Plan:
        units = [
            WorkUnit(partition=name, low=watermarks.get(name), high={"n": self.upto})
            for name in self.partitions
            if (watermarks.get(name) or {"n": 0})["n"] < self.upto
        ]
        return Plan(units=tuple(units))

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        self.calls[unit.partition] += 1
        for n in range((unit.low or {"n": 0})["n"], self.upto):
            healed = self.heals_after is not None and self.calls[unit.partition] > self.heals_after
            if n == self.breaks.get(unit.partition) and not healed:
                raise SourceUnavailable(f"number {n} is broken")
            if self.hangs == unit.partition:
                self.released.wait(30)
            yield Chunk(rows=pa.RecordBatch.from_pylist([{"id": n, "part": unit.partition}]), high={"n": n + 1})


@pytest.fixture(autouse=True, params=["driver", "tasks"])
def _published_by(request: pytest.FixtureRequest, lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for few datasets, which the driver publishes, holds for many, which tasks do."""
    if request.param == "tasks":
        monkeypatch.setattr(delegation, "FROM", 1)
        lake.owner = "none"  # those of the ledger are never left to tasks


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    NumbersSource.calls.clear()
    NumbersSource.heals_after = None
    NumbersSource.released.clear()


NOW = Retries(times=0)


def numbers(lake: Any, commit: CommitPolicy = "full", retries: Retries = NOW, **options: Any) -> Dataset:
    source = NumbersSource(upto=4, **options)
    return Dataset(name="numbers", source=source, target=lake.to_table(), commit=commit, retries=retries)


TARGETS = ["table", "plain table", "directory"]


def target(lake: Any, kind: str) -> Any:
    if kind == "directory":
        return lake.to_directory("t")
    return lake.to_table("t", owner="ledger" if kind == "table" else "none")


@pytest.mark.parametrize("kind", TARGETS)
def test_each_row_is_published_once_and_a_run_without_news_does_nothing(lake: Any, kind: str) -> None:
    lake.land("1.json", [{"id": 1}, {"id": 2}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=target(lake, kind)))
    first = pipeline.run()
    assert (first.state, first.rows, first.dataset("a").rows_read) == ("published", 2, 2)
    assert pipeline.run().state == "nothing_new"
    lake.land("2.json", [{"id": 3}])
    second = pipeline.run().dataset("a")
    assert (second.rows, list(second.after), second.before) == (1, ["2.json"], {"2.json": None})
    assert lake.ids() == Counter([1, 2, 3])
    newest, *earlier = pipeline.history()
    assert [run.state for run in earlier] == ["nothing_new", "published"]
    assert newest.datasets == (second,)
    assert second.bytes == len('{"id": 3}')
    assert newest.started_ms <= (newest.ended_ms or 0)
    assert second.steps == (0 if kind == "table" else 2)


def test_rows_and_watermarks_of_all_datasets_are_one_commit(lake: Any) -> None:
    for name in ("x", "y"):
        lake.land("1.json", [{"id": 1}], folder=name)
    datasets = [
        Dataset(name=n, source=lake.files(n), target=lake.to_table(f"t{n}", owner="ledger")) for n in ("x", "y")
    ]
    result = lake.pipeline(*datasets).run()
    assert [(one.steps, one.version) for one in result.datasets] == [(0, 1), (0, 1)]
    for name in ("tx", "ty"):
        assert lake.table(name).version() == 1


@pytest.mark.field_bug(44)
def test_a_table_that_others_write_to_keeps_both_their_rows_and_the_watermarks(lake: Any) -> None:
    """Bug 44: another writer's commit lost the checkpoint."""
    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table()))
    pipeline.run()
    for n in range(3):
        lake.table().write(pa.table({"id": [100 + n], "name": ["other"]}))
    lake.table().optimize()
    lake.land("2.json", [{"id": 2}])
    pipeline.run()
    assert pipeline.run().state == "nothing_new"
    assert lake.ids() == Counter([1, 2, 100, 101, 102])


def test_a_file_system_table_gets_its_rows_by_a_sequence_with_the_watermarks_last(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    lake.table(owner=False).write(pa.table({"id": [0], "name": ["x"]}))
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table()))
    assert pipeline.run().dataset("a").steps == 2
    assert lake.ids() == Counter([0, 1])
    assert pipeline.open_sequences() == {}


@pytest.mark.parametrize("kind", TARGETS)
def test_rows_that_break_a_rule_go_to_the_error_table_and_are_counted(lake: Any, kind: str) -> None:
    lake.land("1.json", [{"id": 1, "name": "a"}, {"id": None}, {"id": -1}])
    rules = (Check(rule="id IS NOT NULL", on_fail="error_table"), Check(rule="id > 0", on_fail="warn"))
    dataset = Dataset(name="a", source=lake.files(), target=target(lake, kind), quality=rules)
    result = lake.pipeline(dataset).run().dataset("a")
    assert (result.rows, result.to_error_table) == (2, 1)
    assert any("id > 0" in note for note in result.notes)
    assert lake.ids() == Counter([1, -1])
    [error] = lake.table("t_errors").to_arrow().to_pylist()
    assert (error["rule"], error["partition"]) == ("id IS NOT NULL", "1.json")
    assert error["record"] == '{"id":null,"name":null}'


@pytest.mark.parametrize(
    "rule",
    [
        Check(rule="id < 2"),
        Check(rows=RowCount(min=3)),
        Check(rows=RowCount(max=1)),
        Check(nulls=NullShare(column="name", max=0.4)),
        Check(freshness=Freshness(column="at", max_age_seconds=60)),
    ],
    ids=lambda rule: rule.name,
)
def test_a_rule_that_must_hold_keeps_the_whole_dataset_back(lake: Any, rule: Check) -> None:
    lake.land("1.json", [{"id": 1, "at": "2020-01-01T00:00:00Z"}, {"id": 2, "name": "x", "at": "2020-01-01T00:00:00Z"}])
    source = lake.files(schema="id long, name string, at timestamp")
    pipeline = lake.pipeline(Dataset(name="a", source=source, target=lake.to_table(), quality=(rule,)))
    result = pipeline.run(check=False)
    assert result.state == "failed"
    assert (result.datasets[0].error or {})["kind"] == "quality-failed"
    assert pipeline.watermarks() == []
    assert lake.ids() == Counter()
    with pytest.raises(RunFailed, match="were not published"):
        pipeline.run()


def test_a_run_that_failed_says_what_to_do_about_each_dataset(lake: Any) -> None:
    broken = NumbersSource(upto=5, breaks={"a": 2})
    datasets = [Dataset(name=name, source=broken, target=lake.to_table(name)) for name in ("a", "b")]
    few = Check(rows=RowCount(min=9))
    datasets.append(Dataset(name="c", source=NumbersSource(upto=1), target=lake.to_table("c"), quality=(few,)))
    with pytest.raises(RunFailed, match=r"^3 of 3 datasets were not published: a: .*; b: .*; c: ") as raised:
        lake.pipeline(*datasets).run()
    of_broken, of_few = SourceUnavailable.default_hint, QualityFailed.default_hint
    assert raised.value.hint == f"a, b: {of_broken}. c: {of_few}. {RunFailed.default_hint}"


def test_a_rule_that_only_warns_lets_the_dataset_pass(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    rules = (Check(rows=RowCount(min=5), on_fail="warn"), Check(nulls=NullShare(column="name", max=0), on_fail="warn"))
    result = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table(), quality=rules)).run()
    assert result.rows == 1
    assert len(result.datasets[0].notes) == 2


def test_the_schema_of_rows_is_compared_with_the_tables(lake: Any) -> None:
    lake.land("1.json", [{"id": 1, "name": "a"}])
    lake.table(owner=False).write(pa.table({"id": [0]}))
    rule = Check(schema="compatible")
    dataset = Dataset(name="a", source=lake.files(), target=lake.to_table(merge_schema=True), quality=(rule,))
    failed = lake.pipeline(dataset).run(check=False).datasets[0]
    assert (failed.error or {})["kind"] == "quality-failed"
    assert "name" in (failed.error or {})["message"]
    merged = Dataset(name="a", source=lake.files(), target=lake.to_table(merge_schema=True))
    lake.pipeline(merged).run()
    assert lake.table().to_arrow().num_rows == 2


def test_rows_that_do_not_fit_the_table_fail_their_dataset(lake: Any) -> None:
    lake.land("1.json", [{"id": 1, "name": "a"}])
    lake.table(owner=False).write(pa.table({"other": [0]}))
    failed = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table())).run(check=False).datasets[0]
    assert (failed.error or {})["kind"] == "schema-mismatch"


@pytest.mark.parametrize("policy", ["fail", "error_table", "skip"])
def test_records_that_are_no_rows_are_what_the_policy_says_and_never_silent(lake: Any, policy: OnBadRecord) -> None:
    lake.land("1.json", [{"id": 1}, "{broken"])
    dataset = Dataset(name="a", source=lake.files(), target=lake.to_table(), on_bad_record=policy)
    pipeline = lake.pipeline(dataset)
    result = pipeline.run(check=False).datasets[0]
    if policy == "fail":
        assert (result.error or {})["kind"] == "bad-record"
        assert "1.json, line 2" in (result.error or {})["message"]
        assert pipeline.watermarks() == []
        return
    assert (result.rows, result.bad_records) == (1, 1)
    assert any("1 records are no rows" in note for note in result.notes)
    if policy == "error_table":
        [error] = lake.table("t_errors").to_arrow().to_pylist()
        assert (error["position"], error["record"]) == ("line 2", "{broken")


@pytest.mark.field_bug(34)
def test_a_dataset_of_which_a_part_fails_is_not_published_by_default(lake: Any) -> None:
    pipeline = lake.pipeline(numbers(lake, breaks={"b": 2}))
    result = pipeline.run(check=False)
    assert (result.datasets[0].error or {})["message"] == "number 2 is broken"
    assert pipeline.watermarks() == []
    assert lake.ids() == Counter()


@pytest.mark.field_bug(34)
def test_successful_partitions_are_published_and_the_watermark_of_the_others_stays(lake: Any) -> None:
    pipeline = lake.pipeline(numbers(lake, commit="successful", breaks={"b": 2}))
    run = pipeline.run()
    result = run.datasets[0]
    assert (run.state, result.rows, result.left_over) == ("partly", 4, ("b: number 2 is broken",))
    assert {mark.partition: mark.value for mark in pipeline.watermarks()} == {"a": {"n": 4}}
    healed = lake.pipeline(numbers(lake, commit="successful"))
    healed.run()
    assert lake.ids() == Counter([0, 1, 2, 3] * 2)


def test_what_came_before_a_failure_is_published_with_its_watermark_where_that_is_asked_for(lake: Any) -> None:
    pipeline = lake.pipeline(numbers(lake, commit="partial", breaks={"b": 2}))
    result = pipeline.run().datasets[0]
    assert result.rows == 6
    assert {mark.partition: mark.value for mark in pipeline.watermarks()} == {"a": {"n": 4}, "b": {"n": 2}}
    lake.pipeline(numbers(lake, commit="partial")).run()
    assert lake.ids() == Counter([0, 1, 2, 3] * 2)


@pytest.mark.parametrize(("ends", "published"), [(True, 2), (False, 0)], ids=["places to go on from", "none"])
def test_units_of_a_partition_before_the_one_that_failed_are_published_where_the_source_can_go_on_from_them(
    lake: Any, ends: bool, published: int
) -> None:
    class Cut(Source, frozen=True, kw_only=True, tag="cut"):
        """One partition in two units of two rows, of which the second breaks."""

        def row_schema(self) -> StructType:
            return parse_schema("id long")

        def plan(self, watermarks: Mapping[str, Any]) -> Plan:
            first = WorkUnit(partition="", high={"n": 2} if ends else None, payload={"ids": [0, 1]})
            return Plan(units=(first, WorkUnit(partition="", high={"n": 4}, payload={"ids": [2, 3]})))

        def read(self, unit: WorkUnit) -> Iterator[Chunk]:
            if unit.payload["ids"] == [2, 3]:
                raise SourceUnavailable("the second unit is broken")
            yield Chunk(rows=pa.RecordBatch.from_pydict({"id": unit.payload["ids"]}))

    dataset = Dataset(name="cut", source=Cut(), target=lake.to_table(), commit="partial", retries=NOW)
    pipeline = lake.pipeline(dataset)
    result = pipeline.run(check=False)
    assert sum(lake.ids().values()) == published
    assert {mark.partition: mark.value for mark in pipeline.watermarks()} == ({"": {"n": 2}} if ends else {})
    assert result.state == ("partly" if ends else "failed")


@pytest.mark.parametrize("commit", ["full", "partial"])
def test_tasks_that_are_run_twice_publish_each_row_once(
    lake: Any, commit: CommitPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Twice(LocalJobs):
        """Every task has two attempts at the same time, and one more when they have ended."""

        def extract(self, name: str, works: Any, tasks: Any, publishing: Any = None) -> Any:
            def attempt(number: int, orders: Any) -> Any:
                return list(run_orders(works, orders, TaskContext(job_id="", split=0, attempt=number), publishing))

            with ThreadPoolExecutor() as pool:
                started = [pool.submit(attempt, number, orders) for orders in tasks for number in (0, 1)]
                reports = [report for future in started for report in future.result()]
            calls = NumbersSource.calls.total()
            reports += [report for orders in tasks for report in attempt(2, orders)]
            assert NumbersSource.calls.total() == calls
            return reports

    monkeypatch.setattr(pipelines, "LocalJobs", Twice)
    monkeypatch.setattr(delegation, "FROM", 1)
    dataset = replace(numbers(lake, commit), target=lake.to_directory("t"))
    result = lake.pipeline(dataset).run().datasets[0]
    assert (result.state, result.rows, result.steps) == ("published", 8, 2)
    assert lake.ids() == Counter([0, 1, 2, 3] * 2)
    assert lake.pipeline(dataset).run().state == "nothing_new"


def test_a_failure_that_may_pass_is_tried_again_from_the_plan_on(lake: Any) -> None:
    NumbersSource.heals_after = 1
    retries = Retries(times=2, first_pause_seconds=0)
    assert lake.pipeline(numbers(lake, breaks={"b": 2}, retries=retries)).run().rows == 8
    assert NumbersSource.calls["b"] == 2
    assert lake.ids() == Counter([0, 1, 2, 3] * 2)


def test_a_source_that_hangs_is_given_up_and_the_others_are_published(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    hanging = Dataset(
        name="hangs",
        source=NumbersSource(upto=1, hangs="a"),
        target=lake.to_table("h"),
        timeout_seconds=0.3,
        retries=NOW,
    )
    pipeline = lake.pipeline(hanging, Dataset(name="a", source=lake.files(), target=lake.to_table()))
    result = pipeline.run(check=False)
    NumbersSource.released.set()
    assert (result.dataset("hangs").error or {})["kind"] == "source-timeout"
    assert result.dataset("a").rows == 1
    assert result.state == "partly"


def test_a_source_that_vanished_fails_its_dataset_only(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    nowhere = "s3://lakeseal-gone/landing" if lake.storage_options else str(lake.place / "gone")
    gone = lake.files(path=nowhere)
    pipeline = lake.pipeline(
        Dataset(name="gone", source=gone, target=lake.to_table("g")),
        Dataset(name="a", source=lake.files(), target=lake.to_table()),
    )
    result = pipeline.run(check=False)
    assert (result.dataset("gone").error or {})["kind"] == SourceNotFound.kind
    assert lake.ids() == Counter([1])


def test_a_full_disk_fails_the_run_and_the_next_one_publishes_everything_once(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_directory("t"), retries=NOW))

    def full(self: Store, key: str, *_: Any) -> Any:
        raise OutOfSpace("No space left on device", file=key)

    with monkeypatch.context() as patched:
        patched.setattr(type(lake.store()), "open_write", full)
        patched.setattr(type(lake.store()), "put", full)
        assert (pipeline.run(check=False).datasets[0].error or {})["kind"] == "out-of-space"
    assert pipeline.watermarks() == []
    pipeline.run()
    assert lake.ids() == Counter([1])


def test_a_directory_that_cannot_be_published_to_is_finished_by_the_next_run_before_anything_new(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_directory("t")))
    kind = type(lake.store())
    move = kind.move

    def fails_at_the_end(self: Store, pairs: Any, target: Any) -> Any:
        if any(not new.startswith("_") for _, new in pairs):
            raise OutOfSpace("No space left on device")
        return move(self, pairs, target)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "move", fails_at_the_end)
        assert pipeline.run(check=False).state == "failed"
    assert pipeline.open_sequences() == {"a": "open"}
    with pytest.raises(AlreadyExists):
        pipeline.reset("a")
    lake.land("2.json", [{"id": 2}])
    result = pipeline.run().datasets[0]
    assert (result.recovered, list(result.after)) == (2, ["2.json"])
    assert lake.ids() == Counter([1, 2])
    assert len(pipeline.watermarks()) == 2


def test_two_runs_of_a_pipeline_never_overlap(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table()))
    with open_ledger(lake.ledger) as ledger:
        lease = Leases(ledger).acquire("ingest test", holder="another", seconds=60)
        with pytest.raises(LeaseHeld, match="another"):
            pipeline.run()
        Leases(ledger).release(lease)
    assert pipeline.run().rows == 1


def test_a_run_that_lost_its_turn_publishes_nothing(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land("1.json", [{"id": 1}])
    for kind in ("table", "directory"):
        dataset = Dataset(name=kind, source=lake.files(), target=target(lake, kind))
        pipeline = lake.pipeline(dataset, name=kind)
        from lakeseal.ingest.run import Run

        judge = Run._begin

        def late(self: Run, one: Any, kind: str = kind, judge: Any = judge) -> None:
            judge(self, one)
            with open_ledger(lake.ledger) as ledger:
                from lakeseal.ledger.schema import leases as rows

                ledger.write(lambda tx: tx.update(rows, {"name": f"ingest {kind}"}, {"expires": 0}))
                Leases(ledger).acquire(f"ingest {kind}", holder="another")

        with monkeypatch.context() as patched:
            patched.setattr(Run, "_begin", late)
            with pytest.raises(LakesealError) as caught:
                pipeline.run()
        assert "lost its turn" in str(caught.value) or "later" in str(caught.value)
        assert pipeline.watermarks() == []
        assert lake.ids() == Counter()


def test_at_least_once_publishes_without_recording_steps(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    dataset = Dataset(name="a", source=lake.files(), target=lake.to_directory("t"))
    pipeline = lake.pipeline(dataset, delivery="at_least_once")
    assert pipeline.run().rows == 1
    assert pipeline.run().state == "nothing_new"
    assert lake.ids() == Counter([1])


@pytest.mark.field_bug(38)
@pytest.mark.parametrize("kind", TARGETS)
def test_a_reset_reads_the_source_again_from_where_it_says(lake: Any, kind: str) -> None:
    """Bug 38: rows that came under an id which the table had seen before were taken for old ones."""
    pipeline = lake.pipeline(replace(numbers(lake), target=target(lake, kind)))
    pipeline.run()
    pipeline.reset("numbers", {"a": {"n": 4}, "b": {"n": 3}})
    assert pipeline.run().rows == 1
    pipeline.reset("numbers")
    assert pipeline.run().rows == 8
    assert lake.ids()[3] == 2 + 1 + 2


def test_a_dataset_whose_steps_keep_failing_is_set_aside_and_a_retry_publishes_it(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    lake.land("1.json", [{"id": 2}], folder="other")
    pipeline = lake.pipeline(
        Dataset(name="a", source=lake.files(), target=lake.to_directory("t")),
        Dataset(name="b", source=lake.files("other"), target=lake.to_directory("o")),
    )
    from lakeseal.errors import StepImpossible
    from lakeseal.steps import recovery
    from lakeseal.steps.fs_rename import FsRenameCommitStep
    from lakeseal.steps.ledger_store import LedgerStepStore

    execute = FsRenameCommitStep.execute

    def impossible(self: FsRenameCommitStep, context: Any) -> None:
        if self.target.endswith("/t"):
            raise StepImpossible("It cannot be done")
        execute(self, context)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FsRenameCommitStep, "execute", impossible)
        first = pipeline.run(check=False)
        assert [one.state for one in first.datasets] == ["set_aside", "published"]
        assert "cannot be done" in (first.datasets[0].error or {})["message"]
        lake.land("2.json", [{"id": 3}], folder="other")
        second = pipeline.run(check=False)
    assert [one.state for one in second.datasets] == ["set_aside", "published"]
    assert "cannot be done" in (second.datasets[0].error or {})["message"]
    with open_ledger(lake.ledger) as ledger:
        recovery.retry(LedgerStepStore(ledger), "test", "a", epoch=0)
    assert pipeline.run().datasets[0].recovered == 2
    assert lake.ids("t") == Counter([1])
    assert lake.ids("o") == Counter([2, 3])


def test_runs_follow_each_other_until_they_are_stopped(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table()))
    stop = threading.Event()
    states = []
    for result in pipeline.run_every(None, 0.05, stop=stop):
        assert not isinstance(result, LakesealError)
        states.append(result.state)
        if len(states) == 3:
            stop.set()
    assert states == ["published", "nothing_new", "nothing_new"]


def test_what_a_run_may_not_take_is_the_next_ones_and_that_begins_at_once(lake: Any) -> None:
    for n in range(5):
        lake.land(f"{n}.json", [{"id": n}])
    limited = lake.files(max_files=2)
    pipeline = lake.pipeline(Dataset(name="a", source=limited, target=lake.to_table(mode="upsert", keys=("id",))))

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            told.append("waits")
            return super().wait(0)

    stop, told = Stop(), list[Any]()
    for result in pipeline.run_every(None, 3600, stop=stop):
        assert not isinstance(result, LakesealError)
        told.append(result.rows)
        if result.state == "nothing_new":
            stop.set()
    assert told == [2, 2, 1, "waits", 0, "waits"]
    assert lake.ids() == Counter(range(5))


def test_a_run_that_failed_is_not_followed_at_once(lake: Any) -> None:
    lake.land("1.json", ["torn"])
    lake.land("2.json", [{"id": 2}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(max_files=1), target=lake.to_table()))
    result = pipeline.run(check=False)
    assert (result.state, result.datasets[0].has_more, result.has_more) == ("failed", True, False)


def test_a_run_that_died_is_told_as_such_by_the_next(lake: Any) -> None:
    from lakeseal.steps.runs import RunRecords

    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table()))
    with open_ledger(lake.ledger) as ledger:
        RunRecords(ledger).begin("test", "dead", 1)
    time.sleep(0.002)
    pipeline.run()
    assert [run.state for run in pipeline.history()] == ["published", "died"]


def test_without_spark_sql_is_done_where_it_means_the_same_and_a_function_is_refused(lake: Any, tmp_path: Path) -> None:
    lake.land("1.json", [{"id": 1}, {"id": 2}])
    queries = {"a": "SELECT id + 1 AS id FROM input", "b": "SELECT hash(id) AS h FROM input", "c": lambda frame: frame}
    results = {}
    for name, transform in queries.items():
        dataset = Dataset(name=name, source=lake.files(), target=lake.to_table(name), transform=transform)
        results[name] = lake.pipeline(dataset).run(check=False).datasets[0]
    assert lake.ids("a") == {2: 1, 3: 1}
    assert (results["b"].error or {})["kind"] == "unsupported-expression"
    assert "needs Spark" in (results["c"].error or {})["message"]
    assert not list((tmp_path / "c").rglob("*.parquet"))


def test_how_fresh_rows_are_is_told_by_a_time_and_not_by_a_number(lake: Any) -> None:
    lake.land("1.json", [{"id": 1_700_000_000, "name": "2020-01-01"}])
    untimely = "is told by a timestamp or a date"
    for column, words in (("id", untimely), ("name", untimely), ("at", "the rows do not have")):
        rule = Check(freshness=Freshness(column=column, max_age_seconds=9000 * 86400), on_fail="warn")
        pipeline = lake.pipeline(Dataset(name="a", source=lake.files(), target=lake.to_table(), quality=(rule,)))
        assert words in (pipeline.run(check=False).datasets[0].error or {})["message"]
        assert words in str(pipeline.validate()["a"])
