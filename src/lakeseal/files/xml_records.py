"""Records of XML: each element of one name is a record, as Spark's XML reader has it, or none with its reason.

A column is an element inside of the record, or an attribute of it by `_` and its name; `_VALUE` is the text of an
element that also has attributes or others inside. What is there several times is an array. Names have their prefixes,
and may be written in other cases; an element that is empty is no value, `""` to a text, and a struct of nothing. Texts
become values as in CSV (`files.cells`), without blanks around them. A text column has all of an element's text, across
comments; where other values are cut in two by one, Spark takes the last part or none, and the record is a bad one.

A file is read as it comes, whatever its size. Declarations of a document type are refused, so that there are no
entities but the five of XML itself: nothing expands, and nothing is fetched. A record is bounded in size and depth.
Where the text is not XML any more, the rest of the file is one record, and a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.parsers import expat

import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import UnsupportedType
from lakeseal.files.cells import XML_NAMES, scalar, unfit
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType

_BLOCK = 64 * 1024
_AT_ONCE = 5_000
_DEEPEST = 100
_LARGEST = 64 * 2**20
_SHOWN = 2_000
VALUE = "_VALUE"
ATTRIBUTE = "_"
_BLANKS = " \t\r\n"

Convert = Callable[["Element | str"], Any]
"""Of an element, or of a text: that of an attribute, or a part of one."""


class Element(Struct):
    """An element inside of a record. Its names are in small letters."""

    attributes: dict[str, list[str]]
    inner: dict[str, list[Element]]
    parts: list[str]
    """Its text; comments, instructions and other elements stand between the parts."""
    is_cut: bool = True
    """Whether what comes next is another part."""

    @property
    def text(self) -> str:
        return "".join(self.parts).strip(_BLANKS)

    def said(self) -> list[str]:
        return [said for part in self.parts if (said := part.strip(_BLANKS))]


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
        self._open: list[Element] = []
        self._count, self._line, self._length = 0, 0, 0
        self._tail = b""
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._started
        parser.EndElementHandler = self._ended
        parser.CharacterDataHandler = self._said
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._cut
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
        element = Element(attributes={}, inner={}, parts=[])
        for key, value in attributes.items():
            element.attributes.setdefault(key.lower(), []).append(value)
        if self._open:
            self._cut()
            self._open[-1].inner.setdefault(name.lower(), []).append(element)
        self._open.append(element)

    def _ended(self, _name: str) -> None:
        if not self._open:
            return
        element = self._open.pop()
        if not self._open:
            self.records.append((self._count, self._line, element))

    def _said(self, text: str) -> None:
        if self._open:
            self._grow(len(text))
            element = self._open[-1]
            if element.is_cut:
                element.parts.append("")
                element.is_cut = False
            element.parts[-1] += text

    def _cut(self, *_: str) -> None:
        if self._open:
            self._open[-1].is_cut = True

    def _grow(self, by: int) -> None:
        self._length += by
        if self._length > _LARGEST:
            raise _Stop(f"A record is larger than {_LARGEST} bytes")


def _struct(fields: tuple[StructField, ...], name: str = "") -> Convert:
    found = [(field.name, _members_of(field), *_member(field)) for field in fields]

    def of_text(_: str) -> Any:
        raise ValueError(f"{name} is a text, and is to have elements inside")

    def of_element(element: Element) -> Any:
        row: dict[str, Any] = dict.fromkeys(column for column, _, _, _ in found)
        for column, members_of, member, is_array in found:
            members = members_of(element)
            if not members:
                continue
            if not is_array and len(members) > 1:
                raise ValueError(f"{column} is there {len(members)} times")
            row[column] = [member(one) for one in members] if is_array else member(members[0])
        return row

    return _of_either(of_element, of_text)


def _members_of(field: StructField) -> Callable[[Element], Sequence[Element | str]]:
    """What a column is made of: elements, and attributes or parts of the text."""
    name = field.name.lower()
    attribute = name.removeprefix(ATTRIBUTE)

    def valued(element: Element) -> Sequence[Element | str]:
        return [*element.inner.get(name, ()), *element.said()]

    def attributed(element: Element) -> Sequence[Element | str]:
        texts = element.attributes.get(attribute, ())
        if texts and isinstance(field.type, ArrayType):
            raise ValueError(f"{field.name} is an attribute, and is to be an array")
        return [*element.inner.get(name, ()), *texts]

    def inner(element: Element) -> Sequence[Element | str]:
        return element.inner.get(name, ())

    if field.name == VALUE:
        return valued
    return inner if name == attribute else attributed


def _member(field: StructField) -> tuple[Convert, bool]:
    kind = field.type
    if isinstance(kind, ArrayType):
        return _value(kind.element, field.name), True
    return _value(kind, field.name), False


def _value(kind: DataType, name: str) -> Convert:
    if isinstance(kind, StructType):
        return _struct(kind.fields, name)
    if isinstance(kind, ArrayType | MapType):
        raise UnsupportedType(
            f"A record of XML has no {kind} in it", column=name, hint="Read it as a text, or as an array of elements"
        )
    parse, is_text = scalar(kind, XML_NAMES), str(kind) == "string"

    def of_text(text: str) -> Any:
        value = parse(text.strip(_BLANKS))
        if value is None:
            raise ValueError(f"{name}: {unfit(text, kind)}")
        return value

    def of_element(element: Element) -> Any:
        if element.inner:
            raise ValueError(f"{name} has elements inside, and is to be a {kind}")
        text = element.text
        if not text:
            return "" if is_text else None
        if not is_text and len(element.said()) > 1:
            raise ValueError(f"{name}: {text!r} is cut in two by a comment")
        return of_text(text)

    return _of_either(of_element, of_text)


def _of_either(of_element: Callable[[Element], Any], of_text: Callable[[str], Any]) -> Convert:
    return lambda member: of_element(member) if isinstance(member, Element) else of_text(member)


def _shown(element: Element) -> str:
    parts = [f"{ATTRIBUTE}{name}={value!r}" for name, values in element.attributes.items() for value in values]
    for name, inner in element.inner.items():
        parts += [f"{name}: {one.text or '…' if one.inner else one.text}" for one in inner]
    return ", ".join(parts)[:_SHOWN] or element.text[:_SHOWN]
