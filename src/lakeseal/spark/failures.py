"""Errors of ours on their way through Spark.

Spark turns what is raised in one of its Python processes into text. `noted` writes the error's parts under that text,
and `recovered` finds them again in whatever Spark raises on the driver, so that the caller catches what was raised.
What Spark itself says of values (an overflow, a cast, a division by zero, `raise_error`) becomes an `EvaluationError`
with Spark's words in it; what it says of a table's file that is gone, as its own reader notices where a DataFrame is
used later than it was made, a `DataFileMissing`; and an executor whose Python lacks Lakeseal could not say so itself.
Other errors (a user's function that raised, a lost executor) stay Spark's.

`Table.write` does both. Around `df.write.format("lakeseal")` it is for the user to say `with recovered():`, as there it
is Spark who is called; without it the error's text is still in Spark's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import msgspec
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal.errors import DataFileMissing, EvaluationError, InvalidExpression, LakesealError, MissingOnExecutors
from lakeseal.jobs.task_report import error_from_json

_MARK = "lakeseal-error: "
_LACKING = re.compile(r"ModuleNotFoundError: No module named '(lakeseal|pyarrow|numpy|msgspec|obstore|pyroaring)\b")
# `[CONDITION] text SQLSTATE: 22012`. 22 are a value's faults, 21 a subquery of too many rows, P0 is `raise_error`.
_OF_VALUES = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\0]*?)\s*SQLSTATE: ((?:22|21|P0)[0-9A-Z]{3})")
_LOST = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\].*? reading file file:(?://)?(/.*?)\. File does not exist")


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
        found = find(str(error)) or evaluation(error)
        if found is None:
            raise
        raise found from error


def find(text: str) -> LakesealError | None:
    """The error that a task noted, or would have noted, in the text of the one that Spark made of it."""
    at = text.rfind(_MARK)
    if at < 0:
        lacking = _LACKING.search(text)
        if lacking is not None:
            return MissingOnExecutors(f"The Python that runs Spark's tasks has no package {lacking[1]}")
        return _lost_file(text)
    line = text[at + len(_MARK) :].partition("\n")[0]
    try:
        # Spark may go on in the same line.
        value, _ = json.JSONDecoder().raw_decode(line)
    except ValueError:
        return None
    return error_from_json(value) if isinstance(value, dict) else None


def raised(kind: str, message: Column, column: str | None) -> Column:
    """In a plan: fails with an error of ours, which `recovered` finds."""
    parts = [F.lit(kind).alias("kind"), message.alias("message"), F.lit(column).alias("column")]
    return F.raise_error(F.concat(F.lit(_MARK), F.to_json(F.struct(*parts))))


def evaluation(error: Exception) -> EvaluationError | None:
    """The fault of a value that stopped Spark, wherever in its text it stands."""
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        return None
    found = _OF_VALUES.search(str(error))
    if found is None:
        return None
    name, text, _ = found.groups()
    first = text.partition("\n")[0].rstrip()
    return EvaluationError(f"Spark could not evaluate it: [{name}] {first}")


@contextmanager
def analysed(what: str) -> Iterator[None]:
    """Around what makes Spark analyse an expression of a user: one that means nothing is an `InvalidExpression`."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise InvalidExpression(f"Spark cannot {what}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _lost_file(text: str) -> DataFileMissing | None:
    found = _LOST.search(text)
    if found is None:
        return None
    path = Path(unquote(found[1]))
    table = next((above for above in path.parents if (above / "_delta_log").is_dir()), None)
    if table is None:
        return None
    name = str(path.relative_to(table))
    return DataFileMissing("A data file is not there", table=table.as_uri(), file=name)
