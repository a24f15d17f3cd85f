from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeseal.errors import InvalidExpression, InvalidInput, UnsupportedExpression
from lakeseal.expr import Expression, column, equal, literal, parse
from lakeseal.expr.parser import MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a = b is null", "a = b IS NULL"),
        ("not a = 1 and b", "NOT a = 1 AND b"),
        ("!a = 1", "NOT a = 1"),
        ("(a or b) and c", "(a OR b) AND c"),
        ("a or (b or c)", "a OR b OR c"),
        ("a | b & c ^ d", "a | b & c ^ d"),
        ("(a | b) & c", "(a | b) & c"),
        ("a - (b - c) - d", "a - (b - c) - d"),
        ("- -x * 2", "-(-x) * 2"),
        ("-(1)", "-(1)"),
        ("a || b || 'c'", "a || b || 'c'"),
        ("a == 1 and b != 2 and c <> 3", "a = 1 AND b <> 2 AND c <> 3"),
        ("x not in (1, null)", "NOT x IN (1, NULL)"),
        ("x between 1 and 2 and y", "x BETWEEN 1 AND 2 AND y"),
        ("x between 1 and 2 = true", "x BETWEEN 1 AND 2 = TRUE"),
        ("s not like 'a!%' escape '!'", "NOT s LIKE 'a!%' ESCAPE '!'"),
        ("s regexp '^a'", "s RLIKE '^a'"),
        ("a is distinct from b", "NOT a <=> b"),
        ("case when a then 1 else 2 end + 1", "CASE WHEN a THEN 1 ELSE 2 END + 1"),
        ("case end when 1 then end end", "CASE `end` WHEN 1 THEN `end` END"),
        ("`we``ird x`.`y.z`", "`we``ird x`.`y.z`"),
        ("a.b[0].c['k']", "a.b[0].c['k']"),
        ("x::int::string", "cast(cast(x AS int) AS string)"),
        ("try_cast(x as decimal(5))", "try_cast(x AS decimal(5,0))"),
        ("trim(leading 'x' from s)", "TRIM(LEADING 'x' FROM s)"),
        ("substring(s from 2 for 3)", "substring(s, 2, 3)"),
        ("extract(year from ts)", "year(ts)"),
        ("date '2024-01-01' < date", "DATE '2024-01-01' < date"),
        ("ts - interval '3' months", "ts - INTERVAL '3' MONTH"),
        ("'it''s' = \"it's\"", r"'it\'s' = 'it\'s'"),
        ("'a' 'b'", "'ab'"),
        (r"'\u0041\101\n\q\%\_\\'", r"'AA\nq\\%\\_\\'"),
        (r"'😀' = '😀'", "'😀' = '😀'"),
        (r"r'\d'", r"'\\d'"),
        ("x'1f2'", "X'01F2'"),
        ("1 + 10L + 1.50 + 1e3 + 2F + 5Y", "1 + 10L + 1.50BD + 1000.0D + 2.0F + 5Y"),
        ("-9223372036854775808", "-9223372036854775808L"),
        ("12345678901234567890", "12345678901234567890BD"),
        ("user = 'x' and year > 2020 and timestamp > 5", "user = 'x' AND year > 2020 AND timestamp > 5"),
        ("a /* one /* two */ */ = -- three\n 1", "a = 1"),
    ],
)
def test_text_is_read_as_spark_reads_it_and_written_back(text: str, canonical: str) -> None:
    parsed = parse(text)
    assert parsed.sql == canonical
    assert parse(canonical).sql == canonical
    assert parsed == parse(canonical)
    assert str(parsed) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("   -- nothing\n", "empty"),
        ("a = ", "line 1, column 5"),
        ("a =\n  1 1", "line 2, column 5"),
        ("(a", r"Expected '\)'"),
        ("a b", "found 'b'"),
        ("x in ()", "Expected an expression"),
        ("x in (1) = true", "found '='"),
        ("a = not b", "NOT cannot be used here"),
        ("'abc", "not closed"),
        ("`abc", "not closed"),
        ("/* abc", "not closed"),
        ("größe = 1", "backticks|Unexpected character"),
        ("a = $1", "Unexpected character"),
        ("1e400", "does not fit"),
        ("300Y", "does not fit"),
        ("1" * 39, "does not fit"),
        ("x'zz'", "no hexadecimal"),
        (r"'\ud800'", "surrogate"),
        ("cast(a as decimal(39,0))", "cannot be used"),
        ("x in (select 1)", "A subquery"),
        ("(select 1) = 1", "A subquery"),
        ("exists(select 1)", "A subquery"),
        ("select 1", "A subquery"),
        ("count(*)", r"count\(\*\)"),
        ("count(distinct a)", r"aggregate \(count\)"),
        ("sum(a) over (partition by b)", r"window function \(sum\)"),
        ("sum(a) filter (where b)", "aggregate"),
        ("a = ?", "parameter"),
        ("a = :p", "parameter"),
        ("a.*", "Expected a field's name"),
        ("a; b", "found ';'"),
        ("s like 'a' escape 'xx'", "one character after ESCAPE"),
        ("a is 5", "Expected NULL, TRUE, FALSE"),
        ("case end", "Expected"),
        ("and", "backticks"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidExpression, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a, b) = (1, 2)", "row of several values"),
        ("x -> x + 1", "lambda"),
        ("f(a => 1)", "argument by name"),
        ("v:field", "colon"),
        ("a collate unicode", "COLLATE"),
        ("cast(a as array<int>)", "array"),
        ("cast(a as varchar(3))", "VARCHAR|varchar"),
        ("date_add(1 + 1, 1, d)", "date_add with such a unit"),
        ("db.f(a)", r"db\.f"),
        ("t + interval '1 day 2 hours'", "interval"),
        ("t + interval '1 02:03' day to minute", "interval"),
        ("t + interval 1 month 2 days", "months and days"),
        ("time'10:20:30' = t", "time of the day"),
    ],
)
def test_what_only_spark_can_do_is_named(text: str, message: str) -> None:
    with pytest.raises(UnsupportedExpression, match=message):
        parse(text)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 10_000, 100_000])
