"""Errors as HTTP replies. Clients go by the error's kind; the status is for people, proxies and dashboards."""

from __future__ import annotations

import logging
import math

import msgspec
from starlette.responses import Response

from lakeseal import errors
from lakeseal.errors import LakesealError, UnknownOutcome
from lakeseal.service.observed import Note
from lakeseal.service.wire import ErrorReply

_log = logging.getLogger(__name__)

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
    reply = json_reply(ErrorReply(error=error.to_json(), request_id=request_id), status or status_of(error))
    if isinstance(error, errors.OwnerBusy):
        reply.headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    if isinstance(error, errors.NotAuthenticated):
        reply.headers["WWW-Authenticate"] = f'{login} realm="lakeseal"'
    return reply


def refused(raised: Exception, note: Note, *, decides: bool = False, login: str = "Bearer") -> Response:
    """What a request is answered that ended with an exception; `decides`: it may have changed something before."""
    if isinstance(raised, LakesealError):
        note.kind, note.table = raised.kind, raised.table
        return error_reply(raised, request_id=note.request_id, wait_s=note.wait_s, login=login)
    _log.error(
        "a request failed unexpectedly", exc_info=raised, extra={"request_id": note.request_id, "call": note.call}
    )
    failed = UnknownOutcome if decides else LakesealError
    unexpected = failed(f"The service failed unexpectedly; its log has more under request {note.request_id}")
    note.kind = unexpected.kind
    return error_reply(unexpected, request_id=note.request_id, status=500)
