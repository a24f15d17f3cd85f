"""Names over HTTP: who may ask, what is refused, and what a repeated request does."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lakeseal.catalog.names import CommitKind
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.errors import AlreadyExists, NotAllowed, TableNotFound
from lakeseal.owner.messages import Batch, LedgerRecord
from lakeseal.service.call import ServiceCall
from lakeseal.service.client import HttpOwner
from lakeseal.service.name_calls import NAME_CALLS
from lakeseal.service.name_client import HttpNames
from support.examples import examples

ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
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


def test_a_name_does_not_ride_along_with_commits_past_the_rights_of_names(open_service) -> None:
    owner, names = open_service.owner(), HttpNames(open_service.owner())
    name = TableName.parse(f"s.t{uuid.uuid4().hex[:8]}")
    table = names.register(name, f"file:///nowhere/{uuid.uuid4()}", CommitKind.FILESYSTEM)
    dropping = LedgerRecord(
        table="table_names", key={"table_uuid": table.table_id}, values={}, expected={}, delete=True
    )

    with pytest.raises(NotAllowed, match="Names"):
        owner.ratify(Batch(commits=(), records=(dropping,)))

    assert names.resolve(name) == table
