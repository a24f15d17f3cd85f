"""JSON that is told to others by HTTP: alerts and lineage. Tried a few times, within seconds; what can't be told is an
answer, not an error, since a run that was published stays so."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

from lakeseal.backoff import Backoff
from lakeseal.errors import InvalidArgument

_TRIES = 3
_TIMEOUT_S = 10.0
_BACKOFF = Backoff(first_s=0.2)


class _Stays(urllib.request.HTTPRedirectHandler):
    """What is told to one address is not told to another."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stays)


def check_address(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgument(f"{url!r} is no address of HTTP", hint="Write https://host/path")


def post(url: str, told: Any, headers: Mapping[str, str]) -> str | None:
    """Why it could not be told; None if it was."""
    data = msgspec.json.encode(told, enc_hook=str)
    asked = urllib.request.Request(  # noqa: S310  the scheme was checked
        url, data=data, headers={"Content-Type": "application/json", **headers}, method="POST"
    )
    for tried in _BACKOFF.tries():
        try:
            with _OPENER.open(asked, timeout=_TIMEOUT_S):
                return None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if tried >= _TRIES:
                return str(error) or type(error).__name__
    raise AssertionError("tries end by themselves")
