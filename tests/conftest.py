from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from lakeseal.owner import connect
from lakeseal.testing.cluster import spark_cluster
from lakeseal.testing.postgres import postgres_server
from lakeseal.testing.s3 import S3Server, s3_server
from oracles.sessions import SESSIONS
from preloaded.forks import forking
from support.examples import PROFILE

ROOT = Path(__file__).resolve().parent.parent

# Processes that tests start share what tests share: `contracts`, `models`, `support`.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))

# Timing-based checks would make a loaded machine fail; failures must come back the same when run again.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)

# In the background, where Ctrl-C is not heard, whoever is told to end ends as by it: servers and clusters are stopped.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if sys.version_info >= (3, 13):
        # Python says so, since then, of connections to SQLite that the garbage collector closes. A process has its
        # ledgers to its end; tests drop them.
        config.addinivalue_line("filterwarnings", "ignore:unclosed database:ResourceWarning")


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end; nobody need look through it for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def shared_tables() -> Path:
    """Delta tables that other projects wrote; they live beside the repository, not in it."""
    folder = ROOT.parent / "shared" / "tables"
    if not folder.is_dir():
        pytest.skip("the folder ../shared/tables with other projects' Delta tables is not here")
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """One server for the whole process."""
    # Tests kill clients and services, not this server: what it has accepted need not reach the disk.
    with postgres_server(fsync="off", full_page_writes="off") as url:
        yield url


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """A database without a ledger. Emptied rather than made anew, which would take longer than most tests."""
    connect._open.clear()  # an owner of an earlier test would take the ledger for the one that it had opened
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS lakeseal CASCADE")
    return postgres


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One server for the whole process; tests make their own buckets."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3_root(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of a test's own on S3, whose options are in the environment, so that a URI is all that it takes."""
    for option, value in s3.storage_options.items():
        monkeypatch.setenv(f"AWS_{option.removeprefix('aws_').upper()}", value)
    return s3.uri(uuid.uuid4().hex)


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of a test's own, on a disk and on S3."""
    return str(tmp_path) if request.param == "local" else str(request.getfixturevalue("s3_root"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for the whole process. LAKESEAL_SPARK_UI=1 shows its web pages while tests run.

    LAKESEAL_TEST_MASTER=connect or =cluster takes another than local[2], LAKESEAL_TEST_SESSION=new-york,aqe-off other
    settings, by their names in `oracles.sessions`."""
    from lakeseal.spark.local_session import local_session

    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.ui.enabled": "true" if os.environ.get("LAKESEAL_SPARK_UI") else "false",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} -Duser.timezone=UTC",
    }
    for name in filter(None, os.environ.get("LAKESEAL_TEST_SESSION", "").split(",")):
        settings |= SESSIONS[name]
    master = os.environ.get("LAKESEAL_TEST_MASTER", "local[2]")
    with warnings.catch_warnings(), ExitStack() as stack:
        # A socket to the JVM that py4j leaves to the garbage collector.
        warnings.filterwarnings("ignore", category=ResourceWarning)
        stack.enter_context(forking(scratch))
        if master == "cluster":
            cluster = stack.enter_context(spark_cluster())
            settings |= {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
            session = local_session("lakeseal tests", master=cluster.master, settings=settings)
        elif master == "connect":
            # Of what only the JVM may be told when it starts, Connect says so, though it did tell it.
            warnings.filterwarnings("ignore", category=UserWarning)
            session = local_session("lakeseal tests", remote="local[2]", settings=settings)
        else:
            session = local_session("lakeseal tests", master=master, settings=settings)
        if hasattr(session, "_jvm"):
            session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
