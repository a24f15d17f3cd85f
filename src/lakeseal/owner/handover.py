"""Take-over and release: how a table goes from the file system to an owner and back, step by step.

`take_over`: the owner promises, the client puts the commit that names the owner into the log, the owner is told. The
put-if-absent is the commit point: whoever writes to the log at the same time comes before it, or meets it.

`release`: the owner stops ratifying, everything is backfilled, the commit that drops the owner is put into the log, the
owner is told. `finish_release` goes on from wherever a release stopped, and any client may call it.

A crash between two steps leaves the table in a state that the next one who comes finishes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from lakeseal.clock import Clock, now_ms
from lakeseal.commit.attempts import Patience, Retry, attempt_on
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import Commits, Committed, Outcome, Unresolved
from lakeseal.commit.proposal import Operation, Proposal
from lakeseal.commit.rendering import Attempt
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    ConcurrentWriteException,
    CorruptTable,
    OwnedElsewhere,
    ReleaseUnderway,
    TableNotFound,
    UnknownOutcome,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner import enablement
from lakeseal.owner.backfill import check_follows, publish
from lakeseal.owner.endpoint import OwnerEndpoint, owner_conf
from lakeseal.owner.kinds import Kind, NewTable
from lakeseal.owner.messages import NO_COMMITS, TableCommits
from lakeseal.owner.ownership import State
from lakeseal.owner.snapshots import ToldCommits
from lakeseal.storage.base import Store

TAKE_OVER = "TAKE OVER"
RELEASE = "RELEASE"
# Between looking at the table and putting its commit a take-over asks the owner, so that writers of a busy table are
# faster again and again. If it also waited longer each time, as they do, it would hardly ever get through.
_TAKING_OVER = Retry(longest_delay_s=0.01)


def take_over(
    endpoint: OwnerEndpoint,
    store: Store,
    *,
    kind: Kind = Kind.MANAGED,
    table_id: str | None = None,
    retry: Retry | None = None,
    clock: Clock = now_ms,
) -> int:
    """The version that made `endpoint` the owner of the table, which is on the file system until then. `table_id` is
    what a catalog calls the table, if one knows it: its clients ask by that."""
    new = NewTable(kind=kind, table_id=table_id)
    table = endpoint.attach(store)
    log, patience = DeltaLog(store), Patience(retry or _TAKING_OVER)
    tries = 0
    while True:
        tries += 1
        epoch = _known(lambda: endpoint.get_commits(table, NO_COMMITS), patience).epoch
        snapshot = log.update()
        if snapshot is None:
            raise TableNotFound("There is no table to take over", table=table)
        _check_free(endpoint, table, snapshot)
        takeover_id = str(uuid.uuid4())
        attempt = _take_over_commit(endpoint, log, snapshot, new, takeover_id, patience, clock)
        told = _promised(endpoint, table, takeover_id, attempt.version, epoch, patience)
        if told is not None and told.state is State.PENDING:
            outcome = _put(store, attempt, takeover_id, patience, table)
            if isinstance(outcome, Committed):
                _known(lambda: endpoint.confirm_takeover(table, takeover_id), patience)  # noqa: B023
                return attempt.version
            _known(lambda: endpoint.withdraw_takeover(table, takeover_id), patience)  # noqa: B023
        if not patience.wait(tries):
            raise ConcurrentWriteException(
                f"Other writers were faster than the take-over in all {tries} attempts", table=table
            )


def take_over_as(
    endpoint: OwnerEndpoint,
    store: Store,
    kind: Kind,
    *,
    table_id: str | None = None,
) -> int:
    """As `take_over`; a table that `endpoint` has in another form is released before. Between the two it is on the file
    system, where writers go on; whoever stops there leaves a table that nobody owns, and can take it over again."""
    told = endpoint.get_commits(endpoint.attach(store))
    if told.state in (State.ACTIVE, State.RELEASING) and told.kind is not kind:
        release(endpoint, store)
    return take_over(endpoint, store, kind=kind, table_id=table_id)


def release(endpoint: OwnerEndpoint, store: Store, *, retry: Retry | None = None, clock: Clock = now_ms) -> int:
    """The version that freed the table: everything before it is in the log, and what follows goes there too."""
    table = endpoint.attach(store)
    patience = Patience(retry or Retry())
    release_id = str(uuid.uuid4())
    epoch = _known(lambda: endpoint.get_commits(table, NO_COMMITS), patience).epoch
    told = _known(lambda: endpoint.begin_release(table, release_id, epoch=epoch), patience)
    if told.change_version is None:
        # The release that was joined has been finished by somebody else before its version was told.
        if told.state is State.NONE:
            return told.latest
        raise OwnedElsewhere("The table was released by somebody else, and has an owner again", table=table)
    finish_release(endpoint, store, patience=patience, clock=clock)
    return told.change_version


def finish_release(
    endpoint: OwnerEndpoint,
    store: Store,
    *,
    patience: Patience | None = None,
    clock: Clock = now_ms,
) -> None:
    """Does what is left of a release; nothing if there is none."""
    table = endpoint.attach(store)
    patience = patience or Patience(Retry())
    told = endpoint.get_commits(table)
    if told.state is not State.RELEASING or told.change_id is None or told.change_version is None:
        return
    if told.commits:
        patience.through(lambda: check_follows(store, told.commits[0].version))
    for commit in told.commits:
        patience.through(lambda: publish(store, commit))  # noqa: B023
    _known(lambda: endpoint.backfill(table), patience)
    log = DeltaLog(store, commit_source=ToldCommits(told))
    snapshot = patience.through(lambda: log.snapshot(told.latest))
    attempt = _release_commit(log, snapshot, told.change_id, patience, clock)
    outcome = _put(store, attempt, told.change_id, patience, table)
    after = _known(lambda: endpoint.finish_release(table), patience)
    if after.state is State.RELEASING and after.change_id == told.change_id:
        raise CorruptTable(
            "The table's release is in its log, but its owner does not see it",
            table=table,
            version=outcome.version,
            hint="Check that the owner reads the same storage as this client",
        )


def _promised(
    endpoint: OwnerEndpoint, table: str, takeover_id: str, version: int, epoch: int, patience: Patience
) -> TableCommits | None:
    """None where the table was released meanwhile: then it has to be looked at again."""
    try:
        return _known(lambda: endpoint.begin_takeover(table, takeover_id, version, epoch=epoch), patience)
    except ReleaseUnderway:
        raise
    except OwnedElsewhere:
        return None


def _check_free(endpoint: OwnerEndpoint, table: str, snapshot: Snapshot) -> None:
    named = snapshot.properties.owner_name
    if named == endpoint.name:
        told = endpoint.get_commits(table)
        if told.state is State.PENDING and told.change_id is not None:
            told = endpoint.confirm_takeover(table, told.change_id)
        if told.state is State.RELEASING:
            raise ReleaseUnderway(f"The owner {named!r} is releasing the table", table=snapshot.table)
        if told.state is State.ACTIVE:
            raise AlreadyExists(
                f"The owner {named!r} has the table already", table=snapshot.table, version=snapshot.version
            )
    if named is not None:
        raise OwnedElsewhere(
            f"The table is owned by {named!r}" + (", which this owner is not" if named == endpoint.name else ""),
            table=snapshot.table,
            version=snapshot.version,
            hint="Let that owner release it first. If its ledger is lost: lakeseal owner rebuild",
        )
    enablement.check_path_is_enough(snapshot)
    enablement.check(snapshot.protocol, snapshot.metadata, table=snapshot.table, version=snapshot.version)


def _take_over_commit(
    endpoint: OwnerEndpoint,
    log: DeltaLog,
    snapshot: Snapshot,
    new: NewTable,
    takeover_id: str,
    patience: Patience,
    clock: Clock,
) -> Attempt:
    metadata = enablement.managed(
        snapshot.metadata, owner=endpoint.name, conf=owner_conf(endpoint), kind=new.kind, table_id=new.table_id
    )
    txn = OptimisticTransaction(log, FilesystemOwner(log.store), snapshot, clock=clock)
    txn.txn_id = takeover_id
    txn.update_metadata(metadata)
    proposal = txn.close([], _take_over_operation(endpoint.name, new.kind))
    return attempt_on(snapshot, proposal, log=log, patience=patience, clock=clock)


def _take_over_operation(owner: str, kind: Kind) -> Operation:
    said = {"owner": owner} if kind is Kind.MANAGED else {"owner": owner, "kind": kind.value}
    return Operation(name=TAKE_OVER, parameters=said)


def _release_commit(log: DeltaLog, snapshot: Snapshot, release_id: str, patience: Patience, clock: Clock) -> Attempt:
    protocol, metadata = enablement.released(snapshot.protocol, snapshot.metadata)
    owner = snapshot.properties.owner_name
    txn = OptimisticTransaction(log, _Nobody(), snapshot, clock=clock)
    txn.txn_id = release_id
    txn.update_metadata(metadata)
    txn.update_protocol(protocol)
    proposal: Proposal = txn.close([], Operation(name=RELEASE, parameters={"owner": owner}))
    return attempt_on(snapshot, proposal, log=log, patience=patience, clock=clock)


class _Nobody:
    """A release is rendered like any commit, but no owner is asked for it."""

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        raise NotImplementedError

    def get_commits(self, start_version: int) -> Commits:
        raise NotImplementedError

    def backfill_to_version(self, version: int) -> None:
        raise NotImplementedError


def _put(store: Store, attempt: Attempt, txn_id: str, patience: Patience, table: str) -> Outcome:
    """Until it is known whose the version is."""
    tries = 0
    while True:
        tries += 1
        outcome = patience.through(
            lambda: FilesystemOwner(store).commit(
                attempt.version, attempt.data, txn_id=txn_id, in_commit_timestamp=attempt.in_commit_timestamp
            )
        )
        if not isinstance(outcome, Unresolved):
            return outcome
        if not patience.wait(tries, in_doubt=True):
            error = CommitOutcomeUnknown(
                f"It is not known whether version {attempt.version} was written: {outcome.reason}",
                table=table,
                version=attempt.version,
                hint="Run it again: what was done is found and finished",
            )
            error.txn_id = txn_id
            raise error


def _known(ask: Callable[[], TableCommits], patience: Patience) -> TableCommits:
    """Steps of an owner are safe to ask for again, so a lost answer is asked for until it comes."""
    tries = 0
    while True:
        tries += 1
        try:
            return patience.through(ask)
        except UnknownOutcome:
            if not patience.wait(tries, in_doubt=True):
                raise
