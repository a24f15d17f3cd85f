"""A bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to open on this system")
def test_a_terminal_shows_what_a_command_is_at(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    wide = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path / "t")], stderr=theirs, env=wide)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # the other side was closed
    os.close(ours)
    assert process.wait() == 0
    for stage in (b"delete: searching", b"delete: rewriting", b"delete: committing"):
        assert stage in shown
    assert b"0/3" in shown, "how many files there are"
