"""Rules of quality, before anything is published: which rows may pass, and whether the dataset may.

Tasks judge each row as it passes (`RowRules`) and count what the rules of the dataset are about (`Measured`); the
driver adds the counts up and judges the dataset (`judge`). So no rule costs another pass over the rows. Rules that our
own expressions can't evaluate are left to Spark, which marks the rows (`MARKS`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import clock, expr
from lakeseal.display import counted
from lakeseal.errors import InvalidArgument, InvalidExpression, QualityFailed, UnsupportedExpression
from lakeseal.expr.bound import columns
from lakeseal.ingest.config import Check
from lakeseal.ingest.sources.source import shown
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import DATE, LONG, STRING, TIMESTAMP, TIMESTAMP_NTZ, StructField, StructType

MARKS = "__lakeseal_marks"
"""The column in which Spark says which row rules a row breaks: bit n is rule n."""
ORIGIN = "__lakeseal_origin"
"""The column in which a row that goes through Spark says which partition of its source it came from."""
MOST_RULES = 62
_OURS = "__lakeseal_"
_SAMPLES = 3

ERROR_SCHEMA = StructType(
    (
        StructField("run_id", STRING),
        StructField("dataset", STRING),
        StructField("at", TIMESTAMP),
        StructField("rule", STRING),
        StructField("reason", STRING),
        StructField("partition", STRING),
        StructField("position", STRING),
        StructField("record", STRING),
        StructField("epoch", LONG),
    )
)
"""Of every error table: what was not published, why, and where it came from."""
_ERROR_ARROW = to_arrow(ERROR_SCHEMA)
BAD_RECORD = "bad record"


class Measured(Struct, kw_only=True):
    """What tasks count; sums and maxima, so parts add up."""

    read: int = 0
    """Rows and records that the source gave."""
    rows: int = 0
    """Rows to publish."""
    bytes: int = 0
    bad_records: int = 0
    to_error_table: int = 0
    broken: dict[int, int] = {}
    """By the rule's number: rows that break it."""
    samples: dict[int, list[str]] = {}
    nulls: dict[str, int] = {}
    newest: dict[str, int] = {}
    """Microseconds since the epoch."""

    def add(self, other: Measured) -> None:
        for name in ("read", "rows", "bytes", "bad_records", "to_error_table"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for rule, count in other.broken.items():
            self.broken[rule] = self.broken.get(rule, 0) + count
        for rule, texts in other.samples.items():
            self.samples[rule] = [*self.samples.get(rule, []), *texts][:_SAMPLES]
        for column, count in other.nulls.items():
            self.nulls[column] = self.nulls.get(column, 0) + count
        for column, moment in other.newest.items():
            self.newest[column] = max(moment, self.newest.get(column, moment))


class RefusedRow(Struct, frozen=True, kw_only=True):
    """A row for the error table."""

    rule: str
    record: str
    origin: str | None = None
    """Which partition of its source it came from, where the row itself says so."""


class RowRules:
    """The rules of a dataset that are about rows, in a task."""

    def __init__(self, checks: Sequence[Check], schema: StructType | None) -> None:
        """`schema` is that of the rows to judge; None if Spark has marked them."""
        self._rules = row_rules(checks)
        self._bound = None if schema is None else [_bound(rule, schema) for rule in self._rules]
        self._nulls = [check.nulls.column for check in checks if check.nulls is not None]
        self._fresh = [check.freshness.column for check in checks if check.freshness is not None]

    def judge(self, rows: pa.RecordBatch, measured: Measured) -> tuple[pa.RecordBatch, list[RefusedRow]]:
        """Rows that pass, and those for the error table. A rule that must not fail raises."""
        marks = self._marks(rows)
        origins = None
        if self._bound is None:  # Spark gave the rows, and what it says of them is not published
            origins = rows[ORIGIN] if ORIGIN in rows.schema.names else None
            rows = rows.drop_columns([name for name in (MARKS, ORIGIN) if name in rows.schema.names])
        refused: list[RefusedRow] = []
        if marks is not None and marks.any():
            rows, refused = self._split(rows, marks, origins, measured)
        measured.rows += rows.num_rows
        self._measure(rows, measured)
        return rows, refused

    def _marks(self, rows: pa.RecordBatch) -> np.ndarray | None:
        if not self._rules or not rows.num_rows:
            return None
        if self._bound is None:
            told: np.ndarray = rows[MARKS].to_numpy(zero_copy_only=False).astype(np.int64)
            return told
        marks = np.zeros(rows.num_rows, np.int64)
        for number, bound in enumerate(self._bound):
            kept = pc.fill_null(expr.evaluate(bound, rows), False)
            kept = kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept
            marks |= np.where(kept.to_numpy(zero_copy_only=False), 0, 1 << number)
        return marks

    def _split(
        self, rows: pa.RecordBatch, marks: np.ndarray, origins: pa.Array | None, measured: Measured
    ) -> tuple[pa.RecordBatch, list[RefusedRow]]:
        refused: list[RefusedRow] = []
        out = np.zeros(rows.num_rows, bool)
        for number, rule in enumerate(self._rules):
            broken = np.flatnonzero(marks & (1 << number))
            if not len(broken):
                continue
            measured.broken[number] = measured.broken.get(number, 0) + len(broken)
            samples = measured.samples.setdefault(number, [])
            samples += [as_text(rows, int(at)) for at in broken[: _SAMPLES - len(samples)]]
            if rule.on_fail == "fail":
                raise QualityFailed(f"A row breaks the rule {rule.rule!r}: {as_text(rows, int(broken[0]))}")
            if rule.on_fail == "error_table":
                for at in map(int, broken):
                    if not out[at]:
                        origin = None if origins is None else origins[at].as_py()
                        refused.append(RefusedRow(rule=rule.rule or "", record=as_text(rows, at), origin=origin))
                out[broken] = True
        measured.to_error_table += len(refused)
        return (rows.filter(pa.array(~out)) if out.any() else rows), refused

    def _measure(self, rows: pa.RecordBatch, measured: Measured) -> None:
        for column in self._nulls:
            measured.nulls[column] = measured.nulls.get(column, 0) + _column(rows, column).null_count
        for column in self._fresh:
            values = _column(rows, column)
            if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
                raise _untimely(column, str(values.type))
            newest = pc.max(values)
            if newest.is_valid:
                moment = newest.cast(pa.timestamp("us", newest.type.tz)).cast(pa.int64()).as_py()
                measured.newest[column] = max(moment, measured.newest.get(column, moment))


def judge_schema(checks: Iterable[Check], rows: StructType, table: StructType | None) -> list[str]:
    """As `judge`, of the columns that rows bring to a table; `table` is None where the target is none."""
    warnings: list[str] = []
    for check in checks:
        if check.schema is None:
            continue
        if table is None:
            raise InvalidArgument("A rule about the schema needs a table to compare with")
        there = {field.name.lower(): field.type for field in table.fields}
        ours = {field.name.lower(): field.type for field in rows.fields}
        other = sorted(ours.keys() - there.keys())
        if check.schema == "equal":
            other = sorted(name for name in ours.keys() | there.keys() if ours.get(name) != there.get(name))
        if other:
            trouble = f"The columns {', '.join(other)} are not as the table has them"
            if check.on_fail == "fail":
                raise QualityFailed(trouble)
            warnings.append(trouble)
    return warnings


def row_rules(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.rule is not None]


def check_columns(checks: Iterable[Check], schema: StructType) -> None:
    """Raises if a rule of the dataset is about a column that rows of this schema can't be judged by."""
    for check in checks:
        for about in (check.nulls, check.freshness):
            field = None if about is None else schema.field(about.column)
            if about is not None and field is None:
                raise _lacking(about.column)
            if about is check.freshness and field is not None and field.type not in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
                raise _untimely(field.name, str(field.type))


def _lacking(column: str) -> QualityFailed:
    return QualityFailed(f"A rule is about the column {column!r}, which the rows do not have", column=column)


def _untimely(column: str, kind: str) -> InvalidArgument:
    return InvalidArgument(
        f"freshness is told by a timestamp or a date, and {column!r} is {kind}",
        column=column,
        hint="Name another column, or make one in a transform: timestamp_seconds(n) AS at",
    )


def runs_in_tasks(checks: Sequence[Check], schema: StructType) -> bool:
    """Whether tasks can judge the rows by themselves; otherwise Spark must."""
    try:
        for rule in row_rules(checks):
            _bound(rule, schema)
    except (UnsupportedExpression, InvalidExpression):
        # Spark also knows what is wrong with it, if something is.
        return False
    return True


def columns_judged(checks: Iterable[Check], schema: str | None) -> set[str]:
    """Columns of rows of this schema that rules are about."""
    found: set[str] = set()
    of = StructType(()) if schema is None else StructType.from_json(schema)
    for check in checks:
        if check.rule is not None:
            found |= {path[0] for path in columns(_bound(check, of).root)}
        for about in (check.nulls, check.freshness):
            field = None if about is None else of.field(about.column)
            found |= set() if field is None else {field.name}
    return found


def _bound(rule: Check, schema: StructType) -> Any:
    return expr.bind_predicate(expr.parse(rule.rule or ""), schema)


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    place = next((n for n, field in enumerate(rows.schema) if field.name.lower() == name.lower()), None)
    if place is None:
        raise _lacking(name)
    return rows.column(place)


def as_text(rows: pa.RecordBatch, at: int) -> str:
    row = {name: value for name, value in rows.slice(at, 1).to_pylist()[0].items() if not name.startswith(_OURS)}
    return shown(msgspec.json.encode(row, enc_hook=str).decode())


def error_rows(
    found: Sequence[tuple[str, str, str, str, str]], *, run_id: str, dataset: str, epoch: int
) -> pa.RecordBatch:
    """(rule, reason, partition, position, record) as rows of the error table."""
    now = clock.now()
    columns: list[tuple[str, ...]] = list(zip(*found, strict=True)) or [()] * 5
    count = len(found)
    arrays = [
        pa.array([run_id] * count, pa.string()),
        pa.array([dataset] * count, pa.string()),
        pa.array([now] * count, _ERROR_ARROW.field("at").type),
        *(pa.array(column, pa.string()) for column in columns),
        pa.array([epoch] * count, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ERROR_ARROW)


def judge(checks: Sequence[Check], measured: Measured, *, now: dt.datetime) -> list[str]:
    """What a run warns of; raises where a rule says that the dataset must not be published."""
    warnings: list[str] = []
    for number, rule in enumerate(row_rules(checks)):
        if count := measured.broken.get(number, 0):
            broke, were = ("1 row breaks", "was") if count == 1 else (f"{count:,} rows break", "were")
            done = "went to the error table" if rule.on_fail == "error_table" else f"{were} published all the same"
            warnings.append(f"{broke} the rule {rule.rule!r} and {done}")
    for check in checks:
        trouble = _trouble(check, measured, now)
        if trouble is None:
            continue
        if check.on_fail == "fail":
            raise QualityFailed(trouble)
        warnings.append(trouble)
    return warnings


def _trouble(check: Check, measured: Measured, now: dt.datetime) -> str | None:
    if check.rows is not None:
        if check.rows.min is not None and measured.rows < check.rows.min:
            return f"{counted(measured.rows, 'row')} came, and at least {check.rows.min} are wanted"
        if check.rows.max is not None and measured.rows > check.rows.max:
            return f"{counted(measured.rows, 'row')} came, and at most {check.rows.max} are wanted"
    if check.nulls is not None and measured.rows:
        share = measured.nulls.get(check.nulls.column, 0) / measured.rows
        if share > check.nulls.max:
            return f"{share:.1%} of {check.nulls.column} are null, and at most {check.nulls.max:.1%} may be"
    if check.freshness is not None and measured.rows:
        newest = measured.newest.get(check.freshness.column)
        if newest is None:
            return f"No row has a {check.freshness.column} to tell how fresh it is"
        age = now.timestamp() - newest / 1e6
        if age > check.freshness.max_age_seconds:
            return (
                f"The newest {check.freshness.column} is {age:,.0f} s old, and at most "
                f"{check.freshness.max_age_seconds:,.0f} s are wanted"
            )
    return None
