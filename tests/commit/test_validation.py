from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.proposal import FileActions, Operation, Proposal
from lakeseal.commit.validation import validate
from lakeseal.errors import (
    AppendOnlyTable,
    InvalidArgument,
    LakesealError,
    SchemaMismatch,
    UnsupportedFeature,
)
from lakeseal.protocol.actions import (
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from lakeseal.protocol.features import DEFAULT_PROTOCOL, enable

SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"p","type":"integer","nullable":true,"metadata":'
    '{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-p"}},'
    '{"name":"x","type":"long","nullable":true,"metadata":'
    '{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"col-x"}}]}'
)
METADATA = Metadata(id="t", schema_string=SCHEMA, partition_columns=("p",))
MAPPED = msgspec.structs.replace(METADATA, configuration={"delta.columnMapping.mode": "name"})
APPEND_ONLY = msgspec.structs.replace(METADATA, configuration={"delta.appendOnly": "true"})
VECTORS = enable(DEFAULT_PROTOCOL, "deletionVectors", "domainMetadata")


def vector(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, size_in_bytes=1, cardinality=1)


def add(path: str = "a", dv: str | None = None, **parts: Any) -> AddFile:
    return AddFile(
        **{
            "path": path,
            "partition_values": {"p": "1"},
            "size": 1,
            "modification_time": 0,
            "data_change": True,
            "stats": '{"numRecords":3}',
            "deletion_vector": None if dv is None else vector(dv),
            **parts,
        }
    )


def remove(path: str = "a", dv: str | None = None, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(path=path, data_change=data_change, deletion_vector=None if dv is None else vector(dv))


def judge(
    *, table_protocol: Protocol | None = VECTORS, table_metadata: Metadata | None = METADATA, **parts: Any
) -> LakesealError | None:
    proposal = Proposal(
        txn_id="t",
        read_version=0,
        operation=Operation(name="TEST"),
        isolation=IsolationLevel.WRITE_SERIALIZABLE,
        **parts,
    )
    try:
        validate(proposal, protocol=table_protocol, metadata=table_metadata, table="file:///t")
    except LakesealError as error:
        return error
    return None


def domain(name: str) -> DomainMetadata:
    return DomainMetadata(domain=name, configuration="{}", removed=False)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"adds": (add(),)},
        {"adds": (add("a"), add("b")), "removes": (remove("c"),)},
        {"adds": (add("a", dv="new"),), "removes": (remove("a"),)},
        {"adds": (add("a", dv="new"),), "removes": (remove("a", dv="old"),)},
        {"txns": (SetTransaction(app_id="a", version=1), SetTransaction(app_id="b", version=1))},
        {"domains": (domain("a"), domain("b"))},
        {"table_metadata": MAPPED, "adds": (add(partition_values={"col-p": None}),)},
        {"table_metadata": APPEND_ONLY, "removes": (remove(data_change=False),)},
        {"table_metadata": None, "table_protocol": None, "metadata": METADATA, "protocol": DEFAULT_PROTOCOL},
    ],
)
def test_what_is_in_order_passes(parts: dict[str, Any]) -> None:
    assert judge(**parts) is None


@pytest.mark.parametrize(
    ("parts", "error", "says"),
    [
        ({"adds": (add("a"), add("a"))}, InvalidArgument, "twice"),
        ({"adds": (add("a", dv="x"), add("a", dv="y"))}, InvalidArgument, "twice"),
        ({"adds": (add("s3://b/a"), add("s3a://b/a"))}, InvalidArgument, "twice"),
        ({"removes": (remove("a"), remove("a"))}, InvalidArgument, "twice"),
        ({"adds": (add("a"),), "removes": (remove("a"),)}, InvalidArgument, "add and remove the same file"),
        ({"adds": (add("a", dv="x"),), "removes": (remove("a", dv="x"),)}, InvalidArgument, "add and remove"),
        ({"txns": (SetTransaction(app_id="a", version=1),) * 2}, InvalidArgument, "only once"),
        ({"domains": (domain("a"), domain("a"))}, InvalidArgument, "only once"),
        ({"domains": (domain("delta.rowTracking"),)}, InvalidArgument, "kept by the commit"),
        ({"domains": (domain("a"),), "table_protocol": DEFAULT_PROTOCOL}, InvalidArgument, "domainMetadata"),
        ({"adds": (add(partition_values={}),)}, SchemaMismatch, "partition values for none"),
        ({"adds": (add(partition_values={"p": "1", "q": "1"}),)}, SchemaMismatch, "p, q"),
        ({"adds": (add(),), "table_metadata": MAPPED}, SchemaMismatch, "col-p"),
        (
            {"cdc": (AddCDCFile(path="c", partition_values={}, size=1, data_change=False),)},
            SchemaMismatch,
            "partitioned by p",
        ),
        ({"adds": (add(dv="x", stats=None),)}, InvalidArgument, "numRecords"),
        ({"adds": (add(dv="x"),), "table_protocol": DEFAULT_PROTOCOL}, InvalidArgument, "deletionVectors"),
        ({"removes": (remove(),), "table_metadata": APPEND_ONLY}, AppendOnlyTable, "only takes appends"),
        ({"metadata": Metadata(id="t")}, InvalidArgument, "needs a schema"),
        (
            {"metadata": Metadata(id="t", schema_string=SCHEMA, partition_columns=("q",))},
            InvalidArgument,
            "not one of its columns",
        ),
        ({"metadata": MAPPED, "table_protocol": DEFAULT_PROTOCOL}, InvalidArgument, "columnMapping"),
        ({"table_metadata": None, "table_protocol": None}, InvalidArgument, "first commit"),
    ],
)
def test_what_would_break_the_table_is_refused(parts: dict[str, Any], error: type[LakesealError], says: str) -> None:
    found = judge(**parts)
    assert type(found) is error
    assert says in str(found)
    assert found.table == "file:///t"


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [
        (Protocol(min_reader_version=1, min_writer_version=1), False),
        (Protocol(min_reader_version=1, min_writer_version=2), False),
        (Protocol(min_reader_version=2, min_writer_version=6), False),
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=()), False),
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=("teleportation",)), True),
        (Protocol(min_reader_version=1, min_writer_version=8), True),
        (Protocol(min_reader_version=4, min_writer_version=7, reader_features=(), writer_features=()), True),
    ],
)
def test_field_bug_12_lower_protocol_versions_are_written_and_higher_ones_are_not(
    protocol: Protocol, refused: bool
) -> None:
    found = judge(table_protocol=protocol, adds=(add(),))
    assert (type(found) is UnsupportedFeature) is refused


def test_only_file_actions_are_handed_to_commit() -> None:
    cdc = AddCDCFile(path="c", partition_values={}, size=1, data_change=False)
    assert FileActions.of([cdc, remove("r"), add("a")]) == FileActions(
        adds=(add("a"),), removes=(remove("r"),), cdc=(cdc,)
    )
    for action in (CommitInfo(), METADATA, DEFAULT_PROTOCOL, SetTransaction(app_id="a", version=1)):
        with pytest.raises(InvalidArgument, match="file actions"):
            FileActions.of([action])


def test_data_changes_unless_all_files_say_that_it_does_not() -> None:
    assert FileActions.of([]).changes_data
    assert FileActions.of([add(data_change=False), remove("r")]).changes_data
    assert not FileActions.of([add(data_change=False), remove("r", data_change=False)]).changes_data
