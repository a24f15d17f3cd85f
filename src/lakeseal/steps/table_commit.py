"""`TableCommitStep`: files that were written for a table become part of it, by one commit that was staged before.

The step holds the actions and what they were staged against: the version that was read, a transaction id, and a number
under an application id of the dataset's own. Replaying it is safe however it was cut off:

- It has been done when a commit after the version read carries its transaction id. Only where the log has been cleaned
  up since then does the application's number decide, which the commit sets and which outlives the log's files.
- Files that are only added may come any time later, to whoever owns the table then, as long as its schema, partitions
  and constraints are those that they were written for. Any other commit is made against the version read, so whatever
  came in between is checked for conflicts as ever.
- Two that commit it at once conflict by the application id, and one of them finds it done.
- A number that another commit has used is an error: neither is dropped in silence.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable

import msgspec

from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    ConcurrentTransactionException,
    MetadataChangedException,
    StepImpossible,
    TableNotFound,
    VersionNotFound,
)
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.routing import Route, Router
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, Metadata, RemoveFile
from lakeseal.steps.context import StepContext
from lakeseal.steps.places import Reach
from lakeseal.steps.step import CommitStep, register

_OWNERS = "delta.managedCommit"


@register
class TableCommitStep(CommitStep, frozen=True, kw_only=True, tag="table-commit"):
    table: str
    """The table's URI."""
    read_version: int
    txn_id: str
    app_id: str
    app_version: int
    actions: str
    """As lines of the log: files, and the table's metadata where it changes with them."""
    operation: Operation
    written_for: str
    """What of the table's metadata its files depend on, as a checksum."""

    @classmethod
    def of(cls, snapshot: Snapshot, actions: Iterable[Action], operation: Operation, *, app_id: str) -> TableCommitStep:
        """`snapshot` is what the files were written for; `app_id` is used for one dataset of one pipeline only."""
        seen = snapshot.txns.get(app_id)
        return cls(
            table=snapshot.table,
            read_version=snapshot.version,
            txn_id=str(uuid.uuid4()),
            app_id=app_id,
            app_version=0 if seen is None else seen.version + 1,
            actions=codec.encode(actions).decode(),
            operation=operation,
            written_for=_dependencies(snapshot.metadata),
        )

    def verify(self, context: StepContext) -> bool:
        router = self._router(context)
        snapshot = router.snapshot()
        if snapshot is None:
            raise TableNotFound("There is no table here any more", table=self.table)
        return self._is_in(router.route().log, snapshot)

    def execute(self, context: StepContext) -> None:
        try:
            self._router(context).run(self._commit)
        except ConcurrentTransactionException:
            if not self.verify(context):
                raise

    def reaches(self) -> Reach:
        actions = codec.decode(self.actions.encode())
        files = (action for action in actions if isinstance(action, AddFile | RemoveFile | AddCDCFile))
        return Reach(tables=(self.table,), table_files=tuple((self.table, file.path) for file in files))

    def describe(self) -> str:
        return f"commit {self.actions.count(chr(10))} actions to {self.table}, staged at version {self.read_version}"

    def _router(self, context: StepContext) -> Router:
        return Router(context.store(self.table), context.owners)

    def _commit(self, route: Route) -> None:
        actions = codec.decode(self.actions.encode())
        metadata = [action for action in actions if isinstance(action, Metadata)]
        files = [action for action in actions if not isinstance(action, Metadata)]
        newest = route.log.snapshot()
        if self._is_in(route.log, newest):
            return
        if all(isinstance(action, AddFile) for action in files):
            base = self._still_fits(newest)
        else:
            base = route.log.snapshot(version=self.read_version)
        txn = OptimisticTransaction(route.log, route.owner, base)
        txn.txn_id = self.txn_id
        if txn.set_transaction(self.app_id, self.app_version) is not None:
            raise self._taken()
        for changed in metadata:
            txn.update_metadata(_carried_over(changed, base.metadata))
        txn.commit(files, self.operation)

    def _still_fits(self, newest: Snapshot) -> Snapshot:
        if _dependencies(newest.metadata) != self.written_for:
            raise MetadataChangedException(
                "The table's schema, partitions or constraints are not those that the staged files were written for",
                table=self.table,
                version=newest.version,
                hint="Abort the sequence to have its data extracted and written again",
            )
        return newest

    def _is_in(self, log: DeltaLog, snapshot: Snapshot) -> bool:
        seen = snapshot.txns.get(self.app_id)
        is_seen = seen is not None and seen.version >= self.app_version
        for version in range(self.read_version + 1, snapshot.version + 1):
            try:
                if txn_id_of(log.commit_bytes(version)) == self.txn_id:
                    return True
            except VersionNotFound:
                return is_seen
        if is_seen:
            raise self._taken()
        return False

    def _taken(self) -> StepImpossible:
        return StepImpossible(
            f"Number {self.app_version} of {self.app_id!r} was used by another commit, so this one can't be told apart",
            table=self.table,
            hint="Look who else writes under this application id, then abort the sequence",
        )


def _dependencies(metadata: Metadata) -> str:
    settings = {
        name: value
        for name, value in metadata.configuration.items()
        if name.startswith(("delta.constraints.", "delta.columnMapping."))
    }
    depends = [metadata.id, metadata.schema_string, list(metadata.partition_columns), sorted(settings.items())]
    return hashlib.sha256(msgspec.json.encode(depends)).hexdigest()


def _carried_over(changed: Metadata, now: Metadata) -> Metadata:
    """The staged metadata, with what was set meanwhile; who owns the table, above all, is not the writer's to say."""
    ours = {name: value for name, value in changed.configuration.items() if not name.startswith(_OWNERS)}
    others = {
        name: value
        for name, value in now.configuration.items()
        if name.startswith(_OWNERS) or name not in changed.configuration
    }
    return msgspec.structs.replace(changed, configuration=ours | others)
