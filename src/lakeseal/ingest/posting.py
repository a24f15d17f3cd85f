"""JSON that is told to others by HTTP: alerts and lineage. Tried a few times, within seconds; what can't be told is an
answer, not an error, since a run that was published stays so.

An address or a header may be a secret, and what is said of a wrong one ends in runs, logs and alerts: so it is looked
at before it is used, and never repeated."""

from __future__ import annotations

import http.client
import re
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

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


_ADDRESS = re.compile(r"https?://[^\x00-\x20\x7f]+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")


def check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_one = _ADDRESS.fullmatch(url) is not None and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise InvalidArgument("This is no address of HTTP", hint="Write https://host/path")


def check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None:
            raise InvalidArgument("A header's name is none that HTTP has")
        if _HEADER_VALUE.fullmatch(value) is None:
            raise InvalidArgument(
                f"The header {name} holds what no header may: a line break, a blank at an end, or no ASCII",
                hint="Look at the variable that it comes from; files of secrets often end with a line break",
            )


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
