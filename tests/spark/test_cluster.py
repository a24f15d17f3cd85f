"""The suite of writes on a real cluster (two workers of one core) with speculation, and over Connect.

The shared session runs all of it (`test_write_suite`). Here each scenario runs where it may come out otherwise: what
tasks write, hand in and log on executors that run some of them twice; plans, types, errors and settings that travel to
the driver over Connect. All of it on either is a long test.

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
WITH_SPECULATION = (
    "replace_where_replaces_matching_rows_and_keeps_the_others_of_their_files",
    "dynamic_partition_overwrite_replaces_the_partitions_of_its_rows",
    "a_transaction_that_the_table_has_seen_is_not_written_again",
    "a_constraint_is_checked_in_the_task_and_the_error_shows_the_row",
    "a_task_that_raises_changes_nothing",
    "the_data_source_appends_and_overwrites",
    "a_stream_writes_every_row_once_however_often_it_is_started",
    "the_data_source_reads_refs_and_writes_to_branches",
    "a_task_that_raises_leaves_the_branch_as_it_was",
    "pipelines_transform_judge_and_publish_through_spark",
    TWICE,
)
OVER_CONNECT = (
    "a_table_is_read_by_spark_by_tasks_and_by_the_format",
    "appends_add_rows_and_overwrites_replace_them",
    "error_and_ignore_leave_a_table_that_is_there_alone",
    "replace_where_refuses_rows_outside_and_changes_nothing",
    "schemas_merge_or_are_replaced_when_asked_for",
    "columns_match_by_name_in_any_case_and_are_cast_as_spark_would",
    "every_type_comes_back_as_it_was",
    "batches_are_cut_by_rows_while_a_job_runs_unless_the_user_says_otherwise",
    "strings_of_limited_length_are_padded_and_measured",
    "partition_values_may_hold_anything",
    "what_only_spark_can_evaluate_is_evaluated_in_its_plan",
    "an_empty_frame_makes_a_table_without_files",
    "the_data_source_appends_and_overwrites",
    "the_data_source_refuses_with_errors_of_ours",
    "a_stream_in_complete_mode_replaces_all_rows",
    "jobs_on_branches_write_in_every_format_and_mode",
    "pipelines_transform_judge_and_publish_through_spark",
)


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


def on(cluster: Cluster, names: tuple[str, ...], **settings: str) -> Outcomes:
    return run(names, {**ON_TWO_WORKERS, **settings, "spark.master": cluster.master}, work=cluster.work)


@pytest.fixture(scope="module")
def on_the_cluster(cluster: Cluster) -> Outcomes:
    return on(cluster, ON_EXECUTORS)


@pytest.fixture(scope="module")
def with_speculation(cluster: Cluster) -> Outcomes:
    return on(cluster, WITH_SPECULATION, **SPECULATING)


def connected(names: tuple[str, ...]) -> Outcomes:
    return run(names, {**QUIET, "spark.ui.enabled": "false"}, remote="local[2]")


@pytest.fixture(scope="module")
def over_connect() -> Outcomes:
    return connected(OVER_CONNECT)


@pytest.fixture(scope="module", params=["cluster", "speculation", "connect"])
def everywhere(request: pytest.FixtureRequest) -> Outcomes:
    if request.param == "connect":
        return connected(SUITE)
    return on(request.getfixturevalue("cluster"), SUITE, **(SPECULATING if request.param == "speculation" else {}))


def test_every_scenario_runs_on_a_cluster_or_over_connect() -> None:
    assert set(SUITE) <= {*WITH_SPECULATION, *OVER_CONNECT}


@pytest.mark.parametrize("name", ON_EXECUTORS)
def test_on_a_cluster(name: str, on_the_cluster: Outcomes) -> None:
    assert on_the_cluster[name] == "passed"


@pytest.mark.parametrize("name", WITH_SPECULATION)
def test_on_a_cluster_with_speculation(name: str, with_speculation: Outcomes) -> None:
    assert with_speculation[name] == "passed"


@pytest.mark.parametrize("name", OVER_CONNECT)
def test_over_spark_connect(name: str, over_connect: Outcomes) -> None:
    assert over_connect[name] == "passed"


@pytest.mark.stress
@pytest.mark.parametrize("name", SUITE)
def test_all_of_it_everywhere(name: str, everywhere: Outcomes) -> None:
    assert everywhere[name] == "passed"
