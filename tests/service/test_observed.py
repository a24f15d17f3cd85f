"""What one sees of a service: health, numbers, logs without secrets, the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from html import unescape
from pathlib import Path

import pytest
from openapi_spec_validator import validate

from lakeseal import ledger
from lakeseal.clock import now_ms
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch
from lakeseal.service.client import HttpOwner
from lakeseal.service.finished_calls import FOLDER_VARIABLE, FinishedCalls, shared_folder
from lakeseal.service.logs import masked
from lakeseal.service.service import CALLS
from lakeseal.service.unity_calls import UNITY_CALLS
from lakeseal.storage import open_store
from lakeseal.testing.postgres import fresh_database
from support.managed_tables import append, create, managed_log

SOON = now_ms() + 3_000_000


def test_health_and_readiness_tell_of_the_process_the_ledger_and_the_lag(inside, tmp_path: Path) -> None:
    with inside(insecure=True) as client:
        assert client.get("/health").json() == {"status": "alive"}
        ready = client.get("/ready")
        assert ready.status_code == 200
        assert ready.json() == {
            "ready": True,
            "ledger": "takes commits",
            "publisher": "runs",
            "unbackfilled": 0,
            "lag_seconds": 0.0,
        }


def test_without_its_ledger_a_service_is_alive_and_not_ready(inside, tmp_path: Path) -> None:
    with inside(insecure=True, ledger=f"sqlite:///{tmp_path}/ledger.db") as client:
        (tmp_path / "ledger.db").unlink()
        assert client.get("/health").status_code == 200
        ready = client.get("/ready")
        assert ready.status_code == 503
        assert ready.json() == {"ready": False, "ledger": "takes no commits"}
        assert client.post("/v1/get-commits", json={"table": "file:///t"}).status_code == 503
        token = client.get("/v1/owner", headers={"Authorization": f"Bearer lks_{'0' * 12}_{'A' * 43}"})
        assert token.status_code == 503
        assert "ledger" not in token.text, "who is not known learns nothing of it"


def test_numbers_count_commits_conflicts_refusals_and_time(inside, tmp_path: Path) -> None:
    with inside(insecure=True, publish_every_s=60.0) as client:
        owner = HttpOwner(str(client.base_url))
        store = open_store(tmp_path / "table")
        log, managed = create(store, owner)
        data = json.dumps({"commitInfo": {"txnId": "late", "inCommitTimestamp": SOON}}).encode() + b"\n"
        late = ManagedOwner(owner, store).request(1, data, txn_id="late")
        append(log, managed, "a")
        append(log, managed, "b")
        owner.ratify(Batch(commits=(late,)))
        client.post("/v1/get-commits", json={"table": "nowhere"})
        text = client.get("/metrics").text
        owner.close()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found["lakeseal_commits_total"] == "2.0"
    assert found["lakeseal_conflicts_total"] == "1.0"
    assert found['lakeseal_refusals_total{kind="invalid-uri"}'] == "1.0"
    assert found['lakeseal_requests_total{call="ratify",status="2xx"}'] == "3.0"
    assert found['lakeseal_requests_total{call="get_commits",status="4xx"}'] == "1.0"
    assert found['lakeseal_request_seconds_count{call="ratify"}'] == "3.0"
    assert found['lakeseal_request_seconds_bucket{call="ratify",le="+Inf"}'] == "3.0"
    assert float(found['lakeseal_request_seconds_sum{call="ratify"}']) > 0
    assert found["lakeseal_unbackfilled_commits"] == "2.0"
    assert float(found["lakeseal_backfill_lag_seconds"]) > 0
    assert found["lakeseal_tables"] == "1.0"
    assert not any("table" in name for name in found if "{" in name), "no names of tables in labels"


WORKER = """
import os, sys
from lakeseal.owner.messages import Ratified
from lakeseal.service.finished_calls import FinishedCalls
counted = FinishedCalls(["ratify"])
decided = [Ratified(table="t", version=1, key="")]
print(counted.is_first, flush=True)
for _ in range(int(sys.argv[1])):
    counted.count("ratify", 200, 0.003, None, decided)
    counted.count("nobody knows", 200, 0.003, None)
