from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeseal import sql
from lakeseal.catalogs import Catalog
from lakeseal.cli.output import Output
from lakeseal.cli.sql import Completer, Shell
from lakeseal.statements.script import is_whole, split

Run = Callable[..., Any]


@pytest.fixture
def names(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'names.db'}"


def test_statements_are_done_one_after_the_other(lakeseal: Run, names: str, tmp_path: Path) -> None:
    script = tmp_path / "x.sql"
    script.write_text("-- first;\nCREATE TABLE a.b AS SELECT 1 AS x, ';' AS y;\nINSERT INTO a.b VALUES (2, 'é');\n")
    assert lakeseal("sql", "--catalog", names, "--file", str(script)).code == 0
    ended = lakeseal("sql", "--catalog", names, "--json", "SELECT * FROM a.b ORDER BY x; SELECT count(*) AS n FROM a.b")
    assert ended.rows == [{"x": 1, "y": ";"}, {"x": 2, "y": "é"}, {"n": 2}]
    shown = lakeseal("sql", "--catalog", names, "--limit", "1", "SELECT x FROM a.b").out
    assert "1 of 2 rows" in shown


def test_an_error_ends_the_command_with_its_kind(lakeseal: Run, names: str) -> None:
    ended = lakeseal("sql", "--catalog", names, "--json", "CREATE TABLE a.b (x INT); DELETE FROM a.c; DROP TABLE a.b")
    assert ended.code == 1
    assert "table-not-found" in ended.err
    assert [one.name.table for one in Catalog(names).tables("a")] == ["b"]
    assert lakeseal("sql", "--file", "/nowhere/x.sql").code == 1


def test_a_pipe_is_a_file(lakeseal: Run, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS a;\nSELECT 2 AS a"))
    assert lakeseal("sql", "--catalog", names, "--json").rows == [{"a": 1}, {"a": 2}]


def test_a_prompt_goes_on_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(
        ["", "SELECT 'a;", "b' AS x", ";", "SELEC 1;", "SELECT 2 AS y; SELECT 3 AS z;", "\\q", "SELECT 4 AS no;"]
    )
    out = Output()
    out.json = True
    Shell(out, 10, sql).converse(lambda _: next(lines))
    shown, said = capsys.readouterr()
    assert shown.splitlines() == ['{"x":"a;\\nb"}', '{"y":2}', '{"z":3}']
    assert "SELEC" in said


def test_words_are_completed_by_names_and_keywords(names: str, tmp_path: Path) -> None:
    catalog = Catalog(names)
    sql("CREATE TABLE shop.orders (x INT)", catalog=catalog)
    complete = Completer(catalog)
    assert complete.words("sho") == ["shop.orders", "show"]
    assert complete.words("SEL") == ["SELECT"]
    assert [complete("va", n) for n in range(3)] == ["vacuum", "values", None]


def test_a_script_is_cut_at_its_semicolons_only() -> None:
    assert split("a ';' /* ; */ `;` -- ;\n; ; b") == ["a ';' /* ; */ `;`", "b"]
    assert split(" -- nothing\n ;") == []
    assert is_whole("SELECT 1; -- so")
    assert not is_whole("SELECT ';")
    assert not is_whole("SELECT 1")
