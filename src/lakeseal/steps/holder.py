"""Who holds a lease: a process that others on its machine can look for, and what to do while it does.

A holder's name tells the machine, the process and when that one started. So another process of the same machine knows
whether it is gone: a number that was given to a process again, a machine that was started again and a container with
process numbers of its own are told apart. Of other machines nobody knows; there a lease runs out.

`take_turn` acquires a lease. One whose holder is gone is taken over at once, under the next epoch as ever: should that
holder be alive after all, its writes are fenced.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from lakeseal.errors import LeaseHeld
from lakeseal.steps.books import LeaseBook
from lakeseal.steps.leases import Lease

_PROCESS = re.compile(r", process (\d{1,19})@([0-9a-f]{16})-(\d{1,20}), ")
_LOOK_AGAIN_S = 1.0

Waiting = Callable[[LeaseHeld], None]
"""Is told, about once a second, why the turn has not come yet."""


def this_process(what: str) -> str:
    """The name of a holder: this process, doing that."""
    started = _started(os.getpid())
    told = "" if started is None else f"@{_machine()}-{started}"
    return f"{platform.node()}, process {os.getpid()}{told}, {what}"


def is_gone(holder: str) -> bool:
    """Whether a holder is a process of this machine that is no more."""
    found = _PROCESS.search(holder)
    if found is None or found[2] != _machine() or _started(os.getpid()) is None:
        return False
    return _started(int(found[1])) != int(found[3])


def take_turn(book: LeaseBook, name: str, *, holder: str, seconds: float, waiting: Waiting | None = None) -> Lease:
    """`LeaseHeld` where another has it, unless there is somebody to tell while `waiting` for it."""
    while True:
        try:
            return book.acquire(name, holder=holder, seconds=seconds)
        except LeaseHeld as held:
            other = book.look(name)
            if other is not None and is_gone(other.holder):
                try:
                    return book.acquire(name, holder=holder, seconds=seconds, instead_of=other.holder)
                except LeaseHeld:
                    continue  # another has taken it over
            if waiting is None:
                raise
            waiting(held)
        time.sleep(_LOOK_AGAIN_S)


@lru_cache(maxsize=1)
def _machine() -> str:
    """Of this boot, and of these process numbers."""
    try:
        boot, numbers = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")
    except OSError:
        boot, numbers = "", ""
    parts = (platform.node(), boot, numbers)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _started(pid: int) -> int | None:
    """When a process started, in the kernel's own count; None where there is none, or nobody can tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()  # a program's name may hold anything
    # A process that has ended and that nobody has asked about yet does nothing any more.
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else None
