"""Targets: where tasks write files that nobody sees yet, and what makes those files visible.

A `Destination` is planned on the driver, once per attempt, and travels to the tasks: how they write, and what the
target was then. The files that they report are `Staged`; they give the steps of a commit sequence, or the part of a
table in a transaction over many. Both are values, the same wherever they are used. Only `Tables` opens tables, and
makes those that are not there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lakeseal.clock import now_ms
from lakeseal.commands.running import compact_behind
from lakeseal.commands.staged_write import PlannedStagedWrite
from lakeseal.commands.transactional_write import TransactionalWrite, WriteOptions, operation_metrics
from lakeseal.commit.alter import new_metadata
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    AlreadyExists,
    ConcurrentModification,
    MetadataChangedException,
    SchemaMismatch,
    SourceNotFound,
    TableNotFound,
)
from lakeseal.files.file_format import FileFormat
from lakeseal.ingest.branch_job import PlannedBranch
from lakeseal.ingest.config import (
    BranchTarget,
    Dataset,
    DirectoryTarget,
    PipelineConfig,
    TableTarget,
    Target,
    place_of,
)
from lakeseal.ingest.merging import (
    ChangingTable,
    TargetMerging,
    apply,
    check_rows,
    deletes_schema,
    published_schema,
    rule_for,
)
from lakeseal.ingest.quality import ERROR_SCHEMA
from lakeseal.ingest.row_changes import ARRIVAL
from lakeseal.ingest.seen import Seen
from lakeseal.ingest.table_merge_step import TableMergeStep
from lakeseal.ingest.unchanged import UNCHANGED
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.engine import InPlan
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.in_process import InProcessEngine
from lakeseal.jobs.job import CommitProtocolSpec, WriteJobSpec, new_protocol
from lakeseal.jobs.staged_commit_protocol import StagedCommitProtocol
from lakeseal.log.maintenance import checkpoint_is_due, maintain
from lakeseal.owner.connect import Owners
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.routing import Route, Router
from lakeseal.owner.transaction import Transaction
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, Metadata
from lakeseal.protocol.actions import Protocol as TableProtocol
from lakeseal.protocol.identity import refuse_given, with_marks
from lakeseal.protocol.schema import LONG, STRING, StructField, StructType
from lakeseal.steps.context import StepContext
from lakeseal.steps.places import JOBS, STAGING, StepPlaces, staging_below
from lakeseal.steps.sequence import Leftover
from lakeseal.steps.step import CommitStep
from lakeseal.steps.table_commit import TableCommitStep
from lakeseal.storage import HasDirectories, StoreSpec
from lakeseal.table import HOOKS

WrittenAction = AddFile | AddCDCFile

_LEFT_BEHIND = (f"{STAGING}/", f"{JOBS}/")


class Provenance(Struct, frozen=True, kw_only=True):
    """Where rows of a target come from."""

    pipeline: str
    dataset: str
    run_id: str
    epoch: int

    @property
    def app_id(self) -> str:
        """Under which a table remembers what it has of the dataset."""
        return f"lakeseal ingest {self.pipeline}: {self.dataset}"

    @property
    def note(self) -> str:
        """For whoever reads a table's history."""
        return msgspec.json.encode({"pipeline": self.pipeline, "dataset": self.dataset, "run": self.run_id}).decode()


class PlannedTable(Struct, frozen=True, kw_only=True):
    """A table as it was when files for it were planned."""

    step: TableCommitStep
    """The commit, without its files."""
    metadata: Metadata
    protocol: TableProtocol
    changed: Metadata | None
    """Its new metadata, if the rows bring columns that it did not have."""
    is_joint: bool
    """Whether the pipeline's ledger decides on its commits, so that watermarks can go with them."""

    def step_with(self, files: Iterable[WrittenAction], given: Iterable[dict[str, int]]) -> TableCommitStep:
        """`given` is what tasks gave out of identity columns."""
        changed = self.changed
        for marks in given:
            changed = with_marks(changed or self.metadata, marks)
        actions: list[Action] = [*([] if changed is None else [changed]), *files]
        return replace(self.step, actions=codec.encode(actions).decode(), operation=_operation([self], files))


class PlannedMerge(Struct, frozen=True, kw_only=True):
    """What is to become of rows that wait in a table."""

    step: TableMergeStep
    schema: str
    """Of the target, as it was."""
    is_joint: bool


