from __future__ import annotations

import decimal
import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import BadRecord, InvalidArgument, SchemaMismatch, SourceChanged, SourceNotFound
from lakeseal.ingest import Dataset, FilesSource
from lakeseal.ingest.sources.file_rows import CsvOptions
from lakeseal.storage import open_store


def read(source: FilesSource, marks: dict[str, Any] | None = None) -> tuple[list[dict[str, Any]], list[Any]]:
    chunks = [chunk for unit in source.plan(marks or {}).units for chunk in source.read(unit)]
    return [row for chunk in chunks for row in chunk.rows.to_pylist()], [bad for chunk in chunks for bad in chunk.bad]


def marks_of(source: FilesSource) -> dict[str, Any]:
    return {unit.partition: unit.high for unit in source.plan({}).units}


def test_json_lines_become_rows_and_the_others_bad_records_with_their_line(lake: Any) -> None:
    lines = ['{"id": 1, "name": "a", "x": 0}', '{"id": 2', "", '{"id": "no"}', '{"id": 3} {"id": 4}', ' {"id": 5} ']
    lake.land("a.json", lines)
    rows, bad = read(lake.files())
    assert rows == [{"id": 1, "name": "a"}, {"id": 5, "name": None}]
    assert [(one.position, one.record) for one in bad] == [
        ("line 2", '{"id": 2'),
        ("line 4", '{"id": "no"}'),
        ("line 5", '{"id": 3} {"id": 4}'),
    ]


def test_a_record_is_judged_alike_whoever_its_neighbours_are(lake: Any) -> None:
    lines = ['{"id":', '{"id": 1}} {"id": 2}', '{"id": 3}']
    lake.land("a.json", lines)
    rows, bad = read(lake.files())
    assert [row["id"] for row in rows] == [3]
    assert len(bad) == 2


def test_values_of_all_types_are_read_from_json(lake: Any) -> None:
    schema = (
        "t timestamp, n timestamp_ntz, d date, x decimal(8,2), b binary, m map<string, int>, s struct<a: array<int>>"
    )
    lake.land(
        "a.json",
        [
            '{"t": "2026-01-02 03:04:05", "n": "2026-01-02T03:04:05", "d": "2026-01-02", "x": "1.5", "b": "aGk=", '
            '"m": {"k": 1}, "s": {"a": [1]}}',
            '{"t": "2026-01-02T03:04:05+02:00", "b": "not base64!"}',
        ],
    )
    rows, bad = read(lake.files(schema=schema))
    assert str(rows[0]["t"]) == "2026-01-02 03:04:05+00:00"
    assert str(rows[0]["d"]) == "2026-01-02"
    assert rows[0]["b"] == b"hi"
    assert rows[0]["m"] == [("k", 1)]
    assert rows[0]["s"] == {"a": [1]}
    assert len(bad) == 1


def test_csv_becomes_rows_and_lines_that_do_not_fit_bad_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,name,at\n1,"a,\nb",2026-01-01\nx,c,\n3,,\n4,5\n')
    source = FilesSource(path=str(tmp_path), format="csv", schema="id long, name string")
    rows, bad = read(source)
    assert rows == [{"id": 1, "name": "a,\nb"}, {"id": 3, "name": None}]
    assert sorted(one.record for one in bad) == ["4,5", "x,c,"]


def test_csv_without_a_header_and_with_other_signs_is_read_by_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;'x;y'\n2;-\n")
    options = CsvOptions(header=False, delimiter=";", quote="'", null="-")
    source = FilesSource(path=str(tmp_path), format="csv", schema="id long, name string", csv=options)
    assert read(source)[0] == [{"id": 1, "name": "x;y"}, {"id": 2, "name": None}]


def test_csv_without_a_column_is_a_mistake_and_an_empty_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    source = FilesSource(path=str(tmp_path), format="csv", schema="id long, name string")
    assert read(source) == ([], [])
    (tmp_path / "b.csv").write_text("id\n1\n")
    with pytest.raises(SchemaMismatch, match="name"):
        read(source)


