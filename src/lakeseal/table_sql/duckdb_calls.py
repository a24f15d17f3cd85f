"""Functions and operators of DuckDB that answer as Spark's do: as templates, in which `a`, `b`, `c` are the arguments,
`lakeseal_itself` is the call, and `lakeseal_no` says that there is no such answer for values of these types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]

NO = "lakeseal_no"

REFUSED_OPERATORS = {
    "^": "xor or pow",
    "<=>": "IS NOT DISTINCT FROM",
    "<<": "a multiplication",
    ">>": "a division",
    "~~*": "lower(x) LIKE",
    "!~~*": "lower(x) NOT LIKE",
}

# Of aggregates: for which arguments they are not the same.
ARGUMENTS = {
    **dict.fromkeys(("avg", "mean"), ("lakeseal_kind(typeof(a)) = 'm'", "an average of decimals")),
    **dict.fromkeys(("min", "max"), ("lakeseal_kind(typeof(a)) = 'o'", "the least or greatest of nested values")),
    **dict.fromkeys(
        (
            "length",
            "len",
            "char_length",
            "character_length",
            "octet_length",
            "bit_length",
            "ascii",
            "instr",
            "contains",
        ),
        ("lakeseal_kind(typeof(a)) NOT IN ('s', 'n')", "a function of texts for another type"),
    ),
    **dict.fromkeys(
        ("replace", "lpad", "rpad", "repeat", "md5", "sha1"),
        ("lakeseal_kind(typeof(a)) NOT IN ('s', 'n')", "a function of texts for another type"),
    ),
    **dict.fromkeys(
        (
            "year",
            "month",
            "day",
            "dayofmonth",
            "dayofyear",
            "quarter",
            "weekofyear",
            "hour",
            "minute",
            "second",
            "last_day",
        ),
        ("lakeseal_kind(typeof(a)) NOT IN ('D', 't', 'n')", "a part of what is no date and no timestamp"),
    ),
}

# Letters that have more than one, or another one, in the other case.
_NO_UPPER = "[ßŉǰΐΰևẖẗẘẙẚὐ-ᾼῂ-ῼﬀ-ﬗı]"
_NO_LOWER = "[İΣẞ]"
_PARTS = frozenset(("year", "month", "day", "hour", "minute", "quarter", "week", "doy"))
_UNITS = frozenset(("year", "quarter", "month", "week", "day", "hour", "minute", "second"))


_INTEGER = "(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U[A-Z]*INT[A-Z]*)"
_NUMBER = rf"({_INTEGER}|DECIMAL\([0-9]+,[0-9]+\))"
_REFUSED = [
    "VARCHAR",
    rf"FLOAT~{_NUMBER}",
    rf"{_NUMBER}~FLOAT",
    "INTERVAL~[^T]",
    "(^|~)[^T~][^~]*~INTERVAL",
    "TIMESTAMP.*~TIMESTAMP",
]
# Spark keeps fewer digits behind the point of a decimal that would have more than 38.
_LONG_SUM = [r"DECIMAL\(3[0-9],([7-9]|[1-3][0-9])\)"]
_LONG_PRODUCT = [
    r"DECIMAL\((1[89]|[23][0-9]),.*DECIMAL\([0-9]+,([4-9]|[1-3][0-9])\)",
    r"DECIMAL\([0-9]+,([4-9]|[1-3][0-9])\).*DECIMAL\((1[89]|[23][0-9]),",
    r"DECIMAL\((1[89]|[23][0-9]),([4-9]|[1-3][0-9])\)",
]
_ALSO = {
    "+": _LONG_SUM,
    "-": [*_LONG_SUM, "DATE~DATE", "TIMESTAMP.*~DATE", "DATE~TIMESTAMP"],
    "*": _LONG_PRODUCT,
    "/": [rf"DECIMAL\([0-9]+,[0-9]+\)~{_NUMBER}", rf"{_NUMBER}~DECIMAL"],
    "%": _LONG_SUM,
}


def _arithmetic(op: str) -> str:
    """Types of which Spark makes another one, decimals whose digits it cuts, and a divisor of zero."""
    pattern = "|".join([*_REFUSED, *_ALSO[op]])
    zero = " WHEN b = 0 AND a IS NOT NULL THEN error('Division by zero')" if op in "/%" else ""
    return (
        f"CASE WHEN regexp_matches(typeof(a) || '~' || typeof(b), '{pattern}') THEN lakeseal_no{zero} "
        "ELSE lakeseal_itself END"
    )


def _text_kinds(children: Sequence[Node]) -> str:
    kinds = " || ".join(f"lakeseal_kind(typeof({n}))" for n in "abcdefghijklmnopqrstuvwxyz"[: len(children)])
    return f"CASE WHEN regexp_matches({kinds}, '[^sibn]') THEN lakeseal_no ELSE lakeseal_itself END"


_TEXT = "CASE WHEN lakeseal_kind(typeof(a)) NOT IN ('s', 'n') THEN lakeseal_no "
_TIME = "CASE WHEN lakeseal_kind(typeof(a)) NOT IN ('D', 't', 'n') THEN lakeseal_no "
# Spark counts from 1 and takes 0 for 1; from the end what lies before the beginning counts too.
_SUBSTRING = (
    "WHEN b < 0 AND -b > length(CAST(a AS VARCHAR)) THEN substring(CAST(a AS VARCHAR), 1, "
    "CAST(greatest(c + length(CAST(a AS VARCHAR)) + b, 0) AS BIGINT)) "
    "WHEN c < 0 THEN substring(CAST(a AS VARCHAR), 1, 0) "
    "ELSE substring(CAST(a AS VARCHAR), CASE WHEN b = 0 THEN 1 ELSE b END, c) END"
)
_TAIL = (
    "WHEN b < 0 AND -b > length(CAST(a AS VARCHAR)) THEN CAST(a AS VARCHAR) "
    "ELSE substring(CAST(a AS VARCHAR), CASE WHEN b = 0 THEN 1 ELSE b END) END"
)
_CUT = "WHEN b < 0 THEN substring(CAST(a AS VARCHAR), 1, 0) ELSE lakeseal_itself END"
_DAYS = "lakeseal_kind(typeof(a)) NOT IN ('D', 'n') OR lakeseal_kind(typeof(b)) NOT IN ('i', 'n')"


def _is(template: str) -> Callable[[Sequence[Node]], str]:
    return lambda _: template


def _named(allowed: frozenset[str], template: str) -> Callable[[Sequence[Node]], str]:
    """Where the first argument is one of these words."""

    def found(children: Sequence[Node]) -> str:
        value = children[0].get("value", {})
        word = value.get("value") if children[0]["class"] == "CONSTANT" else None
        return template if isinstance(word, str) and word.lower() in allowed else NO

    return found


CALLS: dict[tuple[str, int | None], Callable[[Sequence[Node]], str]] = {
    **{(op, 2): _is(_arithmetic(op)) for op in "+-*/%"},
    ("mod", 2): _is(_arithmetic("%")),
    ("||", 2): _text_kinds,
    ("concat_ws", None): _text_kinds,
    ("substring", 3): _is(_TEXT + _SUBSTRING),
    ("substr", 3): _is(_TEXT + _SUBSTRING),
    ("substring", 2): _is(_TEXT + _TAIL),
    ("substr", 2): _is(_TEXT + _TAIL),
    ("left", 2): _is(_TEXT + _CUT),
    ("right", 2): _is(_TEXT + _CUT),
    **{
        (name, 1): _is(
            f"{_TEXT}WHEN regexp_matches(CAST(a AS VARCHAR), '{letters}') THEN lakeseal_no ELSE lakeseal_itself END"
        )
        for name, letters in (("upper", _NO_UPPER), ("ucase", _NO_UPPER), ("lower", _NO_LOWER), ("lcase", _NO_LOWER))
    },
    **{(name, 1): _is(f"{_TEXT}ELSE lakeseal_itself END") for name in ("trim", "ltrim", "rtrim")},
    **{(name, 2): _is(NO) for name in ("trim", "ltrim", "rtrim")},
    **{(name, 1): _is("CAST(lakeseal_itself AS BIGINT)") for name in ("ceil", "ceiling", "floor")},
    **{(name, 2): _is(NO) for name in ("ceil", "ceiling", "floor")},
    ("round", 2): _is(
        "CASE WHEN lakeseal_kind(typeof(a)) NOT IN ('i', 'm', 'n') OR b < 0 THEN lakeseal_no ELSE lakeseal_itself END"
    ),
    # Of no rows DuckDB's is null.
    ("count_if", 1): _is("coalesce(lakeseal_itself, 0)"),
    ("dayofweek", 1): _is(f"{_TIME}ELSE dayofweek(a) + 1 END"),
    ("weekday", 1): _is(f"{_TIME}ELSE isodow(a) - 1 END"),
    ("date_add", 2): _is(f"CASE WHEN {_DAYS} THEN lakeseal_no ELSE a + b END"),
    ("date_sub", 2): _is(f"CASE WHEN {_DAYS} THEN lakeseal_no ELSE a - b END"),
    ("datediff", 2): _is(f"{_TIME}ELSE date_diff('day', CAST(b AS DATE), CAST(a AS DATE)) END"),
    ("date_diff", 2): _is(f"{_TIME}ELSE date_diff('day', CAST(b AS DATE), CAST(a AS DATE)) END"),
    **{
        (name, 2): _named(
            _PARTS,
            "CASE WHEN lakeseal_kind(typeof(b)) NOT IN ('D', 't', 'n') THEN lakeseal_no ELSE lakeseal_itself END",
        )
        for name in ("date_part", "datepart")
    },
    ("date_trunc", 2): _named(
        _UNITS,
        "CASE WHEN lakeseal_kind(typeof(b)) NOT IN ('D', 't', 'n') THEN lakeseal_no "
        "ELSE date_trunc(a, CAST(b AS TIMESTAMP WITH TIME ZONE)) END",
    ),
}


def same_call(name: str, children: Sequence[Node]) -> str | None:
    """What is wrong with a call that no template is for."""
    if name in ("log", "trunc") and len(children) == 2:
        return f"the function {name} of two arguments"
    return None
