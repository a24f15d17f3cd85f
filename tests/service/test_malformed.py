"""Whatever is sent, the service answers with an error of its own tree and goes on."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lakeseal.service.owner_calls import OWNER_CALLS
from lakeseal.storage import Store
from support.examples import examples
from support.managed_tables import create

PATHS = [call.path.removeprefix("/v1/") for call in OWNER_CALLS]
FEW = examples(25, 250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

numbers = st.one_of(st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.just(10**400))
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(), st.sampled_from(["file:///t", "t", "", "\x00"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
FIELDS = ["table", "tables", "version", "start_version", "takeover_id", "release_id", "commits", "guards", "records"]
COMMIT = ["table", "version", "txn_id", "file", "size", "in_commit_timestamp", "epoch", "data"]
commits = st.fixed_dictionaries({}, optional=dict.fromkeys(COMMIT, values))
objects = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(FIELDS, values), "commits": st.lists(st.one_of(commits, values), max_size=3)}
)


def check(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 403, 404, 405, 409, 413, 422), answer.text
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["kind"] not in ("lakeseal", "unknown-outcome")
        assert error["message"]


@FEW
@given(path=st.sampled_from(PATHS), value=objects)
def test_objects_with_any_fields_are_answered(open_service, path: str, value: Any) -> None:
    check(open_service.post(path, json.dumps(value).encode("utf-8", "surrogatepass")))


@FEW
@given(
    path=st.sampled_from(PATHS), body=st.one_of(st.binary(max_size=200), values.map(lambda v: json.dumps(v).encode()))
)
def test_bodies_of_any_kind_are_answered(open_service, path: str, body: bytes) -> None:
    answer = open_service.post(path, body)
    assert answer.status_code == 400
    check(answer)


commit_lines = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.builds(
            lambda kind, value: json.dumps({kind: value}).encode(),
            st.sampled_from(["commitInfo", "protocol", "metaData", "add", "remove", "txn", "domainMetadata", "x"]),
            values,
        ),
    ),
    max_size=4,
).map(b"\n".join)


def ask(open_service, store: Store, data: bytes) -> httpx.Response:
    commit = {
        "table": store.uri,
        "version": 1,
        "txn_id": "t",
        "size": len(data),
        "in_commit_timestamp": 2**50,
        "epoch": 0,
        "data": base64.b64encode(data).decode(),
    }
    return open_service.post("ratify", {"commits": [commit]})


@FEW
@given(data=commit_lines)
def test_commits_of_any_content_are_answered_and_not_ratified(open_service, table: Store, data: bytes) -> None:
    owner = open_service.owner()
    if owner.get_commits(table.uri).state == "none":
        create(table, owner)
    answer = ask(open_service, table, data)
    check(answer)
    assert answer.status_code != 200
    assert owner.get_commits(table.uri).latest == 0


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"table":"file:///t","records":' + b"[" * 100_000,
        b'{"commits":[],"records":[{"table":"x","key":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b',"values":{}}]}',
        b'{"table":"file:///t","start_version":' + b"9" * 100_000 + b"}",
        b'{"table":"file:///t","start_version":1e999}',
        b'{"table":"\\ud800"}',
        b'{"table":"file:///\xff"}',
        b'{"table":"file:///t"',
        b"\x00",
        b"",
    ],
    ids=range(11),
)
def test_field_bug_s5_deep_and_huge_json_is_400(open_service, body: bytes) -> None:
    for path in ("get-commits", "ratify"):
        answer = open_service.post(path, body)
        assert answer.status_code == 400, answer.text
        check(answer)


def test_field_bug_s5_a_commit_with_deep_json_is_refused(open_service, table: Store) -> None:
    create(table, open_service.owner())
    for data in (b'{"commitInfo":' + b"[" * 50_000, b'{"add":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001):
        answer = ask(open_service, table, data)
        assert answer.status_code in (400, 422), answer.text
        check(answer)


@pytest.mark.parametrize(
    "request_line", [b"GET /../../etc/passwd", b"GET /%2e%2e/", b"POST /v1/", b"DELETE /v1/drop", b"GET /v1/ratify"]
)
def test_other_addresses_and_methods_are_answered(open_service, request_line: bytes) -> None:
    method, _, path = request_line.decode().partition(" ")
    answer = httpx.request(method, open_service.url + path, trust_env=False)
    assert answer.status_code in (404, 405)
    check(answer)


def test_query_parameters_of_any_kind_are_answered(open_service) -> None:
    for query in ("limit=0", "limit=x", "limit=" + "9" * 50, "prefix=http://x", "prefix=%00", "after=%00", "limit=-1"):
        answer = open_service.get("/v1/tables?" + query)
        check(answer)
    assert open_service.get("/?after=%00<script>").status_code in (200, 400)
