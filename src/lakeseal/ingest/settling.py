"""What the reports of a dataset's orders come to: which files count, how far watermarks move, whether the dataset may
be published. Pure, so that it is the same wherever it is decided, on the driver or in a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lakeseal import clock
from lakeseal.errors import StorageUnavailable
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.orders import OrderReport, Summary, UnitResult
from lakeseal.ingest.quality import Measured, judge
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.task_report import error_from_json
from lakeseal.steps.watermarks import WatermarkChange


class Settled(Struct, frozen=True, kw_only=True):
    messages: tuple[TaskCommitMessage, ...]
    """Of the target's files."""
    error_messages: tuple[TaskCommitMessage, ...]
    """Of the error table's."""
    summary: Summary


def settle(dataset: Dataset, orders: int, reports: Sequence[OrderReport]) -> Settled:
    """Decides, by the dataset's policy, what of the reports counts. Raises if nothing does."""
    if len(reports) != orders:
        raise StorageUnavailable(f"{orders - len(reports)} tasks of {dataset.name!r} did not report")
    failed = [report for report in reports if report.error is not None]
    counted = sorted((report for report in reports if report.error is None), key=lambda report: report.number)
    if failed and (dataset.commit == "full" or not counted):
        # What is sure to fail again says more than what may not.
        worst = min(failed, key=lambda report: report.is_transient)
        raise error_from_json(worst.error or {})
    left_over = [
        f"{', '.join(dict.fromkeys(unit.partition for unit in report.units))}: "
        f"{error_from_json(report.error or {}).message}"
        for report in failed
    ]
    left_over += [
        f"{unit.partition}: {error_from_json(unit.error).message}"
        for report in counted
        for unit in report.units
        if unit.error is not None
    ]
    changes = _changes(
        [unit for report in reports for unit in report.units],
        [unit for report in counted for unit in report.units],
        is_partial=dataset.commit == "partial",
    )
    measured = _added_up(Measured(), counted)
    return Settled(
        messages=_messages(counted),
        error_messages=_error_messages(counted),
        summary=Summary(measured=measured, changes=changes, left_over=tuple(left_over)),
    )


def settle_transformed(extracted: Settled, reports: Sequence[OrderReport]) -> Settled:
    """What tasks report that wrote the rows which Spark made of the extracted ones. Raises if one of them failed."""
    for report in reports:
        if report.error is not None:
            raise error_from_json(report.error)
    # Rows are counted where they leave; what was read, and how much, where they came in.
    read = replace(extracted.summary.measured, rows=0)
    both = [*extracted.error_messages, *_error_messages(reports)]
    return Settled(
        messages=_messages(reports),
        # Tasks of two jobs, as if they were of one.
        error_messages=tuple(replace(one, task=replace(one.task, split=n)) for n, one in enumerate(both)),
        summary=replace(extracted.summary, measured=_added_up(read, reports)),
    )


def judged(dataset: Dataset, measured: Measured) -> tuple[str, ...]:
    """What the run warns of; raises if the dataset must not be published."""
    warnings = judge(dataset.rules, measured, now=clock.now())
    if measured.bad_records:
        done = "went to the error table" if dataset.on_bad_record == "error_table" else "were skipped"
        warnings.append(f"{measured.bad_records} records are no rows and {done}")
    return tuple(warnings)


def _changes(
    planned: Sequence[UnitResult], counted: Sequence[UnitResult], *, is_partial: bool
) -> tuple[WatermarkChange, ...]:
    """A partition moves when all of its units were read; partly read ones too where the policy says so."""
    wanted = Counter(unit.partition for unit in planned)
    done = Counter(unit.partition for unit in counted if unit.is_whole)
    lows: dict[str, Any] = {}
    for unit in sorted(planned, key=lambda unit: unit.place):
        lows.setdefault(unit.partition, unit.low)
    highs: dict[str, Any] = {}
    for unit in sorted(counted, key=lambda unit: unit.place):
        if done[unit.partition] == wanted[unit.partition] or (is_partial and unit.high is not None):
            highs[unit.partition] = unit.high
    return tuple(
        WatermarkChange(partition=partition, expected=lows[partition], value=high)
        for partition, high in sorted(highs.items())
        if high != lows[partition]
    )


def _added_up(measured: Measured, reports: Sequence[OrderReport]) -> Measured:
    for report in reports:
        measured.add(report.measured)
    return measured


def _messages(reports: Sequence[OrderReport]) -> tuple[TaskCommitMessage, ...]:
    return tuple(report.message for report in reports if report.message is not None)


def _error_messages(reports: Sequence[OrderReport]) -> tuple[TaskCommitMessage, ...]:
    return tuple(report.error_message for report in reports if report.error_message is not None)
