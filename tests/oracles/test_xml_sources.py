"""Files of XML beside Spark's own reader: a record is what Spark makes of it, or it is set aside."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest

from lakeseal.ingest import FilesSource
from oracles.seeds import case, cases
from oracles.sessions import with_settings
from oracles.source_files import LEAVES, TEXTS, Landed, tame_text
from oracles.test_sources import _UTC, by_spark, by_us, compare, land

pytestmark = pytest.mark.spark

FILES = 50
_LEAVES = tuple(leaf for leaf in LEAVES if leaf != "binary")
# What XML 1.0 can't hold is no text of any record.
_TEXTS = tuple(text for text in TEXTS if "\x00" not in text)
# Spark takes the sign of these off before it reads them, and then there is no room for them. Here they are read.
_SMALLEST = {"int": "-2147483648", "long": "-9223372036854775808"}
_BETWEEN = (
    "",
    "",
    "",
    " ",
    "\n  ",
    "<!-- <r>no</r> -->",
    "<?note well?>",
    "<other>1</other>",
    "<x:other xmlns:x='u'/>",
)


def ddl(columns: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {_ddl(kind)}" for name, kind in columns)


def _ddl(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if kind[0] == "array":
        return f"array<{_ddl(kind[1])}>"
    return f"struct<{', '.join(f'{name}: {_ddl(one)}' for name, one in kind[1])}>"


def columns_of(chance: random.Random) -> list[tuple[str, Any]]:
    kinds = [(f"c{n}", _kind(chance, 2)) for n in range(chance.randint(1, 4))]
    attributes = [(f"_a{n}", chance.choice(_LEAVES)) for n in range(chance.randrange(2))]
    return [("_id", "long"), *attributes, *kinds]


def _kind(chance: random.Random, depth: int) -> Any:
    what = chance.random()
    if depth and what < 0.2:
        return ("array", _kind(chance, 0) if chance.random() < 0.6 else _struct(chance, depth - 1))
    if depth and what < 0.4:
        return _struct(chance, depth - 1)
    return chance.choice(_LEAVES)


def _struct(chance: random.Random, depth: int) -> Any:
    fields = [(f"f{n}", _kind(chance, depth)) for n in range(chance.randint(1, 2))]
    if chance.random() < 0.4:
        fields.append(("_a", chance.choice(_LEAVES)))
    if chance.random() < 0.2:
        fields = [("_a", chance.choice(_LEAVES)), ("_VALUE", chance.choice(_LEAVES))]
    return ("struct", tuple(fields))


class _Record:
    """One record; hostile in places, or tame."""

    def __init__(self, chance: random.Random, columns: list[tuple[str, Any]], number: int, share: float) -> None:
        self._chance, self._share, self.is_tame = chance, share, True
        self.text = self._element("r", ("struct", (("_id", number), *columns[1:])), is_root=True)

    def _text(self, kind: Any, *, always_tame: bool = False) -> str:
        if isinstance(kind, int):
            return str(kind)
        if always_tame or self._chance.random() >= self._share:
            text = tame_text(self._chance, kind)
        else:
            self.is_tame = False
            text = self._chance.choice(_TEXTS)
        return "0" if text == _SMALLEST.get(kind) else text

    def _said(self, text: str, *, is_whole: bool) -> str:
        """A text, which a comment may cut in two only where it is all taken."""
        way = self._chance.random()
        if way < 0.1 and "]]>" not in text:
            return f"<![CDATA[{text}]]>"
        if way < 0.2 and text:
            return f"&#{ord(text[0])};{escape(text[1:])}" if text[0].isprintable() else escape(text)
        if way < 0.3:
            cut = len(text) // 2
            self.is_tame &= is_whole or cut == 0
            return f"{escape(text[:cut])}<!-- within -->{escape(text[cut:])}"
        return escape(text)

    def _name(self, name: str) -> str:
        return name.upper() if self._chance.random() < self._share / 4 else name

    def _element(self, name: str, kind: Any, *, is_root: bool = False) -> str:
        tag = name if is_root else self._name(name)
        if isinstance(kind, str):
            return f"<{tag}>{self._said(self._text(kind), is_whole=kind == 'string')}</{tag}>"
        attributes, inside = "", []
        for field, one in kind[1]:
            if not isinstance(one, int) and self._chance.random() < 0.15:
                continue
            if field == "_VALUE":
                inside.append(self._said(self._text(one), is_whole=False))
            elif field.startswith("_"):
                # An attribute of a record that is no value ends all of Spark's read, whatever its mode.
                value = self._text(one, always_tame=is_root and one != "string")
                attributes += f" {self._name(field[1:])}={quoteattr(value)}"
            elif not isinstance(one, str) and one[0] == "array":
                inside += [self._element(field, one[1]) for _ in range(self._chance.randrange(3))]
            else:
                inside.append(self._element(field, one))
                if self._chance.random() < self._share / 4:
                    self.is_tame = False
                    inside.append(self._element(field, one))
        has_value = any(field == "_VALUE" for field, _ in kind[1])
        if not has_value:
            self._chance.shuffle(inside)
            inside = [part + self._chance.choice(_BETWEEN) for part in inside]
        if self._chance.random() < self._share / 4:
            self.is_tame = False
            inside.append(self._chance.choice(("stray", "<r/>", "<r id='1'/>", "&amp;", "<c0/>", "<c0><deep/></c0>")))
        return f"<{tag}{attributes}>{''.join(inside)}</{tag}>"


def xml_file(chance: random.Random, columns: list[tuple[str, Any]], name: str) -> Landed:
    share = chance.choice((0.0, 0.05, 0.3))
    records = [_Record(chance, columns, number, share) for number in range(chance.randint(0, 6))]
    body = "".join(record.text + chance.choice(("\n", "", "<!-- r -->")) for record in records)
    head = chance.choice(("", '<?xml version="1.0" encoding="UTF-8"?>'))
    text = f"{head}<all>{body}</all>"
    if share and chance.random() < 0.1:
        cut = text[: chance.randrange(len(text))]
        return Landed(name, cut.encode(), None, 0)
    return Landed(name, text.encode(), len(records), sum(record.is_tame for record in records))


def test_xml_records_are_rows_as_for_spark_or_set_aside(spark: Any, tmp_path: Path) -> None:
    for seed in cases(1, 1000 // FILES):
        with case(seed) as chance, with_settings(spark, _UTC):
            columns = columns_of(chance)
            folder = tmp_path / str(seed)
            landed = land(folder, [xml_file(chance, columns, f"{number}.xml") for number in range(FILES)])
            schema = ddl(columns)
            ours = by_us(FilesSource(path=str(folder), format="xml", row_tag="r", schema=schema))
            compare(landed, ours, by_spark(spark, spark.read.option("rowTag", "r"), schema, folder, "xml"), schema)
