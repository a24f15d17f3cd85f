"""Other readers see in our checkpoints what they see in the commits that those stand for."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.paths import LOG_DIR, commit_path
from lakeseal.storage import open_store
from models.histories import START_MS, Commits, histories, write_history
from support.examples import examples


def checkpoint_alone(table: Path, **options: Any) -> None:
    """Leaves a checkpoint by us at the newest version, its commit, and nothing that came before."""
    log = DeltaLog(open_store(table))
    latest = log.snapshot().version
    keep = {*write_checkpoint(log, latest, now_ms=START_MS, **options).files, commit_path(latest)}
    for key in log.store.list_keys(LOG_DIR):
        if key not in keep and not key.endswith("_last_checkpoint"):
            log.store.delete([key])


def files(table: Path) -> dict[str, dict[str, Any]]:
    actions = pa.table(deltalake.DeltaTable(table).get_add_actions(flatten=True)).to_pylist()
    assert len({row["path"] for row in actions}) == len(actions)
    return {row["path"]: row for row in actions}


def assert_same_files(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> None:
    assert before.keys() == after.keys()
    for path, row in before.items():
        # deltalake does not get decimals out of the text of statistics; from our struct it does.
        known = {name: value for name, value in row.items() if value is not None}
        assert {name: after[path].get(name) for name in known} == known


POLICIES = [
    {"delta.checkpointPolicy": policy, "delta.checkpoint.writeStatsAsJson": json}
    for policy in ("classic", "v2")
    for json in ("true", "false")
]


@examples(12, 150)
@given(st.data(), st.sampled_from(POLICIES), st.sampled_from(["parquet", "json"]))
def test_deltalake_sees_the_same_files_with_their_partitions_and_statistics(
    data: st.DataObject, configuration: dict[str, str], v2_format: str
) -> None:
    commits: Commits = data.draw(histories(commits=8, configuration=configuration))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder)
        write_history(open_store(table), commits)
        before = files(table)
        checkpoint_alone(table, sidecar_rows=3, v2_format=v2_format)
        assert_same_files(before, files(table))


WITH_DATA = [
    "dat/all_primitive_types/delta",
    "dat/multi_partitioned/delta",
    "dat/nested_types/delta",
    "dat/stats_as_struct/delta",
    "golden/basic-decimal-table/delta",
    "golden/basic-with-inserts-merge/delta",
    "golden/data-reader-escaped-chars/delta",
    "golden/data-skipping-basic-stats-all-types-checkpoint/delta",
    "golden/dv-partitioned-with-checkpoint/delta",
    "golden/dv-with-columnmapping/delta",
    "golden/table-with-columnmapping-mode-id/delta",
    "golden/table-with-columnmapping-mode-name/delta",
    "kernel-rs-data/v2-checkpoints-parquet-with-sidecars",
    "kernel-rs-data/v2-parquet-sidecars-struct-stats-only",
    "delta-rs-data/table_with_edge_timestamps",
]


def query(table: Path, sql: str) -> Counter[str]:
    answer = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table)).execute(sql)
    return Counter(map(str, pa.table(answer.read_all()).to_pylist()))


@pytest.mark.parametrize("name", WITH_DATA)
def test_deltalake_reads_the_same_rows(shared_tables: Path, tmp_path: Path, name: str) -> None:
    original = shared_tables / name
    table = Path(shutil.copytree(original, tmp_path / "table"))
    checkpoint_alone(table)
    assert query(table, "SELECT * FROM t") == query(original, "SELECT * FROM t")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("golden/dv-partitioned-with-checkpoint/delta", "col1 > 2 AND part = 3"),
        ("golden/table-with-columnmapping-mode-name/delta", '"ByteType" >= 2'),
        ("kernel-rs-data/v2-checkpoints-parquet-with-sidecars", "id > 100"),
    ],
)
def test_deltalake_skips_by_our_statistics_and_finds_the_same_rows(
    shared_tables: Path, tmp_path: Path, name: str, where: str
) -> None:
    original = shared_tables / name
    table = Path(shutil.copytree(original, tmp_path / "table"))
    checkpoint_alone(table)
    found = query(table, f"SELECT * FROM t WHERE {where}")
    assert found == query(original, f"SELECT * FROM t WHERE {where}")
    assert found
