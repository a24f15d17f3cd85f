"""Changes as a source: Debezium's envelopes from Kafka, and a table's own feed, into a target that is then equal."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import random
import struct
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import InvalidArgument, RunFailed
from lakeseal.ingest import Dataset, KafkaSource, TableSource

SCHEMA = "id long, a string"
AUTH = "reader:secret"
Row = dict[str, Any]


def avro_schema(*extra: dict[str, Any]) -> dict[str, Any]:
    row = [{"name": "id", "type": "long"}, {"name": "a", "type": ["null", "string"]}, *extra]
    fields = [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": row}]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop.t", "fields": fields}


class Registry(ThreadingHTTPServer):
    """Tells schemas to those who know the password."""

    schemas: tuple[Any, ...] = (
        avro_schema(),
        avro_schema({"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}}),
    )

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        wanted = f"Basic {base64.b64encode(AUTH.encode()).decode()}"
        if self.headers.get("Authorization") != wanted:
            self.send_error(401)
            return
        number = int(self.path.rpartition("/")[2])
        is_there = number < len(Registry.schemas)
        said = {"schema": json.dumps(Registry.schemas[number])} if is_there else {"error_code": 40403}
        data = json.dumps(said).encode()
        self.send_response(200 if is_there else 404)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with Registry() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.url
        server.shutdown()


def envelope(op: str, before: Row | None, after: Row | None) -> Row:
    return {"before": before, "after": after, "op": op, "ts_ms": 1_772_359_200_000}


def as_json(change: Row) -> bytes:
    return json.dumps({"payload": change}).encode()


def as_avro(change: Row, number: int = 0) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(Registry.schemas[number]), change)
    return b"\0" + struct.pack(">I", number) + stream.getvalue()


def captured(lake: Any, broker: Any, topic: str, schema: str = SCHEMA, **options: Any) -> Dataset:
    given = {key: options.pop(key) for key in ("on_bad_record",) if key in options}
    source = KafkaSource(brokers=broker.address, topic=topic, schema=schema, envelope="debezium", **options)
    return Dataset(name="t", source=source, target=lake.to_table(mode="cdc", keys=("id",)), **given)


def random_changes(rng: random.Random, rows: dict[int, Row], count: int) -> list[Row | None]:
    """As a connector writes them; `rows` are those that are there, before and after."""
    told: list[Row | None] = []
    for _ in range(count):
        key, kind = rng.randrange(10), rng.random()
        if kind < 0.05:
            rows.clear()
            told.append(envelope("t", None, None))
        elif kind < 0.35 and key in rows:
            told += [envelope("d", rows.pop(key), None), None]  # and its tombstone
        else:
            before, rows[key] = rows.get(key), {"id": key, "a": rng.choice([None, str(rng.random())])}
            op = rng.choice("cr") if before is None else "u"
            told.append(envelope(op, before, rows[key]))
            if rng.random() < 0.2:
                told.append(told[-1])  # connectors deliver at least once
    return told


@pytest.mark.parametrize("form", ["json", "avro"])
def test_envelopes_make_the_table_that_the_database_has(lake: Any, broker: Any, registry: str, form: str) -> None:
    topic = f"debezium-{form}"
    broker.create_topic(topic, 1)
    encode: Callable[[Row], bytes] = as_json if form == "json" else as_avro
    by_registry = {"schema_registry": registry, "registry_auth": AUTH} if form == "avro" else {}
    pipeline = lake.pipeline(captured(lake, broker, topic, value=form, **by_registry))
    rng, rows = random.Random(form), dict[int, Row]()
    for _ in range(5):
        told = random_changes(rng, rows, 30)
        broker.produce(topic, [None if one is None else encode(one) for one in told])
        pipeline.run()
        found = lake.table().to_arrow().sort_by("id").to_pylist()
        assert found == [rows[key] for key in sorted(rows)]


def test_numbers_are_what_the_connector_says_that_they_mean(lake: Any, broker: Any) -> None:
    broker.create_topic("meanings", 1)
    named = [
        {"field": "day", "name": "io.debezium.time.Date"},
        {"field": "at", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "ms", "name": "io.debezium.time.Timestamp"},
        {"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        {"field": "zoned", "name": "io.debezium.time.ZonedTimestamp"},
        {"field": "ns", "name": "io.debezium.time.NanoTimestamp"},
        {"field": "old", "name": "io.debezium.time.NanoTimestamp"},
    ]
    price = base64.b64encode((12345).to_bytes(3, "big", signed=True)).decode()
    micros = 1_772_359_200_123_456
    row = {"id": 1, "day": 20513, "at": micros, "ms": micros // 1000, "price": price, "zoned": "2026-03-01T10:00:00Z"}
    row |= {"ns": 1_700_000_000_123_457_000, "old": -1}
    value = {"schema": {"fields": [{"field": "after", "fields": named}]}, "payload": envelope("c", None, row)}
    broker.produce("meanings", [json.dumps(value).encode()])
    schema = "id long, day date, at timestamp_ntz, ms timestamp, price decimal(10,2), zoned timestamp"
    lake.pipeline(captured(lake, broker, "meanings", f"{schema}, ns timestamp, old timestamp")).run()
    assert lake.table().to_arrow().to_pylist() == [
        {
            "id": 1,
            "day": dt.date(2026, 3, 1),
            "at": dt.datetime(2026, 3, 1, 10, 0, 0, 123456),
            "ms": dt.datetime(2026, 3, 1, 10, 0, 0, 123000, tzinfo=dt.UTC),
            "price": Decimal("123.45"),
            "zoned": dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC),
            "ns": dt.datetime(2023, 11, 14, 22, 13, 20, 123457, tzinfo=dt.UTC),
            "old": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        }
    ]


def test_a_schema_that_changes_is_read_by_names(lake: Any, broker: Any, registry: str) -> None:
    broker.create_topic("evolving", 1)
    later = as_avro(envelope("c", None, {"id": 2, "a": "b", "day": 1}), 1)
    broker.produce("evolving", [as_avro(envelope("c", None, {"id": 1, "a": "a"})), later])
    by_registry = {"value": "avro", "schema_registry": registry, "registry_auth": AUTH}
    lake.pipeline(captured(lake, broker, "evolving", "id long, a string, day date", **by_registry)).run()
    assert lake.table().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "a": "a", "day": None},
        {"id": 2, "a": "b", "day": dt.date(1970, 1, 2)},
    ]


def test_a_registry_that_refuses_fails_the_run_and_moves_nothing(lake: Any, broker: Any, registry: str) -> None:
    broker.create_topic("refused", 1)
    broker.produce("refused", [as_avro(envelope("c", None, {"id": 1, "a": "a"}))])
    dataset = captured(lake, broker, "refused", value="avro", schema_registry=registry, registry_auth="wrong:one")
    pipeline = lake.pipeline(dataset)
    with pytest.raises(RunFailed, match="401"):
        pipeline.run()
    assert not pipeline.watermarks()


def test_a_change_whose_schema_nobody_registered_holds_up_no_other(lake: Any, broker: Any, registry: str) -> None:
    broker.create_topic("unregistered", 1)
    good = [as_avro(envelope("c", None, {"id": n, "a": "a"})) for n in (1, 2)]
    broker.produce("unregistered", [good[0], b"\0\0\0\0\x63x", b"\0\xff\xff\xff\xffx", b"\0\0", good[1]])
    by_registry = {"value": "avro", "schema_registry": registry, "registry_auth": AUTH}
    lake.pipeline(captured(lake, broker, "unregistered", on_bad_record="error_table", **by_registry)).run()
    assert lake.ids() == {1: 1, 2: 1}
    told = lake.table("t_errors").to_arrow().to_pylist()
    assert [one["position"] for one in told] == ["offset 1", "offset 2", "offset 3"]
    assert told[0]["reason"].endswith("The schema registry has no schema 99")


def test_what_is_no_envelope_is_set_aside_and_notes_on_the_schema_are_passed_over(lake: Any, broker: Any) -> None:
    broker.create_topic("odd", 1)
    good = as_json(envelope("c", None, {"id": 1, "a": "a"}))
    note = json.dumps({"ddl": "ALTER TABLE t", "databaseName": "shop"}).encode()
    odd = [b"no JSON", as_json(envelope("z", None, None)), as_json(envelope("u", None, None)), b"[]"]
    number = as_json(envelope("c", None, {"id": "many", "a": "a"}))
    broker.produce("odd", [good, note, *odd, number])
    lake.pipeline(captured(lake, broker, "odd", on_bad_record="error_table")).run()
    assert lake.table().to_arrow().to_pylist() == [{"id": 1, "a": "a"}]
    assert lake.table("t_errors").to_arrow()["position"].to_pylist() == [f"offset {n}" for n in range(2, 7)]


def test_an_envelope_with_what_it_can_not_have_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="schema of its rows"):
        KafkaSource(brokers="b", topic="t", envelope="debezium")
    with pytest.raises(InvalidArgument, match="registry"):
        KafkaSource(brokers="b", topic="t", envelope="debezium", value="avro", schema=SCHEMA)


@pytest.mark.parametrize("sequence_by", [None, "n"])
@pytest.mark.parametrize("seed", range(3))
def test_a_tables_own_feed_makes_the_same_table_elsewhere(lake: Any, seed: int, sequence_by: str | None) -> None:
    """Also by a column of its own, which a delete can't raise, and which other changes raise or leave."""
    rng = random.Random(seed)
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("n", pa.int64())])
    source = lakeseal.create(f"{lake.place}/source", schema, properties={"delta.enableChangeDataFeed": "true"})
    source.write(pa.table({"id": [1, 2, 3], "a": ["x", "y", "z"], "n": [1, 1, 1]}, schema=schema))
    target = lake.to_table(mode="cdc", keys=("id",), sequence_by=sequence_by)
    pipeline = lake.pipeline(Dataset(name="t", source=TableSource(uri=f"{lake.place}/source"), target=target))
    for _ in range(5):
        pipeline.run()
        assert _sorted(lake.table()) == _sorted(source)
        for _ in range(rng.randrange(1, 4)):
            raised = rng.choice(["n", "n + 1"])
            match rng.randrange(6):
                case 0:
                    source.delete(f"id % 3 = {rng.randrange(3)}")
                case 1:
                    source.update({"id": "id + 100", "n": raised}, f"id < 100 AND id % 2 = {rng.randrange(2)}")
                case 2:
                    source.update({"a": f"'{rng.random()}'", "n": raised}, f"id % 2 = {rng.randrange(2)}")
                case 3:
                    ids = [row["id"] + 1000 for row in _sorted(source)]
                    rows = {"id": ids, "a": [None] * len(ids), "n": [1] * len(ids)}
                    source.write(pa.table(rows, schema=schema), mode="overwrite")
                case 4:
                    before = source.version()
                    source.delete(f"id % 2 = {rng.randrange(2)}")
                    source.restore(before)
                case _:
                    new = pa.table({"id": [rng.randrange(10_000, 10**6)], "a": ["new"], "n": [1]}, schema=schema)
                    source.merge(new, "t.id = s.id").when_not_matched_insert().execute()
    pipeline.run()
    assert _sorted(lake.table()) == _sorted(source)


