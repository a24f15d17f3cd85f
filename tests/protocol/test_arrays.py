"""Arrays made of buffers are those that Arrow makes, and whoever opens a table does not load pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeseal
from lakeseal.protocol import arrays

STRUCT = pa.struct([("text", pa.string()), ("number", pa.int32()), ("truth", pa.bool_())])
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    STRUCT: st.fixed_dictionaries(
        {"text": st.none() | st.text(), "number": st.none() | st.integers(0, 9), "truth": st.none() | st.booleans()}
    ),
}


@given(st.sampled_from(list(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), st.lists(st.none() | VALUES[kind]))))
def test_what_is_made_of_buffers_is_what_arrow_makes(asked: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = asked
    made = arrays._made(values, kind)
    assert made is not None
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))
    assert made.null_count == values.count(None)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**63], pa.int64()),
        ([2**31], pa.int32()),
        ([1.5], pa.int64()),
        ([True], pa.int64()),
        (["\ud800"], pa.string()),
        ([1], pa.string()),
        ([1], pa.bool_()),
        ([{"text": 1}], STRUCT),
        ([b"x"], pa.binary()),
    ],
)
def test_what_is_no_such_value_is_left_to_arrow(values: list[Any], kind: pa.DataType) -> None:
    assert arrays._made(values, kind) is None


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.integers(0, 5))
def test_numbers_and_truths_come_out_as_they_went_in(values: list[int], first: int) -> None:
    flags = [value % 3 == 0 for value in values]
    for kind in (pa.int32(), pa.int64()):
        assert arrays.numbers(pa.array(values, kind)[first:]).tolist() == values[first:]
    assert arrays.truths(pa.array(flags, pa.bool_())[first:]).tolist() == flags[first:]
    for array in (np.array(values, dtype=np.int64), np.array(flags, dtype=np.bool_)):
        kind = pa.int64() if array.dtype == np.int64 else pa.bool_()
        made = arrays._made(array, kind)
        assert made is not None
        assert made.equals(pa.array(array.tolist(), kind))


def test_a_process_that_opens_and_reads_a_table_does_not_load_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    table = lakeseal.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("day", pa.string())]))
    for number in range(12):
        table.write(pa.table({"id": [number], "day": ["a"]}))
    table.delete("id = 3")
    table.optimize()
    code = (
        "import sys, lakeseal; table = lakeseal.Table(sys.argv[1]); assert len(table.files()) == 1\n"
        "assert table.to_arrow().num_rows == 11 and table.to_arrow(version=5).num_rows == 5\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=True)
