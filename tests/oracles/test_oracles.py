"""The judges' own tools, and that they work in every kind of session."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from oracles.rows import same_rows
from oracles.seeds import FIXED, case, cases
from oracles.sessions import SESSIONS, with_settings


def test_rows_are_compared_as_multisets_of_values() -> None:
    new_york = dt.timezone(dt.timedelta(hours=-5))
    rows = [{"a": math.nan, "b": Decimal("1.50")}, {"a": -0.0, "b": dt.datetime(2024, 1, 1, tzinfo=new_york)}]
    other = [{"b": dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC), "a": 0}, {"b": 1.5, "a": float("nan")}]
    same_rows(rows, other)
    same_rows([{"m": [("k", 1), ("l", 2)]}], [{"m": {"l": 2, "k": 1}}])
    for wrong in ([*rows, rows[0]], rows[:1], [rows[0], {**rows[1], "a": None}]):
        with pytest.raises(AssertionError, match="where 2 are right"):
            same_rows(wrong, rows)
    with pytest.raises(AssertionError, match="missing"):
        same_rows([{"s": ""}], [{"s": None}])


def test_a_failing_case_says_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESEAL_SEED", "77")
    assert list(cases(3, 1000)) == [77]
    with pytest.raises(AssertionError) as failure, case(77) as chance:
        assert chance.random() > 1
    assert any("LAKESEAL_SEED=77" in note for note in failure.value.__notes__)


def test_a_gate_looks_at_the_same_cases_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKESEAL_SEED", "LAKESEAL_HUNT", "LAKESEAL_HUNT_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI", "true")
    assert list(cases(2, 1000)) == [FIXED, FIXED + 1]
    monkeypatch.setenv("LAKESEAL_HUNT_FROM", "5")
    assert list(cases(2, 1000)) == [5, 6]
    monkeypatch.delenv("LAKESEAL_HUNT_FROM")
    monkeypatch.delenv("CI")
    today = 1000 * int(dt.date.today().strftime("%Y%m%d"))
    assert list(cases(1, 1000)) in ([today], [1000 * int(dt.date.today().strftime("%Y%m%d"))])


def test_as_many_cases_run_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKESEAL_SEED", raising=False)
    for asked, count in ((None, 3), ("50", 50), ("10%", 100)):
        monkeypatch.setenv("LAKESEAL_HUNT", asked or "")
        assert len(list(cases(3, 1000))) == count


@pytest.mark.spark
def test_a_session_has_its_settings_for_a_moment(spark: Any) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    with with_settings(spark, SESSIONS["new-york"]):
        assert spark.conf.get(zone) == "America/New_York"
    assert spark.conf.get(zone) == before
