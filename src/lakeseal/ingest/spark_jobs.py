"""The Spark side of a run: one job that extracts for all datasets, and one for each that Spark transforms.

Only the DataFrame API is used. Rows of a dataset without a transform never enter the JVM: its tasks read, judge and
write in Arrow. With one, they are extracted first, to a table in the target's own staging area; the transform then
reads what is fixed and can be read again, whatever happens to Spark's tasks.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal.errors import InvalidArgument, InvalidExpression, InvalidInput, LakesealError, StorageUnavailable
from lakeseal.expr.render import quote_name
from lakeseal.ingest.config import Check, Dataset
from lakeseal.ingest.delegation import Delegation
from lakeseal.ingest.jobs import OpenTarget
from lakeseal.ingest.orders import DatasetWork, Order, OrderReport, Report, read_report
from lakeseal.ingest.python_transform import PythonTransform
from lakeseal.ingest.quality import MARKS, MOST_RULES, ORIGIN, row_rules
from lakeseal.ingest.seen import INPUT, Seen
from lakeseal.ingest.task import REPORT, ExtractTask, ShareTask, TransformedTask
from lakeseal.spark.arrow_batches import cut_by_rows
from lakeseal.spark.failures import find
from lakeseal.spark.in_plan import planned
from lakeseal.spark.interpreter import use_this_python
from lakeseal.spark.predicates import Settings
from lakeseal.spark.scan import to_spark
from lakeseal.spark.schema import data_schema
from lakeseal.steps.context import StepSettings

_WITH = re.compile(r"\s*WITH\s+", re.IGNORECASE)
_NO_CODE = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_SELECT = re.compile(r"\bSELECT\b", re.IGNORECASE)
_STAR = re.compile(r"\s*\*(?=\s*(?:,|FROM\b))", re.IGNORECASE)
_UNION_ALL = re.compile(r"\bUNION\s+ALL\b", re.IGNORECASE)
# Whatever puts rows together, or goes by all of a row's columns, or by their places while it takes only some rows.
_NOT_ROW_BY_ROW = re.compile(
    r"\b(?:DISTINCT|GROUP|HAVING|UNION|INTERSECT|EXCEPT|MINUS|NATURAL|PIVOT|UNPIVOT|TRANSFORM|RECURSIVE|VALUES|MAP|REDUCE"
    r"|BY\s[^()]*?(?<![\w.])\d+\b[^()]*?\b(?:LIMIT|OFFSET))\b",
    re.IGNORECASE,
)


class SparkJobs:
    def __init__(self, spark: SparkSession) -> None:
        use_this_python(spark)
        self._spark = spark

    def extract(
        self,
        name: str,
        works: Sequence[DatasetWork],
        tasks: Sequence[Sequence[Order]],
        delegation: Delegation | None = None,
    ) -> list[Report]:
        rows = [(n, msgspec.json.encode(order).decode()) for n, orders in enumerate(tasks) for order in orders]
        frame = self._spark.createDataFrame(rows, "task int, order string")
        # A shuffle costs more than a short task; it is needed only to keep several apart.
        parted = frame.repartitionById(len(tasks), "task") if len(tasks) > 1 else frame.coalesce(1)
        return [read_report(text) for text in _told(parted, ExtractTask(name, works, delegation))]

    def transform(
        self, name: str, dataset: Dataset, inputs: Mapping[str, Seen], open_target: OpenTarget
    ) -> list[OrderReport]:
        frames = {name: to_spark(self._spark, one.snapshot, one.store) for name, one in inputs.items()}
        frame = transformed(self._spark, dataset, frames)
        schema = data_schema(frame.drop(ORIGIN).schema)
        keeping = (ORIGIN,) if ORIGIN in frame.columns else ()
        work, in_plan = open_target(schema)
        if in_plan.checks:
            raise in_plan.checks[0].reason
        whole = planned(frame, schema, work.destination.spec, in_plan, Settings.of(self._spark), keeping)
        with cut_by_rows(self._spark, schema):
            told = _told(_marked(whole, row_rules(dataset.rules)), TransformedTask(name, work))
        return [OrderReport.from_json(text) for text in told]

    def reaches(self, ledger: str) -> bool:
        # A file is on the driver's machine; where the executors are, only Spark's master tells.
        is_file = ledger.startswith("sqlite")
        return not is_file or str(self._spark.conf.get("spark.master", "")).startswith("local")

    def in_shares(
        self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings, requests: Sequence[str]
    ) -> list[str]:
        try:
            rows = self.shares(name, do, settings, requests).collect()
        except Exception as error:  # as below
            raise failure(error) from error
        return [row.answer for row in rows]

    def shares(
        self, name: str, do: Callable[[StepSettings, str], str], settings: StepSettings, requests: Sequence[str]
    ) -> DataFrame:
        """What `in_shares` collects."""
        frame = self._spark.createDataFrame(list(enumerate(requests)), "share int, request string")
        parted = frame.repartitionById(len(requests), "share") if len(requests) > 1 else frame.coalesce(1)
        return parted.mapInArrow(ShareTask(name, do, settings), "answer string")


def _marked(frame: DataFrame, rules: Sequence[Check]) -> DataFrame:
    if not rules:
        return frame
    if len(rules) > MOST_RULES:
        raise InvalidArgument(f"A dataset has at most {MOST_RULES} rules for rows")
    marks = F.lit(0).cast("long")
    for number, rule in enumerate(rules):
        broken = F.when(F.coalesce(F.expr(rule.rule or ""), F.lit(False)), F.lit(0)).otherwise(F.lit(1 << number))
        marks = marks + broken.cast("long")
    try:
        marked = frame.withColumn(MARKS, marks)
        _ = marked.schema
    except PySparkException as error:
        raise InvalidExpression(f"Spark cannot evaluate a rule of quality: {_line(error)}") from error
    return marked


def _told(frame: DataFrame, task: ExtractTask | TransformedTask) -> list[str]:
    try:
        rows = frame.mapInArrow(task, REPORT).collect()
    except Exception as error:  # a job whose worker died raises what the bridge to Java makes of it
        raise failure(error) from error
    return [row.report for row in rows]


def failure(error: Exception) -> LakesealError:
    """What a failed job is to its caller: the user's query and data fail again, a lost worker does not."""
    ours = find(str(error))
    if ours is not None:
        return ours
    if isinstance(error, PySparkException) and error.getCondition() is not None:
        return InvalidInput(f"Spark cannot run the query: {_line(error)}", hint="Mend the transform, or the input")
    return StorageUnavailable(f"A job of Spark failed: {_line(error)}", hint="Run it again, and look into Spark's log")


