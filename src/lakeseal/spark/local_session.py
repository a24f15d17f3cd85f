"""A Spark session on this machine, for demos and tests: small, in UTC, and with what makes Arrow tasks fast.

Its Python workers are this very Python. With `log`, what the JVM writes goes there and not to the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.daemon.module": "lakeseal.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(
    name: str,
    *,
    cores: int = 2,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """`remote` is the address of a Connect server, or `local[2]` for one that is started here."""
    # Workers are started by name; without this they would be some other Python that lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    builder = builder.master(master or f"local[{cores}]") if remote is None else builder.remote(remote)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    with nullcontext() if log is None else _stderr_to(log):
        session = builder.getOrCreate()
    return session


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile keep writing there."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
