"""`lakeseal owner …` and `lakeseal serve`, as a person types them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import lakeseal as package
from lakeseal import ledger
from lakeseal.cli import main
from lakeseal.cli.serve import serve
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.service.settings import ServiceSettings
from lakeseal.storage import open_store
from support.managed_tables import append, create


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]


@pytest.fixture
def lakeseal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("LAKESEAL_DEBUG", "LAKESEAL_TOKEN", "LAKESEAL_OWNER", "LAKESEAL_LEDGER", "LAKESEAL_OWNERS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ended:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def test_a_table_goes_to_the_owner_and_back(lakeseal: Run, url: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders")
    package.Table(uri).write(pa.table({"id": [1]}))
    taken = lakeseal("owner", "take-over", uri, "--owner", url, "--json")
    assert taken.rows == [{"table": f"file://{uri}", "owner": "lakeseal", "kind": "managed", "version": 1}]
    again = lakeseal("owner", "take-over", uri, "--owner", url, "--json")
    assert again.code == 1
    assert json.loads(again.err)["kind"] == "already-exists"
    package.Table(uri, owner=url).write(pa.table({"id": [2]}))
    status = lakeseal("owner", "status", uri, "--owner", url, "--json").rows[0]
    assert (status["state"], status["latest"], status["owner"]) == ("active", 2, "lakeseal")
    assert (status["backfilled"], len(status["waiting"])) in ((1, 1), (2, 0)), "copied behind the answer"
    assert [one["unbackfilled"] for one in lakeseal("owner", "tables", "--owner", url, "--json").rows] in ([0], [1])
    assert lakeseal("owner", "tables", "--owner", url, "--prefix", "/elsewhere", "--json").rows == []
    filled = lakeseal("owner", "backfill", uri, "--owner", url, "--version", "2", "--json").rows[0]
    assert (filled["backfilled"], filled["waiting"]) == (2, [])
    released = lakeseal("owner", "release", uri, "--owner", url, "--json")
    assert released.rows == [{"table": f"file://{uri}", "owner": None, "version": 3}]
    assert package.Table(uri).to_arrow().num_rows == 2
    assert "none" in lakeseal("owner", "tables", "--owner", url).out


def test_a_table_becomes_one_that_other_engines_commit_to(lakeseal: Run, url: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "orders")
    package.Table(uri).write(pa.table({"id": [1]}))
    taken = lakeseal("owner", "take-over", uri, "--owner", url, "--kind", "catalog", "--json").rows[0]
    assert (taken["kind"], taken["version"]) == ("catalog", 1)
    with pytest.raises(package.LakesealError, match="only its catalog knows"):
        package.Table(uri).to_arrow()
    assert package.Table(uri, owner=url).to_arrow().num_rows == 1
    assert lakeseal("owner", "release", uri, "--owner", url, "--json").code == 0
    assert package.Table(uri).to_arrow().num_rows == 1


def test_the_same_through_a_service_with_a_token_from_the_environment(
    lakeseal: Run, closed_service, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(data / f"cli-{tmp_path.name}")
    create(open_store(uri))
    monkeypatch.setenv("LAKESEAL_OWNER", closed_service.url)
    refused = lakeseal("owner", "take-over", uri, "--json")
    assert json.loads(refused.err)["kind"] == "not-authenticated"
    monkeypatch.setenv("LAKESEAL_TOKEN", closed_service.token("admin"))
    assert lakeseal("owner", "take-over", uri, "--json").rows[0]["version"] == 1
    assert lakeseal("owner", "tables", "--prefix", uri, "--json").rows[0]["state"] == "active"
    assert lakeseal("owner", "status", uri).out.split()[:2] == ["table", f"file://{uri}"]
    assert lakeseal("owner", "backfill", uri, "--json").rows[0]["backfilled"] == 1
    assert lakeseal("owner", "release", uri, "--json").rows[0]["version"] == 2


def test_a_table_that_the_owner_does_not_know_is_said_so(lakeseal: Run, url: str, tmp_path: Path) -> None:
    create(open_store(tmp_path / "t"))
    for command in ("status", "release"):
        ended = lakeseal("owner", command, str(tmp_path / "t"), "--owner", url, "--json")
        assert ended.code == 1
        assert json.loads(ended.err)["hint"]
    assert lakeseal("owner", "status", str(tmp_path / "t"), "--owner", url).code == 1


def test_tokens_are_made_shown_once_listed_and_revoked(lakeseal: Run, url: str) -> None:
    made = lakeseal(
        "owner", "token", "create", "etl", "--ledger", url, "--grant", "writer:/data", "--grant", "reader", "--json"
    ).rows[0]
    assert made["token"].startswith(f"lks_{made['id']}_")
    assert made["grants"] == ["writer:file:///data", "reader"]
    assert made["expires"] > made["created"]
    forever = lakeseal(
        "owner", "token", "create", "x", "--ledger", url, "--grant", "admin", "--expires", "never", "--json"
    ).rows[0]
    assert forever["expires"] is None
    listed = lakeseal("owner", "token", "list", "--ledger", url, "--json")
    assert [(one["name"], one["state"]) for one in listed.rows] == [("etl", "valid"), ("x", "valid")]
    assert made["token"] not in listed.out
    assert lakeseal("owner", "token", "revoke", made["id"], "--ledger", url, "--json").rows[0]["state"] == "revoked"
    assert lakeseal("owner", "token", "revoke", forever["token"], "--ledger", url, "--json").rows[0]["name"] == "x"
    shown = lakeseal("owner", "token", "list", "--ledger", url)
    assert shown.out.count("revoked") == 2
    text = lakeseal("owner", "token", "create", "etl", "--ledger", url, "--grant", "reader", "--expires", "30m").out
    assert "shown this once" in text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["token", "create", "x", "--grant", "king"], 1),
        (["token", "create", "x", "--grant", "reader", "--expires", "soon"], 2),
        (["token", "create", "x"], 2),
        (["token", "create", "", "--grant", "reader"], 1),
        (["token", "revoke", "0123"], 1),
    ],
)
def test_wrong_token_commands_say_why(lakeseal: Run, url: str, arguments: list[str], code: int) -> None:
    ledger.open(url).close()
    ended = lakeseal("owner", *arguments, "--ledger", url)
    assert ended.code == code
    assert ended.err
    assert ended.out == ""


def test_tokens_are_not_made_over_http_and_not_in_a_ledger_that_is_not_there(lakeseal: Run, tmp_path: Path) -> None:
    ended = lakeseal("owner", "token", "list", "--ledger", "http://127.0.0.1:1", "--json")
    assert json.loads(ended.err)["kind"] == "invalid-uri"
    ended = lakeseal("owner", "token", "list", "--ledger", f"sqlite:///{tmp_path}/none.db", "--json")
    assert json.loads(ended.err)["kind"] == "not-found"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--listen", "0.0.0.0:0", "--insecure"], 1, "insecure"),
        (["--listen", "nowhere"], 1, "listen"),
        (["--workers", "0"], 2, "workers"),
        (["--log-level", "loud"], 2, "log-level"),
        (["--tls-key", "key.pem"], 1, "certificate"),
        (["--root", "http://x"], 1, "scheme"),
        (["--policies", "/does/not/exist"], 1, "policies"),
        (["--option", "secret"], 2, "NAME=VALUE"),
    ],
)
def test_a_service_that_cannot_run_says_why(
    lakeseal: Run, url: str, arguments: list[str], code: int, words: str
) -> None:
    ended = lakeseal("serve", "--ledger", url, *arguments)
    assert ended.code == code
    assert words in ended.err


def test_a_ledger_that_cannot_be_opened_is_said_before_anything_starts(lakeseal: Run, tmp_path: Path) -> None:
    ended = lakeseal("serve", "--ledger", f"sqlite:///{tmp_path}/no/dir/l.db", "--listen", "127.0.0.1:0", "--json")
    assert ended.code == 1
    assert json.loads(ended.err.splitlines()[-1])["kind"] == "not-found"
    ended = lakeseal("serve", "--ledger", "postgresql://me:geheim@127.0.0.1:1/x?connect_timeout=1", "--json")
    assert "geheim" not in ended.err


def test_an_owner_by_its_name(lakeseal: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger.open(url) as opened:
        log, managed = create(open_store(tmp_path / "t"), LedgerOwner(opened))
        append(log, managed, "a")
    monkeypatch.setenv("LAKESEAL_OWNERS", json.dumps({"lakeseal": url}))
    assert lakeseal("owner", "tables", "--owner", "lakeseal", "--json").rows[0]["latest"] == 1
    assert lakeseal("owner", "tables", "--owner", "nobody").code == 1


def test_a_service_is_bounded_alike_from_the_terminal_and_from_its_settings() -> None:
    settings = ServiceSettings(ledger="sqlite://")
    options = {name: one.default for name, one in inspect.signature(serve).parameters.items()}
    bounds = [name for name in ServiceSettings.__struct_fields__ if isinstance(options.get(name), int | float)]
    assert {"max_body", "max_upload", "rate", "max_connections", "workers"} <= set(bounds)
    assert {name: options[name] for name in bounds} == {name: getattr(settings, name) for name in bounds}
