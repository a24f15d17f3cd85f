"""Rows of every type with their edges, for expressions that are evaluated here and by Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

_TIMESTAMP = pa.timestamp("us", "UTC")

# Eight rows each; ∅ is NULL.
_TEXTS: dict[str, tuple[pa.DataType, str]] = {
    "id": (pa.int32(), "0|1|2|3|4|5|6|7"),
    "b": (pa.int8(), "0|1|-1|127|-128|∅|5|9"),
    "h": (pa.int16(), "0|1|-1|32767|-32768|∅|5|9"),
    "i": (pa.int32(), "0|1|-1|2147483647|-2147483648|∅|5|15"),
    "l": (pa.int64(), "0|1|-1|9223372036854775807|-9223372036854775808|∅|9007199254740993|25"),
    "k": (pa.int32(), "3|-7|7|100|-100|∅|5|1"),
    "f": (pa.float32(), "0|-0.0|1.5|nan|inf|∅|0.1|-2.5"),
    "d": (pa.float64(), "0|-0.0|2.5|nan|-inf|∅|0.1|1e10"),
    "g": (pa.float64(), "1|-2.5|2.675|1.005|123.456|∅|-0.5|0.1"),
    "c": (pa.decimal128(10, 2), "0.00|1.25|-1.25|99999999.99|-99999999.99|∅|0.01|7.50"),
    "e": (pa.decimal128(27, 10), "0|1.0000000001|-5|12345678901234567.0123456789|3|∅|0.5|-0.0000000001"),
    "s": (pa.string(), "|a|Abc|ß é|x_y%z|∅|  pad |日本語"),
    "n": (pa.string(), "0| 1 |-1|+12|2147483647|∅|5|007"),
    "x": (pa.string(), "1.5|abc|1e3||NaN|∅|99999999999|-0.5"),
    "w": (pa.string(), "2020-01-31|2024-02-29|1999-12-31|2020-1-2|1970-01-01|∅|2021-06|1969"),
    "t": (pa.date32(), "2020-01-31|2024-02-29|1999-12-31|1970-01-01|1969-07-20|∅|0001-01-01|9999-12-31"),
    "ts": (
        _TIMESTAMP,
        "2020-01-31 12:34:56.789Z|2024-02-29 00:00:00Z|1999-12-31 23:59:59.999999Z"
        "|1970-01-01 00:00:00Z|1969-07-20 20:17:40.000001Z|∅|1900-01-01 00:00:01Z|2262-04-11 01:02:03Z",
    ),
    "tn": (
        pa.timestamp("us"),
        "2020-01-31 12:34:56.789|2024-02-29|1999-12-31 23:59:59|1970-01-01|1969-07-20|∅|1900-01-01|2100-01-01",
    ),
    "p": (pa.bool_(), "true|false|∅|true|false|∅|true|false"),
    "q": (pa.bool_(), "true|true|true|false|false|∅|∅|∅"),
}
_STRUCTS = [(1, "x"), (None, "y"), (3, None), None, (5, "z"), None, (7, ""), (8, "w")]
_MAPS = [{"k": 1}, {"j": 2}, {}, {"k": None}, {"k": 5, "j": 6}, None, {"": 7}, {"k": 8}]


def _array(arrow: pa.DataType, text: str) -> pa.Array:
    return pa.array([None if part == "∅" else part for part in text.split("|")]).cast(arrow)


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    columns = {name: _array(arrow, text) for name, (arrow, text) in _TEXTS.items()}
    columns["y"] = pa.array([b"", b"a", b"\xff", b"abc", b"\x00", None, b"7", b"z"], pa.binary())
    columns["st"] = pa.array(
        [None if item is None else {"a": item[0], "b": item[1]} for item in _STRUCTS],
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    )
    columns["ar"] = pa.array([[1, 2], [3], [None, 4], [5, None], [6], None, [7, 8, 9], [2]], pa.list_(pa.int32()))
    columns["m"] = pa.array(
        [None if item is None else list(item.items()) for item in _MAPS], pa.map_(pa.string(), pa.int32())
    )
    return pa.table(columns)


@pytest.fixture(scope="module")
def frame(spark: Any, rows: pa.Table) -> Any:
    """The same rows in Spark."""
    # Spark takes every Arrow timestamp for one with a zone.
    return (
        spark.createDataFrame(rows).selectExpr("* except (tn)", "cast(tn as timestamp_ntz) as tn").coalesce(1).cache()
    )