def test_parquet_is_read_by_name_with_or_without_a_schema(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ID": pa.array([1, 2], pa.int32()), "more": ["a", "b"]}), tmp_path / "a.parquet")
    source = FilesSource(path=str(tmp_path), format="parquet")
    assert source.row_schema().names == ("ID", "more")
    source = FilesSource(path=str(tmp_path), format="parquet", schema="id long, name string")
    assert read(source)[0] == [{"id": 1, "name": None}, {"id": 2, "name": None}]


def test_a_parquet_file_that_is_torn_or_of_another_type_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 torn")
    source = FilesSource(path=str(tmp_path), format="parquet", schema="id long")
    with pytest.raises(BadRecord, match=r"a\.parquet"):
        read(source)
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatch, match=r"a\.parquet"):
        read(source)


def test_compressed_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}'))
    source = FilesSource(path=str(tmp_path), format="json", schema="id long")
    assert read(source)[0] == [{"id": 1}, {"id": 2}]


def test_only_files_of_the_pattern_and_no_hidden_ones_are_read(lake: Any) -> None:
    for name in ("a.json", "sub/b.json", "c.txt", "_d.json", ".e.json", "_tmp/f.json"):
        lake.land(name, [{"id": 1}])
    assert sorted(marks_of(lake.files(pattern="*.json"))) == ["a.json", "sub/b.json"]
    assert sorted(marks_of(lake.files(pattern="*.json", recursive=False))) == ["a.json"]


def test_each_file_is_read_once_and_a_late_one_is_noted(lake: Any) -> None:
    lake.land("b.json", [{"id": 1}])
    source = lake.files()
    marks = marks_of(source)
    assert source.plan(marks).units == ()
    late = lake.land("a.json", [{"id": 2}])
    os.utime(late, (1, 1))
    plan = source.plan(marks)
    assert [unit.partition for unit in plan.units] == ["a.json"]
    assert "1 late files" in plan.notes[0]


@pytest.mark.parametrize("how", [{}, {"ordered": True}, {"schema": None, "infer": True}])
def test_a_run_takes_at_most_so_many_files_by_their_names(lake: Any, how: dict[str, Any]) -> None:
    for name in ("b", "a", "d", "c", "e"):
        lake.land(f"{name}.json", [{"id": ord(name), "name": name}])
    source, marks, taken = lake.files(max_files=2, **how), dict[str, Any](), list[list[str]]()
    while True:
        plan = source.plan(marks)
        marks |= {unit.partition: unit.high for unit in plan.units}
        rows = [row for unit in plan.units for chunk in source.read(unit) for row in chunk.rows.to_pylist()]
        taken.append([row["name"] for row in rows])
        if not plan.has_more:
            break
    assert taken == [["a", "b"], ["c", "d"], ["e"]]
    assert source.plan(marks).units == ()
    with pytest.raises(InvalidArgument, match="max_files"):
        lake.files(max_files=0)


def test_a_rewritten_file_is_what_the_policy_says(lake: Any) -> None:
    lake.land("a.json", [{"id": 1}])
    marks = marks_of(lake.files())
    lake.land("a.json", [{"id": 1}, {"id": 2}])
    with pytest.raises(SourceChanged, match=r"a\.json"):
        lake.files().plan(marks)
    ignored = lake.files(on_rewritten="ignore").plan(marks)
    assert ignored.units == ()
    assert "ignored" in ignored.notes[0]
    again = lake.files(on_rewritten="ingest").plan(marks)
    assert again.units[0].high["generation"] == 1
    assert again.units[0].low == marks["a.json"]


def test_a_file_that_changes_or_vanishes_between_planning_and_reading_is_noticed(lake: Any) -> None:
    file = lake.land("a.json", [{"id": 1}])
    source = lake.files()
    unit = source.plan({}).units[0]
    lake.land("a.json", [{"id": 1}, {"id": 2}])
    with pytest.raises(SourceChanged):
        list(source.read(unit))
    file.unlink()
    with pytest.raises(SourceNotFound):
        list(source.read(unit))


def test_a_file_that_may_still_grow_is_left_alone(lake: Any) -> None:
    file = lake.land("a.json", [{"id": 1}])
    source = lake.files(settle_seconds=60)
    assert source.plan({}).units == ()
    os.utime(file, (1000, 1000))
    assert len(source.plan({}).units) == 1


def test_a_directory_that_is_not_there_and_a_schema_that_is_missing_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound, match="nowhere"):
        FilesSource(path=str(tmp_path / "nowhere"), format="json", schema="id long").plan({})
    with pytest.raises(InvalidArgument, match="schema"):
        FilesSource(path=str(tmp_path), format="csv")


