"""The HTTP face of a `Service`: routes, OpenAPI, and what is answered when something is wrong.

The owner's calls are taken by `direct`; the routes here are for people and their tools. Whatever is raised becomes an
`ErrorReply`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from multiprocessing.process import BaseProcess
from typing import Any

import anyio
from anyio import to_thread
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from lakeseal.errors import InvalidArgument, LakesealError, NotFound
from lakeseal.owner.policies import prefix_of
from lakeseal.service import logs, openapi, pages
from lakeseal.service.access import Caller
from lakeseal.service.authentication import bearer, bearer_or_password
from lakeseal.service.callers import caller_of
from lakeseal.service.direct import PATHS, perform
from lakeseal.service.metrics import CONTENT_TYPE
from lakeseal.service.observed import Note, Observed
from lakeseal.service.replies import error_reply, json_reply, refused
from lakeseal.service.service import OpenOwner, Service, open_owner
from lakeseal.service.settings import ServiceSettings
from lakeseal.service.wire import OWNER, TABLES, OwnerInfo

_log = logging.getLogger(__name__)

_MOST_TABLES = 1000
_READY_SECONDS = 5.0

Handler = Callable[[Service, Request, Note], Awaitable[Response]]


class AppFactory:
    """Makes the app in each worker process; travels there pickled."""

    def __init__(self, settings: ServiceSettings, make_owner: OpenOwner = open_owner) -> None:
        self._settings = settings
        self._make_owner = make_owner

    def __call__(self) -> FastAPI:
        logs.configure(self._settings.log_level)
        parent = multiprocessing.parent_process()
        if parent is not None:
            threading.Thread(target=_follow, args=(parent,), name="lakeseal-parent", daemon=True).start()
        return create_app(self._settings, self._make_owner)


def _follow(parent: BaseProcess) -> None:
    """A worker whose parent was killed would keep the port for ever."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class App(FastAPI):
    """The owner's calls go past all that is meant for routes, which takes longer than their own work."""

    _calls = Observed(perform)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in PATHS and scope["method"] == "POST":
            scope["app"] = self
            await self._calls(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: ServiceSettings, make_owner: OpenOwner = open_owner) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = await to_thread.run_sync(Service, settings, make_owner)
        service.start()
        service.lane.start()
        try:
            yield
        finally:
            await service.lane.stop()
            if service.courier is not None:
                service.courier.close()
            await to_thread.run_sync(service.stop)

    # The usual pages for trying the API out load scripts from elsewhere.
    app = App(title="Lakeseal", version=version("lakeseal"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Observed)
    for path, name, handler, summary in (
        (OWNER, "owner", _owner, "What clients need to know of the owner"),
        (TABLES, "tables", _tables, "The tables that the caller may read, and how far they are"),
        ("/metrics", "metrics", _metrics, "Numbers for Prometheus"),
        ("/health", "health", _health, "The process is alive"),
        ("/ready", "ready", _ready, "The ledger answers and the publisher runs"),
    ):
        app.add_api_route(path, _handled(name, handler), methods=["GET"], name=name, summary=summary)
    app.add_api_route("/", _handled("page", _page), methods=["GET"], name="page", include_in_schema=False)
    app.add_exception_handler(HTTPException, _not_routed)
    openapi.install(app)
    return app


def _handled(name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    login = "Basic" if name == "page" else "Bearer"

    async def endpoint(request: Request) -> Response:
        note = Note.of(request.scope)
        note.call = name
        try:
            return await handler(request.app.state.service, request, note)
        except Exception as error:
            return refused(error, note, login=login)

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
            version=version("lakeseal"),
        )
    )


async def _tables(service: Service, request: Request, note: Note) -> Response:
    caller = await _caller(service, request, note)
    asked = request.query_params
    limit = asked.get("limit", str(_MOST_TABLES))
    if not (limit.isascii() and limit.isdecimal() and 0 < int(limit[:9]) <= _MOST_TABLES):
        raise InvalidArgument(f"A limit is between 1 and {_MOST_TABLES}")
    prefix = prefix_of(asked.get("prefix", ""))
    return json_reply(
        await to_thread.run_sync(
            lambda: service.tables(caller, prefix=prefix, after=asked.get("after", ""), limit=int(limit))
        )
    )


async def _metrics(service: Service, request: Request, note: Note) -> Response:
    await _caller(service, request, note)
    text = await to_thread.run_sync(service.metrics_text)
    return Response(text, media_type=CONTENT_TYPE)


async def _health(service: Service, request: Request, note: Note) -> Response:
    return json_reply({"status": "alive"})


async def _ready(service: Service, request: Request, note: Note) -> Response:
    said: dict[str, Any] = {"ready": False, "ledger": "does not answer"}
    try:
        with anyio.move_on_after(_READY_SECONDS):
            said = await to_thread.run_sync(service.readiness, abandon_on_cancel=True)
    except LakesealError as error:
        _log.warning("not ready: %s", error)
    return json_reply(said, 200 if said["ready"] else 503)


async def _page(service: Service, request: Request, note: Note) -> Response:
    text = bearer_or_password(request.headers.get("authorization"))
    caller = await caller_of(service, request.scope, note, text)
    after = request.query_params.get("after", "")
    found = await to_thread.run_sync(lambda: service.tables(caller, after=after, limit=pages.TABLES_AT_ONCE))
    return pages.tables(service.owner.name, found, caller)


async def _not_routed(request: Request, raised: Exception) -> Response:
    note = Note.of(request.scope)
    status = raised.status_code if isinstance(raised, HTTPException) else 500
    if status == 404 and request.url.path in PATHS:
        status = 405
    error: LakesealError = NotFound("There is nothing at this address", hint="See /openapi.json")
    if status == 405:
        error = InvalidArgument("This address takes another method", hint="See /openapi.json")
    note.kind = error.kind
    return error_reply(error, request_id=note.request_id, status=status)
