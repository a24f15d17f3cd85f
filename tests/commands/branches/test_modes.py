"""All formats in all modes, partitioned or not, without Spark."""

from __future__ import annotations

import datetime
import gzip
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import Repository
from lakeseal.branches.store import Changes, Commit, Entry
from lakeseal.errors import (
    AlreadyExists,
    BrokenDataFile,
    InvalidArgument,
    InvalidPath,
    LakesealError,
    ObjectNotFound,
    RefNotFound,
    SchemaMismatch,
    UnsupportedType,
)
from lakeseal.files.file_format import FORMATS

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int64()),
        "text": pa.array(["a", "", None, 'q"uo,te\\']),
        "amount": pa.array([Decimal("1.50"), None, Decimal("-0.01"), Decimal("9999.99")], pa.decimal128(10, 2)),
        "at": pa.array([datetime.datetime(2024, 2, 29, 12, 30, 1, 5), None, None, None], pa.timestamp("us", "UTC")),
        "day": pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 2)]),
    }
)
# Such values as have been lost or encoded twice elsewhere.
AWKWARD = [
    "A/A",
    "a?",
    "é",
    "%3A",
    "a b",
    "x=y",
    "",
    "__HIVE_DEFAULT_PARTITION__",
    "..",
    "{1}",
    "🦭",
    "'\"",
    "a\tb",
    None,
]


def same(found: pa.Table, expected: pa.Table) -> None:
    keys = [name for name in ("id", "n") if name in expected.column_names]
    order = [(key, "ascending") for key in keys]
    assert found.select(expected.column_names).sort_by(order).to_pylist() == expected.sort_by(order).to_pylist()


@pytest.mark.parametrize("partition_by", [(), ("day",), ("day", "id")])
@pytest.mark.parametrize("format", FORMATS)
def test_what_was_written_is_read(repo: Repository, format: str, partition_by: tuple[str, ...]) -> None:
    done = repo.write(ROWS, "main", "out", format=format, partition_by=partition_by)
    assert done.rows == 4
    found = repo.to_arrow("main", "out")
    assert found.schema.field("amount").type == pa.decimal128(10, 2)
    same(found, ROWS)


@pytest.mark.parametrize("format", FORMATS)
def test_append_adds_and_overwrite_replaces_and_the_old_stays_in_history(repo: Repository, format: str) -> None:
    for mode in ("append", "append", "overwrite"):
        repo.write(ROWS, "main", "out", format=format, mode=mode, partition_by=["day"])
    assert repo.to_arrow("main", "out").num_rows == 4
    assert repo.to_arrow("main~1", "out").num_rows == 8
    assert repo.to_arrow("main~2", "out").num_rows == 4


def test_error_and_ignore_write_only_where_nothing_is(repo: Repository) -> None:
    for mode in ("error", "ignore", "errorifexists"):
        assert repo.write(ROWS, "main", f"new-{mode}", mode=mode).files == 1
    repo.write(ROWS, "main", "out")
    head = repo.store.head("main")
    with pytest.raises(AlreadyExists, match="files"):
        repo.write(ROWS, "main", "out", mode="error")
    ignored = repo.write(ROWS, "main", "out", mode="ignore")
    assert (ignored.skipped, ignored.files, ignored.commit) == ("there are files already", 0, head)
    assert repo.store.head("main") == head
    assert repo.jobs() == []


def test_a_sibling_with_the_same_beginning_is_neither_there_nor_overwritten(repo: Repository) -> None:
    repo.write(ROWS, "main", "out2")
    assert repo.write(ROWS, "main", "out", mode="error").files == 1
    repo.write(ROWS, "main", "out", mode="overwrite")
    assert repo.to_arrow("main", "out2").num_rows == 4


def test_dynamic_overwrite_replaces_only_partitions_that_have_rows(repo: Repository) -> None:
    repo.write(pa.table({"n": [1, 2, 3], "p": [1, 2, 3]}), "main", "out", partition_by="p")
    done = repo.write(
        pa.table({"n": [20, 40], "p": [2, 4]}),
        "main",
        "out",
        mode="overwrite",
        partition_by="p",
        partition_overwrite="dynamic",
    )
    assert done.removed == 1
    assert sorted(repo.to_arrow("main", "out")["n"].to_pylist()) == [1, 3, 20, 40]