def transformed(spark: SparkSession, dataset: Dataset, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The rows to publish. Of a source, `frames` has the rows that came in, with `ORIGIN`; so has the answer, where
    each of its rows is made of one of them by what anybody can see: no transform, or a query that selects from its
    input row by row. A function may do anything, and is not shown the column."""
    transform = dataset.transform
    if transform is None:
        return frames[INPUT]
    plain = {name: frame.drop(ORIGIN) for name, frame in frames.items()}
    if not isinstance(transform, str):
        function = transform.load() if isinstance(transform, PythonTransform) else transform
        made: DataFrame = function(*plain.values())
        if not hasattr(made, "mapInArrow"):
            raise InvalidArgument(
                f"The transform of {dataset.name!r} returned a {type(made).__name__}", hint="Return a DataFrame"
            )
        return made
    try:
        made = _query(spark, plain, transform)
        wanted = made.schema
    except PySparkException as error:
        raise InvalidExpression(
            f"Spark cannot run the transform: {_line(error)}", hint=f"It is a query over {', '.join(frames)}"
        ) from error
    asked = with_origin(transform) if INPUT in frames and ORIGIN in frames[INPUT].columns else None
    if asked is None:
        return made
    try:
        told = _query(spark, frames, asked)
        return told if told.drop(ORIGIN).schema == wanted and told.columns.count(ORIGIN) == 1 else made
    except PySparkException:
        return made  # its rows are made of something else


def with_origin(query: str) -> str | None:
    """A query that selects row by row, also in its parts (WITH, UNION ALL, a query in FROM), with the origin of each
    row in front of each; None for any other, or one that we can't tell. Whether it is a query at all, and whether each
    part has an origin and only one, is for Spark to say."""
    bare = _NO_CODE.sub(lambda found: " " * len(found[0]), query)
    if _NOT_ROW_BY_ROW.search(_UNION_ALL.sub(" ", bare)):
        return None
    parts, at = [], 0
    for select in _SELECT.finditer(bare):
        parts.append(f"{query[at : select.end()]} {ORIGIN},")
        at = select.end()
        if star := _STAR.match(bare, at):
            parts.append(f" * EXCEPT ({ORIGIN})")
            at = star.end()
    return "".join([*parts, query[at:]]) if parts else None


def _query(spark: SparkSession, frames: Mapping[str, DataFrame], query: str) -> DataFrame:
    # A view is the session's, and datasets run side by side: each query gets them under names of its own.
    views = {name: f"lakeseal_input_{uuid.uuid4().hex}" for name in frames}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(views[name])
    mine = ", ".join(f"{quote_name(name)} AS (SELECT * FROM {view})" for name, view in views.items())  # noqa: S608
    starts = _WITH.match(query)
    made = spark.sql(f"WITH {mine} {query}" if starts is None else f"WITH {mine}, {query[starts.end() :]}")
    _ = made.schema
    return made


def _line(error: BaseException) -> str:
    """What happened, without where in Java."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line.lstrip(": ") for line in lines if "Exception: " in line), lines[0])
