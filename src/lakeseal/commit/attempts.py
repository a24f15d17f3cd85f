"""The one loop in which everything is committed.

    render at the version behind what we know → ask the owner
      Committed   done
      Conflict    read who won, check each of them, build on the newest, try again
      Unresolved  ask the owner the same again until it is known

It never guesses. A transaction ends in exactly one of these ways:

- it returns: the commit is there, once;
- it raises `CommitOutcomeUnknown`: within the deadline nobody could say; the commit may be there or still arrive;
- it raises anything else: the commit is not there and never will be.

Nothing is deleted in any of these cases. Files that were written and not committed are left to vacuum, which is the
only one that can tell them from those of a commit that is still on its way.

The parts (`attempt_on`, `visible`, `check_between`, `landed_on`) serve an owner that ratifies several tables at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct

from lakeseal.backoff import Backoff, Deadline
from lakeseal.clock import Clock
from lakeseal.commit.conflicts import ROW_TRACKING_DOMAIN, check
from lakeseal.commit.owner import CommitOwner, Committed, Conflict, Unresolved
from lakeseal.commit.proposal import Proposal
from lakeseal.commit.rendering import Attempt, Base, has_in_commit_timestamps, render
from lakeseal.commit.validation import validate
from lakeseal.commit.winner import WinningCommit
from lakeseal.errors import (
    CommitOutcomeUnknown,
    ConcurrentWriteException,
    LakesealError,
    MetadataChangedException,
    NotAllowed,
    NotAuthenticated,
    ObjectNotFound,
    ProtocolChangedException,
    Refused,
    StorageError,
    StorageUnavailable,
    VersionNotFound,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.replay import LogCommit, replay
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.paths import commit_path

T = TypeVar("T")

_TELL_AFTER_S = 1.0
_log = logging.getLogger(__name__)


class Retry(Struct, frozen=True, kw_only=True):
    """How long to keep trying. Delays grow from the first, or from the time of an attempt if that is longer, to the
    longest, and are cut at random."""

    attempts: int = 1000
    """With n writers on one table each attempt wins with about 1/n, so this must be far above the number of writers."""
    deadline_s: float = 300.0
    first_delay_s: float = 0.001
    longest_delay_s: float = 1.0
    first_doubt_s: float = 0.02
    """The first delay after a lost reply, when the store needs time rather than luck."""
    longest_doubt_s: float = 2.0


class Landed(Struct, frozen=True, kw_only=True):
    attempt: Attempt
    snapshot: Snapshot
    attempts: int


def commit(
    proposal: Proposal,
    snapshot: Snapshot | None,
    *,
    log: DeltaLog,
    owner: CommitOwner,
    retry: Retry,
    clock: Clock,
) -> Landed:
    """`snapshot` is what the proposal read; None if there was no table. `clock` gives milliseconds."""
    table = log.table
    patience = Patience(retry)
    base = snapshot
    for tried in range(1, retry.attempts + 1):
        attempt = attempt_on(base, proposal, log=log, patience=patience, clock=clock)
        outcome = _ask(owner, attempt, proposal.txn_id, patience, table)
        if isinstance(outcome, Committed):
            return Landed(attempt=attempt, snapshot=landed_on(base, attempt, log), attempts=tried)
        if not (patience.is_left() if outcome.is_next else patience.wait(tried)):
            raise _gave_up(table, attempt.version, tried, f"within {retry.deadline_s:g} s")
        base = catch_up(proposal, snapshot, base, attempt.version, log=log, patience=patience)
    raise _gave_up(table, attempt.version, retry.attempts, "which is all that was allowed")


def attempt_on(
    base: Snapshot | None,
    proposal: Proposal,
    *,
    log: DeltaLog,
    patience: Patience,
    clock: Clock,
    is_preview: bool = False,
) -> Attempt:
    """The proposal rendered for the version behind `base`; a preview has no row ids, which are given at the commit."""
    before = _base_of(base, proposal, log, patience)
    return render(proposal, before, now_ms=clock(), numbers_rows=not is_preview)


def _base_of(snapshot: Snapshot | None, proposal: Proposal, log: DeltaLog, patience: Patience) -> Base:
    if snapshot is None:
        return Base()
    protocol: Protocol = proposal.protocol or snapshot.protocol
    metadata: Metadata = proposal.metadata or snapshot.metadata
    committed_ms = None
    if has_in_commit_timestamps(protocol, metadata):
        committed_ms = snapshot.in_commit_timestamp
        if committed_ms is None:
            committed_ms = patience.through(lambda: _file_time(snapshot.version, log))
    return Base(
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        timestamp_ms=committed_ms,
        row_tracking=snapshot.domains.get(ROW_TRACKING_DOMAIN),
    )


def _file_time(version: int, log: DeltaLog) -> int | None:
    try:
        return log.store.head(commit_path(version)).modified_ms
    except ObjectNotFound:
        return None


def landed_on(base: Snapshot | None, attempt: Attempt, log: DeltaLog) -> Snapshot:
    """The table right after an attempt that was ratified."""
    try:
        return log.with_commit(base, attempt.version, attempt.data)
    except StorageError:
        # The commit stands, so a store that fails now must not make it look as if it did not.
        ours = LogCommit(version=attempt.version, file=commit_path(attempt.version), data=attempt.data)
        return Snapshot.of(log.table, replay(None if base is None else base.state, [ours]), log.trust)


def _ask(owner: CommitOwner, attempt: Attempt, txn_id: str, patience: Patience, table: str) -> Committed | Conflict:
    in_doubt: str | None = None
    asked = 0
    while True:
        asked += 1
        try:
            outcome = owner.commit(
                attempt.version, attempt.data, txn_id=txn_id, in_commit_timestamp=attempt.in_commit_timestamp
            )
        except StorageUnavailable as error:
            patience.tell(error.message, table)
            if patience.wait(asked, in_doubt=True):
                continue
            if in_doubt is None:
                raise
            raise _unknown(table, attempt.version, txn_id, in_doubt) from error
        except LakesealError as error:
            if in_doubt is None or is_final(error):
                raise
            raise _unknown(table, attempt.version, txn_id, in_doubt) from error
        if not isinstance(outcome, Unresolved):
            return outcome
        in_doubt = outcome.reason
        patience.tell(in_doubt, table)
        if not patience.wait(asked, in_doubt=True):
            raise _unknown(table, attempt.version, txn_id, in_doubt)


def is_final(error: LakesealError) -> bool:
    """Whether an owner that raises this has looked at the commit, so that an earlier request for it, whose reply was
    lost, has not made it either. Who is not let in (a token may expire between the two) does not learn that."""
    return isinstance(error, Refused) and not isinstance(error, NotAuthenticated | NotAllowed)


def catch_up(
    proposal: Proposal,
    read: Snapshot | None,
    base: Snapshot | None,
    taken: int,
    *,
    log: DeltaLog,
    patience: Patience,
) -> Snapshot:
    """The newest snapshot, after every commit that `base` did not know has been checked."""
    newest = visible(taken, log, patience)
    check_between(proposal, read, base, newest, log=log, patience=patience)
    return newest


def check_between(
    proposal: Proposal,
    read: Snapshot | None,
    base: Snapshot | None,
    newest: Snapshot,
    *,
    log: DeltaLog,
    patience: Patience,
) -> None:
    """Raises if the proposal, made on `read` and checked up to `base`, can't follow what came until `newest`."""

    def may_match(predicate: str, files: pa.Table) -> pa.Array:
        assert read is not None, "who creates a table conflicts with any other who does, before files are looked at"
        return read.match(predicate, files).may

    metadata = None if base is None else base.metadata
    for version in range(-1 if base is None else base.version, newest.version):
        winner = _read_winner(version + 1, log, patience)
        clash = check(proposal, winner, before=metadata, may_match=may_match)
        if clash is not None:
            raise clash.to_error(log.table)
        metadata = winner.metadata or metadata
    if metadata is not None and metadata.id != newest.metadata.id:
        raise MetadataChangedException(
            "The table was replaced by another one while this transaction was under way",
            table=log.table,
            version=newest.version,
        )
    if base is not None and (newest.protocol, newest.metadata) != (base.protocol, base.metadata):
        _check_fits(proposal, newest, log.table)