class Destination(Struct, frozen=True, kw_only=True):
    """Where the rows of one attempt at a dataset go."""

    spec: WriteJobSpec
    table: PlannedTable | None = None
    """None: a plain directory."""
    merge: PlannedMerge | None = None
    """Where rows do not only come beside others: `table` is the one in which they wait for it."""
    branch: PlannedBranch | None = None
    """Where the target is a directory on a branch."""

    @property
    def uri(self) -> str:
        if self.merge is not None:
            return self.merge.step.merging.target
        if self.branch is not None:
            return self.branch.target.repository
        return self.spec.store.uri if self.table is None else self.table.step.table

    @property
    def is_joint(self) -> bool:
        if self.merge is not None:
            return self.merge.is_joint
        return self.table is not None and self.table.is_joint

    @property
    def is_drivers(self) -> bool:
        """Whether only the driver can publish it."""
        return self.merge is not None or self.branch is not None

    @property
    def schema(self) -> StructType | None:
        """Of the table that there is."""
        if self.merge is not None:
            return StructType.from_json(self.merge.schema)
        return None if self.table is None else StructType.from_json(self.table.metadata.schema_string or "")

    def staged(self, messages: Iterable[TaskCommitMessage]) -> Staged:
        """The files that tasks report; of a branch, see `branch_job`."""
        protocol = new_protocol(self.spec)
        if self.table is None:
            assert isinstance(protocol, StagedCommitProtocol)
            renames = tuple(protocol.steps(messages))
            return Staged(destination=self, renames=renames, leftovers=protocol.leftovers)
        assert isinstance(protocol, DelayedCommitProtocol)
        leftovers: tuple[Leftover, ...] = ()
        if self.merge is not None:
            target, waiting = self.merge.step.merging.target, self.spec.store.uri
            leftovers = (Leftover(uri=target, prefix=f"{STAGING}/{waiting.rstrip('/').rpartition('/')[2]}/"),)
        told = tuple(messages)
        given = tuple(message.identity for message in told if message.identity)
        return Staged(destination=self, files=tuple(protocol.commit_job(told)), leftovers=leftovers, given=given)


class Staged(Struct, frozen=True, kw_only=True):
    """Files that tasks have written to a destination."""

    destination: Destination
    files: tuple[WrittenAction, ...] = ()
    """Of a table, as actions of its log."""
    renames: tuple[CommitStep, ...] = ()
    """Of a directory."""
    leftovers: tuple[Leftover, ...] = ()
    """To remove once the steps are done."""
    given: tuple[dict[str, int], ...] = ()
    """Of identity columns: the last value that each task gave out."""

    @property
    def is_empty(self) -> bool:
        merge = self.destination.merge
        if merge is not None and merge.step.merging.mode == "replace":
            return False  # by nothing, if there is nothing
        return not self.files and not self.renames

    def waiting(self) -> tuple[CommitStep, ...]:
        """What makes files that are to be merged a version of the table in which they wait: nobody else sees that."""
        table = self.destination.table
        if self.destination.merge is None or table is None or not self.files:
            return ()
        return (table.step_with(self.files, self.given),)

    def steps(self) -> tuple[CommitStep, ...]:
        """What makes the files visible."""
        if self.destination.merge is not None:
            return (self.destination.merge.step,)
        table = self.destination.table
        return self.renames if table is None else (table.step_with(self.files, self.given),)


