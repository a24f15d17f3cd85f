"""Liquid clustering: asked for once, done by optimize bit by bit, and worth it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import InvalidArgument, UnsupportedFeature
from lakeseal.files.zorder import hilbert_values, zvalues

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


def rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "a": random.integers(0, 10_000, count),
            "b": random.integers(0, 10_000, count),
            "s": [f"{n % 97:05}" for n in range(count)],
        }
    )


def everything(table: lakeseal.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def paths(table: lakeseal.Table) -> set[str]:
    return set(table.files()["path"].to_pylist())


def domain(table: lakeseal.Table) -> list[list[str]]:
    columns: list[list[str]] = json.loads(table.snapshot().domains["delta.clustering"].configuration)[
        "clusteringColumns"
    ]
    return columns


@pytest.mark.parametrize(
    "properties", [{}, {"delta.columnMapping.mode": "name"}, {"delta.enableDeletionVectors": "true"}]
)
def test_optimize_lays_out_what_is_not_clustered_and_leaves_the_rest(tmp_path: Path, properties: Any) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, cluster_by=["a", "b"], properties=properties)
    for seed in range(4):
        table.write(rows(1000, seed))
    before = everything(table)

    table.optimize(target_file_size=20_000)
    first = paths(table)
    again = table.optimize(target_file_size=20_000)
    table.write(rows(100, 9))
    table.optimize(target_file_size=20_000)

    assert isinstance(again, lakeseal.commands.command.NothingToDo)  # type: ignore[attr-defined]
    assert first < paths(table)
    assert everything(table) == sorted(before + [tuple(row.values()) for row in rows(100, 9).to_pylist()])
    files = table.files()
    assert set(files["clusteringProvider"].to_pylist()) == {"liquid"}
    tags = [dict(tag) for tag in files["tags"].to_pylist()]
    assert len({tag["ZCUBE_ID"] for tag in tags}) == 2
    assert {tag["ZCUBE_ZORDER_BY"] for tag in tags} == {'["a","b"]'}
    assert {"clustering", "domainMetadata"} <= set(table.snapshot().protocol.writer_features or ())
    table.delete("a < 100")
    table.update({"s": "'u'"}, "b < 100")
    table.optimize(full=True)
    assert len({dict(tag)["ZCUBE_ID"] for tag in table.files()["tags"].to_pylist()}) == 1


@pytest.mark.parametrize("full", [False, True])
def test_of_a_table_without_rows_nothing_is_laid_out(tmp_path: Path, full: bool) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, cluster_by=["a"])
    assert isinstance(table.optimize(full=full), lakeseal.commands.command.NothingToDo)  # type: ignore[attr-defined]


def test_a_cube_that_doubles_is_laid_out_again(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA, cluster_by="a")
    table.write(rows(500, 1))
    table.optimize()
    table.write(rows(2000, 2))
    table.optimize()

    assert table.files().num_rows == 1


def test_columns_change_for_files_that_come(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", SCHEMA)
    table.write(rows(500, 1))
    table.cluster_by("a")
    table.optimize()
    table.cluster_by(["b", "s"])
    assert domain(table) == [["b"], ["s"]]
    table.optimize()
    assert dict(table.files()["tags"][0].as_py())["ZCUBE_ZORDER_BY"] == '["b","s"]'

    table.cluster_by(None)

    assert domain(table) == []
    table.write(rows(10, 3))
    table.optimize()
    assert table.files().num_rows == 1
    assert [entry["operation"] for entry in table.history()][:3] == ["OPTIMIZE", "WRITE", "CLUSTER BY"]


@pytest.mark.parametrize("columns", [["none"], ["a", "A"], ["a", "b", "s", "f", "g"], ["flag"], ["list"], ["far"]])
def test_columns_that_files_cannot_be_told_apart_by_are_refused(tmp_path: Path, columns: list[str]) -> None:
    fields = [*SCHEMA, pa.field("f", pa.float64()), pa.field("g", pa.date32()), pa.field("flag", pa.bool_())]
    schema = pa.schema([*fields, pa.field("list", pa.list_(pa.int64())), pa.field("far", pa.int64())])
    properties = {"delta.dataSkippingStatsColumns": "a,b,s,f,g,flag"}

    with pytest.raises(InvalidArgument):
        lakeseal.create(tmp_path / "t", schema, cluster_by=columns, properties=properties)

    assert not lakeseal.Table(tmp_path / "t").exists()


def test_a_table_is_partitioned_or_clustered(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="partitioned"):
        lakeseal.create(tmp_path / "t", SCHEMA, "s", cluster_by="a")
    table = lakeseal.Table(tmp_path / "w")
    table.write(rows(10, 1), cluster_by="a")
    table.write(rows(10, 1), cluster_by="A")

    with pytest.raises(InvalidArgument, match="clustered by"):
        table.write(rows(10, 1), cluster_by="b")
    with pytest.raises(InvalidArgument, match="cannot be partitioned"):
        table.write(rows(10, 1), mode="overwrite", overwrite_schema=True, partition_by="s")
    with pytest.raises(UnsupportedFeature, match="clustered by this column"):
        table.write(rows(10, 1).select(["b"]), mode="overwrite", overwrite_schema=True)
    with pytest.raises(InvalidArgument, match="clustered by a"):
        table.optimize(zorder_by="b")
    with pytest.raises(InvalidArgument, match="clustered"):
        lakeseal.create(tmp_path / "plain", SCHEMA).optimize(full=True)


@pytest.mark.parametrize("seed", range(3))
def test_queries_skip_more_files_than_by_z_order(tmp_path: Path, seed: int) -> None:
    data = rows(40_000, seed)
    clustered = lakeseal.create(tmp_path / "clustered", SCHEMA, cluster_by=["a", "b"])
    zordered = lakeseal.create(tmp_path / "zordered", SCHEMA)
    for table in (clustered, zordered):
        table.write(data)
    clustered.optimize(target_file_size=8_000)
    zordered.optimize(zorder_by=["a", "b"], target_file_size=8_000)
    random = np.random.default_rng(seed)

    read = {"clustered": 0.0, "zordered": 0.0}
    for _ in range(60):
        low_a, low_b = random.integers(0, 9_000, 2)
        where = f"a BETWEEN {low_a} AND {low_a + 800} AND b BETWEEN {low_b} AND {low_b + 800}"
        for name, table in (("clustered", clustered), ("zordered", zordered)):
            snapshot = table.snapshot()
            read[name] += sum(snapshot.match(where).may.to_pylist()) / snapshot.files.num_rows
    assert read["clustered"] < read["zordered"]


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_hilbert_s_curve_never_jumps(columns: int) -> None:
    side = {2: 16, 3: 8, 4: 4}[columns]
    points = np.stack(np.meshgrid(*[np.arange(side)] * columns), axis=-1).reshape(-1, columns)
    axes = [pa.array(points[:, n]) for n in range(columns)]

    def longest(values: np.ndarray[Any, Any]) -> int:
        along = points[np.argsort(values, kind="stable")]
        return int(np.abs(np.diff(along, axis=0)).sum(axis=1).max())

    assert len(set(hilbert_values(axes).tolist())) == len(points)
    assert longest(hilbert_values(axes)) < longest(zvalues(axes))
    assert hilbert_values([pa.array([3, 1, 2])]).argsort().tolist() == [1, 2, 0]
