"""SQL text as values: parse, evaluate on Arrow, prune files by partition values and statistics. Pure: no I/O, no clock.

`parse` → `Expression` → `bind` to a schema → `BoundExpression` → `evaluate`, `filter_batch`, `prune`, `split`.
"""

from lakeseal.expr.expression import (
    BoundExpression,
    Expression,
    bind,
    bind_predicate,
    column,
    equal,
    evaluate,
    filter_batch,
    literal,
    mask,
    parse,
)
from lakeseal.expr.prune import FileMatch, Split, prune, split, stats_columns

__all__ = [
    "BoundExpression",
    "Expression",
    "FileMatch",
    "Split",
    "bind",
    "bind_predicate",
    "column",
    "equal",
    "evaluate",
    "filter_batch",
    "literal",
    "mask",
    "parse",
    "prune",
    "split",
    "stats_columns",
]
