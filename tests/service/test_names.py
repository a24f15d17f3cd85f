"""Names over HTTP: who may ask, what is refused, and what a repeated request does."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

import lakeseal
from lakeseal.catalog.name_records import record_of_drop, record_of_name
from lakeseal.catalog.names import CommitKind
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.errors import AlreadyExists, ConcurrentWriteException, LakesealError, NotAllowed, TableNotFound
from lakeseal.service.call import ServiceCall
from lakeseal.service.client import HttpOwner
from lakeseal.service.name_calls import NAME_CALLS
from lakeseal.service.name_client import HttpNames
from lakeseal.testing.proxy import ProxyFault, Request, faulty_proxy
from support.examples import examples

ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
ROWS = pa.table({"id": [1, 2]})
BAD_NAMES: tuple[dict[str, Any], ...] = (
    {"name": "Other"},
    {"name": "a.b", "name_folded": "a.b"},
    {"name": "", "name_folded": ""},
    {"name": 5},
    {"name_folded": "NEW"},
    {"kind": "mine"},
    {"uri": "file:///"},
    {"uri": "file:///tmp/../etc"},
    {"uri": 5},
    {"created": "now"},
    {"updated": -1},
    {"schema_id": str(uuid.UUID(int=0))},
    {"table_uuid": "x"},
)
SCHEMA = {"catalog": "main", "schema": "fuzz"}
TABLE = {**SCHEMA, "table": "t"}
ASKED: dict[str, dict[str, Any]] = {
    "list_catalogs": {},
    "list_schemas": {"catalog": "main"},
    "get_schema": {"schema": SCHEMA},
    "create_schema": {"schema": SCHEMA, "schema_id": ID},
    "drop_schema": {"schema": SCHEMA, "schema_id": ID},
    "list_names": {"schema": SCHEMA},
    "resolve_name": {"table": TABLE},
    "register_name": {"table": TABLE, "uri": "file:///fuzz/t", "kind": "filesystem", "table_id": ID},
    "rename_table": {"table": TABLE, "new_name": {**SCHEMA, "table": "u"}, "table_id": ID},
    "set_kind": {"table": TABLE, "kind": "managed", "table_id": ID},
    "drop_name": {"table": TABLE, "table_id": ID},
    "stage_table": {"table": TABLE, "kind": "filesystem", "uri": "file:///fuzz/s", "table_id": ID},
    "list_staged": {},
    "unstage_table": {"table_id": ID},
    "grant_role": {"table": TABLE, "wanted": "reader", "to": "x"},
}


def test_each_call_needs_a_role_and_changes_need_a_writer(closed_service, data) -> None:
    assert {call.name for call in NAME_CALLS} == ASKED.keys()
    reader = closed_service.token("reader")
    for call in NAME_CALLS:
        path, asked = call.path.removeprefix("/v1/"), ASKED[call.name]
        assert closed_service.post(path, asked).status_code == 401
        answer = closed_service.post(path, asked, token=reader)
        assert answer.status_code in ((403,) if call.decides else (200, 404)), (call.name, answer.text)


def test_the_description_has_the_names(open_service) -> None:
    described = open_service.get("/openapi.json").json()
    for call in NAME_CALLS:
        schema = described["paths"][call.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["$ref"].rpartition("/")[2] in described["components"]["schemas"]


texts = st.one_of(st.text(max_size=5), st.sampled_from(["\x00", "", "a.b", "../x", "x" * 300, "`", "\u202e"]))
values = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    texts,
    st.just([]),
    st.fixed_dictionaries({"catalog": texts, "schema": texts}),
    st.fixed_dictionaries({"catalog": texts, "schema": texts, "table": texts}),
)
FIELDS = sorted({field for asked in ASKED.values() for field in asked} | {"token", "limit"})


@examples(30, 300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from(NAME_CALLS), st.dictionaries(st.sampled_from(FIELDS), values, max_size=3))
def test_nonsense_is_refused_and_harms_nothing(
    open_service, call: type[ServiceCall[Any]], wrong: dict[str, Any]
) -> None:
    answer: httpx.Response = open_service.post(call.path.removeprefix("/v1/"), {**ASKED[call.name], **wrong})
    assert answer.status_code in (200, 400, 403, 404, 409, 422), (call.name, wrong, answer.text)
    if answer.status_code != 200:
        assert json.loads(answer.content)["error"]["kind"] not in ("lakeseal", "unknown-outcome")


class Twice:
    """As if the first reply to every request was lost."""

    def __init__(self, owner: HttpOwner) -> None:
        self._owner = owner

    def identity(self) -> str | None:
        return self._owner.identity()

    def repeat(self, call: ServiceCall[Any]) -> Any:
        self._owner.repeat(call)
        return self._owner.repeat(call)


def test_a_request_whose_reply_was_lost_is_the_same_when_it_is_made_again(open_service) -> None:
    owner = open_service.owner()
    names = HttpNames(Twice(owner))
    schema = SchemaName(schema=f"s{uuid.uuid4().hex}")
    one = TableName(schema=schema.schema, table="one")
    two = TableName(schema=schema.schema, table="two")
    place = f"file:///{schema.schema}"
    made = names.create_schema(schema)
    assert names.schema(schema) == made
    staged = names.stage(one, place, CommitKind.FILESYSTEM)
    assert names.staged(staged.table_id) == [staged]
    table = names.register(one, place, CommitKind.FILESYSTEM, table_id=staged.table_id)
    assert table.table_id == staged.table_id
    assert names.set_kind(one, CommitKind.MANAGED).kind is CommitKind.MANAGED
    assert names.rename(one, two).table_id == table.table_id
    assert [found.name for found in names.tables(schema).tables] == [two]
    assert names.drop(two) is False  # the second time there is nothing left to do
    with pytest.raises(TableNotFound):
        names.resolve(two)
    assert names.drop_schema(schema) is False
    again = HttpNames(owner).create_schema(schema)
    with pytest.raises(AlreadyExists):
        HttpNames(owner).create_schema(schema)
    assert HttpNames(owner).drop_schema(again.name) is True


def test_a_name_rides_along_with_commits_only_by_the_rights_of_names(closed_service, data, tmp_path) -> None:
    """A writer of one place creates and drops tables there in a transaction, and touches no other name."""
    mine, others = f"file://{data}/mine-{uuid.uuid4().hex}", f"file://{data}/others"
    schema = f"s{uuid.uuid4().hex}"
    kept = HttpNames(closed_service.owner(closed_service.token("admin")))
    other = kept.register(TableName(schema=schema, table="other"), others, CommitKind.MANAGED)
    catalog = lakeseal.Catalog(closed_service.url, token=closed_service.token(f"writer:{mine}"), root=mine)
    with lakeseal.transaction(catalog=catalog) as txn:
        txn.create(f"{schema}.new", ROWS.schema).write(ROWS)
    assert catalog.table(f"{schema}.new").to_arrow().equals(ROWS)
    with pytest.raises(TableNotFound), lakeseal.transaction(catalog=catalog) as txn:
        txn.drop(f"{schema}.other")
    with pytest.raises(NotAllowed), lakeseal.transaction(catalog=catalog) as txn:
        txn.table(f"{schema}.new").write(ROWS)
        txn.record(record_of_drop(other, kept.schema(other.name.in_schema)))
    staged = kept.stage(TableName(schema=schema, table="fake"), f"{others}/fake", CommitKind.MANAGED)
    with pytest.raises(NotAllowed), lakeseal.transaction(catalog=catalog) as txn:
        txn.table(f"{schema}.new").write(ROWS)
        txn.record(record_of_name(staged, kept.schema(other.name.in_schema)))
    with lakeseal.transaction(catalog=catalog) as txn:
        txn.drop(f"{schema}.new")
    assert [one.name for one in kept.tables(other.name.in_schema).tables] == [other.name]


def test_what_rides_along_as_a_name_is_looked_at(open_service, tmp_path) -> None:
    catalog = lakeseal.Catalog(open_service.url, root=f"file://{tmp_path}")
    schema = f"s{uuid.uuid4().hex}"
    table = catalog.create(f"{schema}.there", ROWS.schema, kind="managed")
    names = HttpNames(open_service.owner())
    staged = names.stage(TableName(schema=schema, table="new"), f"file://{tmp_path}/new", CommitKind.MANAGED)
    known = names.schema(SchemaName(schema=schema))
    giving, dropping = record_of_name(staged, known), record_of_drop(catalog.show(f"{schema}.there"), known)
    wrong = [
        *(replace(giving, values={**giving.values, **bad}) for bad in BAD_NAMES),
        *(replace(giving, key=key) for key in ({}, {"table_uuid": "x"}, {"table_uuid": 5}, {"name": "new"})),
        replace(giving, values={k: v for k, v in giving.values.items() if k != "uri"}),
        replace(giving, insert=False),
        replace(giving, delete=True),
        replace(giving, expected={}),
        replace(dropping, expected={}),
        replace(dropping, expected=None),
        replace(dropping, expected={**dropping.expected, "kind": "managed"}),
        replace(dropping, values={"name": "x"}),
        replace(dropping, insert=True),
    ]
    for record in wrong:
        with pytest.raises(LakesealError), lakeseal.transaction(catalog=catalog) as txn:
            txn.table(table).write(ROWS)
            txn.record(record)
    elsewhere = replace(giving, values={**giving.values, "uri": f"file://{tmp_path}/elsewhere"})
    with pytest.raises(ConcurrentWriteException), lakeseal.transaction(catalog=catalog) as txn:
        txn.table(table).write(ROWS)
        txn.record(elsewhere)
    assert names.unstage(staged.table_id)
    with pytest.raises(ConcurrentWriteException, match="abandoned"), lakeseal.transaction(catalog=catalog) as txn:
        txn.table(table).write(ROWS)
        txn.record(giving)
    assert table.version() == 0
    assert [str(one.name.table) for one in catalog.tables(schema)] == ["there"]


@pytest.mark.parametrize("lost", [ProxyFault.LOSE_REPLY, ProxyFault.LOSE_REQUEST])
def test_names_come_and_go_once_though_the_reply_is_lost(open_service, tmp_path, lost) -> None:
    schema = f"s{uuid.uuid4().hex}"
    losses = [lost, lost]

    def loses(request: Request) -> ProxyFault | None:
        return losses.pop() if request.path == "/v1/ratify" and losses else None

    with faulty_proxy(open_service.url, loses) as proxy:
        catalog = lakeseal.Catalog(proxy.endpoint, root=f"file://{tmp_path}")
        catalog.create(f"{schema}.old", ROWS.schema, kind="managed")
        with lakeseal.transaction(catalog=catalog) as txn:
            txn.create(f"{schema}.new", ROWS.schema).write(ROWS)
            txn.drop(f"{schema}.old", delete_files=True)
        assert losses == []
        assert [str(one.name.table) for one in catalog.tables(schema)] == ["new"]
        assert catalog.table(f"{schema}.new").to_arrow().equals(ROWS)
        assert [one for one in catalog.unfinished() if one.name.schema == schema] == []


@pytest.mark.field_bug("S3")
def test_pages_tell_of_no_table_that_the_caller_may_not_read(inside: Any, tmp_path: Path) -> None:
    """Neither do their tokens: a page that ends at somebody else's table would name it."""
    with inside(ledger=f"sqlite:///{tmp_path}/ledger.db") as client:
        for number in range(9):
            owner = "mine" if number % 4 == 1 else "theirs"
            client.service.names.register(
                TableName.parse(f"s.t{number}{owner}"), f"file:///{owner}/{number}", CommitKind.FILESYSTEM
            )
        login = client.login("reader:file:///mine")
        for path, named, sent in (
            ("/v1/list-names", "next_token", "token"),
            ("/api/2.1/unity-catalog/tables", "next_page_token", "page_token"),
        ):
            found, token = [], None
            for _ in range(9):
                more = {} if token is None else {sent: token}
                if path.startswith("/v1"):
                    answer = client.post(
                        path, json={"schema": {"catalog": "main", "schema": "s"}, "limit": 1, **more}, headers=login
                    )
                else:
                    asked = {"catalog_name": "main", "schema_name": "s", "max_results": 1, **more}
                    answer = client.get(path, params=asked, headers=login)
                assert answer.status_code == 200, answer.text
                assert "theirs" not in answer.text
                said = answer.json()
                found += said["tables"]
                token = said[named]
                if token is None:
                    break
            assert len(found) == 2