sys.stdin.read()
print(counted.text({"lakeseal_tables": 1.5}).decode())
"""


def test_workers_add_up_also_those_that_have_died_and_one_of_them_is_the_first() -> None:
    def start(count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, str(count)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def first_line(worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        return worker.stdout.readline().strip()

    with shared_folder():
        first = start(2)
        assert first_line(first) == "True"
        first.communicate()
        with start(3) as second:
            assert first_line(second) == "True", "the other is gone"
            with start(4) as third:
                assert first_line(third) == "False"
                second.communicate()
                text = third.communicate()[0]
    assert "lakeseal_commits_total 9.0" in text
    assert 'lakeseal_request_seconds_bucket{call="ratify",le="0.0025"} 0.0' in text
    assert 'lakeseal_request_seconds_bucket{call="ratify",le="0.005"} 9.0' in text
    assert "lakeseal_tables 1.5" in text
    assert "nobody" not in text


NOTING = """
import sys
from lakeseal.service.finished_calls import FinishedCall, FinishedCalls
finished = FinishedCalls([])
for at in range(int(sys.argv[1])):
    finished.remember(FinishedCall(at_ms=at, call="ratify", who=sys.argv[2], tables=("t",)))
"""


def test_workers_remember_the_last_calls_together_also_those_of_one_that_has_died() -> None:
    with shared_folder():
        for count, who in ((2_500, "ada"), (10, "bo")):
            subprocess.run([sys.executable, "-c", NOTING, str(count), who], check=True)
        finished = FinishedCalls([])
        finished.behind(7)
        Path(os.environ[FOLDER_VARIABLE], "calls-1-0").write_text('{"at_ms": 5, "call"')  # one that is being written
        calls = finished.last()
        assert [lag for _, lag in FinishedCalls([]).lags()] == [7]
    assert [one.at_ms for one in calls] == sorted(one.at_ms for one in calls)
    assert [one.at_ms for one in calls if one.who == "bo"] == [*range(10)]
    assert [one.at_ms for one in calls if one.who == "ada"] == [*range(1_000, 2_500)], "and no more than the last"


def test_every_request_has_an_id_that_the_caller_may_choose(open_service) -> None:
    chosen = open_service.post("get-commits", {"table": "no"}, **{"X-Request-Id": "my-id.1"})
    assert chosen.headers["x-request-id"] == chosen.json()["request_id"] == "my-id.1"
    for bad in ("a b", "x" * 65, "<script>", '"'):
        made = open_service.post("get-commits", {"table": "no"}, **{"X-Request-Id": bad})
        assert made.headers["x-request-id"] != bad
        assert len(made.headers["x-request-id"]) == 32
    lines = [json.loads(line) for line in open_service.log().splitlines()]
    noted = next(line for line in lines if line.get("request_id") == "my-id.1")
    assert (noted["call"], noted["status"], noted["error"], noted["level"]) == (
        "get_commits",
        400,
        "invalid-uri",
        "info",
    )
    assert noted["ms"] > 0


def test_field_bug_s7_no_secret_is_in_logs_replies_or_errors(start, postgres: str, tmp_path: Path) -> None:
    secrets = ["hunter2pass", "wJalrXUtnFEMI"]
    with fresh_database(postgres) as url:
        ledger_url = url.replace("postgres@", f"postgres:{secrets[0]}@")
        service = start(
            "--log-level", "debug", "--option", f"aws_secret_access_key={secrets[1]}", ledger=ledger_url
        )  # fmt: skip
        good = service.token("admin")
        wrong = good[:-3] + "AAA"
        other = "lks_" + "f" * 12 + "_" + uuid.uuid4().hex + "A" * 11
        secrets += [token.rpartition("_")[2] if token is other else token[17:] for token in (good, wrong, other)]
        create(open_store(tmp_path / "table"), service.owner(good))
        replies = []
        for token in (good, wrong, other):
            replies.append(service.post("get-commits", {"table": f"file:///{token}"}, token=token))
            replies.append(service.post("get-commits", {"table": f"s3://k:{token}@bucket/t"}, token=good))
            replies.append(service.get(f"/v1/tables?token={token}&prefix=http://u:{token}@x"))
            replies.append(service.get(f"/{token}"))
            replies.append(service.post("ratify", {"commits": token}, token=good, **{"X-Request-Id": token + "x" * 40}))
            replies.append(service.get("/", headers={"Authorization": f"Basic {token}"}))
        service.post("begin-takeover", {"table": "s3://bucket/t", "takeover_id": "t", "version": 3}, token=good)
        said = service.log()
        service.stop()
    assert len(said.splitlines()) > 10
    assert all(json.loads(line) for line in said.splitlines())
    asked_by_id = [line for line in said.splitlines() if good.split("_")[1] in line]
    assert asked_by_id, "the log tells which token it was"
    for secret in secrets:
        assert secret not in said + service.log(), secret
    for reply in replies:
        if reply.request.url.path == "/v1/get-commits":
            continue  # tells the caller the name of the table that the caller gave
        for secret in secrets:
            assert secret not in reply.text, reply.request.url
        assert secrets[0] not in reply.text
        assert secrets[1] not in reply.text


def test_what_looks_like_a_secret_is_masked() -> None:
    token = "lks_0123456789ab_" + "s" * 43
    assert masked(f"a {token} b") == "a lks_0123456789ab_*** b"
    assert masked("Authorization: Bearer abcdefghijkl") == "Authorization: Bearer ***"
    assert masked("at postgresql://me:pass@host/db") == "at postgresql://***@host/db"
    assert masked("x?sig=abc&y=1 password=geheim") == "x?sig=***&y=1 password=***"
    assert masked("at postgresql://me:pa@ss@host/db") == "at postgresql://***@host/db"
    assert masked(r'{"message":"{\"aws_secret_access_key\": \"geheim\"}"}') == (
        r'{"message":"{\"aws_secret_access_key\": \"***\"}"}'
    )
    for text in (
        "aws_secret_access_key=geheim",
        "{'sasl.password': 'geheim'}",
        "AccountKey=geheim",
        "api-key='geheim'",
    ):
        assert "geheim" not in masked(text)
    two = '{"url":"http://127.0.0.1:8700","to":"a@b"}'
    assert masked(two) == two, "a line stays JSON"
    assert masked("the table s3://bucket/a is at version 3") == "the table s3://bucket/a is at version 3"


def test_the_page_shows_tables_their_state_and_their_lag(inside, tmp_path: Path) -> None:
    with inside(insecure=True, publish_every_s=60.0) as client:
        empty = client.get("/")
        owner = HttpOwner(str(client.base_url))
        log, managed = create(open_store(tmp_path / "orders"), owner)
        append(log, managed, "a")
        append(log, managed, "b")
        # Names that an object store may have and a page must not believe.
        direct = LedgerOwner(client.service.ledger)
        direct.begin_takeover("s3://bucket/<script>alert(1)</script>", "id", 0)
        page = client.get("/")
        owner.close()
    assert "No tables yet" in empty.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script>" not in page.text
    assert "s3://bucket/&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    row = page.text.partition(f'class="place">file://{tmp_path}/orders')[2].partition("</tr>")[0]
    assert [cell.partition("<")[0].split()[0] for cell in row.split('class="number">')[1:]] == ["2", "2"]
    assert "pending" in page.text
    assert "2 tables; waiting for their backfill: 2 commits" in page.text
    assert "no sign-in" in page.text


def test_the_page_is_turned_when_there_are_many_tables(inside) -> None:
    with inside(insecure=True) as client:
        direct = LedgerOwner(client.service.ledger)
        for number in range(205):
            direct.begin_takeover(f"s3://bucket/t{number:04d}", "id", 0)
        first = client.get("/")
        link = unescape(first.text.partition('class="more" href="')[2].partition('"')[0])
        second = client.get(link)
        assert "t0199<" in first.text
        assert "t0200<" not in first.text
        assert "t0199<" not in second.text
        assert "t0204<" in second.text
        assert "More tables" not in second.text
        listed = client.get("/v1/tables?limit=100").json()
        assert len(listed["tables"]) == 100
        assert listed["more"]


def test_the_description_has_every_call_with_its_messages(open_service) -> None:
    described = open_service.get("/openapi.json").json()
    for call in CALLS:
        operation = described["paths"][call.path]["post"]
        sent = operation["requestBody"]["content"]["application/json"]["schema"]
        assert sent["$ref"].rpartition("/")[2] in described["components"]["schemas"]
        assert "200" in operation["responses"]
    for asked in UNITY_CALLS:
        operation = described["paths"][asked.path][asked.method.lower()]
        parts = {one["name"]: one["in"] for one in operation["parameters"]}
        assert [name for name, place in parts.items() if place == "path"] == re.findall(r"{(\w+)}", asked.path)
        assert {*parts, *(("body",) if "requestBody" in operation else ())} == set(asked.__struct_fields__)
        assert str(asked.status) in operation["responses"]
    long_query = open_service.get("/api/2.1/unity-catalog/tables?catalog_name=" + "x" * 60_000)
    said = described["paths"]["/api/2.1/unity-catalog/tables"]["get"]["responses"][str(long_query.status_code)]
    assert said["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorReply"}
    assert set(long_query.json()) == {"error", "request_id"}
    told = {(path, method) for path, operations in described["paths"].items() for method in operations}
    calls = {(one.path, "post") for one in CALLS} | {(one.path, one.method.lower()) for one in UNITY_CALLS}
    assert told - calls == {(path, "get") for path in ("/v1/owner", "/v1/tables", "/metrics", "/health", "/ready")}
    text = json.dumps(described)
    for reference in {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in described["components"]["schemas"], reference
    answers = described["paths"]["/v1/tables"]["get"]["responses"]["200"]["content"]
    assert answers["application/json"]["schema"] == {"$ref": "#/components/schemas/TableList"}
    assert described["paths"]["/metrics"]["get"]["responses"]["200"]["content"].keys() == {"text/plain"}
    validate(described)


def test_a_table_outside_of_the_roots_that_the_ledger_knows_is_left_alone(
    inside, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    below, outside = open_store(tmp_path / "root" / "t"), open_store(tmp_path / "other" / "t")
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ledger.open(url) as opened:
        owner = LedgerOwner(opened, backfills=False)
        for store in (below, outside):
            log, managed = create(store, owner)
            append(log, managed, "a")
    with inside(insecure=True, ledger=url, roots=(str(tmp_path / "root"),)) as client:
        deadline = time.monotonic() + 60
        while client.post("/v1/get-commits", json={"table": below.uri}).json()["backfilled"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.service.owner.get_commits(outside.uri).backfilled == 0
    assert f"{outside.uri} could not be taken up" in caplog.text


@pytest.mark.parametrize("batch_size", [1, 2, 10])
def test_a_full_batch_by_the_tables_own_conf_is_backfilled_at_once(inside, tmp_path: Path, batch_size: int) -> None:
    store, first, url = open_store(tmp_path / "t"), open_store(tmp_path / "first"), f"sqlite:///{tmp_path}/ledger.db"
    with ledger.open(url) as opened:
        direct = LedgerOwner(opened, batch_size=batch_size)
        create(store, direct)
        create(first, direct)
        append(*managed_log(direct, first), "waits")
    # There is one round over all tables, when the service starts; the next one comes in eleven days.
    with inside(insecure=True, rate=0, ledger=url, batch_size=7, publish_every_s=10.0**6) as client:
        owner = HttpOwner(str(client.base_url))
        deadline = time.monotonic() + 60
        while owner.get_commits(first.uri).backfilled == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        log, managed = managed_log(owner, store)
        for number in range(batch_size):
            assert owner.get_commits(store.uri).backfilled == 0
            append(log, managed, f"f{number}")
        deadline = time.monotonic() + 60
        while owner.get_commits(store.uri).backfilled < batch_size:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        owner.close()


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_no_page_loads_scripts_from_elsewhere(open_service, path: str) -> None:
    assert open_service.get(path).status_code == 404