def _check_fits(proposal: Proposal, newest: Snapshot, table: str) -> None:
    """What the proposal was found to be fit for is not what it would be part of now."""
    try:
        validate(proposal, protocol=newest.protocol, metadata=newest.metadata, table=table)
    except LakesealError as error:
        raise ProtocolChangedException(
            f"The table's protocol or properties were changed at the same time, and do not allow this: {error.message}",
            table=table,
            version=newest.version,
            file=error.file,
            hint=error.hint or "Read the table again and retry",
        ) from error


def visible(version: int, log: DeltaLog, patience: Patience) -> Snapshot:
    """The newest snapshot, as soon as it is of `version` or later."""
    asked = 0
    while True:
        asked += 1
        newest = patience.through(log.update)
        if newest is not None and newest.version >= version:
            return newest
        # The owner says that the version is taken, and whoever took it may not have shown it to us yet.
        if not patience.wait(asked, in_doubt=True):
            raise ConcurrentWriteException(
                f"Version {version} belongs to another writer, but cannot be read yet",
                table=log.table,
                version=version,
                hint="Nothing was committed. Retry when the other writer's commit has become visible",
            )


def _read_winner(version: int, log: DeltaLog, patience: Patience) -> WinningCommit:
    try:
        return WinningCommit.from_actions(version, patience.through(lambda: log.commit_actions(version)))
    except VersionNotFound as error:
        raise ConcurrentWriteException(
            f"Version {version} was committed at the same time and is gone from the log, so that nobody can tell "
            "whether it conflicts",
            table=log.table,
            version=version,
        ) from error


