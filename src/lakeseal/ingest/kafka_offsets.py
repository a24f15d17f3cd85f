"""What a Kafka source reads next, decided from values: the watermark, and what the topic has now.

A watermark is `{"generation", "offset", "topic_id"}`: the first offset that is not published yet, of a topic that is
the same one as long as its generation is. Kafka gives a topic that is deleted and made again a new id; where brokers
tell no ids, an offset beyond the topic's end says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from lakeseal.errors import SourceChanged

Policy = Literal["fail", "earliest", "latest", "skip"]
Start = Literal["earliest", "latest"]


class PartitionState(Struct, frozen=True, kw_only=True):
    """A partition as its broker tells it: offsets from `earliest` on, up to and without `latest`."""

    topic: str
    number: int
    earliest: int
    latest: int
    topic_id: str | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.number}"


class OffsetRange(Struct, frozen=True, kw_only=True):
    start: int
    end: int
    high: dict[str, Any]
    note: str | None = None


def next_range(
    state: PartitionState,
    mark: Mapping[str, Any] | None,
    *,
    start: Start,
    on_lost: Policy,
    is_new_topic: bool,
    limit: int | None = None,
) -> OffsetRange | str | None:
    """What to read; None if there is nothing new, a note alone where the policy is to leave the partition alone.
    `is_new_topic` says that no partition of the topic has a watermark."""
    if mark is None:
        # A partition that was added to a known topic is read from its beginning: it has nothing old.
        first = state.earliest if start == "earliest" or not is_new_topic else state.latest
        return _range(state, first, state.latest, 0, None, limit)
    trouble = _trouble(state, mark)
    if trouble is None:
        if mark["offset"] == state.latest:
            return None
        return _range(state, mark["offset"], state.latest, mark["generation"], mark.get("topic_id"), limit)
    note = f"{state.name}: {trouble}"
    match on_lost:
        case "fail":
            raise SourceChanged(
                note,
                hint="Say on_lost_offsets: earliest, latest or skip, or set the watermark by lakeseal ingest reset",
            )
        case "skip":
            return f"{note}; the partition is skipped and its watermark stays"
        case "earliest":
            done = f"{note}; going on from its earliest offset {state.earliest}"
            return _range(state, state.earliest, state.latest, mark["generation"] + 1, None, limit, done)
        case "latest":
            done = f"{note}; going on from its end, {state.latest}"
            return _range(state, state.latest, state.latest, mark["generation"] + 1, None, limit, done)


def _trouble(state: PartitionState, mark: Mapping[str, Any]) -> str | None:
    offset, known_id = mark["offset"], mark.get("topic_id")
    if known_id is not None and state.topic_id is not None and known_id != state.topic_id:
        return f"the topic was deleted and made again (its id was {known_id} and is {state.topic_id})"
    if offset > state.latest:
        return f"offset {offset} is published and the topic ends at {state.latest}: it was made again or truncated"
    if offset < state.earliest:
        return f"the offsets {offset} to {state.earliest - 1} were deleted before they were read"
    return None


def _range(
    state: PartitionState,
    first: int,
    latest: int,
    generation: int,
    known_id: str | None,
    limit: int | None,
    note: str | None = None,
) -> OffsetRange:
    end = latest if limit is None else min(latest, first + limit)
    topic_id = state.topic_id or known_id
    high: dict[str, Any] = {"generation": generation, "offset": end}
    if topic_id is not None:
        high["topic_id"] = topic_id
    return OffsetRange(start=first, end=end, high=high, note=note)
