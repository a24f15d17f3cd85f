"""The seam of jobs: who runs a run's tasks. Spark does (`spark_jobs`), or threads of this process.

`extract` reads, judges and writes for all datasets and gives one report per order. `transform` takes rows that were
extracted to a table, transforms and judges them, and writes them to what the rows' schema opens.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.staging import RawStage, Stage
from lakeseal.ingest.task import DatasetWork, Order, OrderReport, run_orders
from lakeseal.protocol.schema import StructType
from lakeseal.steps.context import StepSettings
from lakeseal.write.file_commit_protocol import TaskContext

_THREADS = 4


class Opened(Protocol):
    """A target that is ready for rows of a schema, and what tasks must know to write there."""

    @property
    def stage(self) -> Stage: ...

    @property
    def work(self) -> DatasetWork: ...


class Jobs(Protocol):
    def extract(
        self, name: str, works: Sequence[DatasetWork], tasks: Sequence[Sequence[Order]]
    ) -> list[OrderReport]: ...

    def transform(
        self, name: str, dataset: Dataset, raw: RawStage, opened: Callable[[StructType], Opened]
    ) -> list[OrderReport]: ...


@runtime_checkable
class SpreadsSteps(Protocol):
    """Jobs that can also do the steps of many datasets, away from the driver."""

    def reaches(self, ledger: str) -> bool:
        """Whether tasks can open this ledger."""

    def in_shares(
        self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings, requests: Sequence[str]
    ) -> list[str]:
        """One task per request; the answers, in any order. Requests may be seen by whoever sees the job's plan, the
        settings may not."""


class LocalJobs:
    """For small pipelines without transforms, and where Spark is not."""

    def extract(self, name: str, works: Sequence[DatasetWork], tasks: Sequence[Sequence[Order]]) -> list[OrderReport]:
        attempts = itertools.count()

        def run(orders: Sequence[Order]) -> list[OrderReport]:
            return list(run_orders(works, orders, TaskContext(job_id="", split=0, task_attempt_id=next(attempts))))

        if len(tasks) == 1:
            return run(tasks[0])
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-task") as pool:
            return [report for reports in pool.map(run, tasks) for report in reports]

    def transform(
        self, name: str, dataset: Dataset, raw: RawStage, opened: Callable[[StructType], Opened]
    ) -> list[OrderReport]:
        raise InvalidArgument(
            f"The transform or a rule of {dataset.name!r} needs Spark", hint="Give the run a Spark session"
        )
