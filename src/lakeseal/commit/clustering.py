"""Liquid clustering: by which columns a table's rows are kept near each other, and which files are. Pure.

The columns are in the metadata domain `delta.clustering`, in physical names; they may change at any time, for files
that come. A file that was clustered says so: who did it (`clusteringProvider`), by which columns, and in which cube,
which is what was laid out in one go. All of it as Delta writes it, so that either client goes on where the other
stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec
import pyarrow as pa

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, InvalidMetadata, UnsupportedFeature
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import AddFile, DomainMetadata, Metadata
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import BINARY, BOOLEAN, VOID, DecimalType, PrimitiveType, StructField, StructType
from lakeseal.protocol.stats import indexed_columns

CLUSTERING_DOMAIN = "delta.clustering"
PROVIDER = "liquid"
MAX_COLUMNS = 4
_CUBE, _CUBE_COLUMNS, _CURVE = "ZCUBE_ID", "ZCUBE_ZORDER_BY", "ZCUBE_ZORDER_CURVE"


class _Columns(msgspec.Struct, frozen=True, rename="camel"):
    clustering_columns: list[list[str]] = []


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> list[tuple[str, ...]]:
    """Physical paths of the columns that a table is clustered by."""
    domain = domains.get(CLUSTERING_DOMAIN)
    if domain is None:
        return []
    try:
        found = typed_json.decode(domain.configuration, _Columns)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMetadata(f"The metadata domain {CLUSTERING_DOMAIN} does not name columns: {error}") from error
    return [tuple(path) for path in found.clustering_columns if path]


def clustered_by(snapshot: Snapshot) -> tuple[str, ...]:
    """The columns by their names in the table."""
    names = []
    for path in clustering_columns(snapshot.domains):
        field = next((f for f in snapshot.schema.fields if f.physical_name == path[0]), None)
        if field is None or len(path) > 1:
            raise UnsupportedFeature(
                f"The table is clustered by {'.'.join(path)}, which is no column of it",
                hint="Fields of structs are not clustered by here: Table.cluster_by(…) chooses whole columns",
            )
        names.append(field.name)
    return tuple(names)


def domain_for(metadata: Metadata, columns: Sequence[str]) -> str:
    """The domain's text for a table that is to be clustered by these columns; none, for one that no longer is.

    Raises `InvalidArgument` where files could not be told apart by them."""
    schema, partitions = metadata.schema, metadata.partition_columns
    if columns and partitions:
        raise InvalidArgument(
            f"A table is partitioned or clustered, and this one is partitioned by {', '.join(partitions)}"
        )
    if len(columns) > MAX_COLUMNS:
        raise InvalidArgument(f"A table is clustered by at most {MAX_COLUMNS} columns, not {len(columns)}")
    properties = TableProperties.of(metadata)
    indexed = indexed_columns(
        schema,
        num_indexed_cols=properties.data_skipping_num_indexed_cols,
        stats_columns=metadata.configuration.get(TableProperties.data_skipping_stats_columns.key),
    )
    fields: list[StructField] = []
    for name in columns:
        field = schema.field(name)
        if field is None:
            raise InvalidArgument(
                f"The table has no column {name!r}", column=name, hint=f"It has {', '.join(schema.names)}"
            )
        if not _has_order(field):
            raise InvalidArgument(f"Rows cannot be clustered by a column of type {field.type}", column=name)
        if indexed.field(name) is None:
            raise InvalidArgument(
                "Files have no statistics of this column, by which they could be left out",
                column=name,
                hint="Name it in delta.dataSkippingStatsColumns, or put it further to the front",
            )
        if field in fields:
            raise InvalidArgument("A column can be clustered by only once", column=name)
        fields.append(field)
    said = {"clusteringColumns": [[f.physical_name] for f in fields], "domainName": CLUSTERING_DOMAIN}
    return msgspec.json.encode(said).decode()


def _has_order(field: StructField) -> bool:
    simple = isinstance(field.type, PrimitiveType | DecimalType)
    return simple and field.type not in (BOOLEAN, BINARY, VOID)


def cubes(files: Sequence[AddFile], columns: Sequence[str]) -> dict[str | None, list[AddFile]]:
    """Files by the cube that they are in; None for those that are not clustered by these columns."""
    found: dict[str | None, list[AddFile]] = {}
    said = _columns_text(columns)
    for add in files:
        tags = add.tags or {}
        is_clustered = add.clustering_provider == PROVIDER and tags.get(_CUBE_COLUMNS) == said
        found.setdefault(tags.get(_CUBE) if is_clustered else None, []).append(add)
    return found


def in_new_cube(files: Sequence[AddFile], columns: Sequence[str]) -> list[AddFile]:
    tags = {_CUBE: str(uuid4()), _CUBE_COLUMNS: _columns_text(columns), _CURVE: "hilbert"}
    return [
        msgspec.structs.replace(add, tags={**(add.tags or {}), **tags}, clustering_provider=PROVIDER) for add in files
    ]


def to_cluster(files: Sequence[AddFile], columns: Sequence[str], *, full: bool = False) -> list[AddFile]:
    """The files that a run lays out anew, as one cube: those that are not clustered, and cubes that are no larger than
    what comes to them. So each row is laid out again only when its cube doubles, and there are few cubes."""
    by_cube = cubes(files, columns)
    chosen = list(by_cube.pop(None, []))
    if full:
        return chosen + [add for some in by_cube.values() for add in some]
    size = sum(add.size for add in chosen)
    for some in sorted(by_cube.values(), key=lambda some: sum(add.size for add in some)):
        cube = sum(add.size for add in some)
        if not chosen or cube > size:
            break
        chosen += some
        size += cube
    return chosen


def refuse_layout(snapshot: Snapshot, files: pa.Table) -> None:
    """Raises where laying out these files anew would undo what a client did that we do not know."""
    providers = sorted({name for name in files["clusteringProvider"].unique().to_pylist() if name and name != PROVIDER})
    if providers:
        raise UnsupportedFeature(
            f"Files of the table were clustered by {', '.join(providers)}",
            hint="Run OPTIMIZE with the client that clusters the table",
        )


def refuse_lost_columns(snapshot: Snapshot, after: Metadata) -> None:
    """Raises where the metadata to come lacks a column that the table is clustered by."""
    columns = clustering_columns(snapshot.domains)
    if not columns or after.schema_string is None:
        return
    if after.partition_columns and not snapshot.partition_columns:
        raise InvalidArgument("A clustered table cannot be partitioned", hint="Table.cluster_by(None) first")
    names = {field.physical_name: field.name for field in snapshot.schema.fields}
    for path in columns:
        if not _is_there(path, after.schema):
            raise UnsupportedFeature(
                "The table is clustered by this column, which cannot go",
                column=names.get(path[0], path[0]),
                hint="Cluster the table by others first: Table.cluster_by(…)",
            )


def _is_there(path: tuple[str, ...], schema: StructType) -> bool:
    field = next((f for f in schema.fields if f.physical_name == path[0]), None)
    if field is None or len(path) == 1:
        return field is not None
    return isinstance(field.type, StructType) and _is_there(path[1:], field.type)


def _columns_text(columns: Sequence[str]) -> str:
    return msgspec.json.encode(list(columns)).decode()
