"""Statistics that are kept with a snapshot say what they say when they are read afresh, in whatever order conditions
ask for them, and never hide a file with rows that match, whatever became of the texts on their way."""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeseal.log.files import adds_from_actions
from lakeseal.log.live_files import LiveFiles
from lakeseal.log.replay import TableState
from lakeseal.log.snapshot import Snapshot
from lakeseal.log.stored_stats import STATS_PARSED, KnownStats, stats_structs
from lakeseal.protocol.actions import AddFile, Metadata, Protocol
from lakeseal.protocol.schema import StructType
from lakeseal.protocol.stats import stats_schema, widen

FIELDS = {
    "id": "long",
    "tiny": "byte",
    "name": "string",
    "price": "decimal(12,2)",
    "big": "decimal(38,10)",
    "ratio": "double",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "day": "date",
    "yes": "boolean",
}
SCHEMA = {
    "type": "struct",
    "fields": [
        *({"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS.items()),
        {
            "name": "inner",
            "type": {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]},
            "nullable": True,
            "metadata": {},
        },
    ],
}
LEAVES = [*((name,) for name in FIELDS), ("inner", "n")]


def snapshot_of(texts: list[str | None]) -> Snapshot:
    files = adds_from_actions(
        [
            AddFile(path=f"f{n}", partition_values={}, size=1, modification_time=1, data_change=True, stats=text)
            for n, text in enumerate(texts)
        ]
    )
    state = TableState(
        version=0,
        protocol=Protocol(min_reader_version=1, min_writer_version=2),
        metadata=Metadata(id="one", schema_string=json.dumps(SCHEMA)),
        live_files=LiveFiles(files),
    )
    return Snapshot.of("memory:", state)


JUNK = st.sampled_from(
    [None, True, 0, -1, 7.5, -0.0, 1e300, 10**30, "", "NaN", "Infinity", "x" * 40, "2020-13-45", [], [1], {}, {"a": 1}]
)
LONGS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {
        "id": st.one_of(st.none(), LONGS, st.integers(-3, 3)),
        "name": st.one_of(st.none(), st.text(max_size=3), st.text("ab\U0010ffff", min_size=30, max_size=40)),
        "price": st.one_of(st.none(), st.decimals(-9999999999, 9999999999, places=2)),
        "big": st.one_of(st.none(), st.decimals(-(10**27), 10**27, places=10)),
        "ratio": st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -1.5, 1e308, -1e308, 5e-324])),
    }
)
OPERATORS = ["=", "<", "<=", ">", ">=", "<=>"]
ASKED = {
    "id": lambda value: str(value) if value != -(2**63) else f"{value + 1} - 1",
    "name": lambda value: "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'",
    "price": lambda value: f"CAST('{value}' AS DECIMAL(12,2))",
    "big": lambda value: f"CAST('{value}' AS DECIMAL(38,10))",
    "ratio": lambda value: f"CAST('{value!r}' AS DOUBLE)",
}


def bound(name: str, value: Any, side: str, draw: Any) -> Any:
    """As some writer leaves it."""
    if name == "name" and len(value) > 32:
        return value[:32] if side == "minValues" else value[:32] + "\U0010ffff"
    if name in ("price", "big"):
        return draw(st.sampled_from([value, float(value)]))
    return value


