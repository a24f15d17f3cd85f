"""chdb, in a process of its own.

Its library brings an allocator and an unwinder of exceptions that take the place of those of the whole process. Beside
Arrow, an exception over a damaged file has been seen to wait there for ever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_CHILD = """
import json, sys
import chdb
for line in sys.stdin:
    print(json.dumps(chdb.query(*json.loads(line)).data()), flush=True)
"""


class Chdb:
    """Reads tables below a folder."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def query(self, text: str, form: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([text, form]) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline() or '"chdb gave no answer"')
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate(timeout=60)
