from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Timing-based checks would make a loaded machine fail; failures must come back the same when run again.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def shared_tables() -> Path:
    """Delta tables that other projects wrote; they live beside the repository, not in it."""
    folder = ROOT.parent / "shared" / "tables"
    if not folder.is_dir():
        pytest.skip("the folder ../shared/tables with other projects' Delta tables is not here")
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for the whole process. LAKESEAL_SPARK_UI=1 shows its web pages while tests run."""
    from pyspark.sql import SparkSession

    # Workers are started by name; without this they would be some other Python that lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("lakeseal tests")
    for name, value in {
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.ui.enabled": "true" if os.environ.get("LAKESEAL_SPARK_UI") else "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} -Duser.timezone=UTC",
    }.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # A socket to the JVM that py4j leaves to the garbage collector.
        warnings.filterwarnings("ignore", category=ResourceWarning)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
