"""The suite of writes on a real cluster (two workers of one core) with speculation, and over Connect. Without
speculation there is only what the death of an executor and its logs need; the whole suite is a long test there.

Each way runs in a process of its own, as a process has one session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeseal.testing.cluster import Cluster, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.own_spark]

SUITE = Path(__file__).with_name("suite.py")
Outcomes = dict[str, str]

QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
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
# One of each kind of job; what is decided on the driver alone is the same everywhere.
EVERYWHERE = (
    "appends_add_rows_and_overwrites_replace_them",
    "replace_where_replaces_matching_rows_and_keeps_the_others_of_their_files",
    "dynamic_partition_overwrite_replaces_the_partitions_of_its_rows",
    "schemas_merge_or_are_replaced_when_asked_for",
    "columns_match_by_name_in_any_case_and_are_cast_as_spark_would",
    "every_type_comes_back_as_it_was",
    "partition_values_may_hold_anything",
    "a_constraint_is_checked_in_the_task_and_the_error_shows_the_row",
    "what_only_spark_can_evaluate_is_evaluated_in_its_plan",
    "a_task_that_raises_changes_nothing",
    "the_data_source_appends_and_overwrites",
    "the_data_source_refuses_with_errors_of_ours",
    "a_task_that_raises_leaves_the_branch_as_it_was",
    "a_stream_writes_every_row_once_however_often_it_is_started",
    "a_stream_in_complete_mode_replaces_all_rows",
)
ON_EXECUTORS = (
    "an_executor_that_dies_in_the_middle_costs_no_row_and_doubles_none",
    "an_executor_that_dies_in_the_middle_of_a_job_on_a_branch_costs_no_row",
    "the_web_pages_show_the_job_as_a_write_to_the_table",
    "executors_log_what_happens_in_tasks_when_the_driver_asks_for_it",
)
# Where executors are does not matter to these; what the session is made of does.
IN_ANY_SESSION = (
    "jobs_on_branches_write_in_every_format_and_mode",
    "the_data_source_reads_refs_and_writes_to_branches",
    "pipelines_transform_judge_and_publish_through_spark",
)
TWICE = "a_task_that_runs_twice_at_a_time_counts_once"


def run(names: tuple[str, ...], conf: dict[str, str], *, remote: str | None = None, work: str = "") -> Outcomes:
    with tempfile.TemporaryDirectory(prefix="lakeseal-suite-") as root:
        conf = {**conf, "spark.sql.warehouse.dir": f"{root}/warehouse", "spark.local.dir": f"{root}/local"}
        asked = json.dumps({"root": root, "remote": remote, "conf": conf, "names": names})
        ended = subprocess.run(
            [sys.executable, str(SUITE), asked],
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
    return run(EVERYWHERE, conf, work=cluster.work)


@pytest.fixture(scope="module")
def with_speculation(cluster: Cluster) -> Outcomes:
    conf = {**ON_TWO_WORKERS, **SPECULATING, "spark.master": cluster.master}
    return run((TWICE, *EVERYWHERE), conf, work=cluster.work)


@pytest.fixture(scope="module")
def over_connect() -> Outcomes:
    return run((*EVERYWHERE, *IN_ANY_SESSION), {**QUIET, "spark.ui.enabled": "false"}, remote="local[2]")


@pytest.mark.parametrize("name", ON_EXECUTORS)
def test_on_a_cluster(name: str, on_the_cluster: Outcomes) -> None:
    assert on_the_cluster[name] == "passed"


@pytest.mark.stress
@pytest.mark.parametrize("name", EVERYWHERE)
def test_all_on_a_cluster(name: str, all_on_the_cluster: Outcomes) -> None:
    assert all_on_the_cluster[name] == "passed"


@pytest.mark.parametrize("name", [TWICE, *EVERYWHERE])
def test_on_a_cluster_with_speculation(name: str, with_speculation: Outcomes) -> None:
    assert with_speculation[name] == "passed"


@pytest.mark.parametrize("name", [*EVERYWHERE, *IN_ANY_SESSION])
def test_over_spark_connect(name: str, over_connect: Outcomes) -> None:
    assert over_connect[name] == "passed"
