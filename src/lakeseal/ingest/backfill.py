"""A backfill: a span of a dataset's source, published again beside what runs bring.

It is a dataset of its own to the ledger, with watermarks of its own, into the same target: killed anywhere, it goes on
where it was, and once it is done, done again it publishes nothing. The dataset's own watermarks stay. What was begun is
known under `BACKFILLS`, so that `resume` finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.sources.source import Source
from lakeseal.steps.books import Books
from lakeseal.steps.watermarks import WatermarkChange

BACKFILLS = "(backfills)"
"""Stands for a dataset; its partitions are the backfills."""
_NAMED = re.compile(r" \[.*\)$", re.DOTALL)


class BackfillRange(Struct, frozen=True, kw_only=True):
    dataset: str
    first: str
    last: str
    """Not in it any more."""

    @property
    def name(self) -> str:
        return f"{self.dataset} [{self.first}, {self.last})"

    def of(self, dataset: Dataset) -> Dataset:
        if getattr(dataset.target, "mode", None) == "replace":
            raise InvalidArgument(
                f"A run of {self.dataset!r} replaces all rows that there are: of a span, no others would be left",
                hint="Read all of its source again: lakeseal ingest reset",
            )
        return replace(dataset, name=self.name, source=dataset.source.within(self.first, self.last))

    def begin(self, books: Books, pipeline: str, source: Source, *, again: bool = False) -> None:
        known = books.watermarks.read(pipeline, BACKFILLS).get(self.name)
        if known is None or (again and known["is_done"]):
            learnt = source.learnt(books.watermarks.read(pipeline, self.dataset))
            books.watermarks.reset(pipeline, self.name, learnt)
            self._tell(books, pipeline, known, is_done=False)

    def end(self, books: Books, pipeline: str) -> None:
        known = books.watermarks.read(pipeline, BACKFILLS).get(self.name)
        self._tell(books, pipeline, known, is_done=True)

    def _tell(self, books: Books, pipeline: str, known: object, *, is_done: bool) -> None:
        value = {"dataset": self.dataset, "from": self.first, "to": self.last, "is_done": is_done}
        if value != known:
            change = WatermarkChange(partition=self.name, expected=known, value=value)
            books.watermarks.advance(pipeline, BACKFILLS, [change])


def unfinished(books: Books, pipeline: str) -> list[BackfillRange]:
    """Those that were begun and have not come to their end."""
    found = books.watermarks.read(pipeline, BACKFILLS).values()
    return [
        BackfillRange(dataset=one["dataset"], first=one["from"], last=one["to"]) for one in found if not one["is_done"]
    ]


def with_backfills(names: Iterable[str]) -> set[str]:
    """These datasets, and those that they are backfills of: all of one write below the same target."""
    return {form for name in names for form in (name, _NAMED.sub("", name))}
