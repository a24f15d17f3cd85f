"""Several single commits, asked for by clients that know nothing of each other, ratified in one ledger transaction.

This is the short way for what is usual: the table is active, the version is next, the transaction is new. Whatever
else a request may meet (a conflict with an earlier commit, a release, a gap, a full backlog, a file that cannot be
written, a transaction that comes again) gets no answer here, and its caller asks for it by itself, where all of that
is decided. So nothing that is wrong with one request can become another's answer.

Requests are decided in the order in which they came, so that two of one table can follow each other, and each by
`ownership.ratify` on the row as the one before it left it. Rows are locked in the order of the tables' names, as
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from lakeseal.errors import LakesealError
from lakeseal.ledger import Tx
from lakeseal.owner import ownership, rows
from lakeseal.owner.messages import CommitRequest, Ratified, Taken
from lakeseal.owner.ownership import Ownership, Verdict


class Decided(Struct, frozen=True, kw_only=True):
    answers: tuple[Ratified | Taken | None, ...]
    """In the order of the requests; None for those that have to be asked for by themselves."""
    latest: dict[str, int] = {}
    """How far the tables are that were met."""
    is_full: bool = False
    """One of them has a whole batch that waits for its backfill."""


def undecided(requests: Sequence[CommitRequest]) -> Decided:
    return Decided(answers=(None,) * len(requests))


def decide(
    tx: Tx,
    requests: Sequence[CommitRequest],
    *,
    now: int,
    most_unbackfilled: int,
    place: Callable[[CommitRequest], None],
) -> Decided:
    """`place` puts the file of a commit that will be ratified where it belongs, while its table is locked."""
    found = rows.read_tables(tx, {request.table for request in requests})
    current = {table: row.ownership for table, row in found.items()}
    winners: dict[tuple[str, int], CommitRequest] = {}
    answers: list[Ratified | Taken | None] = []
    for request in requests:
        row = current.get(request.table, _UNKNOWN)
        after = ownership.ratify(row, request.version, epoch=request.epoch, timestamp=request.in_commit_timestamp)
        winner = winners.get((request.table, request.version))
        if after is Verdict.TAKEN and winner is not None and winner.txn_id != request.txn_id:
            answers.append(Taken(table=request.table, version=request.version))
        elif (
            isinstance(after, Ownership)
            and after.latest - after.backfilled <= most_unbackfilled
            and _put(place, request)
        ):
            current[request.table] = after
            winners[request.table, request.version] = request
            answers.append(_ratified(request))
        else:
            answers.append(None)
    rows.insert_commits(tx, winners.values(), now=now)
    rows.write_latest_of(tx, {table: current[table] for table, _ in winners}, now=now)
    return Decided(
        answers=tuple(answers),
        latest={table: row.latest for table, row in current.items()},
        is_full=any(current[t].latest - current[t].backfilled >= row.batch_size for t, row in found.items()),
    )


def _put(place: Callable[[CommitRequest], None], request: CommitRequest) -> bool:
    try:
        place(request)
    except LakesealError:
        # It will fail again where its caller is told why, or succeed there.
        return False
    return True


def _ratified(request: CommitRequest) -> Ratified:
    return Ratified(
        table=request.table,
        version=request.version,
        key=request.key,
        in_commit_timestamp=request.in_commit_timestamp,
    )


_UNKNOWN = Ownership()
