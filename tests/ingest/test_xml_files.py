"""Files of XML: rows as Spark's own reader has them, bad records set aside, and nothing that expands."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from pyspark.sql import SparkSession

from lakeseal.errors import InvalidArgument, UnsupportedType
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files import xml_records
from lakeseal.files.xml_records import XmlRows
from lakeseal.ingest import Dataset, FilesSource

SCHEMA = (
    "_id bigint, name string, price decimal(9,2), at timestamp, day date, ratio double, good boolean, "
    "tags array<string>, place struct<_kind: string, city: string, zip: int>, "
    "notes array<struct<_n: int, _VALUE: string>>"
)


def rows(text: str, schema: str, tag: str = "r") -> tuple[list[dict[str, Any]], list[Any]]:
    blocks = list(XmlRows(parse_schema(schema), tag).read(io.BytesIO(text.encode())))
    return [row for one in blocks for row in one.rows.to_pylist()], [bad for one in blocks for bad in one.misfits]


def random_record(rng: random.Random) -> str:
    def text() -> str:
        return rng.choice(
            ["tea", "a & b", "<x>", "  blanks  ", "Grün", "1.5", "", "''", "&amp;", "snow ☃", "line\nbreak"]
        )

    def said(name: str, value: str, attributes: str = "") -> str:
        if not value and rng.random() < 0.5:
            return f"<{name}{attributes}/>"
        inner = f"<![CDATA[{value}]]>" if rng.random() < 0.2 else escape(value)
        return f"<{name}{attributes}>{inner}</{name}>"

    parts = [
        said("name", text()),
        said("price", rng.choice(["1.25", "-3", "12345.6", " 7.00 "])),
        said("at", rng.choice(["2026-03-01T10:00:00Z", "2026-03-01 10:00:00", "2026-03-01T10:00:00.123456+01:00"])),
        said("day", rng.choice(["2026-03-01", "1969-12-31"])),
        said("ratio", rng.choice(["0.5", "1e3", "-2", "NaN"])),
        said("good", rng.choice(["true", "false"])),
        *(said("tags", rng.choice(["x", "y&z", "w"])) for _ in range(rng.randrange(3))),
        f'<place kind="{rng.choice(["home", "wörk"])}"><zip>{rng.randrange(9)}</zip>{said("city", text())}</place>',
        *(said("notes", rng.choice(["one", "two"]), f' n="{n}"') for n in range(rng.randrange(3))),
        said("unknown", text()),
        "<!-- a note: <name>no</name> -->",
    ]
    chosen = [part for part in parts if rng.random() < 0.85]
    rng.shuffle(chosen)
    identity = f' id="{rng.randrange(100)}"' if rng.random() < 0.9 else ""
    return f"<r{identity}>{''.join(chosen)}</r>"


@pytest.mark.spark
def test_rows_of_random_files_are_those_of_sparks_own_reader(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(7)
    body = "\n".join(random_record(rng) for _ in range(150))
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<all><head><r_not/></head>{body}</all>\n'
    (tmp_path / "a.xml").write_text(text)
    ours, bad = rows(text, SCHEMA)
    reader = spark.read.schema(SCHEMA).option("rowTag", "r").option("mode", "FAILFAST").option("timeZone", "UTC")
    theirs = reader.xml(str(tmp_path / "a.xml")).toArrow().to_pylist()
    assert not bad
    assert len(ours) == 150
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


def test_records_that_are_no_rows_are_set_aside_and_read_once_they_are_mended(lake: Any) -> None:
    torn = "<r><id>two</id></r><r><id>3</id><id>4</id></r><r><id>5</id></r></all>"
    lake.land("1.xml", ["<all><r><id>1</id></r>", torn])
    lake.land("2.xml", ["<all><r><id>6</id></r><r><id>7</r></all>"])
    lake.land("3.xml", [])
    source = lake.files(format="xml", row_tag="r", schema="id long", on_rewritten="ingest")
    dataset = Dataset(name="a", source=source, target=lake.to_table(), on_bad_record="error_table")
    result = lake.pipeline(dataset).run()
    assert lake.ids() == {1: 1, 5: 1, 6: 1}
    errors = lake.table("t_errors").to_arrow().to_pylist()
    told = {(one["partition"], one["position"], one["reason"].partition(":")[0]) for one in errors}
    assert told == {
        ("1.xml", "record 2, line 2", "id"),
        ("1.xml", "record 3, line 2", "id is there 2 times"),
        ("2.xml", "record 2, line 1", "It is not XML from here on"),
    }
    assert result.datasets[0].bad_records == 3
    lake.land("2b.xml", ["<all><r><id>7</id></r></all>"])
    lake.pipeline(dataset).run()
    assert lake.ids() == {1: 1, 5: 1, 6: 1, 7: 1}


LAUGHS = '<?xml version="1.0"?><!DOCTYPE all [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><all><r><id>&b;</id></r></all>'
FETCHES = '<!DOCTYPE all SYSTEM "file:///etc/passwd"><all><r><id>1</id></r></all>'
DEEP = f"<r>{'<a>' * 101}{'</a>' * 101}</r>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "document type"),
        (FETCHES, "document type"),
        (DEEP, "inside of each other"),
        ("<r><id>&other;</id></r>", "undefined entity"),
        ('<?xml version="1.0" encoding="x-none"?><r/>', "unknown encoding|can't be read"),
        ("<r><id>1</id>", "no element found|unclosed"),
        ("nothing", "syntax error"),
    ],
)
def test_what_could_expand_or_is_no_xml_is_refused_with_its_reason(text: str, reason: str) -> None:
    found, bad = rows(text, "id string")
    assert found == []
    assert len(bad) == 1
    assert re.search(reason, bad[0].reason), bad[0].reason


PART = "_id long, _VALUE string, n int, names array<string>, place struct<_a: int, zip: int, _VALUE: array<int>>"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("<r/>", {}),
        ("<r id='1'><place/></r>", {"_id": 1, "place": {"_a": None, "zip": None, "_VALUE": None}}),
        ("<r><N>1</N><Place A='2'/></r>", {"n": 1, "place": {"_a": 2, "zip": None, "_VALUE": None}}),
        ("<r>said<n> 1 <!-- one --> </n></r>", {"_VALUE": "said", "n": 1}),
        ("<r><names>a<!-- no --> b</names><names>\u00a0c\u2028</names></r>", {"names": ["a b", "\u00a0c\u2028"]}),
        ("<r><place>1<zip>7</zip>2</place></r>", {"place": {"_a": None, "zip": 7, "_VALUE": [1, 2]}}),
        ("<r><n>-2147483648</n></r>", {"n": -(2**31)}),
        ("<r><n>1<!-- no -->2</n></r>", "n: '12' is cut in two by a comment"),
        ("<r>one<n>1</n>two</r>", "_VALUE is there 2 times"),
        ("<r><n>1</n><N>2</N></r>", "n is there 2 times"),
        ("<r id='1'><_id>2</_id></r>", "_id is there 2 times"),
        ("<r id='one'/>", "_id: 'one' is no bigint"),
        ("<r id=''/>", "_id: '' is no bigint"),
    ],
)
def test_a_record_is_read_by_the_rules_of_sparks_reader_or_has_a_reason(record: str, expected: Any) -> None:
    found, bad = rows(f"<all>{record}</all>", PART)
    if isinstance(expected, str):
        assert ([one.reason for one in bad], found) == ([expected], [])
    else:
        assert (found, bad) == ([{**dict.fromkeys(("_id", "_VALUE", "n", "names", "place")), **expected}], [])


def test_an_attribute_is_no_array_and_no_struct() -> None:
    _, bad = rows("<all><r a='1' b='2'/></all>", "_a array<int>")
    assert bad[0].reason == "_a is an attribute, and is to be an array"
    _, bad = rows("<all><r a='1' b='2'/></all>", "_b struct<x: int>")
    assert bad[0].reason == "_b is a text, and is to have elements inside"


def test_a_record_is_bounded_and_what_came_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_records, "_LARGEST", 1000)
    found, bad = rows(f"<a><r><id>1</id></r><r><id>{'x' * 2000}</id></r><r><id>3</id></r></a>", "id string")
    assert (found, bad[0].reason) == ([{"id": "1"}], "A record is larger than 1000 bytes")


def test_what_xml_cannot_hold_is_refused_early(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="name the element"):
        FilesSource(path=str(tmp_path), format="xml", schema="id long")
    with pytest.raises(UnsupportedType, match="map"):
        FilesSource(path=str(tmp_path), format="xml", schema="m map<string, int>", row_tag="r")
