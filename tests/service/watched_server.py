"""`lakeseal serve …`, watched from within: `GET /watched` says how long others had to wait at most since it was last
asked, in seconds.

- `busy`: so long the event loop's own thread ran without giving others on the loop their turn.
- `held`: so long it was kept from that by this process: by itself, or by a thread that had the interpreter, in a long
  call of a library or in a collection of garbage. Time in which it could have run and other processes ran is not in it,
  nor is more than all threads of this process ran meanwhile.
- `gap`: by the clock, whoever ran.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from lakeseal.cli import main
from lakeseal.service import app as service_app

_TURN_S = 0.001


class Watcher:
    def __init__(self) -> None:
        self._longest = dict.fromkeys(("busy", "held", "gap"), 0.0)
        self._task: asyncio.Task[None] | None = None

    async def tell(self, _: Request) -> JSONResponse:
        self._task = self._task or asyncio.create_task(self._watch())
        told, self._longest = self._longest, dict.fromkeys(self._longest, 0.0)
        return JSONResponse(told)

    async def _watch(self) -> None:
        with open("/proc/self/schedstat", "rb", buffering=0) as schedule:

            def waited() -> float:
                """How long this thread could have run, and had no processor."""
                schedule.seek(0)
                return int(schedule.read(100).split()[1]) / 1e9

            while True:
                own, all_threads, clock, queue = time.thread_time(), time.process_time(), time.perf_counter(), waited()
                await asyncio.sleep(_TURN_S)
                gap = time.perf_counter() - clock - _TURN_S
                ran, kept = time.process_time() - all_threads, gap - (waited() - queue)
                self._note(busy=time.thread_time() - own, held=min(ran, kept), gap=gap)

    def _note(self, **took: float) -> None:
        for name, seconds in took.items():
            self._longest[name] = max(self._longest[name], seconds)


def watched(*args: Any, **options: Any) -> Starlette:
    made = create_app(*args, **options)
    made.add_route("/watched", Watcher().tell)
    return made


if __name__ == "__main__":
    create_app, service_app.create_app = service_app.create_app, watched
    sys.exit(main(sys.argv[1:]))
