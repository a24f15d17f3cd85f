"""Routes of the pages. Each asks who it is, makes its page in a thread, and shows an error as a page too.

`routes` are for any app: `identify` says who a token is (and raises `NotAuthenticated`), `lake_of` what there
is. What changes something takes a form that this page gave out (`session`), needs the role for it, and is noted
(`audit`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lakeseal import errors
from lakeseal.console import audit, pages, plots, session
from lakeseal.console.branch_view import diff_view, repository_view
from lakeseal.console.lake import Lake, Viewer
from lakeseal.console.pipeline_view import error_rows, open_again, pipeline_view, pipelines_view
from lakeseal.console.table_view import preview, table_view, trouble_view
from lakeseal.display import size
from lakeseal.errors import InvalidArgument, LakesealError, NotAuthenticated, NotFound

Identify = Callable[[Request, str | None], Awaitable[Viewer]]
Do = Callable[[Lake, Viewer, dict[str, str]], str]
"""What a form asks for; where to go then."""
Told = Callable[[Request, LakesealError], LakesealError]
"""What is said of an error to whoever looks at pages."""

_MOST_QUERY = 8_000
_AT_ONCE = 200
_STATUS: tuple[tuple[type[LakesealError], int], ...] = (
    (errors.InvalidInput, 400),
    (errors.NotAuthenticated, 401),
    (errors.Refused, 403),
    (errors.NotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.ConcurrentModification, 409),
    (errors.OwnerBusy, 429),
    (errors.StorageUnavailable, 503),
)


def routes(
    lake_of: Callable[[Request], Lake],
    identify: Identify,
    told: Told = lambda request, error: error,
    *,
    by_address: bool = False,
) -> list[Route]:
    """`by_address`: whoever opens an address with the token in it is signed in. That is for one user's own machine:
    elsewhere addresses are written down, and other sites could sign somebody in as somebody else."""
    console = _Console(lake_of, identify, told, by_address)
    shown: dict[str, Any] = {
        "/": _tables,
        "/table": _table,
        "/catalog": _catalog,
        "/branches": _branches,
        "/repository": _repository,
        "/compare": _compare,
        "/pipelines": _pipelines,
        "/pipeline": _pipeline,
        "/audit": _audit,
    }
    done: dict[str, Do] = {"/branch/merge": _merge, "/branch/revert": _revert, "/pipeline/retry": _retry}
    return [
        *(Route(path, console.shows(make), methods=["GET"]) for path, make in shown.items()),
        *(Route(path, console.does(do), methods=["POST"]) for path, do in done.items()),
        Route("/sign-in", console.sign_in, methods=["GET", "POST"]),
        Route("/sign-out", console.sign_out, methods=["POST"]),
        Route("/static/{name}", console.static, methods=["GET"]),
    ]


class _Console:
    def __init__(self, lake_of: Callable[[Request], Lake], identify: Identify, told: Told, by_address: bool) -> None:
        self._lake_of = lake_of
        self._identify = identify
        self._told = told
        self._by_address = by_address

    def shows(self, make: Callable[[Lake, Viewer, Request], tuple[str, dict[str, Any]]]) -> Any:
        async def endpoint(request: Request) -> Response:
            async def shown(lake: Lake, viewer: Viewer) -> Response:
                template, model = await to_thread.run_sync(make, lake, viewer, request)
                return pages.page(request, lake, viewer, template, **model)

            return await self._answered(request, shown)

        return endpoint

    def does(self, do: Do) -> Any:
        async def endpoint(request: Request) -> Response:
            async def done(lake: Lake, viewer: Viewer) -> Response:
                form = await session.read_form(request)
                return RedirectResponse(await to_thread.run_sync(do, lake, viewer, form), 303, headers=pages.HEADERS)

            return await self._answered(request, done)

        return endpoint

    async def sign_in(self, request: Request) -> Response:
        lake = self._lake_of(request)
        then = _local(request.query_params.get("next", "/"))
        try:
            if request.method == "POST":
                form = await session.read_form(request)
                token = form.get("token", "").strip()
            else:
                token = request.query_params.get("token", "") if self._by_address else ""
            if not token:
                if request.method == "POST":
                    raise NotAuthenticated("There is no token")
                return pages.page(request, lake, None, "sign_in.html", error="", then=then)
            await self._identify(request, token)
        except LakesealError as error:
            said = self._told(request, error).message
            return pages.page(request, lake, None, "sign_in.html", status=status_of(error), error=said, then=then)
        response = RedirectResponse(then, 303, headers=pages.HEADERS)
        session.put_token(response, request, token)
        return response

    async def sign_out(self, request: Request) -> Response:
        try:
            await session.read_form(request)
        except LakesealError as error:
            return self._failed(request, None, error)
        response = RedirectResponse("/sign-in", 303, headers=pages.HEADERS)
        session.forget(response)
        return response

    async def static(self, request: Request) -> Response:
        found = pages.static(request.path_params["name"])
        return found or self._failed(request, None, NotFound("There is no such file"))

    async def _answered(self, request: Request, make: Callable[[Lake, Viewer], Awaitable[Response]]) -> Response:
        lake = self._lake_of(request)
        viewer = None
        try:
            if len(request.url.query) > _MOST_QUERY:
                raise InvalidArgument("The address is too long")
            viewer = await self._identify(request, session.token_of(request))
            return await make(lake, viewer)
        except NotAuthenticated as error:
            if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
                raise
            if pages.LIVE in request.headers:
                return Response(str(error), 401, headers=pages.HEADERS)
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            response = RedirectResponse(f"/sign-in?{urlencode({'next': here})}", 303, headers=pages.HEADERS)
            session.forget(response)
            return response
        except LakesealError as error:
            if viewer is None:
                raise
            return self._failed(request, viewer, error)

    def _failed(self, request: Request, viewer: Viewer | None, error: LakesealError) -> Response:
        status, told = status_of(error), self._told(request, error)
        return pages.page(request, self._lake_of(request), viewer, "error.html", status=status, error=told)


def status_of(error: LakesealError) -> int:
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def _local(address: str) -> str:
    """Never another site's."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


