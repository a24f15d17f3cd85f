"""The HTTP face of a `Service`: routes, OpenAPI, and what is answered when something is wrong.

Every request goes the same way: who asks, whether that is too often, how much is sent, what it is, and only then the
call itself, in a thread. Whatever is raised becomes an `ErrorReply`.
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

from lakeseal.errors import InvalidArgument, LakesealError, NotAllowed, NotFound, OwnerBusy, UnknownOutcome
from lakeseal.owner.messages import BatchAnswer, TableCommits
from lakeseal.service import logs, openapi, pages
from lakeseal.service.access import Caller, prefix_of
from lakeseal.service.authentication import bearer, bearer_or_password
from lakeseal.service.calls import CALLS, Call
from lakeseal.service.limits import read_body, too_large
from lakeseal.service.metrics import CONTENT_TYPE
from lakeseal.service.observed import Note, Observed
from lakeseal.service.replies import error_reply, json_reply
from lakeseal.service.service import OpenOwner, Service, open_owner
from lakeseal.service.settings import ServiceSettings, is_loopback
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


def create_app(settings: ServiceSettings, make_owner: OpenOwner = open_owner) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = await to_thread.run_sync(Service, settings, make_owner)
        service.start()
        try:
            yield
        finally:
            await to_thread.run_sync(service.stop)

    # The usual pages for trying the API out load scripts from elsewhere.
    app = FastAPI(title="Lakeseal", version=version("lakeseal"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Observed)
    for call in CALLS:
        # A plain route: FastAPI's own would look for parameters in each request, which is parsed by msgspec.
        endpoint = _handled(call.name, _perform(call), decides=call.decides)
        app.add_route(call.path, endpoint, methods=["POST"], name=call.name, include_in_schema=False)
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


def _handled(name: str, handler: Handler, *, decides: bool = False) -> Callable[[Request], Awaitable[Response]]:
    login = "Basic" if name == "page" else "Bearer"

    async def endpoint(request: Request) -> Response:
        note = Note.of(request.scope)
        note.call = name
        try:
            return await handler(request.app.state.service, request, note)
        except LakesealError as error:
            note.kind, note.table = error.kind, error.table
            return error_reply(error, request_id=note.request_id, wait_s=note.wait_s, login=login)
        except Exception:
            _log.exception("a request failed unexpectedly", extra={"request_id": note.request_id, "call": name})
            failed = UnknownOutcome if decides else LakesealError
            unexpected = failed(f"The service failed unexpectedly; its log has more under request {note.request_id}")
            note.kind = unexpected.kind
            return error_reply(unexpected, request_id=note.request_id, status=500)

    return endpoint


def _perform(call: Call) -> Handler:
    async def perform(service: Service, request: Request, note: Note) -> Response:
        caller = await _caller(service, request, note, bearer(request.headers.get("authorization")))
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # Also keeps a web page from sending something here on behalf of whoever looks at it.
            raise InvalidArgument("The request's content type is not application/json")
        body = await read_body(request, service.settings.max_body)
        if body is None:
            error = too_large(service.settings.max_body)
            note.kind = error.kind
            return error_reply(error, request_id=note.request_id, status=413)
        encoded, reply = await to_thread.run_sync(service.perform, call, body, caller)
        service.count(reply)
        note.table = _table_of(reply)
        return Response(encoded, media_type="application/json")

    return perform


def _table_of(reply: Any) -> str | None:
    match reply:
        case TableCommits():
            return reply.table
        case BatchAnswer():
            return ", ".join(one.table for one in reply.commits)
    return None


async def _caller(service: Service, request: Request, note: Note, text: str | None) -> Caller:
    if service.settings.insecure and not is_loopback((request.url.hostname or "").strip("[]")):
        # A name that somebody else's DNS makes point here, in the browser of somebody on this machine.
        raise NotAllowed("A service that was started with --insecure is reached as localhost or 127.0.0.1 only")
    peer = request.client.host if request.client is not None else ""
    authenticator = service.authenticator
    caller = authenticator.known(text, peer)
    if caller is None:
        assert text is not None, "whoever has no token is known, or refused"
        caller = authenticator.learn(text, await to_thread.run_sync(authenticator.look_up, text), peer)
    note.token_id = caller.token_id
    note.wait_s = service.buckets.take(caller.token_id)
    if note.wait_s:
        raise OwnerBusy(
            f"More than {service.settings.rate:g} requests a second came with this token",
            hint="Wait a moment, and ask less often",
        )
    return caller


async def _owner(service: Service, request: Request, note: Note) -> Response:
    await _caller(service, request, note, bearer(request.headers.get("authorization")))
    owner = service.owner
    return json_reply(
        OwnerInfo(
            name=owner.name,
            batch_size=owner.batch_size,
            inline_bytes=owner.inline_bytes,
            version=version("lakeseal"),
        )
    )


async def _tables(service: Service, request: Request, note: Note) -> Response:
    caller = await _caller(service, request, note, bearer(request.headers.get("authorization")))
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
    await _caller(service, request, note, bearer(request.headers.get("authorization")))
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
    caller = await _caller(service, request, note, bearer_or_password(request.headers.get("authorization")))
    after = request.query_params.get("after", "")
    found = await to_thread.run_sync(lambda: service.tables(caller, after=after, limit=pages.TABLES_AT_ONCE))
    return pages.tables(service.owner.name, found, caller)


async def _not_routed(request: Request, raised: Exception) -> Response:
    note = Note.of(request.scope)
    status = raised.status_code if isinstance(raised, HTTPException) else 500
    error: LakesealError = NotFound("There is nothing at this address", hint="See /openapi.json")
    if status == 405:
        error = InvalidArgument("This address takes another method", hint="See /openapi.json")
    note.kind = error.kind
    return error_reply(error, request_id=note.request_id, status=status)
