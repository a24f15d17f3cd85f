"""Where a ledger is: the text that a user gives becomes one frozen value.

- `sqlite:///relative.db`, `sqlite:////absolute.db`: a file; a relative path is made absolute at once, so the value
  means the same file after `chdir`, in another process, in a Spark task.
- `sqlite://`: in memory, for tests; lives as long as the `Ledger` that opened it, in its process only.
- `postgresql://…` or `postgres://…`: PostgreSQL, with libpq's options after `?`.

Anything else raises `InvalidUri`. Secrets appear in `connect` only: `repr`, `str` and error texts show `public`.
"""

from __future__ import annotations

import os
import re
from typing import Literal

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.exc import ArgumentError

from lakeseal.errors import InvalidUri

_HINT = "Use sqlite:///path/ledger.db, postgresql://user@host/database, or sqlite:// for one in memory"
_POSTGRES = {"postgresql", "postgres", "postgresql+psycopg"}

# Greedy: text that does not parse may have its password anywhere up to the last "@".
_USERINFO = re.compile(r"^([^:/@]*:?//)?.*@", re.DOTALL)
_SECRET_OPTION = re.compile(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)


class LedgerUrl(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    kind: Literal["memory", "sqlite", "postgresql"]
    public: str
    """Normalised and without secrets: what people see."""
    connect: str
    """Normalised, with secrets: what the driver gets, and what `parse` gives this value back from."""
    path: str = ""
    """The absolute path of an SQLite file."""

    def __repr__(self) -> str:
        return f"LedgerUrl({self.public!r})"

    def __str__(self) -> str:
        return self.public


def parse(text: str) -> LedgerUrl:
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise InvalidUri(f"a ledger needs a URL, not {_masked(text)!r}", hint=_HINT)
    if "\0" in text:
        raise InvalidUri("a ledger's URL holds a NUL character", hint=_HINT)
    if scheme == "sqlite":
        return _sqlite(rest, text)
    if scheme in _POSTGRES:
        return _postgresql(rest, text)
    raise InvalidUri(f"a ledger can't live at {_masked(text)!r}", hint=_HINT)


def _sqlite(rest: str, text: str) -> LedgerUrl:
    if rest in ("", "/:memory:"):
        return LedgerUrl(kind="memory", public="sqlite://", connect="sqlite://")
    if not rest.startswith("/") or rest == "/" or rest.endswith("/"):
        raise InvalidUri(
            f"{_masked(text)!r} names no file", hint="sqlite:/// is followed by a path: sqlite:///ledger.db"
        )
    if "?" in rest or rest.startswith("/file:"):
        raise InvalidUri(f"{_masked(text)!r} has options, and a SQLite ledger takes none", hint=_HINT)
    path = os.path.abspath(rest[1:])
    url = f"sqlite:///{path}"
    return LedgerUrl(kind="sqlite", public=url, connect=url, path=path)


def _postgresql(rest: str, text: str) -> LedgerUrl:
    try:
        url = sa.make_url(f"postgresql+psycopg://{rest}")
    except (ArgumentError, ValueError):
        # Not chained: the driver's words may quote the text, and so the password.
        raise InvalidUri(f"{_masked(text)!r} is not a PostgreSQL URL", hint=_HINT) from None
    if "@" in (url.host or "") or "@" in (url.database or ""):
        # The rest of a password would be taken for a host, and shown as one.
        raise InvalidUri(f"{_masked(text)!r} has more than one @", hint="Write an @ inside a password as %40")
    shown = url.set(drivername="postgresql").render_as_string(hide_password=True)
    return LedgerUrl(
        kind="postgresql",
        public=_SECRET_OPTION.sub(r"\1***", shown),
        connect=url.render_as_string(hide_password=False),
    )


def _masked(text: str) -> str:
    return _SECRET_OPTION.sub(r"\1***", _USERINFO.sub(r"\1***@", text))
