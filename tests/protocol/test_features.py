from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidArgument, InvalidMetadata, UnsupportedFeature, UnsupportedType
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.feature_list import FEATURES, FeatureKind, named
from lakeseal.protocol.features import (
    DEFAULT_PROTOCOL,
    check_consistent,
    check_readable,
    check_writable,
    disable,
    enable,
    reader_features,
    required_features,
    supports,
    writer_features,
)
from lakeseal.protocol.schema import (
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    MapType,
    StructField,
    StructType,
)


def protocol(reader: int, writer: int, readers: list[str] | None = None, writers: list[str] | None = None) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=None if readers is None else tuple(readers),
        writer_features=None if writers is None else tuple(writers),
    )


def listed(*names: str) -> Protocol:
    """A protocol of lists with these features on every side that they belong to."""
    readers = [n for n in names if n not in FEATURES or FEATURES[n].kind is FeatureKind.READER_WRITER]
    return protocol(3, 7, readers, list(names))


def metadata(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        id="x",
        schema_string=StructType(fields).to_json(),
        configuration={f"delta.{key}": value for key, value in configuration.items()},
    )


PLAIN = metadata(StructField("a", LONG))
LEGACY = [
    set(),
    {"appendOnly", "invariants"},
    {"checkConstraints"},
    {"changeDataFeed", "generatedColumns"},
    {"columnMapping"},
    {"identityColumns"},
]


@pytest.mark.parametrize("writer", range(1, 7))
def test_a_writer_version_implies_its_features_and_those_of_all_before(writer: int) -> None:
    assert writer_features(protocol(2, writer)) == set().union(*LEGACY[:writer])


def test_reader_version_2_implies_column_mapping() -> None:
    assert reader_features(protocol(1, 2)) == set()
    assert reader_features(protocol(2, 5)) == {"columnMapping"}
    assert reader_features(protocol(2, 7, None, ["columnMapping"])) == {"columnMapping"}


def test_column_mapping_is_not_implied_where_readers_do_not_know_of_it() -> None:
    assert not supports(protocol(1, 5), "columnMapping")
    assert supports(protocol(2, 5), "columnMapping")


def test_a_preview_counts_as_support_of_its_feature() -> None:
    assert supports(listed("typeWidening-preview"), "typeWidening")
    assert not supports(listed("typeWidening"), "typeWidening-preview")


READABLE = [
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "catalogManaged",
    "catalogOwned-preview",
    "vacuumProtocolCheck",
    "typeWidening",
    "typeWidening-preview",
    "variantType",
    "variantType-preview",
    "variantShredding",
    "variantShredding-preview",
]


def test_every_reader_feature_of_the_format_is_readable() -> None:
    for name in READABLE:
        check_readable(listed(name))
    known = {f.name for f in FEATURES.values() if f.kind is FeatureKind.READER_WRITER}
    assert known == {*READABLE, *UNREADABLE}


UNREADABLE = ["adaptiveMetadata-preview", "geospatial", "redirectReaderWriter-preview"]


@pytest.mark.parametrize("name", UNREADABLE)
def test_features_of_2026_that_lakeseal_does_not_know_how_to_read_are_refused_by_name_with_advice(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=name) as caught:
        check_readable(listed(name))
    assert caught.value.hint == FEATURES[name].hint


def test_a_table_that_redirects_writers_can_be_read_and_not_written() -> None:
    check_readable(listed("redirectWriterOnly-preview"))
    with pytest.raises(UnsupportedFeature, match="redirectWriterOnly-preview") as caught:
        check_writable(listed("redirectWriterOnly-preview"), PLAIN)
    assert "moved" in (caught.value.hint or "")


def test_a_catalogs_feature_can_be_dropped_again_and_no_other_for_readers() -> None:
    owned = enable(DEFAULT_PROTOCOL, "catalogManaged")
    assert owned.reader_features == ("vacuumProtocolCheck", "catalogManaged")
    assert not supports(disable(owned, "catalogManaged"), "catalogManaged")
    assert supports(disable(owned, "catalogManaged"), "vacuumProtocolCheck")
    with pytest.raises(InvalidArgument):
        disable(owned, "vacuumProtocolCheck")


