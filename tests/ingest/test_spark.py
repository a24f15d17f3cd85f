"""Runs whose tasks are Spark's."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakeseal.errors import RunFailed
from lakeseal.ingest import Check, Dataset, KafkaSource, Pipeline, Retries, delegation

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
    rule = Check(rule="name RLIKE '^2' AND exp(length(name)) > 0", on_fail="error_table")
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


QUERIES = {
    "all columns": ("SELECT *, id * 2 AS double FROM input", True),
    "some columns": ("select name as name, id from input where id is not null -- all of them", True),
    "a join": ("SELECT i.id, i.name FROM input i CROSS JOIN range(1) r", True),
    "in a text": ("SELECT id, 'union of select' AS name FROM input", True),
    "no column of the input": ("SELECT 7L AS id, 'x' AS name FROM input", True),
    "whole rows": ("SELECT DISTINCT * FROM input", False),
    "groups": ("SELECT max(id) AS id, name FROM input GROUP BY name", False),
    "one group": ("SELECT max(id) AS id FROM input", False),
    "two inputs": ("SELECT id, name FROM input UNION ALL SELECT id + 10, name FROM input", True),
    "two inputs as one": ("SELECT id, name FROM input UNION SELECT id, name FROM input", False),
    "a query in it": ("SELECT id, name FROM (SELECT * FROM input)", True),
    "a query before it": ("WITH a AS (SELECT *, id + 1 AS more FROM input) SELECT name, more AS id FROM a", True),
    "groups before it": ("WITH a AS (SELECT max(id) AS id FROM input) SELECT id FROM a", False),
    "a query in its condition": ("SELECT id, name FROM input WHERE id IN (SELECT id FROM input)", False),
    "two with an origin": (
        "SELECT a.id, b.name FROM (SELECT * FROM input) a JOIN (SELECT * FROM input) b USING (id)",
        False,
    ),
    "places of columns": ("SELECT name, id FROM input ORDER BY 1 LIMIT 2", False),
}


def test_rows_that_a_rule_sets_aside_keep_their_origin_behind_a_transform(lake: Any, spark: Any) -> None:
    lake.land("1.json", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    lake.land("2.json", [{"id": 3, "name": "c"}])
    # Only Spark knows the function, so that also the dataset without a transform goes through it.
    rule = Check(rule="exp(id) < 0", on_fail="error_table")
    sets: dict[str, Any] = {"source": lake.files(), "quality": (rule,)}
    datasets = [
        Dataset(name=f"t{n}", target=lake.to_table(f"t{n}"), transform=query, **sets)
        for n, (query, _) in enumerate(QUERIES.values())
    ]
    datasets.append(Dataset(name="none", target=lake.to_table("none"), **sets))
    datasets.append(Dataset(name="function", target=lake.to_table("function"), transform=lambda rows: rows, **sets))
    lake.pipeline(*datasets).run(spark)
    for n, (what, (_, is_kept)) in enumerate(QUERIES.items()):
        found = lake.table(f"t{n}_errors").to_arrow()
        origins = {"1.json", "2.json"} if is_kept else {""}
        assert set(found["partition"].to_pylist()) == origins, what
        assert all(("not known" in reason) is not is_kept for reason in found["reason"].to_pylist()), what
        assert not any("__lakeseal" in record for record in found["record"].to_pylist())
    by_record = lake.table("none_errors").to_arrow()
    assert {row["record"]: row["partition"] for row in by_record.to_pylist()} == {
        '{"id":1,"name":"a"}': "1.json",
        '{"id":2,"name":"b"}': "1.json",
        '{"id":3,"name":"c"}': "2.json",
    }
    assert set(lake.table("function_errors").to_arrow()["partition"].to_pylist()) == {""}


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


KILLED = """
name: killed
ledger: {ledger}
lease_seconds: 1
datasets:
  - name: table
    source: {{type: files, path: {place}/landing, format: json, schema: "id long"}}
    transform: "SELECT id, id % 3 AS third FROM input"
    target: {{type: table, uri: {place}/t, partition_by: [third]}}
  - name: directory
    source: {{type: files, path: {place}/landing, format: json, schema: "id long"}}
    target: {{type: directory, path: {place}/d}}
  - name: kafka
    source: {{type: kafka, brokers: "{brokers}", topic: {topic}, schema: "id long", max_messages: 50}}
    target: {{type: table, uri: {place}/k, owner: none}}