class Tables:
    """The tables that a pipeline writes to. May be shared by threads."""

    def __init__(self, owner: OwnerEndpoint, context: StepContext | None = None) -> None:
        """`owner` is the pipeline's ledger; branches are opened by the context."""
        self.owner, self._context = owner, context
        self._routes: dict[str, Route] = {}

    def plan(
        self,
        target: Target,
        schema: StructType,
        provenance: Provenance,
        *,
        what: str = "",
        arrival: bool = False,
        order_by: str | None = None,
    ) -> tuple[Destination, InPlan]:
        """Where rows of this schema go, and what Spark must do to them before. A table that is not there is made.
        `what` tells tables of one dataset apart. Of rows that are to be merged: whether each says when it came, and
        what orders them."""
        if isinstance(target, DirectoryTarget):
            return _directory(target, schema), InPlan()
        if isinstance(target, BranchTarget):
            assert self._context is not None, "the driver plans"
            branch, spec = PlannedBranch.begun(target, schema, self._context, provenance.note)
            return Destination(spec=spec, branch=branch), InPlan()
        if target.mode != "append":
            return self._plan_merge(target, schema, provenance, arrival=arrival, order_by=order_by)
        store = store_of(target)
        route = self._routes[store.uri] = self._opened(target, schema)
        txn = OptimisticTransaction.begin(route.log, route.owner)
        write = TransactionalWrite(txn, InProcessEngine(), store=store)
        planned = write.plan(schema, WriteOptions(merge_schema=target.merge_schema))
        snapshot = txn.snapshot
        assert snapshot is not None
        refuse_given(snapshot.schema, schema.names)
        operation = Operation(
            name="WRITE",
            parameters={"mode": "Append", "partitionBy": list(snapshot.partition_columns)},
            user_metadata=provenance.note,
        )
        table = PlannedTable(
            step=TableCommitStep.of(snapshot, (), operation, app_id=provenance.app_id + what),
            metadata=snapshot.metadata,
            protocol=snapshot.protocol,
            changed=None if txn.metadata == snapshot.metadata else txn.metadata,
            is_joint=self._is_ours(route),
        )
        return Destination(spec=planned.spec, table=table), planned.in_plan

    def _plan_merge(
        self, target: TableTarget, schema: StructType, provenance: Provenance, *, arrival: bool, order_by: str | None
    ) -> tuple[Destination, InPlan]:
        rule = rule_for(target, schema, order_by)
        published = published_schema(target, rule, schema)
        store = store_of(target)
        routes = [self._opened(target, published)]
        self._routes[store.uri] = routes[0]
        beside = _deletes(target)
        if beside is not None:
            routes.append(self._opened(beside, deletes_schema(rule, schema)))
            self._routes[store_of(beside).uri] = routes[1]
        snapshots = [route.log.snapshot() for route in routes]
        snapshot = snapshots[0]
        # One of them may have had nothing to commit under the last number.
        seen = [one.txns[provenance.app_id].version for one in snapshots if provenance.app_id in one.txns]
        waiting = waiting_room(target, provenance.run_id)
        merging = TargetMerging(
            mode=target.mode,  # type: ignore[arg-type]  # append is planned elsewhere
            rule=rule,
            columns=tuple(name for name in published.names if schema.field(name) is not None),
            target=snapshot.table,
            deletes=None if beside is None else routes[1].log.table,
            waiting=waiting.uri,
            merge_schema=target.merge_schema,
            remember_deletes_seconds=target.remember_deletes_seconds,
            note=provenance.note,
        )
        step = TableMergeStep(merging=merging, app_id=provenance.app_id, app_version=max(seen, default=-1) + 1)
        own = (StructField(ARRIVAL, LONG), *((StructField(UNCHANGED, STRING),) if rule.is_feed else ()))
        rows = StructType((*schema.fields, *own)) if arrival else schema
        destination, in_plan = self.plan(waiting, rows, provenance, what=", waiting")
        planned = PlannedMerge(
            step=step, schema=snapshot.schema.to_json(), is_joint=all(self._is_ours(route) for route in routes)
        )
        return replace(destination, merge=planned), in_plan

    def _is_ours(self, route: Route) -> bool:
        return isinstance(route.owner, ManagedOwner) and route.owner.endpoint is self.owner

    def staged(self, destination: Destination, messages: Sequence[TaskCommitMessage]) -> Staged:
        """The files that tasks report, ready to become visible; nobody sees anything of them yet."""
        if destination.branch is not None:
            assert self._context is not None, "the driver publishes what goes to branches"
            step = destination.branch.staged(messages, self._context)
            return Staged(destination=destination, renames=() if step is None else (step,))
        staged = destination.staged(messages)
        for waiting in staged.waiting():
            assert self._context is not None, "the driver publishes what is merged"
            waiting.execute(self._context)
            if destination.merge is not None and not destination.is_joint:
                check_rows(destination.merge.step.merging, destination.spec.store)
        return staged

    def errors(self, dataset: Dataset, provenance: Provenance) -> Destination:
        """The dataset's error table, which is made now if it is not there."""
        destination, _ = self.plan(_errors(dataset), ERROR_SCHEMA, provenance, what=", errors")
        if destination.spec.table.names != ERROR_SCHEMA.names:
            raise SchemaMismatch(
                "The table for errors has other columns than an error table",
                table=destination.uri,
                hint="Name another by error_table",
            )
        return destination

    def check(self, staged: Staged) -> None:
        """`MetadataChangedException` if the table has changed so that the files do not fit it any more. Whoever commits
        them checks it again; known before the steps are recorded, nobody has to abort them."""
        planned = staged.destination.table
        if planned is None or staged.destination.merge is not None:
            return
        newest = self._route(staged.destination.spec.store).log.update()
        step = planned.step
        if newest is None or step.written_for != TableCommitStep.of(newest, (), step.operation, app_id="").written_for:
            raise _changed(step.table)

    def join(self, staged: Sequence[Staged], transaction: Transaction) -> bool:
        """States what all of these add to their table; the transaction commits it. False if that is nothing."""
        merge = staged[0].destination.merge
        if merge is not None:
            merging, waiting = merge.step.merging, staged[0].destination.spec.store
            stores = [replace(waiting, uri=uri) for uri in merging.tables]
            parts = [self._part(store, transaction) for store in stores]
            return apply(merging, waiting, parts[0], parts[1] if len(parts) > 1 else None)
        route = self._routes[staged[0].destination.spec.store.uri]
        assert isinstance(route.owner, ManagedOwner)
        part = transaction.join(route.log, route.owner)
        assert part.snapshot is not None
        plans = [one.destination.table for one in staged if one.destination.table is not None]
        for planned in plans:
            # What only adds rows may have come in between.
            if (part.snapshot.metadata, part.snapshot.protocol) != (planned.metadata, planned.protocol):
                raise _changed(planned.step.table)
        for changed in (planned.changed for planned in plans if planned.changed is not None):
            part.update_metadata(changed)
        for marks in (marks for one in staged for marks in one.given):
            part.give_out(marks)
        files = [file for one in staged for file in one.files]
        part.commit(files, _operation(plans, files))
        return True

    def _part(self, store: StoreSpec, transaction: Transaction) -> ChangingTable:
        route = self._route(store)
        assert isinstance(route.owner, ManagedOwner)
        return ChangingTable(txn=transaction.join(route.log, route.owner), store=store)

    def is_joint(self, target: Target) -> bool:
        """Whether the pipeline's ledger decides, or will decide, on its commits."""
        if not isinstance(target, TableTarget):
            return False
        router = Router(store_of(target).open(), Owners(self.owner))
        return target.owner == "ledger" if router.snapshot() is None else self._is_ours(router.route())

    def seen(self, stores: Mapping[str, StoreSpec], transaction: Transaction | None = None) -> dict[str, Seen]:
        """Tables to be read whole, by name: as the transaction is about to leave them if it has them."""
        found = {}
        for name, store in stores.items():
            try:
                route = self._route(store)
                newest = route.log.update()
            except TableNotFound:
                newest = None
            if newest is None:
                raise SourceNotFound(f"{name!r} has not been published yet", table=store.uri)
            if transaction is not None and isinstance(route.owner, ManagedOwner) and self._is_ours(route):
                part = transaction.join(route.log, route.owner)
                part.read_whole_table()
                found[name] = Seen(store=store, part=part)
            else:
                found[name] = Seen(store=store, fixed=newest)
        return found

    def maintain(self, dataset: Dataset, destination: Destination, *, has_errors: bool) -> int | None:
        """After the steps: checkpoints where they are due, also of the error table if it has got rows; a job's branch
        goes. The version of the target, if that is a table."""
        if has_errors:
            self._maintain(_errors(dataset))
        if destination.branch is not None and self._context is not None:
            destination.branch.end(self._context)
        return self._maintain(dataset.target) if isinstance(dataset.target, TableTarget) else None

    def _maintain(self, target: TableTarget) -> int | None:
        route = self._route(store_of(target))
        log = route.log
        newest = log.update()
        if newest is not None:
            txn = OptimisticTransaction.begin(log, route.owner, hooks=HOOKS)
            compact_behind(newest, txn, engine=InProcessEngine(), store=store_of(target))
            newest = log.update()
        if newest is not None and checkpoint_is_due(newest):
            maintain(log, newest, now_ms=now_ms())
        return None if newest is None else newest.version

    def _route(self, store: StoreSpec) -> Route:
        if store.uri not in self._routes:
            self._routes[store.uri] = Router(store.open(), Owners(self.owner)).route()
        return self._routes[store.uri]

    def _opened(self, target: TableTarget, schema: StructType) -> Route:
        creator = self.owner if target.owner == "ledger" else None
        router = Router(store_of(target).open(), Owners(self.owner), creator=creator)
        if router.snapshot() is None:
            txn = OptimisticTransaction.begin(router.route().log, router.route().owner, hooks=HOOKS)
            txn.update_metadata(new_metadata(schema, target.partition_by, target.properties, created_ms=now_ms()))
            with suppress(AlreadyExists, ConcurrentModification):  # somebody was faster, and as good
                txn.commit([], Operation(name="CREATE TABLE", parameters={"partitionBy": list(target.partition_by)}))
            router.reopen()
        return router.route()


