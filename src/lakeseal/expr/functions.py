"""Functions by name: how many arguments they take, of which types, and what they become.

A name that is not here raises `UnsupportedExpression`, and an aggregate `InvalidExpression`: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakeseal.errors import InvalidExpression, UnsupportedExpression
from lakeseal.expr import bind_rows, coercion, operators, row_texts, temporal
from lakeseal.expr.bind_collections import COLLECTION_FUNCTIONS, concat_arrays
from lakeseal.expr.bind_json import JSON_FUNCTIONS
from lakeseal.expr.bind_lambdas import LAMBDA_FUNCTIONS
from lakeseal.expr.bound import DAY_TIME, Bound
from lakeseal.expr.bound_call import BoundCall, Function
from lakeseal.expr.lexer import place
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
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
    MapType,
)

if TYPE_CHECKING:
    from lakeseal.expr.bind import Binder


def bind_function(binder: Binder, name: str, args: list[Bound], position: int) -> Bound:
    function = FUNCTIONS.get(name)
    if function is None:
        if name in _AGGREGATES:
            raise InvalidExpression(
                f"The aggregate {name} cannot be used here, at {place(binder.text, position)}",
                hint="An expression sees one row at a time",
            )
        raise UnsupportedExpression(f"The function {name} is not supported, at {place(binder.text, position)}")
    if len(args) < function.least or (function.most is not None and len(args) > function.most):
        # Spark may have a form with that many arguments.
        raise UnsupportedExpression(
            f"The function {name} with {len(args)} arguments is not supported, at {place(binder.text, position)}"
        )
    return function.bind(BoundCall(binder, name, args, position))


def bind_with_unit(binder: Binder, name: str, unit: str, args: list[Bound], position: int) -> Bound:
    return bind_rows.with_unit(BoundCall(binder, name, args, position), unit)


def _number(call: BoundCall) -> Bound:
    """The first argument as Spark's numeric functions take it."""
    arg = call.args[0]
    if arg.type in (STRING, VOID):
        return call.binder.cast(arg, DOUBLE)
    if not coercion.is_numeric(arg.type):
        call.binder.mismatch(f"{call.name} needs a number, not {arg.type}", call.position)
    return arg


def _abs(call: BoundCall) -> Bound:
    arg = _number(call)
    return call.make("abs", arg.type, arg, raises=arg.type in coercion.INTEGRAL)


def _floor(call: BoundCall) -> Bound:
    if len(call.args) == 2:
        return bind_rows.round_up_or_down(call)
    arg = _number(call)
    op = "floor" if call.name == "floor" else "ceil"
    if isinstance(arg.type, DecimalType):
        digits = arg.type.precision if arg.type.scale == 0 else arg.type.precision - arg.type.scale + 1
        return call.make(op, DecimalType(min(digits, 38), 0), arg)
    if arg.type in coercion.INTEGRAL:
        return call.binder.cast(arg, LONG)
    return call.make(op, LONG, call.binder.cast(arg, DOUBLE), raises=True)


def _round(call: BoundCall) -> Bound:
    arg = _number(call)
    places = call.constant(1, INTEGER) if len(call.args) == 2 else 0
    if places is None:
        return call.null(arg.type)
    result = arg.type
    if isinstance(result, DecimalType):
        if places < 0:
            call.unsupported("Rounding decimals before the point")
        scale = min(result.scale, places)
        result = DecimalType(min(result.precision - result.scale + 1 + scale, 38), scale)
    elif result == FLOAT and places != 0:
        call.unsupported("Rounding a float behind the point")
    elif abs(places) > 400:
        call.unsupported("Rounding to so many places")
    return call.make("round", result, arg, raises=places < 0, option=places)


def _signed(call: BoundCall) -> Bound:
    return operators.sign(call.binder, "neg" if call.name == "negative" else "positive", call.args[0], call.position)


def _modulo(call: BoundCall) -> Bound:
    op = "%" if call.name == "mod" else "pmod"
    return operators.arithmetic(call.binder, op, call.args[0], call.args[1], call.position)


def _text(op: str) -> Callable[[BoundCall], Bound]:
    return lambda call: call.make(op, STRING, call.string(0))


def _length(call: BoundCall) -> Bound:
    arg = call.args[0]
    return call.make("length", INTEGER, arg if arg.type == BINARY else call.string(0))


def _trim(call: BoundCall) -> Bound:
    op = {"ltrim": "trim leading", "rtrim": "trim trailing", "btrim": "trim both", "trim": "trim both"}.get(
        call.name, call.name
    )
    text, chars = call.string(0), " " if len(call.args) == 1 else call.constant(1, STRING)
    if chars is None:
        return call.null(STRING)
    return call.make(op, STRING, text, option=chars)