def test_a_catalogs_owner_needs_its_feature() -> None:
    named = Metadata(id="m", schema_string=PLAIN.schema_string, configuration={"lakeseal.catalogOwner": "lakeseal"})
    check_writable(enable(DEFAULT_PROTOCOL, "catalogManaged"), named)
    with pytest.raises(InvalidMetadata, match="catalogManaged"):
        check_writable(DEFAULT_PROTOCOL, named)


@pytest.mark.parametrize("versions", [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)])
def test_tables_of_every_version_can_be_read_and_written(versions: tuple[int, int]) -> None:
    check_readable(protocol(*versions))
    check_writable(protocol(*versions), PLAIN)


def test_all_unknown_reader_features_are_named() -> None:
    with pytest.raises(UnsupportedFeature, match="flying, swimming") as caught:
        check_readable(listed("swimming", "deletionVectors", "flying"), table="t", version=4)

    assert (caught.value.table, caught.value.version) == ("t", 4)
    assert caught.value.hint


def test_an_unknown_writer_feature_forbids_writing_but_not_reading() -> None:
    odd = protocol(1, 7, None, ["flying"])

    check_readable(odd)
    with pytest.raises(UnsupportedFeature, match="flying"):
        check_writable(odd, PLAIN)


def test_versions_of_the_future_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="reader version 4"):
        check_readable(protocol(4, 7, ["x"], ["x"]))
    check_readable(protocol(1, 8))
    with pytest.raises(UnsupportedFeature, match="writer version 8"):
        check_writable(protocol(1, 8), PLAIN)


@pytest.mark.parametrize(
    "broken",
    [
        protocol(3, 7, None, []),
        protocol(3, 7, [], None),
        protocol(1, 7),
        protocol(1, 7, [], []),
        protocol(2, 7, ["columnMapping"], ["columnMapping"]),
        protocol(1, 2, None, []),
        protocol(1, 2, None, ["appendOnly"]),
        protocol(3, 2, ["columnMapping"]),
        protocol(3, 6, []),
        protocol(3, 7, ["deletionVectors"], []),
        protocol(0, 2),
        protocol(1, 0),
        protocol(-1, -1),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(broken: Protocol) -> None:
    with pytest.raises(InvalidMetadata, match="contradicts"):
        check_readable(broken)


WRITABLE = [
    "appendOnly",
    "invariants",
    "checkConstraints",
    "generatedColumns",
    "allowColumnDefaults",
    "changeDataFeed",
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "domainMetadata",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening",
    "clustering",
    "catalogManaged",
    "coordinatedCommits-preview",
    "variantType",
    "variantType-preview",
    "variantShredding",
    "variantShredding-preview",
]


@pytest.mark.parametrize("name", WRITABLE)
def test_a_table_with_a_feature_that_lakeseal_honours_can_be_written(name: str) -> None:
    check_writable(listed(name), PLAIN)


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}


@pytest.mark.parametrize(
    ("demand", "uses"),
    [
        (listed("icebergCompatV1"), metadata(enableIcebergCompatV1="true")),
        (listed("icebergCompatV2"), metadata(enableIcebergCompatV2="true")),
        (listed("icebergCompatV3"), metadata(enableIcebergCompatV3="true")),
    ],
)
def test_what_lakeseal_cannot_honour_forbids_writing_while_it_is_in_use(demand: Protocol, uses: Metadata) -> None:
    check_readable(demand)
    check_writable(demand, PLAIN)
    with pytest.raises(UnsupportedFeature):
        check_writable(demand, uses)


@pytest.mark.parametrize(
    "name",
    ["catalogOwned-preview", "materializePartitionColumns", "checkpointProtection", "collations"],
)
def test_what_lakeseal_cannot_honour_and_is_always_in_use_forbids_writing(name: str) -> None:
    check_readable(listed(name))
    with pytest.raises(UnsupportedFeature, match=name):
        check_writable(listed(name), PLAIN)


def test_owner_and_feature_of_managed_commits_go_together() -> None:
    managed = listed("managedCommits", "inCommitTimestamp")
    owned = metadata(managedCommitOwnerName="o")

    check_writable(managed, owned)
    check_writable(DEFAULT_PROTOCOL, PLAIN)
    with pytest.raises(InvalidMetadata):
        check_writable(managed, PLAIN)
    with pytest.raises(InvalidMetadata):
        check_writable(DEFAULT_PROTOCOL, owned)


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (PLAIN, ()),
        (metadata(StructField("a", LONG, False)), ("invariants",)),
        (metadata(StructField("a", LONG, True, {"delta.invariants": "{}"})), ("invariants",)),
        (metadata(StructField("a", MapType(STRING, ArrayType(TIMESTAMP_NTZ)))), ("timestampNtz",)),
        (metadata(StructField("a", LONG, True, {"delta.generationExpression": "1"})), ("generatedColumns",)),
        (metadata(StructField("a", LONG, True, {"CURRENT_DEFAULT": "1"})), ("allowColumnDefaults",)),
        (metadata(StructField("a", LONG, True, IDENTITY)), ("identityColumns",)),
        (metadata(StructField("a", LONG, True, {"delta.typeChanges": []})), ("typeWidening",)),
        (metadata(StructField("a", VARIANT)), ("variantType",)),
        (metadata(appendOnly="true"), ("appendOnly",)),
        (metadata(enableChangeDataFeed="true", enableDeletionVectors="true"), ("changeDataFeed", "deletionVectors")),
        (metadata(**{"constraints.c": "true"}), ("checkConstraints",)),
        (metadata(**{"columnMapping.mode": "name"}), ("columnMapping",)),
        (metadata(checkpointPolicy="v2"), ("v2Checkpoint",)),
        (metadata(enableInCommitTimestamps="true"), ("inCommitTimestamp",)),
        (metadata(enableRowTracking="true"), ("rowTracking",)),
        (metadata(managedCommitOwnerName="x"), ("managedCommits",)),
        (Metadata(id="x"), ()),
    ],
)
def test_metadata_asks_for_features(table: Metadata, names: tuple[str, ...]) -> None:
    assert required_features(table) == names


