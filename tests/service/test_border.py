"""What leaves a service and what reaches it from its clients' configuration: queries, errors, readiness, tokens, and
what is said while it is away."""

from __future__ import annotations

import inspect
import json
import logging
import os
import resource
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

import lakeseal
from lakeseal import errors, ledger
from lakeseal.cli import main
from lakeseal.cli.java import Java
from lakeseal.commit import attempts
from lakeseal.errors import InvalidArgument, LakesealError, NotAuthenticated, StorageUnavailable
from lakeseal.ledger.schema import tables
from lakeseal.owner.connect import Owners, connect
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.service.app import whole_number
from lakeseal.service.client import HttpOwner
from lakeseal.service.observed import Note
from lakeseal.service.owner_calls import OWNER_CALLS
from lakeseal.service.replies import refused
from lakeseal.service.service import CALLS, GOOD_S
from lakeseal.storage import open_store
from lakeseal.testing.postgres import fresh_database
from service.test_hostile import ASKED
from support.examples import examples
from support.managed_tables import append, create

FEW = examples(15, 150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

# Queries.

numbers = st.one_of(
    st.integers(-5, 2000).map(str),
    st.integers(0, 2000).map(lambda number: f"{number:016d}"),
    st.sampled_from(
        ["0000000019999999", "9" * 5009, "1" * 18, "+1", "1_0", " 1", "1 ", "1\n", "٣", "１", "0x1", "1e2", "1.0", ""]
    ),
    st.text(max_size=6),
)
names = st.one_of(
    st.text(max_size=20), st.sampled_from(["\0", "file:///a", "x" * 5000, "é" * 2100, "http://x", "//", "%"])
)


@FEW
@example(path="/v1/tables", limit="9" * 5009, after="", prefix="", more="")
@example(path="/v1/tables", limit="0000000019999999", after="", prefix="", more="")
@given(path=st.sampled_from(["/v1/tables", "/"]), limit=numbers, after=names, prefix=names, more=st.text(max_size=10))
@pytest.mark.parametrize("service", ["open_service", "postgres_service"])
def test_queries_of_any_kind_are_answered_or_refused(
    request: pytest.FixtureRequest, service: str, path: str, limit: str, after: str, prefix: str, more: str
) -> None:
    asked = "&".join(
        f"{name}={quote(text, safe='')}" for name, text in (("limit", limit), ("after", after), ("prefix", prefix))
    )
    answer = request.getfixturevalue(service).get(f"{path}?{asked}&{quote(more, safe='=&%')}")
    assert answer.status_code in (200, 400, 431), answer.text
    if path == "/v1/tables" and not (
        limit.isascii() and limit.isdigit() and str(int(limit[:9])) == limit and 0 < int(limit) <= 1000
    ):
        assert answer.status_code != 200
    if answer.status_code == 400:
        assert answer.json()["error"]["kind"] in ("invalid-argument", "invalid-uri")


@given(
    st.one_of(st.integers(0, 10**18 - 1).map(str), st.text(max_size=30), st.from_regex(r"[0-9]{1,40}", fullmatch=True))
)
@example("９")
@example("0")
@example("00")
@example("1\n")
def test_a_whole_number_is_one_as_it_is_written(text: str) -> None:
    found = whole_number(text)
    assert (found is not None) == (
        text in (str(int(text)),) if text.isascii() and text.isdigit() and len(text) <= 18 else False
    )
    assert found is None or str(found) == text


# Other sites.


@pytest.mark.parametrize(
    "says",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://["}],
    ids=str,
)
def test_another_sites_page_makes_a_browser_here_do_nothing(open_service, says: dict[str, str]) -> None:
    """Without tokens, whatever reaches the service may do everything: also what a browser was told to send."""
    base, plain = "/api/2.1/unity-catalog", {"Content-Type": "text/plain"}
    with httpx.Client(base_url=open_service.url, trust_env=False) as browser:
        body = b'{"name":"stolen","catalog_name":"main"}'
        refused = browser.post(f"{base}/schemas", content=body, headers={**plain, **says})
        assert refused.status_code in (400, 403)
        assert b"another site" in refused.content
        assert browser.get(f"{base}/schemas/main.stolen").status_code == 404
        asked = browser.post("/v1/get-commits", json={"table": "file:///t"}, headers=says)
        assert asked.status_code == 403
        assert browser.get(f"{base}/catalogs", headers=says).status_code == 200


# Errors.


def every_answer(service: Any, ledger_url: str, token: str | None = None) -> list[httpx.Response]:
    found = [service.post(call.name.replace("_", "-"), ASKED[call.name], token=token) for call in CALLS]
    login = {} if token is None else {"Authorization": f"Bearer {token}"}
    paths = ("/v1/owner", "/v1/tables", "/metrics", "/ready", "/health", "/", "/nothing", "/openapi.json")
    pages = ("/catalog", "/branches", "/pipelines", "/pipeline?name=p", "/audit", "/sign-in?token=x")
    return found + [service.get(path, headers=login) for path in (*paths, *pages)]


def check_discreet(answers: list[httpx.Response], *internals: str) -> set[int]:
    for answer in answers:
        for text in internals:
            assert text not in answer.text, (answer.request.url, text)
        assert "Traceback" not in answer.text
        assert "sqlalchemy" not in answer.text.lower()
    return {answer.status_code for answer in answers}


def remove(path: Path) -> None:
    path.unlink()


def replace_by_nonsense(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.write_bytes(b"nonsense" * 1000)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 200_000)
    for name in ("-wal", "-shm"):
        Path(f"{path}{name}").write_bytes(b"\xff" * 50_000)


def drop_its_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f'DROP TABLE "{name}"')
    connection.close()


