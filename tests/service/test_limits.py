"""Limits and places: what a service does not take, and that nothing happened then."""

from __future__ import annotations

import base64
import json
import os
import socket
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakeseal.clock import now_ms
from lakeseal.errors import InvalidUri, NotAllowed, OwnerBusy
from lakeseal.owner.handover import take_over
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service.authentication import Buckets
from lakeseal.service.bodies import UploadRoom
from lakeseal.service.places import ServedPlaces
from lakeseal.storage import Store, open_store
from support.managed_tables import append, create

SOON = now_ms() + 3_000_000


def inline(table: str, version: int = 1, **changes: Any) -> dict[str, Any]:
    data = encode([CommitInfo(txn_id="t", in_commit_timestamp=SOON)]).decode()
    commit = {
        "table": table,
        "version": version,
        "txn_id": "t",
        "size": len(data),
        "in_commit_timestamp": SOON,
        "epoch": 0,
        "data": base64.b64encode(data.encode()).decode(),
        **changes,
    }
    return {"commits": [commit]}


def test_a_request_that_is_too_large_is_413_whether_it_says_so_or_not(closed_service, data: Path) -> None:
    token = closed_service.token("admin")
    large = json.dumps({"table": f"file://{data}/t", "x": "x" * 20_000}).encode()
    said = closed_service.post("get-commits", large, token=token)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    chunks = (large[start : start + 1000] for start in range(0, len(large), 1000))
    unsaid = httpx.post(closed_service.url + "/v1/get-commits", content=chunks, headers=headers, trust_env=False)
    for answer in (said, unsaid):
        assert answer.status_code == 413
        assert "20,000 bytes" in answer.json()["error"]["message"]
    small = json.dumps({"table": f"file://{data}/t", "x": "x" * 19_000}).encode()
    assert closed_service.post("get-commits", small, token=token).status_code == 200


def test_more_requests_than_the_rate_are_429_with_a_time_to_wait_for_each_token(inside) -> None:
    with inside(rate=5) as client:
        one, other = client.login("reader"), client.login("reader")
        answers = [client.get("/v1/owner", headers=one) for _ in range(30)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert answers[0].status_code == 200
        assert refused
        assert refused[0].headers["retry-after"] == "1"
        assert refused[0].json()["error"]["hint"]
        assert client.get("/v1/owner", headers=other).status_code == 200


def test_a_bucket_fills_up_again_and_forgets_the_silent() -> None:
    now = [0.0]
    buckets = Buckets(2, 4, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0
    now[0] = 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    now[0] = 1000
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 0, pytest.approx(0.5)]
    assert all(Buckets(0, 0).take("a") == 0 for _ in range(1000))


def test_field_bug_s8_commits_that_are_not_backfilled_are_bounded_by_429(strict_service, table: Store) -> None:
    owner = strict_service.owner(strict_service.token("writer"), patience_s=0)
    log, managed = create(table, owner)
    append(log, managed, "a")
    owner.backfill(table.uri)
    # Nothing can be backfilled: somebody wrote past the owner.
    table.put(f"_delta_log/{2:020d}.json", b'{"commitInfo":{"operation":"STRANGE"}}\n')
    ours = ManagedOwner(owner, table)
    for version in (2, 3, 4):
        info = CommitInfo(txn_id=f"t{version}", in_commit_timestamp=SOON + version)
        ours.commit(version, encode([info]), txn_id=f"t{version}")
    info = CommitInfo(txn_id="t5", in_commit_timestamp=SOON + 5)
    request = ours.request(5, encode([info]), txn_id="t5")
    with pytest.raises(OwnerBusy) as busy:
        owner.ratify(Batch(commits=(request,)))
    assert busy.value.retry_after_s == 1
    assert "backfill" in str(busy.value)
    assert owner.get_commits(table.uri).latest == 4


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t",
        "../t",
        "~/t",
        "/data/t",
        "file:/data/t",
        "file://host/data/t",
        "file:///data/../etc/t",
        "file:///data/%2e%2e/t",
        "file:///data//t",
        "file:///data/t/",
        "file:///data/./t",
        "file:///DATA%2Ft",
        "file:///",
        "FILE:///data/t",
        "memory://m/t",
        "s3a://bucket/t",
        "s3://bucket",
        "s3://bucket/a/../../b",
        "s3://key:secret@bucket/t",
        "http://127.0.0.1/t",
        "file:///data/t\u0000",
        "file:///data/" + "x" * 5000,
        "https://example.com/t?sig=secret",
    ],
)
def test_field_bug_s4_a_table_has_one_name_and_others_are_400(open_service, name: str) -> None:
    answer = open_service.post("get-commits", {"table": name})
    assert answer.status_code == 400, answer.text
    answer = open_service.post("ratify", inline(name))
    assert answer.status_code == 400, answer.text


