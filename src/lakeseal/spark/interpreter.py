"""Which Python runs our tasks.

Where Spark's master is this machine, workers are the driver's own Python: Spark would start whatever `python3` is on
the path, which may lack Lakeseal. That is not done where the user has said which one it is (PYSPARK_PYTHON), nor for
other masters, whose machines have Pythons of their own: there an error says what to set (`failures`).

This is the one place that looks at Spark's context, for there is no other way to tell it; over Connect there is none,
and the server decides.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

PYTHON_VARIABLE = "PYSPARK_PYTHON"


def use_this_python(spark: SparkSession) -> None:
    """Before tasks are made for the session."""
    if os.environ.get(PYTHON_VARIABLE):
        return
    try:
        context: Any = spark.sparkContext
        is_local = str(context.master).startswith("local")
    except Exception:  # over Connect, asking for it is an error
        return
    if is_local and spark.conf.get("spark.pyspark.python", None) is None:
        context.pythonExec = sys.executable
