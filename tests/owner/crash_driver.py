"""Kills an owner and its client at every write, one after the other, and lets a survivor go on:
`python crash_driver.py <ledger URL or "sqlite"> <directory> <every nth>`.

With the URL of a service it kills a client of that, at every step that it asks for and every file that it writes.

Prints the number of crashes; what is wrong is an exception. A process of its own, because it forks.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakeseal import ledger
from lakeseal.commit.owner import OwnedCommits
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import AlreadyExists, OwnedElsewhere
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.handover import release, take_over
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.ownership import State
from lakeseal.owner.publisher import recover
from lakeseal.owner.routing import Route, Router
from lakeseal.owner.transaction import Transaction
from lakeseal.service.client import HttpOwner
from lakeseal.storage import Store, open_store
from models.history import check_history
from support.crash_runs import crash_everywhere
from support.crashes import CrashingLedger, CrashingOwner, CrashingStore, Effects, When
from support.managed_tables import WRITE, add, metadata, newest


def reach(url: str, effects: Effects | None = None) -> OwnerEndpoint:
    """With `effects`, every step counts."""
    if url.startswith("http"):
        service = HttpOwner(url)
        return service if effects is None else CrashingOwner(service, effects)  # type: ignore[return-value]
    opened = ledger.open(url)
    used = opened if effects is None else CrashingLedger(opened, effects)
    return LedgerOwner(used, batch_size=2, inline_bytes=700)  # type: ignore[arg-type]


class Script:
    """Everything that an owner and its clients do, in one process."""

    def __init__(self, url: str, directory: Path, effects: Effects) -> None:
        self.effects = effects
        self.stores = [CrashingStore(open_store(directory / name), effects) for name in ("one", "two")]
        self.acknowledged = directory / "acknowledged"
        self.owner = reach(url, effects)

    def run(self) -> None:
        one = self.stores[0]
        for store in self.stores:
            self.write(store, "created")
        for number in range(3):
            self.write(one, f"managed{number}")
        self.write(one, *(f"large{number}" for number in range(100)))
        txn = Transaction(self.owner)
        for store in self.stores:
            txn.table(store).commit([add("both")], WRITE)
        for table, result in txn.commit().tables.items():
            self.note(table, result.txn_id, result.version)
        release(self.owner, one)
        self.write(one, "on-the-file-system")
        take_over(self.owner, one)
        self.write(one, "managed-again")
        self.owner.backfill(one.uri)
        if isinstance(self.owner, LedgerOwner):
            self.owner.forget(one.uri, grace_ms=0)
        self.write(one, "last")

    def write(self, store: Store, *names: str) -> None:
        router = Router(store, {self.owner.name: self.owner}, creator=self.owner)

        def once(route: Route) -> tuple[str, int]:
            txn = OptimisticTransaction.begin(route.log, route.owner)
            if txn.snapshot is None:
                txn.update_metadata(metadata())
            result = txn.commit([add(name) for name in names], Operation(name="WRITE"))
            return result.txn_id, result.version

        self.note(store.uri, *router.run(once))

    def note(self, table: str, txn_id: str, version: int) -> None:
        with self.acknowledged.open("a") as out:
            out.write(f"{table} {txn_id} {version}\n")


def survive(url: str, directory: Path) -> None:
    """What must hold after a crash, before and after somebody goes on."""
    owner = reach(url)
    stores = [open_store(directory / name) for name in ("one", "two")]
    lines = (directory / "acknowledged").read_text().splitlines() if (directory / "acknowledged").exists() else []
    seen: list[set[str]] = []
    for store in stores:
        acknowledged = {txn: int(version) for table, txn, version in map(str.split, lines) if table == store.uri}
        listed = newest(store)  # first: a service's publisher goes on meanwhile, and may finish a release
        aware = DeltaLog(store, commit_source=OwnedCommits(ManagedOwner(owner, store))).update()
        reached = -1 if aware is None else aware.version
        assert all(version <= reached for version in acknowledged.values()), "B5: an acknowledged commit is missing"
        assert listed <= reached
        seen.append(set() if aware is None else set(aware.files["path"].to_pylist()))
        told = owner.get_commits(store.uri)
        for commit in told.commits:
            assert len(commit.ratified().read(store)) == commit.size, "M3: a ratified commit is nowhere"
    assert ("both" in seen[0]) == ("both" in seen[1]), "T1: one table got its version and the other did not"
    if lines and isinstance(owner, LedgerOwner):
        recovered = recover(owner)
        assert not recovered.failed, recovered.failed
    script = Script(url, directory, Effects())
    for store in stores:
        script.write(store, "survivor")
        try:
            if DeltaLog(store).update().properties.managed_commit_owner_name is None:  # type: ignore[union-attr]
                take_over(owner, store)
        except AlreadyExists:
            pass
        script.write(store, "survivor-again")
        try:
            release(owner, store)
        except OwnedElsewhere as error:
            raise AssertionError("O3: the owner does not know a table that is its own") from error
        assert owner.get_commits(store.uri).state is State.NONE
        lines = (directory / "acknowledged").read_text().splitlines()
        acknowledged = {txn: int(version) for table, txn, version in map(str.split, lines) if table == store.uri}
        check_history(store, acknowledged)


def main(ledger_url: str, directory: str, nth: str) -> None:
    at_a_service = ledger_url.startswith("http")
    crashes = crash_everywhere(
        Path(directory),
        ledger_url,
        int(nth),
        lambda url, home, effects: Script(url, home, effects).run(),
        survive,
        moments=[when for when in When if not (at_a_service and when is When.INSIDE)],
        # The service's publisher may be faster, and leave the client less to do.
        may_end=lambda left: at_a_service,
    )
    print(crashes)


if __name__ == "__main__":
    main(*sys.argv[1:])
