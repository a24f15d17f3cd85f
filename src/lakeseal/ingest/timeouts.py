"""Not waiting for ever: what another system answers too late becomes `SourceTimeout`.

The work runs in a thread of its own. Nobody can stop a thread that waits inside a library, so it is left behind; it
dies with its process and what it still brings is thrown away.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lakeseal.errors import SourceTimeout

T = TypeVar("T")

_END = object()
# Enough to read ahead while rows are written, and no more memory than that.
_AHEAD = 2


def answered(ask: Callable[[], T], seconds: float, what: str) -> T:
    """`ask()`, or `SourceTimeout` after that long."""
    answers: queue.Queue[Any] = queue.Queue(1)

    def run() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=run, name="lakeseal-ask", daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise _late(what, seconds) from None
    if error is not None:
        raise error
    return answer  # type: ignore[no-any-return]


def steadily(items: Callable[[], Iterator[T]], seconds: float, what: str) -> Iterator[T]:
    """The items, each of which may take that long."""
    ready: queue.Queue[Any] = queue.Queue(_AHEAD)
    is_over = threading.Event()

    def hand_on(item: Any) -> bool:
        while not is_over.is_set():
            try:
                ready.put(item, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            made = items()
            try:
                if all(hand_on((item, None)) for item in made):
                    hand_on((_END, None))
            finally:
                close = getattr(made, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            hand_on((None, error))

    threading.Thread(target=run, name="lakeseal-read", daemon=True).start()
    try:
        while True:
            try:
                item, error = ready.get(timeout=seconds)
            except queue.Empty:
                raise _late(what, seconds) from None
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        is_over.set()


def _late(what: str, seconds: float) -> SourceTimeout:
    return SourceTimeout(f"{what} did not answer within {seconds:g} s")
