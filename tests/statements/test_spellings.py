"""A statement is cut into the same parts however it is spelled, and one in a row of others is the same as alone."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from lakeseal.statements.parser import parse
from lakeseal.statements.references import references
from lakeseal.statements.script import split
from lakeseal.statements.statement import Query
from oracles.seeds import case, cases
from oracles.sentences import Sentence, Sentences
from oracles.spelling import PARTS

_KINDS = {
    "insert": "Insert", "replace": "Insert", "partition": "Insert", "update": "UpdateStatement", "delete": "Delete",
    "truncate": "Delete", "merge": "Merge", "query": "Query", "create": "CreateTableStatement", "restore": "Restore",
}  # fmt: skip
_TABLES = {"`delta`": "delta"} | {f'"/t/{name}"': f"`/t/{name}`" for name in "abc"}


def said(seed: int, session: str) -> list[Sentence]:
    with case(seed) as chance:
        made = Sentences(chance, session)
        return [made.next(number) for number in range(4, 34)]


@pytest.mark.parametrize("session", ["default", "double-quotes", "escaped-literals"])
def test_a_statement_has_the_same_parts_in_every_spelling(session: str) -> None:
    quoted = session == "double-quotes"
    for seed in cases(4, 1000):
        with case(seed):
            for one in said(seed, session):
                text, plain = (_at_paths(written) for written in (one.text, one.plain))
                found = parse(text, double_quoted_names=quoted)
                assert type(found).__name__ == _KINDS.get(one.kind, type(found).__name__), text
                assert _parts(found) == _parts(parse(plain, double_quoted_names=quoted)), text
                if isinstance(found, Query):
                    here, there = (references(it, double_quoted_names=quoted) for it in (text, plain))
                    assert [_parts(it.named) for it in here] == [_parts(it.named) for it in there], text


def test_statements_in_a_row_are_what_they_are_alone() -> None:
    for seed in cases(4, 1000):
        with case(seed):
            texts = [one.text for one in said(seed, "default")]
            found = split(";\n".join(text + "\n" for text in texts))
            assert [_words(text) for text in found] == [_words(text) for text in texts]


def _at_paths(text: str) -> str:
    text = re.sub(r"\{([abc])\}", r"delta.`/t/\1`", text)
    return re.sub(r"\{v(\d+)\}", r"\1", re.sub(r"\{([abc])\.path\}", r"/t/\1", text))


def _parts(value: Any) -> Any:
    """All texts in a statement as words."""
    match value:
        case str():
            return _words(value)
        case msgspec.Struct():
            return {name: _parts(getattr(value, name)) for name in value.__struct_fields__}
        case dict():
            return [(_parts(name), _parts(one)) for name, one in value.items()]
        case list() | tuple():
            return [_parts(one) for one in value]
    return value


def _words(text: str) -> list[str]:
    """Without blanks, comments, the letters' case outside of quotes, and the last semicolons; a table is a table."""
    found = [
        part.group().lower() if part.lastgroup == "word" else _TABLES.get(part.group(), part.group())
        for part in PARTS.finditer(text)
        if part.lastgroup not in ("blank", "comment")
    ]
    while found and found[-1] == ";":
        found.pop()
    return found
