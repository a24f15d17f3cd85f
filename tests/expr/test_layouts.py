"""One value, one answer: expressions over the same values in other buffers, as frames and other libraries have them.

A column may begin anywhere in its buffers, and what lies under a null may be anything: the smallest integer, NaN, a
list's own values. Neither is to be seen. The judge is the same expression on the values as Arrow makes them itself.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from expr.test_calls import calls
from expr.test_spark import lines, ours
from oracles.seeds import case, cases

_WIDTHS: dict[pa.DataType, type] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
}
"""All other types of fixed width are longs, but for decimals."""


@pytest.mark.timeout(36000)
def test_an_answer_does_not_depend_on_where_values_lie_nor_on_what_is_under_nulls(rows: pa.Table) -> None:
    wrong = []
    for seed in cases(1, 100):
        with case(seed) as chance:
            for count in (rows.num_rows, 3, 2, 1):
                some = rows.slice(chance.randrange(rows.num_rows - count + 1), count)
                there = pa.table(
                    {name: pa.array(some[name].to_pylist(), some[name].type) for name in some.column_names}
                )
                moved = pa.table({name: laid_out(chance, there[name].combine_chunks()) for name in there.column_names})
                moved.validate(full=True)
                assert told(moved["ar"]) == told(there["ar"])
                for text in (*chance.sample(lines("values"), 400), *calls(chance, rows, 10)):
                    expected, found = answer(there, text), answer(moved, text)
                    if expected != found:
                        wrong.append(f"{text}: {found} instead of {expected} (seed {seed})")
    assert not wrong, "\n".join(wrong)


def answer(rows: pa.Table, text: str) -> tuple[str, ...]:
    try:
        outcome, result = ours(rows, text)
    except (IndexError, ValueError, pa.ArrowException) as error:
        return "crash", repr(error)
    if outcome != "value":
        return (outcome,)
    result[1].validate(full=True)
    return outcome, result[0], told(result[1])


def told(values: Any) -> str:
    try:
        return repr(values.to_pylist())
    except (OverflowError, ValueError):  # beyond Python's years
        return repr(values.cast(pa.string()).to_pylist())


def laid_out(chance: random.Random, array: pa.Array) -> pa.Array:
    """The same values, behind others and with others under its nulls."""
    kind, before = array.type, chance.choice((0, 0, 1, 8))
    if pa.types.is_null(kind):
        return array
    valid = [chance.random() < 0.5 for _ in range(before)] + array.is_valid().to_pylist()
    known = array.drop_null()
    any_value = known[0].as_py() if len(known) else None
    if pa.types.is_struct(kind):
        shown = [any_value if one is None else one for one in array.to_pylist()]
        parts = [
            laid_out(chance, pa.array([None if s is None else s[f.name] for s in [any_value] * before + shown], f.type))
            for f in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array([not v for v in valid])).slice(before)
    is_told = array.null_count or chance.random() < 0.5
    buffers = [pa.py_buffer(np.packbits(np.array(valid, np.uint8), bitorder="little")) if is_told else None]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        junk = list(any_value or [])
        lists = [junk] * (before + 1) + [junk * 2 if one is None else list(one) for one in array.to_pylist()]
        ends = np.cumsum([len(one) for one in lists], dtype=np.int32)
        inner = pa.array([one for lst in lists for one in lst], _element(kind))
        return pa.Array.from_buffers(kind, len(array), [*buffers, pa.py_buffer(ends)], offset=before, children=[inner])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = [b"junk" if one is None else one for one in array.cast(pa.binary()).to_pylist()]
        texts = [b"behind these", *[b"9"] * before, *texts]
        ends = np.cumsum([len(one) for one in texts], dtype=np.int32)
        buffers += [pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    elif pa.types.is_boolean(kind):
        bits = [1] * before + [1 if one is None else int(one) for one in array.to_pylist()]
        buffers.append(pa.py_buffer(np.packbits(np.array(bits, np.uint8), bitorder="little")))
    else:
        width = 16 if pa.types.is_decimal(kind) else np.dtype(_WIDTHS.get(kind, np.int64)).itemsize
        held = array.buffers()[1].to_pybytes()[array.offset * width :]
        least = (
            np.array([np.nan], _WIDTHS[kind]).tobytes() if pa.types.is_floating(kind) else b"\0" * (width - 1) + b"\x80"
        )
        there = [
            held[n * width : (n + 1) * width] if is_valid else least
            for n, is_valid in enumerate(array.is_valid().to_pylist())
        ]
        buffers.append(pa.py_buffer(least * before + b"".join(there)))
    return pa.Array.from_buffers(kind, len(array), buffers, offset=before)


def _element(kind: pa.DataType) -> pa.DataType:
    return pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
