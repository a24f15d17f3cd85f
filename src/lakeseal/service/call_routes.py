"""The calls that a service takes, as routes: all are handled alike.

Every request goes the same way: who asks, whether that is too often, how much is sent, what it is, and only then the
call itself, in a thread, unless it can be done at once. Whatever is raised becomes an `ErrorReply`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lakeseal.errors import ConcurrentWriteException, InvalidArgument
from lakeseal.owner.messages import BatchAnswer, Ratified, TableCommits, Taken
from lakeseal.service.access import Caller
from lakeseal.service.authentication import bearer, caller_of
from lakeseal.service.bodies import count_values, decoded, read_body
from lakeseal.service.call import ServiceCall
from lakeseal.service.observed import Note
from lakeseal.service.owner_calls import Ratify
from lakeseal.service.prompt_loop import FEW_BYTES, FEW_VALUES
from lakeseal.service.replies import refused, refused_as_unity
from lakeseal.service.service import CALLS, Service
from lakeseal.service.unity_call import UnityCall
from lakeseal.service.unity_calls import UNITY_CALLS

_SENT_AT_ONCE = 2**20
# In the log.
_MOST_NAMED = 10


def call_routes() -> list[Route]:
    own = [Route(call.path, _CallEndpoint(call), methods=["POST"]) for call in CALLS]
    return [*own, *(_unity_route(call) for call in UNITY_CALLS)]


def _unity_route(call: type[UnityCall[Any]]) -> Route:
    async def endpoint(request: Request) -> Response:
        note = Note.of(request.scope)
        note.call = call.name
        try:
            return await _perform_unity(call, request, note)
        except Exception as error:
            return refused_as_unity(error, note, request.app.state.service.ledger.url, decides=call.decides)

    route = Route(call.path, endpoint, methods=[call.method])
    # Starlette answers HEAD where GET is; here it is a call of its own.
    route.methods = {call.method}
    return route


async def _perform_unity(call: type[UnityCall[Any]], request: Request, note: Note) -> Response:
    service: Service = request.app.state.service
    headers = request.headers
    caller = await caller_of(service, request.scope, note, bearer(headers.get("authorization")))
    said = headers.get("content-length")
    with service.uploads.room_for(said, may_be_large=False) as limit:
        pieces = await read_body(request.receive, said, limit)
        query = request.query_params.multi_items()
        return await to_thread.run_sync(
            _unity_answer, service, call, caller, dict(request.path_params), query, pieces, note
        )


def _unity_answer(
    service: Service,
    call: type[UnityCall[Any]],
    caller: Caller,
    route: dict[str, str],
    query: list[tuple[str, str]],
    pieces: Sequence[bytes],
    note: Note,
) -> Response:
    asked = call.of(route, query, decoded(pieces, Any) if any(pieces) else {})
    note.table = asked.about_table
    try:
        reply = service.perform(asked, caller)
    except ConcurrentWriteException as error:
        if error.table is not None and error.version is not None:
            _decided(note, Taken(table=error.table, version=error.version))
        raise
    if (commit := asked.committed(reply)) is not None:
        _decided(note, Ratified(table=commit[0], version=commit[1], key=""))
    return asked.encoded(reply)


def _decided(note: Note, answer: Ratified | Taken) -> None:
    """An engine's commit, in the words of the owner's own calls."""
    note.decided = BatchAnswer(commits=(answer,))


class _CallEndpoint:
    """An app of its own: what Starlette puts around functions is for errors that are answered here."""

    def __init__(self, call: type[ServiceCall[Any]]) -> None:
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, note = Request(scope, receive), Note.of(scope)
        note.call = self._call.name
        try:
            response = _response(await _perform(self._call, request, note))
        except Exception as error:
            response = refused(error, note, request.app.state.service.ledger.url, decides=self._call.decides)
        await response(scope, receive, send)


def _response(text: bytes) -> Response:
    if len(text) <= _SENT_AT_ONCE:
        return Response(text, media_type="application/json")
    # To send takes a copy of it.
    pieces = _pieces(text)
    return StreamingResponse(pieces, media_type="application/json", headers={"Content-Length": str(len(text))})


async def _pieces(text: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _SENT_AT_ONCE):
        yield text[start : start + _SENT_AT_ONCE]


async def _perform(call: type[ServiceCall[Any]], request: Request, note: Note) -> bytes:
    service: Service = request.app.state.service
    headers = request.headers
    caller = await caller_of(service, request.scope, note, bearer(headers.get("authorization")))
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # Also keeps a web page from sending something here on behalf of whoever looks at it.
        raise InvalidArgument("The request's content type is not application/json")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        # Whoever stands in between might unpack it, and have seen another message than the one that is read here.
        raise InvalidArgument("The request's body is encoded", hint="Send it as it is, without Content-Encoding")
    said = headers.get("content-length")
    with service.uploads.room_for(said, may_be_large=call.may_be_large) as limit:
        pieces = await read_body(request.receive, said, limit)
        if sum(map(len, pieces)) > FEW_BYTES or (count := count_values(pieces)) > FEW_VALUES:
            reply, text = await service.large.run(_read_and_performed, service, pieces, call, caller)
        else:
            asked: ServiceCall[Any] = decoded(pieces, call, count)
            run = service.large.run if asked.is_much_work() else to_thread.run_sync
            if isinstance(asked, Ratify):
                reply = await asked.perform_in_turn(service, caller, run)
                text = msgspec.json.encode(reply)
            else:
                reply, text = await run(_performed, service, asked, caller)
    note.table = _table_of(reply)
    note.decided = reply if isinstance(reply, BatchAnswer) else None
    return text


def _read_and_performed(
    service: Service, pieces: Sequence[bytes], call: type[ServiceCall[Any]], caller: Caller
) -> tuple[Any, bytes]:
    return _performed(service, decoded(pieces, call), caller)


def _performed(service: Service, asked: ServiceCall[Any], caller: Caller) -> tuple[Any, bytes]:
    """The reply, unless it is one of many parts, and how it is sent."""
    reply = service.perform(asked, caller)
    if not isinstance(reply, tuple):
        return reply, msgspec.json.encode(reply)
    # One by one, in this thread: to encode all of them at once, and to let go of them, may take so long that others
    # would wait for it.
    parts = list(reversed(reply))
    del reply
    encoded = []
    while parts:
        encoded.append(msgspec.json.encode(parts.pop()))
    return None, b"".join((b"[", b",".join(encoded), b"]"))


def _table_of(reply: Any) -> str | None:
    match reply:
        case TableCommits():
            return reply.table
        case BatchAnswer():
            named = [one.table for one in reply.commits[:_MOST_NAMED]]
            more = len(reply.commits) - len(named)
            return ", ".join([*named, f"and {more} more"] if more else named)
    return None