@pytest.mark.parametrize("harm", [remove, replace_by_nonsense, damage, drop_its_tables])
def test_whatever_happens_to_the_ledger_no_client_learns_where_it_is(start, tmp_path: Path, harm) -> None:
    path = tmp_path / "secret-place" / "ledger.db"
    path.parent.mkdir()
    service = start("--insecure", "--rate", "0", ledger=f"sqlite:///{path}")
    check_discreet(every_answer(service, str(path)), str(path), "secret-place")
    harm(path)
    statuses = check_discreet(every_answer(service, str(path)), str(path), "secret-place", "sqlite")
    assert statuses & {422, 502, 503}, statuses
    assert "secret-place" in service.log(), "the log tells"


@pytest.mark.stress
def test_a_database_that_is_away_is_not_named_to_clients(start, postgres: str) -> None:
    with fresh_database(postgres) as url:
        service = start("--insecure", "--rate", "0", ledger=url)
        with psycopg.connect(postgres.replace("+psycopg", ""), autocommit=True) as admin:
            name = sa.make_url(url).database
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        with ThreadPoolExecutor(8) as pool:
            asked = [*(call.name for call in OWNER_CALLS[:3]), "read_watermarks", "acquire_lease"]
            said = list(pool.map(lambda one: service.post(one.replace("_", "-"), ASKED[one]), asked))
        assert check_discreet(said, name, "postgres", "host=", "/tmp/") <= {400, 503}
        with psycopg.connect(postgres.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        service.stop()


@pytest.mark.parametrize(
    "kind", [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, LakesealError)]
)
def test_every_error_that_names_the_ledger_keeps_its_kind_and_loses_the_name(kind: type[LakesealError]) -> None:
    for url in ("sqlite:////secret/ledger.db", "postgresql://me:word@secret-host/base"):
        where = ledger.parse(url)
        for error in (
            kind(f"the ledger {where}: unable to open database file", table="file:///t"),
            kind("no answer", hint=f"Look at {where}", table="file:///t"),
            kind("no answer", file=where.path or where.public, table="file:///t"),
        ):
            said = json.loads(refused(error, Note(()), where).body)["error"]
            assert (said["kind"], said["table"]) == (kind.kind, "file:///t")
            assert "secret" not in json.dumps(said)


# Readiness.


def until(service: Any, status: int) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (answer := service.get("/ready")).status_code != status:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)
    found: dict[str, Any] = answer.json()
    return found


def test_a_full_disk_is_not_ready_and_reads_go_on(start) -> None:
    service = start("--insecure", "--rate", "0")
    until(service, 200)
    before = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    assert until(service, 503) == {"ready": False, "ledger": "takes no commits"}
    assert service.get("/health").status_code == 200
    assert service.post("get-commits", {"table": "file:///t"}).status_code == 200
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, before)
    assert until(service, 200)["ledger"] == "takes commits"


def test_a_ledger_that_only_reads_is_not_ready(inside) -> None:
    with inside(insecure=True) as client:
        engine = client.service.ledger._backend._engine
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")
        assert until(client, 503) == {"ready": False, "ledger": "takes no commits"}
        assert client.post("/v1/get-commits", json={"table": "file:///t"}).status_code == 200
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only=OFF")
        until(client, 200)


def test_a_ledger_that_somebody_else_keeps_locked_is_not_ready(start, tmp_path: Path) -> None:
    service = start("--insecure", "--rate", "0")
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    time.sleep(GOOD_S)
    assert until(service, 503) == {"ready": False, "ledger": "does not answer"}
    other.execute("ROLLBACK")
    other.close()
    until(service, 200)


