"""TPC-H by DuckDB, which makes the rows, holds the queries' texts and says what is right."""

from __future__ import annotations

import math
from typing import Any

import duckdb_extensions

from oracles.rows import plain


def queries_of(duck: Any) -> dict[int, str]:
    """All 22 by number; from now on the connection can also make rows, by `CALL dbgen(sf = 1)`."""
    duckdb_extensions.import_extension("tpch")
    duck.execute("LOAD tpch")
    found = dict(duck.execute("SELECT query_nr, rtrim(query, '; \n') FROM tpch_queries()").fetchall())
    assert sorted(found) == list(range(1, 23))
    return found


def compare(got: list[tuple[Any, ...]], right: list[tuple[Any, ...]], about: str) -> None:
    """Averages and quotients are doubles to DuckDB and decimals with six digits to Spark; all else is the same."""
    assert len(got) == len(right), f"{about}: {len(got)} rows where {len(right)} are right"
    loose = {place for row in right for place, value in enumerate(row) if isinstance(value, float)}

    def tight(row: tuple[Any, ...]) -> list[Any]:
        return [plain(value) for place, value in enumerate(row) if place not in loose]

    for ours, theirs in zip(*(sorted(rows, key=lambda row: repr(tight(row))) for rows in (got, right)), strict=True):
        assert tight(ours) == tight(theirs), f"{about}: {ours} where {theirs} is right"
        for place in loose:
            value = theirs[place]
            same = ours[place] is value or math.isclose(float(ours[place]), value, rel_tol=1e-9, abs_tol=1e-6)
            assert same, f"{about}: {ours}, not {theirs}"
