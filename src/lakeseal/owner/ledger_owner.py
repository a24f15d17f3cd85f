"""`LedgerOwner`: the commit owner itself, on the ledger. It serves any number of tables and keeps nothing in memory
that matters, so any number of processes can be it at the same time.

Used in process (`connect("sqlite:///…")`) it backfills by itself, right behind each commit and in the background;
behind a service a `Publisher` does that, in batches. Every step is durable before it is answered, and interrupted work
is taken up by whoever comes next: the first commit that reaches the table, `recover` at start, or a publisher.

The order of a commit: what it holds is looked at, one ledger transaction for it and for those that came with it (the
bytes of a small commit are in its row, the file of a large one is in `_commits` before), the answer, and then
backfilling, which can fail without anybody's harm.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, cast

from msgspec.structs import replace

from lakeseal.clock import Clock, now_ms
from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    ConcurrentWriteException,
    CorruptTable,
    InvalidArgument,
    InvalidCommit,
    LakesealError,
    NotBackfilled,
    ObjectNotFound,
    OwnedElsewhere,
    OwnerBusy,
    PolicyRefused,
    ReleaseUnderway,
    VersionNotFound,
)
from lakeseal.ledger import Ledger
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.ratified_commit import Told
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner import ownership, rows
from lakeseal.owner.admission import Admission
from lakeseal.owner.backfill import Each, is_reachable, look, publish_up_to, tidy
from lakeseal.owner.background_backfill import background_backfill
from lakeseal.owner.book import Book
from lakeseal.owner.config import DEFAULT_BATCH_SIZE, DEFAULT_NAME, INLINE_BYTES, MOST_UNBACKFILLED
from lakeseal.owner.endpoint import name_of, vanished
from lakeseal.owner.messages import (
    Answer,
    Batch,
    BatchAnswer,
    CommitRequest,
    Guard,
    Ratified,
    TableCommits,
    Taken,
)
from lakeseal.owner.ownership import Ownership, State, StepRefusal
from lakeseal.owner.policies import Policy
from lakeseal.owner.queue import Queue
from lakeseal.owner.ratification import Asked, Decided, Decision, Denied, InTheLog, Ratification, answered
from lakeseal.protocol.paths import LOG_DIR, commit_path
from lakeseal.storage import Store, open_store

_log = logging.getLogger(__name__)

Run = Callable[..., Awaitable[Any]]
"""Has a function done in a thread, for an event loop."""

GRACE_MS = 3_600_000
"""How long a reader may take between asking the owner and reading a file in `_commits`."""
_TRIES = 8
# A process that lives backfills within a fraction of this.
_LEFT_MS = 3_000
_FAR_BEHIND = 5
_TIDY_EVERY = 100
_MOST_LOGS = 64


def flush(*, timeout: float | None = None) -> bool:
    """Waits for the backfills in the background of this process; False if that took longer than `timeout` seconds."""
    return background_backfill.flush(timeout=timeout)


class LedgerOwner:
    """An `OwnerEndpoint`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        name: str = DEFAULT_NAME,
        batch_size: int = DEFAULT_BATCH_SIZE,
        stores: Callable[[str], Store] = open_store,
        policies: Sequence[Policy] = (),
        principal: str | None = None,
        inline_bytes: int = INLINE_BYTES,
        most_unbackfilled: int = MOST_UNBACKFILLED,
        backfills: bool = True,
        in_background: bool = False,
        trusting: bool = True,
        clock: Clock = now_ms,
    ) -> None:
        """`stores` opens tables that were not attached. `principal` is who asks, where a call does not say.

        With `backfills` the commit that fills a batch is followed by the batch's backfill, on its own thread, after its
        answer is certain; or `in_background` every commit is, where writers help only when that falls far behind.
        Without, a publisher does it. An owner that is not `trusting` reads each commit whole before it ratifies it."""
        if not name or batch_size < 1:
            raise InvalidArgument("An owner needs a name and a batch size of at least 1")
        self.name = name
        self.batch_size = batch_size
        self.inline_bytes = inline_bytes
        self.book = Book(ledger, batch_size=batch_size, clock=clock)
        self.ratification = Ratification(ledger, most_unbackfilled=most_unbackfilled, clock=clock)
        self._queue: Queue[Asked, Decision] = Queue(self.ratification.decide)
        self._open = stores
        self._attached: dict[str, Store] = {}
        self._principal = principal
        self._most_unbackfilled = most_unbackfilled
        self._backfills = backfills
        self._in_background = in_background
        self._identity: str | None = None
        self._admission = Admission(
            owner=name,
            policies=policies,
            trusting=trusting,
            snapshot_at=self.snapshot_at,
            clock=clock,
            identity=self.identity,
        )
        self._logs: dict[str, DeltaLog] = {}
        """Of tables whose commits are compared with what was there before."""
        self.admits_at_once = True
        """Off, each commit is looked at in a thread: to hand one over and back takes more than to look at it."""
        self.when_full: Callable[[], object] = lambda: None
        """Called where this owner leaves it to others to backfill, and a table's batch is full."""
        self._publishing: dict[str, threading.Lock] = {}
        self._has_told = False
        self._untidy: set[str] = set()
        self._clock = clock
        self._taken_up: dict[str, int] = {}
        """Tables whose commits another process left, and up to which version."""

    def __repr__(self) -> str:
        return f"LedgerOwner({self.ledger.url.public!r}, name={self.name!r})"

    @property
    def ledger(self) -> Ledger:
        return self.book.ledger

    def identity(self, *, make: bool = False) -> str | None:
        if self._identity is None and (make or self.ledger.is_made):
            self._identity = self.ledger.identity()
        return self._identity

    def forget_identity(self) -> None:
        """The ledger has got that of one that was lost."""
        self._identity = None

    def attach(self, store: Store) -> str:
        table = name_of(store, self.book.told)
        self._attached[table] = store
        return table

    def store(self, table: str) -> Store:
        found = self._attached.get(table)
        if found is None:
            found = self._attached[table] = self._open(table)
        return found

    def get_commits(self, table: str, start_version: int = 0) -> TableCommits:
        told = self.book.told([table], start_version)
        self._take_up(told)
        return told[0]

    def get_commits_of(self, tables: Sequence[str]) -> tuple[TableCommits, ...]:
        told = self.book.told(tables)
        self._take_up(told)
        return told

    def get_files_of(self, tables: Sequence[str], start_version: int = 0) -> tuple[TableCommits, ...]:
        """As `get_commits_of`, for whoever reads files and takes no bytes in an answer: what only the ledger has is
        published first, and told of only then. What comes meanwhile is not told of yet."""
        told = self.book.told(tables, start_version)
        waiting = [one.table for one in told if one.first_with_data is not None]
        for table in waiting:
            self.publish(table)
        return tuple(one.up_to_data() for one in (self.book.told(tables, start_version) if waiting else told))

    def ratify(self, batch: Batch, *, principal: str | None = None) -> BatchAnswer:
        admitted = self.admit(batch, principal=principal)
        return self._decide(admitted) if isinstance(admitted, Batch) else admitted

    def admit(self, batch: Batch, *, principal: str | None = None) -> Batch | BatchAnswer:
        """The batch as it may be decided on; or its answer, where there is one already."""
        self.tell_of_idle_policies()
        named = [request.table for request in batch.commits] + [guard.table for guard in batch.guards]
        if not batch.commits or len(set(named)) != len(named):
            raise InvalidArgument("A batch has at least one commit, and each table once")
        checked: list[CommitRequest] = []
        for request in batch.commits:
            found = self._check(request, principal or self._principal)
            if isinstance(found, Ratified) and len(batch.commits) == 1:
                return BatchAnswer(commits=(found,))
            checked.append(found if isinstance(found, CommitRequest) else request)
        return replace(batch, commits=tuple(checked))

    def admit_at_once(self, batch: Batch, *, principal: str | None) -> Batch | None:
        """As `admit`, for an event loop: one small commit of which nothing but its own bytes has to be looked at. None
        where it takes more than that, or something is wrong: `admit` is to be asked then."""
        if not self.admits_at_once or not self._has_told or len(batch.commits) != 1 or batch.guards or batch.records:
            return None
        (request,) = batch.commits
        if request.data is None or len(request.data) > self.inline_bytes:
            # What takes longer to read would keep the loop from others.
            return None
        checked = self._admission.check_at_once(request, principal=principal or self._principal)
        return None if checked is None else Batch(commits=(checked,))

    def turn_kept(self, batch: Batch) -> AbstractContextManager[None]:
        """For an event loop: while a batch is looked at, which may take longer than a turn is kept."""
        if len(batch.commits) != 1:
            return nullcontext()
        (request,) = batch.commits
        return self._queue.turns.kept(request.table, request.txn_id)

    async def decide_in_turn(self, batch: Batch, run: Run) -> BatchAnswer:
        """Of a batch that was admitted, for an event loop: who waits for a turn needs no thread."""
        if len(batch.commits) != 1:
            return cast(BatchAnswer, await run(self._decide, batch))
        (request,) = batch.commits
        decision, is_next = await self._queue.ask_in_turn(
            Asked(batch=batch), request.table, request.txn_id, lost=_has_lost
        )
        if not isinstance(decision, Decided):
            return cast(BatchAnswer, await run(self._decide, batch))
        if self._backfills:
            await run(self._backfill_after, batch, decision)
        else:
            self._backfill_after(batch, decision)
        answer = decision.answer
        return replace(answer, commits=(replace(answer.commits[0], is_next=True),)) if is_next else answer

    def _decide(self, batch: Batch) -> BatchAnswer:
        known: dict[str, Answer] = {}
        for _ in range(_TRIES + len(batch.commits)):
            decision = self._queue.ask(Asked(batch=batch, known=dict(known)))
            match decision:
                case Decided():
                    self._backfill_after(batch, decision)
                    return decision.answer
                case InTheLog(request=request):
                    known[request.table] = self._in_the_log(request)
                case Denied(verdict=StepRefusal.UNSETTLED):
                    if self.settle(decision.request.table).state is State.PENDING:
                        raise self._error(decision)
                case Denied(verdict=StepRefusal.NOT_BACKFILLED) if self._backfills:
                    self.publish(decision.request.table)
                case Denied():
                    raise self._error(decision)
        raise OwnerBusy("The table changed hands again and again", table=batch.commits[0].table)

    def backfill(self, table: str, version: int | None = None) -> TableCommits:
        self.publish(table, version)
        return self.get_commits(table)

    def publish(self, table: str, version: int | None = None) -> None:
        """As `backfill`, for those who need not be told how far the table is then."""
        with self._publishing.setdefault(table, threading.Lock()):
            failed = publish_up_to(self.book, self.store, {table: version})
        if failed:
            raise failed[table]

    def publish_all(self, tables: Iterable[str], *, each: Each = map) -> dict[str, LakesealError]:
        """Everything that these tables have; see `publish_up_to`. What somebody else in this process is publishing is
        left to them."""
        with ExitStack() as held:
            mine = []
            for table in tables:
                lock = self._publishing.setdefault(table, threading.Lock())
                if lock.acquire(blocking=False):
                    held.callback(lock.release)
                    mine.append(table)
            return publish_up_to(self.book, self.store, dict.fromkeys(mine), each=each)

    def begin_takeover(
        self,
        table: str,
        takeover_id: str,
        version: int,
        commit: CommitRequest | None = None,
        *,
        epoch: int | None = None,
        principal: str | None = None,
    ) -> TableCommits:
        self.tell_of_idle_policies(table)
        self._admission.check_principal(table, principal or self._principal, "create" if version == 0 else "take over")
        sha256 = self._creation(table, takeover_id, commit, principal) if version == 0 else None
        for _ in range(_TRIES):
            verdict = self.book.step(
                table, lambda row: ownership.promise(row, takeover_id, version, sha256=sha256, epoch=epoch)
            )
            match verdict:
                case StepRefusal.OTHER_EPOCH:
                    raise OwnedElsewhere(
                        "The table was released or dropped since this take-over began",
                        table=table,
                        version=version,
                        hint="Open the table again: its log tells who owns it",
                    )
                case StepRefusal.OWNED if version == 0 and not self.store(table).list_keys(LOG_DIR):
                    raise vanished(table, self.name, self.book.row(table).latest)
                case None | StepRefusal.OWNED:
                    return self.get_commits(table)
                case StepRefusal.RELEASING:
                    # Whoever released the table may have died when only the owner was still to be told.
                    if self.finish_release(table).state is State.RELEASING:
                        raise _releasing(table)
                case _:
                    if self.settle(table).state is State.PENDING:
                        break
        if verdict is StepRefusal.MANY_PROMISES:
            raise OwnerBusy(
                f"{ownership.MOST_PROMISES} take-overs of the table are promised, and none of them has come",
                table=table,
                version=version,
                hint="Withdraw those whose clients are gone (withdraw_takeover)",
            )
        raise ConcurrentWriteException(
            f"A take-over of another version of the table than {version} is under way", table=table, version=version
        )

    def _creation(
        self, table: str, takeover_id: str, commit: CommitRequest | None, principal: str | None
    ) -> str | None:
        """What the commit that creates a table must consist of; its content is looked at like that of any other."""
        if commit is None:
            if self._admission.trusting:
                return None
            raise InvalidArgument(
                "Whoever creates a table has to show its first commit to the table's owner", table=table, version=0
            )
        if (commit.table, commit.version, commit.txn_id) != (table, 0, takeover_id):
            raise InvalidArgument("The commit that was shown is not the one that creates the table", table=table)
        return self._admission.check(commit, self.store(table), principal=principal or self._principal).sha256

    def confirm_takeover(self, table: str, takeover_id: str) -> TableCommits:
        """A message that comes late names an id that nobody waits for any more, and changes nothing."""
        return self.settle(table) if takeover_id in self.book.row(table).promises else self.get_commits(table)

    def settle(self, table: str) -> TableCommits:
        """Ends a pending take-over, if the log shows how it went."""
        row = self.book.row(table)
        if row.state is State.PENDING and row.change_version is not None:
            logged = look(self.store(table), row.change_version)
            if logged is not None:
                self.book.settle(table, row.change_version, logged)
        return self.get_commits(table)

    def withdraw_takeover(self, table: str, takeover_id: str) -> TableCommits:
        self.book.step(table, lambda row: ownership.withdraw(row, takeover_id))
        return self.get_commits(table)

    def begin_release(
        self, table: str, release_id: str, *, epoch: int | None = None, principal: str | None = None
    ) -> TableCommits:
        self._admission.check_principal(table, principal or self._principal, "release")
        self.settle(table)
        verdict = self.book.step(table, lambda row: ownership.begin_release(row, release_id, epoch=epoch))
        if verdict is not None:
            raise OwnedElsewhere(f"The owner {self.name!r} cannot release this table: {verdict}", table=table)
        return self.get_commits(table)

    def finish_release(self, table: str) -> TableCommits:
        before = self.book.row(table)
        if before.state is not State.RELEASING or before.change_version is None:
            return self.get_commits(table)
        if before.backfilled < before.latest:
            self.publish(table)
        logged = look(self.store(table), before.change_version)
        if logged is None:
            return self.get_commits(table)
        found = logged.found

        def step(row: Ownership) -> Ownership | StepRefusal:
            # What was looked at belongs to this release, and to no later one.
            same = (row.epoch, row.promises) == (before.epoch, before.promises)
            return ownership.finish_release(row, found) if same else row

        if self.book.step(table, step) is StepRefusal.TAKEN:
            raise CorruptTable(
                f"Version {before.change_version} was to be the release and is something else",
                table=table,
                version=before.change_version,
                file=commit_path(before.change_version),
                hint="Somebody wrote to the log past the table's owner: find out who, and remove that file",
            )
        return self.get_commits(table)

    def drop(self, table: str) -> TableCommits:
        store = self.store(table)
        if store.list_keys(LOG_DIR):
            raise AlreadyExists("The table is there, so its owner cannot forget it", table=table)
        row = self.book.row(table)
        if row.is_owned and not is_reachable(store):
            raise vanished(table, self.name, row.latest)
        if self.book.step(table, ownership.drop) is StepRefusal.NOT_BACKFILLED:
            raise NotBackfilled(
                f"The owner {self.name!r} ratified versions {row.backfilled + 1} to {row.latest} of the table, which "
                "never were in its log: it does not forget them",
                table=table,
                hint="Bring the table's log back from a backup, and let the owner backfill it",
            )
        return self.get_commits(table)

    def forget(self, table: str, *, grace_ms: int = GRACE_MS) -> int:
        """Rows and files in `_commits` go once the commits have been in the log for longer than the grace; how many
        files that were."""
        below = self.book.forget(table, grace_ms=grace_ms)
        return tidy(self.store(table), below) if below > 0 else 0

    def tell_of_idle_policies(self, coming: str = "") -> None:
        """Once; `coming` is a table that is about to be there."""
        if not self._has_told:
            self._has_told = True
            self._admission.tell_of_idle_policies(coming, lambda: self.ledger.read(rows.table_names))

    def snapshot_at(self, table: str, version: int) -> Snapshot:
        """The table at a ratified version, nearly always the newest: an open log then reads only what is new."""
        log = self._logs.get(table)
        if log is None:
            if len(self._logs) >= _MOST_LOGS:
                self._logs.clear()
            log = self._logs[table] = DeltaLog(self.store(table), commit_source=_Source(self, table))
        newest = log.update()
        return newest if newest is not None and newest.version == version else log.snapshot(version)

    def _check(self, request: CommitRequest, principal: str | None) -> CommitRequest | Ratified:
        """The request as it may be ratified; or its answer, where there is one already."""
        try:
            return self._admission.check(request, self.store(request.table), principal=principal)
        except (PolicyRefused, InvalidCommit):
            # What was ratified before a policy came is ratified.
            answer = self.ledger.read(lambda tx: answered(tx, request))
            if not isinstance(answer, Ratified):
                raise
            return answer

    def _backfill_after(self, batch: Batch, decision: Decided) -> None:
        if not self._backfills:
            if any(row.ownership.latest - row.ownership.backfilled >= row.batch_size for row in decision.tables):
                self.when_full()
            return
        for request, row in zip(batch.commits, decision.tables, strict=False):
            waiting, size = row.ownership.latest - row.ownership.backfilled, row.batch_size
            if self._in_background and waiting < _FAR_BEHIND * size:
                if request.version % _TIDY_EVERY == 0:
                    self._untidy.add(request.table)
                background_backfill.note(self, request.table, at_once=waiting >= size)
            # One writer per batch does it; if that one died, the backlog grows and the next does.
            elif self._in_background or (waiting >= size and (not request.version % size or waiting >= 2 * size)):
                self._backfill_quietly(request.table, tidies=request.version % _TIDY_EVERY < size)

    def _take_up(self, told: Iterable[TableCommits]) -> None:
        """Commits that wait for long were left by a process that was killed. Readers by path would wait for the next
        commit, so whoever meets them backfills them, in the background, and once."""
        if not self._in_background:
            return
        for one in told:
            is_left = one.commits and self._clock() - one.commits[-1].in_commit_timestamp > _LEFT_MS
            if is_left and self._taken_up.get(one.table) != one.latest:
                self._taken_up[one.table] = one.latest
                background_backfill.note(self, one.table)

    def backfill_tables(self, tables: Iterable[str]) -> dict[str, LakesealError]:
        """Everything that these tables have is then in their logs, except for those that failed. For the background."""
        ours = sorted(tables)
        with ExitStack() as held:
            for table in ours:
                held.enter_context(self._publishing.setdefault(table, threading.Lock()))
            failed = publish_up_to(self.book, self.store, dict.fromkeys(ours))
        for table in self._untidy.intersection(ours):
            self._untidy.discard(table)
            try:
                self.forget(table)
            except LakesealError as error:
                failed.setdefault(table, error)
        return failed

    def _backfill_quietly(self, table: str, *, tidies: bool) -> None:
        try:
            self.publish(table)
            if tidies:
                self.forget(table)
        except LakesealError as error:
            _log.warning("backfill of %s failed; its commits stand: %s", table, error)

    def _in_the_log(self, request: CommitRequest) -> Answer:
        """Rows are forgotten only after the commit is in the log, and the log keeps whose it is."""
        try:
            there = self.store(request.table).get(commit_path(request.version))
        except ObjectNotFound:
            error = CommitOutcomeUnknown(
                f"Version {request.version} is so old that neither the ledger nor the log tells who committed it",
                table=request.table,
                version=request.version,
                hint="Look for the rows that this transaction wrote before writing them again",
            )
            error.txn_id = request.txn_id
            raise error from None
        if txn_id_of(there) == request.txn_id:
            return Ratified(table=request.table, version=request.version, key=commit_path(request.version))
        return Taken(table=request.table, version=request.version)

    def _error(self, denied: Denied) -> LakesealError:
        table, verdict = denied.request.table, denied.verdict
        version = denied.request.version + (1 if isinstance(denied.request, Guard) else 0)
        match verdict:
            case StepRefusal.BACKWARDS:
                return InvalidArgument(
                    "The commit's inCommitTimestamp is not after that of the version before it",
                    table=table,
                    version=version,
                )
            case StepRefusal.RELEASING:
                return _releasing(table)
            case StepRefusal.NOT_BACKFILLED:
                return OwnerBusy(
                    f"{self._most_unbackfilled} commits of this table wait for their backfill", table=table
                )
            case StepRefusal.GAP:
                is_gap = True
            case StepRefusal.NOT_OWNED | StepRefusal.UNSETTLED:
                # A version that does not follow from anything, or one that others decide on.
                is_gap = version > 0 and look(self.store(table), version - 1) is None
            case _:
                is_gap = False
        if is_gap:
            return VersionNotFound(
                f"Version {version} cannot be ratified, because version {version - 1} is not there",
                table=table,
                version=version - 1,
                hint="Open the table again",
            )
        return OwnedElsewhere(
            f"The owner {self.name!r} does not decide on commits to this table: {verdict}",
            table=table,
            version=version,
            hint="Open the table again: its log tells who does",
        )


def _has_lost(decision: Decision) -> bool:
    return isinstance(decision, Decided) and isinstance(decision.answer.commits[0], Taken)


class _Source:
    def __init__(self, owner: LedgerOwner, table: str) -> None:
        self._owner = owner
        self._table = table

    def unbackfilled(self, start_version: int) -> Told:
        return self._owner.get_commits(self._table, start_version).told()


def _releasing(table: str) -> ReleaseUnderway:
    return ReleaseUnderway("The table is being released by its owner, which ratifies nothing more", table=table)
