"""Several tables in one transaction: all of them get their version, or none does.

    txn = Transaction(endpoint)
    a, b = txn.table(store_a), txn.table(store_b)       # OptimisticTransactions on the versions of one moment
    a.commit(actions_a, operation)                      # says what this part wants; nothing is asked yet
    b.commit(actions_b, operation)
    txn.commit()                                        # all of it, or an error and nothing of it

All tables are seen as they were at one moment. A table may join late: then the moment moves on to now, if nothing of
what was read until then has changed, and otherwise the transaction fails. So at every level a commit over several
tables is seen whole or not at all. Reads see what was there at the moment, and not what this transaction writes.

At the commit each table is checked and rebased by the same rules as in a transaction of one table. A table that was
read and is not written takes part too: at the moment of the commit it is still as it was read, or has changed in a way
that does not matter at the level. That holds for a transaction which has only read, too: its tables are then looked at
in one read of the ledger. All tables have one level, the caller's or the strictest that one of them asks for, and what
any of them read counts for all: who read one table and appended to another has made no blind append.

Rows of the ledger, such as watermarks, can ride along (`records`, or functions of a ledger transaction).

A part commits once, and the tables must be there: a table is created by put-if-absent in its log, which no ledger
transaction can include.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal.clock import Clock, now_ms
from lakeseal.commit.attempts import Landed, Patience, Retry, attempt_on, check_between, is_final, landed_on, visible
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.owner import OwnedCommits
from lakeseal.commit.post_commit import PostCommit
from lakeseal.commit.proposal import Operation, Proposal, combined
from lakeseal.commit.rendering import Attempt
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import (
    CommitOutcomeUnknown,
    ConcurrentModification,
    ConcurrentWriteException,
    InvalidArgument,
    LakesealError,
    MetadataChangedException,
    ProtocolChangedException,
    ReleaseUnderway,
    StorageUnavailable,
    TableNotFound,
    UnknownOutcome,
    VersionNotFound,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.replay import LogCommit, replay
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import (
    Batch,
    BatchAnswer,
    CommitRequest,
    Guard,
    LedgerRecord,
    Ratified,
    TableCommits,
    Taken,
)
from lakeseal.owner.ownership import State
from lakeseal.owner.snapshots import at_one_moment, not_owned
from lakeseal.protocol.actions import Action
from lakeseal.protocol.data_paths import canonical_paths
from lakeseal.protocol.paths import commit_path
from lakeseal.protocol.properties import TableProperties
from lakeseal.storage.base import Store

READ = Operation(name="READ")


class JoinedTransaction(OptimisticTransaction):
    """One table's part. `commit` states what it wants; the result is a preview, with `attempts` 0 and the version that
    it gets if nobody is faster. It may be called again: `snapshot` has what was stated until then, `base` has not."""

    stated: Proposal | None = None
    base: Snapshot | None = None
    before_read: Callable[[], None] = staticmethod(lambda: None)
    """Brings the table to the transaction's moment, where it was left behind."""

    def read_whole_table(self) -> None:
        self.before_read()
        super().read_whole_table()

    def read_files(self, files: pa.Table) -> None:
        self.before_read()
        super().read_files(files)

    def filter_files(self, where: str | None = None) -> pa.Table:
        self.before_read()
        return super().filter_files(where)

    def txn_version(self, app_id: str) -> int | None:
        self.before_read()
        return super().txn_version(app_id)

    def move_to(self, snapshot: Snapshot) -> None:
        """What was read and stated until now is as true of this snapshot."""
        self.base = snapshot
        self._snapshot = snapshot if self.stated is None else self._preview(snapshot, self.stated)[1]

    @property
    def read_version(self) -> int:
        return -1 if self.base is None else self.base.version

    @contextmanager
    def statement(self) -> Iterator[None]:
        """One of several: if it fails, what it had begun to state is forgotten."""
        before = (self._metadata, self._protocol, dict(self._txns), dict(self._domains))
        try:
            yield
        except BaseException:
            self._metadata, self._protocol, self._txns, self._domains = before
            self._has_written = False
            raise

    def now_proposed(self) -> Proposal:
        """What was stated, or that nothing was, with all that was read until now."""
        if self.stated is None:
            return self.unchecked([], READ)
        return msgspec.structs.replace(self.stated, reads=self.reads, read_version=self.read_version)

    def commit(self, actions: Iterable[Action], operation: Operation) -> CommitResult:
        stated = self.proposal(actions, operation)
        base = self.base
        assert base is not None, "a part of a transaction is of a table that is there"
        if self.stated is not None:
            has_feed = TableProperties.of(self.metadata).change_data_feed
            known = frozenset(canonical_paths(base.files["path"]).to_pylist())
            stated = combined(self.stated, stated, known, has_feed=has_feed)
        attempt, self._snapshot = self._preview(base, stated)
        self.stated = stated
        # The next statement may change the metadata again: its files come behind those of this one.
        self._has_written = False
        return CommitResult(
            version=attempt.version,
            snapshot=self._snapshot,
            txn_id=self.txn_id,
            timestamp_ms=attempt.timestamp_ms,
            attempts=0,
            metrics=operation.metrics,
        )

    def _preview(self, base: Snapshot, stated: Proposal) -> tuple[Attempt, Snapshot]:
        """The table as it would be, if what was stated was committed now."""
        patience = Patience(self._retry)
        attempt = attempt_on(base, stated, log=self._log, patience=patience, clock=self._clock, is_preview=True)
        ours = LogCommit(version=attempt.version, file=commit_path(attempt.version), data=attempt.data)
        return attempt, Snapshot.of(self.table, replay(base.state, [ours]), base.trust)


