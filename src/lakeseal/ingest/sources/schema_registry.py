"""A schema registry: writers' schemas by their numbers, which messages begin with.

A schema never changes once it is registered, so each is asked for once. Answers and what they refer to are bounded. A
registry that does not answer, or refuses, is `SourceUnavailable`: the run fails and moves nothing. One that says that
it has no schema of a number is `UnknownSchema`: what names it is a bad record, and is looked up again a minute later.
"""

from __future__ import annotations

import base64
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal.errors import SourceUnavailable, Unsupported

_LARGEST = 10 * 2**20
_MOST_REFERENCES = 100
_NOT_THERE = (40401, 40402, 40403)
"""What a registry says where it has no such subject, version or schema. Any other 404 is not its own: the address is
that of something else, and no record is to blame."""
_UNKNOWN_FOR_S = 60.0
_MOST_UNKNOWN = 10_000
_unknown: dict[tuple[Registry, str], float] = {}
"""What a registry does not have, and until when that is taken for granted: many records may name it."""


class UnknownSchema(ValueError):
    """The registry has no such schema."""


class SchemaReference(Struct, frozen=True):
    name: str
    subject: str
    version: int


class RegisteredSchema(Struct, frozen=True):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815  as the registry says it
    references: tuple[SchemaReference, ...] = ()


class Registry(Struct, frozen=True):
    url: str
    auth: str | None = None
    """`user:password`, or a token."""

    def schema(self, number: int, *, serialized: bool = False) -> RegisteredSchema:
        """`serialized`: of Protobuf, its descriptor instead of its text."""
        return _asked(self, f"/schemas/ids/{number}{_form(serialized)}", f"schema {number}")

    def referred(self, schema: RegisteredSchema, *, serialized: bool = False) -> dict[str, RegisteredSchema]:
        """All that it refers to, also by way of others, by the names that they are called there."""
        found: dict[str, RegisteredSchema] = {}
        left = list(schema.references)
        while left:
            one = left.pop()
            if one.name in found:
                continue
            if len(found) >= _MOST_REFERENCES:
                raise SourceUnavailable(f"A schema refers to more than {_MOST_REFERENCES} others")
            subject = urllib.parse.quote(one.subject, safe="")
            path = f"/subjects/{subject}/versions/{one.version}{_form(serialized)}"
            found[one.name] = _asked(self, path, f"{one.subject}, version {one.version}")
            left += found[one.name].references
        return found


def framed(value: bytes) -> tuple[int, bytes]:
    """The number of the writer's schema, and what comes behind it."""
    if len(value) < 5 or value[0] != 0:
        raise ValueError("It does not name its writer's schema")
    number = struct.unpack(">i", value[1:5])[0]
    if number < 0:
        raise ValueError("It does not name its writer's schema")
    return number, value[5:]


def _form(serialized: bool) -> str:
    return "?format=serialized" if serialized else ""


def _asked(registry: Registry, path: str, what: str) -> RegisteredSchema:
    if _unknown.get((registry, path), 0.0) > time.monotonic():
        raise _not_there(what)
    return _told(registry, path, what)


def _not_there(what: str) -> UnknownSchema:
    return UnknownSchema(f"The schema registry has no {what}")


@lru_cache(maxsize=1000)
def _told(registry: Registry, path: str, what: str) -> RegisteredSchema:
    address = f"{registry.url.rstrip('/')}{path}"
    if not address.startswith(("http://", "https://")):
        raise Unsupported(f"A schema registry is reached by HTTP, not by {registry.url!r}")
    asked = urllib.request.Request(address)  # noqa: S310  the scheme is checked above
    auth = registry.auth
    if auth is not None:
        basic = f"Basic {base64.b64encode(auth.encode()).decode()}"
        asked.add_unredirected_header("Authorization", basic if ":" in auth else f"Bearer {auth}")
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310  as above
            text = answer.read(_LARGEST + 1)
            if len(text) > _LARGEST:
                raise SourceUnavailable(f"The schema registry's answer for {what} is too long")
            return msgspec.json.decode(text, type=RegisteredSchema)
    except (urllib.error.URLError, OSError, msgspec.MsgspecError) as error:
        if isinstance(error, urllib.error.HTTPError):
            with error:  # it holds the answer
                is_unknown = error.code == 404 and _code(error) in _NOT_THERE
            if is_unknown:
                if len(_unknown) >= _MOST_UNKNOWN:
                    _unknown.clear()
                _unknown[registry, path] = time.monotonic() + _UNKNOWN_FOR_S
                raise _not_there(what) from None
        raise SourceUnavailable(f"The schema registry does not tell {what}: {error}") from error


def _code(error: urllib.error.HTTPError) -> int | None:
    try:
        return msgspec.json.decode(error.read(_LARGEST), type=_Refusal).error_code
    except (OSError, msgspec.MsgspecError):
        return None


class _Refusal(Struct, frozen=True):
    error_code: int | None = None


def no_schema(kind: str, said: Any) -> ValueError:
    return ValueError(f"Its writer's schema is no {kind}: {said}")