def test_field_bug_s4_what_is_not_below_a_root_is_refused(closed_service, data: Path) -> None:
    token = closed_service.token("admin")
    outside = [f"file://{data}0/t", f"file://{data.parent}/t", "file:///etc", "s3://bucket/t", f"file://{data}-x"]
    for table in outside:
        for call, body in (("get-commits", {"table": table}), ("ratify", inline(table)), ("drop", {"table": table})):
            answer = closed_service.post(call, body, token=token)
            assert answer.status_code == 403, f"{call} {table}: {answer.text}"
    assert not Path(f"{data}0").exists()


def test_field_bug_s4_a_path_through_a_symbolic_link_is_refused(closed_service, data: Path, tmp_path: Path) -> None:
    token = closed_service.token("admin")
    (tmp_path / "secret").mkdir()
    link = data / f"link-{uuid.uuid4().hex}"
    link.symlink_to(tmp_path / "secret")
    inside = data / f"link-{uuid.uuid4().hex}"
    (data / "real").mkdir(exist_ok=True)
    inside.symlink_to(data / "real")
    for table in (f"file://{link}", f"file://{link}/t", f"file://{inside}"):
        for call, body in (
            ("get-commits", {"table": table}),
            ("ratify", inline(table)),
            ("begin-takeover", {"table": table, "takeover_id": "t", "version": 0}),
            ("backfill", {"table": table}),
        ):
            answer = closed_service.post(call, body, token=token)
            assert answer.status_code == 403, f"{call} {table}: {answer.text}"
            assert str(tmp_path) not in answer.text
    assert list((tmp_path / "secret").iterdir()) == []


def test_a_table_that_becomes_a_link_is_not_worked_on_any_more(tmp_path: Path) -> None:
    places = ServedPlaces([str(tmp_path)])
    real = tmp_path / "t"
    real.mkdir()
    places.open(f"file://{real}")
    real.rename(tmp_path / "u")
    os.symlink("/etc", real)
    with pytest.raises(NotAllowed):
        places.open(f"file://{real}")


def test_roots_may_be_links_themselves_and_options_are_for_object_stores(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    places = ServedPlaces([str(tmp_path / "link"), "s3://bucket/a"], {"aws_region": "eu-west-1"})
    places.check(f"file://{tmp_path}/real/t")
    assert places.open("s3://bucket/a/t").uri == "s3://bucket/a/t"
    assert places.open(f"file://{tmp_path}/real/t").uri == f"file://{tmp_path}/real/t"
    for table in (f"file://{tmp_path}/link/t", "s3://bucket/ab/t", "gs://bucket/a/t"):
        with pytest.raises(NotAllowed):
            places.check(table)
    with pytest.raises(InvalidUri):
        places.check("memory://x/t")


@pytest.mark.parametrize(
    "file",
    [
        "00000000000000000001.json",
        "../00000000000000000001.json",
        "00000000000000000001.../../../../x.json",
        "00000000000000000002.3c0ce0a4-6bd5-4d5c-9f2c-0f1f1e0a0b0c.json",
        "1.3c0ce0a4-6bd5-4d5c-9f2c-0f1f1e0a0b0c.json",
        "00000000000000000001.3c0ce0a4-6bd5-4d5c-9f2c-0f1f1e0a0b0c.JSON",
        "00000000000000000001.3c0ce0a46bd54d5c9f2c0f1f1e0a0b0c.json",
        "00000000000000000001.3c0ce0a4-6bd5-4d5c-9f2c-0f1f1e0a0b0c.json/../x",
        "/etc/passwd",
        "",
    ],
)
def test_only_the_name_of_a_staged_commit_is_a_file(open_service, table: Store, file: str) -> None:
    create(table, open_service.owner())
    before = sorted(one.key for one in table.list(recursive=True))
    answer = open_service.post("ratify", inline(table.uri, file=file))
    assert answer.status_code == 400, answer.text
    assert sorted(one.key for one in table.list(recursive=True)) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": -1},
        {"epoch": 2**63},
        {"in_commit_timestamp": 10**30},
        {"size": 3},
        {"txn_id": ""},
        {"txn_id": "x" * 300},
        {"data": "not base64"},
        {"in_commit_timestamp": 5},
        {"txn_id": "another"},
    ],
)
def test_a_commit_that_is_not_what_it_says_is_400_and_leaves_nothing(open_service, table: Store, changes) -> None:
    create(table, open_service.owner())
    before = sorted(one.key for one in table.list(recursive=True))
    answer = open_service.post("ratify", inline(table.uri, **changes))
    assert answer.status_code == 400, answer.text
    assert sorted(one.key for one in table.list(recursive=True)) == before


