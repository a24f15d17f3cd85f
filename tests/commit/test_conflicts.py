"""The conflict table: every row, at the three isolation levels."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lakeseal.commit.conflicts import Clash, check
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.proposal import Operation, Proposal
from lakeseal.commit.read_set import ReadSet
from lakeseal.commit.winner import WinningCommit
from lakeseal.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentModification,
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
)
from lakeseal.log.files import adds_from_actions
from lakeseal.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)

LEVELS = list(IsolationLevel)
S, WS, SI = LEVELS
SCHEMA = (
    '{"type":"struct","fields":[{"name":"p","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
)
METADATA = Metadata(id="t", schema_string=SCHEMA, partition_columns=("p",))
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def add(path: str, p: int = 1, *, data_change: bool = True, dv: str | None = None) -> AddFile:
    return AddFile(
        path=path,
        partition_values={"p": str(p)},
        size=1,
        modification_time=0,
        data_change=data_change,
        deletion_vector=None if dv is None else vector(dv),
    )


def remove(path: str, *, data_change: bool = True, dv: str | None = None) -> RemoveFile:
    return RemoveFile(path=path, data_change=data_change, deletion_vector=None if dv is None else vector(dv))


def vector(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=1)


def files(*paths: str) -> pa.Table:
    return adds_from_actions([add(path) for path in paths])


def by_partition(predicate: str, table: pa.Table) -> pa.Array:
    wanted = predicate.removeprefix("p = ")
    return pa.array([dict(values)["p"] == wanted for values in table["partitionValues"].to_pylist()], pa.bool_())


def propose(level: IsolationLevel, **parts: Any) -> Proposal:
    return Proposal(
        **{"txn_id": "ours", "read_version": 4, "operation": Operation(name="MERGE"), "isolation": level, **parts}
    )


def won(*actions: Action, blind: bool | None = None, operation: str = "WRITE") -> WinningCommit:
    return WinningCommit.from_actions(5, [CommitInfo(operation=operation, is_blind_append=blind), *actions])


def judge(ours: Proposal, winner: WinningCommit) -> Clash | None:
    return check(ours, winner, before=METADATA, may_match=by_partition)


def error_of(clash: Clash | None) -> type[ConcurrentModification] | None:
    return None if clash is None else clash.error


NEVER = {S: None, WS: None, SI: None}


def always(error: type[ConcurrentModification]) -> dict[IsolationLevel, type[ConcurrentModification] | None]:
    return dict.fromkeys(LEVELS, error)


APPEND = ConcurrentAppendException
WHOLE = ReadSet(whole_table=True)
P1 = ReadSet(predicates=("p = 1",), files=(files("old1"),))
NOTHING = ReadSet()
NEW_FEATURES = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants"))
UNKNOWN_FEATURE = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("teleportation",))


def changed(**configuration: str) -> Metadata:
    return msgspec.structs.replace(
        METADATA, configuration={name.replace("_", "."): value for name, value in configuration.items()}
    )


CASES: list[tuple[str, dict[str, Any], WinningCommit, dict[IsolationLevel, type[ConcurrentModification] | None]]] = [
    ("protocol: both change it", {"protocol": NEW_FEATURES}, won(NEW_FEATURES), always(ProtocolChangedException)),
    ("protocol: a feature that we lack", {}, won(UNKNOWN_FEATURE), always(ProtocolChangedException)),
    (
        "protocol: a version that we lack",
        {},
        won(Protocol(min_reader_version=1, min_writer_version=8)),
        always(ProtocolChangedException),
    ),
    (
        "protocol: a reader version that we lack",
        {},
        won(Protocol(min_reader_version=4, min_writer_version=7, reader_features=(), writer_features=())),
        always(ProtocolChangedException),
    ),
    ("protocol: features that we have", {"adds": (add("new"),)}, won(NEW_FEATURES), NEVER),
    ("protocol: a lower version", {"adds": (add("new"),)}, won(PROTOCOL), NEVER),
    (
        "protocol: before everything else",
        {"protocol": NEW_FEATURES, "metadata": METADATA, "reads": WHOLE, "removes": (remove("old1"),)},
        won(NEW_FEATURES, changed(a="b"), remove("old1"), add("new")),
        always(ProtocolChangedException),
    ),
    (
        "metadata: a property",
        {"adds": (add("new"),)},
        won(changed(delta_appendOnly="true")),
        always(MetadataChangedException),
    ),
    (
        "metadata: before the files",
        {"reads": WHOLE, "removes": (remove("old1"),)},
        won(changed(a="b"), remove("old1"), add("new")),
        always(MetadataChangedException),
    ),
    (
        "metadata: even a safe property if we change metadata too",
        {"metadata": changed(a="b")},
        won(changed(delta_checkpointInterval="20")),
        always(MetadataChangedException),
    ),
    ("metadata: maintenance", {"reads": P1}, won(changed(delta_checkpointInterval="20")), NEVER),
    (
        "metadata: in-commit timestamps switched on",
        {"reads": P1},
        won(
            changed(
                delta_enableInCommitTimestamps="true",
                delta_inCommitTimestampEnablementVersion="5",
                delta_inCommitTimestampEnablementTimestamp="7",
            )
        ),
        NEVER,
    ),
    (
        "metadata: row tracking switched on under an append",
        {"adds": (add("new"),)},
        won(changed(delta_enableRowTracking="true")),
        NEVER,
    ),
    (
        "metadata: row tracking switched on under a rewrite",
        {"adds": (add("new"),), "removes": (remove("old1"),)},
        won(changed(delta_enableRowTracking="true")),
        always(MetadataChangedException),
    ),
    (
        "metadata: the schema",
        {"adds": (add("new"),)},
        won(msgspec.structs.replace(METADATA, schema_string=SCHEMA.replace('"x"', '"y"'))),
        always(MetadataChangedException),
    ),
    (
        "domain: both set it",
        {"domains": (DomainMetadata(domain="app", configuration="1", removed=False),)},
        won(DomainMetadata(domain="app", configuration="2", removed=False)),
        always(ConcurrentTransactionException),
    ),
    (
        "domain: removed by the winner",
        {"domains": (DomainMetadata(domain="app", configuration="1", removed=False),)},
        won(DomainMetadata(domain="app", configuration="", removed=True)),
        always(ConcurrentTransactionException),
    ),
    (
        "domain: another one",
        {"domains": (DomainMetadata(domain="app", configuration="1", removed=False),)},
        won(DomainMetadata(domain="other", configuration="2", removed=False)),
        NEVER,
    ),
    (
        "domain: one that tells of columns, while we change them",
        {"metadata": changed(a="b")},
        won(DomainMetadata(domain="delta.clustering", configuration="{}", removed=False)),
        always(ConcurrentTransactionException),
    ),
    (
        "domain: row ids, while we change metadata",
        {"metadata": changed(a="b")},
        won(DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False)),
        NEVER,
    ),
    (
        "domain: row ids are given out anew",
        {"domains": (DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False),)},
        won(DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False)),
        NEVER,
    ),
    (
        "txn: an app id that we read",
        {"reads": ReadSet(app_ids=frozenset({"stream"}))},
        won(SetTransaction(app_id="stream", version=1)),
        always(ConcurrentTransactionException),
    ),
    (
        "txn: another app id",
        {"reads": ReadSet(app_ids=frozenset({"stream"}))},
        won(SetTransaction(app_id="other", version=1)),
        NEVER,
    ),
    ("adds: blind, we read nothing", {"adds": (add("new"),)}, won(add("theirs"), blind=True), NEVER),
    ("adds: not blind, we read nothing", {"adds": (add("new"),)}, won(add("theirs")), NEVER),
    ("adds: blind, whole table read", {"reads": WHOLE}, won(add("a"), blind=True), {S: APPEND, WS: None, SI: None}),
    ("adds: not blind, whole table", {"reads": WHOLE}, won(add("a")), {S: APPEND, WS: APPEND, SI: None}),
    (
        "adds: blind, whole table read, we change metadata",
        {"reads": WHOLE, "metadata": changed(a="b")},
        won(add("a"), blind=True),
        always(APPEND),
    ),
    (
        "a vacuum, while we bring files back",
        {"brings_back": True},
        won(operation="VACUUM START"),
        always(ConcurrentDeleteReadException),
    ),
    ("a vacuum", {"reads": WHOLE}, won(operation="VACUUM END"), NEVER),
    ("adds: blind, predicate matches", {"reads": P1}, won(add("a"), blind=True), {S: APPEND, WS: None, SI: None}),
    ("adds: not blind, predicate matches", {"reads": P1}, won(add("a")), {S: APPEND, WS: APPEND, SI: None}),
    ("adds: not blind, other partition", {"reads": P1}, won(add("a", 2)), NEVER),
    (
        "adds: says blind but removes",
        {"reads": P1},
        won(add("a"), remove("x"), blind=True),
        {S: APPEND, WS: APPEND, SI: None},
    ),
    ("adds: only files were read", {"reads": ReadSet(files=(files("old1"),))}, won(add("a")), NEVER),
    ("adds: rows only rearranged", {"reads": P1}, won(add("a", data_change=False)), NEVER),
    (
        "adds: a path that we add too",
        {"adds": (add("same", dv="ours"),)},
        won(add("same", dv="theirs"), blind=True),
        always(APPEND),
    ),
    ("removes: nothing read", {"adds": (add("new"),)}, won(remove("old1")), NEVER),
    ("removes: whole table read", {"reads": WHOLE}, won(remove("old2")), always(ConcurrentDeleteReadException)),
    (
        "removes: whole table read, rows only rearranged",
        {"reads": WHOLE},
        won(remove("old2", data_change=False), add("a", data_change=False)),
        always(ConcurrentDeleteReadException),
    ),
    ("removes: a file that we read", {"reads": P1}, won(remove("old1")), always(ConcurrentDeleteReadException)),
    (
        "removes: a file that we read, with another deletion vector",
        {"reads": P1},
        won(remove("old1", dv="a")),
        always(ConcurrentDeleteReadException),
    ),
    ("removes: a file that we did not read", {"reads": P1}, won(remove("old2")), NEVER),
    (
        "removes: a file that we remove",
        {"removes": (remove("old1"),)},
        won(remove("old1")),
        always(ConcurrentDeleteDeleteException),
    ),
    (
        "removes: a file that we remove, with another deletion vector",
        {"removes": (remove("old1", dv="a"),)},
        won(remove("old1", dv="b"), add("old1", dv="c")),
        always(ConcurrentDeleteDeleteException),
    ),
    (
        "removes: the same absolute path spelled otherwise",
        {"removes": (remove("s3a://bucket/t/old%201"),)},
        won(remove("s3://bucket/t/x/../old%201")),
        always(ConcurrentDeleteDeleteException),
    ),
    ("removes: another file than ours", {"removes": (remove("old1"),)}, won(remove("old2")), NEVER),
    (
        "removes: reading comes before removing",
        {"reads": P1, "removes": (remove("old1"),)},
        won(remove("old1")),
        always(ConcurrentDeleteReadException),
    ),
]


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize(("ours", "winner", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_conflict_table(
    ours: dict[str, Any],
    winner: WinningCommit,
    expected: dict[IsolationLevel, type[ConcurrentModification] | None],
    level: IsolationLevel,
) -> None:
    assert error_of(judge(propose(level, **ours), winner)) is expected[level]


def test_two_creators_of_one_table_conflict_and_the_loser_is_told_to_open_it() -> None:
    ours = propose(WS, protocol=PROTOCOL, metadata=METADATA, read_version=-1)
    clash = check(ours, won(PROTOCOL, METADATA), before=None, may_match=by_partition)
    assert clash is not None
    assert clash.error is ProtocolChangedException
    assert "empty" in clash.hint


def test_error_names_table_version_operation_file_and_what_to_do() -> None:
    clash = judge(propose(S, reads=P1), won(add("p=1/theirs.parquet")))
    assert clash is not None
    error = clash.to_error("s3://bucket/t")
    assert (error.table, error.version, error.file) == ("s3://bucket/t", 5, "p=1/theirs.parquet")
    assert "WRITE" in str(error)
    assert "p = 1" in str(error)
    assert "WriteSerializable" in error.hint


def test_a_winner_without_commit_info_is_not_taken_for_a_blind_append() -> None:
    winner = WinningCommit.from_actions(5, [add("a")])
    assert error_of(judge(propose(WS, reads=WHOLE), winner)) is APPEND
    assert "unnamed" in winner.operation