def _constants(call: BoundCall, first: int) -> bool:
    """Whether the arguments from there on are constant."""
    return all(arg.is_literal for arg in call.args[first:])


def _concat(call: BoundCall) -> Bound:
    if any(isinstance(arg.type, ArrayType) for arg in call.args):
        return concat_arrays(call)
    return operators.concat(call.binder, call.args, call.position)


def _substring(call: BoundCall) -> Bound:
    if call.args[0].type == BINARY or not _constants(call, 1):
        return bind_rows.substring(call)
    text, start = call.string(0), call.constant(1, INTEGER)
    count = call.constant(2, INTEGER) if len(call.args) == 3 else None
    if start is None or (len(call.args) == 3 and count is None):
        return call.null(STRING)
    return call.make("substring", STRING, text, option=(start, count))


def _left(call: BoundCall) -> Bound:
    if call.args[0].type == BINARY:
        call.unsupported(f"{call.name} of a binary")
    if not _constants(call, 1):
        return call.row(STRING, row_texts.SIDES[call.name], call.string(0), call.expect(1, INTEGER))
    text, count = call.string(0), call.constant(1, INTEGER)
    if count is None:
        return call.null(STRING)
    option = (1, count) if call.name == "left" else (-max(count, 0), max(count, 0))
    return call.make("substring", STRING, text, option=option)


def _replace(call: BoundCall) -> Bound:
    if not _constants(call, 1):
        return call.row(STRING, row_texts.replace, *(call.string(index) for index in range(len(call.args))))
    text, search = call.string(0), call.constant(1, STRING)
    replacement = call.constant(2, STRING) if len(call.args) == 3 else ""
    if search is None or replacement is None:
        return call.null(STRING)
    return call.make("replace", STRING, text, option=(search, replacement))


def _find(call: BoundCall) -> Bound:
    if call.args[0].type == BINARY:
        if call.args[1].type != BINARY:
            call.unsupported(f"{call.name} of a binary and {call.args[1].type}")
        return call.row(BOOLEAN, _FINDING[call.name], *call.args)
    if not _constants(call, 1):
        return call.row(BOOLEAN, _FINDING_TEXTS[call.name], call.string(0), call.string(1))
    text, wanted = call.string(0), call.constant(1, STRING)
    if wanted is None:
        return call.null(BOOLEAN)
    return call.make(call.name, BOOLEAN, text, option=wanted)


_FINDING: dict[str, Callable[[bytes, bytes], bool]] = {
    "startswith": bytes.startswith,
    "endswith": bytes.endswith,
    "contains": bytes.__contains__,
}
_FINDING_TEXTS: dict[str, Callable[[str, str], bool]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
}


def _like(call: BoundCall) -> Bound:
    name = call.name if call.name in ("like", "ilike") else "rlike"
    return operators.like(call.binder, name, call.args, call.position)


def _field(call: BoundCall) -> Bound:
    op = {"dayofmonth": "day"}.get(call.name, call.name)
    if call.args[0].type == DAY_TIME:
        return bind_rows.part_of_interval(call, op)
    if op in temporal.FIELDS_OF_TIME:
        arg = call.args[0] if call.args[0].type == TIMESTAMP_NTZ else call.expect(0, TIMESTAMP)
    else:
        arg = call.expect(0, DATE)
    return call.make(op, INTEGER, arg)


def _to_type(target: DataType) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        return call.binder.explicit_cast(call.args[0], target, call.position)

    return bind


def _read_as(target: DataType) -> Callable[[BoundCall], Bound]:
    def bind(call: BoundCall) -> Bound:
        if len(call.args) == 2:
            return bind_rows.read_by_pattern(call)
        bind_rows.check_moment(call)
        return call.binder.explicit_cast(call.args[0], target, call.position)

    return bind


def _shift_days(call: BoundCall) -> Bound:
    if call.args[1].type in (LONG, DOUBLE, FLOAT) or isinstance(call.args[1].type, DecimalType):
        call.binder.mismatch(f"{call.name} needs a number of days as int, not {call.args[1].type}", call.position)
    op = "date_sub" if call.name == "date_sub" else "date_add"
    return call.make(op, DATE, call.expect(0, DATE), call.expect(1, INTEGER))


def _date_diff(call: BoundCall) -> Bound:
    return call.make("datediff", INTEGER, call.expect(0, DATE), call.expect(1, DATE))


def _add_months(call: BoundCall) -> Bound:
    return call.make("add_months", DATE, call.expect(0, DATE), call.expect(1, INTEGER), raises=True)


def _trunc(call: BoundCall) -> Bound:
    of_date = call.name == "trunc"
    moment, unit = (0, 1) if of_date else (1, 0)
    target = DATE if of_date else TIMESTAMP
    name = temporal.trunc_unit(call.constant(unit, STRING), of_date=of_date)
    arg = call.expect(moment, target)
    return call.null(target) if name is None else call.make("trunc", target, arg, option=name)


