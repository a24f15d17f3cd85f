"""Column types that mean the same on every database.

- `Name`: any Unicode text of any length. Compared and sorted by its UTF-8 bytes (PostgreSQL would otherwise sort by the
  server's locale). Too long for an index, so a table that looks names up has a key column beside each: see `key`.
- `Id`: a `Name` of at most 255 characters, which may be indexed as it is.
- `Json`: any JSON value, stored as text (so that no database reads meaning into it), equal values as equal text.
- `Int`: a signed 64-bit integer. Times are `Int` too: milliseconds since the epoch, UTC.
- `Bytes`: bytes.

A value that some database could not hold (a NUL character, half of a surrogate pair, a larger integer) is refused by
all of them, with `InvalidArgument`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

from lakeseal import stepwise_json
from lakeseal.errors import BrokenLedger, InvalidArgument

_ID_CHARACTERS = 255


@lru_cache(maxsize=1024)
def key(name: str) -> str:
    """What stands for a name in an index: PostgreSQL limits an index entry to 2,704 bytes, and a URI has no limit."""
    try:
        return hashlib.sha256(name.encode()).hexdigest()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name!r} is not valid Unicode text") from None


class Name(TypeDecorator[str]):
    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return sa.Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise InvalidArgument(f"text is needed, not {value!r}")
        if "\0" in value:
            raise InvalidArgument(f"{value!r} holds a NUL character")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{value!r} is not valid Unicode text") from None
        return value


class Id(Name):
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is not None and len(value) > _ID_CHARACTERS:
            raise InvalidArgument(f"an id has at most {_ID_CHARACTERS} characters, not {len(value)}")
        return super().process_bind_param(value, dialect)


class Int(TypeDecorator[int]):
    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: sa.Dialect) -> int | None:
        if value is not None and (not isinstance(value, int) or not -(2**63) <= value < 2**63):
            raise InvalidArgument(f"{value!r} is not a 64-bit integer")
        return value


class Bytes(TypeDecorator[bytes]):
    impl = sa.LargeBinary
    cache_ok = True


class Json(TypeDecorator[Any]):
    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return sa.Text(collation="C" if dialect.name == "postgresql" else None)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        if value is None:
            return None
        try:
            return msgspec.json.encode(value, order="deterministic").decode()
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise InvalidArgument(f"this value can't be written as JSON: {error}") from None

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        try:
            return stepwise_json.decode(value) if stepwise_json.is_long(value) else msgspec.json.decode(value)
        except (ValueError, RecursionError, StopIteration) as error:
            raise BrokenLedger(f"the ledger holds text that is not JSON: {error}") from None
