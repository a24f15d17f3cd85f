"""The seam of jobs: who runs a run's tasks. Spark does (`spark_jobs`), or threads of this process.

`extract` reads, judges and writes for all datasets and gives one report per order; of datasets that it is to publish,
it gives what became of them, as far as that is known. `transform` takes tables by name (`input` has the rows that were
extracted), transforms and judges their rows, and writes them to what the rows' schema opens. `in_shares` is for steps
of many datasets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.delegation import Delegation
from lakeseal.ingest.orders import DatasetWork, Order, OrderReport, Report
from lakeseal.ingest.quality import ORIGIN
from lakeseal.ingest.seen import Seen
from lakeseal.ingest.task import run_orders, written
from lakeseal.jobs.engine import InPlan
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.statements.statement import StatedName, TableChanges
from lakeseal.steps.context import StepSettings
from lakeseal.table_sql.queries import arrow_over

_THREADS = 4

T = TypeVar("T")
R = TypeVar("R")


OpenTarget = Callable[[StructType], tuple[DatasetWork, InPlan]]
"""Makes a target ready for rows of a schema: what tasks must know to write there, and what Spark must do before."""


class Jobs(Protocol):
    def extract(
        self,
        name: str,
        works: Sequence[DatasetWork],
        tasks: Sequence[Sequence[Order]],
        delegation: Delegation | None = None,
    ) -> list[Report]: ...

    def transform(
        self, name: str, dataset: Dataset, inputs: Mapping[str, Seen], open_target: OpenTarget
    ) -> list[OrderReport]: ...

    def reaches(self, ledger: str) -> bool:
        """Whether tasks can open this ledger."""

    def in_shares(
        self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings, requests: Sequence[str]
    ) -> list[str]:
        """One task per request; the answers, in any order. Requests may be seen by whoever sees the job's plan, the
        settings may not."""


class LocalJobs:
    """For small pipelines, and where Spark is not."""

    def extract(
        self,
        name: str,
        works: Sequence[DatasetWork],
        tasks: Sequence[Sequence[Order]],
        delegation: Delegation | None = None,
    ) -> list[Report]:
        attempts = itertools.count()

        def run(orders: Sequence[Order]) -> list[Report]:
            task = TaskContext(job_id="", split=0, task_attempt_id=next(attempts))
            return list(run_orders(works, orders, task, delegation))

        if len(tasks) == 1:
            return run(tasks[0])
        return [report for reports in _side_by_side(run, tasks) for report in reports]

    def transform(
        self, name: str, dataset: Dataset, inputs: Mapping[str, Seen], open_target: OpenTarget
    ) -> list[OrderReport]:
        """By DuckDB, where that answers as Spark would."""
        if not isinstance(dataset.transform, str):
            raise _needs_spark(dataset)
        tables = {name.lower(): _plain(one.rows()) for name, one in inputs.items()}

        def rows_of(named: StatedName | TableChanges) -> pa.Table | None:
            is_plain = isinstance(named, StatedName) and len(named.parts) == 1 and named.at is None
            return tables.get(named.parts[0].lower()) if is_plain and isinstance(named, StatedName) else None

        answer = arrow_over(dataset.transform, rows_of)
        schema = from_arrow(answer.schema)
        work, in_plan = open_target(schema)
        if in_plan.columns or in_plan.checks:
            raise _needs_spark(dataset)
        rows = answer.cast(to_arrow(schema))
        return [written(replace(work, schema=schema.to_json()), rows.to_batches())]

    def reaches(self, ledger: str) -> bool:
        return True

    def in_shares(
        self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings, requests: Sequence[str]
    ) -> list[str]:
        return _side_by_side(lambda request: do(settings, request), requests)


def _plain(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([ORIGIN]) if ORIGIN in rows.column_names else rows


def _needs_spark(dataset: Dataset) -> InvalidArgument:
    return InvalidArgument(
        f"The transform or a rule of {dataset.name!r} needs Spark", hint="Give the run a Spark session"
    )


def _side_by_side(do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-task") as pool:
        return list(pool.map(do, items))
