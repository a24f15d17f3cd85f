"""Spans of a source that are published again, and going on with what earlier runs have left."""

from __future__ import annotations

import io
import json
import sqlite3
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import Repository
from lakeseal.errors import InvalidArgument, RunFailed, Unsupported
from lakeseal.ingest import BranchTarget, Dataset, KafkaSource, PostgresSource, Retries, SqlSource, TableSource
from lakeseal.ingest.backfill import BACKFILLS
from lakeseal.ingest.jobs import LocalJobs
from lakeseal.steps.high_watermark import HighWatermarkCommitStep
from lakeseal.table import Table

UPSERT: dict[str, Any] = {"mode": "upsert", "keys": ("id",)}


def _days(lake: Any, **target: Any) -> Any:
    for day in (1, 2, 3):
        lake.land(f"2026-01-0{day}.json", [{"id": day, "name": "old"}])
    return lake.pipeline(Dataset(name="t", source=lake.files(on_rewritten="ignore"), target=lake.to_table(**target)))


def _names(lake: Any) -> dict[int, str]:
    rows = lake.table().to_arrow().to_pylist()
    return {row["id"]: row["name"] for row in rows}


def test_a_span_of_files_is_published_again_once_and_watermarks_stay(lake: Any) -> None:
    pipeline = _days(lake, **UPSERT)
    pipeline.run()
    before = pipeline.watermarks("t")
    for day in (1, 2, 3):
        lake.land(f"2026-01-0{day}.json", [{"id": day, "name": "mended"}])
    assert pipeline.backfill("t", "2026-01-02", "2026-01-03").rows == 1
    assert _names(lake) == {1: "old", 2: "mended", 3: "old"}
    assert pipeline.watermarks("t") == before
    assert pipeline.backfill("t", "2026-01-02", "2026-01-03").state == "nothing_new"
    assert pipeline.backfill("t", "2026-01-02", "2026-01-03", again=True).rows == 1
    assert pipeline.backfill("t", "2026-01-02", "2027").rows == 2, "another span is another backfill"
    assert pipeline.run().state == "nothing_new"


def test_a_span_of_a_growing_column_is_what_the_database_says(lake: Any) -> None:
    file = lake.place / "shop.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE orders (id INTEGER, at TIMESTAMP)")
        database.executemany(
            "INSERT INTO orders VALUES (?, ?)", [(n, f"2026-01-{n:02} 00:00:00") for n in range(1, 13)]
        )
    database.close()
    for column, span, wanted in (
        ("id", ("3", "11"), range(3, 11)),
        ("at", ("2026-01-03", "2026-01-11T00:00:00"), range(3, 11)),
    ):
        source = SqlSource(url=f"sqlite:///{file}", table="orders", column=column)
        pipeline = lake.pipeline(
            Dataset(name=column, source=source, target=lake.to_table(column, **UPSERT)), name=f"by {column}"
        )
        pipeline.backfill(column, *span)
        assert sorted(lake.ids(column).elements()) == list(wanted)
        assert pipeline.run().rows == 12, "the dataset's own watermark has not moved"
    by_id = SqlSource(url=f"sqlite:///{file}", table="orders", column="id")
    with pytest.raises(RunFailed, match="is no value of id"):
        lake.pipeline(Dataset(name="t", source=by_id, target=lake.to_table())).backfill("t", "a", "b")


def test_a_span_of_a_topic_is_by_offsets(lake: Any, broker: Any) -> None:
    broker.create_topic("span", partitions=2)
    for partition in (0, 1):
        messages = [b'{"id": %d}' % (10 * partition + n) for n in range(6)]
        broker.produce("span", messages, partition=partition)
    source = KafkaSource(brokers=broker.address, topic="span", schema="id long", max_messages=1)
    pipeline = lake.pipeline(Dataset(name="t", source=source, target=lake.to_table()))
    pipeline.backfill("t", "2", "4")
    assert sorted(lake.ids().elements()) == [2, 3, 12, 13]
    assert pipeline.backfill("t", "2", "4").state == "nothing_new"
    with pytest.raises(InvalidArgument, match="no offsets"):
        pipeline.backfill("t", "yesterday", "today")


def test_a_span_of_a_tables_versions(lake: Any) -> None:
    origin = f"{lake.root}/origin"
    lakeseal.create(origin, pa.schema([("id", pa.int64())]), properties={"delta.enableChangeDataFeed": "true"})
    for n in range(1, 5):
        Table(origin).write(pa.table({"id": [n]}))
    source = TableSource(uri=origin)
    target = lake.to_table(mode="cdc", keys=("id",))
    lake.pipeline(Dataset(name="t", source=source, target=target)).backfill("t", "2", "4")
    assert sorted(lake.ids().elements()) == [2, 3]


