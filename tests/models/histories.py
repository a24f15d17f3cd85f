"""Random histories of a table, for property tests (needs hypothesis).

A history is a list of commits, each a list of actions that a writer could have made at that point: files are added,
removed and added again under the same path, get deletion vectors, partition values and statistics; transactions,
domains, metadata and the protocol change. No data files go with it: a history is about the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from lakeseal.protocol.paths import commit_path
from lakeseal.protocol.schema import StructType
from lakeseal.storage.base import Store

Commits = list[list[Action]]

START_MS = 1_700_000_000_000
"""When version 0 happened; later ones follow a second apart."""

_FEATURES = ("deletionVectors", "domainMetadata", "v2Checkpoint")
_FIELDS = {"id": "long", "name": "string", "at": "timestamp", "price": "decimal(10,2)", "day": "date", "kind": "string"}
_PARTITIONS = ("day", "kind")
_KINDS = ("a", "b c", "ü/ß", "100%", None)
_PATHS = ("part-{}.parquet", "day=2024-01-01/part-{}%20x.parquet", "s3://other/bucket/part-{}.parquet")


def schema(*, mapped: bool = False) -> StructType:
    """Columns of several types; `mapped` gives them other names in files."""
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"col-{n}"} if mapped else {},
        }
        for n, (name, kind) in enumerate(_FIELDS.items(), 1)
    ]
    return StructType.from_json({"type": "struct", "fields": fields})


def write_history(store: Store, commits: Sequence[Sequence[Action]], start: int = 0) -> None:
    for version, actions in enumerate(commits, start):
        assert store.put_if_absent(commit_path(version), codec.encode(actions))


@st.composite
def histories(
    draw: st.DrawFn, *, commits: int = 20, configuration: dict[str, str] | None = None, mapped: bool | None = None
) -> Commits:
    table = _Table(draw, dict(configuration or {}), draw(st.booleans()) if mapped is None else mapped)
    made = [table.created()]
    made += [table.changed(version) for version in range(1, draw(st.integers(1, commits)))]
    return made


class _Table:
    def __init__(self, draw: st.DrawFn, configuration: dict[str, str], mapped: bool) -> None:
        self._draw = draw
        self._schema = schema(mapped=mapped)
        if mapped:
            configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "6"}
        features = (*_FEATURES, "columnMapping") if mapped else _FEATURES
        readers = tuple(name for name in features if name != "domainMetadata")
        self._protocol = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=readers, writer_features=features
        )
        self._metadata = Metadata(
            id="b5a1d1a4-7f0b-4b5e-9d55-6c2f0f3d7a11",
            schema_string=self._schema.to_json(),
            partition_columns=_PARTITIONS if draw(st.booleans()) else (),
            configuration=dict(configuration),
            created_time=START_MS,
        )
        self._live: dict[tuple[str, str | None], AddFile] = {}
        self._gone: dict[tuple[str, str | None], AddFile] = {}
        self._count = 0

    def created(self) -> list[Action]:
        return [self._info(0), self._protocol, self._metadata, *self._some(self._new_file, 0, 4)]

    def changed(self, version: int) -> list[Action]:
        kinds = self._draw(
            st.lists(st.sampled_from(("add", "add", "remove", "again", "vector", "other")), min_size=1, max_size=4)
        )
        actions: list[Action] = [self._info(version)]
        touched: set[str] = set()
        for kind in dict.fromkeys(kinds) if kinds.count("other") > 1 else kinds:
            match kind:
                case "add":
                    added = self._new_file()
                    touched.add(added.path)
                    actions.append(added)
                case "remove":
                    actions += self._removed(version, touched)
                case "again":
                    actions += self._added_again(touched)
                case "vector":
                    actions += self._with_vector(version, touched)
                case "other":
                    actions += self._other(version)
        return actions

    def _some(self, make: Any, least: int, most: int) -> list[Action]:
        return [make() for _ in range(self._draw(st.integers(least, most)))]

    @staticmethod
    def _info(version: int) -> CommitInfo:
        return CommitInfo(timestamp=START_MS + version * 1000, operation="WRITE", txn_id=f"txn-{version}")

    def _new_file(self) -> AddFile:
        n, self._count = self._count, self._count + 1
        partitions = {}
        if self._metadata.partition_columns:
            values = {"day": f"2024-01-{1 + n % 28:02d}", "kind": self._draw(st.sampled_from(_KINDS))}
            partitions = {self._physical(name): value for name, value in values.items()}
        add = AddFile(
            path=self._draw(st.sampled_from(_PATHS)).format(n),
            partition_values=partitions,
            size=1000 + n,
            modification_time=START_MS + n,
            data_change=True,
            stats=self._stats(n) if self._draw(st.integers(0, 9)) else None,
            tags={"made": "by hand", "none": None} if n % 5 == 0 else None,
            base_row_id=n * 100 if n % 3 == 0 else None,
            default_row_commit_version=n if n % 3 == 0 else None,
        )
        if self._draw(st.integers(0, 9)) == 0:
            add = msgspec.structs.replace(add, unknown={"fromTheFuture": {"n": [n, None]}})
        self._live[add.path, None] = add
        return add

    def _stats(self, n: int) -> str:
        low = {"id": n, "name": f"n{n}", "at": f"2024-01-01T00:00:{n % 60:02d}.123Z", "price": n + 0.25}
        high = {**low, "id": n + 9, "price": n + 0.75}
        counts = dict.fromkeys(low, 0)
        stats = {"numRecords": 10 + n, "minValues": low, "maxValues": high, "nullCount": counts, "tightBounds": True}
        return msgspec.json.encode(
            {k: self._renamed(v) if isinstance(v, dict) else v for k, v in stats.items()}
        ).decode()

    def _renamed(self, values: dict[str, Any]) -> dict[str, Any]:
        return {self._physical(name): value for name, value in values.items()}

    def _physical(self, name: str) -> str:
        field = self._schema.field(name)
        assert field is not None
        return field.physical_name

    def _pick(
        self, files: dict[tuple[str, str | None], AddFile], touched: set[str]
    ) -> tuple[tuple[str, str | None], AddFile] | None:
        free = sorted((k for k in files if k[0] not in touched), key=str)
        if not free:
            return None
        place = self._draw(st.sampled_from(free))
        touched.add(place[0])
        return place, files.pop(place)

    def _remove(self, add: AddFile, version: int) -> RemoveFile:
        return RemoveFile(
            path=add.path,
            data_change=True,
            deletion_timestamp=START_MS + version * 1000,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
            deletion_vector=add.deletion_vector,
            tags=add.tags,
        )

    def _removed(self, version: int, touched: set[str]) -> list[Action]:
        picked = self._pick(self._live, touched)
        if picked is None:
            return []
        place, add = picked
        self._gone[place] = add
        return [self._remove(add, version)]

    def _added_again(self, touched: set[str]) -> list[Action]:
        """Under the key it had, or a live file once more with other words, as a writer of statistics does."""
        files = self._gone if self._draw(st.booleans()) else self._live
        picked = self._pick(files, touched)
        if picked is None:
            return []
        place, add = picked
        if any(path == place[0] for path, _ in self._live):
            self._gone[place] = add
            return []
        add = msgspec.structs.replace(add, modification_time=add.modification_time + 1)
        self._live[place] = add
        return [add]

    def _with_vector(self, version: int, touched: set[str]) -> list[Action]:
        picked = self._pick(self._live, touched)
        if picked is None:
            return []
        place, add = picked
        self._gone[place] = add
        vector = DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
            offset=None if version % 4 == 0 else version,
            size_in_bytes=34,
            cardinality=version,
            unknown={"maxRowIndex": 7} if version % 3 == 0 else {},
        )
        new = msgspec.structs.replace(add, deletion_vector=vector)
        if (new.path, vector.unique_id) == place:
            self._live[place] = self._gone.pop(place)
            return []
        self._gone.pop((new.path, vector.unique_id), None)
        self._live[new.path, vector.unique_id] = new
        return [self._remove(add, version), new]

    def _other(self, version: int) -> list[Action]:
        match self._draw(st.sampled_from(("txn", "domain", "metadata", "protocol", "change"))):
            case "txn":
                app = self._draw(st.sampled_from(("app-1", "app-2", "app-ü")))
                return [SetTransaction(app_id=app, version=version, last_updated=START_MS if version % 2 else None)]
            case "domain":
                name, removed = self._draw(st.tuples(st.sampled_from(("d1", "d2")), st.booleans()))
                return [DomainMetadata(domain=name, configuration=f'{{"v":{version}}}', removed=removed)]
            case "metadata":
                configuration = {**self._metadata.configuration, "owner": f"version {version}"}
                self._metadata = msgspec.structs.replace(
                    self._metadata, configuration=configuration, unknown={"seen": version}
                )
                return [self._metadata]
            case "protocol":
                names = dict.fromkeys((*(self._protocol.writer_features or ()), "appendOnly"))
                self._protocol = msgspec.structs.replace(self._protocol, writer_features=tuple(names))
                return [self._protocol]
        return [AddCDCFile(path=f"_change_data/c{version}.parquet", partition_values={}, size=1, data_change=False)]
