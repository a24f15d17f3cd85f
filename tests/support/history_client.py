"""Clients of a history over HTTP, each a process of its own: `python history_client.py <JSON of their arguments>`.

Each does this and that for so many seconds and writes what it was told into a file of its own, one line of JSON for
each operation, timed by the machine's one monotonic clock. The clock that its commits are stamped with jumps by a day.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import Callable

import msgspec
from msgspec import Struct

import lakeseal
import support.loaded  # noqa: F401  for all children
from lakeseal.clock import now_ms
from lakeseal.commit.attempts import Retry
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import CommitOwner
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    CommitOutcomeUnknown,
    ConcurrentModification,
    LakesealError,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.snapshots import snapshots
from lakeseal.owner.transaction import Transaction
from lakeseal.service.client import HttpOwner
from lakeseal.storage import open_store
from support.managed_tables import WRITE, add, managed_log

DAY_MS = 86_400_000
_RETRY = Retry(deadline_s=60.0)


class Told(Struct, kw_only=True):
    """What came of one operation."""

    who: str
    kind: str
    start: int
    end: int | None = None
    """None where it is not known what came of it."""
    is_failed: bool = False
    """Certainly not there."""
    txns: dict[str, str] = {}
    made: dict[str, int] = {}
    saw: dict[str, tuple[int, int]] = {}
    """Version and number of files."""


class Asked(Struct, kw_only=True):
    kind: str
    """`ours`, `catalog` or `path`."""
    name: str
    url: str
    token: str
    managed: list[str]
    """URIs of tables of the owner."""
    free: str
    """That of a table without an owner."""
    catalogs: str
    """That of a table which is the catalog's, and its name."""
    catalogs_name: str
    seconds: float
    seed: int
    out: str


class Client:
    def __init__(self, asked: Asked) -> None:
        self.asked, self.dice = asked, random.Random(f"{asked.seed} {asked.name}")
        self.told: list[Told] = []
        self._files = 0
        self._skew_ms = 0

    def work(self) -> None:
        jobs = {"ours": self._ours, "catalog": self._by_the_catalogs_protocol, "path": self._by_path}[self.asked.kind]()
        end = time.monotonic() + self.asked.seconds
        while time.monotonic() < end:
            if self.dice.random() < 0.05:
                self._skew_ms = self.dice.choice((-DAY_MS, 0, DAY_MS))
            job = self.dice.choice(jobs)
            told = Told(who=self.asked.name, kind=self.asked.kind, start=time.monotonic_ns())
            self.told.append(told)
            try:
                job(told)
            except (UnknownOutcome, CommitOutcomeUnknown):
                continue
            except (ConcurrentModification, StorageUnavailable):
                told.is_failed = True
            told.end = time.monotonic_ns()

    def clock(self) -> int:
        return now_ms() + self._skew_ms

    def _ours(self) -> list[Callable[[Told], None]]:
        owner = HttpOwner(self.asked.url, token=self.asked.token)
        uris = [*self.asked.managed, self.asked.catalogs]
        stores = {uri: open_store(uri) for uri in uris}
        opened = {uri: managed_log(owner, store) for uri, store in stores.items()}

        def append(told: Told) -> None:
            uri = self.dice.choice(uris)
            self._append(told, uri, *opened[uri])

        def read(told: Told) -> None:
            uri = self.dice.choice(uris)
            self._saw(told, uri, opened[uri][0].update())

        def read_all(told: Told) -> None:
            for uri, snapshot in zip(uris, snapshots(owner, list(stores.values())), strict=True):
                self._saw(told, uri, snapshot)

        def write_to_several(told: Told) -> None:
            whole = Transaction(owner, retry=_RETRY, clock=self.clock)
            for uri in self.dice.sample(uris, 2):
                part = whole.table(stores[uri])
                told.txns[uri] = part.txn_id
                part.commit([add(self._new_file())], WRITE)
            done = whole.commit()
            told.made = {uri: result.version for uri, result in done.tables.items()}

        return [append, append, read, read_all, write_to_several]

    def _by_the_catalogs_protocol(self) -> list[Callable[[Told], None]]:
        catalog = lakeseal.Catalog(self.asked.url, token=self.asked.token, kind="unity")
        uri = self.asked.catalogs
        while True:
            try:
                route = catalog.table(self.asked.catalogs_name)._router.route()
                break
            except LakesealError:
                time.sleep(0.1)
        return [
            lambda told: self._append(told, uri, route.log, route.owner),
            lambda told: self._saw(told, uri, route.log.update()),
        ]

    def _by_path(self) -> list[Callable[[Told], None]]:
        """Of tables that have an owner it sees what is published, and says so by its kind."""
        free = open_store(self.asked.free)
        log, owner = DeltaLog(free), FilesystemOwner(free)
        published = [DeltaLog(open_store(uri)) for uri in self.asked.managed]

        def look(told: Told) -> None:
            told.kind = "behind"
            found = self.dice.choice(published)
            self._saw(told, found.store.uri, found.update())

        return [
            lambda told: self._append(told, self.asked.free, log, owner),
            lambda told: self._saw(told, self.asked.free, log.update()),
            look,
        ]

    def _append(self, told: Told, uri: str, log: DeltaLog, owner: CommitOwner) -> None:
        txn = OptimisticTransaction.begin(log, owner, retry=_RETRY, clock=self.clock)
        told.txns[uri] = txn.txn_id
        told.made[uri] = txn.commit([add(self._new_file())], WRITE).version

    def _saw(self, told: Told, uri: str, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        told.saw[uri] = (snapshot.version, snapshot.files.num_rows)

    def _new_file(self) -> str:
        self._files += 1
        return f"{self.asked.name}-{self._files}"


def _run(asked: Asked) -> None:
    logging.disable(logging.WARNING)
    client = Client(asked)
    try:
        client.work()
    finally:
        with open(asked.out, "wb") as lines:
            lines.writelines(msgspec.json.encode(one) + b"\n" for one in client.told)


def main(clients: list[Asked]) -> int:
    children = []
    for asked in clients:
        child = os.fork()
        if child == 0:
            try:
                _run(asked)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(msgspec.convert(json.loads(sys.argv[1]), list[Asked])))
