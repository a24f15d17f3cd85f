"""Errors of ours on their way through Spark.

Spark turns what is raised in one of its Python processes into text. `noted` writes the error's parts under that text,
and `recovered` finds them again in whatever Spark raises on the driver, so that the caller catches what was raised.
Errors that are not ours (a user's function that raised, a lost executor) stay Spark's.

`Table.write` does both. Around `df.write.format("lakeseal")` it is for the user to say `with recovered():`, as there it
is Spark who is called; without it the error's text is still in Spark's.
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
    """Around what Spark runs in a process of its own."""
    try:
        yield
    except LakesealError as error:
        error.add_note(_MARK + msgspec.json.encode(error.to_json()).decode())
        # The error says what happened; where in our code is for whoever looks at its cause.
        raise error.with_traceback(None) from error.__cause__


@contextmanager
def recovered() -> Iterator[None]:
    """Around what makes Spark run it."""
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
