"""Workers are forked from a process that has loaded what tasks need."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.spark
def test_workers_come_from_a_process_that_has_loaded_lakeseal(spark: Any) -> None:
    def origin(batches):  # type: ignore[no-untyped-def]  # Spark takes hints for a choice of kinds of functions
        import gc
        import os
        from pathlib import Path

        import pyarrow as pa

        for _ in batches:
            said = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
            yield pa.RecordBatch.from_pydict({"module": [said[2].decode()], "kept": [gc.get_freeze_count()]})

    (found,) = spark.range(1).mapInArrow(origin, "module string, kept long").collect()
    assert found.module == "lakeseal.spark.daemon"
    assert found.kept > 10_000


def test_loading_starts_no_thread_and_takes_all_that_a_write_needs() -> None:
    code = """if True:
        import sys, threading
        from lakeseal.spark import daemon
        daemon.load()
        assert threading.active_count() == 1, threading.enumerate()
        before = set(sys.modules)
        from lakeseal.spark.tasks import WriteTask
        from lakeseal.jobs.job import TaskRun
        assert set(sys.modules) == before
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("", "")