@pytest.mark.parametrize("seed", range(2))
def test_a_feed_that_deltalake_wrote_makes_the_table_that_deltalake_reads(lake: Any, seed: int) -> None:
    rng, place = random.Random(seed), f"{lake.place}/theirs"
    schema = pa.schema([("id", pa.int64()), ("a", pa.string())])

    def rows(*ids: int) -> pa.Table:
        return pa.table({"id": ids, "a": [str(rng.random()) for _ in ids]}, schema=schema)

    deltalake.write_deltalake(place, rows(1, 2, 3), configuration={"delta.enableChangeDataFeed": "true"})
    target = lake.to_table(mode="cdc", keys=("id",))
    pipeline = lake.pipeline(Dataset(name="t", source=TableSource(uri=place), target=target))
    for turn in range(4):
        for change in range(rng.randrange(1, 4)):
            theirs = deltalake.DeltaTable(place)
            match rng.randrange(4):
                case 0:
                    theirs.delete(f"id % 3 = {rng.randrange(3)}")
                case 1:
                    theirs.update({"a": f"'{rng.random()}'"}, predicate=f"id % 2 = {rng.randrange(2)}")
                case 2:
                    merge = theirs.merge(rows(*rng.sample(range(20), 5)), "t.id = s.id", "s", "t")
                    merge.when_matched_update_all().when_not_matched_insert_all().execute()
                case _:
                    deltalake.write_deltalake(place, rows(100 + 10 * turn + change), mode="append")
        pipeline.run()
        read = deltalake.DeltaTable(place).to_pyarrow_table()
        assert _sorted(lake.table()) == sorted(read.to_pylist(), key=lambda row: row["id"])


def _sorted(table: lakeseal.Table) -> list[Row]:
    return table.to_arrow().sort_by("id").to_pylist()  # type: ignore[no-any-return]
