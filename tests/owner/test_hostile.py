"""Commits that a hostile client could think of: an owner that trusts nobody refuses each of them, typed and with the
line, and the table is as it was and goes on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from lakeseal.clock import now_ms
from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    BrokenCommit,
    InvalidArgument,
    InvalidCommit,
    LakesealError,
    PolicyRefused,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, CommitRequest, error_from_json, file_name
from lakeseal.owner.ownership import State
from lakeseal.owner.policies import AppendOnly, MaxBytes, MaxFiles, RequiredUserMetadata, SchemaOnlyWidens
from lakeseal.owner.validation import FURTHEST_AHEAD_MS
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import commit_path
from lakeseal.storage import Store, open_store
from support.managed_tables import add, append, create, managed_log, paths

INFO = "INFO"
"""Stands for the commitInfo that the request is made with."""


def line(**action: Any) -> str:
    return json.dumps(action)


def added(path: str = "new", **more: Any) -> str:
    file = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return line(add={**file, **more})


def removed(path: str = "a", **more: Any) -> str:
    return line(remove={"path": path, "dataChange": True, "deletionTimestamp": 1, **more})


def vector(**more: Any) -> dict[str, Any]:
    text = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 1}
    return {**text, "cardinality": 1, **more}


def protocol(*reader: str, **more: Any) -> str:
    writer = ["managedCommits", "inCommitTimestamp", *reader]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(reader), "writerFeatures": writer}
    return line(protocol={**versions, **more})


def column(name: str = "x", kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def metadata(*columns: dict[str, Any], owner: str = "lakeseal", partition_by: tuple[str, ...] = (), **more: Any) -> str:
    configuration = {
        "delta.managedCommitOwnerName": owner,
        "delta.managedCommitOwnerConf": "{}",
        "delta.enableInCommitTimestamps": "true",
        **{f"delta.{name}": value for name, value in more.items()},
    }
    schema = json.dumps({"type": "struct", "fields": list(columns) or [column()]})
    value = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    return line(metaData={**value, "partitionColumns": list(partition_by), "configuration": configuration})


class Hostile(NamedTuple):
    name: str
    lines: tuple[str, ...]
    error: type[LakesealError]
    at: int | None = None
    """The line that is named."""
    timestamp: Callable[[], int] = lambda: now_ms() + 1000


def doubled_schema() -> str:
    return metadata().replace('{\\"name\\": \\"x\\",', '{\\"name\\": \\"y\\", \\"name\\": \\"x\\",')


def row_ids(said: str) -> str:
    return line(domainMetadata={"domain": "delta.rowTracking", "configuration": said, "removed": False})


XY = (column(), column("y"))
HOSTILE = (
    # Policies: what is decided on is what readers will understand, however it is written.
    Hostile("a remove whose key is escaped", (INFO, r'{"\u0072emove":{"path":"a","dataChange":true}}'), PolicyRefused),
    Hostile(
        "a remove whose field is escaped", (INFO, r'{"remove":{"p\u0061th":"a","dataChange":true}}'), PolicyRefused
    ),
    Hostile("a remove after blanks", (INFO, " " * 99 + removed()), PolicyRefused),
    Hostile("a remove that says it changes nothing", (INFO, removed(dataChange=False)), PolicyRefused),
    Hostile(
        "a rewrite with fewer rows",
        (INFO, removed(dataChange=False), added(dataChange=False, stats='{"numRecords":2}')),
        PolicyRefused,
    ),
    Hostile(
        "new rows in the place of old ones",
        (INFO, removed(dataChange=False), added(dataChange=True, stats='{"numRecords":3}')),
        PolicyRefused,
    ),
    Hostile(
        "a deletion vector for all rows of a file",
        (
            INFO,
            protocol("deletionVectors"),
            removed(dataChange=False),
            added("a", dataChange=False, stats='{"numRecords":9}', deletionVector=vector(cardinality=3)),
        ),
        PolicyRefused,
    ),
    Hostile("a file again in another partition", (INFO, added("a", partitionValues={"x": "1"})), PolicyRefused),
    Hostile(
        "a file again with fewer rows", (INFO, added("a", dataChange=False, stats='{"numRecords":0}')), PolicyRefused
    ),
    Hostile(
        "a file again with bounds that hide its rows",
        (INFO, added("a", dataChange=False, stats='{"numRecords":3,"maxValues":{"x":0}}')),
        PolicyRefused,
    ),
    Hostile("a file again with another size", (INFO, added("a", size=2, stats='{"numRecords":3}')), PolicyRefused),
    Hostile(
        "another name in files",
        (INFO, metadata(column(**{"delta.columnMapping.physicalName": "elsewhere"}))),
        PolicyRefused,
    ),
    Hostile(
        "columns by ids that no file has",
        (INFO, protocol("columnMapping"), metadata(**{"columnMapping.mode": "id"})),
        PolicyRefused,
    ),
    Hostile("a column dropped", (INFO, metadata(column("y"))), PolicyRefused),
    Hostile("a column in other letters", (INFO, metadata(column("X"))), PolicyRefused),
    Hostile("a narrower column", (INFO, metadata(column(kind="integer"))), PolicyRefused),
    Hostile("another partitioning", (INFO, metadata(*XY, partition_by=("x",))), PolicyRefused),
    Hostile(
        "a generated column of a plain one",
        (
            INFO,
            protocol(writerFeatures=["managedCommits", "inCommitTimestamp", "generatedColumns"]),
            metadata(column(**{"delta.generationExpression": "1"})),
        ),
        PolicyRefused,
    ),
    Hostile("more files than allowed, the last line open", (INFO, *(added(f"f{n}") for n in range(6))), PolicyRefused),
    Hostile("bytes that pay for others", (INFO, added("b", size=2000), added("c", size=-2000)), InvalidCommit, 3),
    Hostile("bytes that are said to be old", (INFO, added("b", size=2000, dataChange=False)), PolicyRefused),
    Hostile("another owner", (INFO, metadata(owner="mallory")), PolicyRefused),
    # The form.
    Hostile("two commitInfos", (INFO, INFO), InvalidCommit, 2),
    Hostile("a second commitInfo with other words", (INFO, line(commitInfo={"txnId": "other"})), InvalidCommit, 2),
    Hostile("a commitInfo that is not first", (added(), INFO), InvalidCommit, 1),
    Hostile("no commitInfo", (added(),), InvalidCommit, 1),
    Hostile("two metadata", (INFO, metadata(), metadata()), InvalidCommit, 3),
    Hostile("two protocols", (INFO, protocol(), protocol()), InvalidCommit, 3),
    Hostile("a file added and removed", (INFO, added("b"), removed("b")), InvalidCommit, 3),
    Hostile("a file added and removed in two spellings", (INFO, added("b"), removed("%62")), InvalidCommit, 3),
    Hostile("a file added twice", (INFO, added("b"), added("b")), InvalidCommit, 3),
    Hostile("a key given twice", (INFO, '{"add":{"path":"b"},"add":{"path":"c"}}'), BrokenCommit, 2),
    Hostile("two actions in one line", (INFO, '{"add":{"path":"b"},"remove":{"path":"a"}}'), BrokenCommit, 2),
    Hostile(
        "two transactions of one application", (INFO, *2 * (line(txn={"appId": "a", "version": 1}),)), InvalidCommit, 3
    ),
    Hostile("a part of a checkpoint", (INFO, line(checkpointMetadata={"version": 1})), InvalidCommit, 2),
    Hostile("a line behind what only some take for a blank", (INFO, "\x0b" + added("b")), BrokenCommit, 2),
    Hostile("a line of what only some take for a blank", (INFO, "\x0c"), BrokenCommit, 2),
    Hostile("half a line", (INFO, '{"add":{"path":"b"'), BrokenCommit, 2),
    # What an owner that trusts nobody asks for.
    Hostile("the end of time", (INFO,), InvalidCommit, 1, lambda: 2**63 - 1),
    Hostile("next week", (INFO,), InvalidCommit, 1, lambda: now_ms() + 7 * 86_400_000),
    Hostile("an unknown reader feature", (INFO, protocol("tomorrowsFeature")), InvalidCommit, 2),
    Hostile(
        "an unknown writer feature",
        (INFO, protocol(writerFeatures=["managedCommits", "inCommitTimestamp", "x"])),
        InvalidCommit,
        2,
    ),
    Hostile("a reader version of the future", (INFO, protocol(minReaderVersion=4)), InvalidCommit, 2),
    Hostile("a writer version of the future", (INFO, protocol(minWriterVersion=8)), InvalidCommit, 2),
    Hostile("a path out of the table", (INFO, added("../../x")), InvalidCommit, 2),
    Hostile("a path out of the table in escapes", (INFO, added("%2e%2e/x")), InvalidCommit, 2),
    Hostile("a path with a detour", (INFO, added("p/../a")), InvalidCommit, 2),
    Hostile("an absolute path", (INFO, added("/etc/passwd")), InvalidCommit, 2),
    Hostile("a file's URI", (INFO, added("file:///etc/passwd")), InvalidCommit, 2),
    Hostile("another store", (INFO, added("s3://other/x")), InvalidCommit, 2),
    Hostile("a file in the log", (INFO, added("_delta_log/00000000000000000000.json")), InvalidCommit, 2),
    Hostile(
        "a change file elsewhere",
        (INFO, line(cdc={"path": "../x", "partitionValues": {}, "size": 1, "dataChange": False})),
        InvalidCommit,
        2,
    ),
    Hostile("a remove elsewhere", (INFO, removed("s3://other/x")), InvalidCommit, 2),
    Hostile(
        "a deletion vector elsewhere",
        (INFO, added("b", deletionVector=vector(storageType="p", pathOrInlineDv="s3://other/x"))),
        InvalidCommit,
        2,
    ),
    Hostile(
        "a deletion vector out of the table",
        (INFO, added("b", deletionVector=vector(pathOrInlineDv="../" + vector()["pathOrInlineDv"]))),
        InvalidCommit,
        2,
    ),
    Hostile(
        "a deletion vector of no known kind",
        (INFO, added("b", deletionVector=vector(storageType="z"))),
        InvalidCommit,
        2,
    ),
    Hostile("a schema that is none", (INFO, metadata(column(kind="nonsense"))), InvalidCommit, 2),
    Hostile("files of another format", (INFO, metadata().replace('"parquet"', '"orc"')), InvalidCommit, 2),
    Hostile("a schema that says a key twice", (INFO, doubled_schema()), InvalidCommit, 2),
    Hostile("no schema", (INFO, metadata().replace('"schemaString"', '"x"')), InvalidCommit, 2),
    Hostile("a column whose name ends early", (INFO, metadata(column(), column("a\0b"))), InvalidCommit, 2),
    Hostile("a partition column twice", (INFO, metadata(*XY, partition_by=("y", "y"))), InvalidCommit, 2),
    Hostile("a partition column in other letters", (INFO, metadata(*XY, partition_by=("Y",))), InvalidCommit, 2),
    Hostile("nothing but partition columns", (INFO, metadata(partition_by=("x",))), InvalidCommit, 2),
    Hostile(
        "partitions by a struct",
        (INFO, metadata(column(), column("s", {"type": "struct", "fields": []}), partition_by=("s",))),
        InvalidCommit,
        2,
    ),
    Hostile("a property that is null", (INFO, metadata(comment=None)), InvalidCommit, 2),
    *(
        Hostile(f"{name} that is {text}", (INFO, metadata(**{name: text})), InvalidCommit, 2)
        for name, text in (
            ("appendOnly", "maybe"),
            ("checkpointPolicy", "none"),
            ("checkpointInterval", "0"),
            ("dataSkippingNumIndexedCols", "many"),
            ("inCommitTimestampEnablementVersion", "early"),
            ("inCommitTimestampEnablementVersion", "99999"),
        )
    ),
    *(
        Hostile(f"{what} without the feature", (INFO, said), InvalidCommit, 2)
        for what, said in (
            ("column mapping", metadata(**{"columnMapping.mode": "name"})),
            ("times without zone", metadata(column(), column("at", "timestamp_ntz"))),
            ("variants", metadata(column(), column("v", "variant"))),
            ("deletion vectors", metadata(enableDeletionVectors="true")),
            ("a default", metadata(column(CURRENT_DEFAULT="1"))),
            ("a file's deletion vector", added("b", deletionVector=vector())),
        )
    ),
    Hostile("a protocol that shuts out readers", (INFO, protocol("catalogManaged")), PolicyRefused),
    Hostile("all row ids taken", (INFO, row_ids('{"rowIdHighWaterMark":9223372036854775807}')), InvalidCommit, 2),
    Hostile("row ids that are no number", (INFO, row_ids("garbage")), InvalidCommit, 2),
    Hostile("a base row id at the end", (INFO, added("b", baseRowId=2**63 - 1)), InvalidCommit, 2),
    Hostile("a base row id before the first", (INFO, added("b", baseRowId=-5)), InvalidCommit, 2),
    *(
        Hostile(f"a path that is no URI: {path!r}", (INFO, added(path)), InvalidCommit, 2)
        for path in ("x:y", "b?c", "b#c", "b%zz", "b%ff", "b c", "..\\b", "b|c")
    ),
    Hostile("numbers beyond 64 bits", (INFO, added("b", size=2**64)), BrokenCommit, 2),
)
POLICIES = (AppendOnly(), SchemaOnlyWidens(), MaxFiles(limit=5), MaxBytes(limit=1000))


def test_there_are_at_least_forty_of_them() -> None:
    assert len({one.name for one in HOSTILE}) == len(HOSTILE) >= 40


@pytest.fixture
def distrustful(open_owner) -> LedgerOwner:
    owner: LedgerOwner = open_owner(policies=POLICIES, trusting=False, backfills=False)
    return owner


def started(owner: LedgerOwner, store: Store) -> None:
    log, managed = create(store, owner)
    rows = msgspec.structs.replace(add("a"), stats='{"numRecords":3}')
    OptimisticTransaction.begin(log, managed).commit([rows], Operation(name="WRITE"))


def requested(owner: LedgerOwner, store: Store, one: Hostile, *, staged: bool) -> CommitRequest:
    txn_id, timestamp = str(uuid.uuid4()), one.timestamp()
    info = line(commitInfo={"txnId": txn_id, "inCommitTimestamp": timestamp, "operation": "WRITE"})
    data = "\n".join(info if text == INFO else text for text in one.lines).encode()
    told = owner.get_commits(store.uri)
    request = CommitRequest(
        table=store.uri,
        version=told.latest + 1,
        txn_id=txn_id,
        file=file_name(told.latest + 1, str(uuid.uuid4())) if staged else None,
        size=len(data),
        in_commit_timestamp=timestamp,
        epoch=told.epoch,
        data=None if staged else data,
    )
    if staged:
        store.put_if_absent(request.key, data)
    return request


@pytest.mark.parametrize("staged", [False, True], ids=["in the request", "in its file"])
@pytest.mark.parametrize("one", HOSTILE, ids=[one.name for one in HOSTILE])
def test_a_hostile_commit_is_refused_with_its_line_and_the_table_goes_on(
    distrustful: LedgerOwner, memory: Store, one: Hostile, staged: bool
) -> None:
    started(distrustful, memory)
    before = distrustful.get_commits(memory.uri)
    with pytest.raises(one.error) as raised:
        distrustful.ratify(Batch(commits=(requested(distrustful, memory, one, staged=staged),)))
    assert raised.value.table == memory.uri
    assert raised.value.version == 2
    if one.at is not None:
        assert f"Line {one.at}" in raised.value.message
    if isinstance(raised.value, InvalidCommit):
        assert raised.value.line == one.at
        assert getattr(error_from_json(raised.value.to_json()), "line", None) == one.at
    assert distrustful.get_commits(memory.uri) == before
    log, managed = managed_log(distrustful, memory)
    append(log, managed, "b")
    assert paths(log) == ["a", "b"]


@pytest.mark.parametrize("trusting", [True, False])
def test_rows_do_not_vanish_from_an_append_only_table_in_two_steps(open_owner, memory: Store, trusting: bool) -> None:
    """First a file is said to hold nothing, then it is replaced by nothing."""
    owner = open_owner(policies=[AppendOnly()], trusting=trusting, backfills=False)
    started(owner, memory)
    steps = (
        (INFO, added("a", dataChange=False, stats='{"numRecords":0}')),
        (INFO, removed("a", dataChange=False)),
        (INFO, removed("./a")),
    )
    for lines in steps:
        with pytest.raises(LakesealError):
            owner.ratify(Batch(commits=(requested(owner, memory, Hostile("", lines, PolicyRefused), staged=False),)))
    log, managed = managed_log(owner, memory)
    again = msgspec.structs.replace(add("a"), stats='{ "numRecords": 3 }', tags={"seen": "yes"})
    OptimisticTransaction.begin(log, managed).commit([again], Operation(name="WRITE"))
    assert paths(log) == ["a"]


def test_row_ids_are_given_once(open_owner, memory: Store) -> None:
    owner = open_owner(trusting=False, backfills=False)
    started(owner, memory)
    tracked = protocol(writerFeatures=["managedCommits", "inCommitTimestamp", "rowTracking", "domainMetadata"])

    def commit(*lines: str) -> None:
        one = Hostile("", (INFO, *lines), InvalidCommit)
        owner.ratify(Batch(commits=(requested(owner, memory, one, staged=False),)))

    commit(tracked, metadata(enableRowTracking="true"), row_ids('{"rowIdHighWaterMark":9}'))
    for said in ('{"rowIdHighWaterMark":8}', '{"rowIdHighWaterMark":-1}', '{"rowIdHighWaterMark":1000000000000000}'):
        with pytest.raises(InvalidCommit, match="ow ids up to 9 are given out"):
            commit(row_ids(said))
    with pytest.raises(InvalidCommit):
        commit(row_ids("{}").replace("false", "true"))
    commit(row_ids('{"rowIdHighWaterMark":12}'), added("b", baseRowId=10))


CREATIONS = {
    "max-files": [add(f"f{number}") for number in range(6)],
    "max-bytes": [add("f", size=2000)],
    "required-user-metadata": [add("f")],
}


@pytest.mark.parametrize("trusting", [True, False])
@pytest.mark.parametrize("inline_bytes", [0, 8192])
@pytest.mark.parametrize("policy", CREATIONS)
def test_the_commit_that_creates_a_table_is_looked_at_like_any_other(
    open_owner, local: Store, policy: str, inline_bytes: int, trusting: bool
) -> None:
    needed = RequiredUserMetadata() if policy == "required-user-metadata" else None
    policies = [*POLICIES, *([needed] if needed else [])]
    owner = open_owner(policies=policies, trusting=trusting, inline_bytes=inline_bytes)
    log, managed = managed_log(owner, local)
    txn = OptimisticTransaction.begin(log, managed)
    txn.update_metadata(Metadata(id="t", schema_string='{"type":"struct","fields":[]}'))
    with pytest.raises(PolicyRefused) as raised:
        txn.commit(CREATIONS[policy], Operation(name="CREATE TABLE AS SELECT"))
    assert raised.value.policy == policy
    assert [meta.key for meta in local.list("", recursive=True)] == [], "nothing can be seen of it"
    assert owner.get_commits(local.uri).state is State.NONE


def test_a_table_that_is_created_with_other_bytes_than_were_shown_is_not_owned(distrustful, memory: Store) -> None:
    managed = ManagedOwner(distrustful, memory)
    claimed = managed.claim(Metadata(id="t", schema_string='{"type":"struct","fields":[]}'), None)
    txn_id, stamp = str(uuid.uuid4()), now_ms()
    info = line(commitInfo={"txnId": txn_id, "inCommitTimestamp": stamp})
    shown = (info + "\n" + protocol() + "\n").encode() + encode([claimed])
    request = managed.request(0, shown, txn_id=txn_id)
    assert distrustful.begin_takeover(memory.uri, txn_id, 0, request).state is State.PENDING
    memory.put(commit_path(0), shown + b"\n".join(added(f"f{number}").encode() for number in range(6)))
    assert distrustful.confirm_takeover(memory.uri, txn_id).state is State.NONE
    with pytest.raises(InvalidArgument, match="has to show its first commit"):
        distrustful.begin_takeover(memory.uri, "another", 0)
    with pytest.raises(InvalidArgument, match="not the one that creates"):
        distrustful.begin_takeover(memory.uri, "another", 0, request)


def test_a_clock_that_was_wrong_once_does_not_keep_others_from_committing(open_owner, memory: Store) -> None:
    trusting = open_owner(backfills=False)
    ahead = now_ms() + 10 * FURTHEST_AHEAD_MS
    log, managed = create(memory, trusting)
    OptimisticTransaction.begin(log, managed, clock=lambda: ahead).commit([add("a")], Operation(name="WRITE"))
    careful = LedgerOwner(trusting.ledger, trusting=False, backfills=False)
    log, managed = managed_log(careful, memory)
    for name in "bc":
        append(log, managed, name)
    assert paths(log) == ["a", "b", "c"]


def test_files_elsewhere_that_a_table_has_already_stay_its_files(open_owner, memory: Store) -> None:
    """Those of a shallow clone that was taken over."""
    trusting = open_owner(backfills=False)
    log, managed = create(memory, trusting)
    append(log, managed, "s3://source/a")
    careful = LedgerOwner(trusting.ledger, trusting=False, backfills=False)
    log, managed = managed_log(careful, memory)
    txn = OptimisticTransaction.begin(log, managed)
    again = msgspec.structs.replace(add("s3://source/a"), tags={"seen": "yes"})
    txn.commit([again], Operation(name="WRITE"))
    with pytest.raises(InvalidCommit, match="outside of the table"):
        append(log, managed, "s3://source/b")


@pytest.mark.parametrize("tables", ["relative", "plain", "file:uri", "with slashes", "*"])
def test_a_policy_holds_for_a_place_in_any_spelling(open_owner, tmp_path, monkeypatch, tables: str) -> None:
    monkeypatch.chdir(tmp_path)
    spelled = {
        "relative": "raw",
        "plain": f"{tmp_path}/raw",
        "file:uri": f"file:{tmp_path}/raw",
        "with slashes": f"{tmp_path}//x/../raw/",
        "*": "*",
    }[tables]
    owner = open_owner(policies=[MaxFiles(limit=1, tables=spelled)])
    store = open_store(tmp_path / "raw" / "t")
    log, managed = create(store, owner)
    with pytest.raises(PolicyRefused):
        append(log, managed, "a", "b")
    if tables != "*":
        beside = open_store(tmp_path / "rawer")
        append(*create(beside, owner), "a", "b")


def test_a_policy_that_holds_for_no_table_gets_a_word_once(open_owner, memory: Store, caplog) -> None:
    policies = [MaxFiles(limit=9, tables="s3://bucket/nobody"), MaxFiles(limit=9, tables=memory.uri), AppendOnly()]
    owner = open_owner(policies=policies)
    log, managed = create(memory, owner)
    append(log, managed, "a")
    words = [record.message for record in caplog.records if "holds for no table" in record.message]
    assert len(words) == 1
    assert "max-files" in words[0]
    assert "s3://bucket/nobody" in words[0]


def test_a_transaction_is_known_by_its_id_however_that_is_written(memory: Store) -> None:
    escaped = rb'{"\u0063ommitInfo":{"txnId":"t","inCommitTimestamp":1}}'
    assert txn_id_of(b'{"add":{}}\n' + escaped) == "t"
    memory.put(commit_path(0), escaped + b"\n")
    info = DeltaLog(memory).commit_info(0)
    assert info is not None
    assert info.txn_id == "t"
    blank = b"{" + b" " * 99 + b'"commitInfo":{"txnId":"u"}}'
    memory.put(commit_path(1), blank)
    later = DeltaLog(memory).commit_info(1)
    assert later is not None
    assert later.txn_id == "u"
