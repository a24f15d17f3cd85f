"""scan: a table's rows in memory as Arrow, beside deltalake, DuckDB and polars.

The table has 5,000,000 rows of 6 columns (LAKESEAL_BENCH_SCAN_ROWS for more) in 20 files, each of a version of its own.
What is timed starts with its location and ends when an Arrow table, or polars' frame, is in memory; files are in the
system's cache for all. Everybody has read a small table before, so that nobody is timed while loading code.

- `full`: all rows and columns. `two columns`: of all rows.
- `filtered, one place`: a range of ids, which statistics place in two files. `filtered, spread`: one row in fifty, in
  all files. `one row`: by a column without order, so that every file has to be looked into.
- `time travel`: all rows and columns of a version from halfway.

Facts are how many rows there are, and the sum of one column.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import Subject, Timer, data_folder

if TYPE_CHECKING:
    from harness import Report

ROWS = int(os.environ.get("LAKESEAL_BENCH_SCAN_ROWS", "5000000"))
FILES = 20


class Asked(NamedTuple):
    columns: list[str] | None = None
    where: str | None = None
    version: int | None = None


CASES = {
    "full": Asked(),
    "two columns": Asked(columns=["id", "amount"]),
    "filtered, one place": Asked(where=f"id >= {ROWS // 2} AND id < {ROWS // 2 + ROWS // 100}"),
    "filtered, spread": Asked(where="kind = 7"),
    "one row": Asked(where=f"code = '{ROWS // 3 * 2_654_435_761 % 2**32:08x}'"),
    "time travel": Asked(version=FILES // 2),
}


DECODER = (
    "Pages are held against their checksums, texts are copied where the others hand out views of pages, columns with "
    "dictionaries are decoded whole by Arrow's C++ reader, and what is done for each page in Python waits for one lock."
)


def main(report: Report) -> None:
    uri = str(data_folder(f"scan-{ROWS}", build, rows=ROWS, files=FILES))
    small = str(data_folder("scan-small", build, rows=1000, files=2))
    for case, asked in CASES.items():
        arguments = {"uri": uri, "small": small, "asked": list(asked)}
        subjects = [
            Subject(name=name, function=function, arguments=arguments)
            for name, function in (
                ("lakeseal", by_lakeseal),
                ("deltalake", by_deltalake),
                ("DuckDB", by_duckdb),
                ("polars", by_polars),
            )
        ]
        report.compare(case, subjects, of_fastest=0.8, reason=DECODER)


def build(folder: Path, rows: int, files: int) -> None:
    import change

    change.build(folder, rows, files)


def by_lakeseal(timer: Timer, uri: str, small: str, asked: list[Any]) -> Any:
    import lakeseal

    def read(place: str, columns: list[str] | None, where: str | None, version: int | None) -> Any:
        return lakeseal.Table(place).to_arrow(version=version, columns=columns, where=where)

    return _timed(timer, read, uri, small, asked)


def by_deltalake(timer: Timer, uri: str, small: str, asked: list[Any]) -> Any:
    from deltalake import DeltaTable, QueryBuilder

    def read(place: str, columns: list[str] | None, where: str | None, version: int | None) -> Any:
        import pyarrow as pa

        table = DeltaTable(place, version=version)
        text = f"SELECT {', '.join(columns or ['*'])} FROM t{f' WHERE {where}' if where else ''}"
        return pa.table(QueryBuilder().register("t", table).execute(text))

    return _timed(timer, read, uri, small, asked)


def by_duckdb(timer: Timer, uri: str, small: str, asked: list[Any]) -> Any:
    import duckdb
    import duckdb_extensions

    duckdb_extensions.import_extension("delta")
    duck = duckdb.connect()

    def read(place: str, columns: list[str] | None, where: str | None, version: int | None) -> Any:
        at = "" if version is None else f", version := {version}"
        text = (
            f"SELECT {', '.join(columns or ['*'])} FROM delta_scan('{place}'{at}){f' WHERE {where}' if where else ''}"
        )
        return duck.execute(text).to_arrow_table()

    return _timed(timer, read, uri, small, asked)


def by_polars(timer: Timer, uri: str, small: str, asked: list[Any]) -> Any:
    import polars as pl

    def read(place: str, columns: list[str] | None, where: str | None, version: int | None) -> Any:
        frame = pl.scan_delta(place, version=version)
        if where:
            frame = frame.filter(pl.sql_expr(where))
        return (frame.select(columns) if columns else frame).collect()

    return _timed(timer, read, uri, small, asked)


def _timed(timer: Timer, read: Any, uri: str, small: str, asked: list[Any]) -> Any:
    columns, where, version = asked
    read(small, columns, where, None if version is None else 1)
    with timer:
        found = read(uri, columns, where, version)
    return {"rows": len(found), "ids": int(_ids(found))}


def _ids(found: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    total: int = pc.sum(found["id"]).as_py() if isinstance(found, pa.Table) else found["id"].sum()
    return total
