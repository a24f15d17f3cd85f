"""A bar on a terminal, a line in a notebook, nothing in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal

CODE = """
import sys
import pyarrow as pa, lakeseal
table = lakeseal.Table(sys.argv[1])
for n in range(3):
    table.write(pa.table({"id": list(range(n * 100, n * 100 + 100))}))
table.delete("id % 7 = 1")
"""


def test_nothing_is_shown_in_a_pipe(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("", "")


needs_terminals = pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to open on this system")


def shown_on(terminal: int) -> bytes:
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:
        pass  # the other side was closed
    os.close(terminal)
    return shown


def shown_by(*words: str, cwd: Path, **settings: str) -> bytes:
    """What a process shows on a terminal."""
    ours, theirs = os.openpty()
    wide = os.environ | {"COLUMNS": "120", "TERM": "xterm"} | settings
    process = subprocess.Popen([sys.executable, *words], cwd=cwd, stdout=subprocess.DEVNULL, stderr=theirs, env=wide)
    os.close(theirs)
    shown = shown_on(ours)
    assert process.wait() == 0
    return shown


@needs_terminals
def test_a_terminal_shows_what_a_command_is_at(tmp_path: Path) -> None:
    shown = shown_by("-c", CODE, "t", cwd=tmp_path)
    for stage in (b"delete: searching", b"delete: rewriting", b"delete: committing"):
        assert stage in shown
    assert b"0/3" in shown, "how many files there are"


@needs_terminals
def test_a_terminal_shows_nothing_to_whoever_wants_no_bars(tmp_path: Path) -> None:
    assert shown_by("-c", CODE, "t", cwd=tmp_path, LAKESEAL_PROGRESS="0") == b""


@needs_terminals
def test_a_terminal_shows_what_a_run_is_at_unless_nobody_wants_it(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "rows.json").write_text('{"id": 1}')
    (tmp_path / "p.yaml").write_text(
        """{name: p, ledger: "sqlite:///l.db", datasets: [{name: clicks,
            source: {type: files, path: landing, format: json, schema: "id long"}, target: {type: table, uri: t}}]}"""
    )
    run = ("-m", "lakeseal", "ingest", "run", "p.yaml", "--no-spark")
    shown = shown_by(*run, cwd=tmp_path)
    assert b"clicks" in shown
    assert b"waiting" in shown
    assert shown_by(*run, cwd=tmp_path, LAKESEAL_PROGRESS="0") == b""


class Notebook:
    """As much of IPython as a kernel has: what was displayed, and what became of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []

        class ZMQInteractiveShell:
            pass

        class ColabShell(ZMQInteractiveShell):
            pass

        class Handle:
            def update(handle, shown: Any) -> None:  # noqa: N805
                self.lines.append(shown._repr_html_())

        def display(shown: Any, display_id: bool) -> Handle:
            assert display_id
            self.lines.append(shown._repr_html_())
            return Handle()

        package, part = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        package.get_ipython = ColabShell  # type: ignore[attr-defined]
        part.display = display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", part)


def test_a_notebook_has_one_line_that_says_what_a_command_is_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch)
    table = lakeseal.Table(tmp_path / "t")
    for n in range(3):
        table.write(pa.table({"id": list(range(n * 100, n * 100 + 100))}))
    notebook.lines.clear()
    table.delete("id % 7 = 1")
    assert notebook.lines[0] == "delete"
    told = iter(notebook.lines)
    assert all(
        any(line.startswith(stage) for line in told)
        for stage in ("delete: searching", "delete: rewriting 0/3 <progress", "delete: committing")
    )
    assert notebook.lines[-1] == "", "it is gone"
    assert capfd.readouterr() == ("", ""), "rich would warn that there are no widgets"


def test_a_notebook_that_wants_no_bars_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    monkeypatch.setenv("LAKESEAL_PROGRESS", "0")
    table = lakeseal.Table(tmp_path / "t")
    table.write(pa.table({"id": [1, 2]}))
    table.delete("id = 1")
    assert notebook.lines == []


@needs_terminals
@pytest.mark.spark
def test_a_terminal_shows_what_a_merge_on_spark_is_at(spark: Any, tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tables(range(5), range(5, 10))
    source = spark.createDataFrame(tables.people(3, 7, 12))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.append(shown_on(ours)))
    reader.start()
    with monkeypatch.context() as patched, os.fdopen(theirs, "w") as terminal:
        patched.setattr(sys, "stderr", terminal)
        table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    reader.join()
    for stage in (b"merge: searching", b"merge: rewriting", b"merge: committing"):
        assert stage in shown[0]
    assert tables.ids(table) == [*range(10), 12]


@needs_terminals
@pytest.mark.spark
def test_a_merge_on_spark_shows_nothing_to_whoever_wants_no_bars(
    spark: Any, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables(range(5), range(5, 10))
    source = spark.createDataFrame(tables.people(3, 7, 12))
    monkeypatch.setenv("LAKESEAL_PROGRESS", "0")
    ours, theirs = os.openpty()
    with monkeypatch.context() as patched, os.fdopen(theirs, "w") as terminal:
        patched.setattr(sys, "stderr", terminal)
        table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    assert shown_on(ours) == b""
