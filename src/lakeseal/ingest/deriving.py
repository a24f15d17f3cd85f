"""A dataset that is made of others, in one run: whether it is due, and what it comes to.

It is due where a table that it is made of has another version than its watermark names, or where its transform reads
otherwise. What it is worked out from is for `publishing` to say: tables as they are, or as the run's transaction is
about to make them.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from lakeseal.ingest.config import Dataset
from lakeseal.ingest.graph import inputs_of
from lakeseal.ingest.orders import DatasetWork
from lakeseal.ingest.publishing import Decision, Publishing
from lakeseal.ingest.python_transform import PythonTransform
from lakeseal.ingest.seen import Seen
from lakeseal.ingest.settling import Settled
from lakeseal.steps.watermarks import WatermarkChange
from lakeseal.storage import StoreSpec

_TRANSFORM = ""
"""The partition that keeps which transform it was."""

Derive = Callable[[Mapping[str, Seen]], tuple[DatasetWork, Settled]]


class Derivation:
    def __init__(
        self,
        dataset: Dataset,
        inputs: Mapping[str, StoreSpec],
        marks: Mapping[str, Any],
        *,
        is_joint: bool,
        publishing: Publishing,
        derive: Derive,
    ) -> None:
        """`marks` are its watermarks. `derive` works out the rows, and writes them where nobody sees them yet."""
        self.name, self.inputs, self.is_joint = dataset.name, dict(inputs), is_joint
        self._publishing, self._derive = publishing, derive
        self._marks, self._told = marks, {_TRANSFORM: {"transform": {_digest(dataset): 1}}}

    def decided(self, seen: Mapping[str, Seen]) -> Decision | None:
        """None if it is as it would be. Raises if it must not be published."""
        if not self._changes(seen):
            return None
        work, settled = self._derive(seen)
        return self._publishing.decide(work, settled)

    def with_watermarks(self, decision: Decision, seen: Mapping[str, Seen]) -> Decision:
        """The same, once it is certain which versions it was worked out from."""
        return replace(decision, summary=replace(decision.summary, changes=self._changes(seen)))

    def _changes(self, seen: Mapping[str, Seen]) -> tuple[WatermarkChange, ...]:
        # By the table's id: versions of two tables have no order.
        versions = {name: {"version": {one.snapshot.metadata.id: one.snapshot.version}} for name, one in seen.items()}
        return tuple(
            WatermarkChange(partition=partition, expected=self._marks.get(partition), value=value)
            for partition, value in sorted({**versions, **self._told}.items())
            if self._marks.get(partition) != value
        )


def _digest(dataset: Dataset) -> str:
    transform = dataset.transform
    text = transform
    if isinstance(transform, PythonTransform):
        text = transform.source()
    elif not isinstance(transform, str):
        try:
            text = inspect.getsource(transform)  # type: ignore[arg-type]
        except (OSError, TypeError):
            text = f"{getattr(transform, '__module__', '')}.{getattr(transform, '__qualname__', '')}"
    return hashlib.sha256("\0".join((*inputs_of(dataset), str(text))).encode()).hexdigest()[:32]