NOT_UTF_8 = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]


@pytest.mark.parametrize("wrong", NOT_UTF_8)
@pytest.mark.parametrize("schema", ["id long, name string", "id long, name string, m map<string, int>", "id long"])
def test_json_that_is_not_utf_8_is_set_aside(tmp_path: Path, wrong: bytes, schema: str) -> None:
    (tmp_path / "a.json").write_bytes(b'{"id": 1, "name": "a"}\n{"id": 2, "name": "' + wrong + b'"}\n{"id": 3}')
    rows, bad = read(FilesSource(path=str(tmp_path), format="json", schema=schema))
    assert [row["id"] for row in rows] == [1, 3]
    assert [(one.position, "UTF-8" in one.reason) for one in bad] == [("line 2", True)]


@pytest.mark.parametrize("wrong", NOT_UTF_8)
@pytest.mark.parametrize("count", [3, 5000])
def test_csv_that_is_not_utf_8_is_set_aside(tmp_path: Path, wrong: bytes, count: int) -> None:
    lines = [b"id,name", *(b"%d,x" % n for n in range(count)), b"-1," + wrong, b"-2,y", b""]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines))
    rows, bad = read(FilesSource(path=str(tmp_path), format="csv", schema="id long, name string"))
    assert (len(rows), rows[-1]["id"]) == (count + 1, -2)
    assert [(one.position, "UTF-8" in one.reason) for one in bad] == [(f"row {count + 1}", True)]


def test_parquet_texts_that_are_not_utf_8_are_set_aside(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    nested = pa.StructArray.from_arrays([texts], ["s"])
    for column in (texts, nested):
        pq.write_table(pa.table({"id": [1, 2, 3], "t": column}), tmp_path / "a.parquet")
        kind = "string" if column is texts else "struct<s: string>"
        rows, bad = read(FilesSource(path=str(tmp_path), format="parquet", schema=f"id long, t {kind}"))
        assert [row["id"] for row in rows] == [1, 3]
        assert [one.position for one in bad] == ["row 2"]


def test_a_map_among_the_columns_changes_nothing_about_the_others(lake: Any) -> None:
    schema = "a long, b decimal(20,10), c string, d date, t timestamp, m map<string, string>"
    good = '{"a": 1, "b": 1234567890.0123456789, "c": true, "d": "2026-01-02", "t": "2026-01-02", "m": {"k": 1.50}}'
    bad = [
        '{"a": 1.7}',
        '{"b": 0.12345678901}',
        '{"a": 1, "a": 2}',
        '{"m": {"k": 1, "k": 2}}',
        '{"t": 5}',
        '{"d": "x"}',
    ]
    lake.land("a.json", [good, *bad])
    rows, refused = read(lake.files(schema=schema))
    assert len(refused) == len(bad)
    without = lake.files(schema=schema.partition(", m ")[0])
    again, _ = read(without)
    assert str(rows[0]["b"]) == "1234567890.0123456789"
    assert (rows[0]["c"], str(rows[0]["d"]), rows[0]["m"]) == ("true", "2026-01-02", [("k", "1.50")])
    assert again[0] == {name: value for name, value in rows[0].items() if name != "m"}


CASTS = [
    ("boolean", "1"),
    ("boolean", "yes"),
    ("timestamp", "1704103200"),
    ("decimal(5,2)", "1.239"),
    ("decimal(5,2)", "12345"),
    ("float", "1e300"),
    ("double", "1e400"),
    ("long", "0x1F"),
    ("long", "1.0"),
    ("int", " 1"),
    ("date", "2026-02-30"),
    ("double", "inf"),
]


@pytest.mark.parametrize(("kind", "text"), CASTS)
def test_a_csv_value_that_spark_reads_otherwise_is_set_aside(tmp_path: Path, kind: str, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"id,v\n1,{text}\n2,\n")
    rows, bad = read(FilesSource(path=str(tmp_path), format="csv", schema=f"id long, v {kind}"))
    assert rows == [{"id": 2, "v": None}]
    assert [one.record for one in bad] == [f"1,{text}"]


def test_a_quote_that_is_never_closed_is_one_record_with_the_rest_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,v\n1,"a"\n2,"b\n3,c\n')
    rows, bad = read(FilesSource(path=str(tmp_path), format="csv", schema="id long, v string"))
    assert rows == [{"id": 1, "v": "a"}]
    assert [(one.position, one.record, one.reason) for one in bad] == [
        ("row 2", '2,"b\n3,c', "A quote is never closed")
    ]
    (tmp_path / "a.csv").write_text('id,v\n1,"a"b\n2,c\n')
    rows, bad = read(FilesSource(path=str(tmp_path), format="csv", schema="id long, v string"))
    assert ([row["id"] for row in rows], len(bad)) == ([2], 1)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (pa.array([1]), "boolean"),
        (pa.array([1]), "timestamp"),
        (pa.array([1]), "date"),
        (pa.array([1.239]), "decimal(5,2)"),
        (pa.array([1e300]), "float"),
        (pa.array(["1"]), "long"),
        (pa.array([1.0]), "long"),
    ],
)
def test_a_parquet_column_of_another_kind_is_refused(tmp_path: Path, stored: pa.Array, kind: str) -> None:
    pq.write_table(pa.table({"v": stored}), tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatch, match=r"a\.parquet"):
        read(FilesSource(path=str(tmp_path), format="parquet", schema=f"v {kind}"))


