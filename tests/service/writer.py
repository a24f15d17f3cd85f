"""Processes that append and read through a service: `python writer.py <JSON of its arguments>`.

One process imports everything and forks the clients, which begin at the same moment. Each appends and reads for so many
seconds and writes its operations into a file of its own, one line of JSON each, timed by the machine's one monotonic
clock. The clocks that commits are stamped with may be wrong by `skew_ms`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback

import msgspec

import support.loaded  # noqa: F401  for all children
from lakeseal.clock import now_ms
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.service.client import HttpOwner
from lakeseal.storage import open_store
from models.linearizability import Op
from support.managed_tables import WRITE, add, managed_log


def client(*, url: str, table: str, name: str, seconds: float, skew_ms: int, out: str, ready: int, go: int) -> None:
    owner, store = HttpOwner(url), open_store(table)
    log, managed = managed_log(owner, store)
    assert log.update() is not None
    dice = random.Random(name)
    os.write(ready, b"!")
    os.read(go, 1)  # ends when the parent closes the other side
    end = time.monotonic() + seconds
    done = []
    while time.monotonic() < end:
        start = time.monotonic_ns()
        if dice.random() < 0.2:
            reader = managed_log(owner, store)[0] if dice.random() < 0.5 else log
            snapshot = reader.update()
            assert snapshot is not None
            seen = {"kind": "read", "version": snapshot.version, "files": snapshot.files.num_rows}
        else:
            txn = OptimisticTransaction.begin(log, managed, clock=lambda: now_ms() + skew_ms)
            result = txn.commit([add(f"{name}-{len(done)}")], WRITE)
            seen = {"kind": "commit", "version": result.version, "txn_id": result.txn_id}
        done.append(Op(start=start, end=time.monotonic_ns(), client=name, **seen))
    with open(out, "wb") as lines:
        lines.writelines(msgspec.json.encode(one) + b"\n" for one in done)


def main(clients: list[dict[str, object]]) -> int:
    go, start = os.pipe()
    is_ready, ready = os.pipe()
    children = []
    for arguments in clients:
        child = os.fork()
        if child == 0:
            os.close(start)
            try:
                client(ready=ready, go=go, **arguments)  # type: ignore[arg-type]
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    os.close(ready)
    waiting = len(children)
    while waiting and (said := os.read(is_ready, waiting)):
        waiting -= len(said)
    os.close(start)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