@pytest.mark.parametrize("shape", ["({})", "not {}", "- {}", "a[{}]", "f({})", "case when {} then 1 end", "{} + 1"])
def test_deep_nesting_is_an_error_and_no_overflow(levels: int, shape: str) -> None:
    before, after = shape.split("{}")
    text = before * levels + "a" + after * levels
    if shape == "({})" and levels <= 2 * MAX_DEPTH:
        assert parse(text).sql == "a"
        return
    with pytest.raises(InvalidExpression, match="nested deeper"):
        parse(text)


def test_long_chains_and_lists_are_fine() -> None:
    chain = parse(" or ".join(f"a = {n}" for n in range(10_000)))
    assert len(chain.sql.split(" OR ")) == 10_000
    assert len(parse(" and ".join(["a"] * 10_000)).conjuncts()) == 10_000
    assert parse(f"a in ({', '.join(map(str, range(50_000)))})").columns == {("a",)}


def test_more_text_than_an_expression_can_need_is_refused() -> None:
    with pytest.raises(InvalidExpression, match="the limit is"):
        parse("a = '" + "x" * 5_000_000 + "'")


@given(st.text(max_size=40))
@example("((((")
@example("a = 'x' and")
def test_any_text_parses_or_is_refused_by_our_own_errors(text: str) -> None:
    try:
        parsed = parse(text)
    except InvalidInput:
        return
    assert parse(parsed.sql).sql == parsed.sql


WORDS = (
    *("a", "`b c`", "f", "1", "1.5", "'x'", "null", "true", "(", ")", ",", "[", "]", ".", "::"),
    *("and", "or", "not", "!", "=", "<", "<=>", "+", "-", "*", "/", "%", "div", "||", "|", "&"),
    *("in", "between", "like", "rlike", "is", "case", "when", "then", "else", "end", "cast", "as", "int"),
    *("interval", "day", "date"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))
def test_any_words_of_sql_parse_to_what_they_are_written_back_as(text: str) -> None:
    try:
        parsed = parse(text)
    except InvalidInput:
        return
    assert parse(parsed.sql).sql == parsed.sql


def test_columns_are_the_paths_in_the_text() -> None:
    parsed = parse("A.b = 1 and c['k'] > d[0].e and current_date() > current_date and `f.g` is null")
    assert parsed.columns == {("A", "b"), ("c",), ("d",), ("f.g",)}


def test_conjuncts_come_apart_and_together_again() -> None:
    parsed = parse("a = 1 and (b = 2 or c = 3) and (d and e)")
    assert [part.text for part in parsed.conjuncts()] == ["a = 1", "b = 2 OR c = 3", "d", "e"]
    first, *others = parsed.conjuncts()
    assert first.and_(*others) == parsed
    assert first.and_() is first
    assert parse("a or b").and_(parse("c")).text == "(a OR b) AND c"


def test_values_and_columns_become_text_that_means_them() -> None:
    assert column("a", "b c").text == "a.`b c`"
    assert literal("it's \\ 5%\n").text == r"'it\'s \\ 5%\n'"
    assert equal(("p",), None).text == "p IS NULL"
    assert equal(("p",), "x").and_(equal(("q",), 5)).text == "p = 'x' AND q = 5"
    assert literal(2**40).text == "1099511627776L"
    assert literal(float("-inf")).text == "cast('-inf' AS double)"


def test_an_expression_survives_pickling() -> None:
    parsed = parse("a > 5 and b like 'x%'")
    copy = pickle.loads(pickle.dumps(parsed))
    assert copy == parsed
    assert isinstance(copy, Expression)
    assert copy.columns == parsed.columns
    assert len({copy, parsed}) == 1
