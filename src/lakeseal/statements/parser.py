"""`parse`: the text of one statement as a value.

Conditions, values and queries are cut out of the text and never written anew (see `cutting`). What is none of the
statements that Lakeseal does itself is a `Query`: rows that somebody else plans, with the tables of ours that
`references` finds in it.
"""

from __future__ import annotations

from lakeseal.errors import InvalidExpression
from lakeseal.statements.changes import ChangeCutter
from lakeseal.statements.definitions import DefinitionReader
from lakeseal.statements.statement import PATH_SCHEMAS, Query, Statement
from lakeseal.statements.upkeep import UpkeepReader


def parse(text: str, *, double_quoted_names: bool = False, lenient: bool = False) -> Statement:
    """`double_quoted_names`: the session takes what is in double quotes for a name. `lenient`: what cannot be read, and
    names no path, is a `Query`, for another reader to say better what is wrong with it."""
    reader: _Reader | None = None
    try:
        reader = _Reader(text, double_quoted_names)
        return reader.statement()
    except InvalidExpression:
        if lenient and (reader is None or not reader.names_a_path()):
            return Query(text=text)
        raise


class _Reader(DefinitionReader, ChangeCutter, UpkeepReader):
    def statement(self) -> Statement:
        if self.token.kind == "end":
            self.refuse("There is no statement here")
        found = self.upkeep() or self.definition() or self.change()
        if found is not None:
            return found
        self.at = 0
        text = self.cut_before()
        self.expect_end()
        return Query(text=text)

    def names_a_path(self) -> bool:
        """Whether a table by its path is anywhere in it."""
        return any(
            token.text.lower() in PATH_SCHEMAS
            and dot.text == "."
            and (name.kind == "quoted" or (name.kind == "string" and self.double_quoted_names))
            for token, dot, name in zip(self.tokens, self.tokens[1:], self.tokens[2:], strict=False)
        )
