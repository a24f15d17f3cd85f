"""Finding a Java that Spark can run on.

`find_java()` looks where Java is found by convention (`JAVA_HOME`, `java` on the path, the system's folders for Java)
and returns the first home whose version is `OLDEST` or newer, without starting a process where the home says its
version in its `release` file.

Standard library only: `scripts/setup.py` loads this file before anything is installed.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
FOLDERS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


class Java(NamedTuple):
    home: Path
    version: int


def find_java(oldest: int = OLDEST, folders: Sequence[str] = FOLDERS) -> Java | None:
    for home in _homes(folders):
        version = _version(home)
        if version is not None and version >= oldest:
            return Java(home, version)
    return None


def _homes(folders: Sequence[str]) -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(os.path.realpath(on_path)).parent.parent
    for pattern in folders:
        yield from map(Path, sorted(glob.glob(pattern), reverse=True))


def _version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        found = re.search(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', text, re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        try:
            said = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603  the user's own Java
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    if found is None:
        return None
    # Java 8 and older called themselves 1.8, 1.7, …
    return int(found[2] or 1) if found[1] == "1" else int(found[1])
