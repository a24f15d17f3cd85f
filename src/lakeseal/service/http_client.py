"""`HttpClient`: questions to one address, as the clients of services and of catalogs ask them.

Where a request goes, and what token it carries, is what the user configured and nothing else: redirects are not
followed. A token is not sent over plain http to other machines, unless LAKESEAL_ALLOW_HTTP=1.

`UnknownOutcome` says that the request may have arrived and no answer came; `StorageUnavailable` that no connection was
made. May be shared by threads, and used after a fork.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from importlib.metadata import version
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from lakeseal import traces
from lakeseal.backoff import Backoff, Deadline
from lakeseal.errors import (
    InvalidArgument,
    InvalidUri,
    LakesealError,
    OwnerBusy,
    StorageError,
    StorageUnavailable,
    UnknownOutcome,
)
from lakeseal.service.settings import is_loopback
from lakeseal.service.transport import HttpAnswer, NoAnswer, NotConnected, Transport, open_transport, untrusted

ALLOW_HTTP_VARIABLE = "LAKESEAL_ALLOW_HTTP"
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
PATIENCE_S = 10.0
_BACKOFF = Backoff(first_s=0.05, longest_s=2.0)
# Waits of a tenth of a second are nothing to tell of.
_TELL_AFTER = 2
_log = logging.getLogger(__name__)

T = TypeVar("T")


class HttpClient:
    def __init__(
        self, url: str, *, token: str | None = None, timeout: httpx.Timeout = TIMEOUT, patience_s: float = PATIENCE_S
    ) -> None:
        """Nothing is contacted yet."""
        self.url = _checked(url, token)
        self._token = token
        self._timeout = timeout
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._transports: dict[int, Transport] = {}
        # Nobody closes an owner that a table was opened with.
        weakref.finalize(self, _close, self._transports, self._lock)

    def once(self, method: str, target: str, body: bytes | None) -> HttpAnswer:
        """Whatever answers; `target` is what follows the address."""
        with traces.span(
            f"lakeseal ask {target.partition('?')[0]}", {"server.address": self.url}, kind="client"
        ) as say:
            try:
                answer = self._transport().ask(method, target, body, traces.sent())
            except NotConnected as error:
                raise self._unreachable(error) from error
            except NoAnswer as error:
                raise UnknownOutcome(f"No answer came from the service at {self.url}: {error}") from error
            say({"http.response.status_code": answer.status})
            return answer

    def read(self, once: Callable[[], T]) -> T:
        """For questions that decide nothing: asked again for a few seconds where no answer came."""

        def ask() -> T:
            try:
                return once()
            except UnknownOutcome as error:
                raise StorageUnavailable(error.message) from error.__cause__

        return self.patiently(ask, StorageUnavailable)

    def patiently(self, ask: Callable[[], T], again: type[LakesealError] | tuple[type[LakesealError], ...]) -> T:
        """`ask`, and once more for a few seconds while it raises one of `again`."""
        deadline = Deadline(self._patience_s)
        for tried in itertools.count(1):
            try:
                answer = ask()
            except again as error:
                said = error.retry_after_s if isinstance(error, OwnerBusy) else None
                if tried == _TELL_AFTER and not deadline.is_over:
                    _log.warning(
                        "%s; it is asked again, at most %g s apart, until %s",
                        error.message,
                        _BACKOFF.longest_s,
                        deadline,
                    )
                # What a service asks for is waited at least, and a little more, so that not all come back at once.
                asked_for = None if said is None else min(said, _BACKOFF.longest_s) + _BACKOFF.pause_s(1)
                if not deadline.wait(_BACKOFF.pause_s(tried) if asked_for is None else asked_for):
                    raise
            else:
                if tried > _TELL_AFTER:
                    _log.warning("The service at %s answers again", self.url)
                return answer
        raise AssertionError("there is always another number")

    def foreign(self, answer: HttpAnswer) -> LakesealError:
        """What to say of an answer that is not the service's: somebody is between, or in its place."""
        if 300 <= answer.status < 400:
            return InvalidUri(
                f"The service at {self.url} answers with a redirect, and redirects are not followed",
                hint="Configure the address where the service really is",
            )
        text = f"Not the service at {self.url} answered, but something in between, with status {answer.status}"
        if answer.status < 500:
            return StorageError(text, hint="Check the owner's address")
        return UnknownOutcome(text)

    def close(self) -> None:
        """Its connections; it can be used again."""
        _close(self._transports, self._lock)

    def _unreachable(self, error: NotConnected) -> StorageError:
        certificate = untrusted(error)
        if certificate is not None:
            return StorageError(
                f"The certificate of the service at {self.url} is not trusted: {certificate.verify_message}",
                hint="Set SSL_CERT_FILE to the certificates of your own authority",
            )
        return StorageUnavailable(
            f"The service at {self.url} cannot be reached: {error}",
            hint="Check that it runs, and the owner's address",
        )

    def _transport(self) -> Transport:
        # A connection that two processes share would mix up their answers.
        process = os.getpid()
        found = self._transports.get(process)
        if found is None:
            with self._lock:
                found = self._transports.get(process)
                if found is None:
                    headers = {"User-Agent": f"lakeseal/{version('lakeseal')}"}
                    if self._token is not None:
                        headers["Authorization"] = f"Bearer {self._token}"
                    found = self._transports[process] = open_transport(self.url, headers, self._timeout)
        return found


def retry_after_s(answer: HttpAnswer) -> float:
    """How long an answer asks to wait."""
    after = answer.retry_after
    return float(after) if after.isascii() and after.isdecimal() else 1.0


def _close(transports: dict[int, Transport], lock: threading.Lock) -> None:
    with lock:
        found = transports.pop(os.getpid(), None)
    if found is not None:
        found.close()


def _checked(url: str, token: str | None) -> str:
    """The address without anything but scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidUri("The address of the service is malformed", hint="Write https://host") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise InvalidUri("The address of a service is https://host[:port][/path]", hint="Write https://host")
    if "@" in parts.netloc:
        raise InvalidUri("The address of the service holds a password", hint="Give a token instead")
    if token is not None:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidArgument("The token has characters that no token has")
        if parts.scheme == "http" and not is_loopback(host) and os.environ.get(ALLOW_HTTP_VARIABLE) != "1":
            raise InvalidArgument(
                f"The token would travel to {host} in the clear",
                hint=f"Use https://, or set {ALLOW_HTTP_VARIABLE}=1 if the network between is yours alone",
            )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