def _date_format(call: BoundCall) -> Bound:
    pattern = call.constant(1, STRING)
    arg = call.args[0] if call.args[0].type == TIMESTAMP_NTZ else call.expect(0, TIMESTAMP)
    if pattern is None:
        return call.null(STRING)
    translated = temporal.strftime_pattern(pattern)
    if translated is None:
        return bind_rows.date_format(call, pattern, arg)
    return call.make("date_format", STRING, arg, option=translated)


def _to_char(call: BoundCall) -> Bound:
    if call.args[0].type not in coercion.MOMENTS:
        call.unsupported(f"{call.name} of {call.args[0].type}")
    return _date_format(call)


def _clock(target: DataType) -> Callable[[BoundCall], Bound]:
    return lambda call: Bound("now", target, nullable=False, option=call.name)


def _coalesce(call: BoundCall) -> Bound:
    args = call.binder.common(call.args, call.position)
    return call.make("coalesce", args[0].type, *args, nullable=all(arg.nullable for arg in args))


def _nullif(call: BoundCall) -> Bound:
    value = call.binder.share(call.args[0])
    equal = operators.comparison(call.binder, "=", value, call.args[1], call.position)
    return call.binder.case([equal], [call.null(value.type), value], call.position)


def _zero_if_null(call: BoundCall) -> Bound:
    value, zero = call.binder.common((call.args[0], call.binder.constant(0, INTEGER)), call.position)
    return call.make("coalesce", value.type, value, zero, nullable=False)


def _null_if_zero(call: BoundCall) -> Bound:
    value = call.binder.share(call.args[0])
    is_zero = operators.comparison(call.binder, "=", value, call.binder.constant(0, INTEGER), call.position)
    return call.binder.case([is_zero], [call.null(value.type), value], call.position)


def _typeof(call: BoundCall) -> Bound:
    return call.binder.constant(str(call.args[0].type), STRING)


def _if(call: BoundCall) -> Bound:
    if call.args[0].type == STRING:
        call.unsupported("if of a text")
    return call.binder.case([call.expect(0, BOOLEAN)], call.args[1:], call.position)


def _nvl2(call: BoundCall) -> Bound:
    present = call.make("not", BOOLEAN, call.make("is null", BOOLEAN, call.args[0], nullable=False))
    return call.binder.case([present], call.args[1:], call.position)


def _is_null(call: BoundCall) -> Bound:
    null = call.make("is null", BOOLEAN, call.args[0], nullable=False)
    return null if call.name == "isnull" else call.make("not", BOOLEAN, null)


def _is_nan(call: BoundCall) -> Bound:
    arg = _number(call)
    if arg.type not in coercion.FLOATING:
        arg = call.binder.cast(arg, DOUBLE)
    return call.make("isnan", BOOLEAN, arg, nullable=False)


def _extreme(call: BoundCall) -> Bound:
    target: DataType = VOID
    for arg in call.args:
        wider = coercion.without_strings(target, arg.type)
        if wider is None:
            call.binder.mismatch(f"{target} and {arg.type} have no common type", call.position)
        target = wider
    if not coercion.is_atomic(target):
        call.unsupported(f"{call.name} of {target}")
    args = [call.binder.cast(arg, target) for arg in call.args]
    return call.make(call.name, target, *args, nullable=all(arg.nullable for arg in args))


def _equal_null(call: BoundCall) -> Bound:
    return operators.comparison(call.binder, "<=>", call.args[0], call.args[1], call.position)


def _size(call: BoundCall) -> Bound:
    if call.args[0].type == VOID:
        call.unsupported(f"{call.name} of NULL")
    if not isinstance(call.args[0].type, ArrayType | MapType):
        call.binder.mismatch(f"{call.name} needs an array or a map, not {call.args[0].type}", call.position)
    return call.make("size", INTEGER, call.args[0])


def _array_contains(call: BoundCall) -> Bound:
    array, wanted = call.args
    if not isinstance(array.type, ArrayType):
        call.binder.mismatch(f"array_contains needs an array, not {array.type}", call.position)
    element = array.type.element
    fits = coercion.tightest(element, wanted.type) == element and wanted.type != VOID
    if not wanted.is_literal or not fits or element in coercion.FLOATING or not coercion.is_atomic(element):
        return COLLECTION_FUNCTIONS["array_contains"].bind(call)
    constant = call.binder.cast(wanted, element)
    if constant.value is None:
        return call.null(BOOLEAN)
    return call.make("array_contains", BOOLEAN, array, nullable=True, option=constant.option)


