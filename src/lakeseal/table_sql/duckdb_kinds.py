"""Kinds of types, of which Spark and DuckDB make another type in the same way or not: for questions inside a query of
DuckDB, as macros, and here."""

from __future__ import annotations

import re

# One letter per kind of type: s a text, i an integer, m a decimal, f and d floats, b, D a date, t a moment, v an
# interval, o another. The argument is named once in each macro: DuckDB puts it in anew for every name.
_KINDS = (
    'o|n|"NULL"|s|VARCHAR|m|DECIMAL|f|FLOAT|d|DOUBLE|b|BOOLEAN|D|DATE|v|INTERVAL|t|TIMESTAMP|t|TIMESTAMP WITH TIME ZONE'
    "|i|TINYINT|i|SMALLINT|i|INTEGER|i|BIGINT|i|HUGEINT|i|UTINYINT|i|USMALLINT|i|UINTEGER|i|UBIGINT|"
)
MACROS = (
    "CREATE TEMP MACRO lakeseal_kind(t) AS substring("
    f"'{_KINDS}', greatest(instr('{_KINDS}', '|' || regexp_replace(t, '[(][0-9,]+[)]$', '') || '|') - 1, 1), 1)",
    # Values of these kinds are brought to one type, and not to the same one by both.
    "CREATE TEMP MACRO lakeseal_clash(k) AS regexp_matches(k, 's.*[^sn]|[^sn].*s|f.*[im]|[im].*f|b.*[^bn]|[^bn].*b')",
)


def clash(kinds: str) -> bool:
    return (
        ("s" in kinds and bool(re.search("[^s]", kinds)))
        or ("f" in kinds and bool(re.search("[im]", kinds)))
        or ("b" in kinds and bool(re.search("[^b]", kinds)))
    )
