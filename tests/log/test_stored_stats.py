from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.log.files import add_actions, adds_from_actions
from lakeseal.log.stored_stats import STATS_PARSED, shaped, stats_structs, stats_texts
from lakeseal.protocol.actions import AddFile
from lakeseal.protocol.stats import stated_stats

BOUNDS = pa.struct(
    {
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "day": pa.date32(),
        "price": pa.decimal128(10, 2),
        "ratio": pa.float64(),
        "name": pa.string(),
        "inner": pa.struct({"n": pa.int32()}),
    }
)
STATS = pa.struct(
    {
        "numRecords": pa.int64(),
        "minValues": BOUNDS,
        "maxValues": BOUNDS,
        "nullCount": pa.struct({"name": pa.int64()}),
        "tightBounds": pa.bool_(),
    }
)


def files(texts: list[str | None], parsed: list[Any] | None = None, kind: pa.DataType = STATS) -> pa.Table:
    table = adds_from_actions(
        [
            AddFile(path=f"f{n}", partition_values={}, size=1, modification_time=1, data_change=True, stats=text)
            for n, text in enumerate(texts)
        ]
    )
    return table if parsed is None else table.append_column(STATS_PARSED, pa.array(parsed, kind))


def text_of(bounds: dict[str, Any], side: str = "minValues") -> Any:
    (text,) = stats_texts(files([None], [{side: bounds}])).to_pylist()
    return msgspec.json.decode(text)[side]


class TestTexts:
    def test_texts_that_are_there_stay_as_they_are(self) -> None:
        texts = ['{"numRecords" : 1}', None]
        assert stats_texts(files(texts)).to_pylist() == texts
        assert stats_texts(files(texts, [{"numRecords": 9}, None])).to_pylist() == texts

    def test_values_are_written_as_the_format_says(self) -> None:
        bounds = {
            "at": datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
            "local": datetime(2024, 1, 2, 3, 4, 5),
            "day": date(2024, 1, 2),
            "price": Decimal("12345.60"),
            "ratio": 0.5,
            "name": 'é"\n',
            "inner": {"n": 3},
        }
        assert text_of(bounds) == {
            "at": "2024-01-02T03:04:05.678Z",
            "local": "2024-01-02T03:04:05.000",
            "day": "2024-01-02",
            "price": 12345.6,
            "ratio": 0.5,
            "name": 'é"\n',
            "inner": {"n": 3},
        }

    @pytest.mark.parametrize(
        ("micros", "low", "high"),
        [
            (1, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"),
            (-1, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
            (-1000, "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
            (1999, "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z"),
        ],
    )
    def test_bounds_with_microseconds_move_outwards(self, micros: int, low: str, high: str) -> None:
        assert text_of({"at": micros})["at"] == low
        assert text_of({"at": micros}, "maxValues")["at"] == high

    def test_a_column_that_is_called_like_the_maxima_is_not_one(self) -> None:
        kind = pa.struct({"minValues": pa.struct({"maxValues": pa.timestamp("us", "UTC")})})
        (text,) = stats_texts(files([None], [{"minValues": {"maxValues": 1}}], kind)).to_pylist()
        assert text == '{"minValues":{"maxValues":"1970-01-01T00:00:00.000Z"}}'

    @pytest.mark.parametrize(
        "bounds",
        [
            {"ratio": float("nan")},
            {"ratio": float("inf")},
            {"at": 2**62},
            {"at": -(2**62)},
            {"day": 2**30},
        ],
    )
    def test_a_bound_that_json_cannot_hold_is_left_out(self, bounds: dict[str, Any]) -> None:
        assert text_of(bounds) == {}

    def test_actions_of_such_files_have_their_statistics(self) -> None:
        (action,) = add_actions(files([None], [{"numRecords": 3}]))
        assert action.stats == '{"numRecords":3}'


class TestStructs:
    def test_each_row_from_where_it_is(self) -> None:
        table = files(['{"numRecords":1}', None, None], [None, {"numRecords": 2}, None])
        assert stats_structs(table, STATS).field("numRecords").to_pylist() == [1, 2, None]

    def test_what_does_not_fit_is_unknown(self) -> None:
        kind = pa.struct({"numRecords": pa.int32(), "minValues": pa.struct({"name": pa.int64(), "day": pa.string()})})
        row = {"numRecords": 2, "minValues": {"name": 3, "day": "soon"}}
        found = stats_structs(files([None], [row], kind), STATS).to_pylist()[0]
        assert found["numRecords"] == 2
        assert found["minValues"]["name"] == "3"
        assert found["minValues"]["day"] is None
        assert found["maxValues"] is None

    def test_a_value_where_a_struct_should_be_is_unknown(self) -> None:
        assert shaped(pa.array([1, 2]), BOUNDS).null_count == 2


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "at": st.integers(-(10**15), 10**15).map(lambda ms: ms // 1000 * 1000),
                "day": st.integers(-10_000, 50_000),
                "price": st.decimals(-(10**7), 10**7, places=2),
                "ratio": st.floats(allow_nan=False, allow_infinity=False),
                "name": st.text(st.characters(exclude_categories=["Cs"])),
                "inner": st.just({"n": 7}),
            },
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_text_of_a_struct_gives_the_struct_back(rows: list[dict[str, Any]]) -> None:
    parsed = pa.array([{"numRecords": n, "minValues": row, "maxValues": row} for n, row in enumerate(rows)], STATS)
    texts = stats_texts(files([None] * len(rows)).append_column(STATS_PARSED, parsed))
    again = stated_stats(texts, STATS)
    for name in ("numRecords", "minValues", "maxValues"):
        assert without_nulls(again.field(name).to_pylist()) == without_nulls(parsed.field(name).to_pylist())


def without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return {k: without_nulls(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value