def _directory(target: DirectoryTarget, schema: StructType) -> Destination:
    form = FileFormat(name=target.format, compression=target.compression, header=target.format == "csv")
    planned = PlannedStagedWrite(store_of(target), schema, format=form, partition_by=target.partition_by)
    return Destination(spec=planned.spec)


def _operation(plans: Sequence[PlannedTable], files: Iterable[WrittenAction]) -> Operation:
    """With what the notes of all of them say alike."""
    operations = [planned.step.operation for planned in plans]
    notes = [msgspec.json.decode(one.user_metadata or "{}", type=dict[str, str]) for one in operations]
    alike = {name: said for name, said in notes[0].items() if all(note.get(name) == said for note in notes)}
    said = msgspec.json.encode(alike).decode()
    return replace(operations[0], metrics=operation_metrics(files), user_metadata=said)


def _changed(table: str) -> MetadataChangedException:
    return MetadataChangedException("The table's metadata changed while its rows were being written", table=table)


def waiting_room(target: Target, run_id: str) -> TableTarget:
    """Below the target: a table in which rows wait for Spark to transform them. Gone after the run."""
    uri = f"{_room(target)}/{STAGING}/{run_id}-{uuid.uuid4().hex[:8]}"
    return TableTarget(uri=uri, owner="none", storage_options=target.storage_options)