def test_a_parquet_value_that_does_not_fit_is_set_aside(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "v": [2**40, 5]}), tmp_path / "a.parquet")
    rows, bad = read(FilesSource(path=str(tmp_path), format="parquet", schema="id long, v int"))
    assert rows == [{"id": 2, "v": 5}]
    assert [one.position for one in bad] == ["row 1"]


def test_a_parquet_decimal_is_the_same_number_in_a_wider_scale_or_set_aside(tmp_path: Path) -> None:
    values = [decimal.Decimal(number) for number in ("1e30", "7e20", "99999999999999999999", "-5")]
    pq.write_table(pa.table({"v": pa.array(values, pa.decimal128(38, 0))}), tmp_path / "a.parquet")
    rows, bad = read(FilesSource(path=str(tmp_path), format="parquet", schema="v decimal(38,18)"))
    assert [row["v"] for row in rows] == values[2:]
    assert [one.position for one in bad] == ["row 1", "row 2"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("count", [2, 3000])
def test_lines_end_as_they_do_for_spark(tmp_path: Path, end: str, count: int) -> None:
    texts = [f'{{"id": {n}, "name": "a"}}' for n in range(count)]
    (tmp_path / "a.json").write_bytes(("\ufeff" + end.join(texts)).encode())
    rows, bad = read(FilesSource(path=str(tmp_path), format="json", schema="id long, name string"))
    assert ([row["id"] for row in rows], bad) == ([*range(count)], [])
    (tmp_path / "a.json").unlink()
    (tmp_path / "a.csv").write_bytes(("\ufeff" + end.join(["id,name", *(f"{n},a" for n in range(count))])).encode())
    rows, bad = read(FilesSource(path=str(tmp_path), format="csv", schema="id long, name string"))
    assert ([row["id"] for row in rows], bad) == ([*range(count)], [])


def test_a_compressed_file_that_was_cut_off_is_a_mistake_and_not_the_end(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"id": 1}\n' * 1000)
    (tmp_path / "a.json.gz").write_bytes(whole[: len(whole) - 6])
    with pytest.raises(BadRecord, match=r"a\.json\.gz"):
        read(FilesSource(path=str(tmp_path), format="json", schema="id long"))


def test_a_file_whose_name_is_no_text_is_not_passed_over_silently(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}')
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.json")).write_text('{"id": 2}')
    source = FilesSource(path=str(tmp_path), format="json", schema="id long")
    (note,) = source.plan({}).notes
    assert "1 files have names that are no keys" in note
    assert "b\\udcff.json" in note


def test_a_line_of_text_is_a_row_and_one_that_is_no_text_is_told_by_its_number(lake: Any) -> None:
    (lake.place / "landing").mkdir()
    (lake.place / "landing/a.txt").write_bytes("one\n\nzwei \u00fc\n".encode() + b"\xff\nlast")
    source = lake.files(format="text", schema=None)
    dataset = Dataset(name="d", source=source, target=lake.to_table(), on_bad_record="error_table")
    lake.pipeline(dataset).run()
    assert lake.table().to_arrow()["value"].to_pylist() == ["one", "", "zwei \u00fc", "last"]
    assert lake.table("t_errors").to_arrow()["position"].to_pylist() == ["line 4"]


def test_a_file_is_a_row_with_all_of_its_bytes(lake: Any) -> None:
    (lake.place / "landing").mkdir()
    contents = {"a.bin": bytes(range(256)), "b.bin": b""}
    for name, content in contents.items():
        (lake.place / "landing" / name).write_bytes(content)
    lake.pipeline(Dataset(name="d", source=lake.files(format="binary", schema=None), target=lake.to_table())).run()
    found = lake.table().to_arrow().sort_by("path").to_pylist()
    assert {row["path"].rpartition("/")[2]: row["content"] for row in found} == contents
    assert [row["length"] for row in found] == [256, 0]
    assert found[0]["modificationTime"].timestamp() == pytest.approx(
        (lake.place / "landing/a.bin").stat().st_mtime, abs=0.01
    )


def test_a_directory_says_the_value_of_a_column_whatever_the_file_says(lake: Any) -> None:
    lake.land("1.json", [{"id": 1, "day": "1999-01-01"}, {"id": 2, "day": 5}], folder="landing/day=2026-03-01/N=7")
    lake.land("2.json", [{"id": 3, "day": "2026-03-02", "n": 8}])
    for infer in (False, True):
        rows, bad = read(lake.files(schema="day date, id long, n string", infer=infer))
        found = [(row["id"], str(row["day"]), row["n"]) for row in rows]
        assert (sorted(found), bad) == ([(1, "2026-03-01", "7"), (2, "2026-03-01", "7"), (3, "2026-03-02", "8")], [])


def test_a_directory_whose_value_does_not_fit_its_column_is_told(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}], folder="landing/day=soon")
    with pytest.raises(BadRecord, match="day=soon, which is no date") as refused:
        read(lake.files(schema="id long, day date"))
    assert (refused.value.column, refused.value.file) == ("day", "day=soon/1.json")


