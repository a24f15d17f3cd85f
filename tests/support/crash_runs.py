"""`crash_everywhere`: a script that is killed at each of its effects, one after the other, and a survivor each time.

For drivers, which are processes of their own because this forks. What is wrong is an exception.
"""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

import support.loaded  # noqa: F401  for all children
from lakeseal import ledger
from support.crashes import Effects, When

SQLITE = "sqlite"

Script = Callable[[str, Path, Effects], object]
"""What is killed: gets the URL of its ledger, a directory of its own, and the effects to count."""

Survivor = Callable[[str, Path], object]
"""Asserts what must hold after a crash; gets the ledger's URL and the directory."""


def crash_everywhere(
    root: Path,
    ledger_url: str,
    every: int,
    script: Script,
    survivor: Survivor,
    *,
    prepare: Survivor | None = None,
    moments: Iterable[When] = tuple(When),
    distinct: bool = False,
    may_end: Callable[[int], bool] = lambda left: False,
) -> int:
    """How often it was killed. The ledger is at a URL, or `SQLITE`: then each run has one of its own.

    `prepare` runs once, before all; every run starts with a copy of its directory. With `distinct`, moments that come
    to the same are left out: before an effect as after the last one, and inside a write to a store. `may_end` says
    whether a script that was to be killed at so many effects before its last may come to its end, where their number
    is not fixed.
    """
    template, whole, count = root / "template", root / "whole", root / "count"
    template.mkdir()

    def url_in(home: Path) -> str:
        return f"sqlite:///{home}/ledger.db" if ledger_url == SQLITE else ledger_url

    def make() -> None:
        # Migrating one each time would take most of the time.
        ledger.open(f"sqlite:///{template}/ledger.db").close()
        if prepare is not None:
            prepare(url_in(template), template)

    def uninterrupted() -> None:
        effects = Effects()
        script(url_in(whole), whole, effects)
        count.write_bytes(msgspec.json.encode((effects.count, effects.transactions)))

    assert in_child(make) == 0
    shutil.copytree(template, whole)
    assert in_child(uninterrupted) == 0
    assert in_child(lambda: survivor(url_in(whole), whole)) == 0
    effects, transactions = msgspec.json.decode(count.read_bytes(), type=tuple[int, set[int]])
    crashes = 0
    for at in range(1, effects + 1, every):
        for when in moments:
            if distinct and (when is When.BEFORE or (when is When.INSIDE and at not in transactions)):
                continue
            home = root / f"{at}-{when.name}"
            shutil.copytree(template, home)
            ended = in_child(lambda: script(url_in(home), home, Effects(at, when)))  # noqa: B023
            if ended == 0 and may_end(effects - at):
                continue
            assert ended == -signal.SIGKILL, f"effect {at}, {when.name}: ended with {ended}"
            assert in_child(lambda: survivor(url_in(home), home)) == 0, f"killed {when.name} effect {at}"  # noqa: B023
            crashes += 1
            if ledger_url == SQLITE:
                shutil.rmtree(home)
    return crashes


def in_child(do: Callable[[], object]) -> int:
    """How a child that does it ended: 0, or minus the signal that killed it, or 1 after an exception."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        do()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
