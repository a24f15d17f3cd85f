"""Web pages: plain HTML, no scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from lakeseal.service.access import Caller
from lakeseal.service.wire import TableList

TABLES_AT_ONCE = 200

_templates = Environment(
    loader=PackageLoader("lakeseal.service"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def tables(owner: str, found: TableList, caller: Caller) -> Response:
    rows = [
        {
            "table": one.table,
            "state": one.state,
            "latest": one.latest if one.latest >= 0 else "",
            "backfilled": one.backfilled if one.backfilled >= 0 else "",
            "unbackfilled": one.unbackfilled,
            "lag": f"{one.lag_ms / 1000:.1f} s" if one.unbackfilled else "",
            "updated": datetime.fromtimestamp(one.updated / 1000, UTC).isoformat(sep=" ", timespec="seconds"),
        }
        for one in found.tables
    ]
    html = _templates.get_template("tables.html").render(
        owner=owner,
        principal=caller.principal,
        rows=rows,
        waiting=sum(one.unbackfilled for one in found.tables),
        following=quote(found.tables[-1].table, safe="") if found.more else None,
    )
    return Response(html, media_type="text/html; charset=utf-8", headers=_HEADERS)
