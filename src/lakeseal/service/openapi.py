"""The description of the API, made from the messages themselves."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from lakeseal.service.book_calls import BOOK_CALLS
from lakeseal.service.calls import CALLS, Call
from lakeseal.service.wire import ErrorReply, OwnerInfo, TableList

_REFS = "#/components/schemas/{name}"
_CALLS = (*CALLS, *BOOK_CALLS)
_TYPES = [*(call.request for call in _CALLS), *(call.reply for call in _CALLS), ErrorReply, OwnerInfo, TableList]
_schemas, _components = msgspec.json.schema_components(_TYPES, ref_template=_REFS)
_schema = {repr(kind): schema for kind, schema in zip(_TYPES, _schemas, strict=True)}


def of_call(call: Call) -> dict[str, Any]:
    return {
        "post": {
            "summary": call.summary,
            "operationId": call.name,
            "requestBody": {"required": True, "content": _json(_schema[repr(call.request)])},
            "responses": {
                "200": {"description": "Done", "content": _json(_schema[repr(call.reply)])},
                "default": {"description": "Not done", "content": _json(_schema[repr(ErrorReply)])},
            },
        }
    }


def install(app: FastAPI) -> None:
    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, routes=app.routes)
            found["paths"] |= {call.path: of_call(call) for call in _CALLS}
            components = found.setdefault("components", {})
            components["schemas"] = {**components.get("schemas", {}), **_components}
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            found["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    # FastAPI's documented way to extend it.
    app.openapi = describe  # type: ignore[method-assign]


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