class _Part:
    """A table on its way: what it wants, and what it builds on now."""

    def __init__(self, txn: JoinedTransaction, owner: ManagedOwner, log: DeltaLog) -> None:
        assert txn.snapshot is not None
        self.txn, self.owner, self.log = txn, owner, log
        self.base: Snapshot = txn.snapshot
        self.attempt: Attempt | None = None
        self._proposal: Proposal | None = None

    @property
    def is_written(self) -> bool:
        return self.txn.stated is not None

    @property
    def is_read(self) -> bool:
        return self.txn.reads.depends_on_data or bool(self.txn.reads.app_ids)

    def propose(self, level: IsolationLevel, *, is_blind: bool) -> None:
        """For good: nothing is read after this."""
        proposal = self.txn.now_proposed()
        self._proposal = msgspec.structs.replace(proposal, isolation=level, follows_from_others=not is_blind)

    def proposal(self) -> Proposal:
        assert self._proposal is not None, "the commit has begun"
        return self._proposal

    def moved(self, version: int, patience: Patience) -> Snapshot:
        """The table at `version`, of which all is true that was read and stated; or an error says what is not."""
        if version <= self.base.version:
            return self.base
        # Everything counts: at a lower level one half of another commit could be ignored here and seen elsewhere.
        strictly = msgspec.structs.replace(self.txn.now_proposed(), isolation=IsolationLevel.SERIALIZABLE)
        snapshot = self.at(version, patience)
        self.check(strictly, snapshot, patience)
        return snapshot

    def move_to(self, snapshot: Snapshot) -> None:
        self.base = snapshot
        self.txn.move_to(snapshot)

    def check(self, proposal: Proposal, newest: Snapshot, patience: Patience) -> None:
        try:
            check_between(proposal, self.txn.base, self.base, newest, log=self.log, patience=patience)
        except (MetadataChangedException, ProtocolChangedException) as error:
            raise self.txn.owner_changed(error) from error

    def at(self, version: int, patience: Patience) -> Snapshot:
        newest = patience.through(self.log.update)
        if newest is not None and newest.version == version:
            return newest
        return patience.through(lambda: self.log.snapshot(version))

    def request(self, patience: Patience, clock: Clock) -> CommitRequest:
        proposal = self.proposal()
        attempt = self.attempt or attempt_on(self.base, proposal, log=self.log, patience=patience, clock=clock)
        self.attempt = attempt
        return patience.through(
            lambda: self.owner.request(
                attempt.version,
                attempt.data,
                txn_id=proposal.txn_id,
                in_commit_timestamp=attempt.in_commit_timestamp,
            )
        )

    def rebase(self, taken: int, patience: Patience) -> None:
        """Onto the newest version, if nothing of what came in between is in the way."""
        newest = visible(taken, self.log, patience)
        self.check(self.proposal(), newest, patience)
        self.base, self.attempt = newest, None


class TransactionResult(Struct, frozen=True, kw_only=True):
    tables: Mapping[str, CommitResult]
    """By the tables' URIs."""


