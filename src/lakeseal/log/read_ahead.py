"""Producing side by side, consuming in order, with a bounded number of results in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    items: Iterable[Item], produce: Callable[[Item], Iterator[Result]], *, workers: int, buffered: int = 2
) -> Iterator[Result]:
    """The results of each item, item after item; up to `workers` items are worked on ahead of the consumer.

    At most `workers * (buffered + 1)` results exist that were not consumed yet. An error comes out where the result
    would have come that failed. Leaving early stops the work and waits for it to end.
    """
    source = iter(items)
    lanes: deque[_Lane[Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="lakeseal-read") as pool:

        def start() -> None:
            for item in source:
                lane = _Lane[Result](buffered)
                lanes.append(lane)
                pool.submit(lane.fill, produce, item)
                return

        try:
            for _ in range(workers):
                start()
            while lanes:
                yield from lanes[0]
                lanes.popleft()
                start()
        finally:
            for lane in lanes:
                lane.abandon()


class _Lane(Generic[Result]):
    """The results of one item on their way from a worker to the consumer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._results: deque[Result] = deque()
        self._changed = Condition()
        self._finished = False
        self._abandoned = False
        self._error: BaseException | None = None

    def fill(self, produce: Callable[[Item], Iterator[Result]], item: Item) -> None:
        error: BaseException | None = None
        try:
            if self._abandoned:
                return
            results = produce(item)
            for result in results:
                if not self._put(result):
                    break
            close = getattr(results, "close", None)
            if close is not None:
                close()
        except BaseException as raised:
            error = raised
        finally:
            with self._changed:
                self._finished, self._error = True, error
                self._changed.notify_all()

    def abandon(self) -> None:
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Result]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._results or self._finished)
                if not self._results:
                    break
                result = self._results.popleft()
                self._changed.notify_all()
            yield result
        if self._error is not None:
            raise self._error

    def _put(self, result: Result) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or len(self._results) < self._limit)
            if self._abandoned:
                return False
            self._results.append(result)
            self._changed.notify_all()
            return True
