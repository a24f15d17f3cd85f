"""Files that unfold to far more than they are: refused by name, in bounded memory, unless the limit is raised."""

from __future__ import annotations

import gzip
import json
import os
import secrets
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import lakeseal
from lakeseal import Table, Trust, errors
from lakeseal.files.compression import inflated
from lakeseal.files.orc_stripes import decoded
from lakeseal.ingest.sources.file_rows import json_rows, parquet_rows
from lakeseal.protocol.deletion_vectors import PORTABLE_MAGIC, inline_descriptor
from lakeseal.protocol.schema import LONG, STRING, StructField, StructType

MEGABYTE = 2**20
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(kind: Any) -> dict[str, Any]:
    fields = [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]
    return {
        "metaData": {
            "id": "0",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {},
        }
    }


def repeated(value: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()).take(pa.array([0] * rows)), pa.array([value]))


def table_of(folder: Path, column: pa.Array, kind: Any) -> Path:
    """A table of one small file, which holds the column."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    file = folder / "a.parquet"
    pq.write_table(
        pa.table({"x": column}),
        file,
        compression="zstd",
        store_schema=False,
        row_group_size=max(1, len(column)),
        use_dictionary=pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type),
        data_page_size=2**30,
        write_statistics=False,
    )
    size = file.stat().st_size
    add = {"path": file.name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, [PROTOCOL, metadata(kind), {"add": add}])))
    return file


LONGS = {"type": "array", "elementType": "long", "containsNull": True}
BOMBS = {
    "one long value for every row": (lambda: repeated("a" * 8192, 65_536), "string"),
    "a longer one": (lambda: repeated("a" * MEGABYTE, 10_000), "string"),
    "one long page": (lambda: pa.array(["a" * 2**20] * 200), "string"),
    "one row of many values": (lambda: pa.array([[7] * 20_000_000], pa.list_(pa.int64())), LONGS),
}


@pytest.mark.field_bug("S5")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_unfolds_to_too_much_is_refused_by_name(bomb: str, tmp_path: Path) -> None:
    column, kind = BOMBS[bomb]
    file = table_of(tmp_path, column(), kind)
    assert file.stat().st_size < 10_000
    with pytest.raises(errors.DecodedTooLarge) as caught:
        Table(tmp_path).to_arrow()
    assert caught.value.file == "a.parquet"
    assert caught.value.table
    assert "LAKESEAL_MAX_DECODED_BYTES" in caught.value.hint


def test_a_limit_that_is_raised_lets_the_file_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_of(tmp_path, repeated("a" * 8192, 4_096), "string")
    small = Trust(max_decoded_bytes=MEGABYTE)
    with pytest.raises(errors.DecodedTooLarge):
        Table(tmp_path, trust=small).to_arrow()
    assert Table(tmp_path).to_arrow().num_rows == 4_096
    monkeypatch.setenv("LAKESEAL_MAX_DECODED_BYTES", str(MEGABYTE))
    with pytest.raises(errors.DecodedTooLarge):
        Table(tmp_path).to_arrow()
    assert Table(tmp_path, trust=Trust(max_decoded_bytes=64 * MEGABYTE)).to_arrow().num_rows == 4_096


def test_long_values_that_a_file_really_holds_are_read_whatever_the_limit(tmp_path: Path) -> None:
    texts = [f"{n:04d}" * 25_000 for n in range(300)]  # 100 kB each, 30 MB in all
    table = Table(tmp_path)
    table.write(pa.table({"x": texts, "n": list(range(300))}))
    got = Table(tmp_path, trust=Trust(max_decoded_bytes=MEGABYTE)).to_arrow()
    assert dict(zip(got["n"].to_pylist(), got["x"].to_pylist(), strict=True)) == dict(enumerate(texts))


@pytest.mark.parametrize("value", ["-1", "0", "many", "1" * 20])
def test_a_limit_that_is_no_number_of_bytes_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESEAL_MAX_DECODED_BYTES", value)
    with pytest.raises(errors.InvalidArgument, match="LAKESEAL_MAX_DECODED_BYTES"):
        Trust()


def checkpoint_of_long_paths(folder: Path, rows: int) -> Path:
    """A checkpoint whose files all have one path of 40,000 characters."""
    table = lakeseal.create(folder, pa.schema([("x", pa.string())]))
    table.checkpoint()
    file = next((folder / "_delta_log").glob("*.checkpoint.parquet"))
    whole = pq.read_table(file)
    adds = whole.schema.field("add").type
    paths = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["p" * 40_000]))
    partition_values = pa.array([[]], adds.field("partitionValues").type).take(pa.array([0] * rows))
    one = pa.array([1], pa.int64()).take(pa.array([0] * rows))
    true = pa.array([True]).take(pa.array([0] * rows))
    add = pa.StructArray.from_arrays(
        [paths, partition_values, one, one, true],
        ["path", "partitionValues", "size", "modificationTime", "dataChange"],
    )
    others = {name: pa.nulls(rows, whole.schema.field(name).type) for name in ("metaData", "protocol")}
    body = pa.table({**others, "add": add})
    head = whole.select(["metaData", "protocol"]).append_column("add", pa.nulls(whole.num_rows, add.type))
    with pq.ParquetWriter(file, body.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(head.cast(body.schema) if head.schema != body.schema else head)
        writer.write_table(body, row_group_size=rows)
    return file


def test_a_small_checkpoint_that_unfolds_to_too_much_is_passed_over_or_refused(tmp_path: Path) -> None:
    file = checkpoint_of_long_paths(tmp_path, 65_536)
    assert file.stat().st_size < 40_000
    assert Table(tmp_path).to_arrow().num_rows == 0  # the commits are still there
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(errors.BrokenCheckpoint, match="unfolds") as caught:
        Table(tmp_path).snapshot()
    assert "LAKESEAL_MAX_DECODED_BYTES" in caught.value.hint


def long_line(file: Path, length: int) -> Path:
    with gzip.open(file, "wb", compresslevel=1) as out:
        out.write(b'{"x": "')
        for _ in range(length // MEGABYTE):
            out.write(b"a" * MEGABYTE)
        out.write(b'"}\n{"x": "b"}\n')
    return file


SCHEMA = StructType((StructField("x", STRING), StructField("n", LONG)))


def test_one_long_line_of_a_compressed_json_file_is_refused_when_it_is_ingested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = long_line(tmp_path / "a.json.gz", 8 * MEGABYTE)
    read = lambda: list(json_rows(inflated(pa.OSFile(str(file)), file.name), SCHEMA))  # noqa: E731
    assert sum(chunk.rows.num_rows for chunk in read()) == 2
    monkeypatch.setenv("LAKESEAL_MAX_DECODED_BYTES", str(4 * MEGABYTE))
    with pytest.raises(errors.DecodedTooLarge, match="line"):
        read()


def test_a_small_parquet_file_that_unfolds_to_too_much_is_refused_when_it_is_ingested(tmp_path: Path) -> None:
    file = table_of(tmp_path / "t", repeated("a" * 8192, 65_536), "string")
    with pytest.raises(errors.DecodedTooLarge):
        for _ in parquet_rows(pa.OSFile(str(file)), SCHEMA):
            pass


def test_one_long_line_of_a_compressed_json_file_in_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = lakeseal.Repository.create(tmp_path / "repo", ledger=f"sqlite:///{tmp_path}/ledger.db")
    repo.write(pa.table({"x": ["a" * 8 * MEGABYTE, "b"]}), "main", "out", format="json", compression="gzip")
    assert repo.to_arrow("main", "out").num_rows == 2
    monkeypatch.setenv("LAKESEAL_MAX_DECODED_BYTES", str(4 * MEGABYTE))
    with pytest.raises(errors.DecodedTooLarge, match="line"):
        repo.to_arrow("main", "out")


def orc_of_one_value(file: Path) -> Path:
    value = pa.array(["a" * 2**19]).take(pa.array([0] * 1_000))
    orc.write_table(pa.table({"x": value}), file, compression="zstd", dictionary_key_size_threshold=1.0)
    return file


def test_a_small_orc_file_that_unfolds_to_too_much_is_refused_before_it_is_all_there(tmp_path: Path) -> None:
    file = orc_of_one_value(tmp_path / "a.orc")
    assert file.stat().st_size < 10_000
    repo = lakeseal.Repository.create(tmp_path / "repo", ledger=f"sqlite:///{tmp_path}/ledger.db")
    repo.store.put("main", "out/a.orc", file.read_bytes())
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(errors.DecodedTooLarge):
        repo.to_arrow("main", "out")
    few = [batch.num_rows for batch in decoded(pa.OSFile(str(file)), (StructField("x", STRING),))]
    assert sum(few) == 1_000
    assert max(few) <= 48
    assert pa.default_memory_pool().max_memory() <= max(before, 500 * MEGABYTE)


def test_a_vector_that_hides_more_rows_than_a_file_can_have_is_not_laid_out(tmp_path: Path) -> None:
    rows = 40_000_000
    bitmap = BitMap64()
    bitmap.add_range(0, rows)
    bitmap.run_optimize()
    data = struct.pack("<I", PORTABLE_MAGIC) + bitmap.serialize()
    assert len(data) < 10_000
    vector = inline_descriptor(data, rows)
    file = table_of(tmp_path, pa.array([1, 2]), "long")
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines[0] = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    lines[-1]["add"] |= {"deletionVector": json.loads(msgspec.json.encode(vector.to_json()))}
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(errors.DecodedTooLarge) as caught:
        Table(tmp_path).to_arrow()
    assert caught.value.file == file.name
    # With room for it, it is looked at, and found to be of another file.
    with pytest.raises(errors.BrokenDeletionVector):
        Table(tmp_path, trust=Trust(max_decoded_bytes=2**30)).to_arrow()


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_batches_of_a_remote_file_are_as_large_as_those_of_a_local_one(tmp_path: Path, kind: str) -> None:
    table = Table(tmp_path if kind == "local" else f"memory://{secrets.token_hex(8)}/t")
    texts = [secrets.token_hex(20) for _ in range(100_000)]
    table.write(pa.table({"x": texts}))
    assert min(table.files()["size"].to_pylist()) > MEGABYTE
    batches = [batch.num_rows for batch in table.to_batches()]
    assert sum(batches) == 100_000
    assert len(batches) <= 4


MEASURED = """
import sys
import pyarrow as pa
import lakeseal, lakeseal.table, lakeseal.ingest.sources.files as formats
from lakeseal.files.compression import inflated
from lakeseal.protocol.schema import STRING, StructField, StructType
from support.peak_memory import peak_megabytes
before = peak_megabytes()
try:
    if sys.argv[1] == "table":
        lakeseal.Table(sys.argv[2]).to_arrow()
    else:
        schema = StructType((StructField("x", STRING),))
        list(formats.json_rows(inflated(pa.OSFile(sys.argv[2]), sys.argv[2]), schema))
    print("read")