def _pad(call: BoundCall) -> Bound:
    if call.args[0].type == BINARY:
        return bind_rows.pad_binary(call)
    if not _constants(call, 1):
        return bind_rows.pad(call)
    text, width = call.string(0), call.constant(1, INTEGER)
    padding = call.constant(2, STRING) if len(call.args) == 3 else " "
    if width is None or padding is None:
        return call.null(STRING)
    if len(padding) != 1 or not 0 <= width <= 10_000:
        return bind_rows.pad(call)
    return call.make(call.name, STRING, text, option=(width, padding))


FUNCTIONS: dict[str, Function] = (
    bind_rows.SPECIAL_FUNCTIONS
    | COLLECTION_FUNCTIONS
    | JSON_FUNCTIONS
    | Function.table(
        ("abs", _abs, 1, 1),
        ("floor ceil ceiling", _floor, 1, 2),
        ("negative positive", _signed, 1, 1),
        ("round", _round, 1, 2),
        ("mod pmod", _modulo, 2, 2),
        ("upper ucase", _text("upper"), 1, 1),
        ("lower lcase", _text("lower"), 1, 1),
        ("length len char_length character_length", _length, 1, 1),
        ("ltrim rtrim", _trim, 1, 1),
        ("btrim", _trim, 1, 2),
        ("concat", _concat, 1, None),
        ("substring substr", _substring, 2, 3),
        ("left right", _left, 2, 2),
        ("replace", _replace, 2, 3),
        ("lpad rpad", _pad, 2, 3),
        ("startswith endswith contains", _find, 2, 2),
        ("like ilike rlike regexp regexp_like", _like, 2, 2),
        ("year quarter month day dayofmonth dayofyear dayofweek weekday weekofyear", _field, 1, 1),
        ("hour minute second", _field, 1, 1),
        ("date", _to_type(DATE), 1, 1),
        ("timestamp", _to_type(TIMESTAMP), 1, 1),
        ("to_date", _read_as(DATE), 1, 2),
        ("to_timestamp to_timestamp_ltz", _read_as(TIMESTAMP), 1, 2),
        ("to_timestamp_ntz", _read_as(TIMESTAMP_NTZ), 1, 2),
        ("boolean", _to_type(BOOLEAN), 1, 1),
        ("tinyint", _to_type(BYTE), 1, 1),
        ("smallint", _to_type(SHORT), 1, 1),
        ("int", _to_type(INTEGER), 1, 1),
        ("bigint", _to_type(LONG), 1, 1),
        ("float", _to_type(FLOAT), 1, 1),
        ("double", _to_type(DOUBLE), 1, 1),
        ("decimal", _to_type(DecimalType(10, 0)), 1, 1),
        ("string", _to_type(STRING), 1, 1),
        ("binary", _to_type(BINARY), 1, 1),
        ("date_add dateadd date_sub", _shift_days, 2, 2),
        ("datediff date_diff", _date_diff, 2, 2),
        ("add_months", _add_months, 2, 2),
        ("last_day", lambda call: call.make("last_day", DATE, call.expect(0, DATE)), 1, 1),
        ("trunc date_trunc", _trunc, 2, 2),
        ("date_format", _date_format, 2, 2),
        ("to_char to_varchar", _to_char, 2, 2),
        ("current_date curdate", _clock(DATE), 0, 0),
        ("current_timestamp now", _clock(TIMESTAMP), 0, 0),
        ("localtimestamp", _clock(TIMESTAMP_NTZ), 0, 0),
        ("coalesce", _coalesce, 1, None),
        ("nvl ifnull", _coalesce, 2, 2),
        ("nvl2", _nvl2, 3, 3),
        ("nullif", _nullif, 2, 2),
        ("zeroifnull", _zero_if_null, 1, 1),
        ("nullifzero", _null_if_zero, 1, 1),
        ("typeof", _typeof, 1, 1),
        ("if", _if, 3, 3),
        ("isnull isnotnull", _is_null, 1, 1),
        ("isnan", _is_nan, 1, 1),
        ("greatest least", _extreme, 2, None),
        ("equal_null", _equal_null, 2, 2),
        ("size cardinality", _size, 1, 1),
        ("array_contains", _array_contains, 2, 2),
    )
    | {name: Function(_trim, 1, 2) for name in ("trim both", "trim leading", "trim trailing")}
)

OF_SESSION = (
    frozenset((*bind_rows.SPECIAL_FUNCTIONS, *COLLECTION_FUNCTIONS, *JSON_FUNCTIONS)) - {"array_contains"}
) | LAMBDA_FUNCTIONS
"""Functions of which nobody has looked into what they do in other sessions than those that `expr` stands in for."""

_AGGREGATES = frozenset(
    name
    for names in (
        "any any_value approx_count_distinct avg bool_and bool_or collect_list collect_set corr count count_if",
        "every first first_value kurtosis last last_value listagg max max_by mean median min min_by mode percentile",
        "skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance",
        "dense_rank lag lead ntile rank row_number",
    )
    for name in names.split()
)
