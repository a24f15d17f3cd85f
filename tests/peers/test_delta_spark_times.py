"""Which version a moment saw, by Delta Spark on the same log: while a table keeps in-commit timestamps, and after."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.owner.config import OwnerConfig

pytestmark = pytest.mark.peers

COUNTS = """
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    frames = [spark.read.format("delta").option("timestampAsOf", moment).load(uri) for moment in moments]
    result = [len(frame.inputFiles()) for frame in frames]  # each version has one file more
"""


def test_delta_spark_sees_the_same_versions_before_and_after_they_are_switched_off(
    delta_spark: Any, tmp_path: Path
) -> None:
    owner = OwnerConfig(url=f"sqlite:///{tmp_path}/ledger.db", batch_size=100)
    table = lakeseal.create(tmp_path / "t", pa.schema({"x": pa.int64()}), owner=owner)
    for number in range(3):
        time.sleep(0.3)
        table.write(pa.table({"x": [number]}))
    time.sleep(0.3)
    table.release()
    table = Table(table.uri)
    times = sorted(dt.datetime.fromisoformat(entry["timestamp"]) for entry in table.history())
    # Halfway between two versions: the file of a commit is some milliseconds younger than what it says itself.
    moments = [earlier + (later - earlier) / 2 for earlier, later in itertools.pairwise(times)]

    def theirs() -> list[int]:
        texts = [moment.isoformat(sep=" ") for moment in moments]
        return delta_spark.run(COUNTS, uri=table.uri, moments=texts)  # type: ignore[no-any-return]

    expected = [0, 1, 2, 3]
    for properties in ({}, {"delta.enableInCommitTimestamps": "false"}):
        if properties:
            table.set_properties(properties)
        assert [table.to_arrow(timestamp=moment).num_rows for moment in moments] == expected
        assert theirs() == expected, properties
