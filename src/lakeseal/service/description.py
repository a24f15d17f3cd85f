"""What the service says of its own API (OpenAPI): every call, from the class that declares it.

A call of our own is a POST of its message; one of the catalog's protocol has its method and the parts of its route, its
query and its body. What is asked by GET beside them is a `GetCall`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import FieldInfo
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakeseal.catalog.unity.messages import RefusedReply
from lakeseal.service.service import CALLS
from lakeseal.service.unity_call import UnityCall
from lakeseal.service.unity_calls import UNITY_CALLS
from lakeseal.service.wire import ErrorReply

_TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}


class GetCall(NamedTuple):
    """What is asked by GET, as the description tells of it."""

    path: str
    name: str
    summary: str
    reply: Any
    """The type of what is answered as JSON; None where that is text."""


def description_route(version: str, gets: Sequence[GetCall]) -> Route:
    encoded: list[bytes] = []

    async def send(_: Request) -> Response:
        # Everybody may ask for it, so that it is made once.
        if not encoded:
            encoded.append(msgspec.json.encode(_description(version, gets)))
        return Response(encoded[0], media_type="application/json")

    return Route("/openapi.json", send)


def _description(version: str, gets: Sequence[GetCall]) -> dict[str, Any]:
    messages = _Messages(gets)
    refused, refused_as_unity = (_answer("Not done", messages.json(one)) for one in (ErrorReply, RefusedReply))
    # The same for all, as it is answered before it is known what was asked for.
    too_large = _answer("The request's head is too large", messages.json(ErrorReply))
    paths: dict[str, dict[str, Any]] = {}

    def tell(path: str, method: str, name: str, summary: str, done: dict[str, Any], **more: Any) -> None:
        told = {"summary": summary, "operationId": name, "responses": {**done, "431": too_large}, **more}
        paths.setdefault(path, {})[method.lower()] = told

    for one in gets:
        content = _TEXT if one.reply is None else messages.json(one.reply)
        tell(one.path, "GET", one.name, one.summary, {"200": _answer("Done", content), "default": refused})
    for call in CALLS:
        done = {"200": _answer("Done", messages.json(call.reply)), "default": refused}
        tell(call.path, "POST", call.name, call.summary, done, requestBody=_body(messages.json(call)))
    for asked in UNITY_CALLS:
        fields = {field.name: field for field in msgspec.structs.fields(asked)}
        body = fields.pop("body", None)
        more = {} if body is None else {"requestBody": _body(messages.json(body.type))}
        parts = [_part(asked, field, messages) for field in fields.values()]
        # An answer to HEAD has no content.
        no = _answer("Not done") if asked.method == "HEAD" else refused_as_unity
        said = _answer("Done", None if asked.reply is NoneType else messages.json(asked.reply))
        done = {str(asked.status): said, "default": no}
        tell(asked.path, asked.method, asked.name, asked.summary, done, parameters=parts, **more)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lakeseal", "version": version},
        "paths": paths,
        "components": {
            "schemas": messages.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


class _Messages:
    """The schemas of all that travels."""

    def __init__(self, gets: Sequence[GetCall]) -> None:
        replies = [one.reply for one in gets if one.reply is not None]
        unity = [call.reply for call in UNITY_CALLS if call.reply is not NoneType]
        fields = [field.type for call in UNITY_CALLS for field in msgspec.structs.fields(call)]
        types = [*CALLS, *(call.reply for call in CALLS), *replies, *unity, *fields, ErrorReply, RefusedReply]
        found, self.components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
        self._schemas = {repr(kind): schema for kind, schema in zip(types, found, strict=True)}

    def of(self, kind: Any) -> dict[str, Any]:
        return self._schemas[repr(kind)]

    def json(self, kind: Any) -> dict[str, Any]:
        return {"application/json": {"schema": self.of(kind)}}


def _answer(summary: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": summary} if content is None else {"description": summary, "content": content}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": content}


def _part(call: type[UnityCall[Any]], field: FieldInfo, messages: _Messages) -> dict[str, Any]:
    """Of the route, or else of the query."""
    place = "path" if f"{{{field.name}}}" in call.route else "query"
    return {"name": field.name, "in": place, "required": field.required, "schema": messages.of(field.type)}
