"""Bodies of requests: how many bytes, how long, and out of JSON, in any thread, without holding up the others.

msgspec decodes a message in one go, during which no other thread of the process runs, the event loop neither. For
almost all messages that is no time. One of very many values would take long, so it is read in steps
(`stepwise_json`), and one of more than `MOST_VALUES` is refused. Whatever else looks at all bytes of a message does it
piece by piece, or lets others run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from starlette.types import Receive

from lakeseal import stepwise_json, typed_json
from lakeseal.errors import InvalidArgument, OwnerBusy, RequestTooLarge
from lakeseal.owner.messages import from_json

_BODY_SECONDS = 60
_BYTES_PER_SECOND = 2**20
"""Large bodies may take longer by so much."""
MOST_VALUES = 50_000
_COUNTED_AT_ONCE = 2**20

T = TypeVar("T")


class UploadRoom:
    """Room for bodies that are larger than most: `together` bytes at a time, so that a few that may send them cannot
    fill the memory. Not for several threads."""

    def __init__(self, each: int, together: int) -> None:
        self._each = each
        self._together = max(each, together)
        self._taken = 0

    @contextmanager
    def room_for(self, said: str | None, *, may_be_large: bool) -> Iterator[int]:
        """How many bytes a body may have that is said to be so long, while it is worked on. One that does not say how
        long it is may not be large."""
        size = int(said) if said is not None and said.isascii() and said.isdecimal() and len(said) <= 18 else 0
        if not may_be_large or not self._each < size <= self._together:
            yield self._together if may_be_large and size > self._together else self._each
            return
        if self._taken + size > self._together:
            raise OwnerBusy("The service is busy with other large requests", hint="It is asked again by itself")
        self._taken += size
        try:
            yield size
        finally:
            self._taken -= size


async def read_body(receive: Receive, said: str | None, limit: int) -> list[bytes]:
    """In the pieces in which it comes. `said` is the length that the request names. Of what is too large, the rest is
    not read."""
    if said is not None and said.isascii() and said.isdecimal() and (len(said) > 18 or int(said) > limit):
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    seconds = _BODY_SECONDS + limit // _BYTES_PER_SECOND
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise InvalidArgument("The request ended before its body")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limit:
                    raise _too_large(limit)
                if not message.get("more_body", False):
                    return pieces
    except TimeoutError:
        raise InvalidArgument(f"The request's body did not arrive within {seconds} s") from None


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"A request may have {limit:,} bytes",
        hint="Large commits are written to _commits and ratified by name; "
        "for what pipelines record the service has --max-upload",
    )


def count_values(pieces: Iterable[bytes]) -> int:
    """At most so many values are in a message; `InvalidArgument` if those are too many. What stands in texts is counted
    too."""
    count = 1
    for piece in pieces:
        for start in range(0, len(piece), _COUNTED_AT_ONCE):
            count += sum(piece.count(mark, start, start + _COUNTED_AT_ONCE) for mark in (b",", b"[", b"{"))
            if count > MOST_VALUES:
                raise InvalidArgument(
                    f"A request may have {MOST_VALUES:,} values", hint="Give the pipeline less to do in one run"
                )
    return count


def decoded(pieces: Sequence[bytes], kind: type[T], count: int | None = None) -> T:
    """`InvalidArgument` unless it is one. `count` is what `count_values` says, where that is known."""
    # Where it is long, others run meanwhile.
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if (count_values(pieces) if count is None else count) <= stepwise_json.MOST_AT_ONCE:
        return from_json(data, kind)
    try:
        return typed_json.convert(stepwise_json.decode(data.decode()), kind)
    except (ValueError, RecursionError, StopIteration) as error:
        raise InvalidArgument(f"This is no {kind.__name__}: {error}") from None
