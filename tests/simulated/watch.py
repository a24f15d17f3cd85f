"""The invariants that hold at every moment, looked at after each put and each ledger transaction of a simulation.

What the ledger says is read from its rows, past the product's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.log.ratified_commit import digest
from lakeseal.protocol.paths import LOG_DIR, LogFileKind, commit_path, parse
from simulated.store import SimulatedStore

_COMMITS = (
    "SELECT c.rowid, t.table_id, c.version, c.txn_id, c.sha256, c.file FROM commits c "
    "JOIN tables t ON t.table_key = c.table_key"
)
_TABLES = "SELECT table_id, state, epoch, latest_version, backfilled_version FROM tables"


class Watch:
    def __init__(self, database: Any) -> None:
        self._database = database
        self.stores: Mapping[str, SimulatedStore] = {}
        self._ratified: dict[tuple[str, int], tuple[str, str]] = {}
        """Whose each version is that the ledger ever had a row of, and the digest of its bytes."""
        self._versions: dict[tuple[str, str], int] = {}
        self._epochs: dict[str, int] = {}
        self.looks = 0

    def has_put(self, store: SimulatedStore, key: str, before: bytes | None, data: bytes) -> None:
        version = _version(key)
        if version is None:
            return
        assert before is None, f"F1: version {version} of {store.uri} was written over"
        follows = version == 0 or commit_path(version - 1) in store.objects
        assert follows, f"F3, B1: {key} of {store.uri} is there and the version before it is not"
        self._check_same(store.uri, version, data)

    def has_deleted(self, store: SimulatedStore, key: str) -> None:
        assert _version(key) is None, f"F1: {key} of {store.uri} was deleted"

    def has_written(self) -> None:
        """The ledger."""
        self.looks += 1
        there: dict[tuple[str, int], str | None] = {}
        for _, table, version, txn_id, sha256, file in self._database.execute(_COMMITS):
            there[table, version] = file
            known = self._ratified.get((table, version))
            if known is None:
                self._is_ratified(table, version, txn_id, sha256)
            else:
                assert known == (txn_id, sha256), f"M1: version {version} of {table} was {known} and is {txn_id}"
        for table, state, epoch, latest, backfilled in self._database.execute(_TABLES):
            store = self.stores[table]
            assert epoch >= self._epochs.get(table, 0), f"O5: the epoch of {table} went back"
            self._epochs[table] = epoch
            if state not in ("active", "releasing"):
                continue
            assert backfilled <= latest, f"B1: {table} is backfilled up to {backfilled} and ratified up to {latest}"
            assert commit_path(backfilled) in store.objects, f"B3: {table} {backfilled} is marked and is not there"
            for version in range(backfilled + 1, latest + 1):
                assert (table, version) in there, f"M3, B3: version {version} of {table} has lost its row"
                file = there[table, version]
                if file is not None:
                    staged = f"{LOG_DIR}_commits/{file}"
                    assert staged in store.objects, f"M3: {staged} of {table} is ratified and not there"

    def check_end(self) -> None:
        """Everything that was ratified is in the logs, as it was ratified."""
        for (table, version), (txn_id, _) in self._ratified.items():
            found = self.stores[table].objects.get(commit_path(version))
            assert found is not None, f"B1, O5: version {version} of {table}, ratified as {txn_id}, is not in its log"
            self._check_same(table, version, found[0])

    def _is_ratified(self, table: str, version: int, txn_id: str, sha256: str) -> None:
        before = self._versions.setdefault((table, txn_id), version)
        assert before == version, f"F2: {txn_id} is version {before} and version {version} of {table}"
        objects = self.stores[table].objects
        follows = version > 0 and ((table, version - 1) in self._ratified or commit_path(version - 1) in objects)
        assert follows, f"M1: version {version} of {table} follows nothing"
        self._ratified[table, version] = (txn_id, sha256)
        there = objects.get(commit_path(version))
        if there is not None:
            self._check_same(table, version, there[0])

    def _check_same(self, table: str, version: int, data: bytes) -> None:
        ratified = self._ratified.get((table, version))
        if ratified is not None:
            txn_id, sha256 = ratified
            assert txn_id_of(data) == txn_id, f"O1: version {version} of {table} is not {txn_id}, which was ratified"
            assert digest(data) == sha256, f"B2: version {version} of {table} is in the log with other bytes"


def _version(key: str) -> int | None:
    file = parse(key)
    return file.version if file is not None and file.kind is LogFileKind.COMMIT else None