def test_dynamic_overwrite_knows_a_partition_by_its_value_however_its_directory_is_spelt(repo: Repository) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"n": [0]}), written)
    cases: list[tuple[list[str], str, list[Any]]] = [
        (["n=1", "n=01", "N=1"], "n=2", [1]),
        (["s=a%20b", "s=a b", "S=a b"], "s=a", ["a b"]),
        (["s=a%2fb", "s=a%2Fb"], "s=a", ["a/b"]),
        (["s=", "s=__HIVE_DEFAULT_PARTITION__"], "s=x", [None]),
        (["k=7/n=1"], "k=7/n=2", [1]),
    ]
    for number, (replaced, kept, values) in enumerate(cases):
        column = replaced[0].rpartition("/")[2][0]
        for place in (*replaced, kept):
            repo.put("main", f"out{number}/{place}/0.parquet", written.getvalue())
        kind = pa.int64() if column == "n" else pa.string()
        new = pa.table({"n" if column == "s" else "v": [1], column: pa.array(values, kind)})
        repo.write(new, "main", f"out{number}", mode="overwrite", partition_by=column, partition_overwrite="dynamic")
        names = {entry.path.rpartition("/")[0] for entry in repo.list("main", f"out{number}")}
        left = {name for name in names if "_lakeseal" not in name}
        assert len(left) == 2, left
        assert f"out{number}/{kept}" in left


@pytest.mark.parametrize("format", FORMATS)
def test_partition_values_of_any_letters_come_back(repo: Repository, format: str) -> None:
    data = pa.table({"n": list(range(len(AWKWARD))), "p": AWKWARD})
    repo.write(data, "main", "out", format=format, partition_by=["p"])
    found = dict(
        zip(*(repo.to_arrow("main", "out").sort_by("n")[name].to_pylist() for name in ("n", "p")), strict=True)
    )
    # An empty text has no directory of its own, as everywhere since Hive.
    assert found == {n: value or None for n, value in enumerate(AWKWARD)}


@pytest.mark.parametrize("format", FORMATS)
def test_a_write_without_rows_still_tells_the_columns(repo: Repository, format: str) -> None:
    repo.write(ROWS.slice(0, 0), "main", "out", format=format, partition_by=["day"])
    found = repo.to_arrow("main", "out")
    assert (found.num_rows, found.column_names) == (0, ROWS.column_names)


def test_columns_that_came_later_are_null_before(repo: Repository) -> None:
    repo.write(pa.table({"n": [1]}), "main", "out")
    repo.write(pa.table({"n": [2], "more": ["x"]}), "main", "out")
    same(repo.to_arrow("main", "out"), pa.table({"n": [1, 2], "more": [None, "x"]}))
    assert repo.to_arrow("main", "out", columns=["more"]).column_names == ["more"]


def test_files_that_disagree_on_a_type_are_not_read_as_one(repo: Repository) -> None:
    repo.write(pa.table({"n": [1]}), "main", "out")
    repo.write(pa.table({"n": ["text"]}), "main", "out", mixed_types=True)
    with pytest.raises(SchemaMismatch, match="disagree"):
        repo.to_arrow("main", "out")


def test_formats_may_be_mixed_in_a_directory(repo: Repository) -> None:
    for n, format in enumerate(FORMATS):
        repo.write(pa.table({"n": [n]}), "main", "out", format=format)
    assert sorted(repo.to_arrow("main", "out")["n"].to_pylist()) == [0, 1, 2, 3]


def test_files_that_others_put_are_read_by_their_names(repo: Repository) -> None:
    repo.put("main", "plain/p=1/a.csv", b"1,x\n2,y\n")
    repo.put("main", "plain/p=2/b.csv", b"3,z\n")
    repo.put("main", "plain/_SUCCESS", b"")
    found = repo.to_arrow("main", "plain")
    assert found.to_pydict() == {"_c0": [1, 2, 3], "_c1": ["x", "y", "z"], "p": [1, 1, 2]}
    typed = pa.schema({"n": pa.int32(), "s": pa.string(), "p": pa.string()})
    assert repo.to_arrow("main", "plain", schema=typed).to_pydict() == {
        "n": [1, 2, 3],
        "s": ["x", "y", "z"],
        "p": ["1", "1", "2"],
    }
    repo.put("main", "lines/a.json", b'{"n":1,"l":[1]}\n{"l":[]}\n')
    assert repo.to_arrow("main", "lines").to_pydict() == {"n": [1, None], "l": [[1], []]}
    assert repo.to_arrow("main", "lines/a.json").num_rows == 2


