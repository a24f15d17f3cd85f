"""`LedgerStepStore`: sequences as rows of the ledger, one row per dataset. The contract is that of `store`.

A dataset's row outlives its sequences: without one its state is `empty`, and it keeps the epoch that fences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from lakeseal.clock import now_ms
from lakeseal.errors import AlreadyExists, BrokenSequence, Fenced
from lakeseal.ledger import Ledger, Row, Tx, key
from lakeseal.ledger.schema import sequences, stores
from lakeseal.steps.sequence import CommitSequence, SequenceRecord
from lakeseal.steps.store import SequenceState, SequenceStatus

_EMPTY = "empty"
_NOTHING: dict[str, Any] = {
    "state": _EMPTY,
    "count": 0,
    "checksum": "",
    "payload": None,
    "tries": 0,
    "reason": None,
}
# Beyond this, all rows of a store are as quickly read as named.
_NAMED_AT_ONCE = 500
_STATUS = [column for column in sequences.c if column.name != "payload"]


class LedgerStepStore:
    """May be shared by threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def create(self, store: str) -> bool:
        return self._ledger.write(lambda tx: tx.insert(stores, store=store, created=now_ms()))

    def stores(self) -> list[str]:
        rows = self._ledger.read(lambda tx: tx.rows(sa.select(stores.c.store), lock=False))
        return sorted(row.store for row in rows)

    def exists(self, store: str, dataset: str | None = None) -> bool:
        if dataset is not None:
            return self.status(store, dataset) is not None
        return self._ledger.read(lambda tx: tx.get(stores, store=store)) is not None

    def statuses(self, store: str) -> list[SequenceStatus]:
        query = sa.select(*_STATUS).where(sequences.c.store_key == key(store), sequences.c.state != _EMPTY)
        rows = self._ledger.read(lambda tx: tx.rows(query, lock=False))
        return sorted((_status(row) for row in rows), key=lambda status: status.dataset)

    def status(self, store: str, dataset: str) -> SequenceStatus | None:
        query = sa.select(*_STATUS).where(
            sequences.c.store_key == key(store),
            sequences.c.dataset_key == key(dataset),
            sequences.c.state != _EMPTY,
        )
        rows = self._ledger.read(lambda tx: tx.rows(query, lock=False))
        return _status(rows[0]) if rows else None

    def claim(self, store: str, datasets: Iterable[str], epoch: int) -> None:
        # In one order, so that two of them never wait for each other.
        names = sorted(set(datasets))

        def do(tx: Tx) -> None:
            tx.insert(stores, store=store, created=now_ms())
            known = {row.dataset: row.epoch for row in tx.rows(_epochs(store, names))}
            for dataset in names:
                if known.get(dataset, -1) < epoch:
                    _claimed(tx, store, dataset, epoch)
                elif known[dataset] > epoch:
                    raise _fenced(store, dataset, known[dataset], epoch)

        self._ledger.write(do, idempotent=True)

    def put(self, sequence: CommitSequence) -> None:
        self._put(sequence.store, sequence.dataset, sequence.epoch, sequence.record())

    def put_record(self, store: str, dataset: str, record: SequenceRecord) -> None:
        """As `put`, for somebody who has the sequence elsewhere; its steps need not be known here."""
        self._put(store, dataset, record.check(store, dataset), record)

    def _put(self, store: str, dataset: str, epoch: int, record: SequenceRecord) -> None:
        def do(tx: Tx) -> None:
            tx.insert(stores, store=store, created=now_ms())
            row = _claimed(tx, store, dataset, epoch)
            if row.checksum == record.checksum:
                return
            if row.epoch > epoch:
                raise _fenced(store, dataset, row.epoch, epoch)
            if row.state != _EMPTY:
                raise AlreadyExists(
                    f"{dataset!r} has a sequence in {store!r} already, which is {row.state.replace('_', ' ')}",
                    hint="Finish it first: recovery does, or lakeseal steps retry | abort",
                )
            now = now_ms()
            values = {
                **_NOTHING,
                "state": SequenceState.OPEN.value,
                "count": record.count,
                "checksum": record.checksum,
                "payload": record.payload,
                "created": now,
                "updated": now,
            }
            tx.update(sequences, {"store": store, "dataset": dataset}, values)

        self._ledger.write(do, idempotent=True)

    def get_commit_sequence(self, store: str, dataset: str) -> CommitSequence | None:
        record = self.get_record(store, dataset)
        return None if record is None else record.sequence(store, dataset)

    def get_record(self, store: str, dataset: str) -> SequenceRecord | None:
        """As it was put; whether it is whole, whoever reads it finds out."""
        row = self._ledger.read(lambda tx: tx.get(sequences, store=store, dataset=dataset))
        if row is None or row.state == _EMPTY:
            return None
        if not row.payload:
            raise BrokenSequence(f"The record of {dataset!r} in {store!r} is empty")
        return SequenceRecord(payload=bytes(row.payload), count=row._mapping["count"], checksum=row.checksum)

    def note(
        self,
        store: str,
        dataset: str,
        *,
        checksum: str,
        epoch: int,
        state: SequenceState = SequenceState.OPEN,
        tries: int = 0,
        reason: str | None = None,
    ) -> bool:
        values = {"state": state.value, "tries": tries, "reason": reason, "epoch": epoch, "updated": now_ms()}
        return self._change(store, dataset, checksum, epoch, values)

    def remove(self, store: str, dataset: str, *, checksum: str, epoch: int) -> bool:
        return self._change(store, dataset, checksum, epoch, {**_NOTHING, "epoch": epoch, "updated": now_ms()})

    def remove_store(self, store: str) -> bool:
        def do(tx: Tx) -> bool:
            # Locks the store's row before its group is looked at.
            there = tx.get(stores, store=store) is not None
            if any(row.state != _EMPTY for row in tx.rows(_epochs(store))):
                raise AlreadyExists(f"{store!r} holds sequences", hint="Finish or abort them first")
            tx.delete(sequences, store=store)
            tx.delete(stores, store=store)
            return there

        return self._ledger.write(do)

    def _change(self, store: str, dataset: str, checksum: str, epoch: int, values: dict[str, Any]) -> bool:
        def do(tx: Tx) -> bool:
            row = tx.get(sequences, store=store, dataset=dataset)
            if row is None or row.state == _EMPTY or row.checksum != checksum:
                return False
            if row.epoch > epoch:
                raise _fenced(store, dataset, row.epoch, epoch)
            return tx.update(sequences, {"store": store, "dataset": dataset}, values)

        return self._ledger.write(do, idempotent=True)