except lakeseal.LakesealError as error:
    print(error.kind)
print(peak_megabytes() - before)
"""


def printed(script: str, *arguments: str) -> str:
    """By the script in a process of its own, which finds the tests' own modules."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    ).stdout


def peak_megabytes(what: str, place: Path, expected: str) -> int:
    said, grown = printed(MEASURED, what, str(place)).split()
    assert said == expected
    return int(grown)


def test_what_unfolds_to_gigabytes_takes_bounded_memory(tmp_path: Path) -> None:
    most = {"one long value for every row": 400, "a longer one": 400, "one long page": 100}
    for number, (bomb, peak) in enumerate(most.items()):
        column, kind = BOMBS[bomb]
        table_of(tmp_path / str(number), column(), kind)
        assert peak_megabytes("table", tmp_path / str(number), "decoded-too-large") < peak
    checkpoint_of_long_paths(tmp_path / "checkpoint", 65_536)
    (tmp_path / "checkpoint" / "_delta_log" / f"{0:020d}.json").unlink()
    assert peak_megabytes("table", tmp_path / "checkpoint", "broken-checkpoint") < 500
    line = long_line(tmp_path / "a.json.gz", 700 * MEGABYTE)
    assert peak_megabytes("line", line, "decoded-too-large") < 500


# Each way to the same bytes: what it ended with, and by how much the process has grown since it began, in megabytes.
WAYS_MEASURED = """
import json, sys
import pyarrow as pa
import lakeseal, lakeseal.table
from support.peak_memory import peak_megabytes
folder = sys.argv[1]
def table(): return lakeseal.Table(folder + "/t")
def repository(): return lakeseal.Repository.open(folder + "/repo", ledger=f"sqlite:///{folder}/ledger.db")
ones = pa.table({"x": pa.array(["1"])})
ways = {
    "read": lambda: table().to_arrow(),
    "read some": lambda: table().to_arrow(where="x = '1'"),
    "read on": lambda: [batch.num_rows for batch in table().to_batches()],
    "SQL": lambda: lakeseal.sql(f"SELECT count(x) FROM delta.`{folder}/t`"),
    "delete": lambda: table().delete("x = '1'"),
    "update": lambda: table().update({"x": "NULL"}, "x = '1'"),
    "merge": lambda: table().merge(ones, "t.x = s.x").when_matched_delete().execute(),
    "optimize": lambda: table().optimize(zorder_by="x"),
    "convert": lambda: lakeseal.convert(folder + "/plain").to_arrow(),
    "repository": lambda: repository().to_arrow("main", "out"),
    "json.gz": lambda: repository().to_arrow("main", "json"),
    "csv.gz": lambda: repository().to_arrow("main", "csv"),
}
before = peak_megabytes()
for name in sys.argv[2:]:
    try:
        ways[name]()
        print(json.dumps([name, "done", peak_megabytes() - before]))
    except lakeseal.LakesealError as error:
        print(json.dumps([name, error.kind, peak_megabytes() - before]))
"""
OF_TABLES = ("read", "read some", "read on", "SQL", "delete", "update", "merge", "optimize")


