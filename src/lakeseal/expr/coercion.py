"""Which types meet in which: Spark's implicit casts with ANSI on.

Pure rules over types. `None` means that Spark refuses to bring the two together.
"""

from __future__ import annotations

from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    MAX_PRECISION,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

INTEGRAL = (BYTE, SHORT, INTEGER, LONG)
FLOATING = (FLOAT, DOUBLE)
MOMENTS = (DATE, TIMESTAMP_NTZ, TIMESTAMP)
TIMESTAMPS = (TIMESTAMP_NTZ, TIMESTAMP)
_PRECEDENCE = (*INTEGRAL, *FLOATING)
_INTEGER_DIGITS: dict[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
# Scale that division and multiplication keep at least, where all digits do not fit.
_MIN_SCALE = 6


def is_numeric(data_type: DataType) -> bool:
    return data_type in _PRECEDENCE or isinstance(data_type, DecimalType)


def is_atomic(data_type: DataType) -> bool:
    return is_numeric(data_type) or data_type in (STRING, BINARY, BOOLEAN, *MOMENTS)


def has_equality(data_type: DataType) -> bool:
    """Whether values of it are equal or not: of maps, Spark does not say."""
    match data_type:
        case StructType(fields=fields):
            return all(has_equality(field.type) for field in fields)
        case ArrayType(element=element):
            return has_equality(element)
        case _:
            return is_atomic(data_type)


def nullable_parts(data_type: DataType) -> DataType:
    """The same type with parts that may be null, and without notes: that is how values are compared."""
    match data_type:
        case StructType(fields=fields):
            return StructType(tuple(StructField(f.name, nullable_parts(f.type)) for f in fields))
        case ArrayType(element=element):
            return ArrayType(nullable_parts(element))
        case _:
            return data_type


def decimal_of(data_type: DataType) -> DecimalType:
    """The decimal that holds every value of an integral type."""
    return data_type if isinstance(data_type, DecimalType) else DecimalType(_INTEGER_DIGITS[data_type], 0)


def tightest(left: DataType, right: DataType) -> DataType | None:
    """The common type that needs no string and loses nothing but a float's neighbourhood."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if left in _PRECEDENCE and right in _PRECEDENCE:
        wider = max(left, right, key=_PRECEDENCE.index)
        return DOUBLE if wider == FLOAT else wider
    if left in MOMENTS and right in MOMENTS:
        return max(left, right, key=MOMENTS.index)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, DecimalType) and other in INTEGRAL:
            whole = decimal_of(other)
            if one.precision - one.scale >= whole.precision and one.scale >= whole.scale:
                return one
    return None


def without_notes(data_type: DataType) -> DataType:
    """The type without metadata of its fields; itself if it has none."""
    match data_type:
        case StructType(fields=fields):
            plain = tuple(StructField(f.name, without_notes(f.type), f.nullable) for f in fields)
            return data_type if plain == fields else StructType(plain)
        case ArrayType(element=element):
            inner = without_notes(element)
            return data_type if inner is element else ArrayType(inner, data_type.contains_null)
        case MapType(key=key, value=value):
            parts = without_notes(key), without_notes(value)
            same = parts[0] is key and parts[1] is value
            return data_type if same else MapType(*parts, data_type.value_contains_null)
    return data_type


def wider(left: DataType, right: DataType) -> DataType | None:
    """The common type of the branches of CASE, of COALESCE and of IN."""
    return without_strings(left, right) or with_string(left, right)


def without_strings(left: DataType, right: DataType) -> DataType | None:
    """The common type of GREATEST and LEAST."""
    common = tightest(left, right)
    if common is not None:
        return common
    for one, other in ((left, right), (right, left)):
        if isinstance(one, DecimalType):
            if isinstance(other, DecimalType) or other in INTEGRAL:
                return wider_decimal(one, decimal_of(other))
            if other in FLOATING:
                return DOUBLE
    return None


def with_string(left: DataType, right: DataType) -> DataType | None:
    """What a string and something else meet in: the string is read as the other."""
    if right == STRING:
        left, right = right, left
    if left != STRING:
        return None
    if right in INTEGRAL:
        return LONG
    if is_numeric(right):
        return DOUBLE
    return STRING if right == VOID else right if is_atomic(right) else None


def wider_decimal(left: DecimalType, right: DecimalType) -> DecimalType:
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale)
    if digits + scale <= MAX_PRECISION:
        return DecimalType(digits + scale, scale)
    return DecimalType(MAX_PRECISION, max(0, scale - (digits + scale - MAX_PRECISION)))


def decimal_result(operator: str, left: DecimalType, right: DecimalType) -> DecimalType:
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_MIN_SCALE, s1 + p2 + 1)
            return adjusted(p1 - s1 + s2 + scale, scale)
        case "%":
            scale = max(s1, s2)
            return adjusted(min(p1 - s1, p2 - s2) + scale, scale)
        case _:
            return DecimalType(min(max(p1 - s1 + s2, 1), MAX_PRECISION), 0)


def adjusted(precision: int, scale: int) -> DecimalType:
    """Too many digits: those before the point are kept, of those behind it some."""
    if precision <= MAX_PRECISION:
        return DecimalType(precision, scale)
    whole = precision - scale
    return DecimalType(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_SCALE)))


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether an explicit cast is allowed at all, between types without parts."""
    if source in (target, VOID):
        return True
    if target == STRING:
        return is_atomic(source)
    if source == STRING:
        return is_atomic(target)
    if is_numeric(source):
        return is_numeric(target) or target in (BOOLEAN, TIMESTAMP)
    if source == BOOLEAN:
        return is_numeric(target)
    if source in MOMENTS and target in MOMENTS:
        return True
    return source == TIMESTAMP and is_numeric(target)
