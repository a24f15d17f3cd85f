"""Targets: files are written where nobody can see them, and it is known what makes them visible.

`TableStage` and `DirectoryStage` say how tasks write (`spec`), take what they report (`collect`), and give either the
part of a table in a transaction over many (`join`), or the steps of a commit sequence (`steps`). A stage serves one
attempt: the next one begins with another.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol

import msgspec

from lakeseal.commit.alter import new_metadata
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction, now_ms
from lakeseal.errors import AlreadyExists, ConcurrentModification, MetadataChangedException, SchemaMismatch
from lakeseal.formats.file_format import FileFormat
from lakeseal.ingest.config import Dataset, DirectoryTarget, PipelineConfig, TableTarget, Target
from lakeseal.ingest.quality import ERROR_SCHEMA
from lakeseal.log.maintenance import checkpoint_is_due, maintain
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.connect import Owners
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.routing import Route, Router
from lakeseal.owner.transaction import JoinedTransaction, Transaction
from lakeseal.protocol.actions import Action, Metadata
from lakeseal.protocol.actions import Protocol as TableProtocol
from lakeseal.protocol.schema import StructType
from lakeseal.steps.places import JOBS, STAGING, Places, staging_below
from lakeseal.steps.step import CommitStep
from lakeseal.steps.table_commit import TableCommitStep
from lakeseal.storage import StoreSpec
from lakeseal.table import HOOKS, create
from lakeseal.write.file_commit_protocol import TaskCommitMessage
from lakeseal.write.job import CommitProtocolSpec, WriteJobSpec
from lakeseal.write.runner import InPlan, InProcessRunner
from lakeseal.write.staged_write import PlannedStagedWrite
from lakeseal.write.transactional_write import TransactionalWrite, WriteOptions, operation_metrics

_LEFT_BEHIND = (f"{STAGING}/", f"{JOBS}/")

WrittenFor = tuple[Metadata, TableProtocol]
"""What files of a table depend on."""


class TableStage:
    """Rows on their way into a table, which is made if there is none."""

    def __init__(
        self,
        target: TableTarget,
        schema: StructType,
        *,
        owner: OwnerEndpoint,
        app_id: str,
        note: dict[str, Any],
    ) -> None:
        """`owner` is the pipeline's ledger. `note` goes to the commit's user metadata."""
        self._target, self._app_id, self._note = target, app_id, note
        self._owner = owner
        self.store = StoreSpec(uri=target.uri, storage_options=target.storage_options)
        self._route = self._open(schema)
        self._txn = OptimisticTransaction.begin(self._route.log, self._route.owner)
        write = TransactionalWrite(self._txn, InProcessRunner(), store=self.store)
        self._planned = write.plan(schema, WriteOptions(merge_schema=target.merge_schema))
        self._adds: list[Any] = []

    def _open(self, schema: StructType) -> Route:
        creator = self._owner if self._target.owner == "ledger" else None
        router = Router(self.store.open(), Owners(self._owner), creator=creator)
        if router.snapshot() is None:
            txn = OptimisticTransaction.begin(router.route().log, router.route().owner, hooks=HOOKS)
            target = self._target
            txn.update_metadata(new_metadata(schema, target.partition_by, target.properties, created_ms=now_ms()))
            with suppress(AlreadyExists, ConcurrentModification):  # somebody was faster, and as good
                txn.commit([], Operation(name="CREATE TABLE", parameters={"partitionBy": list(target.partition_by)}))
            router.reopen()
        return router.route()

    @property
    def snapshot(self) -> Snapshot:
        assert self._txn.snapshot is not None
        return self._txn.snapshot

    @property
    def spec(self) -> WriteJobSpec:
        return self._planned.spec

    @property
    def in_plan(self) -> InPlan:
        return self._planned.in_plan

    @property
    def is_joint(self) -> bool:
        """Whether the pipeline's ledger decides on the table's commits, so that watermarks can go with them."""
        owner = self._route.owner
        return isinstance(owner, ManagedOwner) and owner.endpoint is self._owner

    def collect(self, messages: Iterable[TaskCommitMessage]) -> None:
        self._adds = self._planned.collect(messages)

    @property
    def is_empty(self) -> bool:
        return not self._adds

    @property
    def table(self) -> str:
        return self._route.log.table

    def join(self, transaction: Transaction) -> JoinedTransaction:
        """States what this dataset adds; the transaction commits it."""
        assert isinstance(self._route.owner, ManagedOwner)
        part = transaction.join(self._route.log, self._route.owner)
        assert part.snapshot is not None
        # What only adds rows may have come in between.
        self.check((part.snapshot.metadata, part.snapshot.protocol))
        if self.changes_metadata:
            part.update_metadata(self._txn.metadata)
        part.commit(self._adds, self._operation())
        return part

    def check(self, other: WrittenFor) -> None:
        """That files for the table as it was at another time are as good as those of this stage."""
        if other != self.written_for:
            raise MetadataChangedException(
                "The table's metadata changed while its rows were being written", table=self.table
            )

    def steps(self) -> list[CommitStep]:
        actions: list[Action] = [*([self._txn.metadata] if self.changes_metadata else []), *self._adds]
        return [TableCommitStep.of(self.snapshot, actions, self._operation(), app_id=self._app_id)]

    def leftovers(self) -> Sequence[tuple[str, str]]:
        return ()

    def maintain(self) -> int | None:
        """After the steps: the table's version, with a checkpoint where one is due."""
        newest = self._route.log.update()
        if newest is not None and checkpoint_is_due(newest):
            maintain(self._route.log, newest, now_ms=now_ms())
        return None if newest is None else newest.version

    @property
    def changes_metadata(self) -> bool:
        return self._txn.metadata != self.snapshot.metadata

    @property
    def written_for(self) -> WrittenFor:
        return self.snapshot.metadata, self.snapshot.protocol

    def _operation(self) -> Operation:
        return Operation(
            name="WRITE",
            parameters={"mode": "Append", "partitionBy": list(self.snapshot.partition_columns)},
            metrics=operation_metrics(self._adds),
            user_metadata=msgspec.json.encode(self._note).decode(),
        )


