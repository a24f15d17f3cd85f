"""Errors of ours on their way through Spark.

Spark turns what a task raises into text. `noted` writes the error's parts under that text, and `recovered` finds them
again in whatever Spark raises on the driver, so that the caller catches what the task raised. Errors that are not ours
(a user's function that raised, a lost executor) stay Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lakeseal.errors import LakesealError
from lakeseal.write.task_report import error_from_json

_MARK = "lakeseal-error: "


@contextmanager
def noted() -> Iterator[None]:
    """Around a task."""
    try:
        yield
    except LakesealError as error:
        error.add_note(_MARK + msgspec.json.encode(error.to_json()).decode())
        raise


@contextmanager
def recovered() -> Iterator[None]:
    """Around a job."""
    try:
        yield
    except Exception as error:
        found = find(str(error))
        if found is None:
            raise
        raise found from error


def find(text: str) -> LakesealError | None:
    """The error that a task noted, in the text of the one that Spark made of it."""
    at = text.rfind(_MARK)
    if at < 0:
        return None
    line = text[at + len(_MARK) :].partition("\n")[0]
    try:
        return error_from_json(msgspec.json.decode(line, type=dict))
    except msgspec.MsgspecError:
        return None
