"""`UnityHttp`: a catalog of others over HTTP, as `catalog.unity.remote` has it. Importing this makes `open_catalog`
know the kind `unity`: `lakeseal.Catalog("https://…", kind="unity")`, or a URL `unity+https://…`.

The token is the one that is given, or that of LAKESEAL_UNITY_TOKEN: that of a Lakeseal service (LAKESEAL_TOKEN) is
never sent to somebody else's catalog.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from lakeseal import errors, typed_json
from lakeseal.catalog.connect import UNITY, register
from lakeseal.catalog.endpoint import OpenCatalog
from lakeseal.catalog.unity.answers import TheirErrorReply
from lakeseal.catalog.unity.messages import BASE
from lakeseal.catalog.unity.remote_names import RemoteNames
from lakeseal.errors import LakesealError, UnknownOutcome
from lakeseal.service.http_client import HttpAnswer, HttpClient, retry_after_s

TOKEN_VARIABLE = "LAKESEAL_UNITY_TOKEN"  # noqa: S105  its name, not its value

T = TypeVar("T")

_BY_TYPE: dict[str, type[LakesealError]] = {
    "NoSuchTableException": errors.TableNotFound,
    "NoSuchSchemaException": errors.SchemaNotFound,
    "NoSuchCatalogException": errors.SchemaNotFound,
    "AlreadyExistsException": errors.AlreadyExists,
    "CommitStateUnknownException": errors.UnknownOutcome,
    "NotAuthorizedException": errors.NotAuthenticated,
    "PermissionDeniedException": errors.NotAllowed,
}
_BY_STATUS: dict[int, type[LakesealError]] = {
    401: errors.NotAuthenticated,
    403: errors.NotAllowed,
    404: errors.TableNotFound,
    409: errors.ConcurrentWriteException,
    413: errors.RequestTooLarge,
    429: errors.OwnerBusy,
}


class UnityHttp:
    """A `Remote`."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self._http = HttpClient(url.rstrip("/").removesuffix(BASE), token=token)

    def __repr__(self) -> str:
        return f"UnityHttp({self.url!r})"

    @property
    def url(self) -> str:
        return self._http.url

    def ask(self, path: str, reply: type[T], **query: str | int | None) -> T:
        said = {name: text for name, text in query.items() if text is not None}
        target = f"{BASE}{path}?{urlencode(said)}" if said else BASE + path
        return self._http.read(lambda: self._once("GET", target, reply, None))

    def change(self, method: str, path: str, reply: type[T], body: Any = None) -> T:
        data = None if body is None else msgspec.json.encode(body)
        return self._once(method, BASE + path, reply, data)

    def close(self) -> None:
        self._http.close()

    def _once(self, method: str, target: str, reply: type[T], body: bytes | None) -> T:
        answer = self._http.once(method, target, body)
        if answer.status in (200, 201, 204):
            try:
                return typed_json.decode(answer.content or b"{}", reply)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise UnknownOutcome(f"What answered at {self.url} is no catalog of this protocol: {error}") from None
        raise self._error(answer)

    def _error(self, answer: HttpAnswer) -> LakesealError:
        try:
            said = typed_json.decode(answer.content, TheirErrorReply)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._http.foreign(answer)
        message = said.message if said.error is None else said.error.message
        kind = None if said.error is None else said.error.type
        if message is None or 300 <= answer.status < 400:
            return self._http.foreign(answer)
        error_class = _BY_TYPE.get(kind or "") or _BY_STATUS.get(answer.status)
        if error_class is None:
            error_class = errors.UnknownOutcome if answer.status >= 500 else errors.Refused
        hint = f"That is what the catalog at {self.url} answered ({kind or said.error_code or answer.status})"
        error = error_class(message[:2000], hint=hint)
        if isinstance(error, errors.OwnerBusy):
            error.retry_after_s = retry_after_s(answer)
        return error


def open_unity(url: str, token: str | None, root: str | None) -> OpenCatalog:
    if root is not None:
        raise errors.InvalidArgument("Such a catalog says itself where its tables are", hint="Leave the root out")
    remote = UnityHttp(url, token=token or os.environ.get(TOKEN_VARIABLE) or None)
    names = RemoteNames(remote)
    return OpenCatalog(url=f"{UNITY}+{remote.url}", names=names, owner=None, by_table=names)


register(UNITY, open_unity)
