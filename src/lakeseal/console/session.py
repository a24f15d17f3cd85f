"""Who a browser is: cookies and forms.

Signing in puts the token itself into a cookie that scripts cannot read and other sites cannot send (`HttpOnly`,
`SameSite=Strict`), so that no worker has to remember anybody, and a token that was revoked is out at once. A form that
changes something carries a mark that belongs to another such cookie; a request without it, or one that a browser says
came from another site, is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lakeseal.errors import InvalidArgument, NotAllowed

TOKEN = "lakeseal_token"  # noqa: S105  # a cookie's name
FORM = "lakeseal_form"
MARK = "form"
_KEEP_S = 14 * 24 * 3600
_RANDOM = re.compile(r"[A-Za-z0-9_-]{43}")
_MOST_FORM_BYTES = 20_000
_MOST_FIELDS = 50
FORM_S = 10.0
"""In which a form is to arrive: anybody may send one, to sign in."""


def token_of(request: Request) -> str | None:
    return request.cookies.get(TOKEN)


def put_token(response: Response, request: Request, token: str) -> None:
    _put(response, request, TOKEN, token)


def forget(response: Response) -> None:
    response.delete_cookie(TOKEN, path="/")


def form_secret(request: Request) -> str:
    """What the browser's cookie says, or a new one, for `put_form_secret`."""
    known = request.cookies.get(FORM, "")
    return known if _RANDOM.fullmatch(known) else secrets.token_urlsafe(32)


def put_form_secret(response: Response, request: Request, secret: str) -> None:
    if request.cookies.get(FORM) != secret:
        _put(response, request, FORM, secret)


def mark_of(secret: str) -> str:
    """What forms of this browser carry."""
    return hmac.new(secret.encode(), b"lakeseal form", hashlib.sha256).hexdigest()


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that this browser was given; `NotAllowed` for any other."""
    check_site(request.headers)
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for piece in request.stream():
                body += piece
                if len(body) > _MOST_FORM_BYTES:
                    raise InvalidArgument(f"A form has at most {_MOST_FORM_BYTES:,} bytes")
    except TimeoutError:
        raise InvalidArgument(f"The form did not arrive within {FORM_S:g} s") from None
    except ClientDisconnect:
        raise InvalidArgument("The request ended before its form") from None
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise InvalidArgument("This is no form") from None
    secret = request.cookies.get(FORM, "")
    given = fields.pop(MARK, "")
    if not _RANDOM.fullmatch(secret) or not hmac.compare_digest(given.encode(), mark_of(secret).encode()):
        raise NotAllowed("This form is not one that this page gave out", hint="Load the page again and try once more")
    return fields


def check_site(headers: Mapping[str, str]) -> None:
    """`NotAllowed` where a browser says that another site's page sends the request. Who is no browser says nothing."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    try:
        is_ours = origin is None or (origin != "null" and urlsplit(origin).netloc == headers.get("host", ""))
    except ValueError:
        is_ours = False
    if not is_ours or site not in (None, "same-origin", "none"):
        raise NotAllowed("The request came from another site")


def _put(response: Response, request: Request, name: str, value: str) -> None:
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=_KEEP_S, path="/", httponly=True, samesite="strict", secure=secure)
