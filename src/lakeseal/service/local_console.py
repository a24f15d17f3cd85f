"""The console of one user on one machine: no service, no ledger but that of their catalog.

It listens on loopback, answers to the names of loopback only, and asks for the secret that was made for it: others on
the machine could reach the port, too.
"""

from __future__ import annotations

import hmac
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lakeseal.catalogs import Catalog
from lakeseal.clock import now_ms
from lakeseal.console.app import routes, status_of
from lakeseal.console.lake import Lake, Owned, Viewer, repositories_in
from lakeseal.errors import LakesealError, NotAllowed, NotAuthenticated
from lakeseal.ledger import Ledger
from lakeseal.owner.connect import connect
from lakeseal.repository import Repository
from lakeseal.service import status, tokens
from lakeseal.service.settings import is_loopback
from lakeseal.table import Owner, Table

EVERYTHING = Viewer(name=None, may=lambda role, uri: True, everywhere=lambda role: True)


def local_lake(
    catalog: str | None,
    owner: Owner | None,
    tables: Sequence[str],
    repositories: Sequence[str],
    storage_options: Mapping[str, str] | None,
) -> Lake:
    """The ledger that pages are about is that of the owner, if one is named, or else that of the catalog."""
    known = Catalog(catalog)
    keeper = known.opened.owner if owner is None else connect(owner)
    book = getattr(keeper, "ledger", None)
    ledger = book if isinstance(book, Ledger) else None

    def owned() -> Sequence[Owned]:
        return status.of_tables(ledger, now=now_ms()) if ledger is not None and ledger.is_made else ()

    def open_table(uri: str) -> Table:
        named = next((one for one in known.tables() if one.uri == uri), None)
        if named is not None:
            return known.table(str(named.name), storage_options)
        is_ours = any(one.table == uri for one in owned())
        return Table(uri, owner=keeper if is_ours else owner, storage_options=storage_options)

    def of_repositories() -> dict[str, Callable[[], Repository]]:
        found = {} if ledger is None else repositories_in(ledger, storage_options)
        for place in repositories:
            found[opened(place).uri] = partial(opened, place)
        return found

    @cache
    def opened(place: str) -> Repository:
        return Repository.open(place, storage_options=storage_options)

    def lags_of(uri: str) -> Sequence[tuple[int, int]]:
        return status.lags(ledger, uri, now=now_ms()) if ledger is not None and ledger.is_made else ()

    return Lake(
        title="this machine",
        catalog=known,
        ledger=ledger,
        open_table=open_table,
        owned=owned,
        lags_of=lags_of,
        tokens=lambda: tokens.listed(ledger) if ledger is not None and ledger.is_made else (),
        places=[Table(one, storage_options=storage_options).uri for one in tables],
        repositories=of_repositories,
    )


def local_app(lake: Lake, token: str) -> Starlette:
    async def identify(request: Request, given: str | None) -> Viewer:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if not is_loopback(host):
            # A name that somebody else's DNS makes point here, in the browser of somebody on this machine.
            raise NotAllowed("These pages are reached as 127.0.0.1 or localhost only")
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            raise NotAuthenticated("Open the address that lakeseal ui has shown")
        return EVERYTHING

    async def refused(request: Request, error: Exception) -> Response:
        known = error if isinstance(error, LakesealError) else None
        return PlainTextResponse(str(known or "This failed"), 500 if known is None else status_of(known))

    return Starlette(
        routes=routes(lambda request: lake, identify, by_address=True), exception_handlers={LakesealError: refused}
    )


def run(
    token: str,
    *,
    catalog: str | None,
    owner: Owner | None,
    tables: Sequence[str],
    repositories: Sequence[str],
    storage_options: Mapping[str, str] | None,
    port: int,
    listening: Callable[[str], None],
) -> None:
    """Returns when it has been stopped."""
    app = local_app(local_lake(catalog, owner, tables, repositories, storage_options), token)
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="off")
    with socket.create_server(("127.0.0.1", port)) as bound:
        listening(f"http://127.0.0.1:{bound.getsockname()[1]}")
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            uvicorn.Server(config).run(sockets=[bound])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
