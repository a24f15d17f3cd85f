"""A write whose tasks Spark runs for us: decided in one process, carried out in others, committed in a third.

For `format("lakeseal")` Spark asks for a writer, sends it to tasks, and calls its commit wherever it likes. So what was
decided travels as a `Plan`: the version that it was decided by, the metadata that the commit sets, the tasks' job. The
commit goes on from exactly there. It is a transaction that began when the plan was made, so whatever others committed
in between is a conflict or is not, by the same rules as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lakeseal.commit.maintenance import Maintenance
from lakeseal.commit.owner import CommitOwner
from lakeseal.commit.post_commit import flush
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import ConcurrentTransactionException, InvalidArgument, UnsupportedExpression
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.routing import Route
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.schema import StructType
from lakeseal.spark.sink_options import SinkOptions
from lakeseal.write import write_command
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.job import WriteJobSpec
from lakeseal.write.rewrite import Rewrite
from lakeseal.write.runner import InPlan, InProcessRunner, WriteInput, WriteRunner
from lakeseal.write.write_command import NothingToDo, WriteCommand

_MAINTENANCE_TIMEOUT_S = 60.0


class Plan(Struct, frozen=True, kw_only=True):
    version: int | None
    """None if there is no table yet."""
    metadata: str | None = None
    """The metadata that the commit sets, as the log's line; None if it changes none."""
    spec: WriteJobSpec | None = None
    """None if there is nothing to do."""


class PlannedWrite:
    def __init__(self, options: SinkOptions, data: StructType) -> None:
        self._store = options.store
        self._router = options.open()
        self._data = data

    def plan(self, command: WriteCommand) -> Plan:
        """By the newest version."""
        return self._router.run(lambda route: self._plan(route, command))

    def commit(
        self, command: WriteCommand, plan: Plan, messages: Sequence[TaskCommitMessage]
    ) -> CommitResult | NothingToDo:
        try:
            return self._router.run(lambda route: self._commit(route, command, plan, messages))
        except ConcurrentTransactionException:
            # Another commit of the same batch won; then this one is done.
            seen = self._seen(self._router.snapshot(), command)
            if seen is None:
                raise
            return seen

    def _plan(self, route: Route, command: WriteCommand) -> Plan:
        txn = OptimisticTransaction.begin(route.log, route.owner)
        version = None if txn.snapshot is None else txn.snapshot.version
        try:
            write_command.run(command, txn, _Deciding(self._data), runner=_Opened(), store=self._store)
        except _Decided as decided:
            changed = txn.snapshot is None or txn.metadata != txn.snapshot.metadata
            line = codec.encode([txn.metadata]).decode() if changed else None
            return Plan(version=version, metadata=line, spec=decided.spec)
        return Plan(version=version)

    def _commit(
        self, route: Route, command: WriteCommand, plan: Plan, messages: Sequence[TaskCommitMessage]
    ) -> CommitResult | NothingToDo:
        seen = self._seen(route.log.update(), command)
        if seen is not None:
            return seen
        snapshot = None if plan.version is None else route.log.snapshot(plan.version)
        txn = _Resumed(route.log, route.owner, snapshot, planned=_metadata(plan))
        done = _Done(self._data, plan, messages)
        result = write_command.run(command, txn, done, runner=_Opened(), store=self._store)
        # The process that Spark runs this in may end at any moment.
        flush(timeout=_MAINTENANCE_TIMEOUT_S)
        return result

    @staticmethod
    def _seen(snapshot: Snapshot | None, command: WriteCommand) -> NothingToDo | None:
        if snapshot is None or command.txn is None:
            return None
        app_id, version = command.txn
        seen = snapshot.txns.get(app_id)
        if seen is None or seen.version < version:
            return None
        return NothingToDo(version=snapshot.version, reason=f"the table has seen {app_id} up to {seen.version}")


def _metadata(plan: Plan) -> Metadata | None:
    if plan.metadata is None:
        return None
    (metadata,) = codec.decode(plan.metadata.encode())
    assert isinstance(metadata, Metadata)
    return metadata


class _Resumed(OptimisticTransaction):
    """Goes on where the plan was made: the metadata is the planned one, new names and ids in it included."""

    def __init__(
        self, log: DeltaLog, owner: CommitOwner, snapshot: Snapshot | None, *, planned: Metadata | None
    ) -> None:
        super().__init__(log, owner, snapshot, hooks=(Maintenance(),))
        self._planned = planned

    def update_metadata(self, metadata: Metadata) -> None:
        super().update_metadata(metadata if self._planned is None else self._planned)


class _Opened(WriteRunner):
    """For inputs that are open; files to be rewritten are rewritten in this process."""

    def open(self, data: Any) -> WriteInput:
        if isinstance(data, Rewrite):
            return InProcessRunner().open(data)
        opened: WriteInput = data
        return opened


class _Decided(Exception):
    def __init__(self, spec: WriteJobSpec) -> None:
        super().__init__()
        self.spec = spec


class _Deciding(WriteInput):
    """Stops where tasks would start."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    @property
    def schema(self) -> StructType:
        return self._schema

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        for reason in (*(c.reason for c in in_plan.columns), *(c.reason for c in in_plan.checks)):
            raise UnsupportedExpression(
                reason.message, column=reason.column, hint="Write with Table.write(df), which lets Spark evaluate it"
            ) from reason
        raise _Decided(spec)


class _Done(WriteInput):
    """Its tasks have run."""

    def __init__(self, schema: StructType, plan: Plan, messages: Sequence[TaskCommitMessage]) -> None:
        self._schema = schema
        self._plan = plan
        self._messages = messages

    @property
    def schema(self) -> StructType:
        return self._schema

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        ran = self._plan.spec
        if ran is None or (ran.schema, ran.partition_columns, ran.mapped) != (
            spec.schema,
            spec.partition_columns,
            spec.mapped,
        ):
            raise InvalidArgument(
                "The tasks wrote files for another schema than the commit has",
                hint="Driver and executors must run the same version of Lakeseal",
            )
        return list(self._messages)
