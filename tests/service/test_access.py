"""Who may do what: every call against every role, tokens of every kind, and a service without tokens."""

from __future__ import annotations

import base64
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal import ledger
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument, NotAllowed, NotAuthenticated, NotFound, PolicyRefused, StorageUnavailable
from lakeseal.owner.messages import file_name
from lakeseal.service import tokens
from lakeseal.service.access import Caller, Grant, Role
from lakeseal.service.owner_calls import OWNER_CALLS
from lakeseal.service.server import serve
from lakeseal.service.settings import ServiceSettings, is_loopback, parse_listen
from lakeseal.storage import open_store, prefix_of
from support.managed_tables import append, create

ROLES = ("reader", "writer", "admin")
# The least role that may ask.
NEEDS = {
    "get_commits": "reader",
    "get_commits_of": "reader",
    "ratify": "writer",
    "backfill": "writer",
    "begin_takeover of version 0": "writer",
    "begin_takeover of version 1": "admin",
    "confirm_takeover": "reader",
    "withdraw_takeover": "writer",
    "begin_release": "admin",
    "finish_release": "reader",
    "drop": "admin",
}


def body(call: str, table: str) -> dict[str, Any]:
    match call:
        case "get_commits_of":
            return {"tables": [table]}
        case "ratify":
            file = file_name(1, str(uuid.uuid4()))
            commit = {"version": 1, "txn_id": "t", "file": file, "size": 1, "in_commit_timestamp": 1, "epoch": 0}
            return {"commits": [{"table": table, **commit}]}
        case "begin_takeover of version 0":
            return {"table": table, "takeover_id": "t", "version": 0}
        case "begin_takeover of version 1":
            return {"table": table, "takeover_id": "t", "version": 1}
        case "confirm_takeover" | "withdraw_takeover":
            return {"table": table, "takeover_id": "t"}
        case "begin_release":
            return {"table": table, "release_id": "r"}
    return {"table": table}


def path(call: str) -> str:
    return call.partition(" ")[0].replace("_", "-")


def test_the_matrix_has_every_call() -> None:
    assert {call.partition(" ")[0] for call in NEEDS} == {call.name for call in OWNER_CALLS}


@pytest.mark.parametrize("role", ROLES)
def test_each_call_needs_its_role_at_or_below_the_prefix_and_nowhere_else(closed_service, data: Path, role) -> None:
    token = closed_service.token(f"{role}:{data}/{role}")
    inside, sibling = f"file://{data}/{role}/t-{uuid.uuid4().hex}", f"file://{data}/{role}0/t"
    for call, needed in NEEDS.items():
        may = ROLES.index(role) >= ROLES.index(needed)
        answer = closed_service.post(path(call), body(call, inside), token=token)
        assert (answer.status_code in (401, 403)) != may, f"{call}: {answer.text}"
        if not may:
            assert answer.json()["error"]["kind"] == "not-allowed"
        for other in (sibling, f"file://{data}", f"file://{data}/elsewhere/t"):
            assert closed_service.post(path(call), body(call, other), token=token).status_code == 403, call
    mixed = {"tables": [inside, sibling]}
    assert closed_service.post("get-commits-of", mixed, token=token).status_code == 403


