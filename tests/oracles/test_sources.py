"""Every reader of files and records beside Spark's own: a record is what Spark makes of it, or it is set aside.

Spark reads each directory permissively, with a column for records that it could not read whole. Rows of ours that are
not among the others are wrong. A record that is tame must be a row, and no record is neither a row nor set aside.
"""

from __future__ import annotations

import decimal
import gzip
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakeseal import Repository
from lakeseal.errors import LakesealError, SchemaMismatch
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files.inference import ColumnTexts
from lakeseal.files.json_records import JsonRecords
from lakeseal.ingest import FilesSource
from lakeseal.ingest.sources.file_rows import CsvOptions
from lakeseal.spark.schema import spark_type
from oracles.rows import plain
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, with_settings
from oracles.source_files import LEAVES, TEXTS, Landed, csv_file, ddl, json_file, json_record, schema_of, tame_text

pytestmark = pytest.mark.spark

FILES = 50
_UTC = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true", **INTERPRETED}


def stored(kind: pa.DataType) -> pa.DataType:
    """Moments as numbers: there are more of them than Python has."""
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), stored(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored(field.type)) for field in kind])
    return kind


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    columns = {name: values_of(table[name]) for name in table.schema.names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def values_of(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # Spark gives what is no text as it is.
        data = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="surrogateescape") for value in data]
    found: list[Any] = column.cast(stored(column.type)).to_pylist()
    return found


def by_spark(spark: Any, reader: Any, schema: str, folder: Path, kind: str) -> dict[str, Counter[Any]]:
    """Rows that Spark read whole, per file."""
    frame = getattr(reader.schema(f"{schema}, _corrupt string").option("columnNameOfCorruptRecord", "_corrupt"), kind)(
        str(folder)
    )
    table = frame.select("*", "_metadata.file_name").toArrow()
    whole = table.filter(pc.is_null(table["_corrupt"])).drop_columns(["_corrupt"])
    found: dict[str, Counter[Any]] = {}
    for row in rows_of(whole):
        found.setdefault(row.pop("file_name"), Counter())[plain(row)] += 1
    return found


def by_us(source: FilesSource) -> dict[str, tuple[Counter[Any], list[Any]]]:
    found = {}
    for unit in source.plan({}).units:
        chunks = list(source.read(unit))
        rows = Counter(plain(row) for chunk in chunks for row in rows_of(pa.Table.from_batches([chunk.rows])))
        found[unit.partition] = rows, [bad for chunk in chunks for bad in chunk.bad]
    return found


def compare(
    landed: list[Landed], ours: dict[str, tuple[Counter[Any], list[Any]]], spark: dict[str, Counter[Any]], about: str
) -> None:
    for file in landed:
        rows, bad = ours.get(file.name, (Counter(), []))
        wrong = rows - spark.get(file.name, Counter())
        assert not wrong, f"{about}, {file.name}: not what Spark reads: {some(wrong)} of {file.content!r}, bad: {bad}"
        if file.records is not None:
            count = rows.total() + len(bad)
            assert count == file.records, f"{about}, {file.name}: {count} of {file.records} records: {file.content!r}"
        assert rows.total() >= file.tame, f"{about}, {file.name}: tame records were set aside: {bad} {file.content!r}"


def some(rows: Counter[Any]) -> str:
    return "; ".join(str(dict(sorted(row[1]))) for row in list(rows)[:3])


def land(folder: Path, files: list[Landed]) -> list[Landed]:
    folder.mkdir()
    for file in files:
        (folder / file.name).write_bytes(file.stored)
    return files