class Patience:
    """How much longer a transaction may wait, and the waiting."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._began = time.monotonic()
        self._deadline = Deadline(retry.deadline_s)
        self._in_doubt_since: float | None = None
        self._has_told = False

    def tell(self, reason: str, table: str) -> None:
        """Once, when there has been no answer for a moment: whoever waits shall know for what, and until when."""
        now = time.monotonic()
        if self._in_doubt_since is None:
            self._in_doubt_since = now
        elif not self._has_told and now - self._in_doubt_since > _TELL_AFTER_S:
            self._has_told = True
            _log.warning(
                "a commit to %s has no answer: %s; it is asked for again, at most %g s apart, until %s",
                table,
                reason,
                self._retry.longest_doubt_s,
                self._deadline,
            )

    def wait(self, times: int, *, in_doubt: bool = False) -> bool:
        """False, at once, if there is no time left."""
        if in_doubt:
            first, longest = self._retry.first_doubt_s, self._retry.longest_doubt_s
        else:
            # Where an attempt takes long, on a store that is far away, so does the one of whoever was faster.
            took = time.monotonic() - self._began
            first, longest = max(self._retry.first_delay_s, took), self._retry.longest_delay_s
        has_waited = self._deadline.wait(Backoff(first_s=first, longest_s=longest, least=0.0).pause_s(times))
        self._began = time.monotonic()
        return has_waited

    def is_left(self) -> bool:
        return not self._deadline.is_over

    def through(self, call: Callable[[], T]) -> T:
        """Calls until the store answers; its error if it does not in time."""
        times = 0
        while True:
            times += 1
            try:
                return call()
            except StorageUnavailable:
                if not self.wait(times, in_doubt=True):
                    raise


def _gave_up(table: str, version: int, attempts: int, how: str) -> ConcurrentWriteException:
    return ConcurrentWriteException(
        f"Other writers were faster in all {attempts} attempts, {how}",
        table=table,
        version=version,
        hint="Nothing was committed. Retry, with fewer writers at the same time or larger commits",
    )


def _unknown(table: str, version: int, txn_id: str, reason: str) -> CommitOutcomeUnknown:
    error = CommitOutcomeUnknown(
        f"It is not known whether version {version} was committed: {reason}",
        table=table,
        version=version,
        hint=(
            f"Look for the txnId {txn_id} in the table's history before writing the same again. If version {version} "
            "carries it, the commit is there; if it carries another, it is not; if there is no such version, it may "
            "still arrive. No file was deleted"
        ),
    )
    error.txn_id = txn_id
    return error
