"""Tables that another client clusters: what we may not do to them.

Which columns a table is clustered by, its metadata domain `delta.clustering` says, in physical names; a file that was
clustered names who did it. Lakeseal appends to such tables and changes rows in them. It does not lay files out anew,
and leaves the columns where they are: that is for the client that clusters.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from lakeseal import typed_json
from lakeseal.errors import InvalidMetadata, UnsupportedFeature
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import DomainMetadata, Metadata

CLUSTERING_DOMAIN = "delta.clustering"
_HINT = "Run OPTIMIZE with the client that clusters the table"


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


def refuse_layout(snapshot: Snapshot, files: pa.Table, *, zorder: bool) -> None:
    """Raises where laying out these files anew would undo what another client did."""
    if clustering_columns(snapshot.domains):
        what = "ordered by z-order" if zorder else "optimized"
        raise UnsupportedFeature(f"The table is clustered by another client and cannot be {what} here", hint=_HINT)
    providers = sorted({name for name in files["clusteringProvider"].unique().to_pylist() if name})
    if providers:
        raise UnsupportedFeature(f"Files of the table were clustered by {', '.join(providers)}", hint=_HINT)


def refuse_lost_columns(snapshot: Snapshot, after: Metadata) -> None:
    """Raises where the metadata to come lacks a column that the table is clustered by."""
    columns = clustering_columns(snapshot.domains)
    if not columns or after.schema_string is None:
        return
    left = {field.physical_name for field in after.schema.fields}
    names = {field.physical_name: field.name for field in snapshot.schema.fields}
    for path in columns:
        if path[0] not in left:
            raise UnsupportedFeature(
                "The table is clustered by this column, which cannot go",
                column=names.get(path[0], path[0]),
                hint="Cluster the table by others first, with the client that does: ALTER TABLE … CLUSTER BY",
            )
