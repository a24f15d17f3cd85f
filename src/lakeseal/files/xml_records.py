"""Records of XML: each element of one name is a record, as Spark's XML reader has it, or none with its reason.

A column is an element inside of the record, or an attribute of it by `_` and its name; `_VALUE` is the text of an
element that also has attributes or others inside. What is there several times is an array. Names have their prefixes;
an element that is empty is no value, and `""` to a text. Texts become values as in CSV (`files.cells`), without blanks
around them.

A file is read as it comes, whatever its size. Declarations of a document type are refused, so that there are no
entities but the five of XML itself: nothing expands, and nothing is fetched. A record is bounded in size and depth.
Where the text is not XML any more, the rest of the file is one record, and a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from xml.parsers import expat

import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import UnsupportedType
from lakeseal.files.cells import scalar, unfit
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType

_BLOCK = 64 * 1024
_AT_ONCE = 5_000
_DEEPEST = 100
_LARGEST = 64 * 2**20
_SHOWN = 2_000
VALUE = "_VALUE"
ATTRIBUTE = "_"

Convert = Callable[["Element"], Any]


class Element(Struct):
    """An element inside of a record."""

    attributes: dict[str, str]
    inner: dict[str, list[Element]]
    text: str = ""


class XmlMisfit(Struct, frozen=True, kw_only=True):
    record: int
    """Which one it is in the file, counted from 1."""
    line: int
    reason: str
    text: str
    """What can be shown of it."""


class XmlBlock(Struct, frozen=True, kw_only=True):
    rows: pa.RecordBatch
    misfits: tuple[XmlMisfit, ...]
    size: int


class XmlRows:
    def __init__(self, schema: StructType, row_tag: str) -> None:
        self._arrow = to_arrow(schema)
        self._row_tag = row_tag
        self._convert = _struct(schema.fields)

    def read(self, stream: Any) -> Iterator[XmlBlock]:
        reading = _Reading(self._row_tag)
        ended = False
        while not ended:
            data = stream.read(_BLOCK)
            ended = reading.feed(data)
            if ended or len(reading.records) >= _AT_ONCE:
                yield self._block(reading)

    def _block(self, reading: _Reading) -> XmlBlock:
        rows, misfits = [], reading.misfits
        for number, line, element in reading.records:
            try:
                rows.append(self._convert(element))
            except ValueError as error:
                misfits.append(XmlMisfit(record=number, line=line, reason=str(error), text=_shown(element)))
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in self._arrow]
        size, reading.size, reading.records, reading.misfits = reading.size, 0, [], []
        batch = pa.RecordBatch.from_arrays(columns, schema=self._arrow)
        return XmlBlock(rows=batch, misfits=tuple(misfits), size=size)


class _Stop(Exception):
    """Nothing behind this can be read."""


class _Reading:
    """A file on its way through the parser."""

    def __init__(self, row_tag: str) -> None:
        self.records: list[tuple[int, int, Element]] = []
        self.misfits: list[XmlMisfit] = []
        self.size = 0
        self._row_tag = row_tag
        self._open: list[tuple[str, Element]] = []
        self._count, self._line, self._length = 0, 0, 0
        self._tail = b""
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._started
        parser.EndElementHandler = self._ended
        parser.CharacterDataHandler = self._said
        parser.StartDoctypeDeclHandler = self._declared

    def feed(self, data: bytes) -> bool:
        """Whether the file is over, or what is left of it can't be read."""
        self.size += len(data)
        self._tail = data or self._tail
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as error:
            if self._tail:  # a file that is empty has no records
                self._give_up(f"It is not XML from here on: {expat.ErrorString(error.code)}", error.lineno)
            return True
        except (ValueError, LookupError) as error:  # an encoding that nobody knows
            self._give_up(f"It can't be read: {error}", self._parser.CurrentLineNumber)
            return True
        except _Stop as stop:
            self._give_up(str(stop), self._parser.CurrentLineNumber)
            return True
        return not data

    def _give_up(self, reason: str, line: int) -> None:
        text = self._tail[:_SHOWN].decode(errors="replace")
        self.misfits.append(XmlMisfit(record=self._count + (not self._open), line=line, reason=reason, text=text))

    def _declared(self, *_: Any) -> None:
        raise _Stop("It declares a document type, which could make entities of any size: that is not read")

    def _started(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != self._row_tag:
            return
        if not self._open:
            self._count += 1
            self._line, self._length = self._parser.CurrentLineNumber, 0
        if len(self._open) >= _DEEPEST:
            raise _Stop(f"A record has more than {_DEEPEST} elements inside of each other")
        self._grow(len(name) + sum(len(key) + len(value) for key, value in attributes.items()) + 32)
        element = Element(attributes=attributes, inner={})
        if self._open:
            self._open[-1][1].inner.setdefault(name, []).append(element)
        self._open.append((name, element))

    def _ended(self, _name: str) -> None:
        if not self._open:
            return
        _, element = self._open.pop()
        if not self._open:
            self.records.append((self._count, self._line, element))

    def _said(self, text: str) -> None:
        if self._open:
            self._grow(len(text))
            self._open[-1][1].text += text

    def _grow(self, by: int) -> None:
        self._length += by
        if self._length > _LARGEST:
            raise _Stop(f"A record is larger than {_LARGEST} bytes")


def _struct(fields: tuple[StructField, ...]) -> Convert:
    found = [(field.name, *_member(field)) for field in fields]

    def convert(element: Element) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(name for name, _, _ in found)
        for name, member, is_array in found:
            inner = element.inner.get(name)
            if inner is not None:
                if not is_array and len(inner) > 1:
                    raise ValueError(f"{name} is there {len(inner)} times")
                row[name] = [member(one) for one in inner] if is_array else member(inner[0])
            elif name == VALUE and (text := element.text.strip()):
                row[name] = member(Element(attributes={}, inner={}, text=text))
            elif name.startswith(ATTRIBUTE) and (value := element.attributes.get(name[1:])) is not None:
                row[name] = member(Element(attributes={}, inner={}, text=value))
        return row

    return convert


def _member(field: StructField) -> tuple[Convert, bool]:
    kind = field.type
    if isinstance(kind, ArrayType):
        return _value(kind.element, field.name), True
    return _value(kind, field.name), False


def _value(kind: DataType, name: str) -> Convert:
    if isinstance(kind, StructType):
        inner = _struct(kind.fields)
        # An element that has nothing is no value.
        return lambda element: inner(element) if element.inner or element.attributes or element.text.strip() else None
    if isinstance(kind, ArrayType | MapType):
        raise UnsupportedType(
            f"A record of XML has no {kind} in it", column=name, hint="Read it as a text, or as an array of elements"
        )
    parse, is_text = scalar(kind), str(kind) == "string"

    def convert(element: Element) -> Any:
        if element.inner:
            raise ValueError(f"{name} has elements inside, and is to be a {kind}")
        text = element.text.strip()
        if not text:
            return "" if is_text else None
        value = parse(text)
        if value is None:
            raise ValueError(f"{name}: {unfit(text, kind)}")
        return value

    return convert


def _shown(element: Element) -> str:
    parts = [f"{ATTRIBUTE}{name}={value!r}" for name, value in element.attributes.items()]
    for name, inner in element.inner.items():
        parts += [f"{name}: {one.text.strip() or '…' if one.inner else one.text.strip()}" for one in inner]
    return ", ".join(parts)[:_SHOWN] or element.text.strip()[:_SHOWN]
