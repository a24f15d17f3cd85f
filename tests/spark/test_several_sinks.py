"""A stream that writes each micro-batch to several tables, by `foreachBatch`: whatever dies, each has a row once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table

pytestmark = pytest.mark.spark


def run(spark: Any, source: Table, checkpoint: Path, each: Any) -> None:
    stream = spark.readStream.format("lakeseal").option("maxFilesPerTrigger", 1).load(source.uri)
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(120)


def numbers(table: Table) -> list[int]:
    return sorted(table.to_arrow(columns=["id"])["id"].to_pylist())


@pytest.mark.parametrize("dies_at", [0, 1, 2])
@pytest.mark.parametrize("together", [False, True], ids=["by their transactions", "in one commit"])
def test_a_batch_that_died_between_two_tables_is_in_both_once(
    spark: Any, tmp_path: Path, dies_at: int, together: bool
) -> None:
    owner = f"sqlite:///{tmp_path}/ledger.db"
    schema = pa.schema([("id", pa.int64())])
    source = Table(tmp_path / "source")
    for number in range(3):
        source.write(pa.table({"id": [number]}))
    one, two = (lakeseal.create(tmp_path / name, schema, owner=owner) for name in ("one", "two"))
    died: list[int] = []

    def each(rows: Any, number: int) -> None:
        def die() -> None:
            if number == dies_at and not died:
                died.append(number)
                raise RuntimeError("the driver dies here")

        done = ("several-sinks", number)
        if not together:
            one.write(rows, txn=done)
            die()
            two.write(rows, txn=done)
            return
        with lakeseal.transaction(owner) as txn:
            txn.table(one).write(rows, txn=done)
            die()
            txn.table(two).write(rows, txn=done)

    with pytest.raises(Exception, match="the driver dies here"):
        run(spark, source, tmp_path / "checkpoint", each)
    assert numbers(two) == list(range(dies_at))
    assert len(numbers(one)) == (dies_at if together else dies_at + 1)
    run(spark, source, tmp_path / "checkpoint", each)
    assert numbers(one) == numbers(two) == [0, 1, 2]
