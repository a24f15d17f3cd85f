from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from msgspec.structs import replace

from lakeseal.errors import InvalidArgument, SourceChanged, SourceNotFound, SourceTimeout, SourceUnavailable
from lakeseal.ingest import Dataset, KafkaSource
from lakeseal.ingest.sources.kafka import OffsetRange, PartitionState, bounded, next_range


class Message:
    """What `bounded` needs of one."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


def messages(*offsets: int) -> list[Any]:
    return [Message(offset) for offset in offsets]


def read(source: KafkaSource, marks: dict[str, Any] | None = None) -> Iterator[Any]:
    try:
        for unit in source.plan(marks or {}).units:
            yield from source.read(unit)
    finally:
        source.close()


def rows(source: KafkaSource, marks: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [row for chunk in read(source, marks) for row in chunk.rows.to_pylist()]


def state(earliest: int, latest: int, topic_id: str | None = None) -> PartitionState:
    return PartitionState(topic="t", number=0, earliest=earliest, latest=latest, topic_id=topic_id)


def test_messages_have_value_key_headers_and_place(broker: Any) -> None:
    broker.create_topic("all", 2)
    broker.produce("all", [b'{"id": 1}'], key=b"k", headers={"h": b"1"}, partition=1)
    include = ("key", "headers", "timestamp", "offset", "partition", "topic")
    source = KafkaSource(brokers=broker.address, topic="all", schema="id long", include=include, prefix="k_")
    [row] = rows(source)
    assert row.pop("k_timestamp").year >= 2024
    assert row == {
        "id": 1,
        "k_key": b"k",
        "k_headers": [{"name": "h", "value": b"1"}],
        "k_offset": 0,
        "k_partition": 1,
        "k_topic": "all",
    }


@pytest.mark.field_bug(42)
def test_each_run_reads_what_came_since_the_last_one_and_stops_there(broker: Any) -> None:
    broker.create_topic("since", 2)
    broker.produce("since", [b'{"id": %d}' % n for n in range(50)])
    source = KafkaSource(brokers=broker.address, topic="since", schema="id long")
    units = source.plan({}).units
    broker.produce("since", [b'{"id": %d}' % n for n in range(50, 60)])
    chunks = [chunk for unit in units for chunk in source.read(unit)]
    assert sum(chunk.rows.num_rows for chunk in chunks) == 50
    assert chunks[-1].high == {"generation": 0, "offset": 50}
    marks = {unit.partition: unit.high for unit in units}
    assert [row["id"] for row in rows(source, marks)] == list(range(50, 60))
    marks["since:0"] = {"generation": 0, "offset": 60}
    assert source.plan(marks).units == ()


def test_a_run_takes_at_most_so_many_messages_of_a_partition(broker: Any) -> None:
    broker.create_topic("few")
    broker.produce("few", [b'{"id": %d}' % n for n in range(10)])
    source = KafkaSource(brokers=broker.address, topic="few", schema="id long", max_messages=4)
    plan = source.plan({"few:0": {"generation": 0, "offset": 3}})
    [unit] = plan.units
    assert plan.has_more
    assert not source.plan({"few:0": {"generation": 0, "offset": 6}}).has_more
    assert [row["id"] for chunk in source.read(unit) for row in chunk.rows.to_pylist()] == [3, 4, 5, 6]
    source.close()


def test_a_topic_begun_at_its_end_remembers_where_that_was(broker: Any) -> None:
    broker.create_topic("end")
    broker.produce("end", [b'{"id": 1}'])
    source = KafkaSource(brokers=broker.address, topic="end", schema="id long", start="latest")
    [unit] = source.plan({}).units
    assert unit.high == {"generation": 0, "offset": 1}
    assert list(source.read(unit)) == []


def test_values_that_are_no_json_and_tombstones_are_bad_records_with_their_offset(broker: Any) -> None:
    broker.create_topic("bad")
    broker.produce("bad", [b'{"id": 1}', b"{", None, b'{"id": 2}', b"\xff"])
    source = KafkaSource(brokers=broker.address, topic="bad", schema="id long", include=("offset",))
    [chunk] = read(source)
    assert chunk.rows.to_pylist() == [{"id": 1, "offset": 0}, {"id": 2, "offset": 3}]
    assert sorted(one.position for one in chunk.bad) == ["offset 1", "offset 2", "offset 4"]


def test_strings_and_bytes_are_read_as_they_are(broker: Any) -> None:
    broker.create_topic("plain")
    broker.produce("plain", [b"abc", b"\xff\xfe", None])
    found = rows(KafkaSource(brokers=broker.address, topic="plain", value="bytes", include=()))
    assert [row["value"] for row in found] == [b"abc", b"\xff\xfe", None]
    [chunk] = read(KafkaSource(brokers=broker.address, topic="plain", value="string"))
    assert [row["value"] for row in chunk.rows.to_pylist()] == ["abc", None]
    assert [one.position for one in chunk.bad] == ["offset 1"]


def test_avro_is_decoded_and_what_is_not_is_a_bad_record(broker: Any) -> None:
    schema: dict[str, Any] = {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
    whole = io.BytesIO()
    fastavro.schemaless_writer(whole, schema, {"id": 7, "tags": ["a"], "at": 1_700_000_000_000})
    broker.create_topic("avro")
    broker.produce("avro", [whole.getvalue(), whole.getvalue()[:2], whole.getvalue() + b"x"])
    [chunk] = read(KafkaSource(brokers=broker.address, topic="avro", value="avro", avro_schema=schema))
    [row] = chunk.rows.to_pylist()
    assert (row["id"], row["tags"], row["at"].year) == (7, ["a"], 2023)
    assert len(chunk.bad) == 2


def test_avro_messages_are_published_with_those_that_are_none_in_the_error_table(lake: Any, broker: Any) -> None:
    schema: dict[str, Any] = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}
    values = []
    for n in range(3):
        fastavro.schemaless_writer(whole := io.BytesIO(), schema, {"id": n})
        values.append(whole.getvalue())
    broker.create_topic("avro-run")
    broker.produce("avro-run", [*values, b"\xff"])
    source = KafkaSource(brokers=broker.address, topic="avro-run", value="avro", avro_schema=schema)
    pipeline = lake.pipeline(Dataset(name="a", source=source, target=lake.to_table(), on_bad_record="error_table"))
    result = pipeline.run().dataset("a")
    assert (result.rows, result.bad_records, result.to_error_table) == (3, 1, 1)
    assert sorted(lake.table().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert pipeline.watermarks()[0].value["offset"] == 4


def test_columns_of_the_value_and_of_the_message_must_differ() -> None:
    with pytest.raises(InvalidArgument, match="prefix"):
        KafkaSource(brokers="b", topic="t", schema="offset long", include=("offset",))
    with pytest.raises(InvalidArgument, match="schema"):
        KafkaSource(brokers="b", topic="t")


def test_a_topic_that_is_not_there_and_brokers_that_do_not_answer_are_told(broker: Any) -> None:
    with pytest.raises(SourceNotFound, match="nowhere"):
        KafkaSource(brokers=broker.address, topic="nowhere", schema="id long").plan({})
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1"):
        KafkaSource(brokers="127.0.0.1:1", topic="t", schema="id long", timeout_seconds=0.5).plan({})


@pytest.mark.field_bug(41)
def test_offsets_that_aged_out_are_never_skipped_in_silence(broker: Any) -> None:
    broker.create_topic("aged")
    broker.produce("aged", [b'{"id": %d}' % n for n in range(10)])
    mark = {"aged:0": {"generation": 0, "offset": 2}}
    source = KafkaSource(brokers=broker.address, topic="aged", schema="id long")
    [unit] = source.plan(mark).units
    broker.delete_before("aged", 0, 5)
    with pytest.raises(SourceChanged, match="2 to 4"):
        source.plan(mark)
    with pytest.raises(SourceChanged, match="deleted while they were being read"):
        list(source.read(unit))
    source.close()


def test_a_partition_that_gives_nothing_is_given_up_in_time(broker: Any) -> None:
    broker.create_topic("short")
    broker.produce("short", [b'{"id": 1}'])
    source = KafkaSource(brokers=broker.address, topic="short", schema="id long", timeout_seconds=4)
    [unit] = source.plan({}).units

    beyond = replace(unit, payload={**unit.payload, "end": 5})
    with pytest.raises(SourceChanged, match="now ends at 1"):
        list(source.read(beyond))
    source.close()


def test_reading_ends_at_the_last_message_of_the_range() -> None:
    events = [(messages(0, 1, 2), None), (messages(3, 4, 5, 6), None)]
    assert [(len(part), after) for part, after in bounded(events, 0, 5)] == [(3, 3), (2, 5)]


@pytest.mark.field_bug(43)
def test_reading_does_not_wait_for_offsets_that_hold_no_message() -> None:
    """Bug 43: whoever waits for the record before the end hangs on transaction markers, or on compacted offsets."""
    at_the_end = [(messages(0, 2), None), ([], 5)]
    assert [(len(part), after) for part, after in bounded(at_the_end, 0, 5)] == [(2, 3)]
    grown_since = [(messages(0, 2), None), (messages(7), None)]
    assert [(len(part), after) for part, after in bounded(grown_since, 0, 5)] == [(2, 3)]
    nothing_at_all: list[tuple[list[Any], int | None]] = [([], 5)]
    assert list(bounded(nothing_at_all, 0, 5)) == []


@pytest.mark.field_bug(42)
def test_a_message_from_before_the_range_is_refused() -> None:
    """Bug 42: a consumer gave messages before it had gone to its place."""
    with pytest.raises(SourceChanged):
        list(bounded([(messages(3), None)], 5, 9))


def test_an_end_before_the_range_is_over_is_not_taken_for_its_end() -> None:
    with pytest.raises(SourceUnavailable):
        list(bounded([(messages(0), 3)], 0, 5))


@pytest.mark.field_bug(41)
@pytest.mark.parametrize(
    ("mark", "now", "words"),
    [
        ({"generation": 0, "offset": 100}, state(0, 10), "made again or truncated"),
        ({"generation": 0, "offset": 5, "topic_id": "A"}, state(0, 10, "B"), "deleted and made again"),
        ({"generation": 0, "offset": 5}, state(7, 10), "5 to 6 were deleted"),
    ],
    ids=["shorter", "other id", "aged out"],
)
def test_a_topic_made_again_or_aged_out_is_what_the_policy_says(mark: dict[str, Any], now: Any, words: str) -> None:
    """Bug 41: an offset beyond the end of a new topic, or one that is gone, skipped data in silence."""
    with pytest.raises(SourceChanged, match=words):
        next_range(now, mark, start="earliest", on_lost="fail", is_new_topic=False)
    skipped = next_range(now, mark, start="earliest", on_lost="skip", is_new_topic=False)
    assert isinstance(skipped, str)
    assert words in skipped
    for policy, first in (("earliest", now.earliest), ("latest", now.latest)):
        found = next_range(now, mark, start="earliest", on_lost=policy, is_new_topic=False)  # type: ignore[arg-type]
        assert isinstance(found, OffsetRange)
        assert (found.start, found.end, found.high["generation"]) == (first, 10, 1)
        assert words in str(found.note)


def test_a_partition_that_is_new_in_a_known_topic_is_read_from_its_beginning() -> None:
    found = next_range(state(3, 9), None, start="latest", on_lost="fail", is_new_topic=False)
    assert isinstance(found, OffsetRange)
    assert found.start == 3


def test_a_broker_that_goes_away_while_it_is_read_is_noticed(broker: Any) -> None:
    from lakeseal.testing.kafka import KafkaBroker

    with KafkaBroker() as own:
        own.create_topic("gone")
        own.produce("gone", [b'{"id": 1}'])
        planning = KafkaSource(brokers=own.address, topic="gone", schema="id long")
        [unit] = planning.plan({}).units
        planning.close()
        source = replace(planning, timeout_seconds=1)
        own.pause()
        with pytest.raises((SourceTimeout, SourceUnavailable)):
            list(source.read(unit))
        source.close()
