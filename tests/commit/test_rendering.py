from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.commit.isolation import IsolationLevel, choose
from lakeseal.commit.proposal import Operation, Proposal
from lakeseal.commit.read_set import ReadSet
from lakeseal.commit.rendering import Attempt, Base, render
from lakeseal.errors import InvalidArgument, InvalidMetadata
from lakeseal.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    RemoveFile,
    SetTransaction,
)
from lakeseal.protocol.codec import decode
from lakeseal.protocol.features import DEFAULT_PROTOCOL, enable

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
PLAIN = Metadata(id="t", schema_string=SCHEMA)
TIMED = Metadata(id="t", schema_string=SCHEMA, configuration={"delta.enableInCommitTimestamps": "true"})
TIMED_PROTOCOL = enable(DEFAULT_PROTOCOL, "inCommitTimestamp")
TRACKED_PROTOCOL = enable(DEFAULT_PROTOCOL, "rowTracking")
WS = IsolationLevel.WRITE_SERIALIZABLE


def add(path: str, records: int | None = 1, **parts: Any) -> AddFile:
    stats = None if records is None else f'{{"numRecords":{records}}}'
    return AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True, stats=stats, **parts)


def propose(*adds: AddFile, **parts: Any) -> Proposal:
    return Proposal(
        **{
            "txn_id": "id-1",
            "read_version": 6,
            "operation": Operation(name="WRITE"),
            "isolation": WS,
            "adds": adds,
            **parts,
        }
    )


def on(version: int = 6, **parts: Any) -> Base:
    return Base(**{"version": version, "protocol": DEFAULT_PROTOCOL, "metadata": PLAIN, **parts})


def info_of(attempt: Attempt) -> CommitInfo:
    first = decode(attempt.data)[0]
    assert isinstance(first, CommitInfo)
    return first


def of_kind(attempt: Attempt, kind: type[Action]) -> list[Any]:
    return [action for action in decode(attempt.data) if isinstance(action, kind)]


def test_commit_info_comes_first_and_says_who_did_what() -> None:
    operation = Operation(
        name="WRITE",
        parameters={"mode": "Append", "partitionBy": ["a"], "predicate": None, "n": 1},
        metrics={"numFiles": 1, "numOutputRows": 10},
        user_metadata="by hand",
    )
    attempt = render(propose(add("a"), operation=operation), on(), now_ms=1234)
    info = info_of(attempt)
    assert attempt.version == 7
    assert info.timestamp == 1234
    assert info.in_commit_timestamp is None
    assert info.operation == "WRITE"
    assert info.operation_parameters == {"mode": "Append", "partitionBy": '["a"]', "n": "1"}
    assert info.operation_metrics == {"numFiles": "1", "numOutputRows": "10"}
    assert (info.user_metadata, info.txn_id, info.read_version) == ("by hand", "id-1", 6)
    assert info.isolation_level == "WriteSerializable"
    assert info.is_blind_append is True
    assert str(info.engine_info).startswith("Lakeseal/")


def test_every_action_is_written_once_and_null_fields_are_left_out() -> None:
    attempt = render(
        propose(
            add("a"),
            removes=(RemoveFile(path="b", data_change=True, deletion_timestamp=1),),
            txns=(SetTransaction(app_id="app", version=3),),
            domains=(DomainMetadata(domain="d", configuration="{}", removed=False),),
        ),
        on(),
        now_ms=1,
    )
    assert [type(action).__name__ for action in decode(attempt.data)] == [
        "CommitInfo",
        "SetTransaction",
        "DomainMetadata",
        "RemoveFile",
        "AddFile",
    ]
    assert b"null" not in attempt.data


def test_a_new_table_starts_at_version_0_with_protocol_and_metadata() -> None:
    attempt = render(propose(read_version=-1, protocol=DEFAULT_PROTOCOL, metadata=PLAIN), Base(), now_ms=1)
    assert attempt.version == 0
    assert [type(action).__name__ for action in decode(attempt.data)] == ["CommitInfo", "Protocol", "Metadata"]
    assert info_of(attempt).read_version is None
    with pytest.raises(InvalidArgument, match="protocol"):
        render(propose(read_version=-1, metadata=PLAIN), Base(), now_ms=1)


@pytest.mark.parametrize(
    ("parts", "blind"),
    [
        ({}, True),
        ({"reads": ReadSet(app_ids=frozenset({"a"}))}, True),
        ({"reads": ReadSet(whole_table=True)}, False),
        ({"reads": ReadSet(predicates=("x = 1",))}, False),
        ({"removes": (RemoveFile(path="b", data_change=True),)}, False),
    ],
)
def test_a_blind_append_only_adds_and_read_nothing(parts: dict[str, Any], blind: bool) -> None:
    assert info_of(render(propose(add("a"), **parts), on(), now_ms=1)).is_blind_append is blind


