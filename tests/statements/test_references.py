"""Which tables a text names, and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidExpression, LakesealError
from lakeseal.statements.parser import parse
from lakeseal.statements.references import references, replaced
from lakeseal.statements.statement import Moment, StatedName, TableChanges


def found(text: str, **how: Any) -> list[str]:
    return [text[one.start : one.end] for one in references(text, **how)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM a", ["a"]),
        ("SELECT * FROM a, b.c x, `d e`.f AS g", ["a", "b.c", "`d e`.f"]),
        ("SELECT * FROM delta.`/a``b` VERSION AS OF 3 x", ["delta.`/a``b` VERSION AS OF 3"]),
        ("SELECT * FROM a@v3, b @20240131120000000", ["a@v3", "b @20240131120000000"]),
        ("SELECT * FROM a FOR TIMESTAMP AS OF date_sub(now(), 1) - INTERVAL 2 HOURS AS t",
         ["a FOR TIMESTAMP AS OF date_sub(now(), 1) - INTERVAL 2 HOURS"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN c USING (x, y) CROSS JOIN d", ["a", "b", "c", "d"]),
        ("SELECT * FROM (a JOIN (b LEFT JOIN c ON true) ON true), d", ["a", "b", "c", "d"]),
        ("SELECT (SELECT max(x) FROM a), f(x) FROM (SELECT * FROM b WHERE x IN (SELECT y FROM c))", ["a", "b", "c"]),
        ("SELECT a FROM b UNION ALL SELECT c FROM d EXCEPT TABLE e", ["b", "d", "e"]),
        ("SELECT x FROM a WHERE b IN (1, 2) GROUP BY c, d ORDER BY e, f LIMIT 3", ["a"]),
        ("SELECT extract(YEAR FROM a), trim(BOTH 'x' FROM b), substring(c FROM 2) FROM d", ["d"]),
        ("SELECT a IS DISTINCT FROM b, c IS NOT DISTINCT FROM d FROM e", ["e"]),
        ("SELECT * FROM a LATERAL VIEW explode(m) t AS k, v WHERE k = 1", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x)", ["a", "b"]),
        ("SELECT * FROM a PIVOT (sum(x) FOR y IN ('p', 'q')) WHERE z", ["a"]),
        ("SELECT * FROM a WINDOW w AS (PARTITION BY b, c), v AS (ORDER BY d)", ["a"]),
        ("SELECT * FROM range(10), explode(array(1)), a", ["a"]),
        ("SELECT * FROM VALUES (1, 2), (3, 4) AS t(x, y), b", ["b"]),
        ("FROM a SELECT b, c", ["a"]),
        ("FROM a |> JOIN b ON x = y |> WHERE z IN (TABLE c) |> UNION ALL (SELECT * FROM d)", ["a", "b", "c", "d"]),
        ("WITH a AS (SELECT * FROM a), b (x, y) AS (TABLE a) SELECT * FROM a, b, c", ["a", "c"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM A", []),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a), a", ["a"]),
        ("SELECT * FROM a.b.c.d", []),
        ("id IN (SELECT x FROM a) AND EXISTS (SELECT 1 FROM b)", ["a", "b"]),
        ("from_ = 1 AND \"FROM a\" = 'FROM b' -- FROM c\n /* FROM d */", []),
        ("delta.`x` = 1", []),
        ("SELECT t.from, t.join FROM a AS t", ["a"]),
        ("SELECT /*+ BROADCAST(b) */ * FROM a", ["a"]),
        ("SELECT {'a': 1}, '{x}' FROM a", ["a"]),
        ("INSERT INTO x SELECT * FROM a", ["a"]),
    ],
)  # fmt: skip
def test_tables_are_found_where_they_are_named(text: str, expected: list[str]) -> None:
    assert found(text) == expected


def test_names_of_common_table_expressions_follow_the_sessions_case() -> None:
    text = "WITH a AS (SELECT 1) SELECT * FROM A"
    assert found(text) == []
    assert found(text, case_sensitive=True) == ["A"]


def test_double_quotes_are_names_where_the_session_says_so() -> None:
    text = 'SELECT * FROM delta."/a b", "c"'
    assert found(text, double_quoted_names=True) == ['delta."/a b"', '"c"']
    (path, _) = references(text, double_quoted_names=True)
    assert path.named == StatedName.at_path("/a b")


def test_a_change_feed_is_a_table_with_bounds() -> None:
    (one,) = references("SELECT * FROM table_changes('delta.`/a`', 1, '2024-01-01') WHERE x")
    assert one.named == TableChanges(table=StatedName.at_path("/a"), start=1, end="'2024-01-01'")
    (one,) = references("SELECT * FROM table_changes('a.b', now() - INTERVAL 1 DAY) c")
    assert one.named == TableChanges(table=StatedName(parts=("a", "b")), start="now() - INTERVAL 1 DAY")
    (one,) = references("SELECT * FROM table_changes_by_path('/a', 1)")
    assert one.named == TableChanges(table=StatedName.at_path("/a"), start=1)
    with pytest.raises(InvalidExpression, match="names no table"):
        references("SELECT * FROM table_changes('a b', 1)")


def test_other_names_are_put_in_and_all_else_stays() -> None:
    text = "SELECT '{a}', /* FROM a */ a.x FROM a, b@v1 AS c, d TABLESAMPLE (1 ROWS) WHERE a.x = `}`"
    tables = references(text)
    names = {one.start: f"{{t{n}}}" for n, one in enumerate(tables)}
    changed = replaced(text, tables, names, braces=True)
    assert changed.format(t0="v0", t1="v1", t2="v2") == (
        "SELECT '{a}', /* FROM a */ a.x FROM v0 AS a , v1 AS c, v2 TABLESAMPLE (1 ROWS) AS d  WHERE a.x = `}`"
    )
    assert replaced(text, tables, {}) == text
    assert tables[1].named == StatedName(parts=("b",), at=Moment(version=1))


_WORDS = """SELECT FROM JOIN WITH AS ( ) , a delta.`/x` 'it''s--x' /*;*/ `q` WHERE TABLE UNION VALUES 1 = CASE WHEN END
    VERSION~AS~OF LATERAL VIEW . table_changes( INSERT~INTO DELETE~FROM MERGE~INTO UPDATE SET CREATE~TABLE ALTER~TABLE~x
    { } :p :: ? |> [ ] ; "d" USING ON ADD~COLUMNS DEFAULT < > RESTORE VACUUM DESCRIBE SHOW OPTIMIZE ' " ` /* @v1 é"""
_PIECES = st.sampled_from([word.replace("~", " ") for word in _WORDS.split()])


@given(st.lists(_PIECES, max_size=25).map(" ".join), st.booleans())
def test_any_text_is_a_value_or_a_typed_error(text: str, double_quoted: bool) -> None:
    for read in (parse, references):
        try:
            read(text, double_quoted_names=double_quoted)  # type: ignore[operator]
        except LakesealError as error:
            assert error.hint or error.message


@given(st.lists(_PIECES, max_size=25).map(" ".join))
def test_what_is_put_back_is_what_was_there(text: str) -> None:
    try:
        tables = references(text)
    except LakesealError:
        return
    bare = [one for one in tables if one.alias_at is None]
    assert replaced(text, bare, {one.start: text[one.start : one.end] for one in bare}) == text
