"""What the client makes of a network and of services that are not what they should be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.clock import now_ms
from lakeseal.commit.owner import Unresolved
from lakeseal.errors import (
    InvalidArgument,
    InvalidUri,
    LakesealError,
    OwnedElsewhere,
    OwnerBusy,
    StorageError,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.handover import take_over
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.routing import StaleReadWarning
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service.client import HttpOwner
from lakeseal.storage import Store, open_store
from lakeseal.testing.proxy import ProxyFault, Request, faulty_proxy
from models.history import check_history
from support.managed_tables import append, create, managed_log, newest, paths

TOKEN = "lks_0123456789ab_" + "x" * 43


class Stranger:
    """A server that answers everything alike and remembers what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, str]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b"{}"


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    found = Stranger()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            found.requests.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(found.status)
            for name, value in {**found.headers, "Content-Length": str(len(found.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def client(url: str, token: str | None = None, patience_s: float = 0.0) -> Iterator[HttpOwner]:
    owner = HttpOwner(url, token=token, patience_s=patience_s, timeout=httpx.Timeout(5.0))
    yield owner
    owner.close()


def both(url: str) -> tuple[type[LakesealError], type[LakesealError]]:
    """What a read and what a step raise."""
    with client(url, TOKEN) as owner:
        with pytest.raises(LakesealError) as read:
            owner.get_commits("file:///t")
        with pytest.raises(LakesealError) as step:
            owner.begin_release("file:///t", "id")
    assert TOKEN not in str(read.value) + str(step.value) + repr(owner)
    return read.type, step.type


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_field_bug_s1_a_redirect_is_not_followed_and_the_token_stays(stranger: Stranger, status: int) -> None:
    with contextmanager(stranger_again)() as elsewhere:
        stranger.status, stranger.headers = status, {"Location": elsewhere.url + "/v1/owner"}
        assert both(stranger.url) == (InvalidUri, InvalidUri)
        assert elsewhere.requests == []


stranger_again: Callable[[], Iterator[Stranger]] = stranger.__wrapped__  # type: ignore[attr-defined]


def test_field_bug_s1_a_tables_conf_cannot_make_a_client_talk_to_anybody(
    open_service, stranger: Stranger, tmp_path: Path
) -> None:
    uri = str(tmp_path / "table")
    token = open_service.token("admin")
    mine = OwnerConfig(url=open_service.url, token=token)
    lakeseal.Table(uri, owner=mine).write(pa.table({"x": [1]}))
    log = tmp_path / "table" / "_delta_log" / f"{0:020d}.json"
    evil = f'{{\\\\\\"endpoint\\\\\\":\\\\\\"{stranger.url}\\\\\\",\\\\\\"url\\\\\\":\\\\\\"{stranger.url}\\\\\\",'
    changed = log.read_text().replace('{\\"batchSize\\"', evil.replace("\\\\\\", "\\") + '\\"batchSize\\"')
    assert stranger.url in changed
    log.write_text(changed)
    table = lakeseal.Table(uri, owner=mine)
    assert stranger.url in (table.snapshot().metadata.configuration["delta.managedCommitOwnerConf"] or "")
    table.write(pa.table({"x": [2]}))
    assert table.to_arrow().num_rows == 2
    table.release()
    assert stranger.requests == []


@pytest.mark.parametrize("name", ["{url}", "http", "localhost"])
def test_field_bug_s1_a_tables_owner_name_is_never_an_address(
    open_service, stranger: Stranger, table: Store, name: str
) -> None:
    log, files = create(table)
    append(log, files, "a")
    owner = open_service.owner()
    take_over(owner, table)
    key = f"_delta_log/{2:020d}.json"
    data = table.get(key).replace(b'"lakeseal"', b'"' + name.format(url=stranger.url).encode() + b'"')
    table.put(key, data)
    found = lakeseal.Table(table.uri, owner=OwnerConfig(url=open_service.url, token=open_service.token("writer")))
    with pytest.warns(StaleReadWarning):
        assert found.version() == 2
    with pytest.raises(OwnedElsewhere):
        found.set_properties({"a": "b"})
    assert stranger.requests == []


@pytest.mark.parametrize(
    ("status", "body", "raised"),
    [
        (200, b"<html>Please log in</html>", (StorageUnavailable, UnknownOutcome)),
        (200, b'{"table":1}', (StorageUnavailable, UnknownOutcome)),
        (500, b"oops", (StorageUnavailable, UnknownOutcome)),
        (502, b"", (StorageUnavailable, UnknownOutcome)),
        (504, b'{"error":"gateway"}', (StorageUnavailable, UnknownOutcome)),
        (404, b"not here", (StorageError, StorageError)),
        (403, b'{"error":{"kind":"of-tomorrow","message":"no"}}', (LakesealError, LakesealError)),
        (503, b'{"error":{"kind":"storage-unavailable","message":"no"}}', (StorageUnavailable, StorageUnavailable)),
        (503, b'{"error":{"kind":"unknown-outcome","message":"?"}}', (StorageUnavailable, UnknownOutcome)),
        (429, b'{"error":{"kind":"owner-busy","message":"slow"}}', (OwnerBusy, OwnerBusy)),
    ],
)
def test_what_is_not_the_services_own_answer_leaves_the_outcome_unknown(
    stranger: Stranger, status: int, body: bytes, raised: tuple[type[LakesealError], type[LakesealError]]
) -> None:
    stranger.status, stranger.body = status, body
    assert both(stranger.url) == raised


def test_where_nobody_listens_nothing_was_decided(stranger: Stranger) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    closed.server_close()
    assert both(f"http://127.0.0.1:{closed.server_port}") == (StorageUnavailable, StorageUnavailable)


@pytest.mark.parametrize("fault", [ProxyFault.LOSE_REQUEST, ProxyFault.LOSE_REPLY])
def test_a_lost_reply_is_unknown_for_a_step_and_asked_again_for_a_read(open_service, table: Store, fault) -> None:
    lost: list[str] = []

    def lose_first(request: Request) -> ProxyFault | None:
        if request.path in lost or request.path == "/v1/owner":
            return None
        lost.append(request.path)
        return fault

    log, managed = create(table, open_service.owner())
    append(log, managed, "a")
    with faulty_proxy(open_service.url, lose_first) as proxy, client(proxy.endpoint, patience_s=10) as owner:
        assert owner.get_commits(table.uri).latest == 1
        assert len(lost) == 1
        ours = ManagedOwner(owner, table)
        later = now_ms() + 60_000
        info = CommitInfo(operation="WRITE", txn_id="mine", in_commit_timestamp=later)
        for expected in (Unresolved, None):
            outcome = ours.commit(2, encode([info]), txn_id="mine", in_commit_timestamp=later)
            assert (type(outcome) is Unresolved) == (expected is Unresolved)
        assert owner.get_commits(table.uri).latest == 2


def test_a_reply_that_never_comes_is_unknown_after_the_timeout(open_service, table: Store) -> None:
    create(table, open_service.owner())
    with faulty_proxy(open_service.url, lambda request: ProxyFault.STALL) as proxy:
        owner = HttpOwner(proxy.endpoint, patience_s=0, timeout=httpx.Timeout(0.3))
        with pytest.raises(UnknownOutcome):
            owner.backfill(table.uri)
        owner.close()


def test_what_is_told_to_wait_waits_and_asks_again(stranger: Stranger) -> None:
    stranger.status, stranger.headers = 429, {"Retry-After": "1"}
    stranger.body = b'{"error":{"kind":"owner-busy","message":"slow"}}'
    with client(stranger.url, patience_s=3) as owner, pytest.raises(OwnerBusy) as busy:
        owner.drop("file:///t")
    assert busy.value.retry_after_s == 1
    assert len(stranger.requests) >= 2


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "https://user:secret@host", "https://host?x=1", "https://host:port", "https://h#x"]
)
def test_an_address_that_is_none_is_refused_without_repeating_secrets(url: str) -> None:
    with pytest.raises(InvalidUri) as refused:
        HttpOwner(url)
    assert "secret" not in str(refused.value)


def test_a_token_does_not_travel_in_the_clear_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKESEAL_ALLOW_HTTP", raising=False)
    with pytest.raises(InvalidArgument, match="in the clear") as refused:
        HttpOwner("http://owner.example.com", token=TOKEN)
    assert TOKEN not in str(refused.value)
    HttpOwner("https://owner.example.com", token=TOKEN)
    HttpOwner("http://127.0.0.1:8700", token=TOKEN)
    HttpOwner("http://owner.example.com")
    monkeypatch.setenv("LAKESEAL_ALLOW_HTTP", "1")
    HttpOwner("http://owner.example.com", token=TOKEN)


def test_a_service_that_calls_itself_otherwise_than_configured_is_refused(open_service) -> None:
    with pytest.raises(InvalidArgument, match="'lakeseal', and was configured as 'team'"):
        _ = open_service.owner(name="team").name


def test_writers_behind_a_proxy_that_loses_a_tenth_of_the_replies_lose_and_double_nothing(
    open_service, tmp_path: Path
) -> None:
    store = open_store(tmp_path / "table")
    create(store, open_service.owner())
    count = iter(range(10**9))
    lock = threading.Lock()
    acknowledged: dict[str, int] = {}
    failed: list[BaseException] = []

    def every_tenth(request: Request) -> ProxyFault | None:
        with lock:
            number = next(count)
        return (ProxyFault.LOSE_REPLY, ProxyFault.LOSE_REQUEST)[number // 10 % 2] if number % 10 == 9 else None

    def write(name: str, url: str) -> None:
        owner = HttpOwner(url)
        try:
            log, managed = managed_log(owner, open_store(store.uri))
            for number in range(10):
                result = append(log, managed, f"{name}-{number}")
                acknowledged[result.txn_id] = result.version
        except BaseException as error:
            failed.append(error)
        finally:
            owner.close()

    with faulty_proxy(open_service.url, every_tenth) as proxy:
        threads = [threading.Thread(target=write, args=(f"w{n}", proxy.endpoint)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(acknowledged) == 30
    open_service.owner().backfill(store.uri)
    check_history(store, acknowledged)
    assert newest(store) == 30
    assert paths(DeltaLog(store)) == sorted(f"w{n}-{number}" for n in range(3) for number in range(10))
