"""`OptimisticTransaction`: read a snapshot, say what was read, write files, commit all of it at once or nothing.

One transaction belongs to one thread and commits once. It tells the owner nothing before `commit`; what it has read
and set until then is in `proposal`. Metadata can be changed only before the first file is written, because files are
written by the metadata. A table that names a commit owner is committed to by that owner, never by the file system.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from lakeseal.clock import Clock, now_ms
from lakeseal.commit import attempts, isolation, row_ids
from lakeseal.commit.attempts import Landed, Retry
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.owner import AsksForFeatures, ClaimsTables, CommitOwner
from lakeseal.commit.post_commit import FreshCommit, PostCommit, run_after
from lakeseal.commit.proposal import FileActions, Operation, Proposal
from lakeseal.commit.read_set import ReadSet
from lakeseal.commit.validation import validate
from lakeseal.commit.winner import WinningCommit
from lakeseal.display import card, clean
from lakeseal.errors import (
    ConcurrentModification,
    InvalidArgument,
    LakesealError,
    MetadataChangedException,
    OwnedElsewhere,
    ProtocolChangedException,
    UnsupportedExpression,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.files import NO_ADDS
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.snapshot_card import snapshot_card
from lakeseal.protocol.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from lakeseal.protocol.features import DEFAULT_PROTOCOL, asked, check_writable, enable, required_features, supports
from lakeseal.protocol.identity import with_marks
from lakeseal.protocol.properties import TableProperties

_log = logging.getLogger(__name__)


class AlreadyApplied(Struct, frozen=True, kw_only=True):
    """The table has seen this batch, or a later one, of the application: there is nothing left to do."""

    app_id: str
    version: int
    seen: int


class CommitResult(Struct, frozen=True, kw_only=True):
    """What a command gives back that committed: its version, the table right after it, and what it counted.

    >>> done = orders.delete("id = 3")
    >>> done.version, done.snapshot.version, done.attempts
    (2, 2, 1)
    >>> done.metrics["numDeletedRows"]
    1
    """

    version: int
    snapshot: Snapshot
    """The table right after the commit."""
    txn_id: str
    timestamp_ms: int
    attempts: int
    metrics: Mapping[str, int | str]

    def __repr__(self) -> str:
        told = f", attempts={self.attempts}" if self.attempts > 1 else ""
        return f"CommitResult({self.snapshot.table!r}, version={self.version}{told}, metrics={dict(self.metrics)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: what was done, and the table right after it."""
        facts = [*self.metrics.items(), *([("attempts", self.attempts)] if self.attempts > 1 else [])]
        return card("Commit", self.snapshot.table, lambda: snapshot_card(self.snapshot, "Commit", facts=facts))