def ended(folder: Path, *ways: str) -> tuple[dict[str, str], int]:
    """Kinds of errors by way, and how far one process that went all of them grew."""
    told = [json.loads(line) for line in printed(WAYS_MEASURED, str(folder), *ways).splitlines()]
    print(told)
    return {name: kind for name, kind, _ in told}, max(grown for *_, grown in told)


def test_a_parquet_file_of_under_400_bytes_that_asks_for_800_mb_gets_none_of_it(tmp_path: Path) -> None:
    rows = 100_000_000
    (tmp_path / "plain").mkdir()
    file = tmp_path / "plain" / "a.parquet"
    one_page = {"data_page_size": 2**30, "max_rows_per_page": 2**31 - 1, "row_group_size": rows}
    nulls = pa.table({"x": pa.nulls(rows, pa.int64())})
    pq.write_table(nulls, file, use_dictionary=False, write_statistics=False, store_schema=False, **one_page)
    assert file.stat().st_size < 400
    table_of(tmp_path / "t", pa.array([1]), "long").write_bytes(file.read_bytes())
    repo = lakeseal.Repository.create(tmp_path / "repo", ledger=f"sqlite:///{tmp_path}/ledger.db")
    repo.put("main", "out/a.parquet", file.read_bytes())
    ways = (*OF_TABLES, "convert", "repository")
    kinds, grown = ended(tmp_path, *ways)
    assert kinds == dict.fromkeys(ways, "decoded-too-large")
    assert grown < 500


