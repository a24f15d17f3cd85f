"""Messages that are made to hurt, to every call: each is answered with an error of the tree, and none keeps the event
loop from others."""

from __future__ import annotations

import copy
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import msgspec
import pytest
from starlette.routing import Route

from lakeseal import Repository
from lakeseal.errors import InvalidArgument, OwnerBusy
from lakeseal.ledger import open as open_ledger
from lakeseal.owner import ownership
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import MOST_NAME_BYTES, file_name, from_json
from lakeseal.service.app import create_app
from lakeseal.service.bodies import MOST_VALUES, decoded
from lakeseal.service.book_calls import PutSequence, ResetWatermarks
from lakeseal.service.logs import masked
from lakeseal.service.owner_calls import GetCommitsOf, Ratify
from lakeseal.service.service import CALLS
from lakeseal.service.settings import ServiceSettings
from lakeseal.service.unity_call import UnityCall
from lakeseal.service.unity_calls import UNITY_CALLS
from lakeseal.stepwise_json import MOST_AT_ONCE
from service.conftest import Watched
from service.crowd import place_of
from service.test_books import ASKED as BOOKS_ASKED
from service.test_names import ASKED as NAMES_ASKED
from support.shown_lake import mark

TABLE = "file:///nowhere/t"
COMMIT = {
    "table": TABLE,
    "version": 1,
    "txn_id": "t",
    "file": file_name(1, "00000000-0000-0000-0000-000000000000"),
    "size": 2,
    "in_commit_timestamp": 1,
    "epoch": 0,
    "data": "e30=",
    "sha256": "0" * 64,
}
RECORD = {"table": "watermarks", "key": {"a": 1}, "values": {"b": {"c": [1]}}, "expected": {"b": 1}}
GUARD = {"table": TABLE, "version": 1, "epoch": 0}
ASKED: dict[str, dict[str, Any]] = {
    **BOOKS_ASKED,
    **NAMES_ASKED,
    "get_commits": {"table": TABLE, "start_version": 0},
    "get_commits_of": {"tables": [TABLE]},
    "ratify": {"commits": [COMMIT], "guards": [GUARD], "records": [RECORD]},
    "backfill": {"table": TABLE, "version": 1},
    "begin_takeover": {"table": TABLE, "takeover_id": "t", "version": 0, "commit": COMMIT},
    "confirm_takeover": {"table": TABLE, "takeover_id": "t"},
    "withdraw_takeover": {"table": TABLE, "takeover_id": "t"},
    "begin_release": {"table": TABLE, "release_id": "t"},
    "finish_release": {"table": TABLE},
    "drop": {"table": TABLE},
    "advance_watermarks": {**BOOKS_ASKED["advance_watermarks"], "turn": {"name": "ingest p", "epoch": 1}},
    "end_run": {**BOOKS_ASKED["end_run"], "detail": {"a": [1]}},
    "report_task": {**BOOKS_ASKED["report_task"], "state": {"task": 0, "tasks": 1, "output": {"a": 1}, "reason": "r"}},
    "note_sequence": {**BOOKS_ASKED["note_sequence"], "reason": "r", "tries": 1, "state": "open"},
    "acquire_lease": {**BOOKS_ASKED["acquire_lease"], "instead_of": "you"},
}
_NAMED = {"catalog": "main", "schema": "sales", "table": "orders"}
_STAGED = {
    "version": 1,
    "timestamp": 1,
    "file-name": file_name(1, "00000000-0000-0000-0000-000000000000"),
    "file-size": 2,
    "file-modification-timestamp": 1,
}
_UPDATES = [
    {"action": "add-commit", "commit": _STAGED},
    {"action": "set-latest-backfilled-version", "latest-published-version": 1},
    {"action": "set-properties", "updates": {"a": "b"}},
]
_REQUIRED = [{"type": "assert-etag", "etag": "e"}, {"type": "assert-table-uuid", "uuid": "u"}]
_BY_ID = {"table_id": "t", "table_uri": TABLE}
_PAGE = {"max_results": 1, "page_token": "t"}
UNITY_ASKED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("load_table", "table_is_there", "drop_delta_table"), _NAMED),
    "commit_table": {**_NAMED, "body": {"requirements": _REQUIRED, "updates": _UPDATES}},
    "table_credentials": {**_NAMED, "operation": "READ"},
    "rename_delta_table": {**_NAMED, "body": {"new-name": "sold"}},
    "report_metrics": _NAMED,
    "create_staging_table": {"catalog": "main", "schema": "sales", "body": {"name": "orders"}},
    "staging_table_credentials": {"table_id": "t"},
    "place_credentials": {"location": TABLE, "operation": "READ"},
    "create_table": {
        "catalog": "main",
        "schema": "sales",
        "body": {"name": "orders", "location": TABLE, "table-type": "MANAGED", "properties": {"a": "b"}},
    },
    "delta_config": {},
    "get_preview_commits": {"body": {**_BY_ID, "start_version": 0, "end_version": 1}},
    "post_preview_commit": {
        "body": {
            **_BY_ID,
            "commit_info": {key.replace("-", "_"): value for key, value in _STAGED.items()},
            "latest_backfilled_version": 1,
            "metadata": {"a": 1},
        }
    },
    "metastore_summary": {},
    "unity_list_catalogs": {},
    "get_catalog": {"catalog": "main"},
    "unity_list_schemas": {"catalog_name": "main", **_PAGE},
    "unity_create_schema": {"body": {"name": "sales", "catalog_name": "main"}},
    "unity_drop_schema": {"full_name": "main.sales"},
    "unity_get_schema": {"full_name": "main.sales"},
    "list_tables": {"catalog_name": "main", "schema_name": "sales", **_PAGE},
    "get_table": {"full_name": "main.sales.orders"},
    "drop_table": {"full_name": "main.sales.orders"},
}
FRAGMENTS = {
    "a long text": b'"' + b"a" * 48_000 + b'"',
    "a very long text": b'"' + b"a" * 3_000_000 + b'"',
    "a long address": b'"file:///' + b"a/" * 2_000 + b'"',
    "a long scheme": b'"' + b"a+" * 20_000 + b'://"',
    "many dots": b'"file:///' + b"../" * 15_000 + b'"',
    "many bytes of few letters": b'"file:///' + "é".encode() * 4_080 + b'"',
    "escapes": b'"' + b"\\u00e9" * 100_000 + b'"',
    "half a character": b'"\\ud800"',
    "no text": b'"\xff\xfe"',
    "zero": b'"\\u0000"',
    "depth": b"[" * 100_000 + b"]" * 100_000,
    "depth of maps": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "many lists": b"[" + b"[]," * 1_000_000 + b"[]]",
    "many texts": b"[" + b'"a",' * 700_000 + b'"a"]',
    "many keys": b"{" + b",".join(b'"k%d":1' % number for number in range(48_000)) + b"}",
    "one key again and again": b"{" + b",".join([b'"k":1'] * 500_000) + b"}",
    "a huge number": b"9" * 1_000_000,
    "a large number": b"9" * 30,
    "a number of bits": b"9223372036854775808",
    "below": b"-9223372036854775809",
    "a fraction": b"1.5",
    "a huge fraction": b"1e999",
    "many digits": b"0." + b"1" * 500_000,
    "nan": b"NaN",
    "infinity": b"-Infinity",
    "null": b"null",
    "nothing": b'""',
}
MARK = "here it comes"
LONGEST_ADDRESS = 60_000
"""Of what httpx sends."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a message where something else could stand."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*path, name))


def with_fragment(message: Any, path: tuple[Any, ...], fragment: bytes) -> bytes:
    message = copy.deepcopy(message)
    inner = message
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = MARK
    return json.dumps(message).encode().replace(f'"{MARK}"'.encode(), fragment)


def test_every_call_has_a_message_to_spoil() -> None:
    assert {call.name for call in CALLS} == ASKED.keys()
    assert not ASKED.keys() & UNITY_ASKED.keys()
    assert {call.name: set(call.__struct_fields__) for call in UNITY_CALLS} == {
        name: set(fields) for name, fields in UNITY_ASKED.items()
    }


def sent(watched: Watched, call: Any, path: tuple[Any, ...], fragment: bytes) -> httpx.Response | None:
    """A message with something else in one place; None where it cannot be sent."""
    if issubclass(call, UnityCall):
        return sent_to_catalog(watched, call, path, fragment)
    return watched.service.post(call.path.removeprefix("/v1/"), with_fragment(ASKED[call.name], path, fragment))


def sent_to_catalog(
    watched: Watched, call: type[UnityCall[Any]], path: tuple[Any, ...], fragment: bytes
) -> httpx.Response | None:
    fields = dict(UNITY_ASKED[call.name])
    body = fields.pop("body", None)
    content = b"" if body is None else json.dumps(body).encode()
    if path[0] == "body":
        content = with_fragment(body, path[1:], fragment) if path[1:] else fragment
    else:
        fields[path[0]] = in_address(fragment)
    said = {name: quote(str(text), safe="", errors="surrogatepass") for name, text in fields.items()}
    route = re.sub(r"{(\w+)}", lambda part: said.pop(part[1]), call.path)
    target = f"{route}?{'&'.join(f'{name}={text}' for name, text in said.items())}"
    return watched.service.ask(call.method, target, content) if len(target) < LONGEST_ADDRESS else None


def in_address(fragment: bytes) -> str:
    """What the fragment is in JSON, if it is a text; or else as it is written."""
    with suppress(ValueError, RecursionError):
        found = json.loads(fragment)
        return found if isinstance(found, str) else str(fragment, "latin-1")
    return str(fragment, "latin-1")


def check(call: Any, answer: httpx.Response, where: str) -> None:
    if issubclass(call, UnityCall):
        # What is no address here is none of the catalog's either; a head that is too large is nobody's yet.
        assert answer.status_code in (200, 204, 400, 404, 409, 429, 431), (where, answer.text[:500])
        if answer.status_code >= 400 and answer.status_code != 431 and call.method != "HEAD":
            assert answer.json()["error"].keys() == {"message", "type", "code"}, where
    else:
        assert answer.status_code in (200, 400, 403, 404, 409, 413, 422, 429), (where, answer.text[:500])
        if answer.status_code != 200:
            assert answer.json()["error"]["kind"] not in ("lakeseal", "unknown-outcome"), where
    assert answer.is_success or len(answer.content) < 100_000, where


def hunt(watched: Watched, every: int) -> int:
    """Every fragment in every place of every message, or each `every`th of them."""
    asked = number = 0
    for call in (*CALLS, *UNITY_CALLS):
        for path in places((ASKED | UNITY_ASKED)[call.name]):
            for name, fragment in FRAGMENTS.items():
                number += 1
                if number % every:
                    continue
                where = f"{call.name} {path} {name}"
                answer = sent(watched, call, path, fragment)
                if answer is not None:
                    asked += 1
                    check(call, answer, where)
                    watched.look(where)
    assert watched.service.get("/health").status_code == 200
    print(f"{asked} messages: {watched}")
    return asked


def test_hostile_messages_are_refused_and_the_event_loop_goes_on(watched) -> None:
    assert hunt(watched, every=43) > 150
    # 50 ms on a machine that has nothing else to do: see below.
    watched.check(busy=0.25)


@pytest.mark.stress
def test_every_hostile_message_to_every_call(watched) -> None:
    hunt(watched, every=1)
    watched.check(busy=0.05, held=0.05)


# What addresses, headers and forms may hold, each of less than a head's 64 kB.
TEXTS = {
    "a long text": b"a" * 60_000,
    "a long scheme": b"a+" * 25_000 + b"://",
    "many dots": b"file:///" + b"../" * 15_000,
    "many commas": b"a," * 30_000,
    "many pairs": b"a=b;" * 15_000,
    "many quotes": b'"' + b"\\" * 59_000,
    "many percents": b"%" * 60_000,
    "many of a query": b"?&=" * 20_000,
    "many letters of others": "é".encode() * 9_000,
    "half a character": b"\xed\xa0\x80",
    "no text": b"\xff\xfe" * 1_000,
    "zeros": b"\0" * 1_000,
    "depth": b"[" * 20_000,
    "a long number": b"9" * 5_009,
    "a number with zeros": b"0000000019999999",
    "a token": b"Bearer lks_" + b"a" * 50_000,
    "a password": b"Basic " + b"QTpC" * 14_000,
    "a template": b"{{ 7 * 7 }}{% raw %}",
    "another site": b"//evil.example/\\@" * 3_000,
    "nothing": b"",
}
PARAMETERS = ["uri", "branch", "source", "dest", "name", "search", "start", "next", "limit", "prefix", "after"]
PARAMETERS += ["max_results", "page_token", "token", "nobody asks for"]
HEADERS = ["Authorization", "Cookie", "Accept", "Origin", "Sec-Fetch-Site", "X-Forwarded-For", "X-Forwarded-Proto"]
HEADERS += ["traceparent", "X-Request-ID", "If-None-Match", "Content-Type", "Content-Encoding", "Range"]
HEADERS += ["Accept-Encoding", "Idempotency-Key", "nobody-asks-for"]


def in_an_address(text: bytes) -> str:
    return quote(text[:20_000] if len(quote(text)) > 60_000 else text, safe="")


def addresses(repository: str) -> Iterator[tuple[str, str]]:
    """Every address that answers GET, with each text in each of its places, elsewhere the repository's."""
    routes = create_app(ServiceSettings(ledger="sqlite://")).routes
    paths = [one.path for one in routes if isinstance(one, Route) and "GET" in (one.methods or ())]
    for path in paths:
        parts = re.findall(r"\{(\w+)[^}]*\}", path)
        for name, text in TEXTS.items():
            hostile = in_an_address(text)
            for part in parts:
                filled = re.sub(r"\{(\w+)[^}]*\}", lambda m: hostile if m[1] == part else "x", path)  # noqa: B023
                yield filled, f"{path} {part}: {name}"
            for parameter in PARAMETERS:
                filled = re.sub(r"\{[^}]*\}", "x", path)
                there = "" if parameter == "uri" else f"uri={quote(repository)}&"
                yield f"{filled}?{there}{quote(parameter)}={hostile}", f"{path} ?{parameter}: {name}"


