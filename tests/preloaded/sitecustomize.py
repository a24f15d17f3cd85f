"""For Python processes of Spark's that plan reads and streams: each is forked from one that has loaded Lakeseal.

Spark forks workers of tasks from `spark.python.daemon.module`; those that plan it forks from a daemon of its own that
loads nothing, and one per start of a stream it starts anew. Each took seconds of CPU before its first answer. Python
loads this module by itself where its folder is in PYTHONPATH (see `forks`, which puts it there).
"""

import contextlib
import importlib
import os
import sys

_DAEMON = "pyspark.daemon"
_STREAM = "pyspark.sql.streaming.python_streaming_source_runner"

if _DAEMON in sys.orig_argv and "LAKESEAL_TEST_FORKS" in os.environ:
    forks = importlib.import_module("forks")
    forks.load()
elif _STREAM in sys.orig_argv and "LAKESEAL_TEST_FORKS" in os.environ:
    with contextlib.suppress(OSError):
        importlib.import_module("forks").hand_over(os.environ["LAKESEAL_TEST_FORKS"], _STREAM)