def test_a_checkpoint_of_a_few_kilobytes_that_asks_for_gigabytes_gets_none_of_them(tmp_path: Path) -> None:
    file = checkpoint_of_long_paths(tmp_path / "t", 65_536)
    assert file.stat().st_size < 12_000
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").unlink()
    kinds, grown = ended(tmp_path, *OF_TABLES)
    assert kinds == dict.fromkeys(OF_TABLES, "broken-checkpoint")
    assert grown < 900, "of 2,600"


def test_a_compressed_line_of_more_than_a_gigabyte_in_a_repository_is_refused_while_it_is_unfolded(
    tmp_path: Path,
) -> None:
    repo = lakeseal.Repository.create(tmp_path / "repo", ledger=f"sqlite:///{tmp_path}/ledger.db")
    piece = gzip.compress(b"a" * 64 * MEGABYTE)  # one stream after the other is one text
    for kind, (head, tail) in {"json": (b'{"x": "', b'"}\n'), "csv": (b"x\n", b"\n")}.items():
        packed = gzip.compress(head) + 22 * piece + gzip.compress(tail)
        assert len(packed) < 1_500_000
        repo.put("main", f"{kind}/a.{kind}.gz", packed)
    kinds, grown = ended(tmp_path, "json.gz", "csv.gz")
    assert kinds == {"json.gz": "decoded-too-large", "csv.gz": "decoded-too-large"}
    assert grown < 500
