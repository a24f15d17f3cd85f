"""Store assignment in Spark's plan: values into columns of another type, as the session says.

`spark.sql.storeAssignmentPolicy` decides which types go into which, and what becomes of a value that does not fit:

- ANSI: what `files/store_assignment` allows; such a value is an error, also where ANSI mode is off.
- STRICT: only what every value of fits.
- LEGACY: whatever Spark can cast. A value that does not fit wraps around or is null; that is what Spark's casts do
  while ANSI mode is off, and where it is on there is no such cast, so what could differ is refused.

Dates, timestamps and strings become each other in the session's time zone. Structs go in by name at every depth, which
Spark's own cast does not do.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal.errors import SchemaMismatch
from lakeseal.expr import casts
from lakeseal.expr.coercion import FLOATING, INTEGRAL, MOMENTS, decimal_of, is_atomic
from lakeseal.files.store_assignment import Path, check_parts, check_simple, stored_type
from lakeseal.protocol.schema import (
    DATE,
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
    dotted,
)
from lakeseal.spark.failures import raised
from lakeseal.spark.predicates import Settings, StoreAssignment, has_timestamps
from lakeseal.spark.schema import spark_type

_PRECEDENCE = (*INTEGRAL, *FLOATING)
_PLAIN_SCALE, _MOST_SCALE = 6, 36
_UPWARDS = {(DATE, TIMESTAMP), (DATE, TIMESTAMP_NTZ), (TIMESTAMP_NTZ, TIMESTAMP), (TIMESTAMP, TIMESTAMP_NTZ)}


def is_stored(source: DataType, target: DataType) -> bool:
    """Whether values of `source` are values of `target` as they are, but for what may be null."""
    return source == target or (source != VOID and stored_type(source).equals(stored_type(target)))


def stores_alike(target: DataType | None, settings: Settings) -> bool:
    """Whether values go into a column of this type as they do without a session."""
    if target is None:
        return True
    return settings.store_assignment == StoreAssignment.ANSI and (settings.is_utc or not has_timestamps(target))


def check(source: DataType, target: DataType, path: Path, settings: Settings) -> None:
    """Raises `SchemaMismatch` if no value of `source` may go into the column at `path` in such a session."""

    def simple(given: DataType, wanted: DataType, at: Path) -> None:
        match settings.store_assignment:
            case StoreAssignment.ANSI:
                check_simple(given, wanted, at)
                if not settings.ansi and wanted == STRING and _has_no_room(given):
                    raise SchemaMismatch(
                        f"{given} is written out by a cast that Spark has only while ANSI mode is on",
                        column=dotted(at),
                        hint="Set spark.sql.ansi.enabled to true, or cast the column before",
                    )
            case StoreAssignment.STRICT if not _can_up_cast(given, wanted):
                raise SchemaMismatch(
                    f"A value of type {given} cannot safely go into a column of type {wanted}",
                    column=dotted(at),
                    hint="Cast the column explicitly, or set spark.sql.storeAssignmentPolicy to ANSI",
                )
            case StoreAssignment.LEGACY if settings.ansi and not _same_in_both_modes(given, wanted):
                raise SchemaMismatch(
                    f"A value of type {given} goes into a column of type {wanted} by a cast that Spark has only while "
                    "ANSI mode is off",
                    column=dotted(at),
                    hint="Set spark.sql.ansi.enabled to false, or spark.sql.storeAssignmentPolicy to ANSI",
                )

    check_parts(source, target, path, simple)


def assigned(column: Column, source: DataType, target: DataType, settings: Settings, path: Path = ()) -> Column:
    """A value of `source` as one of `target`; the two have passed `check`. What does not fit is said of `path`."""
    if is_stored(source, target):
        return column
    match source, target:
        case StructType(), StructType():
            parts = [_part(column, source.field(field.name), field, settings, path) for field in target.fields]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(), ArrayType():
            inner = (*path, "element")
            return F.transform(column, lambda item: assigned(item, source.element, target.element, settings, inner))
        case MapType(), MapType():
            of_key, of_value = (*path, "key"), (*path, "value")
            keyed = F.transform_keys(column, lambda key, _: assigned(key, source.key, target.key, settings, of_key))
            return F.transform_values(
                keyed, lambda _, value: assigned(value, source.value, target.value, settings, of_value)
            )
        case _:
            return _cast(column, source, target, settings, path)


def _part(struct: Column, source: StructField | None, target: StructField, settings: Settings, path: Path) -> Column:
    if source is None:
        return F.lit(None).cast(spark_type(target.type)).alias(target.name)
    inner = assigned(struct.getField(source.name), source.type, target.type, settings, (*path, target.name))
    return inner.alias(target.name)


def _cast(column: Column, source: DataType, target: DataType, settings: Settings, path: Path) -> Column:
    wanted = spark_type(target)
    if settings.store_assignment != StoreAssignment.ANSI or source == VOID:
        return column.cast(wanted)
    if not settings.ansi and isinstance(source, DecimalType) and target == STRING:
        return _written_out(column, source)
    if _same_in_both_modes(source, target) or target == STRING:
        return column.cast(wanted)
    # The policy asks for ANSI casts, in either mode, and an error that names the column.
    tried = column.try_cast(wanted)
    shown = F.concat(F.lit("The value "), column.cast("string"), F.lit(f" of type {source} does not fit into {target}"))
    misfit = raised("evaluation", shown, column=dotted(path) if path else None)
    return F.when(column.isNull() | tried.isNotNull(), tried).otherwise(misfit)


def _written_out(column: Column, source: DecimalType) -> Column:
    """A decimal's digits. Without ANSI mode Spark writes what begins behind the sixth place with an exponent."""
    if source.scale <= _PLAIN_SCALE:
        return column.cast("string")
    small = column.cast(f"decimal({source.scale + 1}, {source.scale})")
    digits = F.concat(F.lit("0"), F.substring((F.abs(small) + F.lit(1).cast("decimal(1, 0)")).cast("string"), 2, 99))
    signed = F.when(column < 0, F.concat(F.lit("-"), digits)).otherwise(digits)
    return F.when(F.abs(column) < F.lit("0.000001").cast("decimal(7, 6)"), signed).otherwise(column.cast("string"))


def _same_in_both_modes(source: DataType, target: DataType) -> bool:
    if source == VOID or (source in MOMENTS and target in MOMENTS):
        return True
    if target == STRING:
        return is_atomic(source) and not isinstance(source, DecimalType)
    return casts.never_fails(source, target)


def _has_no_room(source: DataType) -> bool:
    return isinstance(source, DecimalType) and source.scale > _MOST_SCALE


def _can_up_cast(source: DataType, target: DataType) -> bool:
    if source in (target, VOID) or (source, target) in _UPWARDS:
        return True
    if target == STRING:
        return is_atomic(source)
    if source in _PRECEDENCE and target in _PRECEDENCE:
        return _PRECEDENCE.index(source) < _PRECEDENCE.index(target)
    if isinstance(source, DecimalType) and target in INTEGRAL:
        return _holds(decimal_of(target), source)
    if isinstance(target, DecimalType) and (source in INTEGRAL or isinstance(source, DecimalType)):
        return _holds(target, decimal_of(source))
    return False


def _holds(wide: DecimalType, narrow: DecimalType) -> bool:
    return wide.precision - wide.scale >= narrow.precision - narrow.scale and wide.scale >= narrow.scale
