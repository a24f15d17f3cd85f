"""What is noted of every request: an id, a line in the log, numbers, and headers that every reply has."""

from __future__ import annotations

import itertools
import logging
import re
import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakeseal.service.wire import REQUEST_ID

_log = logging.getLogger("lakeseal.service.requests")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = "lakeseal.note"
_NAME = REQUEST_ID.lower().encode()
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_QUIET = ("health", "ready", "metrics")


class Note:
    """Filled in while a request is worked on."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.call = "other"
        self.token_id: str | None = None
        self.table: str | None = None
        self.kind: str | None = None
        self.wait_s = 0.0
        self.status = 500

    @staticmethod
    def of(scope: Scope) -> Note:
        note = scope[_KEY]
        assert isinstance(note, Note)
        return note


class Observed:
    """ASGI middleware, outside of everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._worker = uuid.uuid4().hex[:16]
        self._ids = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = next((str(value, "latin-1") for name, value in scope["headers"] if name == _NAME), "")
        note = scope[_KEY] = Note(said if _ID.fullmatch(said) else f"{self._worker}{next(self._ids):016x}")
        start = time.perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                note.status = message["status"]
                message["headers"] = [*message["headers"], *_ALWAYS, (_NAME, note.request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - start
            scope["app"].state.service.metrics.answered(note.call, note.status, seconds, note.kind)
            level = logging.DEBUG if note.call in _QUIET and note.status == 200 else logging.INFO
            if _log.isEnabledFor(level):
                told = {
                    "request_id": note.request_id,
                    "call": note.call,
                    "status": note.status,
                    "ms": round(seconds * 1000, 2),
                    "token": note.token_id,
                    "table": note.table,
                    "error": note.kind,
                }
                _log.log(level, "request", extra=told)
