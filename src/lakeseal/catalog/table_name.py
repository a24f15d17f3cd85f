"""`TableName`: what a table is called, `catalog.schema.table`.

A name is compared without regard to upper and lower case and kept as it was written, as Unity Catalog and Spark do it;
two spellings of one Unicode text are one name. Each part has 1 to 255 printable characters. None of them is white
space, a slash, a backslash, a backtick or a dot, not even between backticks: those who serve and speak Unity's protocol
split a full name at its dots. So every name here is a name for every engine.

`sales.orders` is in the catalog `main`. A single word is no name: `orders` has always been a path, and still is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from msgspec import Meta, Struct

from lakeseal.errors import InvalidArgument

DEFAULT_CATALOG = "main"
MOST_CHARACTERS = 255
# Whether a text may be a name is asked of paths too, which have no limit.
MOST_TEXT = 3 * (2 * MOST_CHARACTERS + 2) + 2

_FORBIDDEN = frozenset(" ./\\`")
_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_FORM = re.compile(r"(?:\w+|`(?:[^`]|``)*`)(?:\.(?:\w+|`(?:[^`]|``)*`)){1,2}")
_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]*)")
_HINT = "Write schema.table or catalog.schema.table; a part with other characters than a-z, 0-9 and _ between backticks"


Part = Annotated[str, Meta(max_length=MOST_CHARACTERS)]
"""Names come over the wire too: none is read that is longer than a name."""


class SchemaName(Struct, frozen=True, kw_only=True):
    catalog: Part = DEFAULT_CATALOG
    schema: Part

    def __post_init__(self) -> None:
        for what, part in (("catalog", self.catalog), ("schema", self.schema)):
            check_part(what, part)

    @property
    def folded(self) -> tuple[str, str]:
        return fold(self.catalog), fold(self.schema)

    @classmethod
    def parse(cls, text: str) -> SchemaName:
        """`sales` or `main.sales`."""
        parts = split(text)
        if len(parts) == 1:
            return cls(schema=parts[0])
        if len(parts) == 2:
            return cls(catalog=parts[0], schema=parts[1])
        raise InvalidArgument(f"{_short(text)} is no name of a schema", hint="Write schema or catalog.schema")

    def __str__(self) -> str:
        return f"{quote(self.catalog)}.{quote(self.schema)}"


class TableName(Struct, frozen=True, kw_only=True):
    catalog: Part = DEFAULT_CATALOG
    schema: Part
    table: Part

    def __post_init__(self) -> None:
        for what, part in (("catalog", self.catalog), ("schema", self.schema), ("table", self.table)):
            check_part(what, part)

    @property
    def in_schema(self) -> SchemaName:
        return SchemaName(catalog=self.catalog, schema=self.schema)

    @property
    def folded(self) -> tuple[str, str, str]:
        """What it is compared by."""
        return fold(self.catalog), fold(self.schema), fold(self.table)

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`sales.orders` or `main.sales.orders`, any part of it between backticks."""
        parts = split(text)
        if len(parts) == 3:
            return cls(catalog=parts[0], schema=parts[1], table=parts[2])
        if len(parts) == 2:
            return cls(schema=parts[0], table=parts[1])
        hint = f"Write the schema too: default.{text}" if len(parts) == 1 and text else _HINT
        raise InvalidArgument(f"{_short(text)} is no name of a table: it has {len(parts)} parts", hint=hint)

    def __str__(self) -> str:
        return f"{quote(self.catalog)}.{quote(self.schema)}.{quote(self.table)}"


def split(text: str) -> list[str]:
    """The parts of a name, without their backticks."""
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise InvalidArgument(f"{_short(text)} is no name: it is too long, or no text", hint=_HINT)
    parts = []
    at = 0
    while True:
        found = _PART.match(text, at)
        assert found is not None, "every text begins with a part, if an empty one"
        quoted, plain = found.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = found.end()
        if at == len(text):
            return parts
        if text[at] != ".":
            raise InvalidArgument(f"{_short(text)} is no name: its backticks are not in pairs", hint=_HINT)
        at += 1


def may_be_name(text: str) -> bool:
    """Whether a text has the form of a table's name: two or three parts, each a plain word or between backticks. What
    is between them is not looked at: a name that is wrong is no path for that."""
    return len(text) <= MOST_TEXT and _FORM.fullmatch(text) is not None


def fold(part: str) -> str:
    """What a part of a name is compared by."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", part).casefold())


def quote(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else f"`{part}`"


def check_part(what: str, part: str) -> None:
    """`what`: catalog, schema or table."""
    if not isinstance(part, str) or not part:
        raise InvalidArgument(f"The name of a {what} is empty", hint=_HINT)
    if len(part) > MOST_CHARACTERS or len(fold(part)) > MOST_CHARACTERS:
        raise InvalidArgument(f"The name of a {what} has more than {MOST_CHARACTERS} characters: {_short(part)}")
    wrong = next((char for char in part if char in _FORBIDDEN or not char.isprintable()), None)
    if wrong is not None:
        raise InvalidArgument(
            f"The name of a {what} can't hold {wrong!r}: {_short(part)}",
            hint="A name has printable characters without dots, slashes, backslashes, backticks and white space",
        )


def _short(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 100 else f"{shown[:97]}…"
