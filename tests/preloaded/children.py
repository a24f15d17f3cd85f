"""Processes that begin with Lakeseal loaded: `start([...])` is `Popen([sys.executable, ...])`, without the loading.

A service spends most of its first two seconds on imports. Here it is forked from a process that has them behind it, and
is a process of its own in all else: process id, signals, environment, folder, files, and how it ends. The process that
forks is started with the first child, and ends with whoever asked.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

_LOADED = (
    "support.loaded",
    "support.crashes",
    "lakeseal.table",
    "lakeseal.cli",
    "lakeseal.cli.serve",
    "lakeseal.service.app",
    "lakeseal.service.server",
    "lakeseal.service.client",
    "lakeseal.testing.faults",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "uvicorn.lifespan.on",
    "uvloop",
)


class Child:
    """What tests use of `subprocess.Popen[str]`."""

    def __init__(self, there: socket.socket, stdout: IO[str]) -> None:
        self._there = there
        self.stdout = stdout
        self.pid = int(there.recv(100))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._there.settimeout(timeout)
            try:
                self.returncode = int(self._there.recv(100))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._there.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(arguments: Sequence[str], *, stderr: IO[str]) -> Child:
    """`python <arguments>`, either `-m <module> …` or `<script> …`; its output is read from `stdout`."""
    asked = {"arguments": [*arguments], "environment": dict(os.environ), "folder": os.getcwd()}
    reads, writes = os.pipe()
    there = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.connect(_server())
    socket.send_fds(there, [json.dumps(asked).encode()], [writes, stderr.fileno()])
    os.close(writes)
    return Child(there, os.fdopen(reads))


@functools.cache
def _server() -> str:
    folder = tempfile.mkdtemp(prefix="lakeseal-children-")
    place = f"{folder}/socket"
    process = subprocess.Popen([sys.executable, __file__, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # it listens

    def end() -> None:
        process.kill()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return place


def serve(place: str) -> dict[str, Any]:
    """Forks until its own parent is gone; in each child, returns what it is to be."""
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()
    running: dict[int, socket.socket] = {}
    wakes, wakened = socket.socketpair()
    wakened.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakened.fileno())
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(place)
    listener.listen(64)
    print("here", flush=True)
    with selectors.DefaultSelector() as ready:
        for one in (listener, wakes, sys.stdin):
            ready.register(one, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:
                    os._exit(0)
                if key.fileobj is wakes:
                    wakes.recv(1000)
                    _tell_who_has_ended(running)
                    continue
                asked, _ = listener.accept()
                told, files, _, _ = socket.recv_fds(asked, 2**20, 2)
                child = os.fork()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for one in (asked, listener, wakes, wakened, *running.values()):
                        one.close()
                    return {**json.loads(told), "files": files}
                asked.send(str(child).encode())
                running[child] = asked
                for file in files:
                    os.close(file)


def _tell_who_has_ended(running: dict[int, socket.socket]) -> None:
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with running.pop(child) as asked, contextlib.suppress(OSError):
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(asked: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, *asked["files"])):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    first, *rest = asked["arguments"]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    become(serve(sys.argv[1]))
