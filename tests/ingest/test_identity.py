"""Targets with identity columns: the table numbers the rows of runs, as it does those of `Table.write`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import RunFailed
from lakeseal.ingest import Dataset
from lakeseal.protocol.identity import Identity

SCHEMA = pa.schema([("number", pa.int64()), ("id", pa.int64()), ("name", pa.string())])


def _pipeline(lake: Any, owner: str, *, schema: str = "id long, name string", **target: Any) -> Any:
    identity = {"number": Identity(start=10, step=5)}
    lakeseal.create(f"{lake.root}/t", SCHEMA, identity=identity, owner=lake.ledger if owner == "ledger" else None)
    to = lake.to_table(owner=owner, **target)
    return lake.pipeline(Dataset(name="t", source=lake.files(schema=schema), target=to))


@pytest.mark.parametrize("owner", ["ledger", "none"])
@pytest.mark.parametrize("mode", ["append", "upsert", "replace"])
def test_every_row_of_every_run_gets_a_number_of_its_own(lake: Any, owner: str, mode: str) -> None:
    keys = {"keys": ("id",)} if mode == "upsert" else {}
    pipeline = _pipeline(lake, owner, mode=mode, **keys)
    table = lake.table(owner=owner == "ledger")
    seen: set[int] = set()
    for run in range(3):
        lake.land(f"{run}.json", [{"id": 10 * run + n} for n in range(4)])
        assert pipeline.run().rows == 4
        numbers = table.to_arrow()["number"].to_pylist()
        assert len(numbers) == len(set(numbers)) == (4 if mode == "replace" else 4 * (run + 1))
        assert all(number >= 10 and number % 5 == 0 for number in numbers)
        assert len(set(numbers) - seen) == 4, "the numbers of rows that were there stay, and none is given out twice"
        seen |= set(numbers)
        table.write(pa.table({"id": [1000 + run], "name": ["by hand"]}))
        seen |= set(table.to_arrow()["number"].to_pylist())
        if mode != "replace":
            table.delete(f"id = {1000 + run}")


def test_a_number_that_only_the_table_gives_out_is_not_taken_from_rows(lake: Any) -> None:
    pipeline = _pipeline(lake, "ledger", schema="number long, id long, name string")
    lake.land("1.json", [{"number": 1, "id": 1}])
    with pytest.raises(RunFailed, match="GENERATED ALWAYS"):
        pipeline.run()