def test_columns_of_directories_that_no_schema_has_are_noted(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}], folder="landing/day=2026-03-01")
    for source in (lake.files(), lake.files(schema=None, infer=True), lake.files(ordered=True)):
        assert any("directories name day, which no schema does" in note for note in source.plan({}).notes)
    assert lake.files(schema="id long, day string").plan({}).notes == ()


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.{json,txt}", {"a.json", "b.json", "aa.json", "c.txt", "a.txt"}),
        ("{a,b}*", {"a.json", "b.json", "aa.json", "a.txt"}),
        ("{a{,a},c}.{txt,json}", {"a.json", "aa.json", "c.txt", "a.txt"}),
        ("[^a]*", {"b.json", "c.txt"}),
        ("[!a].json", {"b.json"}),
    ],
)
def test_a_pattern_has_the_signs_of_sparks(lake: Any, pattern: str, names: set[str]) -> None:
    for name in ("a.json", "b.json", "aa.json", "c.txt", "a.txt"):
        lake.land(name, [{"id": 1}])
    assert {unit.partition for unit in lake.files(pattern=pattern).plan({}).units} == names


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"a\*", {"a*"}),
        (r"a\**", {"a*", "a*b"}),
        (r"\[b\]", {"[b]"}),
        (r"[\]*]", {"]", "*"}),
        ("[]*]", {"]", "*"}),
        (r"\{a,b\}", {"{a,b}"}),
        (r"{x\,y,{a,b}}", {"x,y"}),
        ("{[xyz],[b-d]}", {"c", "x"}),
        ("{x[,]y,c}", {"x,y", "c"}),
        ("[a-]*", {"a*", "a*b"}),
        ("{c,x}", {"c", "x"}),
    ],
)
def test_signs_of_a_pattern_may_be_plain(lake: Any, pattern: str, names: set[str]) -> None:
    for name in ("a*", "a*b", "[b]", "{a,b}", "x,y", "]", "*", "c", "x"):
        lake.land(name, [{"id": 1}])
    assert {unit.partition for unit in lake.files(pattern=pattern).plan({}).units} == names


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("*.{json", "a brace without the other"),
        ("*.json}", "a brace without the other"),
        ("[ab", "a bracket without the other"),
        ("{a,[b}", "a bracket without the other"),
        ("[]", "a bracket without the other"),
        ("[[a]", "a bracket in brackets"),
        ("[b-a]", "a range that is none"),
        ("a\\", "ends with a backslash"),
        ("[a\\", "ends with a backslash"),
    ],
)
def test_a_pattern_without_a_clear_meaning_is_refused(lake: Any, pattern: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        lake.files(pattern=pattern)


def test_a_file_of_gzip_is_one_by_its_long_name_too(lake: Any) -> None:
    lake.land("x", [])
    (lake.place / "landing/a.json.gzip").write_bytes(gzip.compress(b'{"id": 1}\n'))
    assert read(lake.files(pattern="a*"))[0] == [{"id": 1, "name": None}]


def test_a_directory_that_is_a_symbolic_link_is_noted(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    lake.land("2.json", [{"id": 2}], folder="elsewhere")
    (lake.place / "landing/linked").symlink_to(lake.place / "elsewhere")
    plan = lake.files().plan({})
    assert [unit.partition for unit in plan.units] == ["1.json"]
    assert plan.notes == ("1 directories are symbolic links, and are never read: 'linked'",)
    assert lake.files(recursive=False).plan({}).notes == ()


def test_what_is_hidden_to_spark_is_not_read_and_nothing_else(lake: Any) -> None:
    names = ("1.json", "_2.json", ".3.json", "_n=4.json", "5.json._COPYING_", "6._COPYING_.json", "_metadata")
    for folder in ("", "/_day=1", "/_tmp", "/.x=1", "/a/_b=2", "/c._COPYING_"):
        for name in names:
            lake.land(name, [{"id": 1}], folder=f"landing{folder}")
    read_by_us = {unit.partition for unit in lake.files().plan({}).units}
    shown = {"1.json", "_n=4.json", "6._COPYING_.json"}
    assert read_by_us == shown | {f"{folder}/{name}" for folder in ("_day=1", "a/_b=2") for name in shown}


def test_a_file_that_hdfs_is_putting_is_read_once_it_is_there(lake: Any) -> None:
    """Its rows came twice: by the name that it had meanwhile, and by its own."""
    pipeline = lake.pipeline(Dataset(name="t", source=lake.files(), target=lake.to_table()))
    coming = lake.land("1.json._COPYING_", [{"id": 1}])
    assert pipeline.run().state == "nothing_new"
    coming.rename(coming.with_name("1.json"))
    assert pipeline.run().rows == 1
    assert dict(lake.ids()) == {1: 1}


def test_a_column_that_files_have_and_directories_name_is_not_noted_as_unread(tmp_path: Path) -> None:
    (tmp_path / "id=5" / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2], "v": ["a", "b"]}), tmp_path / "id=5" / "day=1" / "1.parquet")
    source = FilesSource(path=str(tmp_path), format="parquet")
    assert read(source)[0] == [{"id": 5, "v": "a"}, {"id": 5, "v": "b"}]
    (note,) = source.plan({}).notes
    assert note.startswith("directories name day, which")