@pytest.mark.parametrize("state", ["25006", "53100"])
def test_a_database_that_only_reads_or_is_full_is_not_ready(start, postgres: str, state: str) -> None:
    """25006 is said by one in recovery, 53100 by one whose disk is full."""
    with fresh_database(postgres) as url:
        service = start("--insecure", "--rate", "0", ledger=url)
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute(
                "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{state}'; END $$"
            )
            admin.execute(
                "CREATE TRIGGER no BEFORE INSERT OR UPDATE ON lakeseal.facts FOR EACH ROW EXECUTE FUNCTION no()"
            )
            assert until(service, 503) == {"ready": False, "ledger": "takes no commits"}
            assert service.post("get-commits", {"table": "file:///t"}).status_code == 200
            admin.execute("DROP TRIGGER no ON lakeseal.facts")
            until(service, 200)
        service.stop()


def test_however_often_readiness_is_asked_for_the_ledger_is_asked_now_and_then(inside) -> None:
    with inside(insecure=True, publish_every_s=10.0**6) as client:
        client.get("/ready")
        writes, write = [], client.service.ledger.write

        def counted(do: Callable[..., Any], **options: Any) -> Any:
            writes.append(threading.current_thread().name)
            return write(do, **options)

        client.service.ledger.write = counted
        start = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            statuses = set(pool.map(lambda _: client.get("/ready").status_code, range(400)))
        took = time.monotonic() - start
        assert statuses == {200}
        assert len(writes) <= took / GOOD_S + 1


# Tokens of the environment.


