"""How Spark cuts rows into the Arrow batches that tasks get, while rows of ours are on their way to a task.

Since 4.1 a batch ends at 64 MB, and to know when, Spark adds up the batch's buffers after every row: with eight columns
that is half of the CPU time that the way from the JVM to Python takes. `cut_by_rows` ends batches by their number of
rows alone, as Spark did before, and at fewer rows than it did. A setting that the user has made stays as it is, and
so do both where a column may hold large binary values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from pyspark.sql import SparkSession

from lakeseal.protocol.schema import BINARY, VARIANT, ArrayType, DataType, MapType, StructType
from lakeseal.spark.lent_settings import LentSettings

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# The largest number of bytes is the only one that Spark does not compare with. Rows of 64 KB make batches of 256 MB.
_CUT_BY_ROWS = LentSettings({_BYTES: "2147483647", _ROWS: "4096"})


@contextmanager
def cut_by_rows(spark: SparkSession, schema: StructType) -> Iterator[None]:
    """Of rows of that schema, in jobs of that session that run meanwhile."""
    with nullcontext() if _may_be_large(schema) else _CUT_BY_ROWS.lent(spark):
        yield


def _may_be_large(data_type: DataType) -> bool:
    match data_type:
        case StructType(fields=fields):
            return any(_may_be_large(field.type) for field in fields)
        case ArrayType(element=inner):
            return _may_be_large(inner)
        case MapType(key=key, value=value):
            return _may_be_large(key) or _may_be_large(value)
        case _:
            return data_type in (BINARY, VARIANT)
