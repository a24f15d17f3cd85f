"""Which engine a call runs on: that of the session that it is given or whose data it gets, and otherwise this process.

pyspark is an extra, so what is Spark's is told by its name, and imported only then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from lakeseal.commands.create import Judge
from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commands.write import WriteCommand
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.in_process import InProcessEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITION_OVERWRITE = "spark.sql.sources.partitionOverwriteMode"


def engine_for(data: Any) -> Engine:
    """Who writes such data: for a DataFrame its own session, which decides what its values become."""
    return engine_of(_session_of(data))


def overwrites_dynamically(data: Any) -> bool:
    """Whether the session of a DataFrame has overwrites replace only the partitions that get rows, as it has for what
    Spark's own writers and Delta Spark overwrite."""
    if not is_spark(data):
        return False
    return str(data.sparkSession.conf.get(_PARTITION_OVERWRITE, "static")).lower() == "dynamic"


def in_session(asked: WriteCommand, data: Any) -> WriteCommand:
    """The write as its DataFrame's session has it. What was asked for by name goes before the session."""
    if asked.replace_where is not None:
        asked = msgspec.structs.replace(asked, replace_where=read_by(_session_of(data), asked.replace_where))
    if not asked.replaces_open_rows or not overwrites_dynamically(data):
        return asked
    return msgspec.structs.replace(asked, partition_overwrite="dynamic")


def merge_in_session(asked: MergeCommand, source: Any) -> MergeCommand:
    """The merge as its DataFrame's session has it."""
    spark = _session_of(source)
    return asked if spark is None else asked.worded(lambda text: read_by(spark, text))


def read_by(spark: SparkSession | None, text: Any) -> Any:
    """A text of SQL as this session reads it, with the values of its variables, `${name}`; as it stands without one.
    What is no text is a constant, and stays; so do names of columns, to which values belong."""
    if isinstance(text, Mapping):
        return {name: read_by(spark, value) for name, value in text.items()}
    if spark is None or not isinstance(text, str):
        return text
    from lakeseal.spark.variables import substituted  # pyspark is an extra

    return substituted(spark, text)


def moment_by(spark: SparkSession, moment: Any) -> Any:
    """A moment as this session means it: what is a text or a date without a zone is in the session's."""
    if moment is None:
        return None
    from lakeseal.spark.moments import moment_in  # pyspark is an extra

    return moment_in(spark, moment)


def engine_of(spark: SparkSession | None) -> Engine:
    if spark is None:
        return InProcessEngine()
    from lakeseal.spark.engine import SparkEngine  # pyspark is an extra

    return SparkEngine(spark)


def judge_of(spark: SparkSession | None) -> Judge | None:
    """Who says what an expression means to Spark; None without a session."""
    if spark is None:
        return None
    from lakeseal.spark.engine import SparkJudge  # pyspark is an extra

    return SparkJudge(spark)


def _session_of(data: Any) -> SparkSession | None:
    return data.sparkSession if is_spark(data) else None


def is_spark(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pyspark"