class Transaction:
    """Belongs to one thread and commits once."""

    def __init__(
        self,
        endpoint: OwnerEndpoint,
        *,
        isolation_level: IsolationLevel | None = None,
        retry: Retry | None = None,
        hooks: Sequence[PostCommit] = (),
        clock: Clock = now_ms,
    ) -> None:
        self._endpoint = endpoint
        self._isolation = isolation_level
        self._retry = retry or Retry()
        self._hooks = tuple(hooks)
        self._clock = clock
        self._parts: dict[str, _Part] = {}
        self._together: list[_Part] = []
        """Those that are as they were at one moment: all but tables that were written, never read and left behind."""
        self._is_done = False
        self.txn_id = str(uuid.uuid4())

    def table(self, store: Store, known: DeltaLog | None = None) -> JoinedTransaction:
        """The part of a table; the same for the same table. Raises `ConcurrentModification` if it can't be seen
        together with what was read of others before. What is `known` of its log, by this owner, is not read again."""
        owner = ManagedOwner(self._endpoint, store)
        source = OwnedCommits(owner)
        return self.join(DeltaLog(store, commit_source=source) if known is None else known.asking(source), owner)

    def join(self, log: DeltaLog, owner: ManagedOwner) -> JoinedTransaction:
        """As `table`, with a log that is open already."""
        if self._is_done:
            raise InvalidArgument("This transaction is over", hint="Begin another")
        if owner.endpoint is not self._endpoint:
            raise InvalidArgument("All tables of a transaction have the same owner", table=log.table)
        part = self._parts.get(owner.table)
        if part is None:
            snapshot = log.update()
            if snapshot is None:
                raise TableNotFound(
                    "There is no table here", table=log.table, hint="Create the table before the transaction begins"
                )
            txn = JoinedTransaction(
                log,
                owner,
                snapshot,
                isolation_level=self._isolation,
                retry=self._retry,
                hooks=self._hooks,
                clock=self._clock,
            )
            txn.base = snapshot
            part = self._parts[owner.table] = _Part(txn, owner, log)
            txn.before_read = partial(self._bring_together, part)
        self._bring_together(part)
        return part.txn

    def forget(self, store: Store) -> None:
        """A table that was made for this transaction, and is not to be: nothing of it counts."""
        part = self._parts.pop(ManagedOwner(self._endpoint, store).table, None)
        self._together = [one for one in self._together if one is not part]

    def _bring_together(self, part: _Part) -> None:
        """`part` and all that was or may be read, as they are at one moment."""
        if self._is_done or part in self._together:
            return
        # What was only written is checked at the commit; to ask for it each time would make many tables expensive.
        together = [one for one in self._together if one.is_read or not one.is_written] + [part]
        if len(together) > 1:
            patience = Patience(self._retry)
            try:
                moves = [(one, one.moved(told.latest, patience)) for one, told in self._told(together, patience)]
            except ConcurrentModification as error:
                error.hint = (
                    "Begin again; tables that the transaction names when it begins are all seen as of then, however "
                    "long it takes"
                )
                raise
            for one, snapshot in moves:
                one.move_to(snapshot)
        self._together = together

    def _told(self, parts: list[_Part], patience: Patience) -> list[tuple[_Part, TableCommits]]:
        told = patience.through(lambda: at_one_moment(self._endpoint, [part.owner.table for part in parts]))
        for part, one in zip(parts, told, strict=True):
            if one.state not in (State.ACTIVE, State.RELEASING):
                raise not_owned(self._endpoint, part.log.table)
        return list(zip(parts, told, strict=True))

    def commit(self, *, records: Sequence[LedgerRecord] = (), as_seen: bool = False) -> TransactionResult:
        """`records` are written in the ledger transaction that ratifies, or nothing is. `as_seen`: each table gets the
        version behind the one that it was seen at; where another writer was faster, nothing is committed, although it
        might not be in the way."""
        if self._is_done:
            raise InvalidArgument("A transaction can be committed only once")
        self._is_done = True
        written = [part for part in self._parts.values() if part.is_written]
        read = [part for part in self._parts.values() if not part.is_written and part.is_read]
        if not written and records:
            raise InvalidArgument("Rows of the ledger ride along with commits, and there is none")
        self._propose(written + read)
        patience = Patience(self._retry)
        if not written:
            self._validate(read, patience)
            return TransactionResult(tables={})
        for tried in range(1, self._retry.attempts + 1):
            batch = self._batch(written, read, records, patience)
            answer = self._ask(batch, written, patience)
            if all(isinstance(one, Ratified) for one in answer.commits):
                return self._landed(written, tried)
            if as_seen or not patience.wait(tried):
                break
            self._rebase(written + read, answer, patience)
        raise ConcurrentWriteException(
            "Other writers were faster in every attempt to commit to all tables of the transaction",
            table=written[0].log.table,
            hint="Nothing was committed. Retry, with fewer writers at the same time or larger commits",
        )

    def _propose(self, parts: list[_Part]) -> None:
        proposals = [part.txn.now_proposed() for part in parts]
        levels = (proposal.isolation for proposal in proposals)
        level = self._isolation or max(levels, key=lambda one: one.strictness, default=IsolationLevel.SERIALIZABLE)
        is_blind = all(proposal.is_blind_append for proposal in proposals)
        for part in parts:
            part.propose(level, is_blind=is_blind)

    def _validate(self, read: list[_Part], patience: Patience) -> None:
        """That at one moment, now, everything that was read is as it was, as far as the level asks for it."""
        if not read:
            return
        for part, told in self._told(read, patience):
            if told.latest > part.base.version:
                part.check(part.proposal(), part.at(told.latest, patience), patience)

    def _batch(
        self, written: list[_Part], read: list[_Part], records: Sequence[LedgerRecord], patience: Patience
    ) -> Batch:
        requests = tuple(part.request(patience, self._clock) for part in written)
        guards = tuple(
            Guard(table=part.owner.table, version=part.base.version, epoch=part.owner.epoch()) for part in read
        )
        return Batch(commits=requests, guards=guards, records=tuple(records))

    def _ask(self, batch: Batch, written: list[_Part], patience: Patience) -> BatchAnswer:
        in_doubt: str | None = None
        asked = 0
        while True:
            asked += 1
            try:
                return self._endpoint.ratify(batch)
            except UnknownOutcome as error:
                in_doubt = str(error)
                if not patience.wait(asked, in_doubt=True):
                    raise _unknown(written, in_doubt) from error
            except StorageUnavailable as error:
                if not patience.wait(asked, in_doubt=True):
                    raise _unknown(written, in_doubt) if in_doubt else error from error
            except VersionNotFound as error:
                raise ConcurrentWriteException(
                    "A table of the transaction was dropped with its files meanwhile",
                    table=error.table,
                    hint="Nothing was committed. Begin again without it",
                ) from error
            except ReleaseUnderway as error:
                part = next((part for part in written if part.owner.table == error.table), None)
                raise (part.owner.released() if part is not None else error) from None
            except LakesealError as error:
                if in_doubt is None or is_final(error) or isinstance(error, ConcurrentModification):
                    raise
                raise _unknown(written, in_doubt) from error

    def _rebase(self, parts: list[_Part], answer: BatchAnswer, patience: Patience) -> None:
        taken = {one.table: one.version for one in (*answer.commits, *answer.guards) if isinstance(one, Taken)}
        for part in parts:
            if part.owner.table in taken:
                if part.attempt is not None:
                    part.owner.answered(part.attempt.version, part.txn.txn_id)
                part.rebase(taken[part.owner.table], patience)

    def _landed(self, written: list[_Part], tried: int) -> TransactionResult:
        results = {}
        for part in written:
            assert part.attempt is not None
            part.owner.answered(part.attempt.version, part.txn.txn_id)
            landed = Landed(attempt=part.attempt, snapshot=landed_on(part.base, part.attempt, part.log), attempts=tried)
            results[part.log.table] = part.txn.landed(part.proposal(), landed)
        return TransactionResult(tables=results)


def _unknown(written: list[_Part], reason: str | None) -> CommitOutcomeUnknown:
    first = written[0]
    error = CommitOutcomeUnknown(
        f"It is not known whether the transaction over {len(written)} tables was committed: {reason}",
        table=first.log.table,
        version=None if first.attempt is None else first.attempt.version,
        hint=(
            f"Look for the txnId {first.txn.txn_id} in this table's history: if it is there, all tables have their "
            "part, and if another has its version, none has. No file was deleted"
        ),
    )
    error.txn_id = first.txn.txn_id
    return error