def test_field_bug_s3_nothing_is_put_where_no_table_of_this_owner_is(open_service, tmp_path: Path) -> None:
    nowhere = open_store(tmp_path / "nowhere")
    assert open_service.post("ratify", inline(nowhere.uri)).status_code == 404
    assert not (tmp_path / "nowhere").exists()
    files = open_store(tmp_path / "files")
    append(*create(files), "a")
    before = sorted(one.key for one in files.list(recursive=True))
    for version, status in ((1, 409), (2, 409), (3, 404), (99, 404)):
        assert open_service.post("ratify", inline(files.uri, version)).status_code == status, version
    managed = open_store(tmp_path / "managed")
    create(managed, open_service.owner())
    there = sorted(one.key for one in managed.list(recursive=True))
    assert open_service.post("ratify", inline(managed.uri, 7)).status_code == 404
    assert sorted(one.key for one in files.list(recursive=True)) == before
    assert sorted(one.key for one in managed.list(recursive=True)) == there


def test_a_promise_for_a_version_that_cannot_come_next_is_not_made(open_service, table: Store) -> None:
    append(*create(table), "a")
    asked = {"table": table.uri, "takeover_id": "t", "version": 50}
    assert open_service.post("begin-takeover", asked).status_code == 404
    assert take_over(open_service.owner(), table) == 2


def test_batches_name_each_table_once_and_lists_are_bounded(open_service, tmp_path: Path) -> None:
    one = inline(f"file://{tmp_path}/t")["commits"][0]
    assert open_service.post("ratify", {"commits": []}).status_code == 400
    assert open_service.post("get-commits-of", {"tables": [f"file://{tmp_path}/t"] * 1001}).status_code == 400
    assert open_service.post("ratify", {"commits": [one, one]}).status_code in (400, 404)


def test_field_bug_s5_a_body_that_does_not_come_does_not_hold_up_the_others(open_service) -> None:
    host, _, port = open_service.url.removeprefix("http://").partition(":")
    head = b"POST /v1/get-commits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 99\r\n\r\n"
    silent = [socket.create_connection((host, int(port))) for _ in range(60)]
    for connection in silent:
        connection.sendall(head + b"{")
    assert open_service.post("get-commits", {"table": "file:///t"}).status_code == 200
    for connection in silent:
        connection.close()


def test_large_bodies_have_so_many_bytes_together_and_others_are_not_held_up_by_them() -> None:
    uploads = UploadRoom(100, 1000)
    with uploads.room_for("700", may_be_large=True) as first:
        assert first == 700
        with pytest.raises(OwnerBusy), uploads.room_for("301", may_be_large=True):
            pass
        with uploads.room_for("300", may_be_large=True) as second, uploads.room_for("100", may_be_large=True) as small:
            assert (second, small) == (300, 100)
    with uploads.room_for("1000", may_be_large=True) as whole:
        assert whole == 1000


@pytest.mark.parametrize("said", [None, "", "12x", "-5", "9" * 30, "٣"])
def test_whoever_does_not_say_how_much_comes_may_not_send_much(said: str | None) -> None:
    with UploadRoom(100, 1000).room_for(said, may_be_large=True) as limit:
        assert limit == 100


def test_what_is_more_than_ever_taken_is_told_with_that_limit() -> None:
    with UploadRoom(100, 1000).room_for("1001", may_be_large=True) as limit:
        assert limit == 1000
    with UploadRoom(100, 1000).room_for("1001", may_be_large=False) as limit:
        assert limit == 100
