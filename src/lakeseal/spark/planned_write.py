"""A write whose tasks Spark runs for us: decided in one process, carried out in others, committed in a third.

For `format("lakeseal")` Spark asks for a writer, sends it to tasks, and calls its commit wherever it likes. So what was
decided travels as a `SinkPlan`: the version that it was decided by, the metadata that the commit sets, the tasks' job.
The commit decides again by that version, finds its tasks done, and goes on. It is a transaction that began when the
plan was made, so whatever others committed in between is a conflict or is not, by the same rules as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal.commands.command import CommandContext, NothingToDo
from lakeseal.commands.running import run
from lakeseal.commands.transactional_write import TransactionalWrite
from lakeseal.commands.write import Write, WriteCommand
from lakeseal.commit.owner import CommitOwner
from lakeseal.commit.post_commit import Maintenance, flush
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import (
    ConcurrentTransactionException,
    InvalidArgument,
    LakesealError,
    UnsupportedExpression,
    located,
)
from lakeseal.files.expressions import IN_TASK, Expressions
from lakeseal.files.store_assignment import Path, check_assignable, check_parts
from lakeseal.jobs.engine import InPlan, WriteInput
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.jobs.job import WriteJobSpec
from lakeseal.jobs.progress import SILENT, Progress
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.jobs.search import Found, Search
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.routing import Route
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.schema import (
    STRING,
    TIMESTAMP,
    VOID,
    DataType,
    DecimalType,
    StructType,
    dotted,
)
from lakeseal.spark.predicates import check_portable, depends_on_zone, has_timestamps, is_utc
from lakeseal.spark.sink_options import SinkOptions

_MAINTENANCE_TIMEOUT_S = 60.0


class SinkPlan(Struct, frozen=True, kw_only=True):
    version: int | None
    """None if there is no table yet."""
    metadata: str | None = None
    """The metadata that the commit sets, as the log's line; None if it changes none."""
    spec: WriteJobSpec | None = None
    """None if there is nothing to do."""
    in_utc: str | None = None
    """An expression that tasks evaluate as a session in UTC would, so that no other session's rows may pass."""


class PlannedSinkWrite:
    def __init__(self, options: SinkOptions, data: StructType) -> None:
        self._table = options.table
        self._store = options.store
        self._router = options.open()
        self._data = data

    def decide(self, command: WriteCommand) -> SinkPlan:
        """By the newest version."""
        return self._router.run(lambda route: self._decide(route, command))

    def commit(
        self, command: WriteCommand, plan: SinkPlan, messages: Sequence[TaskCommitMessage]
    ) -> CommitResult | NothingToDo:
        try:
            return self._router.run(lambda route: self._commit(route, command, plan, messages))
        except ConcurrentTransactionException:
            # Another commit of the same batch won; then this one is done.
            seen = self._seen(self._router.snapshot(), command)
            if seen is None:
                raise
            return seen

    def _decide(self, route: Route, command: WriteCommand) -> SinkPlan:
        txn = OptimisticTransaction.begin(route.log, route.owner)
        version = None if txn.snapshot is None else txn.snapshot.version
        if version is None:
            self._table.check_not_dropped()
        session = _SomeSession(self._data)
        write = Write(asked=command, data=_RowsElsewhere(self._data, session))
        with located(table=txn.table), ExitStack() as until_end:
            change = write.decide(CommandContext(txn=txn, engine=session, store=self._store, until_end=until_end))
            if isinstance(change, NothingToDo):
                return SinkPlan(version=version)
        with located(table=self._store.uri):
            # What else the change writes is rewritten where it is committed.
            options = change.writes[0].options
            planned = TransactionalWrite(txn, session, store=self._store).plan(self._data, options, expressions=session)
            for reason in planned.in_plan.reasons:
                raise UnsupportedExpression(
                    reason.message,
                    column=reason.column,
                    hint="Write with Table.write(df), which lets Spark evaluate it",
                ) from reason
        changed = txn.snapshot is None or txn.metadata != txn.snapshot.metadata
        line = codec.encode([txn.metadata]).decode() if changed else None
        return SinkPlan(version=version, metadata=line, spec=planned.spec, in_utc=session.in_utc)

    def _commit(
        self, route: Route, command: WriteCommand, plan: SinkPlan, messages: Sequence[TaskCommitMessage]
    ) -> CommitResult | NothingToDo:
        seen = self._seen(route.log.update(), command)
        if seen is not None:
            return seen
        snapshot = None if plan.version is None else route.log.snapshot(plan.version)
        txn = _Resumed(route.log, route.owner, snapshot, planned=_metadata(plan))
        write = Write(asked=command, data=_RowsElsewhere(self._data, IN_TASK, plan=plan, messages=messages))
        result = run(write, txn, engine=_SomeSession(self._data), store=self._store)
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


