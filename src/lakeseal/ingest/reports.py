"""What tasks are told and what they tell, as JSON: an *order* is work for one dataset, and has one report."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.ingest.quality import Measured
from lakeseal.ingest.source import WorkUnit
from lakeseal.steps.watermarks import WatermarkChange
from lakeseal.write.file_commit_protocol import TaskCommitMessage


class Order(Struct, frozen=True, kw_only=True):
    dataset: int
    """Its number in the job."""
    number: int
    """Among the dataset's own."""
    units: tuple[WorkUnit, ...]
    places: tuple[int, ...]
    """Of the units, in the dataset's plan."""

    @property
    def size(self) -> int:
        return sum(unit.size for unit in self.units)

    def results(self) -> list[UnitResult]:
        """Of units that were not read, or not to the end."""
        return [
            UnitResult(partition=unit.partition, place=place, low=unit.low)
            for unit, place in zip(self.units, self.places, strict=True)
        ]


class UnitResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    partition: str
    place: int
    """In the dataset's plan."""
    low: Any = None
    """What was published before."""
    high: Any = None
    """How far it is read; None if nothing of it is."""
    is_whole: bool = False
    error: dict[str, Any] | None = None


class OrderReport(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="order"):
    dataset: int
    number: int
    units: tuple[UnitResult, ...] = ()
    """All of the order's."""
    message: TaskCommitMessage | None = None
    error_message: TaskCommitMessage | None = None
    """Of files of the error table."""
    measured: Measured = msgspec.field(default_factory=Measured)
    error: dict[str, Any] | None = None
    """Why nothing of the order counts."""
    is_transient: bool = False
    """Whether trying again may help."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> OrderReport:
        return typed_json.decode(text, cls)


class Summary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What there is to know of a dataset besides whether it was published."""

    measured: Measured = msgspec.field(default_factory=Measured)
    changes: tuple[WatermarkChange, ...] = ()
    left_over: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: int = 0


class DatasetOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="dataset"):
    """What became of a dataset that tasks publish."""

    dataset: str
    state: Literal["published", "failed", "set_aside"]
    summary: Summary = msgspec.field(default_factory=Summary)
    version: int | None = None
    """Of the target, if that is a table."""
    error: dict[str, Any] | None = None
    may_retry: bool = False
    """Whether it was decided that nothing of it is published, so that it may be extracted again in the same run."""

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


Report = OrderReport | DatasetOutcome


def read_report(text: str) -> Report:
    report: Report = typed_json.decode(text, Report)
    return report