class OptimisticTransaction:
    def __init__(
        self,
        log: DeltaLog,
        owner: CommitOwner,
        snapshot: Snapshot | None,
        *,
        isolation_level: IsolationLevel | None = None,
        retry: Retry | None = None,
        hooks: Sequence[PostCommit] = (),
        clock: Clock = now_ms,
    ) -> None:
        """`snapshot` is the table as this transaction sees it, None to create one. `isolation_level` goes before the
        table's own."""
        self._log = log
        self._owner = owner
        self._snapshot = snapshot
        self._isolation = isolation_level
        self._retry = retry or Retry()
        self._hooks = tuple(hooks)
        self._clock = clock
        self._reads = ReadSet()
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self._txns: dict[str, SetTransaction] = {}
        self._domains: dict[str, DomainMetadata] = {}
        self._has_written = False
        self._brings_back = False
        self._is_done = False
        self.txn_id = str(uuid.uuid4())
        if snapshot is not None:
            self._check_owner(snapshot)

    @classmethod
    def begin(
        cls,
        log: DeltaLog,
        owner: CommitOwner,
        *,
        isolation_level: IsolationLevel | None = None,
        retry: Retry | None = None,
        hooks: Sequence[PostCommit] = (),
        clock: Clock = now_ms,
    ) -> OptimisticTransaction:
        """A transaction on the newest version."""
        return cls(log, owner, log.update(), isolation_level=isolation_level, retry=retry, hooks=hooks, clock=clock)

    @property
    def table(self) -> str:
        return self._log.table

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def following(self) -> OptimisticTransaction:
        """Another transaction, on the newest version."""
        return OptimisticTransaction.begin(
            self._log, self._owner, retry=self._retry, hooks=self._hooks, clock=self._clock
        )

    def newest(self) -> Snapshot | None:
        """The table as it is by now, which this transaction does not see."""
        return self._log.update()

    @property
    def read_version(self) -> int:
        return -1 if self._snapshot is None else self._snapshot.version

    @property
    def has_written(self) -> bool:
        return self._has_written

    @property
    def reads(self) -> ReadSet:
        return self._reads

    @property
    def metadata(self) -> Metadata:
        """As it will be after the commit."""
        found = self._metadata or (None if self._snapshot is None else self._snapshot.metadata)
        if found is None:
            raise InvalidArgument("The new table has no metadata yet", table=self.table, hint="Call update_metadata")
        return found

    @property
    def protocol(self) -> Protocol:
        """As it will be after the commit."""
        return self._protocol or (DEFAULT_PROTOCOL if self._snapshot is None else self._snapshot.protocol)

    def update_metadata(self, metadata: Metadata) -> None:
        """The features that the metadata needs are added to the protocol."""
        if self._has_written:
            raise InvalidArgument(
                "The metadata cannot change after files have been written in the same transaction",
                table=self.table,
                hint="Change the metadata first: files are written by the table's schema and properties",
            )
        before = None if self._snapshot is None else self._snapshot.metadata
        wanted, metadata = asked(self.protocol, metadata, before)
        if isinstance(self._owner, ClaimsTables):
            metadata = self._owner.claim(metadata, before)
        if before is None and isinstance(self._owner, AsksForFeatures):
            wanted = enable(wanted, *self._owner.features)
        self._check_row_tracking(metadata)
        metadata = row_ids.with_columns(metadata)
        self._metadata = metadata
        self.update_protocol(enable(wanted, *required_features(metadata)))

    def update_protocol(self, protocol: Protocol) -> None:
        if self._snapshot is None or protocol != self._snapshot.protocol:
            self._protocol = protocol

    def give_out(self, marks: Mapping[str, int]) -> None:
        """Values of identity columns that files of this transaction have; their metadata says so from then on."""
        marked = with_marks(self.metadata, marks)
        if marked != self.metadata:
            self._metadata = marked

    def mark_written(self) -> None:
        """Files are being written by the metadata as it is now."""
        self._has_written = True

    def bring_back(self) -> None:
        """Files that are added were part of the table before."""
        self._brings_back = True

    def read_whole_table(self) -> None:
        self._reads = self._reads.with_whole_table()

    def read_predicate(self, where: str) -> None:
        self.filter_files(where)

    def read_files(self, files: pa.Table) -> None:
        """Some of the snapshot's files, whatever may be added beside them."""
        self._reads = self._reads.with_files(files)

    def filter_files(self, where: str | None = None) -> pa.Table:
        """The files that may hold rows matching `where`, noted as read; None reads the whole table."""
        if where is None:
            self.read_whole_table()
            return NO_ADDS if self._snapshot is None else self._snapshot.files
        if self._snapshot is None:
            self._reads = self._reads.with_predicate(where)
            return NO_ADDS
        try:
            may = self._snapshot.match(where).may
        except UnsupportedExpression:
            # Only Spark can tell what it matches, so for us it may be anything.
            return self.filter_files(None)
        files = self._snapshot.files.filter(may)
        self._reads = self._reads.with_predicate(where).with_files(files)
        return files

    def txn_version(self, app_id: str) -> int | None:
        """The last batch of an application that the table has seen; from here on a conflict if it changes."""
        self._reads = self._reads.with_app_id(app_id)
        seen = None if self._snapshot is None else self._snapshot.txns.get(app_id)
        return None if seen is None else seen.version

    def set_transaction(self, app_id: str, version: int) -> AlreadyApplied | None:
        """Marks this commit as batch `version` of an application, once for ever."""
        seen = self.txn_version(app_id)
        if seen is not None and seen >= version:
            return AlreadyApplied(app_id=app_id, version=version, seen=seen)
        self._txns[app_id] = SetTransaction(app_id=app_id, version=version, last_updated=self._clock())
        return None

    def set_domain(self, domain: str, configuration: str) -> None:
        self._domains[domain] = DomainMetadata(domain=domain, configuration=configuration, removed=False)

    def remove_domain(self, domain: str) -> None:
        before = None if self._snapshot is None else self._snapshot.domains.get(domain)
        if before is not None:
            self._domains[domain] = DomainMetadata(domain=domain, configuration=before.configuration, removed=True)
        else:
            self._domains.pop(domain, None)

    def proposal(self, actions: Iterable[Action], operation: Operation) -> Proposal:
        """What `commit` would propose, validated."""
        proposal = self.unchecked(actions, operation)
        before = self._snapshot
        validate(
            proposal,
            protocol=None if before is None else before.protocol,
            metadata=None if before is None else before.metadata,
            table=self.table,
        )
        return proposal

    def unchecked(self, actions: Iterable[Action], operation: Operation) -> Proposal:
        """What `commit` would propose, whether or not it may be."""
        files = FileActions.of(actions)
        protocol, metadata = self._protocol, self._metadata
        level = isolation.choose(
            asked=self._isolation,
            table=self._table_isolation(),
            changes_data=files.changes_data or metadata is not None,
        )
        return Proposal(
            txn_id=self.txn_id,
            read_version=self.read_version,
            operation=operation,
            isolation=level,
            reads=self._reads,
            protocol=protocol,
            metadata=metadata,
            txns=tuple(self._txns.values()),
            domains=tuple(self._domains.values()),
            adds=files.adds,
            removes=files.removes,
            cdc=files.cdc,
            brings_back=self._brings_back,
        )

    def commit(self, actions: Iterable[Action], operation: Operation) -> CommitResult:
        proposal = self.close(actions, operation)
        try:
            landed = attempts.commit(
                proposal, self._snapshot, log=self._log, owner=self._owner, retry=self._retry, clock=self._clock
            )
        except (MetadataChangedException, ProtocolChangedException) as error:
            raise self.owner_changed(error) from error
        return self.landed(proposal, landed)

    def owner_changed(self, error: ConcurrentModification) -> LakesealError:
        """`OwnedElsewhere` if what `error` met was a change of the table's owner: then opening the table again and
        writing once more goes to whom it belongs now. Otherwise `error` itself."""
        if self._snapshot is None or error.version is None:
            return error
        winner = WinningCommit.from_actions(error.version, self._log.commit_actions(error.version))
        before = self._snapshot.properties.owner_name
        now = before if winner.metadata is None else TableProperties.of(winner.metadata).owner_name
        if before == now:
            return error
        return OwnedElsewhere(
            f"While this was written, the table's owner changed from {before or 'the file system'} to "
            f"{now or 'the file system'}",
            table=self.table,
            version=error.version,
            hint="Nothing was committed. Open the table again and write once more",
        )

    def close(self, actions: Iterable[Action], operation: Operation) -> Proposal:
        """The proposal, for good: whoever takes it makes the attempts and reports by `landed`."""
        if self._is_done:
            raise InvalidArgument("A transaction can be committed only once", table=self.table)
        proposal = self.proposal(actions, operation)
        # Set before the first attempt: after an unknown outcome a second commit could double the first.
        self._is_done = True
        return proposal

    def landed(self, proposal: Proposal, landed: Landed) -> CommitResult:
        """What the caller gets, and the start of all that comes after a commit."""
        attempt = landed.attempt
        if self._hooks:
            fresh = FreshCommit(
                version=attempt.version,
                data=attempt.data,
                snapshot=landed.snapshot,
                log=self._log,
                owner=self._owner,
            )
            run_after(fresh, self._hooks)
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", _told(self.table, attempt.version, proposal.operation, landed.attempts))
        return CommitResult(
            version=attempt.version,
            snapshot=landed.snapshot,
            txn_id=proposal.txn_id,
            timestamp_ms=attempt.timestamp_ms,
            attempts=landed.attempts,
            metrics=proposal.operation.metrics,
        )

    def _table_isolation(self) -> IsolationLevel | None:
        before = None if self._snapshot is None else self._snapshot.metadata
        said = None if before is None else before.configuration.get(TableProperties.isolation_level.key)
        return None if said is None else IsolationLevel.parse(said)

    def _check_row_tracking(self, metadata: Metadata) -> None:
        properties = TableProperties.of(metadata)
        if properties.row_tracking and properties.row_tracking_suspended:
            raise InvalidArgument("Row tracking cannot be on and suspended at once", table=self.table)
        if self._snapshot is None or not properties.row_tracking or self._snapshot.properties.row_tracking:
            return
        # Files that others add meanwhile by the metadata of now have no ids either.
        self.read_whole_table()
        if self._snapshot.files["baseRowId"].null_count:
            raise InvalidArgument(
                "Row tracking cannot be enabled while the table has files without row ids",
                table=self.table,
                hint="Set it when the table is created, or enable it with a client that fills in row ids",
            )

    def _check_owner(self, snapshot: Snapshot) -> None:
        properties = snapshot.properties
        name = properties.owner_name
        managed = properties.managed_commit_owner_name is not None
        if managed != supports(snapshot.protocol, "managedCommits"):
            # An owner without the feature, or the feature without an owner: such a table belongs to nobody.
            check_writable(snapshot.protocol, snapshot.metadata, table=self.table, version=snapshot.version)
        if name is not None and isinstance(self._owner, FilesystemOwner):
            raise OwnedElsewhere(
                f"Commits to this table are made by its owner {name!r}", table=self.table, version=snapshot.version
            )
        foreign = supports(snapshot.protocol, "catalogManaged") or properties.commit_coordinator is not None
        if name is None and foreign and isinstance(self._owner, FilesystemOwner):
            raise OwnedElsewhere(
                "Commits to this table are made by its catalog", table=self.table, version=snapshot.version
            )
        if name is None and not foreign and isinstance(self._owner, ClaimsTables):
            raise OwnedElsewhere(
                "Commits to this table go to its log, and not to an owner",
                table=self.table,
                version=snapshot.version,
                hint="Open the table again, or let the owner take it over",
            )


def _told(table: str, version: int, operation: Operation, attempts: int) -> str:
    """What was done, for a log that people read."""
    numbers = ", ".join(f"{name} {value}" for name, value in operation.metrics.items() if value not in (0, "0", ""))
    tries = f", at attempt {attempts}" if attempts > 1 else ""
    return f"{operation.name} is version {version} of {clean(table, 500)}{tries}{': ' if numbers else ''}{numbers}"
