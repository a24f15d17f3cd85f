"""Makes runs in a process of its own, whose sets have one order: `python worker.py FIRST COUNT`. One line of JSON per
run that fails, and one with the sums at the end. Asked for one run only, it also shrinks and tells it."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

TESTS = Path(__file__).resolve().parent.parent
_COLLECT_EVERY = 100


class Sums(Struct, kw_only=True):
    runs: int = 0
    steps: int = 0
    operations: int = 0
    commits: int = 0
    faults: int = 0
    kills: int = 0
    digest: int = 0
    failed: dict[int, str] = {}
    """By seed."""
    told: list[str] = []
    """Of one run that fails: what it was shrunk to, and who did what at each step."""

    def add(self, other: Sums) -> None:
        for name in ("runs", "steps", "operations", "commits", "faults", "kills", "digest"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failed |= other.failed
        self.told += other.told


def start(first: int, count: int) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
    }
    command = [sys.executable, str(Path(__file__)), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def sums(process: subprocess.Popen[str]) -> Sums:
    out, _ = process.communicate()
    assert process.returncode == 0, f"the worker ended with {process.returncode}"
    return msgspec.json.decode(out.splitlines()[-1], type=Sums)


def main(first: int, count: int) -> None:
    # Loaded here, so that whoever starts a worker loads nothing of the product.
    from simulated.world import Plan, run

    logging.disable(logging.CRITICAL)
    found = Sums()
    gc.disable()
    for seed in range(first, first + count):
        try:
            done = run(Plan.of(seed))
        except Exception as error:
            found.failed[seed] = f"{type(error).__name__}: {error}"
            found.runs += 1
            if count == 1:
                found.told = _told(Plan.of(seed))
        else:
            found.runs += 1
            found.steps += done.steps
            found.operations += done.operations
            found.commits += done.commits
            found.faults += done.faults
            found.kills += done.kills
            found.digest += done.digest
        if seed == first:
            gc.collect()
            gc.freeze()  # what is loaded stays: nobody need look through it every time
        elif seed % _COLLECT_EVERY == 0:
            gc.collect()
    print(msgspec.json.encode(found).decode(), flush=True)


def _told(plan: Any) -> Sequence[str]:
    from simulated.shrinking import shrunk
    from simulated.world import run

    small = shrunk(plan)
    trace: list[str] = []
    try:
        run(small, trace=trace)
    except Exception as error:
        return [repr(small), *trace, f"{type(error).__name__}: {error}"]
    return [repr(small), *trace]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