def hunt_around(watched: Watched, every: int) -> int:
    """Every text in every place of an address, of a header and of the form by which one signs in, or each `every`th."""
    asked = number = 0

    def ask(method: str, address: str, where: str, body: bytes | None = None, **headers: bytes | str) -> None:
        nonlocal asked
        connection = HTTPConnection(*place_of(watched.service.url), timeout=60)
        sent = {"Accept": "text/html"} | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, address, body, sent)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        assert answer.status in (200, 302, 303, 307, *range(400, 500)), (where, answer.status, said[:500])
        assert len(said) < 200_000, where
        assert b"Traceback" not in said, where
        watched.look(where)
        asked += 1

    place = f"{watched.service.folder.resolve()}/repository"
    repository = Repository.create(place, ledger=watched.service.ledger)
    shown = watched.service.get("/repository", params={"uri": repository.uri})
    assert shown.status_code in (200, 401), "open, or closed"
    for address, where in addresses(repository.uri):
        number += 1
        if number % every == 0:
            ask("GET", address, where)
    for header in HEADERS:
        for name, text in TEXTS.items():
            value = bytes(byte for byte in text if byte >= 32)
            for path in ("/", "/sign-in", "/health", "/v1/tables", "/delta/v1/config"):
                number += 1
                if number % every == 0:
                    ask("GET", path, f"{path} {header}: {name}", **{header: value})
    page = httpx.get(watched.service.url + "/sign-in", trust_env=False)
    right = {"form": mark(page.text), "token": "lks_x"}
    cookie = page.headers["set-cookie"].partition(";")[0]
    for name, text in TEXTS.items():
        some = text[:6_000]
        for field in (*right, "next"):
            body = urlencode({**right, field: some}).encode()
            ask("POST", f"/sign-in?next={in_an_address(text)}", f"sign-in {field}: {name}", body, Cookie=cookie)
        ask("POST", "/sign-in", f"sign-in as a body: {name}", text, Cookie=cookie)
        ask("POST", "/sign-in", f"sign-in with a cookie: {name}", b"token=x", Cookie="lakeseal_form=" + some.hex())
    assert watched.service.get("/health").status_code == 200
    print(f"{asked} requests: {watched}")
    return asked


