"""The process that Spark forks its Python workers from, with everything loaded that tasks of ours need.

    SparkSession.builder.config("spark.python.daemon.module", "lakeseal.spark.daemon")

Spark starts one such process per executor, and its own loads little: each worker then reads Lakeseal, Arrow and Spark's
modules (out of an archive without bytecode) by itself, one to two seconds of CPU before its first row. Forked from here
it has them. Nothing but imports happens before the fork; the threads that those start are of libraries (an allocator,
linear algebra) that are made for being forked.
"""

from __future__ import annotations

import gc
import importlib
import sys

from pyspark.daemon import manager

_OURS = ("lakeseal.spark.tasks", "lakeseal.spark.datasource", "lakeseal.spark.scan")
_SPARKS = ("pyspark.sql.pandas.serializers", "pyspark.sql.pandas.types", "pyspark.sql.conversion", "pandas")


def load() -> None:
    for name in (*_OURS, *_SPARKS):
        try:
            importlib.import_module(name)
        except ImportError as error:
            # A worker that needs it says so to its task; here nobody would hear.
            print(f"lakeseal.spark.daemon: {name} is not loaded: {error}", file=sys.stderr)
    # What was loaded stays, so collections in workers need not look at it, nor copy its pages by doing so.
    gc.freeze()


if __name__ == "__main__":
    load()
    manager()
