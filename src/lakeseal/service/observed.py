"""What is noted of every request: an id, a line in the log, numbers, and headers that every reply has."""

from __future__ import annotations

import itertools
import logging
import re
import time
import uuid
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakeseal import traces
from lakeseal.clock import now_ms
from lakeseal.owner.messages import BatchAnswer, Ratified, Taken
from lakeseal.service.finished_calls import FinishedCall, FinishedCalls
from lakeseal.service.wire import REQUEST_ID

_log = logging.getLogger("lakeseal.service.requests")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = "lakeseal.note"
_NAME = REQUEST_ID.lower().encode()
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_QUIET = ("health", "ready", "metrics")
_MOST_TOLD = 20


# Ids are unique to this process without asking for randomness each time.
_worker = uuid.uuid4().hex[:16]
_ids = itertools.count()


class Note:
    """Filled in while a request is worked on."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        said = next((str(value, "latin-1") for name, value in headers if name == _NAME), "")
        self.request_id = said if _ID.fullmatch(said) else f"{_worker}{next(_ids):016x}"
        self.start = time.perf_counter()
        self.call = "other"
        self.token_id: str | None = None
        self.table: str | None = None
        self.kind: str | None = None
        self.wait_s = 0.0
        self.status = 500
        self.who = ""
        self.decided: BatchAnswer | None = None

    @staticmethod
    def of(scope: Scope) -> Note:
        note = scope[_KEY]
        assert isinstance(note, Note)
        return note

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return (*_ALWAYS, (_NAME, self.request_id.encode()))

    @property
    def attributes(self) -> dict[str, str | int | None]:
        """Of its span."""
        return {
            "name": f"lakeseal serve {self.call}",
            "http.response.status_code": self.status,
            "lakeseal.request_id": self.request_id,
            "lakeseal.token": self.token_id,
            "lakeseal.table": self.table,
            "error.type": self.kind,
        }

    @property
    def is_worth_a_line(self) -> bool:
        """On pages: it was refused, and not by a page itself, or it decided on commits."""
        return self.decided is not None or (self.kind is not None and self.call not in ("page", "other", *_QUIET))

    def line(self) -> FinishedCall:
        told = () if self.decided is None else self.decided.commits[:_MOST_TOLD]
        ratified = tuple(one for one in told if isinstance(one, Ratified))
        return FinishedCall(
            at_ms=now_ms(),
            call=self.call,
            who=self.who,
            tables=tuple(one.table for one in told) or ((self.table,) if self.table else ()),
            versions=tuple(one.version for one in ratified),
            conflicts=sum(isinstance(one, Taken) for one in told),
            refused=self.kind,
        )

    def end(self, finished: FinishedCalls) -> None:
        seconds = time.perf_counter() - self.start
        finished.count(self.call, self.status, seconds, self.kind, () if self.decided is None else self.decided.commits)
        if self.is_worth_a_line:
            finished.remember(self.line())
        level = logging.DEBUG if self.call in _QUIET and self.status == 200 else logging.INFO
        if _log.isEnabledFor(level):
            told = {
                "request_id": self.request_id,
                "call": self.call,
                "status": self.status,
                "ms": round(seconds * 1000, 2),
                "token": self.token_id,
                "table": self.table,
                "error": self.kind,
            }
            _log.log(level, "request", extra=told)


class Observed:
    """ASGI middleware, outside of everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note = scope[_KEY] = Note(scope["headers"])

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                note.status = message["status"]
                message["headers"] = [*message["headers"], *note.headers]
            await send(message)

        try:
            with traces.span("lakeseal serve", kind="server", parent=traces.parent_in(scope["headers"])) as say:
                await self._app(scope, receive, noted)
                say(note.attributes)
        finally:
            note.end(scope["app"].state.service.finished)
