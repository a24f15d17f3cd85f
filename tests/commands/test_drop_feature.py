"""DROP FEATURE: what nothing uses any more goes out of the protocol; all else is refused, and the table stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakeseal
from lakeseal import errors
from lakeseal.protocol.features import writer_features

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
        ("deletionVectors", {"properties": {"delta.enableDeletionVectors": "true"}}, "older versions"),
        ("columnMapping", {"properties": {"delta.columnMapping.mode": "name"}}, "older versions"),
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