def test_a_log_of_changes_has_no_spans(lake: Any) -> None:
    source = PostgresSource(url="postgresql://nowhere", table="t", slot="s")
    pipeline = lake.pipeline(Dataset(name="t", source=source, target=lake.to_table(mode="cdc", keys=("id",))))
    with pytest.raises(Unsupported, match="no spans of PostgreSQL table t"):
        pipeline.backfill("t", "1", "2")
    assert pipeline.watermarks() == []


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_span_of_files_without_a_schema_is_read_by_what_was_learnt_of_all_of_them(lake: Any, form: str) -> None:
    """By themselves the files of the span have other columns: the table refused what the run before had published."""

    def land(name: str, id: int, x: object) -> None:
        sink = io.BytesIO()
        match form:
            case "json":
                sink.write(json.dumps({"id": id, "x": x}).encode() + b"\n")
            case "csv":
                sink.write(f"id,x\n{id},{x}\n".encode())
            case _:
                pq.write_table(pa.table({"id": [id], "x": [x]}), sink)
        lake.store("landing").put(name, sink.getvalue())

    source = lake.files(format=form, schema=None, infer=True)
    target = lake.to_table(merge_schema=True, **UPSERT)
    pipeline = lake.pipeline(Dataset(name="t", source=source, target=target))
    land("1", 1, 5)
    pipeline.run()
    land("2", 2, "six")
    pipeline.run()
    before = lake.table().to_arrow().sort_by("id").to_pylist()
    assert before[1] == {"id": 2, "x": None, "_rescued": '{"x":"six"}'}
    for again in (False, True):
        assert pipeline.backfill("t", "2", "3", again=again).rows == 1
        assert lake.table().to_arrow().sort_by("id").to_pylist() == before


@pytest.mark.parametrize("kind", ["table", "branch"])
def test_what_a_run_replaces_has_no_spans(lake: Any, kind: str) -> None:
    """Of a span, no other rows were left."""
    target = lake.to_table(mode="replace")
    if kind == "branch":
        target = BranchTarget(repository=Repository.create(f"{lake.place}/repo").uri, path="t", mode="replace")
    lake.land("1.json", [{"id": 1}])
    pipeline = lake.pipeline(Dataset(name="t", source=lake.files(), target=target))
    pipeline.run()
    with pytest.raises(InvalidArgument, match="replaces all rows"):
        pipeline.backfill("t", "1", "2")
    assert pipeline.resume() == []


def test_a_backfill_that_was_recorded_and_not_published_goes_on_though_it_is_to_be_done_again(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watermarks were forgotten, and the steps that were to set them never came to their end."""
    pipeline = _days(lake, owner="none")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(HighWatermarkCommitStep, "execute", die)
        with pytest.raises(KeyboardInterrupt):
            pipeline.backfill("t", "2026-01-02", "2026-01-03")
    result = pipeline.backfill("t", "2026-01-02", "2026-01-03", again=True)
    assert result.datasets[0].recovered == 1
    assert sorted(lake.ids().elements()) == [2]
    assert pipeline.backfill("t", "2026-01-02", "2026-01-03", again=True).rows == 1
    assert sorted(lake.ids().elements()) == [2, 2]


def test_a_backfill_of_a_dataset_that_is_not_there_any_more_is_in_nobodys_way(lake: Any) -> None:
    gone = _days(lake)
    lake.land("2026-01-04.json", ["torn"])
    gone.backfill("t", "2026", "2027", check=False)
    other = lake.pipeline(Dataset(name="other", source=lake.files("others"), target=lake.to_table("other")))
    assert other.resume() == []


def test_a_backfill_that_failed_is_resumed_and_nothing_is_there_twice(lake: Any) -> None:
    pipeline = _days(lake)
    lake.land("2026-01-04.json", ["torn"])
    assert pipeline.backfill("t", "2026", "2027", check=False).state == "failed"
    assert pipeline.watermarks(BACKFILLS)[0].value["is_done"] is False
    lake.land("2026-01-04.json", [{"id": 4}])
    results = pipeline.resume()
    assert [(one.state, one.rows) for one in results] == [("published", 4)]
    assert sorted(lake.ids().elements()) == [1, 2, 3, 4]
    assert pipeline.resume() == []


def test_only_what_the_last_run_did_not_publish_is_resumed(lake: Any) -> None:
    good = Dataset(name="good", source=lake.files("one"), target=lake.to_table("good"))
    bad = Dataset(name="bad", source=lake.files("two"), target=lake.to_table("bad"), retries=Retries(times=0))
    lake.land("1.json", [{"id": 1}], "one")
    lake.land("1.json", ["torn"], "two")
    pipeline = lake.pipeline(good, bad)
    assert pipeline.run(check=False).state == "partly"
    lake.land("1.json", [{"id": 1}], "two")
    lake.land("2.json", [{"id": 2}], "one")
    (resumed,) = pipeline.resume()
    assert [(one.name, one.rows) for one in resumed.datasets] == [("bad", 1)]
    assert pipeline.resume() == []


def test_a_run_that_died_is_resumed(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = _days(lake)

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(LocalJobs, "extract", die)
        with pytest.raises(SystemExit):
            pipeline.run()
    assert [one.rows for one in pipeline.resume()] == [3]
