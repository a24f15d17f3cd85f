"""The HTTP face of a `Service`: routes, OpenAPI, and what is answered when something is wrong.

The calls of owners and books are `call_routes`; the other routes are for people and their tools. Whatever is raised
becomes an `ErrorReply`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from multiprocessing.process import BaseProcess
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakeseal import traces
from lakeseal.catalog.unity.messages import BASE
from lakeseal.errors import InvalidArgument, LakesealError, NotFound
from lakeseal.owner.messages import MOST_NAME_BYTES
from lakeseal.service import logs
from lakeseal.service.access import Caller
from lakeseal.service.authentication import bearer, caller_of
from lakeseal.service.call_routes import call_routes
from lakeseal.service.description import GetCall, description_route
from lakeseal.service.finished_calls import CONTENT_TYPE
from lakeseal.service.observed import Note, Observed
from lakeseal.service.pages import page_routes
from lakeseal.service.prompt_loop import collect_when_quiet, collected_by_hand, prompt_turns
from lakeseal.service.replies import error_reply, json_reply, refused, refused_as_unity
from lakeseal.service.service import OpenOwner, Service, open_owner
from lakeseal.service.settings import ServiceSettings
from lakeseal.service.wire import OWNER, TABLES, OwnerInfo, TableList
from lakeseal.storage import prefix_of

_MOST_TABLES = 1000
# To look it up reads and parses a file.
_VERSION = version("lakeseal")

Handler = Callable[[Service, Request, Note], Awaitable[Response]]


class AppFactory:
    """Makes the app in each worker process; travels there pickled."""

    def __init__(self, settings: ServiceSettings, make_owner: OpenOwner) -> None:
        self._settings = settings
        self._make_owner = make_owner

    def __call__(self) -> Starlette:
        logs.configure(self._settings.log_level)
        parent = multiprocessing.parent_process()
        if parent is not None:
            threading.Thread(target=_follow, args=(parent,), name="lakeseal-parent", daemon=True).start()
        return create_app(self._settings, self._make_owner, only_serves=True)


def _follow(parent: BaseProcess) -> None:
    """A worker whose parent was killed would keep the port for ever."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def create_app(
    settings: ServiceSettings, make_owner: OpenOwner = open_owner, *, only_serves: bool = False
) -> Starlette:
    """`only_serves`: this process does nothing else, so that its garbage is the service's to collect."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        traces.export()  # here, as threads that send them do not survive the start of workers
        try:
            service = app.state.service = await to_thread.run_sync(Service, settings, make_owner)
            service.start()
        except Exception as error:
            app.state.failed = error  # for whoever runs the server, which says no more than that it did not start
            raise
        try:
            if only_serves:
                with collected_by_hand(), prompt_turns():
                    collects = asyncio.create_task(collect_when_quiet(service.large))
                    yield
                    collects.cancel()
            else:
                yield
        finally:
            await to_thread.run_sync(service.stop)

    app = Starlette(
        routes=[
            *call_routes(),
            *(Route(one.path, _handled(one.name, ask), methods=["GET"]) for one, ask in _GET_CALLS.items()),
            description_route(_VERSION, tuple(_GET_CALLS)),
            *page_routes(),
        ],
        middleware=[Middleware(Observed)],
        exception_handlers={HTTPException: _not_routed},
        lifespan=lifespan,
    )
    # A name that is empty would lead to another call: that of what is one step above.
    app.router.redirect_slashes = False
    return app


def _handled(name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        note = Note.of(request.scope)
        note.call = name
        try:
            return await handler(request.app.state.service, request, note)
        except Exception as error:
            return refused(error, note, request.app.state.service.ledger.url)

    return endpoint


async def _caller(service: Service, request: Request, note: Note) -> Caller:
    return await caller_of(service, request.scope, note, bearer(request.headers.get("authorization")))


async def _owner(service: Service, request: Request, note: Note) -> Response:
    await _caller(service, request, note)
    owner = service.owner
    return json_reply(
        OwnerInfo(
            name=owner.name,
            batch_size=owner.batch_size,
            inline_bytes=owner.inline_bytes,
            ledger_id=service.identity,
            version=_VERSION,
        )
    )


async def _tables(service: Service, request: Request, note: Note) -> Response:
    caller = await _caller(service, request, note)
    asked = request.query_params
    limit, prefix, after = limit_of(asked, _MOST_TABLES), prefix_of(name_of(asked, "prefix")), name_of(asked, "after")
    return json_reply(await to_thread.run_sync(lambda: service.tables(caller, prefix=prefix, after=after, limit=limit)))


async def _metrics(service: Service, request: Request, note: Note) -> Response:
    await _caller(service, request, note)
    text = await to_thread.run_sync(service.metrics_text)
    return Response(text, media_type=CONTENT_TYPE)


async def _health(service: Service, request: Request, note: Note) -> Response:
    return json_reply({"status": "alive"})


async def _ready(service: Service, request: Request, note: Note) -> Response:
    said = await service.readiness.told()
    return json_reply(said, 200 if said["ready"] else 503)


_GET_CALLS: dict[GetCall, Handler] = {
    GetCall(OWNER, "owner", "What clients need to know of the owner", OwnerInfo): _owner,
    GetCall(TABLES, "tables", "The tables that the caller may read, and how far they are", TableList): _tables,
    GetCall("/metrics", "metrics", "Numbers for Prometheus", None): _metrics,
    GetCall("/health", "health", "The process is alive", dict[str, str]): _health,
    GetCall("/ready", "ready", "The ledger takes commits and the publisher runs", dict[str, Any]): _ready,
}


async def _not_routed(request: Request, raised: Exception) -> Response:
    note = Note.of(request.scope)
    if f"{request.scope['path']}/".startswith(f"{BASE}/"):
        missing = NotFound("The catalog has no such call", hint="See /openapi.json")
        return refused_as_unity(missing, note, request.app.state.service.ledger.url, decides=False)
    status = raised.status_code if isinstance(raised, HTTPException) else 500
    error: LakesealError = NotFound("There is nothing at this address", hint="See /openapi.json")
    if status == 405:
        error = InvalidArgument("This address takes another method", hint="See /openapi.json")
    note.kind = error.kind
    return error_reply(error, request_id=note.request_id, status=status)


# As a person writes it: not a zero in front, no sign, no other script's digits.
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


def whole_number(text: str) -> int | None:
    """None where it is none, or one that nobody needs."""
    return int(text) if _WHOLE.fullmatch(text) else None


def limit_of(query: Mapping[str, str], most: int) -> int:
    text = query.get("limit")
    if text is None:
        return most
    limit = whole_number(text)
    if limit is None or not 1 <= limit <= most:
        raise InvalidArgument(f"A limit is a whole number between 1 and {most}")
    return limit


def name_of(query: Mapping[str, str], parameter: str) -> str:
    """A table's name, or a part of one; empty where there is none."""
    text = query.get(parameter, "")
    if "\0" in text or len(text.encode("utf-8", "replace")) > MOST_NAME_BYTES:
        raise InvalidArgument(
            f"{parameter!r} is no table's name: one has at most {MOST_NAME_BYTES:,} bytes, and no NUL"
        )
    return text
