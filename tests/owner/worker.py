"""Clients that append and read, each a process: `python worker.py <JSON of its arguments>`.

One process imports everything and forks the clients, which begin at the same moment. Each writes its operations, one
JSON line each after it is done, into a file of its own. With `kill_after` clients are killed after that many lines.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import msgspec

import support.loaded  # noqa: F401  for all children
from lakeseal import ledger
from lakeseal.clock import now_ms
from lakeseal.commit.attempts import Retry
from lakeseal.commit.owner import OwnedCommits
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.storage import open_store
from models.linearizability import Op
from support.lossy_owner import LossyOwner
from support.managed_tables import WRITE, add


def client(
    *,
    out: str,
    url: str,
    table: str,
    name: str,
    seconds: float,
    begin: int,
    batch_size: int = 10,
    lost: float = 0.0,
    skew_ms: int = 0,
    seed: int = 0,
) -> None:
    def clock() -> int:
        return now_ms() + skew_ms

    owner = LedgerOwner(ledger.open(url), batch_size=batch_size, clock=clock)
    store = open_store(table)
    managed = ManagedOwner(LossyOwner(owner, lost=lost, seed=seed), store)  # type: ignore[arg-type]
    log = DeltaLog(store, commit_source=OwnedCommits(managed))
    retry = Retry(first_doubt_s=0.001, longest_doubt_s=0.05)
    dice = random.Random(seed)
    log.update()
    told = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.read(begin, 1)  # ends when the parent closes the other side
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        start = time.monotonic_ns()
        if dice.random() < 0.25:
            fresh = dice.random() < 0.5
            reader = DeltaLog(store, commit_source=OwnedCommits(managed)) if fresh else log
            snapshot = reader.update()
            assert snapshot is not None
            done = Op(
                kind="read",
                start=start,
                end=time.monotonic_ns(),
                version=snapshot.version,
                files=snapshot.files.num_rows,
                client=name,
            )
        else:
            txn = OptimisticTransaction.begin(log, managed, retry=retry, clock=clock)
            result = txn.commit([add(f"{name}-{number}")], WRITE)
            done = Op(
                kind="commit",
                start=start,
                end=time.monotonic_ns(),
                version=result.version,
                txn_id=result.txn_id,
                client=name,
            )
        os.write(told, msgspec.json.encode(done) + b"\n")


def main(*, clients: list[dict[str, object]], kill_after: list[int] | None = None) -> None:
    begin, release = os.pipe()
    children = []
    for arguments in clients:
        child = os.fork()
        if child == 0:
            os.close(release)
            try:
                client(begin=begin, **arguments)  # type: ignore[arg-type]
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    outs = [Path(str(arguments["out"])) for arguments in clients]
    while not all(out.exists() for out in outs):
        time.sleep(0.01)
    os.close(release)
    alive = list(zip(children, outs, kill_after or (), strict=False))
    while alive:
        for one in alive[:]:
            child, out, lines = one
            if out.read_bytes().count(b"\n") >= lines:
                os.kill(child, signal.SIGKILL)
                alive.remove(one)
        time.sleep(0.001)
    for child in children:
        status = os.waitpid(child, 0)[1]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not (killed if kill_after else status == 0):
            raise SystemExit(f"a client ended with {status}")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