def test_json_lines_are_rows_as_for_spark_or_set_aside(spark: Any, tmp_path: Path) -> None:
    for seed in cases(1, 1000 // FILES):
        with case(seed) as chance, with_settings(spark, _UTC):
            columns = schema_of(chance, nested=True)
            folder = tmp_path / str(seed)
            names = [f"{n}.json{chance.choice(('', '', '', '.gz'))}" for n in range(FILES)]
            landed = land(folder, [json_file(chance, columns, name) for name in names])
            schema = ddl(columns)
            ours = by_us(FilesSource(path=str(folder), format="json", schema=schema))
            compare(landed, ours, by_spark(spark, spark.read, schema, folder, "json"), schema)


def test_json_values_of_messages_are_rows_as_for_spark_or_set_aside(spark: Any) -> None:
    from pyspark.sql.functions import from_json

    for seed in cases(1, 20):
        with case(seed) as chance, with_settings(spark, _UTC):
            columns = schema_of(chance, nested=True)
            schema = ddl(columns)
            values = [json_record(chance, columns, n, chance.random() < 0.5) for n in range(400)]
            values = [value.replace(b", ", b",\n") if chance.random() < 0.3 else value for value in values]
            done = JsonRecords(parse_schema(schema)).parse(values)
            numbers = range(len(values)) if done.record_numbers is None else done.record_numbers
            assert len(numbers) + len(done.misfits) == len(values)
            texts = [(n, value.decode(errors="replace")) for n, value in enumerate(values)]
            parsed = from_json("t", f"{schema}, _corrupt string", {"columnNameOfCorruptRecord": "_corrupt"})
            frame = spark.createDataFrame(texts, "n int, t string").select("n", parsed.alias("r")).select("n", "r.*")
            table = frame.toArrow()
            right = {row.pop("n"): row for row in rows_of(table) if row["_corrupt"] is None}
            for n, row in zip(numbers, rows_of(pa.Table.from_batches([done.rows])), strict=True):
                expected = {name: value for name, value in right.get(n, {}).items() if name != "_corrupt"}
                same = plain(written_anew(row)) == plain(written_anew(expected))
                assert same, f"{schema}: {values[n]!r} is {expected}, not {row}"


def written_anew(value: Any) -> Any:
    """JSON in a text is written anew by `from_json`, with doubles for its numbers: 1.2300 becomes 1.23, and 1e400
    `"Infinity"`. From a file Spark takes it as it stands, and so do we."""
    match value:
        case str():
            try:
                return json.dumps(json.loads(value, parse_float=_double, parse_constant=str, object_pairs_hook=list))
            except ValueError:
                return value
        case dict():
            return {name: written_anew(one) for name, one in value.items()}
        case list() | tuple():
            return type(value)(written_anew(one) for one in value)
        case _:
            return value


def _double(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def test_json_in_a_text_is_as_it_stands_in_the_file(spark: Any, tmp_path: Path) -> None:
    values = [
        "1.2300",
        "1E+2",
        "1e400",
        "-0",
        "1.00000000000000000000001",
        '[1.2300, "\\u00e4"]',
        '{"a":1e400, "a" : 2}',
    ]
    land(tmp_path / "json", [Landed("a.json", "\n".join(f'{{"t": {value}}}' for value in values).encode(), 7, 7)])
    right = spark.read.schema("t string").json(str(tmp_path / "json")).toArrow()["t"].to_pylist()
    ours = JsonRecords(parse_schema("t string")).parse((tmp_path / "json" / "a.json").read_bytes().splitlines())
    assert ours.rows["t"].to_pylist() == right == values


DECIMALS = ("9" * 38, "9" * 39, "-" + "9" * 39, "1e30", "1" + "0" * 30, "1e-57", "1e-999", "1e-999999999", "9" * 400,
            "0." + "3" * 57, "123.45e-39", "1e37", "0e-60", "0." + "9" * 38, "0" * 50 + "5")  # fmt: skip


@pytest.mark.parametrize("kind", ["decimal(38,0)", "decimal(38,18)", "decimal(38,38)", "decimal(5,2)"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_decimals_at_the_edge_are_as_for_spark_or_set_aside(spark: Any, tmp_path: Path, format: str, kind: str) -> None:
    """One file each, and all in one: Arrow reads many records otherwise than one."""
    spelt = [text for text in DECIMALS if format == "csv" or not text.startswith("00")]
    lines = [text if format == "csv" else f'{{"c": {text}}}' for text in spelt]
    files = [Landed(f"{n}.{format}", line.encode(), 1, 0) for n, line in enumerate(lines)]
    files.append(Landed(f"all.{format}", "\n".join(lines).encode(), len(lines), 0))
    folder = tmp_path / format
    landed = land(folder, files)
    options = {"csv": CsvOptions(header=False)} if format == "csv" else {}
    ours = by_us(FilesSource(path=str(folder), format=format, schema=f"c {kind}", **options))
    compare(landed, ours, by_spark(spark, spark.read, f"c {kind}", folder, format), kind)


@pytest.mark.parametrize("escape", ['"', "\\"])
def test_csv_records_are_rows_as_for_spark_or_set_aside(spark: Any, tmp_path: Path, escape: str) -> None:
    for seed in cases(1, 1000 // FILES):
        with case(seed) as chance, with_settings(spark, _UTC):
            leaves = tuple(leaf for leaf in LEAVES if leaf != "binary")
            columns = schema_of(chance, nested=False, leaves=leaves)
            folder = tmp_path / str(seed)
            header, multi_line = chance.random() < 0.5, chance.random() < 0.6
            names = [f"{n}.csv{chance.choice(('', '', '', '.gz'))}" for n in range(FILES)]
            landed = land(
                folder,
                [
                    csv_file(chance, columns, name, escape=escape, header=header, multi_line=multi_line)
                    for name in names
                ],
            )
            schema = ddl(columns)
            options = CsvOptions(header=header, escape=escape)
            ours = by_us(FilesSource(path=str(folder), format="csv", schema=schema, csv=options))
            reader = spark.read.options(header=header, escape=escape, multiLine=multi_line)
            expected = by_spark(spark, reader, schema, folder, "csv")
            mine = {name: (as_spark_shows(rows), bad) for name, (rows, bad) in ours.items()}
            compare(landed, mine, expected, f"{schema}, {escape=}, {multi_line=}, {header=}")


def as_spark_shows(rows: Counter[Any]) -> Counter[Any]:
    """An empty text is null to Spark, in quotes too, and a line's end inside of quotes is always one sign."""
    found: Counter[Any] = Counter()
    for (tag, pairs), count in rows.items():
        shown = (
            (name, value.replace("\r\n", "\n") or None if isinstance(value, str) else value) for name, value in pairs
        )
        found[tag, frozenset(shown)] += count
    return found


TYPES = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.float32(), pa.float64(), pa.bool_(),
    pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.binary(3), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ms"), pa.decimal128(5, 2),
    pa.decimal128(20, 0), pa.decimal128(38, 18),
)  # fmt: skip


def some_values(chance: random.Random, kind: pa.DataType, count: int) -> pa.Array:
    t = pa.types
    if t.is_dictionary(kind):
        return some_values(chance, kind.value_type, count).dictionary_encode()
    if t.is_string(kind) or t.is_large_string(kind):
        data = [chance.choice(TEXTS).encode() for _ in range(count)]
        if chance.random() < 0.1:
            data[chance.randrange(count)] = b"a\xff"
        made = pa.array([None if chance.random() < 0.1 else one for one in data], pa.binary()).view(pa.string())
        return made if t.is_string(kind) else pa.LargeStringArray.from_buffers(*_large(made))
    return pa.array([None if chance.random() < 0.1 else _value(chance, kind) for _ in range(count)], kind)


def _large(texts: pa.Array) -> tuple[Any, ...]:
    validity, offsets, data = texts.buffers()
    wide = pa.array(np.frombuffer(offsets, np.int32).astype(np.int64))
    return len(texts), wide.buffers()[1], data or pa.py_buffer(b""), validity, texts.null_count


def _value(chance: random.Random, kind: pa.DataType) -> Any:
    t = pa.types
    if t.is_integer(kind):
        low, high = (0, 2**kind.bit_width - 1) if t.is_unsigned_integer(kind) else (-(2 ** (kind.bit_width - 1)), 0)
        high = high or -low - 1
        return chance.choice((low, high, 0, 1, chance.randint(low, high), chance.randint(-min(-low, 100), 100) % 100))
    if t.is_float32(kind):
        return chance.choice((0.5, -0.0, math.nan, math.inf, 3.4028234663852886e38, 1.5e-45))
    if t.is_floating(kind):
        return chance.choice((0.1, -0.0, math.nan, -math.inf, 1e300, 5e-324, 16777217.0))
    if t.is_boolean(kind):
        return chance.random() < 0.5
    if t.is_fixed_size_binary(kind):
        return chance.randbytes(3)
    if t.is_binary(kind):
        return chance.randbytes(chance.randint(0, 5))
    if t.is_date(kind):
        return chance.randint(-100_000, 100_000)
    if t.is_timestamp(kind):
        return chance.randint(-(10**12), 10**12) * (1000 if kind.unit == "us" else 1)
    whole = chance.randint(-(10**kind.precision) + 1, 10**kind.precision - 1)
    return decimal.Decimal(whole).scaleb(-kind.scale, decimal.Context(prec=50))


def test_parquet_columns_are_read_as_by_spark_or_refused(spark: Any, tmp_path: Path) -> None:
    """One column in a file, read as a type that may be another. What we do not refuse Spark reads alike; where Spark
    refuses it, our values are the file's. Files of one type are one read of Spark's."""
    for seed in cases(1, 1000 // FILES):
        with case(seed) as chance, with_settings(spark, _UTC):
            wanted = chance.choice(LEAVES)
            schema = f"id long, c {wanted}"
            for kind in chance.sample(TYPES, k=4):
                folder = tmp_path / f"{seed}-{TYPES.index(kind)}"
                folder.mkdir()
                written = {f"{n}.parquet": parquet_file(chance, kind, folder / f"{n}.parquet") for n in range(FILES)}
                try:
                    ours = by_us(FilesSource(path=str(folder), format="parquet", schema=schema))
                except SchemaMismatch:
                    continue
                right = parquet_by_spark(spark, folder, schema, written, wanted)
                for name, table in written.items():
                    rows, bad = ours[name]
                    assert rows.total() + len(bad) == table.num_rows
                    wrong = rows - right[name]
                    assert not wrong, f"{kind} as {wanted}, {name}: {some(wrong)}, not {some(right[name])}"


def parquet_file(chance: random.Random, kind: pa.DataType, path: Path) -> pa.Table:
    column = some_values(chance, kind, chance.randint(1, 12))
    table = pa.table({"id": range(len(column)), "c": column})
    pq.write_table(table, path, compression=chance.choice(("snappy", "zstd", "gzip", "none")))
    return table


def parquet_by_spark(
    spark: Any, folder: Path, schema: str, written: dict[str, pa.Table], wanted: str
) -> dict[str, Counter[Any]]:
    """Rows per file: what was written, where Spark can't read it."""
    try:
        table = spark.read.schema(schema).parquet(str(folder)).select("*", "_metadata.file_name").coalesce(1).toArrow()
    except (PySparkException, Py4JJavaError):
        return {name: counted(micros(table, wanted)) for name, table in written.items()}
    found: dict[str, Counter[Any]] = {name: Counter() for name in written}
    for row in rows_of(table):
        found[row.pop("file_name")][plain(row)] += 1
    return found


def counted(table: pa.Table) -> Counter[Any]:
    return Counter(plain(row) for row in rows_of(table))


def micros(table: pa.Table, wanted: str) -> pa.Table:
    """What was written, in the few types that all of them are compared by."""
    column = table["c"]
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    elif pa.types.is_dictionary(kind):
        column = column.cast(pa.string())
    elif pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
        data = pa.array(column.to_pylist(), pa.binary())
        column = pa.chunked_array([data.view(pa.string()) if wanted == "string" else data])
    return table.set_column(1, "c", column)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_columns_that_nobody_stated_are_learnt_from_all_files_as_by_spark(
    spark: Any, tmp_path: Path, format: str
) -> None:
    """Where we read a directory, the values are those of Spark's inference over all of its files."""
    read = asked = 0
    for seed in cases(2, 1000):
        asked += 1
        with case(seed) as chance, with_settings(spark, _UTC):
            repo = Repository.create(tmp_path / f"repo-{format}-{seed}")
            folder = tmp_path / f"{format}-{seed}"
            leaves = ("long", "double", "boolean", "string", "date", "timestamp", "decimal(20,0)")
            files = []
            for n in range(chance.randint(2, 5)):
                # Each file has its own idea of what the columns are.
                columns = [("id", "long"), *((f"c{k}", chance.choice(leaves)) for k in range(12))]
                name = f"{n}.{format}{chance.choice(('', '.gz'))}"
                count = chance.randint(1, 6)
                if format == "json":
                    lines = [json_record(chance, columns, k, is_tame=True) for k in range(count)]
                else:
                    cells = [[str(k), *(tame_text(chance, kind) for _, kind in columns[1:])] for k in range(count)]
                    lines = [",".join(csv_quoted(cell) for cell in row).encode() for row in cells]
                files.append(Landed(name, b"\n".join(lines) + b"\n", count, count))
            for file in land(folder, files):
                repo.put("main", f"out/{file.name}", file.stored)
            try:
                ours = repo.to_arrow("main", "out")
            except LakesealError:
                continue
            read += 1
            options = {"inferSchema": True, "escape": "\\"} if format == "csv" else {}
            theirs = getattr(spark.read.options(**options), format)(str(folder)).toArrow()
            shape = pa.struct(list(theirs.schema))
            found = Counter(plain(as_spark_names(row, shape)) for row in rows_of(ours))
            assert found == Counter(plain(row) for row in rows_of(theirs)), f"{ours.schema} {theirs.schema}"
            if chance.random() < 0.2:
                assert repo.to_spark(spark, "main", "out").count() == ours.num_rows
    print(f"{read} of {asked} directories of {format} were read, the others refused")  # pytest -s shows it
    assert read >= 0.8 * asked, f"{read} of {asked} directories were read"


HOSTILE = {
    "not a number": ["NaN", "nan", "Infinity", "-Infinity", "Inf", "1.5", "7", "+INF"],
    "huge": ["9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 37, "1" + "0" * 38,
             "1e308", "1e309", "1e-400", "0.1", "9" * 39, "12345678901234567890.123456789"],
    "zeros": ["007", "-07", "00", "0", "7", "0.50", "+5", "-0", "-0.0", "1.", ".5", "1e5", "0x1F", "1_000", "5L", "5d"],
    "days": ["2024-02-30", "2024-13-01", "2024-02-29", "0000-01-01", "10000-01-01", "2024-1-1", "20240101", "2024-01"],
    "moments": ["2024-01-01T24:00:00", "2024-01-01 10:00", "2024-01-01T10:00:00Z", "2024-01-01 10:00:00.123456789",
                "2024-03-31T02:30:00Europe/Berlin", "10:00:00", "2024-01-01T10:00:00+19:00", "2024-01-01"],
    "truths": ["true", "FALSE", "True", "yes", "t", "0", "1"],
    "nothing": ["null", "NULL", "\\N", " ", "None", "x"],
}  # fmt: skip


@pytest.mark.parametrize("format", ["csv", "json"])
def test_hostile_values_in_columns_that_nobody_stated_are_as_for_spark_or_refused(
    spark: Any, tmp_path: Path, format: str
) -> None:
    read = asked = 0
    for seed in cases(6, 1000):
        asked += 1
        with case(seed) as chance, with_settings(spark, _UTC):
            repo, folder = Repository.create(tmp_path / f"repo-{seed}"), tmp_path / f"{format}-{seed}"
            themes = [chance.choice(tuple(HOSTILE)) for _ in range(3)]
            # A column of one kind of value has a type more often than one of all kinds.
            pools = [chance.sample(HOSTILE[theme], k=chance.randint(1, 3)) for theme in themes]
            files = []
            for n in range(chance.randint(1, 3)):
                count = chance.randint(1, 4)
                rows = [[str(k), *(chance.choice(pool) for pool in pools)] for k in range(count)]
                make = (
                    (lambda row: ",".join(csv_quoted(cell) for cell in row))
                    if format == "csv"
                    else hostile_object(chance)
                )
                lines = [make(row).encode() for row in rows]
                files.append(Landed(f"{n}.{format}", b"\n".join(lines) + b"\n", count, 0))
            for file in land(folder, files):
                repo.put("main", f"out/{file.name}", file.stored)
            try:
                ours = repo.to_arrow("main", "out")
            except LakesealError:
                continue
            read += 1
            options = {"inferSchema": True, "escape": "\\"} if format == "csv" else {}
            theirs = getattr(spark.read.options(**options), format)(str(folder)).toArrow()
            shape = pa.struct(list(theirs.schema))
            found = Counter(plain(as_spark_names(row, shape)) for row in rows_of(ours))
            about = f"{ours.schema} {theirs.schema} {[file.content for file in files]}"
            assert found == Counter(plain(row) for row in rows_of(theirs)), about
    print(f"{read} of {asked} directories of {format} were read, the others refused")  # pytest -s shows it
    assert read >= asked // 3, f"{read} of {asked} directories were read"


_SPELT = (" 1.5", "7 ", "\t7", "0x1p3", "0x1.8p1", "1F", "-5f", "1e5d", "1e400", "+NaN", "-NaN", "١٢", "1", "1.0", "1.",
          "1e5", "9223372036854775807.0", "2024-1-1", "2024-01", "2024-01-01 ", "10000-01-01", "+10000-01-01",
          "5881580-07-11", "10:00:00", "2024-01-01T10", "2024-01-01T10:00:00+01", "2024-02-30", "2024-13-01",
          "25:00:00", "1.5 junk", "x", "++5", "1e", "0x1F", "1_000", "Infinityd")  # fmt: skip


def test_texts_of_one_spelling_have_the_type_that_spark_learns_or_are_doubtful(spark: Any, tmp_path: Path) -> None:
    """A column each, and each beside a number, a day and a moment."""
    columns = [(text, *more) for text in _SPELT for more in ((), ("7",), ("2024-02-29",), ("2024-02-29T10:00:00Z",))]
    rows = [",".join(csv_quoted(texts[n % len(texts)]) for texts in columns) for n in range(2)]
    land(tmp_path / "in", [Landed("a.csv", "\n".join(rows).encode(), 2, 0)])
    with with_settings(spark, _UTC):
        frame = spark.read.options(inferSchema=True, escape="\\").csv(str(tmp_path / "in"))
    whole = {"int": "bigint"}
    doubtful = 0
    for texts, field in zip(columns, frame.schema, strict=True):
        learnt = ColumnTexts()
        learnt.look_at(pa.array(texts))
        doubtful += learnt.is_doubtful
        theirs = field.dataType.simpleString()
        ours = spark_type(learnt.type).simpleString()
        same = ours.partition("(")[0] == whole.get(theirs, theirs).partition("(")[0]
        assert same or (learnt.is_doubtful and theirs != "string"), f"{texts}: {ours}, not {theirs}"
    assert 0 < doubtful < len(columns) // 2


def hostile_object(chance: random.Random) -> Callable[[list[str]], str]:
    """Values as they are or as texts, below nulls, in arrays, and under names in several cases."""
    upper = chance.random() < 0.2

    def value(text: str) -> str:
        bare = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE]-?\d+)?|true|null|NaN|-?Infinity", text) is not None
        return text if bare and chance.random() < 0.7 else json.dumps(text)

    def made(row: list[str]) -> str:
        first, second, third = map(value, row[1:])
        nested = chance.choice((f'{{"x": {second}, "y": null}}', "null", '{"x": null}', "{}"))
        listed = chance.choice(
            (f"[{third}]", f"[null, {third}]", "[]", "null", "[[]]" if chance.random() < 0.1 else "[]")
        )
        name = chance.choice(("a", "A")) if upper else "a"
        return f'{{"id": {row[0]}, "{name}": {first}, "n": {nested}, "l": {listed}}}'

    return made


def test_texts_are_lines_as_for_spark_or_set_aside(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    signs = ("a", "ü", "\n", "\r", "\r\n", "\x00", "\ufeff", "\u2028", "\u0085", "\x0b", "\x0c", "\x1a", " ", "😀")
    pieces = [*(sign.encode() for sign in signs), b"\n", b"\n", b"\xff", b"\xc3", b"\xed\xa0\x80"]
    for seed in cases(1, 1000 // FILES):
        with case(seed) as chance:
            folder = tmp_path / str(seed)
            landed = land(
                folder,
                [
                    Landed(
                        f"{n}.txt{chance.choice(('', '', '.gz'))}",
                        chance.choice((b"", b"", b"\xef\xbb\xbf"))
                        + b"".join(chance.choices(pieces, k=chance.randint(0, 12))),
                        None,
                        0,
                    )
                    for n in range(FILES)
                ],
            )
            ours = {}
            source = FilesSource(path=str(folder), format="text")
            for unit in source.plan({}).units:
                chunks = list(source.read(unit))
                values = [value.encode() for chunk in chunks for value in chunk.rows.column(0).to_pylist()]
                ours[unit.partition] = values, sum(len(chunk.bad) for chunk in chunks)
            bytes_of = F.col("value").cast("binary").alias("v")
            right: dict[str, list[bytes]] = {file.name: [] for file in landed}
            for row in spark.read.text(str(folder)).select(bytes_of, "_metadata.file_name").collect():
                right[row.file_name].append(bytes(row.v))
            for file in landed:
                good = [line for line in right[file.name] if is_text(line)]
                bad = len(right[file.name]) - len(good)
                assert ours.get(file.name, ([], 0)) == (good, bad), file.content


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_binary_files_are_rows_as_for_spark(spark: Any, tmp_path: Path) -> None:
    contents = {
        "a.bin": b"",
        "b c.bin": b"\x00\xff\r\n",
        "d%20.txt": b"\xef\xbb\xbftext\n",
        "e.json": b'{"a": 1}',
        "f.gz": gzip.compress(b"as it is"),
        "ü.bin": random.Random(1).randbytes(70_000),
    }
    land(tmp_path / "in", [Landed(name, content, None, 0) for name, content in contents.items() if name != "f.gz"])
    (tmp_path / "in" / "f.gz").write_bytes(contents["f.gz"])
    with with_settings(spark, _UTC):
        right = spark.read.format("binaryFile").load(str(tmp_path / "in")).toArrow().to_pylist()
    source = FilesSource(path=str(tmp_path / "in"), format="binary")
    ours = [row for unit in source.plan({}).units for chunk in source.read(unit) for row in chunk.rows.to_pylist()]

    def shown(row: dict[str, Any]) -> tuple[Any, ...]:
        return Path(row["path"]).name, row["modificationTime"], row["length"], row["content"]

    # Spark passes over files without a byte.
    assert sorted(map(shown, ours)) == sorted([*map(shown, right), *(shown(row) for row in ours if not row["length"])])
    assert {Path(row["path"]).name: row["content"] for row in ours} == contents


def as_spark_names(value: Any, shape: pa.DataType) -> Any:
    """Without what Spark's inference passes over: fields without a name, and objects that have no other."""
    if isinstance(value, list) and pa.types.is_list(shape):
        return [as_spark_names(one, shape.value_type) for one in value]
    if not isinstance(value, dict) or not pa.types.is_struct(shape):
        return value
    known = [field.name for field in shape]
    assert all(name in known or not name or is_hollow(one) for name, one in value.items()), f"{value} is not {shape}"
    return {field.name: as_spark_names(value[field.name], field.type) for field in shape}


def is_hollow(value: Any) -> bool:
    """Whether there is nothing in it that Spark's inference has a name for."""
    named = [one for name, one in value.items() if name] if isinstance(value, dict) else []
    parts = value if isinstance(value, list) else named
    return all(map(is_hollow, parts)) if isinstance(value, dict | list) else value in (None, "{}")


def csv_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(sign in text for sign in '",\\') or text != text.strip() else text


@pytest.mark.parametrize("zone", ["America/New_York", "UTC", "+05:30"])
def test_moments_without_a_zone_are_in_the_sessions(spark: Any, tmp_path: Path, zone: str) -> None:
    repo = Repository.create(tmp_path / "repo")
    texts = ["2024-01-01 10:00:00", "2024-07-01T10:00:00.5", "2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-01-01"]
    texts += [f"{text}+02:00" for text in texts[:4]]
    land(tmp_path / "csv", [Landed("a.csv", "\n".join(texts).encode(), None, 0)])
    land(tmp_path / "json", [Landed("a.json", "\n".join(f'{{"t": "{text}"}}' for text in texts).encode(), None, 0)])
    for kind in ("csv", "json"):
        repo.put("main", f"{kind}/a.{kind}", (tmp_path / kind / f"a.{kind}").read_bytes())
        with with_settings(spark, {"spark.sql.session.timeZone": zone}):
            right = getattr(spark.read.schema("t timestamp"), kind)(str(tmp_path / kind)).toArrow()
            schema = from_ddl("t timestamp")
            found = repo.to_spark(spark, "main", kind, schema=schema).toArrow()
            assert sorted(found["t"].cast(pa.int64()).to_pylist()) == sorted(right["t"].cast(pa.int64()).to_pylist())


def from_ddl(text: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(text)


ORC = tuple(leaf for leaf in LEAVES if leaf not in ("timestamp", "timestamp_ntz", "date", "float", "double"))


def test_orc_files_that_spark_wrote_are_read_as_by_spark(spark: Any, tmp_path: Path) -> None:
    for seed in cases(1, 1000 // FILES):
        with case(seed) as chance, with_settings(spark, _UTC):
            columns = schema_of(chance, nested=True, leaves=ORC)
            lines = [json_record(chance, columns, n, is_tame=True).decode() for n in range(4 * FILES)]
            (tmp_path / f"{seed}.json").write_text("\n".join(lines))
            moments = (
                "timestamp_micros(id * 1234567) AS t, date_from_unix_date(int(id)) AS d, id / 3 AS x, float(id) AS y"
            )
            frame = (
                spark.read.schema(ddl(columns))
                .json(str(tmp_path / f"{seed}.json"))
                .selectExpr("*", *moments.split(", "))
            )
            folder = tmp_path / str(seed)
            frame.repartition(FILES, "id").write.option("compression", chance.choice(("snappy", "zstd", "zlib"))).orc(
                str(folder)
            )
            repo = Repository.create(tmp_path / f"repo-{seed}")
            for file in folder.glob("*.orc"):
                repo.put("main", f"out/{file.name}", file.read_bytes())
            right = spark.read.orc(str(folder)).toArrow()
            assert counted(repo.to_arrow("main", "out")) == counted(right), ddl(columns)
            assert counted(repo.to_spark(spark, "main", "out", schema=frame.schema).toArrow()) == counted(right)


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "orc"])
def test_columns_that_directories_name_have_the_values_that_spark_reads(spark: Any, tmp_path: Path, form: str) -> None:
    days = "id long, _day string, n string, name string"
    rows = [
        (1, "2024-01-01", "a/b", "x"),
        (2, None, "x y", None),
        (3, "2024-01-03", "é%=", "z"),
        (4, "0001-01-01", "7", "w"),
    ]
    writer = spark.createDataFrame(rows, days).write.partitionBy("_day", "n").format(form)
    writer.option("header", True).option("escape", '"').save(str(tmp_path / "t"))
    schema = "_day date, id long, n string, name string"
    read = spark.read.schema(schema).option("header", True).option("escape", '"').format(form).load(str(tmp_path / "t"))
    source = FilesSource(path=str(tmp_path / "t"), format=form, schema=schema)  # type: ignore[arg-type]
    found = by_us(source)
    assert sum((one for one, _ in found.values()), Counter()) == Counter(
        plain(row) for row in rows_of(read.select("_day", "id", "n", "name").toArrow())
    )
    assert source.plan({}).notes == ()


def test_files_as_rows_have_the_paths_that_spark_says(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "a b%20é+#"
    for name in ("1.bin", "c d%2F.bin", "day=2026-01-01/é ?.bin", "x%3D/2.bin"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    read = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(str(root))
    source = FilesSource(path=str(root), format="binary")
    found = pa.Table.from_batches([chunk.rows for unit in source.plan({}).units for chunk in source.read(unit)])
    assert counted(found) == counted(read.toArrow())


@pytest.mark.parametrize("folder", ["a=1", "a=1/b=2", "a=1/x", "x/a=1", "a=1/x/b=2", "a=1/b=2/x/y", "x/a=1/y/b=2"])
def test_directories_around_others_state_what_spark_reads(spark: Any, tmp_path: Path, folder: str) -> None:
    (tmp_path / "t" / folder).mkdir(parents=True)
    (tmp_path / "t" / folder / "1.json").write_text('{"id": 1, "a": 10, "b": 20}')
    read = spark.read.schema("id long, a long, b long").json(str(tmp_path / "t"))
    found = by_us(FilesSource(path=str(tmp_path / "t"), format="json", schema="id long, a long, b long"))
    assert sum((one for one, _ in found.values()), Counter()) == counted(read.select("id", "a", "b").toArrow())
