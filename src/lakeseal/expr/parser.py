"""SQL text to a tree, by Spark's grammar of expressions.

Written by hand because the answer must never differ from Spark's: general SQL parsers read `'it''s'`, `a | b & c`,
`x IN (1) = true` or a surplus argument otherwise than Spark does, and say nothing.

One loop climbs by how tightly operators bind. Nesting is limited to `MAX_DEPTH` levels; chains of AND, OR and `||` are
flat and may be as long as the text. What is SQL but no expression over one row (subqueries, aggregates, windows,
parameters, `*`) is refused by name.
"""

from __future__ import annotations

from lakeseal.errors import InvalidExpression
from lakeseal.expr.cursor import Cursor
from lakeseal.expr.lexer import Token, place
from lakeseal.expr.numbers import number_literal
from lakeseal.expr.syntax import (
    AND,
    BINDING,
    COMPARISON,
    NOT,
    OR,
    PREDICATE,
    UNARY,
    Call,
    Case,
    Cast,
    Column,
    Lambda,
    Literal,
    Member,
    Node,
    Subscript,
    Unit,
    Variable,
    walk,
)
from lakeseal.protocol.schema import BOOLEAN, STRING, VOID, DataType

MAX_DEPTH = 100
_MAX_CALLS = 2 * MAX_DEPTH

_CONSTANTS: dict[str, tuple[bool | None, DataType]] = {
    "NULL": (None, VOID),
    "TRUE": (True, BOOLEAN),
    "FALSE": (False, BOOLEAN),
}
_NEVER_A_NAME = frozenset(("AND", "OR", "WHEN", "THEN", "ELSE", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "BETWEEN", "AS"))
_FIELDS = {
    **{name: name for name in ("year", "quarter", "month", "day", "hour", "minute")},
    **{"week": "weekofyear", "doy": "dayofyear", "dow": "dayofweek", "years": "year", "months": "month", "days": "day"},
}
_WITH_UNIT = ("dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff", "timediff")
_FLAT = ("and", "or", "||")
_SHIFTS = {"<<": "shiftleft", ">>": "shiftright", ">>>": "shiftrightunsigned"}
_OPERATORS = {"==": "=", "!=": "<>", "!<": ">=", "!>": "<="}


def parse_text(text: str) -> Node:
    try:
        return _Parser(text).whole()
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> InvalidExpression:
    return InvalidExpression(
        f"The expression is nested deeper than {MAX_DEPTH} levels",
        hint="Remove parentheses that are not needed, or use IN or CASE for long lists of choices",
    )


