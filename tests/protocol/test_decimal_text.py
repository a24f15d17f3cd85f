from __future__ import annotations

from decimal import Decimal, localcontext

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.protocol.decimal_text import parse_decimal, plain_pattern, recast
from lakeseal.protocol.schema import DecimalType


@st.composite
def decimal_types(draw: st.DrawFn) -> DecimalType:
    precision = draw(st.sampled_from((1, 5, 18, 19, 37, 38)) | st.integers(1, 38))
    return DecimalType(precision, draw(st.integers(0, precision)))


def fits(value: Decimal, data_type: DecimalType) -> bool:
    with localcontext() as context:
        context.prec = 2000
        scaled = value.scaleb(data_type.scale)
        return scaled == scaled.to_integral_value() and abs(scaled) < 10**data_type.precision


@given(st.data(), decimal_types(), decimal_types())
def test_a_decimal_of_another_type_is_the_same_number_or_refused(
    data: st.DataObject, source: DecimalType, target: DecimalType
) -> None:
    limit = 10 ** data.draw(st.integers(0, source.precision))
    value = Decimal(data.draw(st.integers(-limit + 1, limit - 1))).scaleb(-source.scale)
    array = pa.array([value, None], pa.decimal128(source.precision, source.scale))
    arrow = pa.decimal128(target.precision, target.scale)
    try:
        assert recast(array, arrow).to_pylist() == [value, None]
        assert fits(value, target)
    except pa.ArrowInvalid:
        assert not fits(value, target)


@given(st.from_regex(r"\A[+-]?[0-9]{1,60}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,3})?\Z"), decimal_types())
def test_a_text_is_the_number_that_it_says_or_none(text: str, data_type: DecimalType) -> None:
    assert parse_decimal(text, data_type) == (Decimal(text) if fits(Decimal(text), data_type) else None)
    if pc.match_substring_regex(pa.scalar(text), plain_pattern(data_type)).as_py():
        arrow = pa.decimal128(data_type.precision, data_type.scale)
        assert pa.array([text]).cast(arrow).to_pylist() == [Decimal(text)]
