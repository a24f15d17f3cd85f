"""The console on a service: who its callers are to it, and what a service shows.

A browser signs in with a token, by the page or by the name and password that it asks for (any name, the token as the
password). It sees the tables that the token may read, in the places that the service works on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakeseal.catalog.endpoint import OpenCatalog
from lakeseal.catalogs import Catalog
from lakeseal.clock import now_ms
from lakeseal.console.app import routes
from lakeseal.console.lake import Lake, Viewer, repositories_in
from lakeseal.errors import LakesealError
from lakeseal.service import status, tokens
from lakeseal.service.access import Caller, Role
from lakeseal.service.authentication import bearer_or_password, caller_of
from lakeseal.service.observed import Note
from lakeseal.service.replies import discreet, refused
from lakeseal.service.service import Service
from lakeseal.table import Table

Endpoint = Callable[[Request], Awaitable[Response]]


def page_routes() -> list[Route]:
    found = routes(lambda request: lake_of(request.app.state.service), _identify, _told)
    return [Route(one.path, _handled(one.endpoint), methods=list(one.methods or ())) for one in found]


def lake_of(service: Service) -> Lake:
    options = service.settings.storage_options

    def open_table(uri: str) -> Table:
        service.places.check(uri)
        return Table(uri, owner=service.owner, storage_options=None if uri.startswith("file://") else options)

    def lags() -> tuple[tuple[int, int], ...]:
        service.backlog()  # as it is now is the last of them
        return service.finished.lags()

    return Lake(
        title=service.owner.name,
        catalog=Catalog(OpenCatalog(url="", names=service.names, owner=service.owner)),
        ledger=service.ledger,
        open_table=open_table,
        owned=lambda: status.of_tables(service.ledger, now=now_ms()),
        tokens=lambda: tokens.listed(service.ledger),
        calls=service.finished.last,
        lags=lags,
        lags_of=lambda uri: status.lags(service.ledger, uri, now=now_ms()),
        repositories=lambda: {
            uri: opens for uri, opens in repositories_in(service.ledger, options).items() if service.places.has(uri)
        },
    )


def viewer_of(caller: Caller) -> Viewer:
    return Viewer(
        name=caller.principal,
        may=lambda role, uri: caller.may(Role(role), uri),
        everywhere=lambda role: caller.may_everywhere(Role(role)),
    )


async def _identify(request: Request, token: str | None) -> Viewer:
    service: Service = request.app.state.service
    text = token or bearer_or_password(request.headers.get("authorization"))
    return viewer_of(await caller_of(service, request.scope, Note.of(request.scope), text))


def _told(request: Request, error: LakesealError) -> LakesealError:
    note = Note.of(request.scope)
    note.kind, note.table = error.kind, error.table
    return discreet(error, request.app.state.service.ledger.url, note)


def _handled(endpoint: Endpoint) -> Endpoint:
    async def handled(request: Request) -> Response:
        note = Note.of(request.scope)
        note.call = "page"
        service: Service = request.app.state.service
        peer = request.client.host if request.client is not None else ""
        if service.proxies.is_encrypted(peer, request.scope["headers"]):
            # What goes by it: cookies are for TLS only.
            request.scope["scheme"] = "https"
        try:
            return await endpoint(request)
        except Exception as error:
            return refused(error, note, service.ledger.url, login="Basic")

    return handled