class DirectoryStage:
    """Rows on their way into a plain directory."""

    in_plan = InPlan()

    def __init__(self, target: DirectoryTarget, schema: StructType, *, job_id: str | None = None) -> None:
        """With the `job_id` of another one, it is that one's, in another process."""
        store = StoreSpec(uri=target.path, storage_options=target.storage_options)
        form = FileFormat(name=target.format, compression=target.compression, header=target.format == "csv")
        self._planned = PlannedStagedWrite(store, schema, format=form, partition_by=target.partition_by, job_id=job_id)
        self._messages: list[TaskCommitMessage] = []

    @property
    def spec(self) -> WriteJobSpec:
        return self._planned.spec

    def collect(self, messages: Iterable[TaskCommitMessage]) -> None:
        self._messages = list(messages)

    @property
    def is_empty(self) -> bool:
        return not self._planned.files(self._messages)

    def steps(self) -> list[CommitStep]:
        return self._planned.steps(self._messages)

    def leftovers(self) -> Sequence[tuple[str, str]]:
        return [(leftover.uri, leftover.prefix) for leftover in self._planned.leftovers]


class Stage(Protocol):
    """What a run needs of a target."""

    @property
    def spec(self) -> WriteJobSpec: ...

    @property
    def in_plan(self) -> InPlan: ...

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to make visible."""

    def collect(self, messages: Iterable[TaskCommitMessage]) -> None: ...

    def steps(self) -> list[CommitStep]: ...

    def leftovers(self) -> Sequence[tuple[str, str]]:
        """(Store, directory) to remove once the steps are done."""


class RawStage:
    """Rows as they were extracted, for Spark to transform: a table below the target, gone after the run."""

    def __init__(self, target: Target, schema: StructType, *, run_id: str) -> None:
        uri = f"{_place(target).rstrip('/')}/{STAGING}/{run_id}-{uuid.uuid4().hex[:8]}"
        self._table = create(uri, schema, storage_options=target.storage_options)
        self._txn = OptimisticTransaction.begin(self._table._log, FilesystemOwner(self._table.spec.open()))
        self._planned = TransactionalWrite(self._txn, InProcessRunner(), store=self._table.spec).plan(schema)

    @property
    def spec(self) -> WriteJobSpec:
        return self._planned.spec

    def collect(self, messages: Iterable[TaskCommitMessage]) -> None:
        self._txn.commit(self._planned.collect(messages), Operation(name="WRITE"))

    def to_spark(self, spark: Any) -> Any:
        return self._table.to_spark(spark)

    @staticmethod
    def clean_up(target: Target) -> None:
        """Of all runs."""
        store = StoreSpec(uri=_place(target), storage_options=target.storage_options).open()
        keys = [meta.key for prefix in _LEFT_BEHIND for meta in store.list(prefix, recursive=True)]
        if keys:
            store.delete(keys)


def open_stage(
    dataset: Dataset,
    schema: StructType,
    *,
    owner: OwnerEndpoint,
    app_id: str,
    note: dict[str, Any],
) -> Stage:
    target = dataset.target
    if isinstance(target, TableTarget):
        return TableStage(target, schema, owner=owner, app_id=app_id, note=note)
    return DirectoryStage(target, schema)


def places_of(config: PipelineConfig) -> Places:
    """What the steps of a pipeline may reach: its targets, its tables of errors, and the staging below them."""
    tables: list[str] = []
    directories: list[str] = []
    for dataset in config.datasets:
        (tables if isinstance(dataset.target, TableTarget) else directories).append(_place(dataset.target))
        tables.append(dataset.errors_uri)
    staging = [place for target in (*tables, *directories) for place in staging_below(target)]
    return Places(tables=tuple(tables), directories=tuple(directories), staging=tuple(staging))


def _place(target: Target) -> str:
    return target.uri if isinstance(target, TableTarget) else target.path


def error_target(dataset: Dataset) -> TableTarget:
    """Its owner is the file system or the ledger as the target's is, so that both can go together."""
    target = dataset.target
    owner: Literal["ledger", "none"] = target.owner if isinstance(target, TableTarget) else "none"
    return TableTarget(uri=dataset.errors_uri, owner=owner, storage_options=target.storage_options)


def error_stage(dataset: Dataset, *, owner: OwnerEndpoint, app_id: str, note: dict[str, Any]) -> TableStage:
    stage = TableStage(error_target(dataset), ERROR_SCHEMA, owner=owner, app_id=app_id, note=note)
    if stage.snapshot.schema.names != ERROR_SCHEMA.names:
        raise SchemaMismatch(
            "The table for errors has other columns than an error table",
            table=stage.table,
            hint="Name another by error_table",
        )
    return stage


def error_spec(dataset: Dataset, spec: WriteJobSpec) -> WriteJobSpec:
    """How tasks write to an error table that may not be there yet: it is made only if there is anything for it."""
    store = StoreSpec(uri=dataset.errors_uri, storage_options=dataset.target.storage_options)
    return WriteJobSpec(
        store=store,
        protocol=CommitProtocolSpec(path=store.uri),
        schema=ERROR_SCHEMA.to_json(),
        log_level=spec.log_level,
    )
