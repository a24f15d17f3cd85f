"""Where `expr` may stand in for a session, by the session's settings; no session is started."""

from __future__ import annotations

import pytest

from lakeseal.errors import UnsupportedExpression
from lakeseal.protocol.schema import DATE, INTEGER, LONG, STRING, TIMESTAMP, DecimalType, StructField, StructType
from lakeseal.spark.predicates import Settings, check_portable, judged, same_value, understood

TABLE = StructType(
    (
        StructField("id", LONG),
        StructField("i", INTEGER),
        StructField("s", STRING),
        StructField("d", DATE),
        StructField("ts", TIMESTAMP),
        StructField("m", DecimalType(10, 2)),
        StructField("st", StructType((StructField("a", INTEGER),))),
    )
)
NEW_YORK = Settings(zone="America/New_York")
ANSI_OFF = Settings(ansi=False)
CASED = Settings(case_sensitive=True)
QUOTES = Settings(other_quotes=True)


@pytest.mark.parametrize("where", ["id = 1", "CAST(s AS INT) > 2", "hour(ts) = 3", "S = 'x'", 's = "x"'])
def test_a_session_as_ours_is_judged_here(where: str) -> None:
    assert judged(where, TABLE, Settings()) == where
    assert judged(where, TABLE, Settings(zone="Etc/UTC")) == where


@pytest.mark.parametrize("where", ["id IN (SELECT 1)", "sin(id) = 1", "nothing = 1", "id +"])
def test_what_is_not_understood_is_sparks(where: str) -> None:
    for settings in (Settings(), NEW_YORK, ANSI_OFF):
        assert judged(where, TABLE, settings) is None


def test_texts_of_times_are_read_in_the_sessions_zone() -> None:
    moved = judged("ts < '2024-01-01' AND upper(s) = 'X'", TABLE, NEW_YORK)
    assert moved is not None
    assert "2024-01-01 05:00:00" in moved
    assert judged("ts < '2024-07-01 12:00:00-04:00'", TABLE, NEW_YORK) is not None


@pytest.mark.parametrize(
    "where",
    ["hour(ts) = 3", "CAST(ts AS DATE) = d", "ts > d", "current_date() > d", "hour('2024-01-01 05:00:00Z') = 5",
     "date_format(d, 'yyyy') = '2024'", "CAST(ts AS STRING) = s", "to_date(TIMESTAMP'2024-01-01 03:00:00Z') = d"],
)  # fmt: skip
def test_what_depends_on_the_zone_is_judged_by_who_has_it(where: str) -> None:
    assert judged(where, TABLE, NEW_YORK) is None
    assert understood(f"id = 1 AND {where}", TABLE, NEW_YORK) == "id = 1"
    assert not same_value(where, TABLE, NEW_YORK)


@pytest.mark.parametrize(
    "where",
    ["s = 1", "i IN ('1', '2')", "d IN ('2024-01-01')", "CAST(s AS INT) = 1", "i + 1 > 2", "10 / i > 1",
     "coalesce(i, s) = 'x'", "CASE WHEN id = 1 THEN i ELSE s END = 1", "CAST(m AS STRING) = '1.00'"],
)  # fmt: skip
def test_what_ansi_mode_changes_is_not_judged_without_it(where: str) -> None:
    assert judged(where, TABLE, ANSI_OFF) is None


@pytest.mark.parametrize(
    "where",
    ["i = 1 AND s <> 'x'", "d >= '2024-01-01'", "m BETWEEN 1 AND i", "s LIKE 'a%' OR s IS NULL", "id IN (1, 2)"],
)
def test_what_both_modes_mean_alike_is_judged_here(where: str) -> None:
    assert judged(where, TABLE, ANSI_OFF) is not None


def test_names_and_quotes_are_the_sessions() -> None:
    assert judged("ID = 1", TABLE, CASED) is None
    assert judged("st.A = 1", TABLE, CASED) is None
    assert judged("id = 1 AND st.a = 1", TABLE, CASED) is not None
    assert judged('s = "x"', TABLE, QUOTES) is None
    assert judged(r"s = 'a\n'", TABLE, QUOTES) is None
    assert judged("s = 'x'", TABLE, QUOTES) is not None
    assert judged("id = 1", TABLE, Settings(rare=True)) is None


@pytest.mark.parametrize("text", ["CAST(ts AS DATE)", "year(ts)", "upper(s)", "i + 1", "d >= '2024-01-01'"])
def test_what_every_session_in_utc_means_alike_is_portable(text: str) -> None:
    check_portable(text, TABLE, zone_known=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [("CAST(ts AS DATE)", "zone"), ('s = "x"', "quotes"), ("ID = 1", "case"), ("s = 1", "ANSI"), ("now()", "zone")],
)
def test_what_sessions_mean_differently_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(UnsupportedExpression, match=why):
        check_portable(text, TABLE, zone_known=False)
