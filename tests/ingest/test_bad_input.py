"""A record that is none, in every source that can have one: set aside with its reason and as it is, told by its place,
there once it is mended; and what is beside it is published, in its own dataset and in all others."""

from __future__ import annotations

import gzip
import io
import sqlite3
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from lakeseal.ingest import Dataset, KafkaSource, Source, SqlSource, TableSource
from lakeseal.table import create
from support.captured_table import Captured

SCHEMA = "id long, name string"


def avro(rows: list[dict[str, Any]]) -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    return file.getvalue()


def table(names: list[bytes], write: Callable[[pa.Table, Any], None]) -> bytes:
    """With texts that need not be UTF-8."""
    file = io.BytesIO()
    texts = pa.array(names, pa.binary()).view(pa.string())
    write(pa.table({"id": pa.array(range(1, len(names) + 1), pa.int64()), "name": texts}), file)
    return file.getvalue()


FILES: dict[str, tuple[str, bytes, bytes]] = {
    # what the format needs beside its name, a good record and a bad one, the bad one mended
    "json": (SCHEMA, b'{"id": 1, "name": "a"}\n{"id": "two"}\n', b'{"id": 2, "name": "b"}\n'),
    "csv": (SCHEMA, b"id,name\n1,a\ntwo,b\n", b"id,name\n2,b\n"),
    "xml": (SCHEMA, b"<a><r><id>1</id></r><r><id>two</id></r></a>", b"<a><r><id>2</id></r></a>"),
    "parquet": (SCHEMA, table([b"a", b"\xff"], pq.write_table), table([b"c", b"b"], pq.write_table)),
    "orc": (SCHEMA, table([b"a", b"\xff"], orc.write_table), table([b"c", b"b"], orc.write_table)),
    "avro": ("id int, name string", avro([{"id": 1, "name": "a"}, {"id": 2**40, "name": "b"}]),
             avro([{"id": 2, "name": "b"}])),
    "text": ("", b"a\n\xff\n", b"b\n"),
}  # fmt: skip


def test_a_bad_record_of_any_source_is_set_aside_told_and_there_once_it_is_mended(lake: Any, broker: Any) -> None:
    datasets = []
    for kind, (schema, first, _) in FILES.items():
        lake.store(kind).put("1", first)
        options = {"row_tag": "r"} if kind == "xml" else {}
        source = lake.files(kind, format=kind, schema=schema or None, **options)
        datasets.append(judged(kind, source, lake))
    broker.create_topic("bad input")
    broker.produce("bad input", [b'{"id": 1, "name": "a"}', b"{"])
    kafka = KafkaSource(brokers=broker.address, topic="bad input", schema=SCHEMA)
    datasets.append(judged("kafka", kafka, lake))
    database = sqlite3.connect(lake.place / "shop.db")
    database.execute("CREATE TABLE t (at INTEGER, id, name)")
    database.execute("INSERT INTO t VALUES (1, 1, 'a'), (2, 'two', 'b')")
    database.commit()
    sql = SqlSource(url=f"sqlite:///{lake.place}/shop.db", table="t", column="at", schema=f"at long, {SCHEMA}")
    datasets.append(judged("sql", sql, lake))
    pipeline = lake.pipeline(*datasets)

    result = pipeline.run()
    assert result.state == "published"
    for one in result.datasets:
        assert (one.rows, one.bad_records) == (1, 1), one.name
        [told] = lake.table(f"to_{one.name}_errors").to_arrow().to_pylist()
        assert told["reason"], one.name
        assert told["position"], one.name
        assert told["record"], one.name
    assert pipeline.run().state == "nothing_new"

    for kind, (_, _, mended) in FILES.items():
        lake.store(kind).put("2", mended)
    broker.produce("bad input", [b'{"id": 2, "name": "b"}'])
    database.execute("INSERT INTO t VALUES (3, 2, 'b')")
    database.commit()
    database.close()
    result = pipeline.run()
    for one in result.datasets:
        assert (one.state, one.bad_records) == ("published", 0), one.name
        found = lake.table(f"to_{one.name}").to_arrow()
        column = "value" if one.name == "text" else "id"
        assert set(found[column].to_pylist()) >= ({"a", "b"} if one.name == "text" else {1, 2}), one.name
        assert lake.table(f"to_{one.name}_errors").to_arrow().num_rows == 1, one.name


def judged(name: str, source: Source, lake: Any) -> Dataset:
    return Dataset(name=name, source=source, target=lake.to_table(f"to_{name}"), on_bad_record="error_table")


def test_a_file_that_can_not_be_opened_holds_up_its_own_dataset_alone(lake: Any) -> None:
    good = gzip.compress(b'{"id": 1, "name": "a"}\n')
    lake.store("torn").put("1.json.gz", good[:-4])
    lake.store("whole").put("1.json.gz", good)
    datasets = [
        Dataset(name=name, source=lake.files(name), target=lake.to_table(f"to_{name}")) for name in ("torn", "whole")
    ]
    pipeline = lake.pipeline(*datasets)
    result = pipeline.run(check=False)
    assert (result.state, result.dataset("whole").rows) == ("partly", 1)
    assert "1.json.gz" in str(result.dataset("torn").error)
    lake.store("torn").put("1.json.gz", good)
    assert pipeline.run().dataset("torn").rows == 1


def test_a_change_of_a_database_that_is_no_row_is_set_aside_and_the_row_is_there_once_it_is_mended(
    lake: Any, database: str
) -> None:
    captured = Captured(lake, database, "id bigint PRIMARY KEY, on_day date, a text")
    captured.bad_records_go("error_table")
    captured.do("INSERT INTO t VALUES (1, '2026-01-01', 'x'), (2, 'infinity', 'y')")
    assert [row["id"] for row in captured.rows()] == [1]
    captured.do("INSERT INTO t VALUES (3, '2026-01-03', 'z'), (4, '4713-01-01 BC', 'v')", "DELETE FROM t WHERE id = 1")
    assert [row["id"] for row in captured.rows()] == [3]
    told = lake.table("t_errors").to_arrow().to_pylist()
    assert len(told) == 2
    assert all(one["reason"] and one["position"].startswith("commit ") for one in told)
    assert any("infinity" in one["record"] for one in told)
    captured.do("UPDATE t SET on_day = '2026-01-02' WHERE id IN (2, 4)")
    assert [row["id"] for row in captured.rows()] == [2, 3, 4]
    captured.connection.close()


def test_a_row_of_a_table_that_is_nobodys_is_set_aside_and_there_once_it_is_mended(lake: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    here = create(lake.table("source").uri, schema, properties={"delta.enableChangeDataFeed": "true"})
    here.write(pa.table({"id": [1, None], "name": ["a", "b"]}, schema))
    target = lake.to_table(mode="cdc", keys=("id",))
    dataset = Dataset(name="t", source=TableSource(uri=here.uri), target=target, on_bad_record="error_table")
    pipeline = lake.pipeline(dataset)
    assert pipeline.run().dataset("t").rows == 1
    assert '"name":"b"' in lake.table("t_errors").to_arrow()["record"].to_pylist()[0]
    here.update({"id": "2"}, "id IS NULL")
    pipeline.run()
    assert lake.table().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