def test_enabling_what_is_there_changes_nothing() -> None:
    assert enable(DEFAULT_PROTOCOL, "appendOnly", "invariants") is DEFAULT_PROTOCOL
    assert enable(DEFAULT_PROTOCOL) is DEFAULT_PROTOCOL


@pytest.mark.parametrize(
    ("before", "names", "after"),
    [
        (
            protocol(1, 2),
            ["changeDataFeed"],
            protocol(1, 7, None, ["appendOnly", "invariants", "changeDataFeed"]),
        ),
        (
            protocol(1, 2),
            ["columnMapping"],
            protocol(2, 7, None, ["appendOnly", "invariants", "columnMapping"]),
        ),
        (
            protocol(1, 2),
            ["deletionVectors"],
            protocol(3, 7, ["deletionVectors"], ["appendOnly", "invariants", "deletionVectors"]),
        ),
        (
            protocol(2, 5),
            ["deletionVectors"],
            protocol(
                3,
                7,
                ["columnMapping", "deletionVectors"],
                [
                    "appendOnly",
                    "invariants",
                    "checkConstraints",
                    "changeDataFeed",
                    "generatedColumns",
                    "columnMapping",
                    "deletionVectors",
                ],
            ),
        ),
        (
            protocol(1, 6),
            ["domainMetadata"],
            protocol(
                1,
                7,
                None,
                [
                    "appendOnly",
                    "invariants",
                    "checkConstraints",
                    "changeDataFeed",
                    "generatedColumns",
                    "identityColumns",
                    "domainMetadata",
                ],
            ),
        ),
        (
            protocol(2, 7, None, ["columnMapping", "flying"]),
            ["timestampNtz"],
            protocol(3, 7, ["columnMapping", "timestampNtz"], ["columnMapping", "flying", "timestampNtz"]),
        ),
        (
            protocol(1, 1),
            ["MANAGEDCOMMITS"],
            protocol(1, 7, None, ["inCommitTimestamp", "managedCommits"]),
        ),
        (
            protocol(3, 7, ["v2Checkpoint"], ["v2Checkpoint"]),
            ["rowTracking"],
            protocol(3, 7, ["v2Checkpoint"], ["v2Checkpoint", "domainMetadata", "rowTracking"]),
        ),
    ],
)
def test_enabling_lists_all_that_was_implied_and_all_that_is_required(
    before: Protocol, names: list[str], after: Protocol
) -> None:
    assert enable(before, *names) == after


