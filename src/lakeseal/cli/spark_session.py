"""The Spark session of a command: on the Java that was found, wherever that is, or a sentence about what is missing."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakeseal.cli.java import OLDEST, find_java
from lakeseal.errors import Unsupported
from lakeseal.extras import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def spark_session(name: str, *, instead: str = "", master: str | None = None, log: Path | None = None) -> SparkSession:
    """What its JVM says goes to `log`, a file of its own, not to the terminal. `instead` is what may be done without
    Spark."""
    other = f", or {instead}" if instead else ""
    try:
        from lakeseal.spark.local_session import local_session  # pyspark is an extra
    except ModuleNotFoundError as error:
        raise Unsupported("Spark is not installed", hint=f"{install('pyspark')}{other}") from error
    java = find_java()
    if java is None:
        raise Unsupported(f"Spark needs Java {OLDEST} or newer", hint=f"Install one, or set JAVA_HOME{other}")
    # Spark's own scripts look at JAVA_HOME and the path only, where there may be none, or one that is too old.
    os.environ["JAVA_HOME"] = str(java.home)
    kept = log or private_log(name)
    _log.info("what Spark's JVM says is in %s", kept)
    return local_session(name, master=master, log=kept)


def private_log(name: str) -> Path:
    """A new file with a name that nobody can know before, for this user alone: what lies ready under a name that can
    be guessed, such as a link to somebody's file, would be written to."""
    handle, path = tempfile.mkstemp(prefix=f"{'-'.join(name.split()[:2])}-", suffix=".log")
    os.close(handle)
    return Path(path)
