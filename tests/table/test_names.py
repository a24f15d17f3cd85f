"""Names that users of Delta know: detail, generate, upgrade, is_delta_table, to_pandas."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import InvalidArgument

ROWS = pa.table({"id": [1, 2, 3], "part": ["a", "b/c", None]})


def test_a_table_tells_what_it_is(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", ROWS.schema, cluster_by="id", comment="things", properties={"who": "me"})
    table.write(ROWS)

    told = table.detail()

    assert (told["format"], told["numFiles"], told["clusteringColumns"]) == ("delta", 1, ["id"])
    assert (told["description"], told["properties"]) == ("things", {"who": "me"})
    assert told["sizeInBytes"] == table.files()["size"][0].as_py()
    assert "clustering" in told["tableFeatures"]
    assert told["createdAt"] <= told["lastModified"]


def test_whether_there_is_a_table(tmp_path: Path) -> None:
    assert not lakeseal.is_delta_table(tmp_path / "t")
    lakeseal.Table(tmp_path / "t").write(ROWS)
    assert lakeseal.is_delta_table(tmp_path / "t")


def test_no_long_is_a_float_in_pandas(tmp_path: Path) -> None:
    table, long = lakeseal.Table(tmp_path / "t"), 2**63 - 1
    nested = pa.struct([("n", pa.int64()), ("l", pa.list_(pa.int64()))])
    rows = pa.table(
        {
            "id": pa.array([long, None]),
            "short": pa.array([7, None], pa.int32()),
            "list": pa.array([[None, long], None], pa.list_(pa.int64())),
            "struct": pa.array([{"n": long, "l": [None, long]}, {"n": None, "l": None}], nested),
        }
    )
    table.write(rows)
    frame = table.to_pandas()
    assert frame["id"].dtype == "Int64"
    assert frame["id"].tolist()[0] == long
    assert frame["short"].dtype == "float64"
    assert frame["list"][0].tolist() == [None, long]
    assert frame["struct"][0]["n"] == long
    assert list(frame["struct"][0]["l"]) == [None, long]
    assert pa.Table.from_pandas(frame, schema=rows.schema).equals(rows)


def test_rows_go_to_pandas(tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path / "t")
    table.write(ROWS)
    frame = table.to_pandas(where="id > 1", columns=["id"])
    assert sorted(frame["id"]) == [2, 3]


def test_protocols_are_raised_and_features_listed(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", ROWS.schema)
    table.upgrade(1, 4)
    assert table.detail()["minWriterVersion"] == 4
    table.add_feature("deletionVectors")
    assert "deletionVectors" in table.detail()["tableFeatures"]
    with pytest.raises(InvalidArgument, match="lowered"):
        table.upgrade(1, 2)


def test_manifests_name_the_files_of_the_newest_version(tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path / "t")
    table.write(ROWS, partition_by="part")
    keys = table.generate()
    assert len(keys) == 3

    table.delete("id = 1")
    left = table.generate()

    assert set(left) < set(keys)
    for key in left:
        for line in (tmp_path / "t" / key).read_text().splitlines():
            assert Path(line.removeprefix("file://")).is_file()
    on_disk = list((tmp_path / "t" / "_symlink_format_manifest").rglob("manifest"))
    assert len(on_disk) == 2


def test_manifests_are_refused_where_their_readers_would_see_other_rows(tmp_path: Path) -> None:
    hidden = lakeseal.Table(tmp_path / "hidden")
    hidden.write(ROWS, properties={"delta.enableDeletionVectors": "true"})
    hidden.delete("id = 1")
    mapped = lakeseal.Table(tmp_path / "mapped")
    mapped.write(ROWS, properties={"delta.columnMapping.mode": "name"})

    for table in (hidden, mapped):
        with pytest.raises(InvalidArgument):
            table.generate()
    with pytest.raises(InvalidArgument, match="mode"):
        mapped.generate("other")
