"""Several single commits, asked for by clients that know nothing of each other, ratified in one ledger transaction.

This is the short way for what is usual: the table is active, the version is next, the transaction is new. Whatever
else a request may meet (a conflict with an earlier commit, a release, a gap, a full backlog, a file that cannot be
written, a transaction that comes again) gets no answer here, and its caller asks for it by itself, where all of that
is decided. So nothing that is wrong with one request can become another's answer.

The tables' rows are remembered from one group to the next. Requests are decided on them in the order in which they
came, each by `ownership.ratify` on the row as the one before it left it, and then each table moves by compare-and-set:
only if its row in the ledger still is, in everything that `ratify` looks at, what was decided on. A table that another
process has moved meanwhile stays as it is, its requests get no answer, and its row is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.errors import LakesealError
from lakeseal.ledger import Advance, Ledger
from lakeseal.owner import ownership, rows
from lakeseal.owner.messages import CommitRequest, Ratified, Taken
from lakeseal.owner.ownership import Ownership, Verdict
from lakeseal.owner.recent import Recent
from lakeseal.owner.rows import TableRow

Place = Callable[[CommitRequest], None]
R = TypeVar("R")
S = TypeVar("S")

_MOST_REMEMBERED = 100_000


class Admitted(Struct, frozen=True):
    """A commit that may be among those of a group."""

    request: CommitRequest
    is_placed: bool


class Decided(Struct, frozen=True, kw_only=True):
    answers: tuple[Ratified | Taken | None, ...]
    """In the order of the requests; None for those that have to be asked for by themselves."""
    overtaken: tuple[str, ...] = ()
    """Tables that somebody else has moved meanwhile."""
    is_full: bool = False
    """A table has a whole batch that waits for its backfill."""


class Begun(Struct, Generic[R], frozen=True, kw_only=True):
    """What is to be written to the ledger, and what to make of the tables that moved, or of not knowing which did."""

    advances: Sequence[Advance]
    conclude: Callable[[Mapping[str, int] | None], R]

    def then(self, do: Callable[[R], S]) -> Begun[S]:
        return Begun(advances=self.advances, conclude=lambda moved: do(self.conclude(moved)))


class Group:
    """`decide`, and `begin` until it is concluded, are for one thread at a time; the others are for any."""

    def __init__(self, ledger: Ledger, recent: Recent, *, most_unbackfilled: int, clock: Callable[[], int]) -> None:
        self._ledger = ledger
        self._recent = recent
        self._most_unbackfilled = most_unbackfilled
        self._clock = clock
        self._rows: dict[str, TableRow] = {}
        self._placed: dict[str, int] = {}
        """The version of each table for which a file was placed last."""

    def forget(self, table: str) -> None:
        """Its row has changed."""
        self._rows.pop(table, None)

    def admit(self, request: CommitRequest, place: Place) -> Admitted:
        """`place` puts a commit's file where it belongs. That is done here where the commit seems to be next, so that
        those whose turn it is to be decided on need not wait for it. If it is not ratified after all, its file goes as
        those of others that came too late do."""
        row = self._rows.get(request.table)
        is_next = row is not None and not isinstance(_ratified(row.ownership, request), Verdict)
        if not is_next or self._placed.get(request.table) == request.version:
            # Of several that want one version, one is enough to have its file already.
            return Admitted(request, is_placed=False)
        self._placed[request.table] = request.version
        return Admitted(request, is_placed=_is_placed(request, place))

    def decide(self, admitted: Sequence[Admitted], place: Place) -> Decided:
        try:
            before = self._remembered({one.request.table for one in admitted})
            begun = self._begun(before, admitted, place)
            return begun.conclude(rows.advanced(self._ledger, begun.advances) if begun.advances else {})
        except LakesealError:
            return self._undecided(admitted)

    def begin(self, admitted: Sequence[Admitted]) -> Begun[Decided] | None:
        """As `decide`, up to where the ledger has its say. None where there is something to be waited for before."""
        before = {table: row for one in admitted if (row := self._rows.get(table := one.request.table)) is not None}
        if not all(one.is_placed and one.request.table in before for one in admitted):
            return None
        return self._begun(before, admitted, _nowhere)

    def _begun(self, before: Mapping[str, TableRow], admitted: Sequence[Admitted], place: Place) -> Begun[Decided]:
        after = {table: row.ownership for table, row in before.items()}
        won: dict[str, list[CommitRequest]] = {}
        answers = [self._answer(after, one, won, place) for one in admitted]
        now = self._clock()

        def conclude(moved: Mapping[str, int] | None) -> Decided:
            if moved is None:
                return self._undecided(admitted)
            is_full = False
            for table, commits in won.items():
                if table in moved:
                    self._recent.add(commits)
                    row = replace(before[table], ownership=replace(after[table], backfilled=moved[table]))
                    self._rows[table] = row
                    is_full = is_full or row.ownership.latest - row.ownership.backfilled >= row.batch_size
                else:
                    self.forget(table)
            overtaken = tuple(table for table in won if table not in moved)
            return Decided(
                answers=tuple(None if a is None or a.table in overtaken else a for a in answers),
                overtaken=overtaken,
                is_full=is_full,
            )

        advances = [rows.advance(before[table].ownership, after[table], won[table], now=now) for table in won]
        return Begun(advances=advances, conclude=conclude)

    def _undecided(self, admitted: Sequence[Admitted]) -> Decided:
        """If the outcome is unknown, the requests learn it by asking again."""
        for one in admitted:
            self.forget(one.request.table)
        return Decided(answers=(None,) * len(admitted))

    def _answer(
        self,
        current: dict[str, Ownership],
        admitted: Admitted,
        won: dict[str, list[CommitRequest]],
        place: Place,
    ) -> Ratified | Taken | None:
        request = admitted.request
        table, version = request.table, request.version
        after = _ratified(current.get(table, _UNKNOWN), request)
        if after is Verdict.TAKEN and any(
            winner.version == version and winner.txn_id != request.txn_id for winner in won.get(table, ())
        ):
            return Taken(table=table, version=version)
        if isinstance(after, Verdict) or after.latest - after.backfilled > self._most_unbackfilled:
            if after is not Verdict.TAKEN and table not in won:
                # What is remembered may be old.
                self.forget(table)
            return None
        if not admitted.is_placed and not _is_placed(request, place):
            # It will fail again where its caller is told why, or succeed there.
            return None
        current[table] = after
        won.setdefault(table, []).append(request)
        return Ratified(table=table, version=version, key=request.key, in_commit_timestamp=request.in_commit_timestamp)

    def _remembered(self, tables: set[str]) -> Mapping[str, TableRow]:
        # Taken out once: another thread may have one forgotten meanwhile.
        known = {table: row for table in tables if (row := self._rows.get(table)) is not None}
        missing = tables - known.keys()
        if missing:
            found = self._ledger.read(lambda tx: rows.read_tables(tx, missing))
            if len(self._rows) > _MOST_REMEMBERED:
                self._rows.clear()
                self._placed.clear()
            self._rows |= found
            known |= found
        return known


def _ratified(row: Ownership, request: CommitRequest) -> Ownership | Verdict:
    return ownership.ratify(row, request.version, epoch=request.epoch, timestamp=request.in_commit_timestamp)


def _nowhere(request: CommitRequest) -> None:
    raise AssertionError(f"{request.file} is not placed")


def _is_placed(request: CommitRequest, place: Place) -> bool:
    try:
        place(request)
    except LakesealError:
        return False
    return True


_UNKNOWN = Ownership()
