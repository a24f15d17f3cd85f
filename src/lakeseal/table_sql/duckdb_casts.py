"""Casts of DuckDB that answer as Spark's do in ANSI mode: as templates, in which `a` is what is cast and `HUGEINT`
stands for the type that was asked for. A text that the two would read otherwise is an error, or null for TRY_CAST."""

from __future__ import annotations

from lakeseal.errors import UnsupportedExpression

_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
_MOMENTS = frozenset(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"))
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_READ = {
    "DOUBLE": r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?",
    "FLOAT": r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?",
    "DECIMAL": r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)",
    "DATE": _DAY,
    "BOOLEAN": "(?i)(true|false)",
    **dict.fromkeys(_INTEGERS, "[+-]?[0-9]+"),
    **dict.fromkeys(_MOMENTS, rf"{_DAY}( [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}})?)?"),
}
# Types that Spark has, too, and casts to them that are not the same.
_OTHERS = frozenset(
    ("BLOB", "STRUCT", "LIST", "MAP", "ARRAY", "TIME", "VARIANT", "TIMESTAMP_S", "TIMESTAMP_NS", "CHAR")
)
_KIND = "lakeseal_kind(typeof(a))"


def cast_template(target: str, is_try: bool) -> str | None:
    """None where the cast is DuckDB's own, to a type that Spark does not have."""
    if target == "VARCHAR":
        return (
            f"CASE WHEN {_KIND} IN ('s', 'i', 'b', 'm', 'n') THEN CAST(a AS HUGEINT) "
            f"WHEN {_KIND} IN ('D', 't') AND regexp_matches(CAST(a AS VARCHAR), '^[0-9]{{4}}-') "
            "THEN regexp_replace(CAST(a AS VARCHAR), '[+]00$', '') "
            f"WHEN {_KIND} IN ('D', 't') AND a IS NULL THEN NULL "
            "ELSE error('lakeseal says: a text of a value of this type') END"
        )
    if target in _READ:
        bad = "NULL" if is_try else f"error('lakeseal says: a text that may be no {target} to Spark')"
        text = f"WHEN {_KIND} = 's' AND NOT regexp_full_match(trim(CAST(a AS VARCHAR)), '{_READ[target]}') THEN {bad} "
        return f"CASE {text}{_numbers(target)}ELSE CAST(a AS HUGEINT) END"
    if target in _OTHERS:
        raise UnsupportedExpression(
            f"Without Spark a query must mean the same to DuckDB, and a cast to {target} does not", hint="Give spark=…"
        )
    return None


def _numbers(target: str) -> str:
    if target in _INTEGERS:
        return (
            f"WHEN {_KIND} IN ('d', 'f') THEN CAST(trunc(TRY_CAST(a AS DOUBLE)) AS HUGEINT) "
            f"WHEN {_KIND} = 'm' THEN error('lakeseal says: a decimal that is cast to an integer') "
        )
    if target == "DECIMAL":
        return f"WHEN {_KIND} IN ('d', 'f') THEN error('lakeseal says: a float that is cast to a decimal') "
    if target in _MOMENTS or target == "DATE":
        return f"WHEN {_KIND} NOT IN ('s', 'D', 't', 'n') THEN error('lakeseal says: a number that is cast to a time') "
    return ""