def _claimed(tx: Tx, store: str, dataset: str, epoch: int) -> Row:
    """The dataset's row, with an epoch that is not smaller."""
    name = {"store": store, "dataset": dataset}
    while True:
        now = now_ms()
        tx.insert(sequences, **name, **_NOTHING, epoch=epoch, created=now, updated=now)
        row = tx.get(sequences, **name)
        if row is not None:  # else its store was removed in between
            break
    if row.epoch < epoch:
        tx.update(sequences, name, {"epoch": epoch})
        return _claimed(tx, store, dataset, epoch)
    return row


def _epochs(store: str, datasets: Sequence[str] | None = None) -> sa.Select[Any]:
    columns = (sequences.c.dataset, sequences.c.epoch, sequences.c.state)
    query = sa.select(*columns).where(sequences.c.store_key == key(store)).order_by(sequences.c.dataset_key)
    if datasets is not None and len(datasets) <= _NAMED_AT_ONCE:
        query = query.where(sequences.c.dataset_key.in_([key(dataset) for dataset in datasets]))
    return query


def _status(row: Row) -> SequenceStatus:
    return SequenceStatus(
        store=row.store,
        dataset=row.dataset,
        state=SequenceState(row.state),
        epoch=row.epoch,
        count=row._mapping["count"],  # the attribute is the method of tuples
        checksum=row.checksum,
        tries=row.tries,
        reason=row.reason,
        created_ms=row.created,
        updated_ms=row.updated,
    )


def _fenced(store: str, dataset: str, seen: int, epoch: int) -> Fenced:
    return Fenced(f"{dataset!r} in {store!r} has been claimed under epoch {seen}, and this run has epoch {epoch}")
