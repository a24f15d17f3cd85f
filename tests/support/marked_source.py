"""Sources whose tasks wait for a file, or kill themselves once and leave one: for tests of what happens meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeseal.ingest.sources.source import Chunk, Plan, Source, WorkUnit
from lakeseal.protocol.schema import LONG, StructField, StructType
from support.crashes import die


class MarkedSource(Source, frozen=True, kw_only=True, tag="marked"):
    """One row, with the id 1."""

    path: str
    """Of the file."""
    kills: bool = False

    def row_schema(self) -> StructType:
        return StructType((StructField("id", LONG),))

    def plan(self, watermarks: Mapping[str, Any]) -> Plan:
        return Plan() if watermarks else Plan(units=(WorkUnit(partition="only", high=1),))

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        mark = Path(self.path)
        if self.kills and not mark.exists():
            mark.touch()
            die()
        while not mark.exists():
            time.sleep(0.02)
        yield Chunk(rows=pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int64())}), high=1)


class SteadySource(Source, frozen=True, kw_only=True, tag="steady"):
    """Rows, a few at a time, until the file is there."""

    path: str
    """Of the file."""

    def row_schema(self) -> StructType:
        return StructType((StructField("id", LONG),))

    def plan(self, watermarks: Mapping[str, Any]) -> Plan:
        return Plan() if watermarks else Plan(units=(WorkUnit(partition="only", high=1, size=10**6),))

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        while True:
            yield Chunk(rows=pa.RecordBatch.from_pydict({"id": pa.array([1, 2, 3], pa.int64())}), bytes=24)
            if Path(self.path).exists():
                return
            time.sleep(0.02)
