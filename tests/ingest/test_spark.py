"""Runs whose tasks are Spark's."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakeseal.ingest import Check, Dataset, KafkaSource, Retries

pytestmark = pytest.mark.spark


def test_files_and_messages_reach_tables_and_directories_once(lake: Any, spark: Any, broker: Any) -> None:
    broker.create_topic("to-spark", 3)
    for partition in range(3):
        broker.produce("to-spark", [b'{"id": %d}' % n for n in range(100)], partition=partition)
    lake.land("1.json", [{"id": 1}, {"id": None}])
    kafka = KafkaSource(brokers=broker.address, topic="to-spark", schema="id long", include=("partition",))
    rule = Check(rule="id IS NOT NULL", on_fail="error_table")
    pipeline = lake.pipeline(
        Dataset(name="files", source=lake.files(), target=lake.to_table("a"), quality=(rule,)),
        Dataset(name="kafka", source=kafka, target=lake.to_table("b", partition_by=("partition",))),
        Dataset(name="kafka too", source=kafka, target=lake.to_directory("c"), commit="successful"),
    )
    result = pipeline.run(spark)
    assert [one.rows for one in result.datasets] == [1, 300, 300]
    broker.produce("to-spark", [b'{"id": 100}'], partition=2)
    assert [one.rows for one in pipeline.run(spark).datasets] == [0, 1, 1]
    assert lake.ids("a") == Counter([1])
    assert lake.table("a_errors").to_arrow().num_rows == 1
    expected = Counter([*range(100)] * 3 + [100])
    assert lake.ids("b") == expected
    assert lake.ids("c") == expected

    def never() -> Any:
        raise AssertionError("a run without news needs no Spark")

    assert pipeline.run(never).state == "nothing_new"


def test_transforms_and_rules_of_sparks_own_run_before_anything_is_published(lake: Any, spark: Any) -> None:
    lake.land(
        "1.json", [{"id": 1, "name": "2026-01-02"}, {"id": 2, "name": "2026-01-03"}, {"id": 3, "name": "no"}, "{"]
    )
    # Only Spark knows the function, so it marks the rows.
    rule = Check(rule="name RLIKE '^2' AND levenshtein(name, '2026') < 9", on_fail="error_table")
    query = "WITH a AS (SELECT * FROM input) SELECT id, name, try_cast(name AS date) AS day FROM a"
    by_function: Callable[[Any], Any] = lambda frame: frame.selectExpr("id * 10 AS id", "name")  # noqa: E731
    raises = "SELECT CAST(raise_error('oh') AS string) AS x FROM input"
    sets: dict[str, Any] = {"source": lake.files(), "on_bad_record": "error_table"}
    pipeline = lake.pipeline(
        Dataset(name="q", target=lake.to_table("q", partition_by=("day",)), transform=query, quality=(rule,), **sets),
        Dataset(name="f", target=lake.to_directory("f"), transform=by_function, **sets),
        Dataset(name="wrong", target=lake.to_table("w"), transform="SELECT nothing FROM input", **sets),
        Dataset(name="raises", target=lake.to_table("r"), transform=raises, **sets),
    )
    result = pipeline.run(spark, check=False)
    assert [one.state for one in result.datasets] == ["published", "published", "failed", "failed"]
    assert [(one.rows, one.bad_records) for one in result.datasets[:2]] == [(2, 1), (3, 1)]
    assert lake.table("q").to_arrow().select(["id", "day"]).num_rows == 2
    assert Counter(lake.table("q_errors").to_arrow()["rule"].to_pylist()) == {rule.rule: 1, "bad record": 1}
    assert lake.ids("f") == Counter([10, 20, 30])
    assert "nothing" in (result.dataset("wrong").error or {})["message"]
    assert "oh" in (result.dataset("raises").error or {})["message"]
    assert {mark.dataset for mark in pipeline.watermarks()} == {"q", "f"}
    assert not [file for file in lake.place.rglob("_lakeseal_*/**/*") if file.is_file()]


def test_a_worker_that_is_killed_costs_a_retry_and_no_row(lake: Any, spark: Any, tmp_path: Path) -> None:
    lake.land("1.json", [{"id": n} for n in range(50)])
    died = str(tmp_path / "died")

    def once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not os.path.exists(died):
                with open(died, "w"):
                    os.kill(os.getpid(), signal.SIGKILL)

    dataset = Dataset(
        name="a",
        source=lake.files(),
        target=lake.to_directory("t"),
        transform=lambda frame: frame.mapInArrow(once, frame.schema),
        retries=Retries(times=2, first_pause_seconds=0),
    )
    assert lake.pipeline(dataset).run(spark).rows == 50
    assert os.path.exists(died)
    assert lake.ids() == Counter(range(50))
    assert ds.dataset(lake.place / "t").count_rows() == 50
