"""`_metadata.row_id` and `_metadata.row_commit_version` in queries: a row's id for life, and when it last changed.

To Delta Spark `_metadata` is a column that `*` does not have. Here tables that track their rows get it as a struct
where a query asks for it, and a query that asks for it names its columns.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeseal.errors import UnsupportedExpression
from lakeseal.expr.lexer import Token, tokenize
from lakeseal.protocol.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from lakeseal.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METADATA = "_metadata"
_FIELDS = {"row_id": ROW_ID, "row_commit_version": ROW_COMMIT_VERSION}
_BEFORE_ALL = frozenset(("SELECT", "DISTINCT", "ALL"))


def asks_for_ids(text: str) -> bool:
    """Whether a query names one of the two; refused if it has `*`, too."""
    tokens = tokenize(text, strict=False)
    if not any(_names_id(*three) for three in zip(tokens, tokens[1:], tokens[2:], strict=False)):
        return False
    for before, token in pairwise(tokens):
        if token.kind == "op" and token.text == "*" and _begins_item(before):
            raise UnsupportedExpression(
                f"A query with {METADATA} must name its columns: here * would have it, too",
                hint=f"List the columns, as in SELECT id, {METADATA}.row_id",
            )
    return True


def _names_id(first: Token, dot: Token, last: Token) -> bool:
    return first.text.lower() == METADATA and dot.text == "." and last.text.lower() in _FIELDS


def _begins_item(before: Token) -> bool:
    return before.keyword in _BEFORE_ALL or (before.kind == "op" and before.text in (",", "."))


def has_ids(table: Table, at: dict[str, Any]) -> bool:
    snapshot = table.snapshot(**at)
    return bool(snapshot.properties.row_tracking) and snapshot.schema.field(METADATA) is None


def frame_with_ids(frame: DataFrame) -> DataFrame:
    parts = ", ".join(f"{column} AS {name}" for name, column in _FIELDS.items())
    return frame.selectExpr("*", f"struct({parts}) AS {METADATA}").drop(*_FIELDS.values())


def arrow_with_ids(rows: pa.Table) -> pa.Table:
    parts = {name: rows.column(column).combine_chunks() for name, column in _FIELDS.items()}
    both = pa.StructArray.from_arrays(list(parts.values()), list(parts))
    return rows.drop_columns(list(_FIELDS.values())).append_column(METADATA, both)