supported = sorted(f.name for f in FEATURES.values() if f.writable)
protocols = st.sampled_from(
    [protocol(1, 1), protocol(1, 2), protocol(1, 4), protocol(1, 5), protocol(2, 5), protocol(2, 2), protocol(2, 6)]
) | st.lists(st.sampled_from([*supported, "flying"]), unique=True).map(lambda names: listed(*names))


@given(protocols, st.lists(st.sampled_from(supported), unique=True))
def test_enabling_is_consistent_loses_nothing_and_settles(before: Protocol, names: list[str]) -> None:
    after = enable(before, *names)

    check_consistent(after)
    assert reader_features(before) <= reader_features(after)
    assert writer_features(before) <= writer_features(after)
    for name in names:
        assert supports(after, name)
        assert all(supports(after, required) for required in FEATURES[name].requires)
    assert enable(after, *names) is after


def test_enabling_keeps_fields_of_the_protocol_that_are_not_known() -> None:
    before = Protocol(min_reader_version=1, min_writer_version=2, unknown={"later": 1})

    assert enable(before, "domainMetadata").unknown == {"later": 1}


def test_what_lakeseal_cannot_honour_cannot_be_enabled() -> None:
    with pytest.raises(UnsupportedFeature, match="icebergCompatV1"):
        enable(DEFAULT_PROTOCOL, "icebergCompatV1")


def test_an_unknown_feature_cannot_be_enabled_and_close_matches_are_shown() -> None:
    with pytest.raises(InvalidArgument, match=r"Did you mean .*deletionVectors"):
        enable(DEFAULT_PROTOCOL, "deletionVector")


def test_a_writer_feature_can_be_dropped_and_leaves_what_it_required() -> None:
    managed = listed("inCommitTimestamp", "managedCommits")

    assert disable(managed, "managedCommits") == listed("inCommitTimestamp")
    assert disable(DEFAULT_PROTOCOL, "managedCommits") is DEFAULT_PROTOCOL


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (listed("deletionVectors"), "deletionVectors"),
        (listed("appendOnly"), "appendOnly"),
        (listed("inCommitTimestamp", "managedCommits"), "inCommitTimestamp"),
    ],
)
def test_what_files_or_other_features_depend_on_cannot_be_dropped(table: Protocol, name: str) -> None:
    with pytest.raises(InvalidArgument):
        disable(table, name)


def test_the_list_of_features_is_whole() -> None:
    for feature in FEATURES.values():
        assert named(feature.name.upper()) is feature
        assert all(required in FEATURES for required in feature.requires)
        assert feature.stable_name is None or feature.stable_name in FEATURES
        assert feature.writable or feature.hint, f"{feature.name} is refused without a word on what to do"


@given(
    st.integers(-1, 9),
    st.integers(-1, 9),
    st.none() | st.lists(st.sampled_from([*FEATURES, "flying"]), max_size=3),
    st.none() | st.lists(st.sampled_from([*FEATURES, "flying"]), max_size=3),
)
def test_any_protocol_is_accepted_or_refused_with_a_typed_error(
    reader: int, writer: int, readers: Any, writers: Any
) -> None:
    odd = protocol(reader, writer, readers, writers)
    for check in (lambda: check_readable(odd), lambda: check_writable(odd, PLAIN)):
        with suppress(UnsupportedFeature, InvalidMetadata):
            check()


@pytest.mark.parametrize("name", ["geospatial", "geospatial-dev", "collations", "collations-preview"])
def test_collations_and_geospatial_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=name):
        check_writable(protocol(3, 7, [], [name]), PLAIN)


@pytest.mark.parametrize("data_type", ["geometry(4326)", "geography(srid:ANY)"])
def test_geospatial_types_are_refused_by_name(data_type: str) -> None:
    fields = f'[{{"name":"place","type":"{data_type}","nullable":true,"metadata":{{}}}}]'
    with pytest.raises(UnsupportedType, match=re.escape(data_type)) as caught:
        StructType.from_json(f'{{"type":"struct","fields":{fields}}}')
    assert caught.value.column == "place"
