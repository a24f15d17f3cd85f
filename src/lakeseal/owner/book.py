"""The ledger as an owner uses it: single steps of the state machine, each one transaction, each safe to take twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from lakeseal.clock import Clock
from lakeseal.ledger import Ledger, Tx
from lakeseal.owner import enablement, ownership, rows
from lakeseal.owner.backfill import LoggedCommit
from lakeseal.owner.kinds import Kind, kind_of
from lakeseal.owner.messages import TableCommits, TrackedCommit
from lakeseal.owner.ownership import Ownership, State, StepRefusal
from lakeseal.owner.rows import StoredCommit, TableRow

# A statement has room for some ten thousand values.
_AT_ONCE = 1000


class Book:
    def __init__(self, ledger: Ledger, *, batch_size: int, clock: Clock) -> None:
        self.ledger = ledger
        self._batch_size = batch_size
        self._clock = clock

    def told(self, tables: Sequence[str], start_version: int = 0) -> tuple[TableCommits, ...]:
        """All of them at one moment."""
        parts = [tables[start : start + _AT_ONCE] for start in range(0, len(tables), _AT_ONCE)]
        ask = self.ledger.look if len(parts) <= 1 else self.ledger.read
        found = ask(lambda tx: {k: v for part in parts for k, v in rows.read_waiting(tx, part, start_version).items()})
        return tuple(_told(table, *found[table]) if table in found else TableCommits(table=table) for table in tables)

    def row(self, table: str) -> Ownership:
        found = self.ledger.look(lambda tx: rows.read_table(tx, table))
        return Ownership() if found is None else found.ownership

    def step(self, table: str, change: Callable[[Ownership], Ownership | StepRefusal]) -> StepRefusal | None:
        """Why the step was not taken, or None if it was."""

        def do(tx: Tx) -> StepRefusal | None:
            found = rows.read_table(tx, table)
            if found is None:
                first = change(Ownership())
                if isinstance(first, StepRefusal) or first == Ownership():
                    return first if isinstance(first, StepRefusal) else None
                # Of several who meet a table for the first time one inserts its row, and all read it then.
                fresh = TableRow(ownership=Ownership(), batch_size=self._batch_size)
                rows.insert_table(tx, table, fresh, now=self._clock())
                found = rows.read_table(tx, table) or fresh
            after = change(found.ownership)
            if isinstance(after, StepRefusal):
                return after
            if after != found.ownership:
                rows.write_table(tx, table, msgspec.structs.replace(found, ownership=after), now=self._clock())
                if after.latest < found.ownership.latest:
                    rows.drop_commits_above(tx, table, after.latest)
            return None

        return self.ledger.write(do, idempotent=True)

    def settle(self, table: str, version: int, logged: LoggedCommit) -> None:
        """`logged` is the commit at the version that the pending take-over wants."""

        def do(tx: Tx) -> None:
            row = rows.read_table(tx, table)
            if row is None or row.ownership.change_version != version:
                return
            after = ownership.settle(row.ownership, logged.found)
            if after == row.ownership:
                return
            size, kind = row.batch_size, row.kind
            if after.state is State.ACTIVE:
                rows.drop_commits_above(tx, table, version)
                if logged.content.metadata is not None:
                    size = enablement.batch_size(logged.content.metadata, self._batch_size)
                    kind = kind_of(logged.content.metadata) or Kind.MANAGED
            after_settling = TableRow(ownership=after, batch_size=size, kind=kind, metadata_version=version)
            rows.write_table(tx, table, after_settling, now=self._clock())

        self.ledger.write(do, idempotent=True)

    def stored(self, table: str, start: int, *, limit: int) -> list[StoredCommit]:
        return self.ledger.read(lambda tx: rows.stored_from(tx, table, start, limit=limit))

    def mark(self, published: Mapping[str, tuple[int, int]]) -> None:
        """Of each table: the copies up to this version are durable, in this epoch."""

        def do(tx: Tx) -> None:
            marks = []
            for table, row in rows.read_tables(tx, published).items():
                version, epoch = published[table]
                after = ownership.mark_backfilled(row.ownership, version, epoch=epoch)
                if after != row.ownership:
                    marks.append(rows.Mark(table=table, above=row.ownership.backfilled, up_to=after.backfilled))
            if marks:
                rows.mark(tx, marks, now=self._clock())

        self.ledger.write(do, idempotent=True)

    def unpublished(self, tables: Iterable[str], *, limit: int) -> dict[str, tuple[Ownership, list[StoredCommit]]]:
        """The tables' rows and their first commits that are not in the log yet, as they are at one moment: `limit`
        commits of one table, and of all together up to the table that goes beyond it."""

        def do(tx: Tx) -> dict[str, tuple[Ownership, list[StoredCommit]]]:
            known = rows.read_tables(tx, tables)
            found: dict[str, tuple[Ownership, list[StoredCommit]]] = {}
            left = limit
            for table in tables:
                if left <= 0:
                    break
                own = known[table].ownership if table in known else Ownership()
                waits = own.is_owned and own.backfilled < own.latest
                stored = rows.stored_from(tx, table, own.backfilled + 1, limit=limit) if waits else []
                found[table] = own, stored
                left -= len(stored)
            return found

        return self.ledger.read(do)

    def open_work(self) -> dict[str, TableRow]:
        return self.ledger.read(rows.tables_with_work)

    def forgettable(self, *, grace_ms: int) -> list[str]:
        return self.ledger.read(lambda tx: rows.tables_to_forget(tx, grace_ms=grace_ms))

    def forget(self, table: str, *, grace_ms: int) -> int:
        """Rows whose copies have been in the log for longer than the grace go; below which version nothing in
        `_commits` is needed any more."""

        def do(tx: Tx) -> int:
            row = rows.read_table(tx, table)
            if row is None:
                return 0
            rows.forget_commits(tx, table, grace_ms=grace_ms)
            first = rows.first_kept(tx, table)
            return row.ownership.backfilled + 1 if first is None else min(first, row.ownership.backfilled + 1)

        return self.ledger.write(do, idempotent=True)


def _told(table: str, row: TableRow, waiting: tuple[TrackedCommit, ...]) -> TableCommits:
    own = row.ownership
    return TableCommits(
        table=table,
        state=own.state,
        epoch=own.epoch,
        latest=own.latest,
        backfilled=own.backfilled,
        commits=waiting if own.is_owned else (),
        change_id=own.promises[-1] if own.promises else None,
        change_version=own.change_version,
        batch_size=row.batch_size,
        kind=row.kind,
        metadata_version=row.metadata_version,
        latest_timestamp=own.latest_timestamp,
    )
