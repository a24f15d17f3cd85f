"""How a task ended, as one JSON text that any engine can carry to the driver.

A mistake in the data or the call would fail again however often the task is tried, so `report_task` turns it into a
report and the engine sees a task that succeeded; `read_report` raises it on the driver as what it was. Everything else
(a store that does not answer, a lost machine) is raised in the task, where the engine may try again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from lakeseal import errors, typed_json
from lakeseal.errors import InvalidArgument, InvalidInput, LakesealError, Unsupported
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage, TaskContext
from lakeseal.jobs.job import WriteJobSpec, run_task

_KINDS: dict[str, type[LakesealError]] = {
    value.kind: value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LakesealError)
}


class _Report(Struct, frozen=True, kw_only=True, omit_defaults=True):
    message: TaskCommitMessage | None = None
    error: dict[str, Any] | None = None


def report_task(spec: WriteJobSpec, task: TaskContext, batches: Iterable[pa.RecordBatch]) -> str:
    try:
        report = _Report(message=run_task(spec, task, batches))
    except (InvalidInput, Unsupported) as error:
        report = _Report(error=error.to_json())
    return msgspec.json.encode(report).decode()


def read_report(text: str | bytes) -> TaskCommitMessage:
    try:
        report = typed_json.decode(text, _Report)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidArgument(
            f"A task's report is malformed: {error}", hint="Driver and tasks must run the same version of Lakeseal"
        ) from error
    if report.error is not None:
        raise error_from_json(report.error)
    if report.message is None:
        raise InvalidArgument("A task's report says neither what it wrote nor why it failed")
    return report.message


def error_from_json(value: dict[str, Any]) -> LakesealError:
    """The inverse of `LakesealError.to_json`; a kind that is not known here becomes the root."""
    cls = _KINDS.get(str(value.get("kind")), LakesealError)
    version = value.get("version")
    places = {name: value.get(name) for name in ("table", "file", "column")}
    return cls(
        str(value.get("message", "A task failed")),
        hint=str(value.get("hint", "")),
        version=version if isinstance(version, int) else None,
        **{name: text if isinstance(text, str) else None for name, text in places.items()},
    )
