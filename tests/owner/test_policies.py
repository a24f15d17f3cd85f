"""An owner can refuse a commit: by policy, with its name, and with nothing to be seen of it."""

from __future__ import annotations

import json

import msgspec
import pytest

from lakeseal.commit.owner import Committed
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import CommitOutcomeUnknown, InvalidArgument, PolicyRefused, Refused
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import error_from_json
from lakeseal.owner.policies import (
    AllowedPrincipals,
    AppendOnly,
    Callback,
    MaxBytes,
    MaxFiles,
    Policy,
    RequiredUserMetadata,
    SchemaOnlyWidens,
    from_json,
)
from lakeseal.protocol.actions import AddFile, Metadata, RemoveFile
from lakeseal.protocol.paths import COMMITS_DIR
from lakeseal.storage import Store, is_below
from support.managed_tables import add, append, create, managed_log, newest, remove


def schema(*fields: tuple[str, object, bool]) -> str:
    return json.dumps(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": u, "metadata": {}} for n, t, u in fields]}
    )


def with_rows(path: str, rows: int, *, data_change: bool = True) -> AddFile:
    return msgspec.structs.replace(add(path), stats=f'{{"numRecords":{rows}}}', data_change=data_change)


def gone(path: str) -> RemoveFile:
    """Said to change no data."""
    return RemoveFile(path=path, data_change=False)


def try_commit(owner: LedgerOwner, store: Store, actions, *, user_metadata=None, metadata: Metadata | None = None):
    log, managed = managed_log(owner, store)
    txn = OptimisticTransaction.begin(log, managed)
    if metadata is not None:
        txn.update_metadata(metadata)
    return txn.commit(actions, Operation(name="WRITE", user_metadata=user_metadata))


def refused(owner: LedgerOwner, store: Store, policy: str, actions, **more) -> PolicyRefused:
    before = newest(store, owner), store.list_keys(COMMITS_DIR)
    with pytest.raises(PolicyRefused) as raised:
        try_commit(owner, store, actions, **more)
    assert raised.value.policy == policy
    assert policy in str(raised.value)
    assert raised.value.table == store.uri
    assert isinstance(raised.value, Refused)
    assert (newest(store, owner), store.list_keys(COMMITS_DIR)) == before, "nothing can be seen of it"
    return raised.value


def guarded(open_owner, store: Store, *policies: Policy, **options: object) -> LedgerOwner:
    owner: LedgerOwner = open_owner(policies=policies, batch_size=100, **options)
    create(store, owner)
    return owner


def test_append_only_lets_files_be_added_and_rewritten_but_no_row_removed(open_owner, memory: Store) -> None:
    owner = guarded(open_owner, memory, AppendOnly())
    try_commit(owner, memory, [with_rows("a", 3), with_rows("b", 4)])
    refused(owner, memory, "append-only", [remove("a")])
    try_commit(owner, memory, [gone("a"), gone("b"), with_rows("c", 7, data_change=False)])
    try_commit(owner, memory, [gone("never there"), with_rows("d", 1)])


def test_append_only_counts_the_rows_of_what_takes_the_place_of_removed_files(open_owner, memory: Store) -> None:
    owner = guarded(open_owner, memory, AppendOnly())
    try_commit(owner, memory, [with_rows("a", 3), add("uncounted")])
    for actions in (
        [gone("a")],
        [gone("a"), with_rows("b", 2, data_change=False)],
        [gone("a"), with_rows("b", 100)],
        [gone("a"), add("b")],
        [gone("uncounted"), with_rows("b", 100, data_change=False)],
    ):
        refused(owner, memory, "append-only", actions)


def test_allowed_principals_are_the_only_ones_who_may_commit(open_owner, memory: Store) -> None:
    owner = guarded(open_owner, memory, AllowedPrincipals(principals=frozenset({"ann", "bob"})), principal="ann")
    try_commit(owner, memory, [add("a")])
    stranger = LedgerOwner(
        owner.ledger, policies=[AllowedPrincipals(principals=frozenset({"ann"}))], principal="mallory"
    )
    assert "mallory may not" in str(refused(stranger, memory, "allowed-principals", [add("b")]))
    nobody = LedgerOwner(owner.ledger, policies=[AllowedPrincipals(principals=frozenset({"ann"}))])
    assert "an unnamed client" in str(refused(nobody, memory, "allowed-principals", [add("b")]))


