"""Snapshot: what a table is at one version. Immutable; made by `DeltaLog`.

Files are columnar (`log/files.py`). Partition values and statistics come out typed and under logical names, so that
callers never see column mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.display import card
from lakeseal.errors import InvalidMetadata, MissingMetadata, MissingProtocol, located
from lakeseal.log.clone_source import clone_sources
from lakeseal.log.replay import TableState
from lakeseal.log.snapshot_card import snapshot_card
from lakeseal.log.stored_stats import KnownStats
from lakeseal.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from lakeseal.protocol.features import check_readable
from lakeseal.protocol.partitions import parse_partition_values
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import StructField, StructType
from lakeseal.protocol.stats import stats_schema
from lakeseal.trust import Trust


class Snapshot(Struct, frozen=True, kw_only=True, dict=True, eq=False):
    table: str
    """The table's URI, as errors show it."""
    state: TableState
    trust: Trust
    """How far whoever reads it trusts those who wrote it."""

    @classmethod
    def of(cls, table: str, state: TableState, trust: Trust | None = None) -> Snapshot:
        """Checked: the protocol and the metadata are there, and this client may read the table.

        >>> Snapshot.of(snapshot.table, snapshot.state).version
        1
        """
        if state.protocol is None:
            raise MissingProtocol("The log states no protocol", table=table, version=state.version)
        check_readable(state.protocol, table=table, version=state.version)
        if state.metadata is None:
            raise MissingMetadata("The log states no metadata", table=table, version=state.version)
        return cls(table=table, state=state, trust=trust or Trust())

    def __repr__(self) -> str:
        return f"Snapshot({self.table!r}, version={self.version}, files={self.files.num_rows})"

    def _repr_html_(self) -> str:
        """For notebooks: columns, size, and the commit that made it where that is known."""
        return card("Snapshot", self.table, lambda: snapshot_card(self))

    @property
    def version(self) -> int:
        """Which version it is.

        >>> snapshot.version
        1
        """
        return self.state.version

    @property
    def protocol(self) -> Protocol:
        """What a client must know to read and to write the table.

        >>> snapshot.protocol.min_reader_version
        3
        """
        assert self.state.protocol is not None
        return self.state.protocol

    @property
    def metadata(self) -> Metadata:
        """The table's id, description, schema and configuration, as the log has them.

        >>> snapshot.metadata.format.provider
        'parquet'
        """
        assert self.state.metadata is not None
        return self.state.metadata

    @property
    def files(self) -> pa.Table:
        """The live files, one row each: path, size, partition values, statistics.

        >>> snapshot.files.num_rows
        1
        """
        return self.state.files

    @property
    def txns(self) -> Mapping[str, SetTransaction]:
        """How far each application has written, for those that count.

        >>> snapshot.txns["nightly"].version
        6
        """
        return self.state.txns

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """What others keep in the log under a name of theirs.

        >>> dict(snapshot.domains)
        {}
        """
        return self.state.domains

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Their names, in order.

        >>> snapshot.partition_columns
        ('shop',)
        """
        return self.metadata.partition_columns

    @cached_property
    def properties(self) -> TableProperties:
        """The table's properties, read and checked.

        >>> snapshot.properties.change_data_feed
        True
        """
        return TableProperties.of(self.metadata)

    @cached_property
    def schema(self) -> StructType:
        """The columns, nested as they are.

        >>> [field.name for field in snapshot.schema.fields]
        ['id', 'shop', 'price']
        """
        if self.metadata.schema_string is None:
            raise InvalidMetadata(
                "The table's metadata has no schema",
                table=self.table,
                version=self.version,
                hint="Its log can be inspected, but rows cannot be read until a commit states the schema",
            )
        with located(table=self.table, version=self.version):
            schema = self.metadata.schema
            for name in self.partition_columns:
                if schema.field(name) is None:
                    raise InvalidMetadata("A partition column is not in the schema", column=name)
        return schema

    @cached_property
    def partition_schema(self) -> StructType:
        """The partition columns with their types.

        >>> str(snapshot.partition_schema.fields[0].type)
        'string'
        """
        return StructType(tuple(f for name in self.partition_columns if (f := self.schema.field(name)) is not None))

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Beyond the table, where its files may be: what the reader allows, and what it was cloned from.

        >>> snapshot.places
        ()
        """
        return (*self.trust.places, *clone_sources(self.metadata.configuration))

    @property
    def in_commit_timestamp(self) -> int | None:
        """Of this version, where the table keeps them.

        >>> print(snapshot.in_commit_timestamp)
        None
        """
        info = self.state.commit_info
        return info.in_commit_timestamp if info is not None and self.properties.in_commit_timestamps else None

    @property
    def size_in_bytes(self) -> int:
        """Of all live files together.

        >>> snapshot.size_in_bytes > 0
        True
        """
        return pc.sum(self.files["size"]).as_py() or 0

    def partition_struct(self, files: pa.Table) -> pa.StructArray:
        """Typed partition values by logical name, one row per file.

        >>> snapshot.partition_struct(snapshot.files).to_pylist()
        [{'shop': 'north'}]
        """
        fields = self.partition_schema.fields
        if not fields:
            return pa.nulls(files.num_rows, pa.struct([]))
        values = files["partitionValues"]
        columns = [self._partition_column(values, field) for field in fields]
        return pa.StructArray.from_arrays(columns, names=[f.name for f in fields])

    def _partition_column(self, values: pa.ChunkedArray, field: StructField) -> pa.Array:
        texts = pc.map_lookup(values, pa.scalar(field.physical_name), "first")
        with located(table=self.table, version=self.version):
            return parse_partition_values(texts, field.type, column=field.name)

    def stats_struct(self, files: pa.Table, leaves: Iterable[tuple[str, ...]]) -> pa.StructArray:
        """Statistics of these leaf columns by logical name, one row per file; null is unknown.

        >>> snapshot.stats_struct(snapshot.files, [("id",)]).to_pylist()[0]["maxValues"]
        {'id': 3}
        """
        wanted = _part_of(self.schema, frozenset(leaves), ())
        physical, logical = stats_schema(wanted.to_physical()), stats_schema(wanted)
        known = self._known_stats if files is self._known_stats.files else KnownStats(files)
        return _renamed(known.of(physical), logical)

    @cached_property
    def _known_stats(self) -> KnownStats:
        return KnownStats(self.files)

    def match(self, where: str | None, files: pa.Table | None = None) -> expr.FileMatch:
        """Which files may have rows for which `where` is true, and of which all rows are.

        >>> snapshot.match("id > 100").may.to_pylist()
        [False]
        """
        files = self.files if files is None else files
        if where is None:
            every = pa.repeat(pa.scalar(True), files.num_rows)
            return expr.FileMatch(every, every)
        with located(table=self.table, version=self.version):
            bound = expr.bind_predicate(expr.parse(where), self.schema)
        partitioned = {name.lower() for name in self.partition_columns}
        leaves = [leaf for leaf in expr.stats_columns(bound) if leaf[0].lower() not in partitioned]
        return expr.prune(
            bound,
            partitions=self.partition_struct(files),
            stats=self.stats_struct(files, leaves) if leaves else None,
        )


def _part_of(schema: StructType, leaves: frozenset[tuple[str, ...]], above: tuple[str, ...]) -> StructType:
    lowered = {tuple(name.lower() for name in leaf) for leaf in leaves}
    fields = []
    for field in schema.fields:
        path = (*above, field.name.lower())
        if path in lowered:
            fields.append(field)
        elif isinstance(field.type, StructType):
            inner = _part_of(field.type, leaves, path)
            if inner.fields:
                fields.append(StructField(field.name, inner, field.nullable, field.metadata))
    return StructType(tuple(fields))


def _renamed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(wanted):
        return array
    children = [_renamed(array.field(n), f.type) for n, f in enumerate(wanted)]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
