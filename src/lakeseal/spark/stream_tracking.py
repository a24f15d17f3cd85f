"""The schema that a stream is at, kept where the user says (`schemaTrackingLocation`), as Delta Spark has it.

Without it a stream that is started anew has the table's newest schema, and cannot read what lies before a column was
dropped. With it, it goes on in the schema that it had; where it comes to the version that changes it, the new one is
noted and the stream stops, and the next start goes on from there in the new one. Each change is one small file, which
only one start can write. A place belongs to one query.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lakeseal import typed_json
from lakeseal.errors import SourceChanged, VersionNotFound
from lakeseal.log.changes import first_version_from
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Metadata
from lakeseal.spark.read_options import ReadOptions
from lakeseal.storage import Store, open_store

_SUFFIX = ".json"


class _Noted(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    version: int
    """From which on the metadata is in force."""
    metadata: str
    """As a line of the log."""


class SchemaTracking:
    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def of(cls, options: ReadOptions) -> SchemaTracking | None:
        uri = options.schema_tracking_location
        if uri is None:
            return None
        same_kind = uri.partition(":")[0] == options.store.uri.partition(":")[0]
        return cls(open_store(uri, options.store.storage_options if same_kind else None))

    def started(self, log: DeltaLog, options: ReadOptions) -> Snapshot:
        """The table's newest version, with the metadata that the stream is at."""
        newest = log.snapshot()
        found = self._newest()
        if found is None:
            return _first(log, options, newest)
        version, metadata = found
        if metadata.id != newest.metadata.id:
            raise SourceChanged(
                f"The schema that is kept at {self._store.uri} is of another table",
                table=log.table,
                hint="Give each query a schemaTrackingLocation of its own, and a new one with a new checkpoint",
            )
        return _at(newest, version, metadata)

    def begin(self, started: Snapshot) -> None:
        """Notes where a stream starts, unless it has started before."""
        if self._newest() is None:
            self.note(started.version, started.metadata)

    def note(self, version: int, metadata: Metadata) -> None:
        """The stream has read all before this version, and goes on in this schema."""
        content = _Noted(version=version, metadata=codec.encode([metadata]).decode())
        # Who started first has noted it; another start of the same stream says the same.
        self._store.put_if_absent(f"{version:020}{_SUFFIX}", msgspec.json.encode(content))

    def _newest(self) -> tuple[int, Metadata] | None:
        keys = [key for key in self._store.list_keys() if key.endswith(_SUFFIX)]
        if not keys:
            return None
        noted = typed_json.decode(self._store.get(max(keys)), _Noted)
        (metadata,) = (action for action in codec.decode(noted.metadata.encode()) if isinstance(action, Metadata))
        return noted.version, metadata


def _first(log: DeltaLog, options: ReadOptions, newest: Snapshot) -> Snapshot:
    """The schema at the version that the stream is told to start at, or the newest."""
    version = options.starting_version
    if options.starting_timestamp is not None:
        version = first_version_from(log, options.starting_timestamp)
    if version is None or version >= newest.version:
        return newest
    try:
        return _at(newest, version, log.snapshot(version).metadata)
    except VersionNotFound:
        return newest


def _at(newest: Snapshot, version: int, metadata: Metadata) -> Snapshot:
    if version == newest.version:
        return newest
    state = replace(newest.state, version=version, metadata=metadata)
    return Snapshot.of(newest.table, state, newest.trust)
