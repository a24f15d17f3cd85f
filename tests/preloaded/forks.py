"""A process that has loaded Lakeseal and forks others: `with forking(folder)` around a Spark session.

A process that Spark starts for a stream hands its environment and its open files over (`sitecustomize`), waits for its
fork to end, and takes it along when it is killed. The fork then runs the module that Spark asked for.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_LOADED = (
    "lakeseal.spark.datasource",
    "lakeseal.table",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.worker_util",
    "pandas",
)


def load() -> None:
    for name in _LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()


@contextlib.contextmanager
def forking(folder: Path) -> Iterator[None]:
    place = str(folder / "forks")
    server = subprocess.Popen([sys.executable, __file__, place], stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()  # it listens
    before = {name: os.environ.get(name) for name in ("LAKESEAL_TEST_FORKS", "PYTHONPATH")}
    os.environ["LAKESEAL_TEST_FORKS"] = place
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), before["PYTHONPATH"])))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        server.kill()
        server.wait()
        server.stdout.close()


def hand_over(place: str, module: str) -> None:
    """Ends this process when its fork does; returns if there is nobody to fork one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as there:
        there.connect(place)
        told = json.dumps({"environment": dict(os.environ), "module": module})
        socket.send_fds(there, [told.encode()], [0, 1, 2])
        status = there.recv(1)
    os._exit(status[0] if status else 1)


def serve(place: str) -> None:
    load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(place)
        server.listen(64)
        print("here", flush=True)
        while True:
            asked, _ = server.accept()
            told, files, _, _ = socket.recv_fds(asked, 2**20, 3)
            if os.fork() == 0:
                server.close()
                _run(asked, json.loads(told), files)
            asked.close()
            for file in files:
                os.close(file)


def _run(asked: socket.socket, told: dict[str, object], files: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(told["environment"])  # type: ignore[call-overload]
    sys.path += [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part not in sys.path]

    def watch() -> None:
        asked.recv(1)
        os._exit(1)  # the process that Spark knows is gone

    threading.Thread(target=watch, daemon=True).start()
    status = 1
    try:
        sys.argv = [str(told["module"])]
        runpy.run_module(str(told["module"]), run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):
            asked.send(bytes([status & 255]))
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