@given(st.lists(st.integers(0, 2**53), min_size=1, max_size=20))
def test_in_commit_timestamps_strictly_increase_whatever_the_clock_says(clock: list[int]) -> None:
    base = on(protocol=TIMED_PROTOCOL, metadata=TIMED, timestamp_ms=1000)
    for now in clock:
        attempt = render(propose(add("a")), base, now_ms=now)
        assert base.timestamp_ms is not None
        assert attempt.in_commit_timestamp == max(now, base.timestamp_ms + 1)
        assert info_of(attempt).in_commit_timestamp == attempt.in_commit_timestamp == info_of(attempt).timestamp
        base = on(attempt.version, protocol=TIMED_PROTOCOL, metadata=TIMED, timestamp_ms=attempt.in_commit_timestamp)


def test_switching_in_commit_timestamps_on_records_since_when_at_every_attempt() -> None:
    proposal = propose(protocol=TIMED_PROTOCOL, metadata=TIMED)
    for version, now in ((6, 5000), (7, 10)):
        attempt = render(proposal, on(version, timestamp_ms=4000), now_ms=now)
        (metadata,) = of_kind(attempt, Metadata)
        assert attempt.in_commit_timestamp == max(now, 4001)
        assert metadata.configuration == {
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": str(version + 1),
            "delta.inCommitTimestampEnablementTimestamp": str(attempt.in_commit_timestamp),
        }


def test_a_table_born_with_in_commit_timestamps_records_nothing_more() -> None:
    attempt = render(propose(read_version=-1, protocol=TIMED_PROTOCOL, metadata=TIMED), Base(), now_ms=7)
    (metadata,) = of_kind(attempt, Metadata)
    assert attempt.in_commit_timestamp == 7
    assert metadata.configuration == {"delta.enableInCommitTimestamps": "true"}


def test_the_property_without_the_feature_gives_no_timestamps() -> None:
    assert render(propose(add("a")), on(metadata=TIMED, timestamp_ms=1), now_ms=7).in_commit_timestamp is None


def high_water(mark: int) -> DomainMetadata:
    return DomainMetadata(domain="delta.rowTracking", configuration=f'{{"rowIdHighWaterMark":{mark}}}', removed=False)


def test_row_ids_go_on_above_those_given_out_and_are_given_anew_at_every_attempt() -> None:
    proposal = propose(add("a", 10), add("b", 5), add("kept", 3, base_row_id=2, default_row_commit_version=1))
    for version, mark in ((6, None), (7, 99)):
        base = on(version, protocol=TRACKED_PROTOCOL, row_tracking=None if mark is None else high_water(mark))
        attempt = render(proposal, base, now_ms=1)
        first = 0 if mark is None else mark + 1
        assert [(a.base_row_id, a.default_row_commit_version) for a in of_kind(attempt, AddFile)] == [
            (first, version + 1),
            (first + 10, version + 1),
            (2, 1),
        ]
        assert of_kind(attempt, DomainMetadata) == [high_water(first + 14)]


def test_no_new_rows_leave_the_high_water_mark_alone() -> None:
    base = on(protocol=TRACKED_PROTOCOL, row_tracking=high_water(9))
    assert of_kind(render(propose(), base, now_ms=1), DomainMetadata) == []


def test_row_tracking_needs_the_number_of_records_and_a_readable_mark() -> None:
    with pytest.raises(InvalidArgument, match="number of records") as caught:
        render(propose(add("a", None)), on(protocol=TRACKED_PROTOCOL), now_ms=1)
    assert caught.value.file == "a"
    broken = DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False)
    with pytest.raises(InvalidMetadata, match="row ids"):
        render(propose(add("a")), on(protocol=TRACKED_PROTOCOL, row_tracking=broken), now_ms=1)


def test_a_table_without_row_tracking_gets_no_row_ids() -> None:
    (added,) = of_kind(render(propose(add("a")), on(), now_ms=1), AddFile)
    assert added.base_row_id is None


def test_isolation_is_the_callers_then_the_tables_then_write_serializable() -> None:
    s, ws, si = IsolationLevel
    assert choose(asked=s, table=si, changes_data=False) is s
    assert choose(asked=None, table=s, changes_data=True) is s
    assert choose(asked=None, table=None, changes_data=True) is ws
    assert choose(asked=None, table=s, changes_data=False) is si
    assert IsolationLevel.parse("serializable ") is s
    with pytest.raises(InvalidArgument, match="isolation level"):
        IsolationLevel.parse("read committed")