def test_columns_of_files_that_others_put_are_those_of_all_files(repo: Repository) -> None:
    texts = [b'{"n": 1}\n', b'{"n": 1.5, "s": "x"}\n{"n": 12345678901234567890}\n', b'{"o": {"a": 1}}\n']
    for n, text in enumerate(texts):
        repo.put("main", f"lines/{n}.json", text)
    repo.put("main", "lines/3.json.gz", gzip.compress(b'{"o": {"b": [1, "x"]}}\n{"s": 7}'))
    found = repo.to_arrow("main", "lines")
    assert found.to_pydict() == {
        "n": [1.0, 1.5, 12345678901234567890.0, None, None, None],
        "s": [None, "x", None, None, None, "7"],
        "o": [None, None, None, {"a": 1, "b": None}, {"a": None, "b": ["1", "x"]}, None],
    }
    texts = [b"1,2026-01-01,\n", b"2,2026-01-01 10:00:00,\nx,2026-01-02,true\n", b"12345678901234567890,,\n"]
    for n, text in enumerate(texts):
        repo.put("main", f"plain/{n}.csv", text)
    found = repo.to_arrow("main", "plain")
    assert found["_c0"].to_pylist() == ["1", "2", "x", "12345678901234567890"]
    assert (str(found.schema.field("_c1").type), found["_c1"].null_count) == ("timestamp[us, tz=UTC]", 1)
    assert found["_c2"].to_pylist() == [None, None, True, None]


def test_files_that_cannot_be_read_together_are_refused_by_name(repo: Repository) -> None:
    repo.put("main", "a/1.csv", b"x,y\n1,2\n")
    repo.put("main", "a/2.csv", b"x,z\n1,2\n")
    with pytest.raises(SchemaMismatch, match=r"2\.csv"):
        repo.to_arrow("main", "a", header=True)
    repo.put("main", "b/1.csv", b"1,2\n")
    repo.put("main", "b/2.csv", b"1,2,3\n")
    with pytest.raises(LakesealError, match=r"2\.csv"):
        repo.to_arrow("main", "b")
    repo.put("main", "c/1.json", b'{"a": 1}\n')
    repo.put("main", "c/2.json", b'{"a": 1\n')
    with pytest.raises(BrokenDataFile, match=r"2\.json"):
        repo.to_arrow("main", "c")
    with pytest.raises(BrokenDataFile, match="line 1: a: 1 is no timestamp"):
        repo.to_arrow("main", "c/1.json", schema=pa.schema({"a": pa.timestamp("us", "UTC")}))
    for n, column in enumerate((pa.array([1]), pa.array(["x"]))):
        out = io.BytesIO()
        pq.write_table(pa.table({"v": column}), out)
        repo.put("main", f"d/{n}.parquet", out.getvalue())
    with pytest.raises(SchemaMismatch, match="disagree"):
        repo.to_arrow("main", "d")


def test_a_compressed_file_that_was_cut_off_is_broken_and_not_shorter(repo: Repository) -> None:
    whole = gzip.compress(b'{"a": 1}\n' * 1000)
    repo.put("main", "out/a.json.gz", whole[: len(whole) - 6])
    with pytest.raises(BrokenDataFile, match=r"a\.json\.gz"):
        repo.to_arrow("main", "out", schema=pa.schema({"a": pa.int64()}))
    with pytest.raises(BrokenDataFile, match=r"a\.json\.gz"):
        repo.to_arrow("main", "out")


@pytest.mark.parametrize(
    ("format", "compression"),
    [("csv", "gzip"), ("json", "gzip"), ("parquet", "zstd"), ("orc", "zlib"), ("orc", "none")],
)
def test_files_are_compressed_as_asked(repo: Repository, format: str, compression: str) -> None:
    many = pa.concat_tables([ROWS] * 2000).combine_chunks()
    repo.write(many, "main", "out", format=format, compression=compression)
    assert repo.to_arrow("main", "out").num_rows == many.num_rows


def test_a_csv_header_is_written_and_passed_over(repo: Repository) -> None:
    repo.write(pa.table({'a "b"': [1], "c": ["x"]}), "main", "out", format="csv", header=True)
    (data,) = [entry for entry in repo.list("main", "out") if entry.path.endswith(".csv")]
    assert repo.read("main", data.path) == b'"a \\"b\\"","c"\n1,"x"\n'
    assert repo.to_arrow("main", "out").to_pydict() == {'a "b"': [1], "c": ["x"]}