class _Parser(Cursor):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.calls = 0
        self.scopes: list[tuple[str, ...]] = []
        """Of lambdas, their parameters in lower case."""

    def whole(self) -> Node:
        if self.at_end():
            raise InvalidExpression("The expression is empty", hint="Write a condition such as: id > 5")
        node = self.expression(0)
        if not self.at_end():
            self.unexpected("the end of the expression")
        if max(depth for _, depth in walk(node)) > MAX_DEPTH:
            raise _too_deep()
        return node

    def expression(self, binding: int) -> Node:
        """An operand followed by all operators that bind at least as tightly as `binding`."""
        self.calls += 1
        if self.calls > _MAX_CALLS:
            raise _too_deep()
        left = self.prefix(binding)
        tightest = UNARY
        while True:
            token = self.token
            operator = self.infix()
            own = (
                PREDICATE if operator == "predicate" else {"or": OR, "and": AND}.get(operator, BINDING.get(operator, 0))
            )
            if not binding <= own <= tightest or own == 0:
                break
            if operator == "predicate":
                left = self.predicate(left)
                # A predicate is no operand: `x IN (1) = true` is not SQL.
                tightest = AND
                continue
            operands = [left]
            while self.infix() == operator:
                self.advance()
                operands.append(self.expression(own + 1))
                if operator not in _FLAT:
                    break
            left = Call(_SHIFTS.get(operator, operator), _flat(operator, operands), token.start)
        self.calls -= 1
        return left

    def infix(self) -> str:
        """The operator here by its canonical name, "predicate" for IN and its like, or nothing."""
        token = self.token
        if token.kind == "op":
            operator = _OPERATORS.get(token.text, token.text)
            return operator if operator in BINDING else ""
        match token.keyword:
            case "OR" | "AND" | "DIV" as word:
                return word.lower()
            case "IN" | "BETWEEN" | "LIKE" | "ILIKE" | "RLIKE" | "REGEXP" | "IS":
                return "predicate"
            case "NOT" if self.following.keyword in ("IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP"):
                return "predicate"
            case _:
                return ""

    def predicate(self, left: Node) -> Node:
        start = self.token.start
        negated = self.take_word("NOT")
        token = self.advance()
        match token.keyword:
            case "IN":
                node: Node = Call("in", (left, *self.in_list()), start)
            case "BETWEEN":
                low = self.expression(COMPARISON)
                self.expect_word("AND")
                node = Call("between", (left, low, self.expression(COMPARISON)), start)
            case "IS":
                negated = self.take_word("NOT")
                node = self.is_predicate(left, start)
            case "RLIKE" | "REGEXP":
                node = Call("rlike", (left, self.expression(COMPARISON)), start)
            case word:
                several = self.at_word("ANY", "SOME", "ALL") and self.following.text == "("
                node = self.like(left, word.lower(), start, negated=negated)
                negated = negated and not several
        return Call("not", (node,), start) if negated else node

    def in_list(self) -> tuple[Node, ...]:
        self.expect_op("(")
        self.no_query()
        return self.arguments()

    def is_predicate(self, left: Node, start: int) -> Node:
        token = self.advance()
        match token.keyword:
            case "NULL" | "TRUE" | "FALSE" | "UNKNOWN" as word:
                return Call(f"is {word.lower()}", (left,), start)
            case "DISTINCT":
                self.expect_word("FROM")
                return Call("not", (Call("<=>", (left, self.expression(COMPARISON)), start),), start)
            case _:
                self.index -= 1
                self.unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")

    def like(self, left: Node, name: str, start: int, *, negated: bool) -> Node:
        if self.at_word("ANY", "SOME", "ALL") and self.following.text == "(":
            return self.like_several(left, name, start, negated=negated)
        pattern = self.expression(COMPARISON)
        if not self.take_word("ESCAPE"):
            return Call(name, (left, pattern), start)
        if self.token.kind != "string" or len(self.token.text) != 1:
            self.unexpected("a string of one character after ESCAPE")
        return Call(name, (left, pattern, self.string()), start)

    def like_several(self, left: Node, name: str, start: int, *, negated: bool) -> Node:
        """`LIKE ANY (…)` and `LIKE ALL (…)`: NOT is about each of the patterns."""
        op = "and" if self.advance().keyword == "ALL" else "or"
        self.expect_op("(")
        likes: list[Node] = [Call(name, (left, pattern), start) for pattern in self.arguments()]
        parts = [Call("not", (like,), start) for like in likes] if negated else likes
        return parts[0] if len(parts) == 1 else Call(op, tuple(parts), start)

    def prefix(self, binding: int) -> Node:
        token = self.token
        if token.kind == "op":
            return self.prefix_operator(binding)
        if token.kind == "string":
            return self.postfix(self.string())
        if token.kind == "number":
            self.advance()
            return self.postfix(number_literal(token, self.text, negative=False))
        if token.kind == "quoted":
            return self.postfix(self.column())
        if token.kind == "name":
            return self.word(binding)
        self.unexpected("an expression")

    def prefix_operator(self, binding: int) -> Node:
        token = self.advance()
        match token.text:
            case "(":
                self.no_query()
                node = self.expression(0)
                if self.at_op(","):
                    self.unsupported("A row of several values", token)
                self.expect_op(")")
                if self.at_op("->"):
                    self.unsupported("A lambda function", token)
                return self.postfix(node)
            case "-" if self.token.kind == "number":
                return self.postfix(number_literal(self.advance(), self.text, negative=True))
            case "-" | "+" | "~" as sign:
                operand = self.expression(UNARY)
                return Call({"-": "neg", "+": "positive"}.get(sign, sign), (operand,), token.start)
            case "!":
                return self.negation(token, binding)
            case "*":
                self.refuse("*", token, "Name a column")
            case "?" | ":" | "@" | "{":
                self.refuse(f"A parameter ({token.text})", token, "Write the value itself into the expression")
            case _:
                self.index -= 1
                self.unexpected("an expression")

    def negation(self, token: Token, binding: int) -> Node:
        if binding > NOT:
            self.refuse("NOT", token, "Put it in parentheses with its operand")
        return Call("not", (self.expression(NOT),), token.start)

    def word(self, binding: int) -> Node:
        token, after = self.token, self.following
        word = token.keyword
        if word in _CONSTANTS:
            self.advance()
            value, data_type = _CONSTANTS[word]
            return self.postfix(Literal(value, data_type, token.start))
        if word == "NOT":
            self.advance()
            return self.negation(token, binding)
        if word == "CASE" and not (after.kind == "op" and after.text not in ("(", "-", "+", "~")):
            return self.postfix(self.case())
        if after.kind == "string" and word != "INTERVAL":
            return self.postfix(self.typed_literal())
        if word == "INTERVAL" and (after.kind in ("string", "number") or after.text in ("-", "+")):
            return self.interval()
        if word == "SELECT":
            self.refuse("A subquery", token, "Read the other table first and write its values into the expression")
        if after.kind == "op" and after.text == "(":
            return self.postfix(self.call())
        if after.kind == "op" and after.text == "->":
            self.unsupported("A lambda function", token)
        if word in _NEVER_A_NAME:
            self.unexpected("an expression (put the name between backticks if it is a column)")
        return self.postfix(self.column())

    def column(self) -> Node:
        first = self.advance()
        parts = [first.text]
        while self.at_op(".") and self.following.kind in ("name", "quoted"):
            self.advance()
            parts.append(self.advance().text)
        if self.at_op("("):
            self.unsupported(f"The function {'.'.join(parts)}", first)
        if any(first.text.lower() in names for names in self.scopes):
            node: Node = Variable(first.text, first.start)
            for name in parts[1:]:
                node = Member(node, name, first.start)
            return node
        return Column(tuple(parts), first.start)

    def postfix(self, node: Node) -> Node:
        while self.token.kind == "op" or self.at_word("COLLATE"):
            token = self.token
            match token.text:
                case "." if self.following.kind in ("name", "quoted"):
                    self.advance()
                    node = Member(node, self.advance().text, token.start)
                case ".":
                    self.advance()
                    self.unexpected("a field's name")
                case "[":
                    self.advance()
                    node = Subscript(node, self.expression(COMPARISON), token.start)
                    self.expect_op("]")
                case "::":
                    self.advance()
                    node = Cast(node, self.data_type(), position=token.start)
                case ":":
                    self.unsupported("Extraction from a variant or JSON by a colon", token)
                case _ if token.kind == "name":
                    self.unsupported("COLLATE", token)
                case _:
                    break
        return node

    def case(self) -> Node:
        start = self.advance().start
        operand = None if self.at_word("WHEN") else self.expression(0)
        branches = []
        while self.take_word("WHEN"):
            when = self.expression(0)
            self.expect_word("THEN")
            branches.append((when, self.expression(0)))
        if not branches:
            self.unexpected("WHEN")
        default = self.expression(0) if self.take_word("ELSE") else None
        self.expect_word("END")
        return Case(tuple(branches), default, operand, start)

    def call(self) -> Node:
        token = self.advance()
        name = token.text.lower()
        self.expect_op("(")
        match name:
            case "cast" | "try_cast":
                child = self.expression(0)
                self.expect_word("AS")
                node: Node = Cast(child, self.data_type(), name == "try_cast", token.start)
                self.expect_op(")")
                return node
            case "exists":
                self.no_query()
            case "extract":
                return self.extract(token)
            case "position":
                return self.position(token)
            case "overlay":
                return self.overlay(token)
            case "struct":
                return self.struct(token)
            case "trim":
                return self.trim(token)
        if self.at_word("DISTINCT") and self.following.text not in (")", ","):
            self.refuse(f"An aggregate ({name})", token)
        if self.at_op("*"):
            self.refuse(f"{name}(*)", token)
        args = () if self.take_op(")") else self.arguments(substring=name in ("substring", "substr"))
        if len(args) == 3 and name in _WITH_UNIT:
            args = (self.unit(args[0], token), *args[1:])
        if self.at_word("OVER"):
            self.refuse(f"A window function ({name})", token)
        if self.at_word("FILTER", "WITHIN", "IGNORE", "RESPECT"):
            self.refuse(f"An aggregate ({name})", token)
        return Call(name, args, token.start)

    def struct(self, token: Token) -> Node:
        """`struct(a, b + 1, c AS d)` as a `named_struct`: `a`, `col2` and `d`."""
        parts: list[Node] = []
        while not parts or self.take_op(","):
            value = self.expression(0)
            name = _last_name(value) or f"col{len(parts) // 2 + 1}"
            if self.take_word("AS") or self.token.kind in ("name", "quoted"):
                name = self.advance().text
            parts += [Literal(name, STRING, token.start), value]
        self.expect_op(")")
        return Call("named_struct", tuple(parts), token.start)

    def unit(self, node: Node, token: Token) -> Node:
        if not isinstance(node, Column) or len(node.parts) != 1:
            self.unsupported(f"{token.text} with such a unit", token)
        return Unit(node.parts[0].lower(), node.position)

    def arguments(self, *, substring: bool = False) -> tuple[Node, ...]:
        args = [self.argument()]
        while self.take_op(",") or (substring and self.take_word("FROM", "FOR")):
            args.append(self.argument())
        if self.at_op("=>"):
            self.unsupported("An argument by name", self.token)
        self.expect_op(")")
        return tuple(args)

    def argument(self) -> Node:
        start = self.token.start
        parameters = self.parameters()
        if not parameters:
            return self.expression(0)
        names = tuple(name.lower() for name in parameters)
        if len(set(names)) < len(names):
            raise InvalidExpression(f"A lambda has two parameters of one name, at {place(self.text, start)}")
        self.scopes.append(names)
        body = self.expression(0)
        self.scopes.pop()
        return Lambda(parameters, body, start)

    def parameters(self) -> tuple[str, ...]:
        """Those of a lambda, if one begins here; behind them then."""
        ahead = self.tokens[self.index :]
        names = ahead[:1]
        if self.at_op("("):
            end = next((n for n, token in enumerate(ahead) if token.kind == "op" and token.text == ")"), 0)
            names = ahead[1:end:2]
            commas = ahead[2:end:2]
            if len(names) < 2 or any(token.text != "," for token in commas):
                return ()
            ahead = ahead[end:]
        after = ahead[1:2]
        is_lambda = bool(after) and after[0].kind == "op" and after[0].text == "->"
        if not is_lambda or any(token.kind not in ("name", "quoted") for token in names):
            return ()
        self.index = self.tokens.index(after[0], self.index) + 1
        return tuple(token.text for token in names)

    def extract(self, token: Token) -> Node:
        if self.token.kind == "string" and self.following.text == ",":
            return Call("date_part", self.arguments(), token.start)
        field = self.advance().text.lower()
        self.expect_word("FROM")
        source = self.expression(COMPARISON)
        self.expect_op(")")
        if field in ("second", "seconds"):
            return Call("date_part", (Literal(field, STRING, token.start), source), token.start)
        if field not in _FIELDS:  # under another name, or not at all
            return Call("date_part", (Literal(field, STRING, token.start), source), token.start)
        return Call(_FIELDS[field], (source,), token.start)

    def position(self, token: Token) -> Node:
        # `x IN y` would be a predicate here.
        first = self.expression(COMPARISON)
        if self.take_word("IN"):
            args: tuple[Node, ...] = (first, self.expression(COMPARISON))
            self.expect_op(")")
        else:
            self.expect_op(",")
            args = (first, *self.arguments())
        return Call("locate", args, token.start)

    def overlay(self, token: Token) -> Node:
        args = [self.expression(0)]
        while self.take_op(",") or self.take_word("PLACING", "FROM", "FOR"):
            args.append(self.expression(0))
        self.expect_op(")")
        return Call("overlay", tuple(args), token.start)

    def trim(self, token: Token) -> Node:
        side = "both"
        if self.at_word("BOTH", "LEADING", "TRAILING") and self.following.text not in (")", ","):
            side = self.advance().text.lower()
        first = None if self.at_word("FROM") else self.expression(0)
        if self.take_word("FROM"):
            source = self.expression(COMPARISON)
            self.expect_op(")")
            return Call(f"trim {side}", (source,) if first is None else (source, first), token.start)
        if self.at_op(","):
            self.unsupported("trim with two arguments", token)
        self.expect_op(")")
        assert first is not None
        return Call("trim both", (first,), token.start)

    def no_query(self) -> None:
        if self.at_word("SELECT", "WITH", "VALUES") and self.following.kind not in ("op", "end"):
            self.refuse("A subquery", self.token, "Read the other table first and write its values into the expression")


def _last_name(node: Node) -> str | None:
    """What a field of a struct is called that is made of this."""
    match node:
        case Column(parts=parts):
            return parts[-1]
        case Member(name=name) | Variable(name=name):
            return name
        case Subscript(key=Literal(value=str(name))):
            return name
        case _:
            return None


def _flat(operator: str, operands: list[Node]) -> tuple[Node, ...]:
    if operator not in _FLAT:
        return tuple(operands)
    return tuple(
        part
        for operand in operands
        for part in (operand.args if isinstance(operand, Call) and operand.name == operator else (operand,))
    )
