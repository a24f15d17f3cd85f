"""Garbage of a service's process, collected when that holds up nobody.

Python looks for garbage whenever enough objects were made, on whatever thread made them, and until it is done no other
thread runs, the event loop neither. To look through all objects takes the longer the more there are, and there are most
just while a large message is worked on. So in the process of a service

- what is there once it has started stays, and is never looked through;
- young objects alone are collected by Python itself: some thousands at a time;
- all of them are looked through by the service, when enough was made since the last time, and while nothing large is
  worked on (`LargeWork`).
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakeseal.service.large import LargeWork

_EVERY_S = 0.5
_SHARE = 50
"""Of the time between two collections one takes at most a part of so many."""
_ENOUGH = 10
"""Collections of young objects that one of all of them follows: Python's own number."""
_NEVER = 2**31 - 1


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """For a process that does nothing but serve, once it has started."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*before[:2], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def collect_when_quiet(large: LargeWork) -> None:
    """Goes on until it is cancelled."""
    pause = _EVERY_S
    while True:
        await asyncio.sleep(pause)
        pause = _EVERY_S
        if gc.get_count()[2] >= _ENOUGH:
            async with large.none():
                start = time.thread_time()
                gc.collect()
                pause = max(_EVERY_S, _SHARE * (time.thread_time() - start))