@pytest.mark.parametrize(
    ("format", "column", "name"),
    [
        ("csv", pa.array([[1]]), "array<bigint>"),
        ("csv", pa.array([{"x": 1}]), "struct<x:bigint>"),
        ("csv", pa.array([b"x"]), "binary"),
        ("json", pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())), "keys of the type bigint"),
        ("orc", pa.array([[datetime.datetime(2024, 1, 1)]], pa.list_(pa.timestamp("us"))), "timestamp_ntz"),
    ],
)
def test_types_that_a_format_cannot_hold_are_refused_by_name(
    repo: Repository, format: str, column: pa.Array, name: str
) -> None:
    with pytest.raises(UnsupportedType) as refused:
        repo.write(pa.table({"n": [1], "c": column}), "main", "out", format=format)
    assert name in str(refused.value)
    assert (refused.value.column or "").startswith("c")
    assert repo.jobs() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "avro"},
        {"mode": "upsert"},
        {"partition_by": ["nope"]},
        {"partition_by": ["id", "ID"]},
        {"format": "csv", "compression": "zstd"},
        {"format": "json", "header": True},
        {"partition_overwrite": "dynamic"},
        {"job_id": "a/b"},
        {"metadata": {"lakeseal.job": "mine"}},
        {"max_records_per_file": 0},
    ],
)
def test_a_wrong_call_is_refused_before_anything_happens(repo: Repository, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        repo.write(ROWS, "main", "out", **wrong)  # type: ignore[arg-type]
    assert len(repo.log("main")) == 1
    assert repo.jobs() == []


def test_unknown_refs_and_paths_are_named(repo: Repository) -> None:
    with pytest.raises(RefNotFound, match="nope"):
        repo.write(ROWS, "nope", "out")
    with pytest.raises(RefNotFound, match="nope"):
        repo.to_arrow("nope", "out")
    with pytest.raises(ObjectNotFound, match="no files"):
        repo.to_arrow("main", "nothing/here")
    with pytest.raises(InvalidPath):
        repo.write(ROWS, "main", "../out")


def test_the_commit_tells_where_its_files_come_from(repo: Repository) -> None:
    repo.write(ROWS, "main", "in")
    read = repo.store.head("main")
    repo.write(ROWS, "main", "out", inputs=[("main", "in"), "main"], metadata={"ticket": "42"}, message="nightly")
    commit = repo.log("main")[0]
    assert isinstance(commit, Commit)
    assert commit.message == "nightly"
    told = commit.metadata
    assert told["ticket"] == "42"
    assert (told["lakeseal.rows"], told["lakeseal.files"], told["lakeseal.mode"]) == ("4", "1", "append")
    assert int(told["lakeseal.bytes"]) > 0
    assert told["lakeseal.job"] == commit.job
    assert msgspec.json.decode(told["lakeseal.inputs"]) == [f"{read}:in", read]


def test_a_write_that_is_tried_again_with_its_id_happens_once(repo: Repository) -> None:
    first = repo.write(ROWS, "main", "out", job_id="nightly-2024-01-01")
    repo.write(ROWS, "main", "elsewhere")
    again = repo.write(ROWS, "main", "out", job_id="nightly-2024-01-01")
    assert first.files == 1
    assert again.skipped
    assert repo.to_arrow("main", "out").num_rows == 4


def test_files_are_rolled_by_rows(repo: Repository) -> None:
    assert repo.write(ROWS, "main", "out", max_records_per_file=1).files == 4
    same(repo.to_arrow("main", "out"), ROWS)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_files_that_are_linked_from_elsewhere_are_read_where_they_are(
    repo: Repository, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESEAL_PLACES", str(tmp_path / "plain"))
    other = Repository.create(tmp_path / "other dir")
    other.write(ROWS, "main", "in", format=format)
    (tmp_path / "plain").mkdir()
    other.export("main", "in", tmp_path / "plain")
    (file,) = (path for path in (tmp_path / "plain").iterdir() if path.suffix == f".{format}")
    link = Entry(path=f"out/a.{format}", address=file.as_uri(), size=file.stat().st_size, checksum="sha256:x")
    repo.store.commit("main", Changes(puts=(link,)))
    same(repo.to_arrow("main", "out", schema=other.to_arrow("main", "in").schema), ROWS)
