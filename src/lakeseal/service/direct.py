"""The calls that a service takes, past the app's routes: they come often, and are all handled alike.

Every request goes the same way: who asks, whether that is too often, how much is sent, what it is, and only then the
call itself. Commits are done in groups by the service's lane; everything else, and what the lane gives back, in a
thread of its own. Whatever is raised becomes an `ErrorReply`.

`joined` is a short cut for what is usual, a small commit that can join the lane at once: the ceremony of an ASGI
request takes as long as the commit. Whatever else it may be is left to `perform`, which does it all from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio import to_thread
from starlette.types import Receive, Scope, Send

from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.owner.messages import Batch, BatchAnswer, TableCommits, from_json
from lakeseal.service.authentication import bearer
from lakeseal.service.book_calls import BOOK_CALLS
from lakeseal.service.callers import caller_of, header, known_caller
from lakeseal.service.calls import CALLS, RATIFY, Call
from lakeseal.service.limits import read_body
from lakeseal.service.observed import Note
from lakeseal.service.replies import refused
from lakeseal.service.service import Done, Service

_CALLS = {call.path: call for call in (*CALLS, *BOOK_CALLS)}
PATHS = frozenset(_CALLS)
# A commit of its own with its bytes is smaller; a batch of many tables takes its time to read.
_MOST_TOGETHER = 65_536
_JSON_HEADER = (b"content-type", b"application/json")


async def perform(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI app for POST requests to `PATHS`, inside of `Observed`."""
    call, note = _CALLS[scope["path"]], Note.of(scope)
    note.call = call.name
    try:
        encoded = await _perform(scope["app"].state.service, call, scope, receive, note)
    except Exception as error:
        await refused(error, note, decides=call.decides)(scope, receive, send)
        return
    size = (b"content-length", b"%d" % len(encoded))
    await send({"type": "http.response.start", "status": 200, "headers": [_JSON_HEADER, size]})
    await send({"type": "http.response.body", "body": encoded})


def joined(service: Service, scope: Scope, body: bytes, tell: Callable[[Done | None], None]) -> Note | None:
    """`tell` gets the reply later, or None if `perform` has to be asked after all. Gives None if it has to be at once:
    nothing has happened then."""
    if len(body) > min(_MOST_TOGETHER, service.settings.max_body):
        return None
    note = Note(scope["headers"])
    note.call = RATIFY.name
    try:
        caller = known_caller(service, scope, bearer(header(scope, b"authorization")))
        _check_content_type(scope)
        if caller is None or service.buckets.wait(caller.token_id):
            return None
        if not service.lane.join((from_json(body, Batch), caller), tell):
            return None
    except LakesealError:
        return None
    note.token_id = caller.token_id
    service.buckets.take(caller.token_id)
    return note


def replied(service: Service, note: Note, done: Done) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    """The body of the reply to what has `joined`, and its headers."""
    encoded, reply = done
    service.count(reply)
    note.table, note.status = _table_of(reply), 200
    note.end(service.metrics)
    return encoded, (_JSON_HEADER, (b"content-length", b"%d" % len(encoded)), *note.headers)


async def _perform(service: Service, call: Call, scope: Scope, receive: Receive, note: Note) -> bytes:
    caller = await caller_of(service, scope, note, bearer(header(scope, b"authorization")))
    _check_content_type(scope)
    body = await read_body(receive, header(scope, b"content-length"), service.settings.max_body)
    done = None
    if call is RATIFY and len(body) <= _MOST_TOGETHER:
        done = await service.lane.ask((from_json(body, Batch), caller))
    if done is None:
        done = await to_thread.run_sync(service.perform, call, body, caller)
    encoded, reply = done
    service.count(reply)
    note.table = _table_of(reply)
    return encoded


def _check_content_type(scope: Scope) -> None:
    if (header(scope, b"content-type") or "").partition(";")[0].strip().lower() != "application/json":
        # Also keeps a web page from sending something here on behalf of whoever looks at it.
        raise InvalidArgument("The request's content type is not application/json")


def _table_of(reply: Any) -> str | None:
    match reply:
        case TableCommits():
            return reply.table
        case BatchAnswer():
            return ", ".join(one.table for one in reply.commits)
    return None
