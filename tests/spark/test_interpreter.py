"""Which Python runs tasks, and what Spark is told where it is the wrong one, or where it is asked for what can't be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import Table, errors
from lakeseal.spark.failures import find, recovered

pytestmark = pytest.mark.spark

DRIVER = """
import sys
import lakeseal
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
table = lakeseal.Table(sys.argv[1])
try:
    table.write(spark.range(3))
    assert table.to_spark(spark, where="id > 0").count() == 2
    lakeseal.register(spark)
    spark.range(3, 5).write.format("lakeseal").mode("append").save(sys.argv[1])
    assert spark.read.format("lakeseal").load(sys.argv[1]).count() == 5
    print("rows", table.to_arrow().num_rows)
except lakeseal.LakesealError as error:
    print(error.kind, error.hint)
spark.stop()
"""


def drive(tmp_path: Path, **environment: str) -> str:
    """What a driver says on whose path `python3` is one without packages."""
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir(exist_ok=True)
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    around["PATH"] = f"{bare.parent}:{around['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "t")],
        env={**around, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.own_spark
def test_with_a_local_master_workers_are_the_drivers_python_by_themselves(tmp_path: Path) -> None:
    assert "rows 5" in drive(tmp_path)


@pytest.mark.own_spark
def test_executors_whose_python_lacks_lakeseal_are_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    said = drive(tmp_path, PYSPARK_PYTHON=str(tmp_path / "bin" / "python3"))
    assert "missing-on-executors" in said
    for word in ("spark.pyspark.python", "PYSPARK_PYTHON"):
        assert word in said, "what to set"
    for word in ("pip install 'lakeseal[spark]'", "spark.archives", "addArtifacts"):
        assert word in said, "how to ship the package"


def test_only_a_package_that_tasks_need_is_said_to_be_missing() -> None:
    told = find("org.apache.spark.SparkException: …\nModuleNotFoundError: No module named 'lakeseal'\n\tat java…")
    assert isinstance(told, errors.MissingOnExecutors)
    assert find("ModuleNotFoundError: No module named 'lakeseal_of_somebody_else'") is None
    assert find("ModuleNotFoundError: No module named 'theirs'") is None


def test_spark_finds_the_format_by_itself(spark: Any, tmp_path: Path) -> None:
    Table(tmp_path / "t").write(pa.table({"x": [1, 2, 3]}))
    fresh = spark.newSession()
    assert fresh.read.format("lakeseal").load(str(tmp_path / "t")).count() == 3
    fresh.range(2).write.format("lakeseal").mode("append").save(str(tmp_path / "new"))
    assert Table(tmp_path / "new").to_arrow().num_rows == 2


def test_a_clone_is_read_in_tasks_and_a_file_of_elsewhere_is_not(spark: Any, tmp_path: Path) -> None:
    source = Table(tmp_path / "source")
    source.write(pa.table({"x": [1, 2, 3]}))
    source.clone(tmp_path / "clone")
    assert Table(tmp_path / "clone").to_spark(spark).count() == 3
    assert spark.read.format("lakeseal").load(str(tmp_path / "clone")).count() == 3
    log = tmp_path / "clone" / "_delta_log"
    commit = log / f"{0:020d}.json"
    commit.write_text(commit.read_text().replace("lakeseal.cloneSources", "somebody.else").replace("CLONE", "WRITE"))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    for read in (
        lambda: Table(tmp_path / "clone").to_spark(spark).collect(),
        lambda: spark.read.format("lakeseal").load(str(tmp_path / "clone")).collect(),
    ):
        with pytest.raises(errors.UnsafePath, match="not allowed"), recovered():
            read()
