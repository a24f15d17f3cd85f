"""Errors as HTTP replies. Clients go by the error's kind; the status is for people, proxies and dashboards."""

from __future__ import annotations

import copy
import logging
import math

import msgspec
from starlette.responses import Response

from lakeseal import errors
from lakeseal.errors import LakesealError, UnknownOutcome
from lakeseal.ledger.url import LedgerUrl
from lakeseal.service.observed import Note
from lakeseal.service.unity_call import unity_error
from lakeseal.service.wire import ErrorReply

_log = logging.getLogger(__name__)

_MOST_TOLD = 5000

# The first that fits, so leaves come before their groups.
_STATUS: tuple[tuple[type[LakesealError], int], ...] = (
    (errors.RequestTooLarge, 413),
    (errors.InvalidInput, 400),
    (errors.NotAuthenticated, 401),
    (errors.OwnedElsewhere, 409),
    (errors.Refused, 403),
    (errors.NotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.ConcurrentModification, 409),
    (errors.Unsupported, 422),
    (errors.CorruptTable, 422),
    (errors.OwnerBusy, 429),
    (errors.StorageUnavailable, 503),
    (errors.UnknownOutcome, 503),
    (errors.StorageError, 502),
)


def status_of(error: LakesealError) -> int:
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def json_reply(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_reply(
    error: LakesealError, *, request_id: str, status: int | None = None, wait_s: float = 0.0, login: str = "Bearer"
) -> Response:
    said = {name: _cut(value) for name, value in error.to_json().items()}
    reply = json_reply(ErrorReply(error=said, request_id=request_id), status or status_of(error))
    if isinstance(error, errors.OwnerBusy):
        reply.headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    if isinstance(error, errors.NotAuthenticated):
        reply.headers["WWW-Authenticate"] = f'{login} realm="lakeseal"'
    return reply


def discreet(error: LakesealError, ledger: LedgerUrl, note: Note) -> LakesealError:
    """Where the ledger is, and what its database says, is for the service's own log. All that a ledger raises names
    it."""
    names = [name for name in (ledger.public, ledger.connect, ledger.path) if name]
    texts = [text for text in (error.message, error.hint, error.file, error.column) if text]
    if not any(name in text for name in names for text in texts):
        return error
    _log.warning("a request failed at the ledger: %s", error, extra={"request_id": note.request_id, "call": note.call})
    told = copy.copy(error)
    told.message = "The service's ledger did not do this"
    told.hint = f"The service's log has more under request {note.request_id}"
    told.file = told.column = None
    return told


def _cut(value: object) -> object:
    """An error may repeat what it is about, and need not repeat all of it."""
    return f"{value[:_MOST_TOLD]}…" if isinstance(value, str) and len(value) > _MOST_TOLD else value


def refused_as_unity(raised: Exception, note: Note, ledger: LedgerUrl, *, decides: bool) -> Response:
    """As `refused`, in the form of the catalog's protocol."""
    if isinstance(raised, LakesealError):
        note.kind, note.table = raised.kind, raised.table
        told = discreet(raised, ledger, note)
    else:
        told = _unexpected(raised, note, decides=decides)
    body = unity_error(told, decides=decides)
    reply = json_reply(body, body.error.code)
    if body.error.code == 429:
        reply.headers["Retry-After"] = str(max(1, math.ceil(note.wait_s)))
    return reply


def refused(
    raised: Exception, note: Note, ledger: LedgerUrl, *, decides: bool = False, login: str = "Bearer"
) -> Response:
    """What a request is answered that ended with an exception; `decides`: it may have changed something before."""
    if isinstance(raised, LakesealError):
        note.kind, note.table = raised.kind, raised.table
        told = discreet(raised, ledger, note)
        return error_reply(told, request_id=note.request_id, wait_s=note.wait_s, login=login)
    return error_reply(_unexpected(raised, note, decides=decides), request_id=note.request_id, status=500)


def _unexpected(raised: Exception, note: Note, *, decides: bool) -> LakesealError:
    _log.error(
        "a request failed unexpectedly", exc_info=raised, extra={"request_id": note.request_id, "call": note.call}
    )
    failed = UnknownOutcome if decides else LakesealError
    unexpected = failed(f"The service failed unexpectedly; its log has more under request {note.request_id}")
    note.kind = unexpected.kind
    return unexpected
