"""A bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

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


@needs_terminals
def test_a_terminal_shows_what_a_command_is_at(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    wide = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path / "t")], stderr=theirs, env=wide)
    os.close(theirs)
    shown = shown_on(ours)
    assert process.wait() == 0
    for stage in (b"delete: searching", b"delete: rewriting", b"delete: committing"):
        assert stage in shown
    assert b"0/3" in shown, "how many files there are"


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
