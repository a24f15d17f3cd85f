"""The suite of writes on a real cluster (two workers of one core) with speculation, and over Connect. Without
speculation there is only what the death of an executor and its logs need; the whole suite is a long test there.

Each way runs in a process of its own, as a process has one session.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeseal.testing.cluster import Cluster, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.own_spark]

SCRIPT = Path(__file__).with_name("suite.py")
SUITE: tuple[str, ...] = tuple(runpy.run_path(str(SCRIPT))["SUITE"])
Outcomes = dict[str, str]

QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "lakeseal.spark.daemon",
}
ON_TWO_WORKERS = {
    **QUIET,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.ui.port": "0",
}
SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
}
ON_EXECUTORS = (
    "an_executor_that_dies_in_the_middle_costs_no_row_and_doubles_none",
    "an_executor_that_dies_in_the_middle_of_a_job_on_a_branch_costs_no_row",
    "the_web_pages_show_the_job_as_a_write_to_the_table",
    "executors_log_what_happens_in_tasks_when_the_driver_asks_for_it",
)
TWICE = "a_task_that_runs_twice_at_a_time_counts_once"


def run(names: tuple[str, ...], conf: dict[str, str], *, remote: str | None = None, work: str = "") -> Outcomes:
    with tempfile.TemporaryDirectory(prefix="lakeseal-suite-") as root:
        conf = {**conf, "spark.sql.warehouse.dir": f"{root}/warehouse", "spark.local.dir": f"{root}/local"}
        asked = json.dumps({"root": root, "remote": remote, "conf": conf, "names": names})
        ended = subprocess.run(
            [sys.executable, str(SCRIPT), asked],
            capture_output=True,
            text=True,
            cwd=root,
            env={**os.environ, "LAKESEAL_CLUSTER_WORK": work},
            check=False,
        )
    if ended.returncode:
        pytest.fail(f"the process of the suite ended with {ended.returncode}: {ended.stderr[-3000:]}")
    outcomes: Outcomes = json.loads(ended.stdout.splitlines()[-1])
    return outcomes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with spark_cluster(workers=2, cores=1) as running:
        yield running


@pytest.fixture(scope="module")
def on_the_cluster(cluster: Cluster) -> Outcomes:
    conf = {**ON_TWO_WORKERS, "spark.master": cluster.master}
    return run(ON_EXECUTORS, conf, work=cluster.work)


@pytest.fixture(scope="module")
def all_on_the_cluster(cluster: Cluster) -> Outcomes:
    conf = {**ON_TWO_WORKERS, "spark.master": cluster.master}
    return run(SUITE, conf, work=cluster.work)


@pytest.fixture(scope="module")
def with_speculation(cluster: Cluster) -> Outcomes:
    conf = {**ON_TWO_WORKERS, **SPECULATING, "spark.master": cluster.master}
    return run((*SUITE, TWICE), conf, work=cluster.work)


@pytest.fixture(scope="module")
def over_connect() -> Outcomes:
    return run(SUITE, {**QUIET, "spark.ui.enabled": "false"}, remote="local[2]")


@pytest.mark.parametrize("name", ON_EXECUTORS)
def test_on_a_cluster(name: str, on_the_cluster: Outcomes) -> None:
    assert on_the_cluster[name] == "passed"


@pytest.mark.stress
@pytest.mark.parametrize("name", SUITE)
def test_all_on_a_cluster(name: str, all_on_the_cluster: Outcomes) -> None:
    assert all_on_the_cluster[name] == "passed"


@pytest.mark.parametrize("name", [*SUITE, TWICE])
def test_on_a_cluster_with_speculation(name: str, with_speculation: Outcomes) -> None:
    assert with_speculation[name] == "passed"


@pytest.mark.parametrize("name", SUITE)
def test_over_spark_connect(name: str, over_connect: Outcomes) -> None:
    assert over_connect[name] == "passed"
