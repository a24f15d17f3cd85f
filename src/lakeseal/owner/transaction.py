"""Several tables in one transaction: all of them get their version, or none does.

    txn = Transaction(endpoint)
    a, b = txn.table(store_a), txn.table(store_b)       # OptimisticTransactions on the newest versions
    a.commit(actions_a, operation)                      # says what this part wants; nothing is asked yet
    b.commit(actions_b, operation)
    txn.commit()                                        # all of it, or an error and nothing of it

Each table is checked and rebased on its own, by the same rules as a transaction of one table. A table that was read and
is not written takes part too: at the moment of the commit it is still as it was read, or has changed in a way that does
not matter. So the transaction is as isolated as its weakest part asked to be, over all of its tables.

Rows of the ledger, such as watermarks, can ride along (`records`, or functions of a ledger transaction).

A part commits once, and the tables must be there: a table is created by put-if-absent in its log, which no ledger
transaction can include.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from lakeseal.commit.attempts import Landed, Patience, Retry, attempt_on, catch_up, is_final, landed_on
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.owner import OwnedCommits
from lakeseal.commit.post_commit import PostCommit
from lakeseal.commit.proposal import Operation, Proposal
from lakeseal.commit.rendering import Attempt
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction, now_ms
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
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.replay import LogCommit, replay
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, Guard, LedgerRecord, Ratified, Taken
from lakeseal.protocol.actions import Action
from lakeseal.protocol.paths import commit_path
from lakeseal.storage.base import Store

READ = Operation(name="READ")


class JoinedTransaction(OptimisticTransaction):
    """One table's part. `commit` states what it wants; the result is a preview, with `attempts` 0 and the version that
    it gets if nobody is faster."""

    stated: Proposal | None = None

    def commit(self, actions: Iterable[Action], operation: Operation) -> CommitResult:
        self.stated = self.close(actions, operation)
        assert self._snapshot is not None, "a part of a transaction is of a table that is there"
        attempt = attempt_on(
            self._snapshot, self.stated, log=self._log, patience=Patience(self._retry), clock=self._clock
        )
        ours = LogCommit(version=attempt.version, file=commit_path(attempt.version), data=attempt.data)
        return CommitResult(
            version=attempt.version,
            snapshot=Snapshot.of(self.table, replay(self._snapshot.state, [ours]), self._snapshot.trust),
            txn_id=self.txn_id,
            timestamp_ms=attempt.timestamp_ms,
            attempts=0,
            metrics=operation.metrics,
        )


class _Part:
    """A table on its way: what it wants, and what it builds on now."""

    def __init__(self, txn: JoinedTransaction, owner: ManagedOwner, log: DeltaLog) -> None:
        assert txn.snapshot is not None
        self.txn, self.owner, self.log = txn, owner, log
        self.base: Snapshot = txn.snapshot
        self.attempt: Attempt | None = None

    @property
    def is_written(self) -> bool:
        return self.txn.stated is not None

    @property
    def is_read(self) -> bool:
        return self.txn.reads.depends_on_data or bool(self.txn.reads.app_ids)

    def proposal(self) -> Proposal:
        return self.txn.stated or self.txn.proposal([], READ)

    def request(self, patience: Patience, clock: Callable[[], int]) -> CommitRequest:
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
        try:
            self.base = catch_up(self.proposal(), self.txn.snapshot, self.base, taken, log=self.log, patience=patience)
        except (MetadataChangedException, ProtocolChangedException) as error:
            raise self.txn.owner_changed(error) from error
        self.attempt = None


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
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._endpoint = endpoint
        self._isolation = isolation_level
        self._retry = retry or Retry()
        self._hooks = tuple(hooks)
        self._clock = clock
        self._parts: dict[str, _Part] = {}
        self._is_done = False
        self.txn_id = str(uuid.uuid4())

    def table(self, store: Store) -> JoinedTransaction:
        """The part of a table; the same for the same table."""
        owner = ManagedOwner(self._endpoint, store)
        return self.join(DeltaLog(store, commit_source=OwnedCommits(owner)), owner)

    def join(self, log: DeltaLog, owner: ManagedOwner) -> JoinedTransaction:
        """As `table`, with a log that is open already."""
        if self._is_done:
            raise InvalidArgument("This transaction is over", hint="Begin another")
        if owner.endpoint is not self._endpoint:
            raise InvalidArgument("All tables of a transaction have the same owner", table=log.table)
        if log.table not in self._parts:
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
            self._parts[log.table] = _Part(txn, owner, log)
        return self._parts[log.table].txn

    def commit(self, *, records: Sequence[LedgerRecord] = ()) -> TransactionResult:
        """`records` are written in the ledger transaction that ratifies, or nothing is."""
        if self._is_done:
            raise InvalidArgument("A transaction can be committed only once")
        self._is_done = True
        written = [part for part in self._parts.values() if part.is_written]
        read = [part for part in self._parts.values() if not part.is_written and part.is_read]
        if not written:
            if records:
                raise InvalidArgument("Rows of the ledger ride along with commits, and there is none")
            return TransactionResult(tables={})
        patience = Patience(self._retry)
        for tried in range(1, self._retry.attempts + 1):
            batch = self._batch(written, read, records, patience)
            answer = self._ask(batch, written, patience)
            if all(isinstance(one, Ratified) for one in answer.commits):
                return self._landed(written, tried)
            if not patience.wait(tried):
                break
            self._rebase(written + read, answer, patience)
        raise ConcurrentWriteException(
            "Other writers were faster in every attempt to commit to all tables of the transaction",
            table=written[0].log.table,
            hint="Nothing was committed. Retry, with fewer writers at the same time or larger commits",
        )

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
