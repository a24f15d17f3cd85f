"""What is done in a child of this process, which may be killed, and what it said.

Children are forked, so that what is loaded is loaded; whoever forks starts no threads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

AT_ONCE = int(os.environ.get("LAKESEAL_AT_ONCE", "0")) or max(2, os.cpu_count() or 2)
"""Processes of a part that work side by side. More than there are cores, with `nice`, where others use these, too."""
_SECONDS = 120


class Ended(NamedTuple):
    code: int
    """As `os.waitstatus_to_exitcode`: minus a signal's number, or 1 after an exception."""
    said: Any
    """What it returned; the traceback after an exception; None if it was killed."""

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def hung(self) -> bool:
        return self.code == -signal.SIGALRM


def in_child(do: Callable[[], Any], *, seconds: int = _SECONDS) -> Ended:
    """`do` returns what JSON can say."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _end(do, writes, seconds)
    os.close(writes)
    with os.fdopen(reads, "rb") as said:
        text = said.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code, json.loads(text) if text else None)


def _end(do: Callable[[], Any], writes: int, seconds: int) -> None:
    write = os.write  # `do` may have it watched
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    signal.alarm(seconds)
    code = 0
    try:
        answer = do()
    except BaseException:
        answer, code = traceback.format_exc(), 1
    data = memoryview(json.dumps(answer, default=str).encode())
    while data:
        data = data[write(writes, data) :]
    os._exit(code)


def side_by_side(jobs: Iterable[T], do: Callable[[T], Any], *, at_once: int = AT_ONCE) -> Iterator[tuple[T, Any]]:
    """Each job in a process of its own, and what came of it; an exception there is one here."""
    folder = Path(tempfile.mkdtemp(prefix="lakeseal-trust-"))
    running: dict[int, tuple[T, Path]] = {}
    left = list(jobs)
    number = 0
    try:
        while left or running:
            while left and len(running) < at_once:
                job, said = left.pop(0), folder / str(number)
                number += 1
                child = os.fork()
                if child == 0:
                    try:
                        said.write_text(json.dumps(do(job), default=str))
                        os._exit(0)
                    except BaseException:
                        traceback.print_exc()
                        os._exit(1)
                running[child] = (job, said)
            child, status = os.waitpid(-1, 0)
            if child not in running:
                continue
            job, said = running.pop(child)
            if os.waitstatus_to_exitcode(status) != 0:
                raise RuntimeError(f"{job} could not be done; the reason is above")
            yield job, json.loads(said.read_text())
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)
