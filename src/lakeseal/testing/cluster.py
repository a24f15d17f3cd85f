"""A real Spark cluster on this machine: one master and some workers, each a process of its own.

`spark_cluster()` starts it on 127.0.0.1, yields it, and ends it by process id, executors included. What it leaves on
disk is in a temporary directory and goes with it. Give `cluster.master` to a session, or to `spark-submit --master`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from lakeseal.backoff import Backoff
from lakeseal.errors import StorageUnavailable
from lakeseal.extras import brought

with brought(__name__):
    import pyspark

_STARTUP_SECONDS = 120
# Two names of this machine: Spark never runs two attempts at a task on one host.
_HOSTS = ("127.0.0.1", "localhost")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class Cluster(Struct, frozen=True, kw_only=True):
    master: str
    work: str
    """The directory under which executors keep their logs: `worker-<n>/<application>/<executor>/stderr`."""


@contextmanager
def spark_cluster(workers: int = 2, *, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """A cluster of so many workers, each with so many cores and so much memory for executors."""
    home = Path(tempfile.mkdtemp(prefix="lakeseal-cluster-"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(home, "master", started, "master.Master", "--host", _HOSTS[0])
        url = _wait_for(home / "master.log", _MASTER, master)
        for number in range(workers):
            name = f"worker-{number}"
            size = ("-d", str(home / name), "-c", str(cores), "-m", memory)
            host = ("--host", _HOSTS[number % len(_HOSTS)])
            worker = _start(home, name, started, "worker.Worker", *size, *host, url)
            _wait_for(home / f"{name}.log", re.compile(f"({_REGISTERED})"), worker)
        yield Cluster(master=url, work=str(home))
    finally:
        for process in reversed(started):
            _end(process)
        shutil.rmtree(home, ignore_errors=True)


def parent_of(pid: int) -> int | None:
    """The process that started a process; None if it is gone."""
    found = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return int(found.stdout) if found.stdout.strip() else None


def _start(
    home: Path, name: str, started: list[subprocess.Popen[bytes]], kind: str, *arguments: str
) -> subprocess.Popen[bytes]:
    spark = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [
        str(spark / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{kind}",
        "--port",
        "0",
        "--webui-port",
        "0",
    ]
    with (home / f"{name}.log").open("wb") as log:
        # A group of its own, so that executors end with their worker.
        process = subprocess.Popen(  # noqa: S603
            [*command, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    started.append(process)
    return process


def _wait_for(log: Path, wanted: re.Pattern[str], process: subprocess.Popen[bytes]) -> str:
    for _ in Backoff(first_s=0.05, longest_s=0.2).tries(within_s=_STARTUP_SECONDS):
        text = log.read_text(errors="replace")
        found = wanted.search(text)
        if found is not None:
            return found[1]
        if process.poll() is not None:
            break
    raise StorageUnavailable(f"Spark's {log.stem} did not start: {log.read_text(errors='replace')[-2000:]}", hint="")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
