"""What statements answer with: a DataFrame of the session, or a pyarrow Table where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult
from lakeseal.table_sql.context import SqlContext

TEXTS = pa.map_(pa.string(), pa.string())


def answer(context: SqlContext, types: Mapping[str, pa.DataType], rows: Sequence[Mapping[str, Any]]) -> Any:
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()]
    table = pa.table(columns, schema=pa.schema(list(types.items())))
    return given(context, table)


def given(context: SqlContext, table: pa.Table) -> Any:
    return table if context.spark is None else context.spark.createDataFrame(table)


def done(context: SqlContext, result: CommitResult | NothingToDo) -> Any:
    """One row: the version, whether it is new, and what was done."""
    numbers = {name: int(value) for name, value in result.metrics.items()}
    row = {"version": result.version, "committed": isinstance(result, CommitResult), **numbers}
    types = {"version": pa.int64(), "committed": pa.bool_(), **dict.fromkeys(numbers, pa.int64())}
    return answer(context, types, [row])