def text_of(rows: list[dict[str, Any]], draw: Any) -> str | None:
    """True statistics of these rows, of which any part may be lost or be something else."""
    stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in ASKED:
        values = sorted(row[name] for row in rows if row[name] is not None)
        stats["nullCount"][name] = len(rows) - len(values)
        if values:
            stats["minValues"][name] = bound(name, values[0], "minValues", draw)
            stats["maxValues"][name] = bound(name, values[-1], "maxValues", draw)
    stats = copy.deepcopy(stats)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from([stats, *(part for part in stats.values() if isinstance(part, dict))]))
        if place and draw(st.booleans()):
            del place[draw(st.sampled_from(sorted(place)))]
        else:
            # Only what cannot be taken for the truth: of a wrong type, or of no column.
            place[draw(st.sampled_from(["other", "extra", "ID"]))] = draw(JUNK)
    for side in ("minValues", "maxValues"):
        if isinstance(stats.get(side), dict) and draw(st.integers(0, 5)) == 0:
            stats[side]["id"] = draw(st.sampled_from([None, "x", {}, [], True, 10**30, 0.5]))
    if draw(st.integers(0, 9)) == 0:
        stats[draw(st.sampled_from(["minValues", "maxValues", "nullCount"]))] = draw(JUNK)
    text = json.dumps(stats, default=str, ensure_ascii=draw(st.booleans()))
    for value in {row[name] for row in rows for name in ("price", "big") if row[name] is not None}:
        text = text.replace(f'"{value}"', str(Decimal(value))) if draw(st.booleans()) else text
    return draw(st.sampled_from([text, text, text, text, text[: len(text) // 2], text + " ", "", "[]", "5", None]))


@st.composite
def tables(draw: Any) -> tuple[list[list[dict[str, Any]]], list[str | None]]:
    files = draw(st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=5))
    return files, [text_of(rows, draw) for rows in files]


@pytest.mark.hypothesis
@settings(max_examples=150, deadline=None)
@given(tables(), st.lists(st.tuples(st.sampled_from(sorted(ASKED)), st.sampled_from(OPERATORS))))
def test_a_file_with_rows_that_match_is_never_left_out(
    table: tuple[list[list[dict[str, Any]]], list[str | None]], asked: list[tuple[str, str]]
) -> None:
    files, texts = table
    kept = snapshot_of(texts)
    compare = {
        "=": lambda a, b: a == b,
        "<=>": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    for name, operator in asked:
        for value in [row[name] for rows in files for row in rows if row[name] is not None][:3]:
            where = f"{name} {operator} {ASKED[name](value)}"
            match = kept.match(where)
            afresh = snapshot_of(texts).match(where)
            assert (match.may, match.all) == (afresh.may, afresh.all), where
            for rows, may, every in zip(files, match.may.to_pylist(), match.all.to_pylist(), strict=True):
                true = [row[name] is not None and compare[operator](row[name], value) for row in rows]
                assert may or not any(true), (where, rows)
                assert not every or all(true), (where, rows)


@pytest.mark.hypothesis
@settings(max_examples=150, deadline=None)
@given(tables(), st.lists(st.lists(st.sampled_from(LEAVES), min_size=1, unique=True), min_size=1, max_size=6))
def test_they_are_what_is_read_afresh(
    table: tuple[list[list[dict[str, Any]]], list[str | None]], asked: list[list[tuple[str, ...]]]
) -> None:
    snapshot = snapshot_of(table[1])
    for leaves in asked:
        kept = snapshot.stats_struct(snapshot.files, leaves)
        afresh = KnownStats(snapshot.files).of(kept.type)
        assert kept.equals(afresh)
        assert flat(kept) == flat(widen(stats_structs(snapshot.files, kept.type)))


def flat(array: pa.Array) -> dict[str, Any]:
    if not pa.types.is_struct(array.type):
        return {"": array.to_pylist()}
    return {
        f"{field.name}.{path}": values
        for field, child in zip(array.type, array.flatten(), strict=True)
        for path, values in flat(child).items()
    }


def test_a_column_is_parsed_once() -> None:
    snapshot = snapshot_of(['{"numRecords":1,"minValues":{"id":1,"name":"a"},"maxValues":{"id":2,"name":"b"}}'] * 9)
    first = snapshot.stats_struct(snapshot.files, [("id",)])
    both = snapshot.stats_struct(snapshot.files, [("id",), ("name",)])
    again = snapshot.stats_struct(snapshot.files, [("id",)])
    address = [part.field("minValues").field("id").buffers()[1].address for part in (first, both, again)]
    assert address == [address[0]] * 3
    assert both.to_pylist()[0]["maxValues"] == {"id": 2, "name": "b"}


def test_of_other_files_they_are_theirs() -> None:
    snapshot = snapshot_of(['{"numRecords":1}', '{"numRecords":2}'])
    assert snapshot.stats_struct(snapshot.files, [("id",)])[0]["numRecords"].as_py() == 1
    assert snapshot.stats_struct(snapshot.files.slice(1), [("id",)])[0]["numRecords"].as_py() == 2


def test_they_take_no_more_memory_than_the_files_actions() -> None:
    files = snapshot_of(['{"numRecords":1,"minValues":{"id":1}}'] * 50).files
    schema = StructType.from_json(
        {**SCHEMA, "fields": [{**SCHEMA["fields"][0], "name": f"c{n}"} for n in range(2_000)]}  # type: ignore[dict-item,index]
    )
    known = KnownStats(files)
    wide = known.of(stats_schema(schema))
    assert wide[0]["numRecords"].as_py() == 1
    assert sum(array.nbytes for array in known._kept.values()) <= files.nbytes


def test_those_of_a_checkpoint_are_kept_too() -> None:
    snapshot = snapshot_of([None, '{"numRecords":4}'])
    kind = pa.struct({"numRecords": pa.int64(), "minValues": pa.struct({"id": pa.int64()})})
    parsed = pa.array([{"numRecords": 3, "minValues": {"id": 8}}, None], kind)
    files = snapshot.files.append_column(STATS_PARSED, parsed)
    known = KnownStats(files)
    for _ in range(2):
        found = known.of(stats_schema(StructType.from_json({**SCHEMA, "fields": SCHEMA["fields"][:1]})))  # type: ignore[index]
        assert found.field("numRecords").to_pylist() == [3, 4]
        assert found.field("minValues").to_pylist() == [{"id": 8}, None]
