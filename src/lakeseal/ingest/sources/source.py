"""The seam of sources: where rows come from, in units that can be read anywhere and any number of times.

A source is a frozen msgspec Struct with a tag: its fields are its options, in YAML and in Python, and the object itself
travels to Spark's tasks. What it promises:

- `row_schema` is that of all rows it will ever give, until its options change.
- `plan` runs on the driver and looks, once, at what is there behind the watermarks. It gives bounded units: whatever
  arrives later is the next run's. What it can't find or reach it raises; what people should know goes to `notes`.
- `read` runs in a task. It gives exactly the rows of the unit, or raises; read again, it gives the same rows.
- A `Chunk`'s `high` says how far its partition is published once this chunk and all before it are.

A partition is whatever has a watermark of its own: a Kafka partition, a file, a query. Units of one partition follow
each other in the plan's order. Users' sources are made known by `register_source`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.protocol.schema import StructType

_SHOWN = 2000

Watermark = Any
"""JSON that its source understands; None where there is none yet."""


class WorkUnit(Struct, frozen=True, kw_only=True):
    partition: str
    low: Watermark = None
    """What is published already."""
    high: Watermark
    """What is published once all of this unit, and those of its partition before it, are. None if that is no place to
    go on from, or if only whoever reads the unit can tell: then its last chunk does."""
    size: int = 1
    """About how many bytes; tasks get about the same."""
    payload: dict[str, Any] = {}
    """What `read` needs to know besides, as JSON."""


class Plan(Struct, frozen=True, kw_only=True):
    units: tuple[WorkUnit, ...] = ()
    notes: tuple[str, ...] = ()
    schema: str | None = None
    """Of the rows, as JSON, where a source learns it from what it finds; else it is `row_schema`."""
    has_more: bool = False
    """Whether there is more than one run takes: where runs follow each other, the next begins at once."""


def at_least_one(name: str, limit: int | None) -> None:
    """Of what a run takes at most."""
    if limit is not None and limit < 1:
        raise InvalidArgument(f"{name} must be 1 or more")


class RejectedRecord(Struct, frozen=True, kw_only=True):
    """A record that is no row."""

    reason: str
    record: str
    """The record's text, as far as it can be shown."""
    position: str
    """Where it is in its partition."""

    @classmethod
    def of(cls, reason: str, record: bytes | str, position: str) -> RejectedRecord:
        """With what can be shown of the record."""
        return cls(reason=reason, record=shown(record), position=position)


class Chunk(Struct, frozen=True, kw_only=True):
    rows: pa.RecordBatch
    high: Watermark = None
    """None: only the unit's end is a watermark."""
    bad: tuple[RejectedRecord, ...] = ()
    bytes: int = 0
    unchanged: pa.Array | None = None
    """Of changes: for each row, which values it leaves out as they stay (`ingest.unchanged.told`)."""


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="source"):
    """See the module."""

    @property
    def has_records(self) -> bool:
        """Whether what it gives may be no row (`Chunk.bad`)."""
        return True

    @property
    def is_asked(self) -> bool:
        """Whether anybody waits for its answers."""
        return True

    @property
    def commit_policies(self) -> tuple[str, ...]:
        """What a dataset's `commit` may be: what is published of it where a part of it can't be read."""
        return ("full", "successful", "partial")

    def check_target(self, mode: str) -> None:
        """Raises where it makes no sense of a target in this mode."""

    def __repr__(self) -> str:
        # Options may hold passwords.
        return f"{type(self).__name__}({self.describe()})"

    def row_schema(self) -> StructType:
        raise NotImplementedError

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        raise NotImplementedError

    def preview(self, watermarks: Mapping[str, Watermark]) -> Plan:
        """As `plan`, for whoever only wants to see it: nothing changes anywhere."""
        return self.plan(watermarks)

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        raise NotImplementedError

    def within(self, first: str, last: str) -> Source:
        """The same, but only what is from `first` on and before `last`, whatever that is to the source."""
        raise Unsupported(
            f"There are no spans of {self.describe()}", hint="Read all of it again: lakeseal ingest reset"
        )

    def learnt(self, watermarks: Mapping[str, Watermark]) -> Mapping[str, Watermark]:
        """Those that say what is known of it, not how far it is read: a span of it begins with them."""
        return {}

    def change_order(self) -> str | None:
        """Of a source of changes whose rows do not come in order: the column that orders them."""
        return None

    def close(self) -> None:
        """Whoever planned with it, or read units, is done."""

    def place(self) -> str:
        """Where rows come from, as a URI without secrets."""
        return f"{kind_of(type(self))}://{self.describe()}"

    def describe(self) -> str:
        """One line for people, without secrets."""
        return kind_of(type(self))


S = TypeVar("S", bound=Source)

_kinds: dict[str, type[Source]] = {}


def kind_of(source: type[Source]) -> str:
    return str(source.__struct_config__.tag)


def register_source(source: type[S]) -> type[S]:
    """Makes a kind of source known to pipelines; usable as a decorator. Its tag is its `type` in YAML."""
    kind = kind_of(source)
    known = _kinds.setdefault(kind, source)
    if known is not source and (known.__module__, known.__qualname__) != (source.__module__, source.__qualname__):
        raise InvalidArgument(f"Sources of the type {kind!r} are {known.__qualname__}", hint="Choose another tag")
    _kinds[kind] = source
    return source


def source_types() -> Mapping[str, type[Source]]:
    return dict(_kinds)


def any_source() -> Any:
    """All kinds that are known, as one type to decode."""
    return reduce(or_, _kinds.values())


def shown(record: bytes | str) -> str:
    """A record's text, as far as people want to see it."""
    text = record.decode(errors="replace") if isinstance(record, bytes) else record
    text = text.replace("\0", "�")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
