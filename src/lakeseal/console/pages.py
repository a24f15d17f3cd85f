"""Templates to responses. Everything is escaped unless it was drawn by `plots`; nothing is loaded from elsewhere."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from lakeseal.console import session
from lakeseal.console.lake import Lake, Viewer
from lakeseal.display import counted

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # without any, browsers call the origin of a form null
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}
LIVE = "x-lakeseal-live"
"""A request with this header gets only what is inside of `main`."""
_STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}

templates = Environment(
    loader=PackageLoader("lakeseal.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def moment(value: int | datetime | None) -> Markup:
    """A time in UTC, which the script shows in the viewer's own words."""
    if value is None:
        return Markup("")
    at = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value.astimezone(UTC)
    exact, said = at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(exact, said)


def link(page: str, **query: str) -> str:
    return f"/{page}?{urlencode(query, quote_via=quote)}" if query else f"/{page}"


templates.filters["moment"] = moment
templates.filters["drawn"] = Markup
templates.filters["counted"] = counted
templates.globals["link"] = link


def page(
    request: Request, lake: Lake, viewer: Viewer | None, template: str, *, status: int = 200, **model: Any
) -> Response:
    secret = session.form_secret(request)
    is_live = LIVE in request.headers
    html = templates.get_template(template).render(
        **model,
        lake=lake.title,
        viewer=viewer,
        mark=session.mark_of(secret),
        here=request.url.path,
        is_live=is_live,
    )
    response = Response(html, status, media_type="text/html; charset=utf-8", headers=HEADERS)
    if is_live:
        tag = f'"{hashlib.sha256(html.encode()).hexdigest()[:32]}"'
        response.headers["ETag"] = tag
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**HEADERS, "ETag": tag})
    session.put_form_secret(response, request, secret)
    return response


def static(name: str) -> Response | None:
    if name not in _STATIC:
        return None
    return Response(_file(name), media_type=f"{_STATIC[name]}; charset=utf-8", headers=HEADERS)


@cache
def _file(name: str) -> bytes:
    return files("lakeseal.console").joinpath("static", name).read_bytes()