@pytest.mark.parametrize("options", [("--insecure",), ()], ids=["open", "closed"])
def test_hostile_addresses_headers_and_sign_ins_are_refused_and_the_event_loop_goes_on(
    start, options: tuple[str, ...]
) -> None:
    watched = Watched(start(*options, "--rate", "0", "--log-level", "warning", is_watched=True))
    assert hunt_around(watched, every=11) > 1000, "every parameter of every address with one of the texts at least"
    watched.check(busy=0.25)


@pytest.mark.stress
@pytest.mark.parametrize("options", [("--insecure",), ()], ids=["open", "closed"])
def test_every_hostile_address_and_header(start, options: tuple[str, ...]) -> None:
    watched = Watched(start(*options, "--rate", "0", "--log-level", "warning", is_watched=True))
    hunt_around(watched, every=1)
    watched.check(busy=0.05, held=0.05)


def test_a_name_of_48_kb_is_refused_at_once(watched) -> None:
    for text in ("a" * 48_000, "a+" * 24_000, "file:///" + "a" * 48_000, "x://" * 12_000):
        assert watched.service.post("get-commits", {"table": text}).status_code == 400
        watched.look(text[:20])
    watched.check(busy=0.25)


@pytest.mark.parametrize("piece", ["a", "a+", "://", "a://", "bearer ", "lks_", "token=", "sig", "basic\t", "password"])
def test_masking_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.thread_time()
        masked(text)
        return time.thread_time() - start

    seconds(1000)
    small, large = min(seconds(20_000) for _ in range(3)), min(seconds(320_000) for _ in range(3))
    assert large < 0.5
    assert large < 100 * max(small, 0.0002), "sixteen times as much, and not 256 times"


