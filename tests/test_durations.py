"""How long, as people write it."""

from __future__ import annotations

import pytest

from lakeseal.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("15m", 900),
        ("15min", 900),
        ("12h", 43_200),
        (" 2d ", 172_800),
        ("1.5 d", 129_600),
        ("0s", 0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1e3s", "1d2h", "2D", "soon", "٣s", "9" * 10 + "s"])
def test_whatever_else_is_none(text: str) -> None:
    assert seconds_of(text) is None