def _metadata(plan: SinkPlan) -> Metadata | None:
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


class _SomeSession:
    """An engine that cannot ask its session: what every session means alike is evaluated here, the rest refused.

    Of the zone, tasks see a little: timestamps come to them in it. So where the data has some, what depends on the zone
    is evaluated in UTC, and tasks make sure that this is the session's.
    """

    def __init__(self, data: StructType) -> None:
        self._sees_zone = has_timestamps(data)
        self.in_utc: str | None = None

    def open(self, data: Any, progress: Progress = SILENT) -> WriteInput:
        """Files to be rewritten are rewritten in this process; all else is open."""
        if isinstance(data, Rewrite):
            return InProcessEngine().open(data, progress)
        opened: WriteInput = data
        return opened

    def judged(self, where: str, schema: StructType) -> str | None:
        self.check(where, schema)
        return where

    def understood(self, where: str, schema: StructType) -> str | None:
        return self.judged(where, schema)

    def evaluates(self, text: str, schema: StructType, target: DataType | None = None) -> bool:
        self.check(text, schema)
        return True

    def search(self, search: Search, progress: Progress) -> list[Found]:
        return InProcessEngine().search(search, progress)

    def check(self, sql: str, schema: StructType) -> None:
        try:
            check_portable(sql, schema, zone_known=self._sees_zone)
        except UnsupportedExpression as error:
            raise _elsewhere(error) from error
        if depends_on_zone(sql, schema):
            self.in_utc = sql

    def check_cast(self, source: DataType, target: DataType, path: Path) -> None:
        check_assignable(source, target, path)
        check_parts(source, target, path, self._check_simple)

    def _check_simple(self, source: DataType, target: DataType, path: Path) -> None:
        what = f"{source} as {target}"
        if isinstance(source, DecimalType) and target == STRING:
            raise _elsewhere(UnsupportedExpression(f"{what} depends on the session's ANSI mode", column=dotted(path)))
        if TIMESTAMP in (source, target) and source not in (target, VOID):
            if not self._sees_zone:
                raise _elsewhere(UnsupportedExpression(f"{what} depends on the session's zone", column=dotted(path)))
            self.in_utc = f"{what}, of column {dotted(path)}"


def _elsewhere(error: LakesealError) -> UnsupportedExpression:
    return UnsupportedExpression(
        error.message,
        column=error.column,
        hint='Write with Table.write(df), in a stream by foreachBatch: format("lakeseal") is not told of the session',
    )


def in_session(batches: Iterable[pa.RecordBatch], plan: SinkPlan) -> Iterator[pa.RecordBatch]:
    """The batches as they are; raises if they are of a session in another zone than the plan was made for."""
    for batch in batches:
        zones = {zone for column in batch.schema.types for zone in _zones(column)} if plan.in_utc is not None else ()
        for zone in zones:
            if not is_utc(zone):
                raise _elsewhere(
                    UnsupportedExpression(f"What {plan.in_utc} is depends on the session's zone, which is {zone}")
                )
        yield batch


def _zones(arrow: pa.DataType) -> Iterator[str]:
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        yield arrow.tz
    for place in range(arrow.num_fields):
        yield from _zones(arrow.field(place).type)


class _RowsElsewhere(WriteInput):
    """Rows that tasks elsewhere write, or have written by a plan."""

    def __init__(
        self,
        schema: StructType,
        expressions: Expressions,
        *,
        plan: SinkPlan | None = None,
        messages: Sequence[TaskCommitMessage] = (),
    ) -> None:
        self._schema = schema
        self._expressions = expressions
        self._ran = None if plan is None else plan.spec
        self._messages = messages

    @property
    def schema(self) -> StructType:
        return self._schema

    @property
    def expressions(self) -> Expressions:
        return self._expressions

    def run(self, spec: WriteJobSpec, in_plan: InPlan) -> list[TaskCommitMessage]:
        ran = self._ran
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
