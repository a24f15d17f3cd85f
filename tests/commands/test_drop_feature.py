"""DROP FEATURE: what nothing uses any more goes out of the protocol; all else is refused, and the table stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakeseal
from lakeseal import errors
from lakeseal.protocol import feature_list as features
from lakeseal.protocol.features import reader_features, writer_features

SCHEMA = pa.schema([("n", pa.int64())])


def made(folder: Path, **how: Any) -> lakeseal.Table:
    table = lakeseal.create(folder, SCHEMA, **how)
    table.write(pa.table({"n": [1, 2, 3]}))
    return table


@pytest.mark.parametrize(
    ("feature", "how", "first"),
    [
        ("checkConstraints", {"constraints": {"p": "n > 0"}}, lambda t: t.drop_constraint("p")),
        ("allowColumnDefaults", {"defaults": {"n": 1}}, lambda t: t.drop_default("n")),
        ("clustering", {"cluster_by": "n"}, lambda t: t.cluster_by(None)),
        (
            "appendOnly",
            {"properties": {"delta.appendOnly": "true"}},
            lambda t: t.set_properties({"delta.appendOnly": None}),
        ),
        (
            "changeDataFeed",
            {"properties": {"delta.enableChangeDataFeed": "true"}},
            lambda t: t.set_properties({"delta.enableChangeDataFeed": "false"}),
        ),
    ],
)
def test_a_feature_goes_once_nothing_uses_it(tmp_path: Path, feature: str, how: Any, first: Any) -> None:
    table = made(tmp_path, **how)
    with pytest.raises(errors.InvalidArgument):
        table.drop_feature(feature)
    first(table)
    before = writer_features(table.snapshot().protocol)

    table.drop_feature(feature.upper())

    assert writer_features(table.snapshot().protocol) == before - {feature}
    newest = table.history(1)[0]
    assert (newest["operation"], newest["operationParameters"]["featureName"]) == ("DROP FEATURE", feature)
    table.write(pa.table({"n": [4]}))
    assert sorted(lakeseal.Table(tmp_path).to_arrow()["n"].to_pylist()) == [1, 2, 3, 4]
    with pytest.raises(errors.InvalidArgument, match="does not have"):
        table.drop_feature(feature)


def test_a_client_that_was_kept_out_writes_to_the_table_afterwards(tmp_path: Path) -> None:
    table = made(tmp_path, cluster_by="n", properties={"delta.enableInCommitTimestamps": "true"})
    table.cluster_by(None)
    for feature in ("clustering", "domainMetadata", "inCommitTimestamp"):
        lakeseal.sql(f"ALTER TABLE delta.`{tmp_path}` DROP FEATURE {feature}")

    write_deltalake(str(tmp_path), pa.table({"n": [9]}), mode="append")

    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3, 9]
    assert not set(DeltaTable(str(tmp_path)).protocol().writer_features or ()) & {"clustering", "inCommitTimestamp"}


@pytest.mark.parametrize(
    ("feature", "how", "said"),
    [
        ("rowTracking", {"properties": {"delta.enableRowTracking": "true"}}, "Suspend"),
        ("domainMetadata", {"cluster_by": "n"}, "required by clustering"),
        ("identityColumns", {"identity": "n"}, "identityColumns"),
        ("nothingLikeIt", {}, "no table feature"),
    ],
)
def test_what_cannot_go_is_refused_and_the_table_stays(tmp_path: Path, feature: str, how: Any, said: str) -> None:
    table = lakeseal.create(tmp_path, SCHEMA, **how)
    with pytest.raises(errors.LakesealError, match=said):
        table.drop_feature(feature)
    assert table.version() == 0


def test_the_history_is_truncated_for_no_feature_of_writers(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(errors.InvalidArgument, match="TRUNCATE HISTORY"):
        lakeseal.sql(f"ALTER TABLE delta.`{tmp_path}` DROP FEATURE invariants TRUNCATE HISTORY")
    assert table.version() == 1


def test_the_feature_of_an_owner_goes_with_the_owner(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, owner=f"sqlite:///{tmp_path}/ledger.db")
    with pytest.raises(errors.InvalidArgument, match="release"):
        table.drop_feature("managedCommits")
    with pytest.raises(errors.InvalidArgument, match="required by managedCommits"):
        table.drop_feature("inCommitTimestamp")


NO_WAIT = {"delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours"}


def used(folder: Path, feature: str, **more: str) -> lakeseal.Table:
    """A table whose log and files have traces of the feature, with rows 2 and 3, and for 2 a note."""
    first = {
        "deletionVectors": {"delta.enableDeletionVectors": "true"},
        "columnMapping": {"delta.columnMapping.mode": "name"},
        "typeWidening": {"delta.enableTypeWidening": "true"},
        "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
        "timestampNtz": {},
    }[feature]
    schema = pa.schema([("n", pa.int32()), ("s", pa.struct([("note", pa.string())])), ("p", pa.string())])
    table = lakeseal.create(folder, schema, ["p"], properties={**first, **more})
    table.write(pa.table({"n": [1, 2, 3], "s": [{"note": "x"}, {"note": "y"}, None], "p": ["a", "a", "b"]}, schema))
    match feature:
        case "deletionVectors":
            table.delete("n = 1")
            assert table.files()["deletionVector"].null_count < table.files().num_rows
            return table
        case "columnMapping":
            table.add_columns(pa.schema([("gone", pa.string())]))
            table.drop_column("gone")
            table.rename_column("n", "m")
            table.rename_column("m", "n")
        case "typeWidening":
            table.change_type("n", "long")
        case "v2Checkpoint":
            table.checkpoint()
        case "timestampNtz":
            table.set_properties({"delta.columnMapping.mode": "name"})
            table.add_columns(pa.schema([("at", pa.timestamp("us"))]))
            table.drop_column("at")
    table.delete("n = 1")
    return table


FEATURES = ["deletionVectors", "columnMapping", "typeWidening", "v2Checkpoint", "timestampNtz"]


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_of_readers_goes_with_the_versions_that_need_it(tmp_path: Path, feature: str) -> None:
    table = used(tmp_path, feature, **NO_WAIT)
    with pytest.raises(errors.Refused, match="not dropped yet"):
        table.drop_feature(feature)
    between = table.version()
    assert feature in writer_features(table.snapshot().protocol)

    lakeseal.sql(f"ALTER TABLE delta.`{tmp_path}` DROP FEATURE {feature} TRUNCATE HISTORY")

    fresh = lakeseal.Table(tmp_path)
    protocol = fresh.snapshot().protocol
    assert feature not in writer_features(protocol) | reader_features(protocol)
    rows = [{"n": 2, "s": {"note": "y"}, "p": "a"}, {"n": 3, "s": None, "p": "b"}]
    assert sorted(fresh.to_arrow().to_pylist(), key=lambda row: row["n"]) == rows
    with pytest.raises(errors.NotFound):
        fresh.to_arrow(version=0)
    first = int(min(path.name for path in (tmp_path / "_delta_log").glob("*.json"))[:20])
    left = [fresh.snapshot(version) for version in range(first, fresh.version() + 1)]
    in_use = features.FEATURES[feature].in_use
    assert not any(in_use(features.FeatureUse.of(one.metadata)) for one in left), "no version that is left needs it"
    assert all(one.files["deletionVector"].null_count == one.files.num_rows for one in left)
    assert fresh.version() > between
    if feature != "timestampNtz":  # there the table has mapped columns, which this reader does not know
        theirs = DeltaTable(str(tmp_path))
        assert theirs.protocol().min_reader_version == 1
        assert sorted(theirs.to_pyarrow_table()["n"].to_pylist()) == [2, 3]
        write_deltalake(str(tmp_path), fresh.to_arrow().slice(0, 1), mode="append")
    else:
        fresh.write(fresh.to_arrow().slice(0, 1))
    assert fresh.to_arrow().num_rows == 3
    fresh.checkpoint()
    assert lakeseal.Table(tmp_path).to_arrow().num_rows == 3


def test_nothing_is_truncated_before_its_time_and_a_first_call_frees_the_newest_version(tmp_path: Path) -> None:
    table = used(tmp_path, "deletionVectors")
    for truncate in (False, True, True):
        with pytest.raises(errors.Refused, match="not dropped yet"):
            table.drop_feature("deletionVectors", truncate_history=truncate)
    assert table.version() == 3
    assert table.files()["deletionVector"].null_count == table.files().num_rows
    assert table.to_arrow(version=0).num_rows == 0
    with pytest.raises(errors.InvalidArgument, match="does not have"):
        table.drop_feature("typeWidening")


def test_a_feature_that_columns_need_stays(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path, pa.schema([("at", pa.timestamp("us"))]))
    with pytest.raises(errors.InvalidArgument, match="uses the feature"):
        table.drop_feature("timestampNtz")
    mapped = lakeseal.create(
        tmp_path / "m", pa.schema([("a b", pa.int64())]), properties={"delta.columnMapping.mode": "name"}
    )
    with pytest.raises(errors.InvalidArgument, match="column mapping"):
        mapped.drop_feature("columnMapping", truncate_history=True)
    assert mapped.version() == 0