def strings_of(kind: Any, seen: set[Any]) -> Iterator[str]:
    """Where a message has a text without a bound."""
    found = msgspec.inspect.type_info(kind)
    yield from unbounded(found, getattr(kind, "__name__", str(kind)), seen)


def unbounded(kind: Any, where: str, seen: set[Any]) -> Iterator[str]:
    match kind:
        case msgspec.inspect.StrType():
            if kind.max_length is None and kind.pattern is None:
                yield where
        case msgspec.inspect.Metadata():
            yield from unbounded(kind.type, where, seen)
        case msgspec.inspect.StructType():
            if kind.cls not in seen:
                seen.add(kind.cls)
                for field in kind.fields:
                    yield from unbounded(field.type, f"{kind.cls.__name__}.{field.name}", seen)
        case msgspec.inspect.UnionType():
            for one in kind.types:
                yield from unbounded(one, where, seen)
        case msgspec.inspect.DictType():
            yield from unbounded(kind.key_type, f"{where} (key)", seen)
            yield from unbounded(kind.value_type, where, seen)
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            if kind.max_length is None:
                yield f"{where} (length)"
            yield from unbounded(kind.item_type, where, seen)


def test_every_text_of_every_message_has_a_bound() -> None:
    """What is free JSON, and a record's own bytes, are bounded with the message."""
    free = {"RunRecord.detail (key)", "TaskState.output (key)"}
    found = [one for call in (*CALLS, *UNITY_CALLS) for one in strings_of(call, set())]
    assert set(found) <= free