def test_files_and_bytes_of_a_commit_are_limited(open_owner, memory: Store) -> None:
    owner = guarded(open_owner, memory, MaxFiles(limit=3), MaxBytes(limit=100))
    try_commit(owner, memory, [add(name) for name in "abc"])
    refused(owner, memory, "max-files", [add(name) for name in "defg"])
    refused(owner, memory, "max-bytes", [add("d", size=60), add("e", size=41)])
    try_commit(owner, memory, [add("d", size=60), add("e", size=40)])


def test_user_metadata_can_be_required(open_owner, sqlite_url: str, memory: Store) -> None:
    create(memory, open_owner(sqlite_url))
    owner = open_owner(sqlite_url, policies=[RequiredUserMetadata(keys=("ticket", "by"))], batch_size=100)
    refused(owner, memory, "required-user-metadata", [add("a")])
    refused(owner, memory, "required-user-metadata", [add("a")], user_metadata="just text")
    error = refused(owner, memory, "required-user-metadata", [add("a")], user_metadata='{"ticket":"T-1"}')
    assert "lacks by" in str(error)
    try_commit(owner, memory, [add("a")], user_metadata='{"ticket":"T-1","by":"ann"}')


NESTED = {"type": "struct", "fields": [{"name": "y", "type": "integer", "nullable": True, "metadata": {}}]}
WIDER = {"type": "struct", "fields": [{"name": "y", "type": "long", "nullable": True, "metadata": {}}]}
ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}
STRICT = {"type": "array", "elementType": "integer", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}
OTHER_MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([("x", "integer", True)], [("x", "long", True)], ""),
        ([("x", "integer", False)], [("x", "integer", True), ("y", "string", True)], ""),
        ([("x", "decimal(10,2)", True)], [("x", "decimal(12,3)", True)], ""),
        ([("x", NESTED, True)], [("x", WIDER, True)], ""),
        ([("x", "long", True)], [("x", "integer", True)], "type of x from bigint to int"),
        ([("x", "integer", True)], [("x", "integer", False)], "makes the column x not nullable"),
        ([("x", "integer", True), ("y", "string", True)], [("x", "integer", True)], "drops the column y"),
        ([("x", "integer", True)], [("x", "integer", True), ("y", "string", False)], "adds the column y"),
        ([("x", "decimal(10,2)", True)], [("x", "decimal(10,3)", True)], "type of x"),
        ([("x", WIDER, True)], [("x", NESTED, True)], r"type of x\.y"),
        ([("x", ARRAY, True)], [("x", STRICT, True)], "elements of x"),
        ([("x", MAP, True)], [("x", OTHER_MAP, True)], r"type of x\.value"),
    ],
)
def test_the_schema_may_only_widen(open_owner, memory: Store, before, after, words: str) -> None:
    owner = open_owner(policies=[SchemaOnlyWidens()], batch_size=100)
    log, managed = managed_log(owner, memory)
    txn = OptimisticTransaction(log, managed, None)
    first = Metadata(id="t", schema_string=schema(*before))
    txn.update_metadata(first)
    txn.commit([], Operation(name="CREATE TABLE"))
    append(log, managed, "not backfilled, and read all the same")
    changed = msgspec.structs.replace(first, schema_string=schema(*after))
    if words:
        with pytest.raises(PolicyRefused, match=words):
            try_commit(owner, memory, [], metadata=changed)
    else:
        try_commit(owner, memory, [], metadata=changed)


