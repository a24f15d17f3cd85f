"""Deciding on a batch inside one ledger transaction: all of it is ratified, or nothing is.

Nothing here touches files. Where only the log can tell (the row of an old commit is forgotten, a take-over is pending),
the decision says so and is asked for again once that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from lakeseal.errors import AlreadyExists, ConcurrentWriteException, Fenced, InvalidArgument
from lakeseal.ledger import Tx
from lakeseal.ledger.schema import leases, sequences, watermarks
from lakeseal.owner import ownership, rows
from lakeseal.owner.messages import (
    Answer,
    Batch,
    BatchAnswer,
    CommitRequest,
    Guard,
    LedgerRecord,
    Ratified,
    Taken,
    Undecided,
)
from lakeseal.owner.ownership import Ownership, State, Verdict
from lakeseal.owner.rows import TableRow

# Rows that may ride along; an owner's own rows and secrets never do. A lease is only asked for, by what is expected.
_RECORDS = {table.name: table for table in (watermarks, sequences, leases)}


class Denied(Struct, frozen=True, kw_only=True):
    """The first of the batch that stands in the way, and why."""

    request: CommitRequest | Guard
    verdict: Verdict
    row: Ownership


class InTheLog(Struct, frozen=True, kw_only=True):
    """The version was taken long ago: whose it is, its file tells."""

    request: CommitRequest


class Decided(Struct, frozen=True, kw_only=True):
    answer: BatchAnswer
    tables: tuple[TableRow, ...] = ()
    """As they are now, in the order of the requests; empty if nothing was ratified now."""


Decision = Decided | Denied | InTheLog


def decide(
    tx: Tx,
    batch: Batch,
    *,
    now: int,
    most_unbackfilled: int,
    known: Mapping[str, Answer],
    place: Callable[[CommitRequest], None] | None = None,
) -> Decision:
    """`known` are answers by table that the log has given before. `place` puts a commit's file where it belongs; it is
    called while the tables are locked, and only if all of the batch will be ratified."""
    found = {table: rows.read_table(tx, table) or _UNKNOWN for table in sorted(_tables_of(batch))}
    answers: list[Answer | None] = []
    after: list[Ownership] = []
    for request in batch.commits:
        row = found[request.table].ownership
        if request.table in known:
            answers.append(known[request.table])
            continue
        decision = ownership.ratify(row, request.version, epoch=request.epoch, timestamp=request.in_commit_timestamp)
        if isinstance(decision, Ownership):
            if decision.latest - decision.backfilled > most_unbackfilled:
                return Denied(request=request, verdict=Verdict.NOT_BACKFILLED, row=row)
            answers.append(None)
            after.append(decision)
        elif decision is Verdict.TAKEN:
            taken = _whose(tx, request)
            if taken is None:
                return InTheLog(request=request)
            answers.append(taken)
        else:
            return Denied(request=request, verdict=decision, row=row)
    if answers and all(isinstance(answer, Ratified) for answer in answers):
        return Decided(answer=BatchAnswer(commits=tuple(a for a in answers if a is not None)))
    if any(isinstance(answer, Ratified) for answer in answers):
        raise AlreadyExists("A part of this transaction was committed before without the rest of it")
    broken = _broken(batch.guards, found)
    if isinstance(broken, Denied):
        return broken
    if broken or any(answers):
        open_ones = zip(batch.commits, answers, strict=True)
        return Decided(
            answer=BatchAnswer(
                commits=tuple(a or Undecided(table=request.table, version=request.version) for request, a in open_ones),
                guards=broken,
            )
        )
    if place is not None:
        for request in batch.commits:
            place(request)
    for request, row in zip(batch.commits, after, strict=True):
        if not rows.insert_commit(tx, request, now=now):
            before = rows.commit_of(tx, request.table, request.txn_id)
            raise AlreadyExists(
                f"The transaction {request.txn_id} is version {before.commit.version if before else '?'} already",
                table=request.table,
                version=request.version,
                hint="A transaction commits once; begin another",
            )
        rows.write_latest(tx, request.table, row, now=now)
    for record in batch.records:
        _write_record(tx, record)
    return Decided(
        answer=BatchAnswer(commits=tuple(_ratified(request) for request in batch.commits)),
        tables=tuple(
            TableRow(ownership=row, batch_size=found[request.table].batch_size)
            for request, row in zip(batch.commits, after, strict=True)
        ),
    )


def answered(tx: Tx, request: CommitRequest) -> Ratified | Taken | None:
    """The answer that a request has already, as far as the ledger knows; None if the version is free or forgotten."""
    row = rows.read_table(tx, request.table)
    if row is None or request.version > row.ownership.latest:
        return None
    return _whose(tx, request)


def _whose(tx: Tx, request: CommitRequest) -> Ratified | Taken | None:
    ours = rows.commit_of(tx, request.table, request.txn_id)
    if ours is not None and ours.commit.version == request.version:
        return Ratified(
            table=request.table,
            version=request.version,
            key=ours.commit.key,
            in_commit_timestamp=ours.commit.in_commit_timestamp,
        )
    if rows.commit_at(tx, request.table, request.version) is not None:
        return Taken(table=request.table, version=request.version)
    return None


def _broken(guards: Sequence[Guard], found: dict[str, TableRow]) -> tuple[Taken, ...] | Denied:
    broken: list[Taken] = []
    for guard in guards:
        row = found[guard.table].ownership
        match row.state:
            case State.PENDING:
                return Denied(request=guard, verdict=Verdict.UNSETTLED, row=row)
            case State.RELEASING:
                return Denied(request=guard, verdict=Verdict.RELEASING, row=row)
            case State.NONE:
                return Denied(request=guard, verdict=Verdict.NOT_OWNED, row=row)
        if row.epoch != guard.epoch:
            return Denied(request=guard, verdict=Verdict.OTHER_EPOCH, row=row)
        if row.latest != guard.version:
            broken.append(Taken(table=guard.table, version=row.latest))
    return tuple(broken)


def _write_record(tx: Tx, record: LedgerRecord) -> None:
    table = _RECORDS.get(record.table)
    if table is None or (table is leases and record.values != record.expected):
        raise InvalidArgument(
            f"Rows of {record.table!r} cannot ride along with commits", hint=f"Those of {', '.join(_RECORDS)} can"
        )
    if record.expected is not None:
        done = tx.compare_and_set(table, record.key, record.expected, record.values)
    elif record.insert:
        done = tx.insert(table, **record.key, **record.values)
    else:
        tx.put(table, **record.key, **record.values)
        done = True
    if not done and table is leases:
        raise Fenced(f"The turn at {record.key.get('name')!r} was lost before the commit")
    if not done:
        raise ConcurrentWriteException(
            f"A row of the ledger's {record.table} is not as it was expected: {record.key}",
            hint="Nothing was committed. Another run is ahead: read its state and begin again",
        )


def _ratified(request: CommitRequest) -> Ratified:
    return Ratified(
        table=request.table,
        version=request.version,
        key=request.key,
        in_commit_timestamp=request.in_commit_timestamp,
    )


def _tables_of(batch: Batch) -> set[str]:
    return {request.table for request in batch.commits} | {guard.table for guard in batch.guards}


_UNKNOWN = TableRow(ownership=Ownership(), batch_size=1)