"""


def kill_a_driver(lake: Any, spark: Any, broker: Any, topic: str, after: float) -> None:
    broker.create_topic(topic, 2)
    for partition in range(2):
        broker.produce(topic, [b'{"id": %d}' % n for n in range(partition, 400, 2)], partition=partition)
    lake.land("0.json", [{"id": n} for n in range(10)])
    file, ready = lake.place / "killed.yaml", lake.place / "ready"
    file.write_text(KILLED.format(ledger=lake.ledger, place=lake.place, brokers=broker.address, topic=topic))
    command = [sys.executable, str(Path(__file__).parent / "killed_driver.py"), str(file), str(ready)]
    with (lake.place / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        while not ready.exists():
            assert driver.poll() is None, (lake.place / "driver.log").read_text()
            time.sleep(0.05)
        for n in range(1, 6):
            lake.land(f"{n}.json", [{"id": n * 10 + i} for i in range(10)])
        time.sleep(after)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    time.sleep(1.1)  # a dead driver's lease runs out
    pipeline = Pipeline.from_yaml(file)
    while pipeline.run(spark).state != "nothing_new":
        continue
    assert lake.ids("t") == Counter(range(60))
    assert lake.ids("d") == Counter(range(60))
    assert lake.ids("k") == Counter(range(400))
    offsets = [mark.value["offset"] for mark in pipeline.watermarks("kafka")]
    assert offsets == [200, 200]


def test_a_driver_killed_with_its_spark_costs_no_row(lake: Any, spark: Any, broker: Any) -> None:
    kill_a_driver(lake, spark, broker, "killed-driver", after=0.7)


@pytest.mark.stress
@pytest.mark.parametrize("number", range(20))
def test_drivers_killed_at_random_moments_cost_no_row(lake: Any, spark: Any, broker: Any, number: int) -> None:
    kill_a_driver(lake, spark, broker, f"killed-driver-{number}", after=random.Random(number).uniform(0, 3))


@pytest.mark.stress
@pytest.mark.parametrize("publishes", ["driver", "tasks"])
def test_workers_killed_at_random_moments_cost_no_row(
    lake: Any, spark: Any, broker: Any, publishes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if publishes == "tasks":
        monkeypatch.setattr(delegation, "FROM", 1)
    topic = f"killed-workers-of-{publishes}"
    broker.create_topic(topic, 2)
    patient = Retries(times=10, first_pause_seconds=0.05)
    kafka = KafkaSource(brokers=broker.address, topic=topic, schema="id long")
    query = "SELECT id, id % 3 AS third FROM input"
    pipeline = lake.pipeline(
        Dataset(name="t", source=lake.files(), target=lake.to_table("t"), transform=query, retries=patient),
        Dataset(name="d", source=kafka, target=lake.to_directory("d"), retries=patient),
        Dataset(name="k", source=kafka, target=lake.to_table("k", owner="none"), retries=patient),
    )
    random_moment = random.Random(7)
    killed = 0
    for round_ in range(60):
        rows = range(round_ * 20, round_ * 20 + 20)
        lake.land(f"{round_}.json", [{"id": n} for n in rows])
        broker.produce(topic, [b'{"id": %d}' % n for n in rows], partition=round_ % 2)
        run = threading.Thread(target=pipeline.run, args=(spark,), kwargs={"check": False})
        run.start()
        time.sleep(random_moment.uniform(0, 0.6))
        killed += kill_a_worker(random_moment)
        run.join()
    while pipeline.run(spark).state != "nothing_new":
        continue
    assert killed >= 30
    for name in "tdk":
        assert lake.ids(name) == Counter(range(1200))
    assert sorted(mark.value["offset"] for mark in pipeline.watermarks("d")) == [600, 600]


def kill_a_worker(chance: random.Random) -> bool:
    """One of the Python processes in which tasks of this process's Spark run."""
    workers = [
        child
        for child in psutil.Process().children(recursive=True)
        if child.is_running() and "pyspark" in " ".join(_command(child)) and child.ppid() != os.getpid()
    ]
    leaves = [one for one in workers if one.name().startswith("python") and not one.children()]
    if not leaves:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        chance.choice(leaves).kill()
        return True
    return False


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_rows_that_spark_transforms_are_merged_and_without_a_sequence_two_of_one_key_are_refused(
    spark: Any, lake: Any, owner: str
) -> None:
    def dataset(**target: Any) -> Dataset:
        return Dataset(
            name="d",
            source=lake.files(schema="id long, n long, a string, gone boolean"),
            transform="SELECT id, n, upper(a) AS a, gone FROM input",
            target=lake.to_table(mode="upsert", keys=("id",), owner=owner, **target),
        )

    lake.land("1.json", [{"id": 1, "n": 1, "a": "x"}, {"id": 2, "n": 1, "a": "y"}, {"id": 1, "n": 2, "a": "z"}])
    with pytest.raises(RunFailed, match="nothing says which"):
        lake.pipeline(dataset()).run(spark)
    pipeline = lake.pipeline(dataset(sequence_by="n", delete_when="gone"))
    pipeline.run(spark)
    lake.land(
        "2.json", [{"id": 2, "n": 3, "gone": True}, {"id": 1, "n": 1, "a": "late"}, {"id": 3, "n": 1, "a": "new"}]
    )
    pipeline.run(spark)
    lake.land("3.json", [{"id": 2, "n": 2, "a": "late"}])
    pipeline.run(spark)
    found = lake.table().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["n"], row["a"]) for row in found] == [(1, 2, "Z"), (3, 1, "NEW")]