def test_a_tables_name_is_bounded_in_bytes(open_service) -> None:
    assert MOST_NAME_BYTES == 4096
    fits = "file:///" + "a/" * 2040 + "a" * 8
    assert len(fits) == 4096
    for name, status in (
        (fits, 200),
        (fits + "a", 400),
        ("file:///" + "é" * 2045, 400),
    ):
        answer = open_service.post("get-commits", {"table": name})
        assert answer.status_code == status, (len(name), answer.text[:300])
        assert ("4,096 bytes" in answer.text) == ("é" in name)


def test_at_most_64_take_overs_of_a_table_are_promised(tmp_path) -> None:
    (tmp_path / "t").mkdir()
    assert ownership.MOST_PROMISES == 64
    with open_ledger("sqlite://") as opened:
        owner = LedgerOwner(opened)
        table = f"file://{tmp_path}/t"
        for number in range(64):
            owner.begin_takeover(table, f"id-{number}", 3)
        with pytest.raises(OwnerBusy, match="64 take-overs"):
            owner.begin_takeover(table, "one more", 3)
        assert owner.begin_takeover(table, "id-7", 3).change_version == 3, "one that was promised is"
        owner.withdraw_takeover(table, "id-7")
        owner.begin_takeover(table, "one more", 3)


@pytest.mark.parametrize("kind", [ResetWatermarks, PutSequence, Ratify, GetCommitsOf])
@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_messages_of_many_values_are_read_in_steps_and_mean_the_same(
    kind: Any, fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ASKED[kind.name]
    for path in places(asked):
        data = with_fragment(asked, path, FRAGMENTS[fragment])
        if len(data) > 500_000:
            continue
        for text in (data, b" \n" + data + b"\t", data + b"}"):
            said = outcome(text, kind, from_json)
            monkeypatch.setattr("lakeseal.stepwise_json.MOST_AT_ONCE", 0)
            assert outcome([text], kind, decoded) == said, (path, fragment)
            monkeypatch.undo()


def outcome(data: Any, kind: Any, decode: Any) -> Any:
    try:
        return msgspec.json.encode(decode(data, kind))
    except InvalidArgument:
        return "refused"


def test_reading_a_message_of_many_values_leaves_others_their_turn() -> None:
    """Another thread may run between any two lists of as many as a message may have: each is a call in Python."""
    lists = MOST_VALUES // 2 - 1_000  # and as many commas
    body = json.dumps({"pipeline": "p", "dataset": "d", "values": {"0": [[]] * lists}}).encode()
    assert body.count(b"[") > MOST_AT_ONCE
    calls = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(counted)
    try:
        found = decoded([body], ResetWatermarks)
    finally:
        sys.setprofile(None)
    assert len(found.values["0"]) == lists
    assert calls > lists, "the usual decoder reads them all in one call"