@pytest.mark.parametrize("call", NEEDS)
def test_without_a_token_every_call_is_refused(closed_service, data: Path, call: str) -> None:
    answer = closed_service.post(path(call), body(call, f"file://{data}/t"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["error"]["kind"] == "not-authenticated"


@pytest.mark.parametrize("address", ["/v1/owner", "/v1/tables", "/metrics", "/"])
def test_without_a_token_pages_and_numbers_are_refused(closed_service, address: str) -> None:
    assert closed_service.get(address).status_code == 401
    token = closed_service.token("reader")
    assert closed_service.get(address, headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.parametrize("address", ["/health", "/ready", "/openapi.json"])
def test_without_a_token_health_and_the_description_are_there(closed_service, address: str) -> None:
    assert closed_service.get(address).status_code == 200


@pytest.mark.field_bug("S3")
def test_a_refused_call_leaves_nothing(closed_service, data: Path) -> None:
    token = closed_service.token(f"reader:{data}")
    place = data / f"t-{uuid.uuid4().hex}"
    for call in NEEDS:
        closed_service.post(path(call), body(call, f"file://{place}"), token=token)
        closed_service.post(path(call), body(call, f"file://{place}"))
    assert not place.exists()
    answer = closed_service.post("get-commits", {"table": f"file://{place}"}, token=token).json()
    assert (answer["state"], answer["latest"]) == ("none", -1)


@pytest.mark.field_bug("S2")
def test_tokens_that_are_revoked_expired_changed_or_malformed_are_refused(closed_service, data: Path) -> None:
    good = closed_service.token("reader")
    asked = {"table": f"file://{data}/t"}
    assert closed_service.post("get-commits", asked, token=good).status_code == 200
    short = closed_service.token("reader", lifetime_ms=300)
    time.sleep(0.4)
    wrong = [
        short,
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good.replace("lks_", "lkt_"),
        good + "x",
        "lks_" + "0" * 12 + "_" + "A" * 43,
        # One that says by itself who made it and for how long, and is signed by nobody.
        "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwOi8vMTI3LjAuMC4xIiwicm9sZSI6ImFkbWluIiwiZXhwIjo5OTk5OTk5OTk5fQ.",
        "x" * 10_000,
    ]
    for text in wrong:
        answer = closed_service.post("get-commits", asked, token=text)
        assert answer.status_code == 401, text
        assert text not in answer.text
    with ledger.open(closed_service.ledger) as opened:
        tokens.revoke(opened, good.split("_")[1], now=now_ms())
    time.sleep(1.2)
    assert closed_service.post("get-commits", asked, token=good).status_code == 401


def test_wrong_tokens_again_and_again_have_to_wait(inside) -> None:
    with inside() as client:
        good = client.login("reader")
        assert client.get("/v1/owner", headers=good).status_code == 200
        wrong = [{"Authorization": f"Bearer lks_{n:012x}_{'A' * 43}"} for n in range(80)]
        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda headers: client.get("/v1/owner", headers=headers).status_code, wrong))
        assert statuses[0] == 401
        assert set(statuses) == {401, 429}
        assert client.get("/v1/owner", headers=good).status_code == 200, "who was known before is not held up"


def test_a_token_that_is_not_text_is_refused(inside) -> None:
    with inside() as client:
        for header in (b"Bearer \xff\xfe", b"Bearer \xc3\xbc", b"\xff"):
            assert client.get("/v1/owner", headers={"Authorization": header}).status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Basic eDp5", "Token x", "Bearer a b"])
def test_other_credentials_are_refused(closed_service, header: str) -> None:
    assert closed_service.post("get-commits", {}, Authorization=header).status_code == 401


def test_rows_of_the_ledger_ride_along_only_with_a_writer_of_everything(closed_service, data: Path) -> None:
    table = f"file://{data}/t"
    records = [{"table": "watermarks", "key": {"pipeline": "p"}, "values": {}}]
    some = closed_service.token(f"admin:{data}")
    every = closed_service.token("writer")
    asked = {**body("ratify", table), "records": records}
    assert closed_service.post("ratify", asked, token=some).status_code == 403
    assert closed_service.post("ratify", asked, token=every).status_code != 403


def test_policies_know_the_caller_by_the_tokens_name(strict_service) -> None:
    folder = strict_service.folder / "policed"
    log, managed = create(open_store(folder / "t"), strict_service.owner(strict_service.token("writer", name="etl")))
    append(log, managed, "a")
    with pytest.raises(PolicyRefused, match="somebody may not do that") as refused:
        create(open_store(folder / "u"), strict_service.owner(strict_service.token("writer")))
    assert refused.value.policy == "allowed-principals"


def test_tables_are_listed_for_those_who_may_read_them(closed_service, data: Path) -> None:
    owner = closed_service.owner(closed_service.token("writer"))
    folder = f"list-{uuid.uuid4().hex}"
    for name in ("a", "b", "b0"):
        create(open_store(data / folder / name), owner)
    everything = [one.table for one in owner.tables(f"file://{data}/{folder}")]
    assert everything == [f"file://{data}/{folder}/{name}" for name in ("a", "b", "b0")]
    some = closed_service.owner(closed_service.token(f"reader:{data}/{folder}/b"))
    assert [one.table for one in some.tables()] == [f"file://{data}/{folder}/b"]


def test_the_page_takes_the_token_as_a_password(closed_service) -> None:
    asked = closed_service.get("/")
    assert asked.headers["www-authenticate"].startswith("Basic")
    token = closed_service.token("reader", name="Ms <b>Reader</b>")
    login = base64.b64encode(f"anybody:{token}".encode()).decode()
    page = closed_service.get("/", headers={"Authorization": f"Basic {login}"})
    assert page.status_code == 200
    assert "Ms &lt;b&gt;Reader&lt;/b&gt;" in page.text
    wrong = base64.b64encode(b"anybody:wrong").decode()
    for header in (f"Basic {wrong}", "Basic ???", "Basic"):
        assert closed_service.get("/", headers={"Authorization": header}).status_code == 401
    # Only the page: a browser sends such a login along by itself.
    assert closed_service.get("/v1/tables", headers={"Authorization": f"Basic {login}"}).status_code == 401


def test_an_insecure_service_takes_everybody_on_loopback_and_checks_tokens_that_are_given(open_service) -> None:
    asked = {"table": "file:///data/t"}
    assert open_service.post("get-commits", asked).status_code == 200
    assert open_service.post("get-commits", asked, token="wrong").status_code == 401
    reader = open_service.token("reader:/elsewhere")
    assert open_service.post("get-commits", asked, token=reader).status_code == 403


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:8700", "10.0.0.1", "localhost.evil.com"])
def test_an_insecure_service_is_not_reached_by_names_that_others_make_point_to_it(open_service, host: str) -> None:
    assert open_service.post("get-commits", {"table": "file:///t"}, Host=host).status_code == 403
    assert open_service.get("/", headers={"Host": host}).status_code == 403


def test_an_insecure_service_takes_nothing_that_a_web_page_could_send(open_service) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        for origin, status in (({"Origin": "http://evil.example.com"}, 403), ({}, 400)):
            answer = open_service.post("get-commits", {"table": "file:///t"}, **{"Content-Type": kind, **origin})
            assert answer.status_code == status, kind
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "owner.example.com", "127.0.0.1.example.com"])
def test_insecure_is_for_loopback_only(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidArgument, match="insecure"):
        ServiceSettings(ledger="sqlite://", host=host, insecure=True)
    ServiceSettings(ledger="sqlite://", host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_insecure_works_on_loopback(host: str) -> None:
    ServiceSettings(ledger="sqlite://", host=host, insecure=True)


def test_addresses_to_listen_on_are_parsed_strictly() -> None:
    assert parse_listen("127.0.0.1:8700") == ("127.0.0.1", 8700)
    assert parse_listen("[::1]:0") == ("::1", 0)
    for text in ("", "8700", ":8700", "host", "host:", "::1:8700", "host:65536", "host:-1", "host:x", "[host]:1"):
        with pytest.raises(InvalidArgument):
            parse_listen(text)


def test_two_services_cannot_have_one_port(open_service, tmp_path: Path) -> None:
    listen = open_service.url.removeprefix("http://")
    host, port = parse_listen(listen)
    with pytest.raises(StorageUnavailable, match="cannot listen"):
        serve(ServiceSettings(ledger=f"sqlite:///{tmp_path}/l.db", host=host, port=port))


prefixes = st.lists(
    st.sampled_from(["a", "b", "ab", "a b", "ä", "*", "a*", "?", "_", "[ab]", "a'", 'a"', ".a"]), max_size=3
)


@pytest.mark.field_bug("S3")
@given(prefix=prefixes, table=prefixes)
def test_a_prefix_covers_what_has_its_segments(prefix: list[str], table: list[str]) -> None:
    grant = Grant(role=Role.READER, prefix=prefix_of("s3://bucket/" + "/".join(prefix)))
    caller = Caller(principal="x", token_id="x", grants=(grant,))
    assert caller.may(Role.READER, "/".join(["s3://bucket", *table])) == (table[: len(prefix)] == prefix)
    assert not caller.may(Role.READER, "/".join(["s3://bucket2", *table]))
    assert not caller.may(Role.WRITER, "s3://bucket/a")


def test_grants_are_read_from_text() -> None:
    assert str(Grant.from_text("reader")) == "reader"
    assert Grant.from_text("admin:*") == Grant(role=Role.ADMIN)
    assert str(Grant.from_text("writer:/data//team/")) == "writer:file:///data/team"
    assert Grant.from_text("reader:s3a://b/x/../y").prefix == "s3://b/y"
    for text in ("", "owner", "Reader", "reader/x"):
        with pytest.raises(InvalidArgument, match="grants no role"):
            Grant.from_text(text)


@pytest.mark.parametrize("keeps_s", [3600.0, 0.0])
def test_what_was_looked_up_of_a_token_is_remembered_and_that_can_be_turned_off(inside, keeps_s: float) -> None:
    with inside() as client:
        client.service.authenticator.keeps_s = keeps_s
        headers = client.login("reader")
        assert client.get("/v1/owner", headers=headers).status_code == 200
        (token,) = tokens.listed(client.service.ledger)
        tokens.revoke(client.service.ledger, token.token_id, now=now_ms())
        assert client.get("/v1/owner", headers=headers).status_code == (200 if keeps_s else 401)


def test_tokens_are_kept_as_hashes_shown_once_and_revoked_once(tmp_path: Path) -> None:
    with ledger.open(f"sqlite:///{tmp_path}/ledger.db") as opened:
        text, token = tokens.create(opened, "etl", (Grant(role=Role.WRITER),), now=1000, expires=2000)
        other = tokens.create(opened, "other", (Grant(role=Role.READER),), now=1001)[0]
        assert tokens.find_all(opened, (text,)) == {text: token}
        assert tokens.find_all(opened, (text[:-43] + other[-43:],)) == {}
        assert [one.name for one in tokens.listed(opened)] == ["etl", "other"]
        assert token.is_valid(1999)
        assert not token.is_valid(2000)
        revoked = tokens.revoke(opened, token.token_id, now=1500)
        assert tokens.revoke(opened, token.token_id, now=1600) == revoked
        assert revoked.revoked == 1500
        assert not revoked.is_valid(1501)
        with pytest.raises(NotFound):
            tokens.revoke(opened, "no such", now=1)
        for name, grants, expires in (
            ("", "reader", None),
            ("x\n", "reader", None),
            ("x", "", None),
            ("x", "reader", 9),
        ):
            with pytest.raises(InvalidArgument):
                given_roles = (Grant.from_text(grants),) if grants else ()
                tokens.create(opened, name, given_roles, now=10, expires=expires)
    secret = text[-43:].encode()  # it may have underscores of its own
    for file in tmp_path.iterdir():
        assert secret not in file.read_bytes(), f"{file.name} holds the token"
    assert text not in repr(token)
    assert token.hash not in repr(token)


def test_the_client_is_told_what_it_lacks(closed_service, data: Path) -> None:
    with pytest.raises(NotAuthenticated):
        closed_service.owner().get_commits(f"file://{data}/t")
    owner = closed_service.owner(closed_service.token(f"reader:{data}/mine"))
    assert owner.get_commits(f"file://{data}/mine/t").latest == -1
    with pytest.raises(NotAllowed) as refused:
        owner.get_commits(f"file://{data}/t")
    assert refused.value.table == f"file://{data}/t"
