"""change: delete, update, merge and optimize, beside deltalake.

One table of 20M rows (LAKESEAL_BENCH_ROWS for another number) in 20 files, and a tenth of these rows in 1,000 small
files. Each measurement changes a copy of its own (data files are linked, so copying costs nothing that is timed):

- `delete 1%` and `update 1%`: one row in a hundred, spread over all files, so every file is rewritten by both;
- `delete 1%, in one place`: a range of ids, which statistics place in a file or two;
- `merge 1%, half matched`: an upsert by id from an Arrow table in memory, half of it new rows;
- `optimize 1,000 files`: bin-packing to the default target size.

What is timed is the command alone, on a table that is open. Facts are the rows that are there afterwards, and the sum
of one column. Delta Spark has its turn in `make peers`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import Subject, Timer, data_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from harness import Report

ROWS = int(os.environ.get("LAKESEAL_BENCH_ROWS", 20_000_000))
FILES = 20
SMALL_FILES = 1000
SPREAD = "id % 100 = 7"
# Not where a file ends, so that files are rewritten and not just dropped.
ONE_PLACE = f"id >= {ROWS // 2 - ROWS // 300} AND id < {ROWS // 2 - ROWS // 300 + ROWS // 100}"


def main(report: Report) -> None:
    large = str(data_folder(f"change-{ROWS}", build, rows=ROWS, files=FILES))
    small = str(data_folder(f"change-small-{ROWS // 10}", build, rows=ROWS // 10, files=SMALL_FILES))
    for case, command, uri in (
        ("delete 1%", "delete", large),
        ("delete 1%, in one place", "delete_range", large),
        ("update 1%", "update", large),
        ("merge 1%, half matched", "merge", large),
        (f"optimize {SMALL_FILES:,} files", "optimize", small),
    ):
        arguments = {"uri": uri, "command": command}
        report.compare(
            case,
            [
                Subject(name="lakeseal", function=by_lakeseal, arguments=arguments),
                Subject(name="deltalake", function=by_deltalake, arguments=arguments),
            ],
        )


def rows_between(first: int, last: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(first, last)
    scattered = (ids * 2_654_435_761) % 2**32
    return pa.table(
        {
            "id": ids,
            "amount": (scattered % 10_000) / 100,
            "kind": pa.array(scattered % 50, pa.int32()),
            "name": pa.DictionaryArray.from_arrays(
                pa.array(scattered % 1000, pa.int32()), pa.array([f"customer number {n}" for n in range(1000)])
            ).cast(pa.string()),
            "at": pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us", "UTC")),
            "code": pa.array(np.char.mod("%08x", scattered)),
        }
    )


def build(folder: Path, rows: int, files: int) -> None:
    import lakeseal

    table = lakeseal.Table(folder)
    for number in range(files):
        table.write(rows_between(rows * number // files, rows * (number + 1) // files))
    table.checkpoint()


@contextlib.contextmanager
def copied(uri: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=Path(uri).parent, prefix="change-copy-") as folder:
        copy = f"{folder}/table"
        shutil.copytree(uri, copy, copy_function=_linked)
        yield copy


def _linked(source: str, target: str) -> None:
    # Logs are written to; data files never change.
    if "_delta_log" in source:
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def merge_source() -> pa.Table:
    """One percent of the table's rows: half of them there, spread over all files, half of them new."""
    import pyarrow as pa

    half = ROWS // 200
    new = rows_between(ROWS, ROWS + half)
    there = rows_between(0, half)
    return pa.concat_tables([there.set_column(0, "id", pa.array(range(0, half * 200, 200), pa.int64())), new])


def by_lakeseal(timer: Timer, uri: str, command: str) -> Any:
    import lakeseal
    from lakeseal.commit.post_commit import flush

    with copied(uri) as copy:
        table = lakeseal.Table(copy)
        table.version()
        source = merge_source() if command == "merge" else None
        with timer:
            match command:
                case "delete":
                    table.delete(SPREAD)
                case "delete_range":
                    table.delete(ONE_PLACE)
                case "update":
                    table.update({"amount": "amount + 1"}, SPREAD)
                case "merge":
                    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
                case _:
                    table.optimize()
        flush()  # checkpoints come after the commit, and this table is about to go
        return facts(copy)


def by_deltalake(timer: Timer, uri: str, command: str) -> Any:
    from deltalake import DeltaTable

    with copied(uri) as copy:
        table = DeltaTable(copy)
        source = merge_source() if command == "merge" else None
        with timer:
            match command:
                case "delete":
                    table.delete(SPREAD)
                case "delete_range":
                    table.delete(ONE_PLACE)
                case "update":
                    table.update(updates={"amount": "amount + 1"}, predicate=SPREAD)
                case "merge":
                    merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
                    merge.when_matched_update_all().when_not_matched_insert_all().execute()
                case _:
                    table.optimize.compact(target_size=2**30)
        return facts(copy)


def facts(uri: str) -> Any:
    import pyarrow.compute as pc

    import lakeseal

    rows, total = 0, 0.0
    for batch in lakeseal.Table(uri).to_batches(columns=["amount"]):
        rows += batch.num_rows
        total += pc.sum(batch["amount"]).as_py()
    return {"rows": rows, "amount": round(total, -3)}
