"""Files that no table's log describes, on branches and in directories: which columns they have, and where they go."""

from __future__ import annotations

from collections.abc import Sequence

from lakeseal.errors import InvalidArgument
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from lakeseal.write.job import partition_fields


def columns_of_files(data: StructType) -> StructType:
    """Columns as files have them: any may be null, and what other tables noted about them does not count here."""
    return StructType(tuple(StructField(field.name, _nullable(field.type), True) for field in data.fields))


def _nullable(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return columns_of_files(data_type)
        case ArrayType(element=element):
            return ArrayType(_nullable(element))
        case MapType(key=key, value=value):
            return MapType(_nullable(key), _nullable(value))
        case _:
            return data_type


def partition_columns(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    found = tuple(field.name for field in partition_fields(schema, names))
    if len({name.lower() for name in found}) < len(found):
        raise InvalidArgument(f"A column partitions twice: {', '.join(found)}", hint="Name each column once")
    return found
