"""What a feature that readers need has left in a table: in its newest version, and in the versions before.

`RemoveTraces` makes a version that can be read without the feature: files that need it are written anew, the same rows,
and the metadata no longer asks for it. Older versions still need it, so the feature stays in the protocol until the log
begins behind them: `last_trace` tells the last of them, `truncate` lets the log begin at a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal.clock import now_ms
from lakeseal.commands.command import CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import file_metrics, removals
from lakeseal.commands.optimize import plan_bins, splits_of
from lakeseal.commands.transactional_write import DEFAULT_TARGET_FILE_SIZE, WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.errors import InvalidArgument, Refused, TableNotFound, UnsupportedFeature, located
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.cleanup import delete_steps, plan
from lakeseal.log.data import data_files
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.timestamps import timestamp_of
from lakeseal.protocol.actions import Action, AddFile, Metadata, RemoveFile
from lakeseal.protocol.feature_list import FEATURES, FeatureKind, FeatureUse
from lakeseal.protocol.features import drop, named
from lakeseal.protocol.paths import LOG_DIR, LogFileKind, parse
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import (
    COLUMN_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

_TYPE_CHANGES = "delta.typeChanges"
_PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "deletionVectors": (TableProperties.deletion_vectors.key,),
    "columnMapping": (TableProperties.column_mapping_mode.key, TableProperties.column_mapping_max_id.key),
    "typeWidening": (TableProperties.type_widening.key,),
    "v2Checkpoint": (TableProperties.checkpoint_policy.key,),
    "timestampNtz": (),
}
_NOTES: Mapping[str, tuple[str, ...]] = {
    "columnMapping": (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS),
    "typeWidening": (_TYPE_CHANGES,),
}
# Parquet files of a table whose columns are found by name cannot have these in a name.
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")


def stable(name: str) -> str:
    return FEATURES[name].stable_name or name


class RemoveTraces(Struct, frozen=True, kw_only=True):
    """One commit, after which the newest version needs the feature no more."""

    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    feature: str

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, snapshot = context.txn, context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        feature = stable(self.feature)
        metadata = _without(snapshot.metadata, feature)
        use = FEATURES[feature].in_use
        if use is not None and use(FeatureUse.of(metadata)):
            raise InvalidArgument(
                f"The table uses the feature {feature}", hint="Drop or change the columns that need it first"
            )
        is_other = metadata != snapshot.metadata
        files = _files(snapshot, feature) if is_other or feature == "deletionVectors" else snapshot.files.slice(0, 0)
        operation = Operation(name="REMOVE FEATURE TRACES", parameters={"featureName": self.feature})
        if is_other:
            txn.update_metadata(metadata)
        if not files.num_rows:
            nothing = None if is_other else "nothing of the newest version needs the feature"
            return PlannedChange(finish=lambda _: ([], operation), nothing=nothing)
        txn.read_files(files)
        splits = splits_of(plan_bins(data_files(files), target=_target(snapshot), all_files=True))
        rewrite = Rewrite.of_bins(snapshot, context.store, splits, ())
        write = FilesToWrite(
            data=rewrite, options=WriteOptions(target_file_size=_target(snapshot), with_row_ids=True), is_optimize=True
        )

        def finish(written: Written) -> tuple[list[Action], Operation]:
            actions: list[Action] = [*removals(files, now_ms=now_ms(), data_change=False), *written]
            return actions, msgspec.structs.replace(operation, metrics=file_metrics(actions))

        return PlannedChange(finish=finish, writes=(write,), rewritten=files.num_rows)


class EmptyCommand(Struct, frozen=True, kw_only=True):
    """A version that says nothing, for a log to begin at."""

    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    def decide(self, context: CommandContext) -> PlannedChange:
        if context.txn.snapshot is None:
            raise TableNotFound("There is no table here")
        return PlannedChange(finish=lambda _: ([], Operation(name="EMPTY COMMIT")))


class FeatureRemoval:
    """What dropping one feature still needs, as the log is."""

    def __init__(self, log: DeltaLog, name: str, *, truncate_history: bool) -> None:
        feature = named(name)
        self.feature, self._log, self._truncates = feature.name, log, truncate_history
        drop(log.snapshot().protocol, feature.name, is_forgotten=True)  # whether there is such a feature to drop
        self.leaves_traces = feature.kind is FeatureKind.READER_WRITER and not feature.leaves_no_trace
        if self.leaves_traces and stable(feature.name) not in _PROPERTIES:
            raise UnsupportedFeature(
                f"The feature {feature.name} is not dropped here", hint="Write the rows to a new table"
            )
        if truncate_history and not self.leaves_traces:
            raise InvalidArgument(
                f"The history knows nothing of {feature.name} that would have to be truncated",
                hint="DROP FEATURE without TRUNCATE HISTORY",
            )

    def needs_another_version(self) -> bool:
        """Whether the newest version is itself the last that needs the feature, so that no log can begin behind it."""
        snapshot = self._log.snapshot()
        trace = last_trace(self._log, self.feature)
        return trace is not None and trace == snapshot.version and self._may_forget(trace) is None

    def forget(self) -> None:
        """Lets the log begin behind the last version that needs the feature, or says when it may."""
        trace = last_trace(self._log, self.feature)
        if trace is None:
            return
        refusal = self._may_forget(trace)
        if refusal is not None:
            raise refusal
        truncate(self._log, trace + 1)

    def _may_forget(self, trace: int) -> Refused | None:
        retention = self._log.snapshot().properties.drop_feature_retention_ms
        since = timestamp_of(self._log, self._log.snapshot(trace))
        moment = datetime.fromtimestamp((since + retention) / 1000, UTC).isoformat(timespec="seconds")
        if self._truncates and since + retention <= now_ms():
            return None
        return Refused(
            f"The newest version can be read without {self.feature}, but versions up to {trace} cannot, so it is not "
            "dropped yet",
            hint=f"From {moment} on, Table.drop_feature({self.feature!r}, truncate_history=True) deletes them from the "
            "log and drops it: ALTER TABLE … DROP FEATURE … TRUNCATE HISTORY",
            table=self._log.table,
        )


def last_trace(log: DeltaLog, name: str) -> int | None:
    """The last version that needs the feature, or whose commit or checkpoint does; None if the log knows of none.
    Commits are read from the newest on."""
    feature = stable(name)
    newest = log.snapshot().version
    first = min((*log.listing().commits, newest))
    found = _last_v2_checkpoint(log) if feature == "v2Checkpoint" else -1
    uses = FEATURES[feature].in_use
    assert uses is not None, "a feature that leaves traces tells what uses it"
    for version in range(newest, max(first, found), -1):
        actions = log.commit_actions(version)
        if feature == "deletionVectors" and any(_has_vector(action) for action in actions):
            return version
        if any(isinstance(action, Metadata) for action in actions):
            before = log.snapshot(version - 1).metadata  # as it was until here
            if uses(FeatureUse.of(before)):
                return version - 1
    oldest = log.snapshot(first)
    if found < first and (uses(FeatureUse.of(oldest.metadata)) or _has_vectors(oldest, feature)):
        return first
    return None if found < 0 else found


def _last_v2_checkpoint(log: DeltaLog) -> int:
    files = (parse(key) for key in log.store.list_keys(LOG_DIR))
    return max((f.version for f in files if f is not None and f.kind is LogFileKind.V2_CHECKPOINT), default=-1)


def _has_vectors(snapshot: Snapshot, feature: str) -> bool:
    return feature == "deletionVectors" and _files(snapshot, feature).num_rows > 0


def _has_vector(action: Action) -> bool:
    return isinstance(action, AddFile | RemoveFile) and action.deletion_vector is not None


def truncate(log: DeltaLog, keep: int) -> None:
    """Lets the log begin at a version: a checkpoint of it, and nothing below."""
    with located(table=log.table):
        write_checkpoint(log, keep, now_ms=now_ms())
        delete_steps(log.store, plan(log.store.list_keys(LOG_DIR), keep))


def _files(snapshot: Snapshot, feature: str) -> pa.Table:
    """Those that are written by it."""
    if feature == "deletionVectors":
        return snapshot.files.filter(snapshot.files["deletionVector"].is_valid())
    return snapshot.files if feature in _NOTES else snapshot.files.slice(0, 0)


def _without(metadata: Metadata, feature: str) -> Metadata:
    kept = {key: value for key, value in metadata.configuration.items() if key not in _PROPERTIES[feature]}
    notes = _NOTES.get(feature)
    if notes is None:
        return msgspec.structs.replace(metadata, configuration=kept)
    schema = _bare(metadata.schema, notes)
    assert isinstance(schema, StructType)
    wrong = next((name for name in schema.names if _NOT_IN_NAMES & set(name)), None)
    if feature == "columnMapping" and wrong is not None:
        raise InvalidArgument(
            "Without column mapping a column cannot be called so", column=wrong, hint="Table.rename_column(…) first"
        )
    return msgspec.structs.replace(metadata, schema_string=schema.to_json(), configuration=kept)


def _bare(data_type: DataType, notes: tuple[str, ...]) -> DataType:
    match data_type:
        case StructType(fields=fields):
            return StructType(
                tuple(StructField(f.name, _bare(f.type, notes), f.nullable, _noted(f.metadata, notes)) for f in fields)
            )
        case ArrayType(element=element, contains_null=nulls):
            return ArrayType(_bare(element, notes), nulls)
        case MapType(key=key, value=value, value_contains_null=nulls):
            return MapType(_bare(key, notes), _bare(value, notes), nulls)
        case _:
            return data_type


def _noted(metadata: Mapping[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in without}


def _target(snapshot: Snapshot) -> int:
    return snapshot.properties.target_file_size or DEFAULT_TARGET_FILE_SIZE
