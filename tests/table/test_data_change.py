"""`write(data_change=False)`: rows that replace the same ones are no change to streams and the change feed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import errors

FEED = {"delta.enableChangeDataFeed": "true"}


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "p": pa.array([n % 2 for n in numbers], pa.int64())})


@pytest.mark.parametrize(
    ("data", "how"),
    [
        (rows(4, 3, 2, 1), {}),
        (rows(3, 1), {"replace_where": "p = 1"}),
        (rows(4, 2), {"partition_overwrite": "dynamic"}),
        (rows(4, 3), {"replace_where": "n > 2"}),
    ],
    ids=["all", "partition", "dynamic", "rows"],
)
def test_rows_that_are_laid_out_otherwise_are_no_change(tmp_path: Path, data: pa.Table, how: Any) -> None:
    table = lakeseal.create(tmp_path, rows().schema, partition_by="p", properties=FEED)
    table.write(rows(1, 2, 3, 4))

    table.write(data, mode="overwrite", data_change=False, **how)

    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3, 4]
    assert table.changes(2).num_rows == 0
    lines = (tmp_path / "_delta_log" / f"{2:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    files = [action[kind] for action in actions for kind in ("add", "remove") if kind in action]
    assert files
    assert {file["dataChange"] for file in files} == {False}
    assert not any("cdc" in action for action in actions)


def test_what_would_be_a_change_is_refused(tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path / "t")
    with pytest.raises(errors.TableNotFound):
        table.write(rows(1), mode="overwrite", data_change=False)
    table.write(rows(1, 2))
    for data, how in (
        (rows(1, 2), {"mode": "append"}),
        (rows(1), {"mode": "overwrite"}),
        (rows(1, 2), {"mode": "overwrite", "overwrite_schema": True}),
        (rows(1, 2), {"mode": "overwrite", "merge_schema": True}),
    ):
        with pytest.raises(errors.InvalidArgument):
            table.write(data, data_change=False, **how)  # type: ignore[arg-type]
    assert table.version() == 0

    tracked = lakeseal.create(tmp_path / "tracked", rows().schema, properties={"delta.enableRowTracking": "true"})
    with pytest.raises(errors.InvalidArgument, match="optimize"):
        tracked.write(rows(), mode="overwrite", data_change=False)
