"""Kafka messages whose writers' schemas are registered: Protobuf and JSON Schema, as confluent-kafka's own serializers
(2.16.1) wrote them. Their package for registries is no dependency here, so what they wrote and registered stands below.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.protobuf import descriptor_pb2

from lakeseal.errors import InvalidArgument, SourceUnavailable
from lakeseal.ingest import Dataset, KafkaSource
from lakeseal.ingest.sources.kafka_values import value_reader

AUTH = "reader:secret"
ORDER = (
    "id long, item string, price double, tags array<string>, at timestamp, kind string, "
    "place struct<city: string>, weight int, raw binary, note string"
)
PROTOBUF = [
    "AAAAAAECAggLEgV0w6kgMRkAAAAAAAD4PyIBYSoLCKGckM0GEICU7zpKAgD/",
    "AAAAAAECAggMEgV0w6kgMhkAAAAAAAAIQCIBYSIBYioLCKKckM0GEICU7zowAToFCgNVbG1CAEoCAP8=",
    "AAAAAAICAggVEgV0w6kgMRkAAAAAAAD4PyIBYSoLCKGckM0GEICU7zpKAgD/UgNuZXc=",
    "AAAAAAICAggWEgV0w6kgMhkAAAAAAAAIQCIBYSIBYioLCKKckM0GEICU7zowAToFCgNVbG1CAEoCAP9SA25ldw==",
]
JSON_VALUES = [
    "AAAAAAN7ImlkIjoxLCJpdGVtIjoidGVhIn0=",
    "AAAAAAR7ImlkIjoyLCJpdGVtIjoiY3VwcyIsIm5vdGUiOiJuZXcifQ==",
]
SCHEMAS: dict[int, dict[str, Any]] = {
    1: {
        "schemaType": "PROTOBUF",
        "schema": (
            "CgxvcmRlcjEucHJvdG8SBHNob3AaH2dvb2dsZS9wcm90b2J1Zi90aW1lc3RhbXAucHJvdG8aHmdvb2dsZS9wcm90b2J1Zi93cmFw"
            "cGVycy5wcm90byITCgZPdGhlcjESCQoBeBgBIAEoBSL2AQoGT3JkZXIxEgoKAmlkGAEgASgDEgwKBGl0ZW0YAiABKAkSDQoFcHJp"
            "Y2UYAyABKAESDAoEdGFncxgEIAMoCRImCgJhdBgFIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASGQoEa2luZBgGIAEo"
            "DjILLnNob3AuS2luZDESIQoFcGxhY2UYByABKAsyEi5zaG9wLk9yZGVyMS5QbGFjZRIrCgZ3ZWlnaHQYCCABKAsyGy5nb29nbGUu"
            "cHJvdG9idWYuSW50MzJWYWx1ZRILCgNyYXcYCSABKAwaFQoFUGxhY2USDAoEY2l0eRgBIAEoCSodCgVLaW5kMRIJCgVOT05FMRAA"
            "EgkKBUdJRlQxEAFiBnByb3RvMw=="
        ),
        "references": [],
    },
    2: {
        "schemaType": "PROTOBUF",
        "schema": (
            "CgxvcmRlcjIucHJvdG8SBHNob3AaH2dvb2dsZS9wcm90b2J1Zi90aW1lc3RhbXAucHJvdG8aHmdvb2dsZS9wcm90b2J1Zi93cmFw"
            "cGVycy5wcm90byITCgZPdGhlcjISCQoBeBgBIAEoBSKEAgoGT3JkZXIyEgoKAmlkGAEgASgDEgwKBGl0ZW0YAiABKAkSDQoFcHJp"
            "Y2UYAyABKAESDAoEdGFncxgEIAMoCRImCgJhdBgFIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASGQoEa2luZBgGIAEo"
            "DjILLnNob3AuS2luZDISIQoFcGxhY2UYByABKAsyEi5zaG9wLk9yZGVyMi5QbGFjZRIrCgZ3ZWlnaHQYCCABKAsyGy5nb29nbGUu"
            "cHJvdG9idWYuSW50MzJWYWx1ZRILCgNyYXcYCSABKAwSDAoEbm90ZRgKIAEoCRoVCgVQbGFjZRIMCgRjaXR5GAEgASgJKh0KBUtp"
            "bmQyEgkKBU5PTkUyEAASCQoFR0lGVDIQAWIGcHJvdG8z"
        ),
        "references": [],
    },
    3: {
        "schemaType": "JSON",
        "schema": json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "title": "order",
                "type": "object",
                "properties": {"id": {"type": "integer", "minimum": 1}, "item": {"type": "string"}},
                "required": ["id"],
            }
        ),
    },
    4: {
        "schemaType": "JSON",
        "schema": json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "title": "order",
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "minimum": 1},
                    "item": {"type": "string"},
                    "note": {"type": "string"},
                },
                "required": ["id"],
            }
        ),
    },
}
UNKNOWN = {60: 0, 61: 0}
"""Numbers that the registry says it does not have, and how often it was asked for them."""


class Message:
    """As much of one as a reader needs."""

    def __init__(self, value: bytes, offset: int = 0) -> None:
        self._value, self._offset = value, offset

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return self._offset


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        wanted = f"Basic {base64.b64encode(AUTH.encode()).decode()}"
        number = int(parts.path.rpartition("/")[2])
        if number in UNKNOWN:
            UNKNOWN[number] += 1
            self._say(404, {"error_code": 40403, "message": f"Schema {number} not found"})
            return
        if self.headers.get("Authorization") != wanted or number not in SCHEMAS:
            self.send_error(401 if number in SCHEMAS else 404)
            return
        schema = SCHEMAS[number]
        assert (schema["schemaType"] == "PROTOBUF") == (parts.query == "format=serialized") or number > 90
        self._say(200, schema)

    def _say(self, code: int, said: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def read(registry: str, kind: str, schema: str, *values: bytes, auth: str | None = AUTH) -> tuple[list[Any], list[str]]:
    reader = value_reader(
        kind,
        schema=schema,
        avro_schema=None,
        schema_registry=registry,
        registry_auth=auth,
        include=None,
        prefix="",
    )
    chunk = reader.read([Message(value, n) for n, value in enumerate(values)])
    return chunk.rows.to_pylist(), [f"{bad.position}: {bad.reason}" for bad in chunk.bad]


def test_protobuf_of_evolving_schemas_is_rows_by_name(registry: str) -> None:
    rows, bad = read(registry, "protobuf", ORDER, *map(base64.b64decode, PROTOBUF))
    assert not bad
    moment = dt.datetime(2026, 3, 1, 10, 0, 1, 123456, dt.UTC)
    assert rows[0] == {
        "id": 11,
        "item": "té 1",
        "price": 1.5,
        "tags": ["a"],
        "at": moment,
        "kind": "NONE1",
        "place": None,
        "weight": None,
        "raw": b"\x00\xff",
        "note": None,
    }
    assert rows[3] == {
        **{"id": 22, "item": "té 2", "price": 3.0, "tags": ["a", "b"], "at": moment.replace(second=2)},
        **{"kind": "GIFT2", "place": {"city": "Ulm"}, "weight": 0, "raw": b"\x00\xff", "note": "new"},
    }


def test_protobuf_that_does_not_fit_is_a_bad_record_with_its_reason(registry: str) -> None:
    good = base64.b64decode(PROTOBUF[1])
    frame, path, body = good[:5], good[5:7], good[7:]
    values = [good, b"{}", frame + b"\x02\x08" + body, frame + path + b"\xff\xff", frame, frame + b"\xff" * 9]
    rows, bad = read(registry, "protobuf", "id long", *values)
    assert rows == [{"id": 12}]
    assert [text.partition(":")[0] for text in bad] == ["offset 1", "offset 2", "offset 3", "offset 4", "offset 5"]
    for schema, told in [("item long", "item is no"), ("price float", "price is no"), ("id string", "id is no")]:
        assert told in read(registry, "protobuf", schema, good)[1][0]
    with pytest.raises(SourceUnavailable, match="schema 77"):
        read(registry, "protobuf", "id long", b"\0\0\0\0\x4d" + path + body)
    with pytest.raises(SourceUnavailable, match="401"):
        read(registry, "protobuf", "id long", good, auth="wrong:one")


def test_json_is_judged_by_its_writers_schema_and_then_by_the_columns(registry: str) -> None:
    values = list(map(base64.b64decode, JSON_VALUES))
    frame = values[0][:5]
    values += [frame + b'{"id": 0}', frame + b'{"item": "x"}', frame + b"{", b'{"id": 9}', frame + b'{"id": 1e3}']
    rows, bad = read(registry, "json", "id long, item string, note string", *values)
    assert rows == [{"id": 1, "item": "tea", "note": None}, {"id": 2, "item": "cups", "note": "new"}]
    assert [text.partition(":")[0] for text in bad] == [f"offset {n}" for n in range(2, 7)]
    assert "refuses $.id: 0 is less than the minimum of 1" in bad[0]
    # Another kind of schema under the number that a value names, and one that refers to who knows where.
    SCHEMAS[91] = {"schemaType": "JSON", "schema": json.dumps({"$ref": "http://127.0.0.1:1/x"})}
    SCHEMAS[92] = {"schemaType": "AVRO", "schema": json.dumps("string")}
    refused = [b"\0\0\0\0" + bytes([number]) + b'{"id": 1}' for number in (91, 92)]
    assert all("no JSON schema" in text for text in read(registry, "json", "id long", *refused)[1])


def test_fields_of_protobuf_are_found_in_any_case_and_first_as_they_are_spelt(registry: str) -> None:
    good = base64.b64decode(PROTOBUF[1])
    [row], _ = read(registry, "protobuf", "ID long, Item string, PLACE struct<City: string>", good)
    assert row == {"ID": 12, "Item": "té 2", "PLACE": {"City": "Ulm"}}
    field = descriptor_pb2.FieldDescriptorProto(label=1, type=3)
    row_type = descriptor_pb2.DescriptorProto(name="Row")
    for number, name in enumerate(("id", "ID"), 1):
        row_type.field.add(name=name, number=number, label=field.label, type=field.type)
    file = descriptor_pb2.FileDescriptorProto(name="twice.proto", syntax="proto3", message_type=[row_type])
    SCHEMAS[93] = {"schemaType": "PROTOBUF", "schema": base64.b64encode(file.SerializeToString()).decode()}
    both = b"\0\0\0\0\x5d\0\x08\x05\x10\x06"
    assert read(registry, "protobuf", "ID long", both) == ([{"ID": 6}], [])
    rows, [reason] = read(registry, "protobuf", "Id long", both)
    assert (rows, "differ in case" in reason) == ([], True)


def test_a_multiple_is_one_of_the_numbers_as_they_are_spelt(registry: str) -> None:
    price = {"type": "object", "properties": {"price": {"type": "number", "multipleOf": 0.01}}}
    SCHEMAS[94] = {"schemaType": "JSON", "schema": json.dumps(price)}
    texts = ["19.99", "0.07", "1e300", "-0.0", "1E-2", "0.001", "19.995"]
    values = [b"\0\0\0\0\x5e" + f'{{"price": {text}}}'.encode() for text in texts]
    rows, bad = read(registry, "json", "price string", *values)
    assert [row["price"] for row in rows] == texts[:5]
    assert len(bad) == 2


def test_bad_messages_of_a_topic_are_set_aside_and_the_others_are_published(
    lake: Any, broker: Any, registry: str
) -> None:
    broker.create_topic("registered")
    broker.produce("registered", [base64.b64decode(PROTOBUF[0]), b"no protobuf", base64.b64decode(PROTOBUF[2])])
    options = {"value": "protobuf", "schema_registry": registry, "registry_auth": AUTH}
    source = KafkaSource(brokers=broker.address, topic="registered", schema="id long, note string", **options)
    dataset = Dataset(name="a", source=source, target=lake.to_table(), on_bad_record="error_table")
    assert lake.pipeline(dataset).run().datasets[0].bad_records == 1
    assert lake.ids() == {11: 1, 21: 1}
    [error] = lake.table("t_errors").to_arrow().to_pylist()
    assert (error["position"], error["reason"]) == ("offset 1", "It does not name its writer's schema")


@pytest.mark.parametrize("kind", ["protobuf", "json", "avro"])
def test_a_message_whose_schema_nobody_registered_holds_up_no_other(
    lake: Any, broker: Any, registry: str, kind: str
) -> None:
    good = {
        "protobuf": base64.b64decode(PROTOBUF[0]),
        "json": base64.b64decode(JSON_VALUES[0]),
        "avro": b"\0\0\0\0\x05\x02",
    }
    topic = f"unregistered-{kind}"
    broker.create_topic(topic)
    odd = [b"\0\0\0\0\x3c" + good[kind][5:], b"\0\xff\xff\xff\xff{}"]
    broker.produce(topic, [good[kind], *odd * 20])
    columns = {"avro_schema": BOUGHT_BY} if kind == "avro" else {"schema": "id long"}
    options = {"value": kind, "schema_registry": registry, "registry_auth": AUTH, **columns}
    source = KafkaSource(brokers=broker.address, topic=topic, **options)
    dataset = Dataset(name="a", source=source, target=lake.to_table(), on_bad_record="error_table")
    UNKNOWN[60] = 0
    result = lake.pipeline(dataset).run().datasets[0]
    assert (result.rows, result.bad_records) == (1, 40), set(lake.table("t_errors").to_arrow()["reason"].to_pylist())
    told = lake.table("t_errors").to_arrow()["reason"].to_pylist()
    assert Counter(told) == {
        "The schema registry has no schema 60": 20,
        "It does not name its writer's schema": 20,
    }
    assert UNKNOWN[60] <= 1, "it is asked for once, not for each message"


def test_a_schema_that_is_registered_later_is_found_then(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = b"\0\0\0\0\x3d" + b'{"id": 1}'
    assert read(registry, "json", "id long", value) == ([], ["offset 0: The schema registry has no schema 61"])
    monkeypatch.setitem(SCHEMAS, 61, SCHEMAS[3])
    del UNKNOWN[61]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert read(registry, "json", "id long", value) == ([{"id": 1}], [])


BOUGHT_BY = {"type": "record", "name": "bought", "fields": [{"name": "id", "type": "long"}]}
SCHEMAS[5] = {"schemaType": "AVRO", "schema": json.dumps(BOUGHT_BY)}


def test_what_protobuf_needs_is_told_early() -> None:
    with pytest.raises(InvalidArgument, match="schema_registry"):
        KafkaSource(brokers="x", topic="t", value="protobuf", schema="id long")