def _tables(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    search = request.query_params.get("search", "")[:200]
    found = lake.tables(viewer, search)
    waiting = sum(row.owned.unbackfilled for row in found if row.owned is not None)
    start = request.query_params.get("start", "0")
    first = int(start) if start.isascii() and start.isdecimal() and len(start) < 10 else 0
    part = found[first : first + _AT_ONCE]
    following = str(first + _AT_ONCE) if len(found) > first + _AT_ONCE else ""
    lags = lake.lags() if viewer.everywhere("reader") else ()
    lag = plots.line(_seconds(lags), what="Logs are behind")
    told = {"total": len(found), "search": search, "waiting": waiting, "following": following, "lag": lag}
    return "tables.html", {"tables": part, **told}


def _table(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    uri = request.query_params.get("uri", "")
    table = lake.table(viewer, uri)
    named = lake.name_of(uri)
    owned = next((one for one in lake.owned() if one.table == uri), None)
    return "table.html", {
        "uri": uri,
        "name": "" if named is None else str(named.name),
        "owned": owned,
        "view": table_view(table),
        "preview": preview(table),
        "lag": plots.line(_seconds(lake.lags_of(uri)), what="The log is behind"),
        "trouble": trouble_view(uri, lake.calls()),
    }


def _seconds(lags: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    return [(at, lag / 1000) for at, lag in lags]


def _catalog(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    schemas: dict[str, list[Any]] = {}
    for one in lake.names(viewer):
        schemas.setdefault(f"{one.name.catalog}.{one.name.schema}", []).append(one)
    tokens = list(lake.tokens())[:500] if viewer.everywhere("admin") else None
    return "catalog.html", {"schemas": schemas, "tokens": tokens}


def _branches(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    found = [uri for uri in lake.repositories() if viewer.may("reader", uri)]
    return "branches.html", {"repositories": found}


def _repository(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    uri = request.query_params.get("uri", "")
    view = repository_view(lake.repository(viewer, uri), request.query_params.get("branch", "main"))
    return "repository.html", {"uri": uri, "view": view, "may_write": viewer.may("writer", uri)}


def _compare(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    asked = request.query_params
    uri, source, dest = asked.get("uri", ""), asked.get("source", ""), asked.get("dest", "main")
    view = diff_view(lake.repository(viewer, uri), source, dest)
    told = {"uri": uri, "source": source, "dest": dest, "may_write": viewer.may("writer", uri)}
    return "compare.html", {**told, "view": view}


def _pipelines(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    book = lake.book(viewer)
    return "pipelines.html", {"pipelines": pipelines_view(book) if book.is_made else []}


def _pipeline(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    name = request.query_params.get("name", "")
    view = pipeline_view(lake.book(viewer), name)
    aside = [error_rows(one, partial(lake.table, viewer)) for one in view["set_aside"]]
    return "pipeline.html", {"view": view, "aside": aside, "may_write": viewer.everywhere("writer")}


def _audit(lake: Lake, viewer: Viewer, request: Request) -> tuple[str, dict[str, Any]]:
    book = lake.book(viewer, "admin")
    return "audit.html", {"entries": audit.audit_view(book, lake.calls()) if book.is_made else []}


def _merge(lake: Lake, viewer: Viewer, form: dict[str, str]) -> str:
    uri, source, dest = form.get("uri", ""), form.get("source", ""), form.get("dest", "")
    lake.repository(viewer, uri, "writer").merge(source, dest, message=form.get("message", "")[:1000])
    audit.note(lake.ledger, viewer.name, f"merged {source} into {dest}", uri)
    return pages.link("repository", uri=uri, branch=dest)


def _revert(lake: Lake, viewer: Viewer, form: dict[str, str]) -> str:
    uri, branch, commit = form.get("uri", ""), form.get("branch", ""), form.get("commit", "")
    lake.repository(viewer, uri, "writer").revert(branch, commit)
    audit.note(lake.ledger, viewer.name, f"reverted {commit[:12]} on {branch}", uri)
    return pages.link("repository", uri=uri, branch=branch)


def _retry(lake: Lake, viewer: Viewer, form: dict[str, str]) -> str:
    name, dataset = form.get("name", ""), form.get("dataset", "")
    open_again(lake.book(viewer, "writer"), name, dataset)
    audit.note(lake.ledger, viewer.name, f"opened the steps of {dataset} again", f"pipeline {name}")
    return pages.link("pipeline", name=name)


pages.templates.filters["size"] = size