class Listener(threading.Thread):
    """Notes what is sent to it, and answers nothing that is one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heard = b""
        self.start()

    def run(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            with one:
                self.heard += one.recv(65536)
                one.sendall(b"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.join()


@pytest.fixture
def listener():
    found = Listener()
    yield found
    found.close()


def test_the_environments_token_is_used_by_a_table_with_an_address(closed_service, data: Path, monkeypatch) -> None:
    monkeypatch.setenv("LAKESEAL_TOKEN", closed_service.token("writer"))
    table = lakeseal.Table(str(data / "by-address"), owner=closed_service.url)
    table.write(pa.table({"id": [1]}))
    assert table.version() == 0
    monkeypatch.delenv("LAKESEAL_TOKEN")
    with pytest.raises(NotAuthenticated):
        connect(closed_service.url).get_commits(f"file://{data}/by-address")


def test_the_environments_token_is_used_by_owners_that_are_plain_addresses(
    closed_service, data: Path, monkeypatch
) -> None:
    token = closed_service.token("writer")
    monkeypatch.setenv("LAKESEAL_TOKEN", token)
    monkeypatch.setenv("LAKESEAL_OWNERS", json.dumps({"lakeseal": closed_service.url}))
    assert Owners()["lakeseal"].get_commits(f"file://{data}/t").latest == -1
    table = lakeseal.Table(str(data / "by-name"), owner="lakeseal")
    table.write(pa.table({"id": [1]}))
    assert table.version() == 0
    assert lakeseal.Table(str(data / "by-name")).version() == 0, "the log names the owner, and it is configured"
    own = {"lakeseal": {"url": closed_service.url, "token": closed_service.token("reader:/elsewhere")}}
    monkeypatch.setenv("LAKESEAL_OWNERS", json.dumps(own))
    with pytest.raises(LakesealError, match="needs the role reader"):
        Owners()["lakeseal"].get_commits(f"file://{data}/t")


def test_the_environments_token_goes_to_no_second_host(closed_service, listener, monkeypatch, caplog) -> None:
    token = closed_service.token("reader")
    monkeypatch.setenv("LAKESEAL_TOKEN", token)
    monkeypatch.setenv("LAKESEAL_OWNERS", json.dumps({"a": closed_service.url, "b": listener.url}))
    with pytest.raises(LakesealError, match="redirect"):
        Owners()["b"].get_commits("file:///t")
    assert listener.heard
    assert token.encode() not in listener.heard
    assert "give each its own token" in caplog.text
    owners = {"a": {"url": closed_service.url, "token": token}, "b": {"url": listener.url, "token": "other"}}
    monkeypatch.setenv("LAKESEAL_OWNERS", json.dumps(owners))
    monkeypatch.delenv("LAKESEAL_TOKEN")
    with pytest.raises(LakesealError, match="redirect"):
        connect("b").get_commits("file:///t")
    assert token.encode() not in listener.heard
    assert b"Bearer other" in listener.heard


def test_the_environments_token_does_not_travel_in_the_clear_or_to_a_ledger(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKESEAL_TOKEN", "lks_0123456789ab_" + "s" * 43)
    with pytest.raises(InvalidArgument, match="in the clear"):
        connect("http://owner.example.com")
    assert isinstance(connect(f"sqlite:///{tmp_path}/ledger.db"), LedgerOwner)


# A service that is away.


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_service_that_is_away_is_said_to_be_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    owner = HttpOwner(nobody(), patience_s=1.5)
    with caplog.at_level(logging.WARNING), pytest.raises(StorageUnavailable):
        owner.get_commits("file:///t")
    (told,) = [record for record in caplog.records if record.name == "lakeseal.service.http_client"]
    said = told.getMessage()
    assert "cannot be reached" in said
    assert "asked again, at most 2 s apart, until " in said
    assert owner._url in said


def test_a_service_that_comes_back_is_said_to(start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = start("--insecure")
    listen = service.url.removeprefix("http://")
    service.stop()
    owner = HttpOwner(service.url, patience_s=60)
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(owner.get_commits, "file:///t")
        time.sleep(0.5)
        start("--insecure", listen=listen)
        assert asked.result().latest == -1
    said = [record.getMessage() for record in caplog.records if record.name == "lakeseal.service.http_client"]
    assert len(said) == 2
    assert said[1] == f"The service at {service.url} answers again"
    owner.close()


def test_a_write_that_waits_for_its_service_says_so(start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = start("--insecure")
    listen = service.url.removeprefix("http://")
    log, managed = create(open_store(tmp_path / "table"), service.owner())
    service.stop()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as pool:
        done = pool.submit(append, log, managed, "a")
        deadline = time.monotonic() + 30
        while "asked again" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        start("--insecure", listen=listen)
        assert done.result().version == 1


def test_a_commit_without_an_answer_says_once_that_it_is_asked_for_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_TELL_AFTER_S", 0.05)
    patience = attempts.Patience(attempts.Retry(deadline_s=60))
    patience.tell("the service is away", "file:///t")
    assert not caplog.records, "a moment is nothing to tell of"
    for _ in range(3):
        time.sleep(0.06)
        patience.tell("the service is away", "file:///t")
    (told,) = caplog.records
    assert "a commit to file:///t has no answer: the service is away" in told.getMessage()
    assert "asked for again, at most 2 s apart, until " in told.getMessage()


# Names that are not there, and names that are known before.


NOT_FOR_NEW = [call.name for call in OWNER_CALLS if call.name not in ("begin_takeover", "ratify", "get_commits_of")]


def test_steps_for_tables_that_are_not_there_add_no_rows(inside, tmp_path: Path) -> None:
    with inside(insecure=True, rate=0, ledger=f"sqlite:///{tmp_path}/ledger.db") as client:

        def count() -> int:
            return len(client.service.ledger.read(lambda tx: tx.rows(tables.select(), lock=False)))

        for number in range(5):
            name = f"file://{tmp_path}/nothing-{number}"
            for call in (
                "drop",
                "finish_release",
                "withdraw_takeover",
                "confirm_takeover",
                "get_commits",
                "backfill",
                "begin_release",
            ):
                asked = {**ASKED[call], "table": name}
                asked.pop("version", None)
                client.post(f"/v1/{call.replace('_', '-')}", json=asked)
            assert client.post("/v1/drop", json={"table": name}).json()["state"] == "none"
        assert count() == 0


def test_the_log_of_a_pipelines_spark_is_a_new_file_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the file that `lakeseal ingest run` has opened when Spark's JVM starts, which inherits it."""
    opened: list[os.stat_result] = []

    class Builder:
        def __getattr__(self, name: str) -> Callable[..., Builder]:
            return lambda *_: self

        def getOrCreate(self) -> None:  # noqa: N802  Spark's own name
            opened.append(os.fstat(2))
            raise errors.Unsupported("so far")

    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("lakeseal.cli.spark_session.find_java", lambda: Java(tmp_path, 17))
    monkeypatch.setattr("lakeseal.spark.local_session.SparkSession", SimpleNamespace(builder=Builder()))
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    target = tmp_path / "somebody's file"
    target.write_text("theirs")
    guessed = [folder / f"lakeseal-ingest{end}.log" for end in ("", "-x", f"-{os.getpid()}", "-0", "-1", "-2")]
    for link in guessed:
        link.symlink_to(target)
    pipeline = tmp_path / "x.yaml"
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}\n')
    pipeline.write_text(
        f"name: x\nledger: sqlite:///{tmp_path}/ledger.db\ndatasets:\n  - name: d\n"
        f"    source: {{type: files, path: {tmp_path}/landing, format: json, schema: id long}}\n"
        f"    target: {{type: table, uri: {tmp_path}/d}}\n"
    )
    for count in (1, 2):
        assert main(["ingest", "run", str(pipeline)]) == 1
        assert len(opened) == count
    logs = sorted(set(folder.iterdir()) - set(guessed))
    assert {log.lstat().st_ino for log in logs} == {one.st_ino for one in opened}
    assert len(logs) == 2, "a new one each time"
    for log in logs:
        found = log.lstat()
        assert stat.S_ISREG(found.st_mode)
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_nlink) == (0o600, os.getuid(), 1)
        assert not log.stem.rpartition("-")[2].isdecimal()
    assert all(link.is_symlink() for link in guessed)
    assert target.read_text() == "theirs"
