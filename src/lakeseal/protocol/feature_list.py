"""The list of table features that Lakeseal knows, with what it can do about each.

A feature is in use when the table's metadata asks for it, by a property or by a column. What follows from the list
(who may read, who may write, how a protocol grows) is in `features`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct

from lakeseal.errors import InvalidArgument
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import (
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    VariantType,
)


class FeatureKind(Enum):
    READER_WRITER = "reader-writer"
    WRITER = "writer"


class FeatureUse(Struct, frozen=True, kw_only=True):
    """What a feature looks at to see whether it is in use."""

    metadata: Metadata
    schema: StructType

    @classmethod
    def of(cls, metadata: Metadata) -> FeatureUse:
        return cls(metadata=metadata, schema=StructType() if metadata.schema_string is None else metadata.schema)

    @property
    def properties(self) -> TableProperties:
        return TableProperties.of(self.metadata)


class Feature(Struct, frozen=True, kw_only=True):
    """`legacy` is the first (reader, writer) version that implies the feature. `in_use` is None where being listed is
    all there is to it."""

    name: str
    kind: FeatureKind
    readable: bool = True
    writable: bool = False
    legacy: tuple[int, int] | None = None
    requires: tuple[str, ...] = ()
    in_use: Callable[[FeatureUse], bool] | None = None
    stable_name: str | None = None
    """For a preview: the name that the feature has now."""
    hint: str = ""
    not_by_name: str = ""
    """What to do instead, where it is more than a name in a list."""
    leaves_no_trace: bool = False
    """Of a feature for readers: files and statistics are as they would be without it, so that it may be dropped."""


def _fields(data_type: DataType) -> Iterator[StructField]:
    match data_type:
        case ArrayType(element=element):
            yield from _fields(element)
        case MapType(key=key, value=value):
            yield from _fields(key)
            yield from _fields(value)
        case StructType(fields=fields):
            for field in fields:
                yield field
                yield from _fields(field.type)
        case _:
            return


def _types(data_type: DataType) -> Iterator[DataType]:
    yield data_type
    match data_type:
        case ArrayType(element=element):
            yield from _types(element)
        case MapType(key=key, value=value):
            yield from _types(key)
            yield from _types(value)
        case StructType(fields=fields):
            for field in fields:
                yield from _types(field.type)
        case _:
            return


def _field_says(key: str) -> Callable[[FeatureUse], bool]:
    return lambda state: any(key in field.metadata for field in _fields(state.schema))


def _has_invariants(state: FeatureUse) -> bool:
    return any(not field.nullable or "delta.invariants" in field.metadata for field in _fields(state.schema))


def _has_variant(state: FeatureUse) -> bool:
    return any(isinstance(t, VariantType) for t in _types(state.schema))


def _widens(state: FeatureUse) -> bool:
    return state.properties.type_widening or _field_says("delta.typeChanges")(state)


_RW = FeatureKind.READER_WRITER
_W = FeatureKind.WRITER
_OTHER_CLIENT = "Write to the table with the client that set the feature"
_CATALOG = "Open the table through the catalog that manages it"
_REDIRECTED = "The table has moved: its property delta.redirect… tells where to; open it there"
_GIVE_OWNER = "Give the table an owner: Table.take_over(owner, kind=…)"

FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(
            name="appendOnly",
            kind=_W,
            writable=True,
            legacy=(1, 2),
            in_use=lambda state: state.properties.append_only,
        ),
        Feature(name="invariants", kind=_W, writable=True, legacy=(1, 2), in_use=_has_invariants),
        Feature(
            name="checkConstraints",
            kind=_W,
            writable=True,
            legacy=(1, 3),
            in_use=lambda state: bool(state.properties.constraints),
        ),
        Feature(
            name="changeDataFeed",
            kind=_W,
            writable=True,
            legacy=(1, 4),
            in_use=lambda state: state.properties.change_data_feed,
        ),
        Feature(
            name="generatedColumns",
            kind=_W,
            writable=True,
            legacy=(1, 4),
            in_use=_field_says("delta.generationExpression"),
        ),
        Feature(
            name="columnMapping",
            kind=_RW,
            writable=True,
            legacy=(2, 5),
            in_use=lambda state: state.properties.column_mapping_mode != "none",
        ),
        Feature(
            name="identityColumns",
            kind=_W,
            writable=True,
            legacy=(1, 6),
            in_use=_field_says("delta.identity.start"),
        ),
        Feature(name="allowColumnDefaults", kind=_W, writable=True, in_use=_field_says("CURRENT_DEFAULT")),
        Feature(
            name="deletionVectors",
            kind=_RW,
            writable=True,
            in_use=lambda state: state.properties.deletion_vectors,
        ),
        Feature(
            name="timestampNtz",
            kind=_RW,
            writable=True,
            in_use=lambda state: any(t == TIMESTAMP_NTZ for t in _types(state.schema)),
        ),
        Feature(
            name="v2Checkpoint",
            kind=_RW,
            writable=True,
            in_use=lambda state: state.properties.checkpoint_policy == "v2",
        ),
        Feature(name="vacuumProtocolCheck", kind=_RW, writable=True, leaves_no_trace=True),
        Feature(name="typeWidening", kind=_RW, writable=True, in_use=_widens),
        Feature(name="typeWidening-preview", kind=_RW, writable=True, stable_name="typeWidening"),
        Feature(name="variantType", kind=_RW, writable=True, in_use=_has_variant),
        Feature(name="variantType-preview", kind=_RW, writable=True, in_use=_has_variant, stable_name="variantType"),
        # A writer may shred, and need not: whole variants stand beside shredded ones.
        Feature(
            name="variantShredding",
            kind=_RW,
            writable=True,
            requires=("variantType",),
            in_use=lambda state: state.properties.variant_shredding,
        ),
        Feature(
            name="variantShredding-preview",
            kind=_RW,
            writable=True,
            in_use=lambda state: state.properties.variant_shredding,
            stable_name="variantShredding",
        ),
        Feature(name="domainMetadata", kind=_W, writable=True),
        # Assigning row ids is up to the commit; a table lists the feature before every file has them.
        Feature(
            name="rowTracking",
            kind=_W,
            writable=True,
            requires=("domainMetadata",),
            in_use=lambda state: state.properties.row_tracking,
        ),
        # New files need not be clustered, so appending is safe.
        Feature(
            name="clustering",
            kind=_W,
            writable=True,
            requires=("domainMetadata",),
            not_by_name="Say by which columns: lakeseal.create(…, cluster_by=…) or Table.cluster_by(…)",
        ),
        Feature(
            name="inCommitTimestamp",
            kind=_W,
            writable=True,
            in_use=lambda state: state.properties.in_commit_timestamps,
        ),
        Feature(
            name="managedCommits",
            kind=_W,
            writable=True,
            not_by_name="Give the table an owner: lakeseal.create(…, owner=…) or Table.take_over(owner)",
            requires=("inCommitTimestamp",),
            in_use=lambda state: state.properties.managed_commit_owner_name is not None,
        ),
        Feature(
            name="coordinatedCommits-preview",
            kind=_W,
            writable=True,
            not_by_name=_GIVE_OWNER,
            requires=("inCommitTimestamp", "vacuumProtocolCheck"),
            in_use=lambda state: state.properties.commit_coordinator is not None,
        ),
        # A catalog's own tables list it and name nobody; who may commit is checked where a commit begins.
        Feature(
            name="catalogManaged",
            kind=_RW,
            writable=True,
            not_by_name=_GIVE_OWNER,
            requires=("inCommitTimestamp", "vacuumProtocolCheck"),
            in_use=lambda state: (
                state.properties.catalog_owner_name is not None and state.properties.commit_coordinator is None
            ),
            leaves_no_trace=True,
        ),
        Feature(name="catalogOwned-preview", kind=_RW, stable_name="catalogManaged", hint=_CATALOG),
        Feature(
            name="adaptiveMetadata-preview",
            kind=_RW,
            readable=False,
            requires=("catalogManaged",),
            hint="Its log is kept in another form: use the client that set the feature",
        ),
        Feature(name="geospatial", kind=_RW, readable=False, hint="Use a client that knows geometry columns"),
        Feature(name="redirectReaderWriter-preview", kind=_RW, readable=False, hint=_REDIRECTED),
        Feature(name="redirectWriterOnly-preview", kind=_W, hint=_REDIRECTED),
        Feature(
            name="icebergCompatV1",
            kind=_W,
            requires=("columnMapping",),
            in_use=lambda state: state.properties.iceberg_compat_v1,
            hint=_OTHER_CLIENT,
        ),
        Feature(
            name="icebergCompatV2",
            kind=_W,
            requires=("columnMapping",),
            in_use=lambda state: state.properties.iceberg_compat_v2,
            hint=_OTHER_CLIENT,
        ),
        Feature(
            name="icebergCompatV3",
            kind=_W,
            requires=("columnMapping", "rowTracking"),
            in_use=lambda state: state.properties.iceberg_compat_v3,
            hint=_OTHER_CLIENT,
        ),
        Feature(name="materializePartitionColumns", kind=_W, hint=_OTHER_CLIENT),
        Feature(name="checkpointProtection", kind=_W, hint=_OTHER_CLIENT),
        Feature(name="collations", kind=_W, requires=("domainMetadata",), hint=_OTHER_CLIENT),
        Feature(name="collations-preview", kind=_W, stable_name="collations", hint=_OTHER_CLIENT),
    )
}


def named(name: str) -> Feature:
    """The feature of that name, in any case. Raises `InvalidArgument` where there is none."""
    by_lowered = {known.lower(): known for known in FEATURES}
    known = by_lowered.get(name.lower())
    if known is None:
        near = [by_lowered[n] for n in difflib.get_close_matches(name.lower(), by_lowered, n=3)]
        raise InvalidArgument(
            f"There is no table feature {name}", hint=f"Did you mean {', '.join(near)}?" if near else None
        )
    return FEATURES[known]
