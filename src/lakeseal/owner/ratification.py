"""Deciding on batches inside one ledger transaction: all of a batch is ratified, or nothing of it.

The batches of a group are asked for by clients that know nothing of each other. They are decided on in the order in
which they are given, each on the tables' rows as those before it left them, so a group comes to what its batches would
come to one after the other. A batch that is refused changes nothing for the others.

Nothing here touches files. Where only the log can tell (the row of an old commit is forgotten, a take-over is pending),
the decision says so and is asked for again once that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.clock import Clock
from lakeseal.errors import AlreadyExists, ConcurrentWriteException, Fenced, InvalidArgument, LakesealError
from lakeseal.ledger import Ledger, Tx
from lakeseal.ledger.schema import leases, schemas, sequences, staged_tables, table_names, watermarks
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
from lakeseal.owner.ownership import Ownership, State, StepRefusal
from lakeseal.owner.rows import TableRow

# Rows that may ride along; an owner's own rows and secrets never do. A lease is only asked for, by what is expected.
_RECORDS = {table.name: table for table in (watermarks, sequences, leases, table_names)}


class Denied(Struct, frozen=True, kw_only=True):
    """The first of the batch that stands in the way, and why."""

    request: CommitRequest | Guard
    verdict: StepRefusal
    row: Ownership


class InTheLog(Struct, frozen=True, kw_only=True):
    """The version was taken long ago: whose it is, its file tells."""

    request: CommitRequest


class Decided(Struct, frozen=True, kw_only=True):
    answer: BatchAnswer
    tables: tuple[TableRow, ...] = ()
    """As they are now, in the order of the requests; empty if nothing was ratified now."""


Decision = Decided | Denied | InTheLog


class Asked(Struct, frozen=True, kw_only=True):
    batch: Batch
    known: Mapping[str, Answer] = {}
    """Answers by table that the log has given before."""


class Ratification:
    """Groups of batches, each in one ledger transaction."""

    def __init__(self, ledger: Ledger, *, most_unbackfilled: int, clock: Clock) -> None:
        self._ledger = ledger
        self._most_unbackfilled = most_unbackfilled
        self._clock = clock

    def decide(self, group: Sequence[Asked]) -> list[Decision | LakesealError]:
        """In the order of the group, in one transaction if nothing is wrong with any of them. Safe to ask for twice."""
        try:
            return list(self._decided(group))
        except _RatifiedBefore:
            if len(group) == 1:
                return [self._ledger.read(lambda tx: _committed_before(tx, group[0].batch.commits))]
        except (AlreadyExists, ConcurrentWriteException, Fenced, InvalidArgument) as error:
            if len(group) == 1:
                return [error]
        return [one for asked in group for one in self.decide([asked])]

    def _decided(self, group: Sequence[Asked]) -> list[Decision]:
        def do(tx: Tx) -> list[Decision]:
            decisions = _decide_group(tx, group, now=self._clock(), most_unbackfilled=self._most_unbackfilled)
            if not any(isinstance(one, Decided) and one.tables for one in decisions):
                # Rolled back: to commit row locks and nothing else would wait for the disk.
                raise _Unchanged(decisions)
            return decisions

        try:
            return self._ledger.write(do, idempotent=True)
        except _Unchanged as unchanged:
            return unchanged.decisions


class _RatifiedBefore(Exception):
    """A transaction of the group has another version of its table."""


class _Unchanged(Exception):
    def __init__(self, decisions: list[Decision]) -> None:
        super().__init__()
        self.decisions = decisions


def _decide_group(tx: Tx, group: Sequence[Asked], *, now: int, most_unbackfilled: int) -> list[Decision]:
    """What raises is about the whole of the group."""
    found = rows.read_tables(tx, {table for asked in group for table in _tables_of(asked.batch)})
    ratified: list[CommitRequest] = []
    moved: dict[str, TableRow] = {}
    decisions: list[Decision] = []
    for asked in group:
        decision = _decide(tx, asked, found, ratified, most_unbackfilled)
        decisions.append(decision)
        if isinstance(decision, Decided) and decision.tables:
            for request, row in zip(asked.batch.commits, decision.tables, strict=True):
                found[request.table] = row
                moved[request.table] = row
            ratified += asked.batch.commits
            for record in asked.batch.records:
                _write_record(tx, record)
    if ratified:
        of_catalogs = {one.table for one in ratified if one.changes_metadata and moved[one.table].kind.speaks_to_all}
        latest = {table: row.ownership for table, row in moved.items() if table not in of_catalogs}
        try:
            rows.write_ratified(tx, ratified, latest, now=now)
        except AlreadyExists as error:
            raise _RatifiedBefore from error
        for table in sorted(of_catalogs):
            rows.write_table(tx, table, moved[table], now=now)
    return decisions


def _decide(
    tx: Tx,
    asked: Asked,
    found: Mapping[str, TableRow],
    ratified: Sequence[CommitRequest],
    most_unbackfilled: int,
) -> Decision:
    """`ratified` are the commits of those before it in the group."""
    batch = asked.batch
    answers: list[Answer | None] = []
    after: list[TableRow] = []
    for request in batch.commits:
        if request.table in asked.known:
            answers.append(asked.known[request.table])
            continue
        row = found.get(request.table, _UNKNOWN)
        decision = ownership.ratify(
            row.ownership, request.version, epoch=request.epoch, timestamp=request.in_commit_timestamp
        )
        if isinstance(decision, Ownership):
            if request.file is not None and not request.key.startswith(row.kind.staging):
                raise InvalidArgument(
                    f"{request.key} is not where commits of this table are staged",
                    table=request.table,
                    version=request.version,
                    hint=f"Its directory is {row.kind.staging}",
                )
            if decision.latest - decision.backfilled > most_unbackfilled:
                return Denied(request=request, verdict=StepRefusal.NOT_BACKFILLED, row=row.ownership)
            answers.append(None)
            changed = request.version if request.changes_metadata else row.metadata_version
            after.append(replace(row, ownership=decision, metadata_version=changed))
        elif decision is StepRefusal.TAKEN:
            taken = _whose(tx, request, ratified)
            if taken is None:
                return InTheLog(request=request)
            answers.append(taken)
        else:
            return Denied(request=request, verdict=decision, row=row.ownership)
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
    return Decided(answer=BatchAnswer(commits=tuple(map(_ratified, batch.commits))), tables=tuple(after))


def _committed_before(tx: Tx, requests: Sequence[CommitRequest]) -> AlreadyExists:
    """Of requests that were refused for it, the first that it is true of."""
    known = ((request, rows.commit_of(tx, request.table, request.txn_id)) for request in requests)
    request, before = next((one for one in known if one[1] is not None), (requests[0], None))
    return AlreadyExists(
        f"The transaction {request.txn_id} is version {before.commit.version if before else '?'} already",
        table=request.table,
        version=request.version,
        hint="A transaction commits once; begin another",
    )


def answered(tx: Tx, request: CommitRequest) -> Ratified | Taken | None:
    """The answer that a request has already, as far as the ledger knows; None if the version is free or forgotten."""
    row = rows.read_table(tx, request.table)
    if row is None or request.version > row.ownership.latest:
        return None
    return _whose(tx, request, ())


def _whose(tx: Tx, request: CommitRequest, ratified: Sequence[CommitRequest]) -> Ratified | Taken | None:
    for one in ratified:
        if (one.table, one.version) == (request.table, request.version):
            return _ratified(one) if one.txn_id == request.txn_id else Taken(table=one.table, version=one.version)
    ours = rows.commit_of(tx, request.table, request.txn_id)
    if ours is not None and ours.commit.version == request.version:
        commit = ours.commit.ratified()
        return Ratified(
            table=request.table,
            version=request.version,
            key=commit.key,
            in_commit_timestamp=commit.in_commit_timestamp,
        )
    if rows.commit_at(tx, request.table, request.version) is not None:
        return Taken(table=request.table, version=request.version)
    return None


def _broken(guards: Sequence[Guard], found: Mapping[str, TableRow]) -> tuple[Taken, ...] | Denied:
    broken: list[Taken] = []
    for guard in guards:
        row = found.get(guard.table, _UNKNOWN).ownership
        match row.state:
            case State.PENDING:
                return Denied(request=guard, verdict=StepRefusal.UNSETTLED, row=row)
            case State.RELEASING:
                return Denied(request=guard, verdict=StepRefusal.RELEASING, row=row)
            case State.NONE:
                return Denied(request=guard, verdict=StepRefusal.NOT_OWNED, row=row)
        if row.epoch != guard.epoch:
            return Denied(request=guard, verdict=StepRefusal.OTHER_EPOCH, row=row)
        if row.latest != guard.version:
            broken.append(Taken(table=guard.table, version=row.latest))
    return tuple(broken)


def _write_record(tx: Tx, record: LedgerRecord) -> None:
    table = _RECORDS.get(record.table)
    if table is None or (table is leases and record.values != record.expected):
        raise InvalidArgument(
            f"Rows of {record.table!r} cannot ride along with commits", hint=f"Those of {', '.join(_RECORDS)} can"
        )
    if table is table_names:
        _write_name(tx, record)
        return
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


def _write_name(tx: Tx, record: LedgerRecord) -> None:
    """Names come and go in a schema only while its row is locked (`NameBook`)."""
    says = {**record.values, **(record.expected or {})}
    if record.insert == record.delete or tx.get(schemas, schema_id=says.get("schema_id")) is None:
        raise InvalidArgument("A name is given or taken in a schema that is there", hint="Create the schema first")
    if record.insert:
        staged = tx.get(staged_tables, **record.key)
        if staged is None or staged.uri != says.get("uri"):
            raise ConcurrentWriteException(
                f"The table {says.get('name')} was abandoned before it got its name",
                hint="Nothing was committed. Begin again",
            )
        done = tx.insert(table_names, **record.key, **record.values)
        tx.delete(staged_tables, **record.key)
    else:
        done = tx.delete(table_names, **record.key, **(record.expected or {})) > 0
    if not done and record.insert:
        raise AlreadyExists(
            f"The name {says.get('name')} or the place {says.get('uri')} is another table's by now",
            hint="Nothing was committed. Choose another name, or begin again",
        )
    if not done and record.delete:
        raise ConcurrentWriteException(
            f"The table {says.get('name_folded')} was dropped or renamed meanwhile",
            hint="Nothing was committed. Begin again",
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