def _room(target: Target) -> str:
    """Below which tasks may leave what nobody is to see: the target itself, or what is beside a repository."""
    place = place_of(target).rstrip("/")
    return f"{place}_staging" if isinstance(target, BranchTarget) else place


def clean_up(target: Target) -> None:
    """What runs have left in the staging areas below the target."""
    store = replace(store_of(target), uri=_room(target)).open()
    keys = [meta.key for prefix in _LEFT_BEHIND for meta in store.list(prefix, recursive=True)]
    if keys:
        store.delete(keys)
    if isinstance(store, HasDirectories):
        for prefix in filter(store.has_directory, _LEFT_BEHIND):
            store.prune(prefix)


def places_of(config: PipelineConfig) -> StepPlaces:
    """What the steps of a pipeline may reach: its targets, its tables of errors, and the staging below them."""
    tables: list[str] = []
    directories: list[str] = []
    repositories: list[str] = []
    for dataset in config.datasets:
        tables += tables_of(dataset)
        if isinstance(dataset.target, DirectoryTarget):
            directories.append(place_of(dataset.target))
        if isinstance(dataset.target, BranchTarget):
            repositories.append(dataset.target.repository)
    staging = [place for target in (*tables, *directories) for place in staging_below(target)]
    return StepPlaces(
        tables=tuple(tables),
        directories=tuple(directories),
        repositories=tuple(repositories),
        staging=tuple(staging),
    )


def tables_of(dataset: Dataset) -> tuple[str, ...]:
    """All that a dataset writes to."""
    target = dataset.target
    if not isinstance(target, TableTarget):
        return (dataset.errors_uri,)
    return (target.uri, *([target.deletes_uri] if target.remembers_deletes else []), dataset.errors_uri)


def error_spec(dataset: Dataset, spec: WriteJobSpec) -> WriteJobSpec:
    """How tasks write to an error table that may not be there yet: it is made only if there is anything for it."""
    store = store_of(_errors(dataset))
    return WriteJobSpec(
        store=store,
        protocol=CommitProtocolSpec(path=store.uri),
        schema=ERROR_SCHEMA.to_json(),
        log_level=spec.log_level,
    )


def _errors(dataset: Dataset) -> TableTarget:
    """Its owner is the file system or the ledger as the target's is, so that both can go together."""
    target = dataset.target
    owner: Literal["ledger", "none"] = target.owner if isinstance(target, TableTarget) else "none"
    return TableTarget(uri=dataset.errors_uri, owner=owner, storage_options=target.storage_options)


def _deletes(target: TableTarget) -> TableTarget | None:
    if not target.remembers_deletes:
        return None
    # Keys and sequences may grow with the target's.
    properties = {"delta.enableTypeWidening": "true"} if target.merge_schema else {}
    return TableTarget(
        uri=target.deletes_uri, owner=target.owner, storage_options=target.storage_options, properties=properties
    )


def store_of(target: Target) -> StoreSpec:
    return StoreSpec(uri=place_of(target), storage_options=target.storage_options)
