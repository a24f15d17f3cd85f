"""What somebody new types wrong, and what they are told: one line, which says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.cli.java import find_java
from lakeseal.clock import now_ms
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.testing.service import service_inside

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.delenv("LAKESEAL_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("read", "nowhere"), "Check the location"),
        (("read", "sales.orders"), "lakeseal catalog list shows what there is"),
        (("read", "{sales}", "--where", "shp = 'north'"), "Did you mean shop?"),
        (("read", "{sales}", "--columns", "shp"), "It has id, shop, price, sold"),
        (("read", "{sales}", "--version", "9"), "The newest version is 1"),
        (("read", "{sales}", "--timestamp", "yesterday"), "2024-01-31T12:00:00Z"),
        (("read", "{sales}", "--owner", "nobody"), "LAKESEAL_OWNERS"),
        (("write", "{sales}", "no.csv"), "Check their names"),
        (("sql", "SELECT * FROM orders"), "There is no table of this name (table orders). Name it by its path, delta."),
        (("sql", "DELETE FROM orders"), "or name its catalog with --catalog"),
        (("sql", "SELECT X'41'"), "or give --spark"),
        (("sql", "EXPLAIN SELECT 1"), "Spark may know it: give --spark"),
        (("ingest", "run", "no.yaml"), "lakeseal ingest init makes a first one"),
        (("ui", "nowhere"), "There is no table here"),
        (("serve", "--ledger", "sqlite:///l.db", "--listen", "127.0.0.1"), "127.0.0.1:8700"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_what_to_do(
    call: tuple[str, ...], told: str, lakeseal: Run, sales: str
) -> None:
    ended = lakeseal(*(word.format(sales=sales) for word in call))
    assert ended.code == 1
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_without_a_token_and_with_a_wrong_one_it_is_said_where_it_belongs(
    lakeseal: Run, sales: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", roots=(str(tmp_path),)) as (url, service):
        assert "LAKESEAL_TOKEN" in lakeseal("owner", "take-over", sales, "--owner", url).err
        monkeypatch.setenv("LAKESEAL_TOKEN", "lks_wrong")
        assert "not valid" in lakeseal("owner", "take-over", sales, "--owner", url).err
        monkeypatch.setenv(
            "LAKESEAL_TOKEN", tokens.create(service.ledger, "r", (Grant.from_text("reader"),), now=now_ms())[0]
        )
        refused = lakeseal("owner", "take-over", sales, "--owner", url).err
        assert "Ask whoever runs the service" in refused


@pytest.mark.parametrize("call", [("catalog", "list"), ("read", "{sales}", "--where", "id > 99")])
def test_nothing_is_no_empty_box(call: tuple[str, ...], lakeseal: Run, sales: str) -> None:
    ended = lakeseal(*(word.format(sales=sales) for word in call))
    assert ended.code == 0
    assert "lakeseal catalog register" in ended.out or "0 rows" in ended.out


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (("sql", "--spark", "SELECT 1"), "leave --spark out"),
        (("ingest", "run", "pipeline.yaml"), "say --no-spark"),
    ],
)
def test_without_a_java_it_is_said_what_to_do(
    call: tuple[str, ...], instead: str, lakeseal: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lakeseal("ingest", "init", "people").code == 0
    monkeypatch.chdir("people")
    monkeypatch.setattr(find_java, "__defaults__", (17, ()))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    ended = lakeseal(*call)
    assert ended.code == 1
    assert "Spark needs Java 17 or newer" in ended.err + ended.out
    assert instead in ended.err + ended.out


def test_spark_is_started_on_the_java_that_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one on the path may be too old; Spark's scripts would take it."""
    for name, version in (("old", "11.0.2"), ("jvm", "17.0.9")):
        (tmp_path / name / "bin").mkdir(parents=True)
        java = tmp_path / name / "bin" / "java"
        java.write_text('#!/bin/sh\necho "$0" > "$(dirname "$0")/called"\nexit 1\n')
        java.chmod(0o755)
        (tmp_path / name / "release").write_text(f'JAVA_VERSION="{version}"\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'old' / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    command = "from lakeseal.cli.java import find_java; from lakeseal.cli.spark_session import spark_session\n"
    command += f"find_java.__defaults__ = (17, ({str(tmp_path / 'jvm')!r},))\nspark_session('lakeseal test')"
    subprocess.run([sys.executable, "-c", command], capture_output=True, check=False)
    assert (tmp_path / "jvm" / "bin" / "called").exists()
    assert not (tmp_path / "old" / "bin" / "called").exists()


def test_a_table_that_is_read_without_its_owner_is_told_in_one_line() -> None:
    lakeseal.Table("orders", owner="sqlite:///ledger.db").write(pa.table({"id": [1]}))
    call = [sys.executable, "-m", "lakeseal", "read", "orders"]
    ended = subprocess.run(call, capture_output=True, text=True, check=False)
    assert ended.returncode == 0
    (line,) = ended.stderr.splitlines()
    assert line.startswith("warning: The commits of file:///")
    assert "--owner sqlite:///ledger.db" in line


@pytest.mark.filterwarnings("ignore::lakeseal.owner.routing.StaleReadWarning")
def test_statements_reach_a_table_that_an_owner_has(lakeseal: Run, sales: str) -> None:
    owner = "sqlite:///ledger.db"
    Table(sales).take_over(owner)
    change = f"UPDATE delta.`{sales}` SET price = 3 WHERE id = 1"
    refused = lakeseal("sql", change)
    assert refused.code == 1
    assert "Name its owner: --owner sqlite:///ledger.db" in refused.err.splitlines()[-1]
    assert lakeseal("sql", change, "--owner", owner, "--json").code == 0
    asked = f"SELECT price FROM delta.`{sales}` WHERE id = 1"
    assert lakeseal("sql", asked, "--owner", owner, "--json").rows == [{"price": "3.00"}]


def test_what_a_terminal_would_obey_is_shown_and_not_sent(lakeseal: Run) -> None:
    told = "\x1b]52;c;cm0gLXJmIH4=\x07\x9b31m\u202egnp.exe\r"
    table = Table("it")
    table.write(pa.table({"id": [1], f"a{told}": [f"two\nlines{told}"]}), user_metadata=told)
    for call in (
        ("read", "it"),
        ("read", "it", "--where", f"`b{told}` = 1"),
        ("schema", "it"),
        ("describe", "it"),
        ("history", "it"),
        ("sql", "SELECT * FROM delta.`it`"),
        ("read", f"no{told}"),
    ):
        ended = lakeseal(*call)
        said = ended.out + ended.err
        assert not set(said) & set("\x1b\x07\x9b\u202e\r"), call
        assert "1b" in said.lower(), call
    assert lakeseal("read", "it", "--json").rows[0][f"a{told}"] == f"two\nlines{told}"
