"""How functions bind that are computed one row at a time: most by their types alone, some by what they are given."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from functools import partial
from typing import Any

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.expr import coercion, intervals, number_patterns, operators, regexes, row_hashes, row_texts
from lakeseal.expr import row_date_patterns as dates
from lakeseal.expr import row_moments as moments
from lakeseal.expr import row_numbers as numbers
from lakeseal.expr.bound import DAY_TIME, Bound
from lakeseal.expr.bound_call import BoundCall, Function
from lakeseal.expr.row_functions import ROW_FUNCTIONS
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
)

_BITS: dict[DataType, int] = {BYTE: 8, SHORT: 16, INTEGER: 32, LONG: 64}
EXACT, LONG_TEXT = Context(prec=77), Context(prec=400)
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
_FIELDS = {
    name: function
    for names, function in (
        ("year years y yr yrs", "year"),
        ("quarter qtr", "quarter"),
        ("month months mon mons", "month"),
        ("week weeks w", "weekofyear"),
        ("day days d", "day"),
        ("dayofweek dow", "dayofweek"),
        ("doy", "dayofyear"),
        ("hour hours h hr hrs", "hour"),
        ("minute minutes m min mins", "minute"),
        ("second seconds s sec secs", "second"),
    )
    for name in names.split()
}


def _plain(call: BoundCall) -> Bound:
    function = ROW_FUNCTIONS[call.name]
    last = len(function.takes) - 1
    if call.name == "mask" and not all(arg.is_literal for arg in call.args[1:]):
        call.unsupported("mask with an argument that is not constant")
    if call.name == "overlay" and BINARY in (call.args[0].type, call.args[1].type):
        call.unsupported("overlay of a binary")
    argument = call.exact if function.exact else call.expect
    args = [argument(index, function.takes[min(index, last)]) for index in range(len(call.args))]
    return call.row(function.gives, call.name, *args, raises=function.raises, with_nulls=function.with_nulls)


def _hex(call: BoundCall) -> Bound:
    arg = call.args[0]
    if arg.type in coercion.INTEGRAL:
        return call.row(STRING, numbers.hexadecimal, call.binder.cast(arg, LONG))
    if arg.type not in (STRING, BINARY):
        call.unsupported(f"hex of {arg.type}")
    return call.row(STRING, _hex_bytes, call.binder.cast(arg, BINARY))


def _hex_bytes(data: bytes) -> str:
    return data.hex().upper()


def _bytes(call: BoundCall) -> Bound:
    arg = call.args[0] if call.args[0].type == BINARY else call.string(0)
    unit = 8 if call.name == "bit_length" else 1
    return call.row(INTEGER, partial(_byte_length, unit), call.binder.cast(arg, BINARY))


def _byte_length(unit: int, data: bytes) -> int:
    return unit * len(data)


def _shift(call: BoundCall) -> Bound:
    value = call.args[0]
    if value.type in (BYTE, SHORT):
        value = call.binder.cast(value, INTEGER)
    if value.type not in (INTEGER, LONG):
        call.unsupported(f"{call.name} of {value.type}")
    compute = {
        "shiftleft": numbers.shift_left,
        "shiftright": numbers.shift_right,
        "shiftrightunsigned": numbers.shift_right_unsigned,
    }[call.name]
    return call.row(value.type, partial(_shifted, compute, _BITS[value.type]), value, call.expect(1, INTEGER))


def _shifted(compute: Callable[[int, int, int], int], bits: int, value: int, count: int) -> int:
    return compute(value, count, bits)


def _bit_count(call: BoundCall) -> Bound:
    arg = call.args[0]
    if arg.type != BOOLEAN and arg.type not in coercion.INTEGRAL:
        call.unsupported(f"bit_count of {arg.type}")
    return call.row(INTEGER, _ones, arg)


def _ones(value: int) -> int:
    return (value & 0xFFFFFFFFFFFFFFFF).bit_count()


def _bit_get(call: BoundCall) -> Bound:
    arg = call.args[0]
    if arg.type not in coercion.INTEGRAL:
        call.unsupported(f"{call.name} of {arg.type}")
    return call.row(BYTE, partial(_bit_at, _BITS[arg.type]), arg, call.expect(1, INTEGER), raises=True)


def _bit_at(bits: int, value: int, position: int) -> int:
    if not 0 <= position < bits:
        raise EvaluationError(f"There is no bit {position} in a number of {bits} bits")
    return value >> position & 1


def _half_even(call: BoundCall) -> Bound:
    """`bround` of whole numbers and decimals."""
    arg = call.args[0]
    places = call.constant(1, INTEGER) if len(call.args) == 2 else 0
    if places is None or places < 0 or not (arg.type in coercion.INTEGRAL or isinstance(arg.type, DecimalType)):
        call.unsupported(f"bround of {arg.type} to {places} places")
    if not isinstance(arg.type, DecimalType):
        return arg
    scale = min(arg.type.scale, places)
    result = DecimalType(min(arg.type.precision - arg.type.scale + 1 + scale, 38), scale)
    return call.row(result, partial(_rounded, scale), arg)


def _rounded(places: int, value: Decimal) -> Any:
    return numbers.half_even(value, places)


def _constant(value: float) -> Callable[[BoundCall], Bound]:
    return lambda call: call.binder.constant(value, DOUBLE)


def _format_string(call: BoundCall) -> Bound:
    for arg in call.args[1:]:
        if arg.type not in (STRING, BOOLEAN, VOID, *coercion.INTEGRAL):
            call.unsupported(f"{call.name} of {arg.type}")
    return call.row(STRING, row_texts.format_string, call.string(0), *call.args[1:], raises=True, with_nulls=True)


def _concat_ws(call: BoundCall) -> Bound:
    parts = [
        arg if isinstance(arg.type, ArrayType) and arg.type.element == STRING else call.string(index)
        for index, arg in enumerate(call.args[1:], start=1)
    ]
    return call.row(STRING, row_texts.concat_ws, call.string(0), *parts, with_nulls=True)


def _nanvl(call: BoundCall) -> Bound:
    if call.args[1].type == STRING:
        call.unsupported("nanvl with a text, which Spark casts only in rows that need it")
    return _plain(call)


def _elt(call: BoundCall) -> Bound:
    if any(arg.type == BINARY for arg in call.args):
        call.unsupported("elt of binaries")
    texts = [call.string(index) for index in range(1, len(call.args))]
    return call.row(STRING, _chosen, call.expect(0, INTEGER), *texts, raises=True, with_nulls=True)


def _chosen(index: int | None, *texts: str | None) -> str | None:
    if index is None:
        return None
    if not 1 <= index <= len(texts):
        raise EvaluationError(f"elt has no text {index} among {len(texts)}")
    return texts[index - 1]


def _regexp(compute: Callable[..., Any], gives: DataType) -> Callable[[BoundCall], Bound]:
    """The pattern must be known, so that what is not taken is refused before rows are looked at."""

    def bind(call: BoundCall) -> Bound:
        args = [call.string(0), call.string(1)]
        if compute is regexes.regexp_replace:
            args.append(call.string(2))
        elif len(call.args) == 3:
            args.append(call.expect(2, INTEGER))
        pattern = call.constant(1, STRING)
        if pattern is None:
            return call.null(gives)
        found = regexes.java_pattern(pattern)
        if compute is regexes.split and found.match("") is not None:
            call.unsupported("Splitting where nothing stands")
        return call.row(gives, compute, *args, raises=True)

    return bind


def _hash(call: BoundCall) -> Bound:
    gives, compute = (INTEGER, row_hashes.murmur3) if call.name == "hash" else (LONG, row_hashes.xxhash64)
    args = [call.binder.null(INTEGER) if arg.type == VOID else arg for arg in call.args]
    if any(not coercion.is_atomic(arg.type) for arg in args):
        call.unsupported(f"{call.name} of values with parts")
    return call.row(gives, partial(compute, tuple(arg.type for arg in args)), *args, with_nulls=True)


def _try_arithmetic(call: BoundCall) -> Bound:
    op = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%"}[call.name]
    if any(arg.type == STRING for arg in call.args):
        call.unsupported(f"{call.name} of texts")
    left, right = map(_opaque, call.args)
    node = operators.arithmetic(call.binder, op, left, right, call.position)
    if isinstance(node.type, DecimalType) or not coercion.is_numeric(node.type):
        call.unsupported(f"{call.name} that gives {node.type}")
    if node.is_literal:  # one side is NULL
        return node
    if node.type in coercion.INTEGRAL:
        return call.row(node.type, partial(_try_whole, op, _BITS[node.type]), *node.args)
    if op in ("+", "-", "*"):
        return node
    if op == "%":
        call.unsupported(f"{call.name} that gives {node.type}")
    return call.row(node.type, _try_divide, *node.args)


def _opaque(arg: Bound) -> Bound:
    """A constant that is not calculated with while it is bound."""
    return Bound("shared", arg.type, (arg,), arg.nullable, arg.raises)


def _try_whole(op: str, bits: int, left: int, right: int) -> int | None:
    if op == "%":
        return (
            None
            if right == 0
            else int(math.fmod(left, right))
            if abs(left) < 2**53 > abs(right)
            else _rest(left, right)
        )
    value = left + right if op == "+" else left - right if op == "-" else left * right
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _rest(left: int, right: int) -> int:
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def _try_divide(left: float, right: float) -> float | None:
    return None if right == 0 else left / right


def _try_cast(target: DataType) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        if len(call.args) == 2:
            return _read(call)
        check_moment(call)
        return call.binder.explicit_cast(call.args[0], target, call.position, attempt=True)

    return bind


def check_moment(call: BoundCall) -> None:
    """Of anything but a text or a moment, `to_date` and its like are more than a cast."""
    if call.args[0].type not in (STRING, VOID, *coercion.MOMENTS):
        call.unsupported(f"{call.name} of {call.args[0].type}")


def _pattern(call: BoundCall, index: int) -> str:
    pattern = call.constant(index, STRING)
    if pattern is None:
        call.unsupported(f"{call.name} by a pattern that is null")
    return str(pattern)


def _read(call: BoundCall) -> Bound:
    """A text by a pattern, as a date, a timestamp or seconds."""
    compute, gives = {
        "to_date": (dates.read_date, DATE),
        "to_timestamp": (dates.read, TIMESTAMP),
        "to_timestamp_ltz": (dates.read, TIMESTAMP),
        "to_timestamp_ntz": (dates.read, TIMESTAMP_NTZ),
        "try_to_date": (dates.try_read_date, DATE),
        "try_to_timestamp": (dates.try_read, TIMESTAMP),
        "to_unix_timestamp": (dates.read_seconds, LONG),
        "unix_timestamp": (dates.read_seconds, LONG),
    }[call.name]
    if call.args[0].type != STRING:
        call.unsupported(f"{call.name} of {call.args[0].type}")
    pattern = _pattern(call, 1) if len(call.args) == 2 else _DEFAULT_PATTERN
    dates.check_read(pattern)
    return call.row(gives, partial(compute, pattern), call.args[0], raises=True)


def _make_timestamp(call: BoundCall) -> Bound:
    """Of a year, a month and so on, in UTC or in a zone that is said."""
    fields = [call.expect(index, INTEGER) for index in range(5)]
    seconds = call.expect(5, DecimalType(16, 6))
    zone = [call.string(6)] if len(call.args) == 7 else []
    return call.row(TIMESTAMP, moments.make_timestamp_in, *fields, seconds, *zone, raises=True)


def _unix_timestamp(call: BoundCall) -> Bound:
    if call.args[0].type in (DATE, TIMESTAMP):
        if len(call.args) == 2:
            call.exact(1, STRING)
        return call.row(LONG, moments.whole_seconds, call.expect(0, TIMESTAMP))
    return _read(call)


def _from_unixtime(call: BoundCall) -> Bound:
    pattern = _pattern(call, 1) if len(call.args) == 2 else _DEFAULT_PATTERN
    dates.check_shown(pattern)
    return call.row(STRING, partial(dates.shown_seconds, pattern), call.expect(0, LONG), raises=True)


def date_format(call: BoundCall, pattern: str, moment: Bound) -> Bound:
    dates.check_shown(pattern)
    return call.row(STRING, partial(dates.shown, pattern), moment, raises=True)


def _date_part(call: BoundCall) -> Bound:
    from lakeseal.expr.functions import bind_function

    name = _FIELDS.get(_pattern(call, 0).lower())
    if name is None:
        call.unsupported(f"{call.name} of that field")
    if call.args[1].type == DAY_TIME:
        return part_of_interval(BoundCall(call.binder, name, [call.args[1]], call.position), name)
    if name == "second":
        moment = call.args[1] if call.args[1].type == TIMESTAMP_NTZ else call.expect(1, TIMESTAMP)
        return call.row(DecimalType(8, 6), moments.seconds_of_minute, moment)
    return bind_function(call.binder, name, [call.args[1]], call.position)


def part_of_interval(call: BoundCall, name: str) -> Bound:
    if name not in intervals.PARTS:
        call.unsupported(f"{name} of an interval")
    gives: dict[str, DataType] = {"day": INTEGER, "second": DecimalType(8, 6)}
    return call.row(gives.get(name, BYTE), intervals.PARTS[name], call.args[0])


def with_unit(call: BoundCall, unit: str) -> Bound:
    """`timestampadd(MONTH, 1, x)`, `timestampdiff(DAY, a, b)` and their other names."""
    if unit not in moments.UNITS:
        call.unsupported(f"{call.name} with the unit {unit}")
    if call.name in ("timestampadd", "dateadd", "date_add"):
        moment = call.args[1] if call.args[1].type == TIMESTAMP_NTZ else call.expect(1, TIMESTAMP)
        return call.row(moment.type, partial(moments.shift, unit), call.expect(0, LONG), moment, raises=True)
    if unit == "dayofyear":
        call.unsupported(f"{call.name} with the unit {unit}")
    sides = [call.expect(index, TIMESTAMP) for index in (0, 1)]
    return call.row(LONG, partial(moments.distance, unit), *sides)


def substring(call: BoundCall) -> Bound:
    text = call.args[0] if call.args[0].type == BINARY else call.string(0)
    bounds = [call.expect(index, INTEGER) for index in range(1, len(call.args))]
    return call.row(text.type, row_texts.substring, text, *bounds)


def pad(call: BoundCall) -> Bound:
    text = call.string(0)
    padding = call.string(2) if len(call.args) == 3 else call.binder.constant(" ", STRING)
    compute = partial(_padded, call.name == "lpad")
    return call.row(STRING, compute, text, call.expect(1, INTEGER), padding, raises=True)


def pad_binary(call: BoundCall) -> Bound:
    padding = call.args[2] if len(call.args) == 3 else call.binder.constant(b"\0", BINARY)
    if padding.type != BINARY:
        call.unsupported(f"{call.name} of a binary with {padding.type}")
    compute = partial(_padded, call.name == "lpad")
    return call.row(BINARY, compute, call.args[0], call.expect(1, INTEGER), padding, raises=True)


def round_up_or_down(call: BoundCall) -> Bound:
    """`ceil(x, 2)` and `floor(x, 2)`, of whole numbers and decimals."""
    arg, places = call.args[0], call.constant(1, INTEGER)
    if arg.type in coercion.INTEGRAL:
        arg = call.binder.cast(arg, coercion.decimal_of(arg.type))
    if places is None or places < 0 or not isinstance(arg.type, DecimalType):
        call.unsupported(f"{call.name} of {arg.type} to {places} places")
    scale = min(arg.type.scale, places)
    result = DecimalType(min(arg.type.precision - arg.type.scale + 1 + scale, 38), scale)
    rounding = ROUND_FLOOR if call.name == "floor" else ROUND_CEILING
    return call.row(result, partial(_rounded_by, rounding, scale), arg, raises=True)


def _rounded_by(rounding: str, places: int, value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), rounding, EXACT)


def _to_binary(call: BoundCall) -> Bound:
    written = call.constant(1, STRING) if len(call.args) == 2 else "hex"
    attempt = call.name.startswith("try_")
    if call.args[0].type not in (STRING, VOID) or written is None:
        call.unsupported(f"{call.name} of {call.args[0].type}, written as {written}")
    match written.lower():
        case "hex":
            return call.row(BINARY, partial(_hex_to_binary, attempt), call.string(0), raises=not attempt)
        case "utf-8" | "utf8":
            return call.binder.cast(call.string(0), BINARY)
        case _:
            call.unsupported(f"{call.name} of a text that is written as {written[:20]!r}")


def _hex_to_binary(attempt: bool, text: str) -> bytes | None:
    found = row_texts.unhex(text)
    if found is None and not attempt:
        raise EvaluationError(f"{text[:50]!r} is no hexadecimal text", hint="Use try_to_binary")
    return found


def _to_number(call: BoundCall) -> Bound:
    pattern = _pattern(call, 1)
    if call.args[0].type not in (STRING, VOID):
        call.unsupported(f"{call.name} of {call.args[0].type}")
    attempt = call.name.startswith("try_")
    compute = partial(number_patterns.read, pattern, attempt)
    return call.row(number_patterns.type_of(pattern), compute, call.string(0), raises=not attempt)


def _format_number(call: BoundCall) -> Bound:
    """With commas between thousands, rounded to the even neighbour."""
    arg = call.args[0]
    if arg.type not in coercion.INTEGRAL and not isinstance(arg.type, DecimalType):
        call.unsupported(f"{call.name} of {arg.type}")
    if call.args[1].type not in coercion.INTEGRAL:
        call.unsupported(f"{call.name} by {call.args[1].type}")
    return call.row(STRING, _with_commas, arg, call.expect(1, INTEGER), raises=True)


def _with_commas(value: Any, places: int) -> str | None:
    if places < 0:
        return None
    if places > 300:
        raise UnsupportedExpression("format_number to so many places is not supported")
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN, LONG_TEXT):,f}"


def _padded(left: bool, text: str, width: int, padding: str) -> Any:
    return row_texts.pad(text, width, padding, left=left)


SPECIAL_FUNCTIONS: dict[str, Function] = {
    name: Function(_plain, function.least, function.most) for name, function in ROW_FUNCTIONS.items()
} | Function.table(
    ("hex", _hex, 1, 1),
    ("bit_length octet_length", _bytes, 1, 1),
    ("shiftleft shiftright shiftrightunsigned", _shift, 2, 2),
    ("bit_count", _bit_count, 1, 1),
    ("bit_get getbit", _bit_get, 2, 2),
    ("bround", _half_even, 1, 2),
    ("pi", _constant(math.pi), 0, 0),
    ("e", _constant(math.e), 0, 0),
    ("format_string printf", _format_string, 1, None),
    ("concat_ws", _concat_ws, 1, None),
    ("nanvl", _nanvl, 2, 2),
    ("elt", _elt, 2, None),
    ("regexp_replace", _regexp(regexes.regexp_replace, STRING), 3, 3),
    ("regexp_extract", _regexp(regexes.regexp_extract, STRING), 2, 3),
    ("regexp_extract_all", _regexp(regexes.regexp_extract_all, ArrayType(STRING)), 2, 3),
    ("regexp_count", _regexp(regexes.regexp_count, INTEGER), 2, 2),
    ("regexp_substr", _regexp(regexes.regexp_substr, STRING), 2, 2),
    ("regexp_instr", _regexp(regexes.regexp_instr, INTEGER), 2, 2),
    ("split", _regexp(regexes.split, ArrayType(STRING)), 2, 3),
    ("hash xxhash64", _hash, 1, None),
    ("try_add try_subtract try_multiply try_divide try_mod", _try_arithmetic, 2, 2),
    ("try_to_date", _try_cast(DATE), 1, 2),
    ("try_to_timestamp", _try_cast(TIMESTAMP), 1, 2),
    ("to_binary try_to_binary", _to_binary, 1, 2),
    ("format_number", _format_number, 2, 2),
    ("to_number try_to_number", _to_number, 2, 2),
    ("make_timestamp", _make_timestamp, 6, 7),
    ("make_timestamp_ltz", _make_timestamp, 6, 7),
    ("unix_timestamp to_unix_timestamp", _unix_timestamp, 1, 2),
    ("from_unixtime", _from_unixtime, 1, 2),
    ("date_part datepart", _date_part, 2, 2),
)

read_by_pattern = _read
