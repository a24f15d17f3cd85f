"""Which tables a query or a condition names, and where in its text, so that views can be put in their place.

A table stands behind FROM and JOIN, behind a comma of a FROM clause, and behind TABLE where a query begins; names of
common table expressions are none, where they are to be seen. The text is read by Spark's rules of what follows what,
as far as that takes: everything else in it is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from lakeseal.errors import InvalidExpression
from lakeseal.expr.render import quote_name
from lakeseal.statements.cutting import Cutter
from lakeseal.statements.statement import StatedName, TableChanges

_QUERIES = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"))
_SETS = frozenset(("UNION", "EXCEPT", "MINUS", "INTERSECT"))
_ENDS_FROM = frozenset(
    (
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "SELECT",
        "QUALIFY",
    )
)
# What may follow a table without being another name for it.
_NO_ALIAS = _ENDS_FROM | _SETS | frozenset(
    ("JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "LATERAL", "ON", "USING",
     "PIVOT", "UNPIVOT", "TABLESAMPLE", "INSERT", "MAP", "REDUCE", "SET", "WHEN", "FOR", "VERSION", "TIMESTAMP",
     "SYSTEM_TIME", "SYSTEM_VERSION", "VALUES", "WITH", "MATCH_CONDITION", "ASOF", "POSITIONAL")
)  # fmt: skip
_CHANGES = ("table_changes", "table_changes_by_path")


class Reference(Struct, frozen=True, kw_only=True):
    start: int
    end: int
    """From where to where the table is named, with its version."""
    named: StatedName | TableChanges
    alias_at: int | None = None
    """Where another name for it must be put, for columns to be called by it; None where there is one."""


class _Frame:
    """What is between two parentheses."""

    def __init__(self, outer: _Frame | None, *, expects: bool, is_query: bool) -> None:
        self.ctes: frozenset[str] = frozenset() if outer is None else outer.ctes
        self.is_query = is_query
        self.expects = expects
        """Whether a table comes next."""
        self.is_bare = False
        """Whether it stands behind TABLE, where it can have no other name."""
        self.in_from = expects
        self.in_with = False
        self.recursive = False
        self.defines: str | None = None
        """The name of a common table expression that is being defined by the parentheses that come next."""


def references(text: str, *, double_quoted_names: bool = False, case_sensitive: bool = False) -> list[Reference]:
    """In the order in which they stand."""
    return _Finder(text, double_quoted_names, case_sensitive).find()


def replaced(
    text: str,
    found: Sequence[Reference],
    names: Mapping[int, str],
    *,
    braces: bool = False,
    quote: Callable[[str], str] = quote_name,
) -> str:
    """The text with other names for tables, by where these start. `braces`: for who formats it, all others doubled."""
    parts, at = [], 0

    def kept_text(piece: str) -> str:
        return piece.replace("{", "{{").replace("}", "}}") if braces else piece

    def kept(until: int) -> str:
        return kept_text(text[at:until])

    for one in found:
        name = names.get(one.start)
        if name is None:
            continue
        parts += [kept(one.start), name]
        at = one.end
        if one.alias_at is not None:
            parts += [kept(one.alias_at), f" AS {kept_text(quote(_alias(one.named)))} "]
            at = one.alias_at
    return "".join([*parts, kept(len(text))])


def _alias(named: StatedName | TableChanges) -> str:
    return named.parts[-1] if isinstance(named, StatedName) else _CHANGES[0]


class _Finder(Cutter):
    def __init__(self, text: str, double_quoted_names: bool, case_sensitive: bool) -> None:
        super().__init__(text, double_quoted_names)
        self._case_sensitive = case_sensitive
        self._found: list[Reference] = []

    def find(self) -> list[Reference]:
        frames = [_Frame(None, expects=False, is_query=self._begins_query())]
        while self.token.kind != "end":
            frame = frames[-1]
            if self.takes_op("("):
                frames.append(self._opened(frame))
            elif self.takes_op(")"):
                if len(frames) > 1:
                    frames.pop()
                    self._closed(frames[-1])
            elif frame.expects and self.name_at(0) is not None and not self._is_word():
                frame.expects = False
                self._relation(frame)
            else:
                self._step(frame)
        return self._found

    def _opened(self, frame: _Frame) -> _Frame:
        inner = _Frame(frame, expects=False, is_query=self._begins_query())
        if frame.expects and not inner.is_query:
            # A join in parentheses, or more of them.
            inner.expects = inner.in_from = inner.is_query = True
        if frame.defines is not None and frame.recursive:
            inner.ctes |= {frame.defines}
        frame.expects = False
        return inner

    def _closed(self, frame: _Frame) -> None:
        if frame.defines is not None:
            frame.ctes |= {frame.defines}
            frame.defines = None

    def _begins_query(self) -> bool:
        return self.token.keyword in _QUERIES

    def _is_word(self) -> bool:
        """Whether a table is still to come behind this word."""
        return self.token.keyword in ("LATERAL", "ONLY", "STREAM") and not self.is_op(1, ".")

    def _step(self, frame: _Frame) -> None:
        word = "" if self._is_field() else self.token.keyword
        if frame.in_with and self._defines(frame):
            return
        if word == "WITH" and frame.is_query and not frame.in_from:
            frame.in_with = True
            frame.recursive = self.tokens[min(self.at + 1, len(self.tokens) - 1)].keyword == "RECURSIVE"
            self.skip(2 if frame.recursive else 1)
            return
        if word == "SELECT":
            frame.is_query, frame.in_with, frame.in_from = True, False, False
        elif word == "FROM" and frame.is_query and not self._is_distinct_from():
            frame.expects = frame.in_from = True
            frame.in_with = False
        elif word == "JOIN" and frame.is_query:
            frame.expects = frame.in_from = True
        elif word == "LATERAL" and self.tokens[min(self.at + 1, len(self.tokens) - 1)].keyword == "VIEW":
            frame.in_from = False  # no table comes behind it, only columns
            self.skip(1)
        elif word in _SETS or word in _ENDS_FROM:
            frame.in_from = frame.expects = False
        elif word == "TABLE" and frame.is_query and self._is_query_start():
            frame.expects = frame.is_bare = True
        elif self.is_op(0, ",") and frame.in_from:
            frame.expects = True
        elif self.is_op(0, "|") and self.is_op(1, ">"):
            frame.in_from = frame.expects = False
        self.skip(1)

    def _defines(self, frame: _Frame) -> bool:
        """`name AS (`, `name (columns) AS (`: goes on to the parentheses, and notes whose they are."""
        name, start = self.name_at(0), self.at
        if name is None or self.token.keyword in _QUERIES:
            return False
        self.skip(1)
        if self.is_op(0, "("):
            self._parentheses()
        if self.takes("MAX"):
            self.skip(2)  # RECURSION LEVEL, then a number
            self.skip(1)
        if not self.takes("AS") or not self.is_op(0, "("):
            self.at = start
            return False
        frame.defines = self._folded(name)
        return True

    def _is_distinct_from(self) -> bool:
        return self.at > 0 and self.tokens[self.at - 1].keyword == "DISTINCT"

    def _is_query_start(self) -> bool:
        before = self.tokens[self.at - 1] if self.at else None
        return (
            before is None
            or before.text in ("(", ")")
            or before.keyword in (*_SETS, "ALL", "DISTINCT", "AS", "EXPLAIN")
        )

    def _relation(self, frame: _Frame) -> None:
        first = self.at
        parts = self.names()
        if self.is_op(0, "("):
            if len(parts) == 1 and parts[0].lower() in _CHANGES:
                self._changes(first, by_path=parts[0].lower() == _CHANGES[1])
            return
        self.at = first
        if len(parts) > 3 or (len(parts) == 1 and self._folded(parts[0]) in frame.ctes):
            self.skip(2 * len(parts) - 1)
            return
        table = self.table(travels=True)
        self._add(first, table, is_bare=frame.is_bare)
        frame.is_bare = False

    def _add(self, first: int, named: StatedName | TableChanges, *, is_bare: bool = False) -> None:
        start, end = self.tokens[first].start, self.tokens[self.at - 1].end
        if self.takes("TABLESAMPLE"):
            self._parentheses()
            if self.takes("REPEATABLE"):
                self._parentheses()
        has_alias = self.sees("AS") or (self.name_at(0) is not None and self.token.keyword not in _NO_ALIAS)
        alias_at = None if has_alias or is_bare else self.tokens[self.at - 1].end
        self._found.append(Reference(start=start, end=end, named=named, alias_at=alias_at))

    def _changes(self, first: int, *, by_path: bool) -> None:
        self.expect_op("(")
        text = self.string()
        table = StatedName.at_path(text) if by_path else _name_in(text, self.double_quoted_names)
        self.expect_op(",")
        start = self._bound()
        end = self._bound() if self.takes_op(",") else None
        self.expect_op(")")
        self._add(first, TableChanges(table=table, start=start, end=end))

    def _bound(self) -> int | str:
        text = self.cut_before(commas=True)
        return int(text) if text.isdecimal() and text.isascii() else text

    def _folded(self, name: str) -> str:
        return name if self._case_sensitive else name.lower()


def _name_in(text: str, double_quoted_names: bool) -> StatedName:
    """A table that a text names."""
    reader = Cutter(text, double_quoted_names)
    try:
        name = reader.table()
        reader.expect_end()
    except InvalidExpression as error:
        raise InvalidExpression(
            f"{text[:100]!r} names no table: {error.message}",
            hint="Write 'schema.table', or 'delta.`/path`'",
        ) from None
    return name