def test_paths_of_files_that_are_rows_are_spelt_in_one_way(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20é"
    (folder / "c d%2F").mkdir(parents=True)
    (folder / "c d%2F" / "é.bin").write_bytes(b"x")
    ((row,), _) = read(FilesSource(path=str(folder), format="binary"))
    assert row["path"] == f"file:{folder}/c d%2F/é.bin"
    stored = open_store("memory://paths/a b")
    stored.put("c d%2F/é.bin", b"x")
    ((row,), _) = read(FilesSource(path="memory://paths/a b", format="binary"))
    assert row["path"] == "memory://paths/a b/c d%2F/é.bin"


def test_directories_state_columns_up_to_one_that_states_nothing(lake: Any) -> None:
    for n, folder in enumerate(("a=1/x/b=2", "x/a=1/b=2", "a=1/b=2/x/y")):
        lake.land(f"{n}.json", [{"id": n, "a": 10, "b": 20}], folder=f"landing/{folder}")
    rows, _ = read(lake.files(schema="id long, a long, b long"))
    assert sorted((row["id"], row["a"], row["b"]) for row in rows) == [(0, 10, 2), (1, 1, 2), (2, 1, 2)]


@pytest.mark.parametrize("folder", ["a=1/a=2", "a=1/b=3/A=2"])
def test_a_column_that_directories_state_twice_is_refused(lake: Any, folder: str) -> None:
    lake.land("1.json", [{"id": 1}], folder=f"landing/{folder}")
    with pytest.raises(BadRecord, match=r"twice.*1\.json"):
        read(lake.files(schema="id long, a long"))