def test_a_function_of_the_user_decides_too(open_owner, memory: Store) -> None:
    asked = []

    def no_fridays(commit) -> str | None:
        asked.append((commit.table, commit.version, len(commit.actions)))
        return "it is Friday" if commit.version == 2 else None

    owner = guarded(open_owner, memory, Callback("no-fridays", no_fridays))
    try_commit(owner, memory, [add("a")])
    assert "it is Friday" in str(refused(owner, memory, "no-fridays", [add("b")]))
    assert asked[:2] == [(memory.uri, 0, 3), (memory.uri, 1, 2)]


def test_large_commits_are_looked_at_too(open_owner, memory: Store) -> None:
    owner = open_owner(policies=[MaxFiles(limit=3)], inline_bytes=0)
    create(memory, owner)
    with pytest.raises(PolicyRefused):
        try_commit(owner, memory, [add(str(number)) for number in range(1000)])
    assert newest(memory, owner) == 0


def test_a_policy_holds_below_its_prefix_and_not_beside_it(open_owner, memory: Store) -> None:
    owner = guarded(open_owner, memory, MaxFiles(limit=0, tables=memory.uri[:-1]), MaxFiles(limit=0, tables="s3://x"))
    try_commit(owner, memory, [add("a")])
    assert is_below("s3://b/t1", "s3://b/t1")
    assert is_below("s3://b/t1/sub", "s3://b/t1/")
    assert is_below("s3://b/t1", "")
    assert not is_below("s3://b/t10", "s3://b/t1")


def test_what_was_ratified_before_a_policy_came_is_answered_as_it_was(open_owner, memory: Store) -> None:
    owner = guarded(open_owner, memory)
    log, managed = managed_log(owner, memory)
    result = append(log, managed, "a", "b")
    strict = LedgerOwner(owner.ledger, policies=[MaxFiles(limit=1)])
    (told,) = owner.get_commits(memory.uri).commits
    assert told.data is not None
    data = told.data
    outcome = ManagedOwner(strict, memory).commit(result.version, data, txn_id=result.txn_id)
    assert isinstance(outcome, Committed)


def test_policies_come_from_a_configuration() -> None:
    found = from_json(
        [
            {"policy": "append-only", "tables": "s3://b/raw"},
            {"policy": "allowed-principals", "principals": ["ann"]},
            {"policy": "schema-only-widens"},
            {"policy": "max-files", "limit": 5},
            {"policy": "max-bytes", "limit": 5},
            {"policy": "required-user-metadata", "keys": ["ticket"]},
        ]
    )
    assert [policy.name for policy in found] == [
        "append-only",
        "allowed-principals",
        "schema-only-widens",
        "max-files",
        "max-bytes",
        "required-user-metadata",
    ]
    for wrong in ([{"policy": "max-files"}], [{"policy": "nonsense"}], [{"policy": "max-files", "limit": 1, "x": 2}]):
        with pytest.raises(InvalidArgument):
            from_json(wrong)


def test_an_owner_that_does_not_trust_reads_every_commit_whole(open_owner, memory: Store) -> None:
    owner = open_owner(trusting=False, inline_bytes=0)
    create(memory, owner)
    log, managed = managed_log(owner, memory)
    append(log, managed, "a")
    broken = b'{"commitInfo":{"txnId":"t","inCommitTimestamp":1000000000000000}}\n{"add":{"path":1}}\n'
    with pytest.raises(Exception, match="malformed"):
        managed.commit(2, broken, txn_id="t", in_commit_timestamp=10**15)
    assert newest(memory, owner) == 1


def test_a_refusal_survives_a_wire() -> None:
    error = PolicyRefused("no", table="t", version=3, hint="ask")
    error.policy = "max-files"
    again = error_from_json(json.loads(json.dumps(error.to_json())))
    assert isinstance(again, PolicyRefused)
    assert (again.policy, str(again)) == ("max-files", str(error))


def test_what_is_not_known_survives_a_wire_with_the_transaction_to_look_for() -> None:
    error = CommitOutcomeUnknown("nobody can tell", table="t", version=3)
    error.txn_id = "t-1"
    again = error_from_json(json.loads(json.dumps(error.to_json())))
    assert isinstance(again, CommitOutcomeUnknown)
    assert again.txn_id == "t-1"
