"""A table that another client clusters: rows may be changed, and what it clustered in ways that are not known stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table, errors

ROWS = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def clustered(folder: Path, columns: list[str] | None, provider: str | None, *, mapped: bool = True) -> Table:
    """As Delta Spark leaves it: the feature, the domain with physical names, and who clustered the files."""
    properties = {"delta.columnMapping.mode": "name"} if mapped else {}
    lakeseal.create(folder, ROWS.schema, properties=properties)
    table = Table(folder)
    table.write(ROWS)
    table.write(ROWS)
    log = folder / "_delta_log"
    snapshot = table.snapshot()
    features = sorted({"clustering", "domainMetadata", "appendOnly", "invariants", *(["columnMapping"] * mapped)})
    protocol = {"minReaderVersion": 2 if mapped else 1, "minWriterVersion": 7, "writerFeatures": features}
    actions: list[dict[str, Any]] = [{"protocol": protocol}]
    if columns is not None:
        physical = {field.name: field.physical_name for field in snapshot.schema.fields}
        named = json.dumps({"clusteringColumns": [[physical[name]] for name in columns]})
        actions.append({"domainMetadata": {"domain": "delta.clustering", "configuration": named, "removed": False}})
    if provider is not None:
        for commit in (1, 2):
            lines = (log / f"{commit:020d}.json").read_text().splitlines()
            add = next(json.loads(line)["add"] for line in lines if '"add"' in line)
            removed = {"path": add["path"], "deletionTimestamp": 1, "dataChange": False}
            actions.append({"remove": removed})
            actions.append({"add": {**add, "dataChange": False, "clusteringProvider": provider}})
    # One file cannot be removed and added in one commit, so this is two.
    first = [action for action in actions if "add" not in action]
    second = [action for action in actions if "add" in action]
    (log / f"{3:020d}.json").write_text("\n".join(map(json.dumps, first)))
    if second:
        (log / f"{4:020d}.json").write_text("\n".join(map(json.dumps, second)))
    return Table(folder)


def test_files_that_another_client_clustered_stay(tmp_path: Path) -> None:
    for columns in (["a"], []):
        table = clustered(tmp_path / str(len(columns)), columns, "otherwise")
        with pytest.raises(errors.UnsupportedFeature, match="clustered by otherwise"):
            table.optimize()


@pytest.mark.parametrize("columns", [["a"], []])
def test_behind_a_write_they_stay_too_and_it_is_told_once(
    columns: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = set(clustered(tmp_path, columns, "otherwise").files()["path"].to_pylist())
    table = Table(tmp_path)
    table.write(pa.concat_tables([ROWS] * 20), max_records_per_file=1)  # enough small ones to put together
    table.set_properties({"delta.autoOptimize.autoCompact": "true"})
    for writes in range(1, 4):
        table.write(ROWS)
        assert table.history(1)[0]["operation"] == "WRITE"
        assert theirs < set(table.files()["path"].to_pylist())
        assert table.files().num_rows == 62 + writes
    assert [record.message.count("clustered by otherwise") for record in caplog.records] == [1]


def test_a_clustered_table_says_itself_how_it_is_laid_out(tmp_path: Path) -> None:
    table = clustered(tmp_path, ["a"], "liquid")
    before = table.version()
    for ask in (lambda: table.optimize(zorder_by="b"), lambda: table.optimize(where="a = 1")):
        with pytest.raises(errors.InvalidArgument, match="clustered by a"):
            ask()
    assert table.version() == before


def test_a_table_that_only_lists_the_feature_is_optimized(tmp_path: Path) -> None:
    table = clustered(tmp_path, None, None)
    table.optimize()
    assert table.files().num_rows == 1


@pytest.mark.parametrize("how", ["drop", "overwrite", "restore"])
def test_a_column_that_the_table_is_clustered_by_cannot_go(how: str, tmp_path: Path) -> None:
    table = clustered(tmp_path, ["b"], None)
    doing = {
        "drop": lambda: table.drop_column("b"),
        "overwrite": lambda: table.write(ROWS.select(["a"]), mode="overwrite", overwrite_schema=True),
        "restore": lambda: table.restore(0),
    }[how]
    if how == "restore":  # to a version that had no such column
        metadata = table.snapshot().metadata
        commit = tmp_path / "_delta_log" / f"{0:020d}.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "metaData" in line:
                schema = json.loads(line["metaData"]["schemaString"])
                schema["fields"] = [field for field in schema["fields"] if field["name"] != "b"]
                line["metaData"]["schemaString"] = json.dumps(schema)
        commit.write_text("\n".join(map(json.dumps, lines)))
        again = {"metaData": metadata.to_json()}
        (tmp_path / "_delta_log" / f"{4:020d}.json").write_text(json.dumps(again))
        for checksum in (tmp_path / "_delta_log").glob("*.crc"):
            checksum.unlink()
        table = Table(tmp_path)
    before = table.version()
    with pytest.raises(errors.UnsupportedFeature, match="clustered by this column") as caught:
        doing()
    assert caught.value.column == "b"
    assert table.version() == before


def test_other_columns_may_go_and_rows_may_change(tmp_path: Path) -> None:
    table = clustered(tmp_path, ["b"], "liquid")
    table.write(ROWS)
    table.delete("a = 1")
    table.rename_column("b", "c")
    table.drop_column("a")
    assert sorted(table.to_arrow()["c"].to_pylist()) == ["y", "y", "y", "z", "z", "z"]


def test_without_mapping_an_overwrite_that_keeps_the_column_is_fine(tmp_path: Path) -> None:
    table = clustered(tmp_path, ["b"], None, mapped=False)
    table.write(pa.table({"b": ["q"], "n": [1.5]}), mode="overwrite", overwrite_schema=True)
    with pytest.raises(errors.UnsupportedFeature):
        table.write(ROWS.select(["a"]), mode="overwrite", overwrite_schema=True)


def test_a_domain_of_garbage_is_refused_by_name(tmp_path: Path) -> None:
    clustered(tmp_path, ["b"], None)
    commit = tmp_path / "_delta_log" / f"{3:020d}.json"
    commit.write_text(
        commit.read_text().replace("clusteringColumns", 'x\\": 1, \\"clusteringColumns').replace("[[", "[5, [")
    )
    for checksum in (tmp_path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    with pytest.raises(errors.InvalidMetadata, match=r"delta\.clustering"):
        Table(tmp_path).optimize()
