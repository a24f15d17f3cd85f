"""A query for DuckDB whose answer is Spark's, in ANSI mode and UTC; what DuckDB would answer otherwise is refused.

DuckDB reads the text and gives its tree; here the tree is looked at node by node. Where only the types of operands
decide, the question is put into the query: `lakeseal_kind(typeof(x))` is known when it is planned. A kind of node that
is not known here is refused, so that a later DuckDB means nothing new by an old text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from lakeseal.errors import InvalidExpression, UnsupportedExpression
from lakeseal.table_sql.duckdb_calls import ARGUMENTS, CALLS, NO, REFUSED_OPERATORS, same_call
from lakeseal.table_sql.duckdb_casts import cast_template
from lakeseal.table_sql.duckdb_kinds import clash
from lakeseal.table_sql.shared_functions import DIFFERENT, INSTEAD, ONLY_WINDOWS, ORDERED

Node = dict[str, Any]
MARK = "lakeseal says: "
HINT = "Write it so that it means the same to both, or give spark=…"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PLAIN = re.compile(
    r"-?[0-9]{1,18}|true|false|[0-9]{4}-[0-9]{2}-[0-9]{2}(?: [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)?"
)
_SMALL = 60
_MIXES = {"OPERATOR_COALESCE": "coalesce", "COMPARE_IN": "IN", "COMPARE_NOT_IN": "NOT IN"}
_PLAIN_OPERATORS = frozenset(("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "STRUCT_EXTRACT"))
_PLAIN_CLASSES = frozenset(("COLUMN_REF", "CONJUNCTION", "STAR", "SUBQUERY", "LAMBDA", "LAMBDA_REF"))
_TABLES = frozenset(
    ("BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EMPTY_FROM", "EXPRESSION_LIST", "CTE")
)
_QUERIES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", "RECURSIVE_CTE_NODE"))


def meaning_of(connection: Any, text: str) -> str:
    """The query as it has to be asked."""
    tree = json.loads(_one(connection, "SELECT json_serialize_sql(?::VARCHAR)", text))
    if tree.get("error"):
        raise InvalidExpression(
            f"DuckDB says: {tree.get('error_message')}", hint="Without Spark a query has to be one of DuckDB's, too"
        )
    if len(tree["statements"]) != 1:
        raise InvalidExpression("There must be one statement only", hint="Do one after the other")
    changed = _Meaning(connection).of(tree)
    return str(_one(connection, "SELECT json_deserialize_sql(?::JSON)", json.dumps(changed)))


def _one(connection: Any, query: str, argument: str) -> Any:
    return connection.execute(query, [argument]).fetchone()[0]


class _Meaning:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._ctes: list[Node] = []
        self._templates: dict[str, str] = {}
        self._bare: dict[int, tuple[Node, Node]] = {}
        """What was asked about, without the questions: of the same type, and small."""

    def of(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if not isinstance(value, dict):
            return value
        if "class" in value:
            return self._expression(value)
        kind = value.get("type")
        if not isinstance(kind, str):
            return {name: self.of(one) for name, one in value.items()}
        if kind in _QUERIES:
            return self._query(value)
        if kind in ("ORDER_DEFAULT", "ORDER_ASCENDING", "ORDER_DESCENDING") and "expression" in value:
            return self._ordered(value, frozenset())
        if "query_location" in value and kind not in _TABLES:
            _refuse(kind.replace("_", " "))
        changed = {name: self.of(one) for name, one in value.items()}
        if kind == "EXPRESSION_LIST":
            # Spark counts columns without a name from 1, DuckDB from 0.
            given = changed.get("column_name_alias", [])
            count = len(changed["values"][0])
            names = [*given, *(f"col{n + 1}" for n in range(len(given), count))]
            changed |= {"column_name_alias": names, "expected_names": names}
        return changed

    # Queries

    def _query(self, node: Node) -> Node:
        outer = len(self._ctes)
        own = node.get("cte_map", {}).get("map", [])
        ctes = []
        for one in own:
            ctes.append(self.of(one))
            self._ctes.append(ctes[-1])
        if node["type"] == "RECURSIVE_CTE_NODE" or ("setop_type" in node and "left" not in node):
            _refuse("this form of a query")
        changed = {name: self.of(one) for name, one in node.items() if name not in ("cte_map", "modifiers")}
        changed["cte_map"] = {"map": ctes}
        if node["type"] == "SELECT_NODE":
            self._check_aliases(node, changed)
            for before, after in zip(node["select_list"], changed["select_list"], strict=True):
                if not before.get("alias") and after is not before and before["class"] not in ("COLUMN_REF", "STAR"):
                    after["alias"] = self._shown(before)
        elif node["type"] == "SET_OPERATION_NODE":
            self._check_sides(changed["left"], changed["right"])
        changed["modifiers"] = self._modifiers(node, changed)
        if node["type"] == "SELECT_NODE":
            changed["select_list"] = _stars_of_joins(changed["select_list"], changed["from_table"])
        del self._ctes[outer:]
        return changed

    def _check_aliases(self, node: Node, changed: Node) -> None:
        """An alias that is a column's name, too, is to Spark the alias in an expression of ORDER BY, and to DuckDB the
        column."""
        aliases = {item["alias"].lower(): item for item in node["select_list"] if item["alias"]}
        orders = [order["expression"] for one in node["modifiers"] for order in one.get("orders", [])]
        used: set[str] = set()
        for expression in (one for one in orders if not _is_column(one)):
            used |= _bare_names(expression)
        for name in sorted(used & aliases.keys()):
            item = aliases[name]
            if _is_column(item) and item["column_names"][-1].lower() == name:
                continue
            if self._is_of_table(name, changed):
                _refuse(f"an order by {name}, which is a column and an alias", "the number of the column")

    def _is_of_table(self, name: str, changed: Node) -> bool:
        tree = self._template("SELECT a LIMIT 0")
        own = tree["statements"][0]["node"]
        own["select_list"][0]["column_names"] = [name]
        own["from_table"] = changed["from_table"]
        own["cte_map"] = {"map": list(self._ctes)}
        text = _one(self._connection, "SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))
        try:
            self._connection.execute(f"DESCRIBE {text}")
        except Exception as error:
            # One that is in two of the tables is a column, too.
            return "ambiguous" in str(error).lower()
        return True

    def _ordered(self, order: Node, names: frozenset[str]) -> Node:
        """By what is not nested. `names` are those of results, about which no question can be put in here."""
        by = self.of(order["expression"])
        is_name = by["class"] == "COLUMN_REF" and by["column_names"][0].lower() in names
        if by["class"] not in ("CONSTANT", "STAR") and not is_name:
            by = self._not_nested(by)
        return {**order, "expression": by}

    def _not_nested(self, node: Node) -> Node:
        return self._guarded(node, [node], "lakeseal_kind(typeof(a)) = 'o'", "an order of nested values")

    def _modifiers(self, node: Node, changed: Node) -> list[Node]:
        """How the result is ordered and limited."""
        names = frozenset(item["alias"].lower() for item in changed.get("select_list", []) if item["alias"])
        kinds = [one["type"] for one in node["modifiers"]]
        is_plain = node["type"] == "SELECT_NODE" and "DISTINCT_MODIFIER" not in kinds
        found = []
        for one in node["modifiers"]:
            if one["type"] != "ORDER_MODIFIER":
                found.append(self.of(one))
            elif is_plain and not any(o["expression"]["class"] in ("CONSTANT", "STAR") for o in one["orders"]):
                orders = [self._ordered(order, names) for order in one["orders"]]
                used = {o["expression"]["column_names"][0].lower() for o in orders if _is_column(o["expression"])}
                for place, item in enumerate(changed["select_list"]):
                    if item["alias"].lower() in used:
                        changed["select_list"][place] = self._not_nested(item)
                found.append({**one, "orders": orders})
            else:
                if "o" in self._types({**changed, "modifiers": []}):
                    _refuse("an order of nested values")
                found.append({**one, "orders": [{**o, "expression": self.of(o["expression"])} for o in one["orders"]]})
        return found

    def _check_sides(self, left: Node, right: Node) -> None:
        one, two = self._types(left), self._types(right)
        for first, second in zip(one, two, strict=False):
            if "n" not in (first, second) and clash(first + second):
                _refuse("a set operation over columns of types that Spark and DuckDB bring to another one")

    def _types(self, side: Node) -> list[str]:
        """The kinds of a query's columns."""
        tree = self._template("SELECT * FROM (SELECT 1) AS lakeseal_side LIMIT 0")
        tree["statements"][0]["node"]["cte_map"] = {"map": list(self._ctes)}
        tree["statements"][0]["node"]["from_table"]["subquery"]["node"] = side
        text = _one(self._connection, "SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))
        try:
            found = self._connection.execute(f"DESCRIBE {text}").fetchall()
        except Exception:
            _refuse("a set operation that reads columns of a query around it")
        kinds = [_one(self._connection, "SELECT lakeseal_kind(?::VARCHAR)", row[1]) for row in found]
        for place, item in enumerate(side.get("select_list", [])):
            if place < len(kinds) and item["class"] == "CONSTANT" and item["value"].get("is_null"):
                kinds[place] = "n"
        return kinds

    def _shown(self, node: Node) -> str:
        """How DuckDB calls a column that has no name."""
        tree = self._template("SELECT 1")
        tree["statements"][0]["node"]["select_list"] = [node]
        text = str(_one(self._connection, "SELECT json_deserialize_sql(?::JSON)", json.dumps(tree)))
        return text.removeprefix("SELECT ").removesuffix(";")

    # Expressions

    def _expression(self, node: Node) -> Node:
        kind = node["class"]
        if kind == "CONSTANT":
            return self._constant(node)
        if kind == "FUNCTION":
            self._check_name(node)
        changed = {name: self.of(one) for name, one in node.items()}
        match kind:
            case "CAST":
                return self._cast(changed)
            case "FUNCTION":
                return self._call(changed)
            case "WINDOW":
                return self._window(changed)
            case "COMPARISON":
                return self._mixed(changed, (changed["left"], changed["right"]), "a comparison", texts=True)
            case "BETWEEN":
                bounds = (changed["input"], changed["lower"], changed["upper"])
                return self._mixed(changed, bounds, "BETWEEN", texts=True)
            case "CASE":
                values = [check["then_expr"] for check in changed["case_checks"]]
                return self._mixed(changed, [*values, changed["else_expr"]], "CASE")
            case "OPERATOR":
                return self._operator(changed)
            case _ if kind in _PLAIN_CLASSES:
                return changed
        _refuse(kind.replace("_", " "))

    def _constant(self, node: Node) -> Node:
        """DuckDB writes 2e0 as 2.0, which is a decimal."""
        value = node["value"]
        if value.get("is_null") or value["type"]["id"] != "DOUBLE":
            return node
        tree = self._template(f"SELECT CAST('{float(value['value'])!r}' AS DOUBLE)")
        return {**tree["statements"][0]["node"]["select_list"][0], "alias": node["alias"]}

    def _operator(self, node: Node) -> Node:
        kind, children = node["type"], node["children"]
        if kind in _MIXES:
            return self._mixed(node, children, _MIXES[kind], texts=kind != "OPERATOR_COALESCE")
        if kind == "ARRAY_EXTRACT":
            return self._guarded(
                node, children[:1], "typeof(a) NOT LIKE 'STRUCT(%' AND typeof(a) NOT LIKE 'MAP(%'",
                "a place in a list, which Spark counts from 0 and DuckDB from 1",
            )  # fmt: skip
        if kind not in _PLAIN_OPERATORS:
            _refuse(kind.replace("_", " ").lower())
        return node

    def _check_name(self, node: Node) -> None:
        name = node["function_name"].lower()
        if name in DIFFERENT or name in ONLY_WINDOWS or (name in ORDERED and node["order_bys"]["orders"]):
            _refuse(f"the function {name}", INSTEAD.get(name))
        if node.get("is_operator") and name in REFUSED_OPERATORS and len(node["children"]) > 1:
            _refuse(f"the operator {name}", REFUSED_OPERATORS[name])

    def _call(self, node: Node) -> Node:
        name, children = node["function_name"].lower(), node["children"]
        if name in ("~~", "!~~", "like_escape", "not_like_escape"):
            return self._like(node, name, children)
        if name in ("greatest", "least", "nullif"):
            return self._mixed(node, children, name)
        if name == "concat":
            return self._concatenated(node, children)
        if name in ARGUMENTS:
            # The question goes into the argument: beside an aggregate, a column of its own would have to be grouped.
            condition, what = ARGUMENTS[name]
            node["children"] = [self._guarded(one, [one], condition, what) for one in children[:1]] + children[1:]
            return node
        found = CALLS.get((name, len(children))) or CALLS.get((name, None))
        if found is not None:
            template = found(children)
            if template == NO:
                # Said here: to DuckDB an error is a null of no type, and whatever is made of one need not be computed.
                _refuse(f"this form of {name}", INSTEAD.get(name))
            return self._filled(template, children, node)
        problem = same_call(name, children)
        if problem is not None:
            _refuse(problem)
        return node

    def _like(self, node: Node, name: str, children: Sequence[Node]) -> Node:
        pattern = _text_of(children[1])
        if pattern is None:
            _refuse("a pattern that is no text in quotes")
        if name.endswith("escape"):
            escape = _text_of(children[2])
            if not escape or len(escape) != 1 or re.search(f"{re.escape(escape)}(?![%_{re.escape(escape)}])", pattern):
                _refuse("this ESCAPE")
        return self._guarded(node, children[:1], "lakeseal_kind(typeof(a)) NOT IN ('s', 'n')", "LIKE for another type")

    def _concatenated(self, node: Node, children: list[Node]) -> Node:
        """By the operator, to which a null is not empty."""
        joined = children[0]
        for one in children[1:]:
            both = {**node, "function_name": "||", "is_operator": True, "children": [joined, one], "alias": ""}
            joined = self._call(both)
        if len(children) == 1:
            joined = self._filled(
                "CASE WHEN lakeseal_kind(typeof(a)) = 's' THEN a ELSE lakeseal_no END", children, node
            )
        return {**joined, "alias": node["alias"]}

    def _window(self, node: Node) -> Node:
        name = node["function_name"].lower()
        if name in DIFFERENT or name == "count_if":
            _refuse(f"the function {name} over a window", INSTEAD.get(name))
        if name in ARGUMENTS and node["children"]:
            condition, what = ARGUMENTS[name]
            first, *others = node["children"]
            node["children"] = [self._guarded(first, [first], condition, what), *others]
        return node

    def _cast(self, node: Node) -> Node:
        target, child = node["cast_type"]["id"], node["child"]
        text = _text_of(child)
        if target == "INTERVAL" and child["class"] != "CONSTANT":
            _refuse("a cast to INTERVAL")
        if target == "INTERVAL" or (target == "BOOLEAN" and text in ("t", "f")):
            return node
        if target == "TIMESTAMP":
            node["cast_type"] = {"id": "TIMESTAMP WITH TIME ZONE", "type_info": None}
        template = cast_template(target, node["try_cast"])
        if template is None:
            return node
        return self._filled(template, [child], node)

    def _template(self, text: str) -> Any:
        if text not in self._templates:
            self._templates[text] = _one(self._connection, "SELECT json_serialize_sql(?::VARCHAR)", text)
        return json.loads(self._templates[text])

    # Questions about types

    def _mixed(self, node: Node, values: Sequence[Node], what: str, *, texts: bool = False) -> Node:
        """`texts`: a text in quotes that both read alike takes the other's type."""
        some = [one for one in values if not _is_neutral(one, texts)]
        if len(some) < 2 or all(one["class"] == "SUBQUERY" for one in some):
            return node
        some = list({json.dumps(_bare(one)): one for one in some}.values())
        if len(some) > len(_LETTERS):
            _refuse(f"{what} of more than {len(_LETTERS)} expressions")
        kinds = " || ".join(f"lakeseal_kind(typeof({_LETTERS[n]}))" for n in range(len(some)))
        return self._guarded(node, some, f"lakeseal_clash({kinds})", f"{what} of a text or a number with another type")

    def _guarded(self, node: Node, asked: Sequence[Node], condition: str, what: str) -> Node:
        message = (MARK + what).replace("'", "''")
        template = f"CASE WHEN {condition} THEN error('{message}') ELSE lakeseal_itself END"
        return self._filled(template, asked, node)

    def _filled(self, template: str, children: Sequence[Node], node: Node) -> Node:
        """The template with `a`, `b` … for the children, `lakeseal_itself` for the node."""
        template = template.replace("lakeseal_no", f"error('{MARK}{node.get('function_name', 'this')} of these types')")
        tree = self._template(f"SELECT {template}")
        names: dict[str, Node] = dict(zip(_LETTERS, map(_unnamed, children), strict=False))
        names["lakeseal_itself"] = _unnamed(node)

        def filled(value: Any) -> Any:
            if isinstance(value, list):
                return [filled(one) for one in value]
            if not isinstance(value, dict):
                return value
            if value.get("class") == "COLUMN_REF" and len(value["column_names"]) == 1:
                return names.get(value["column_names"][0], value)
            if value.get("class") == "FUNCTION" and value["function_name"] == "typeof":
                return {**value, "children": [self._typed(filled(one)) for one in value["children"]]}
            if value.get("class") == "CAST" and value["cast_type"]["id"] == "HUGEINT" and "cast_type" in node:
                value = {**value, "cast_type": node["cast_type"], "try_cast": node["try_cast"]}
            return {name: filled(one) for name, one in value.items()}

        found: Node = filled(tree["statements"][0]["node"]["select_list"][0])
        found = {**found, "alias": node["alias"]}
        if template.endswith("ELSE lakeseal_itself END"):
            self._bare[id(found)] = (found, self._stripped(node))
        return found

    def _typed(self, node: Node) -> Node:
        """Something of the same type. The node itself, if that is small: it may be what rows are grouped by."""
        return node if _size(node) < _SMALL else self._stripped(node)

    def _stripped(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._stripped(one) for one in value]
        if not isinstance(value, dict):
            return value
        if id(value) in self._bare:
            return self._bare[id(value)][1]
        return {name: self._stripped(one) for name, one in value.items()}


def _stars_of_joins(items: list[Node], table: Node) -> list[Node]:
    """Behind JOIN … USING, Spark begins `*` with these columns; in DuckDB they stay where the left side has them."""
    if not any(item["class"] == "STAR" for item in items) or not _has_using(table):
        return items
    names = table.get("using_columns", [])
    is_one = table["type"] == "JOIN" and names and not _has_using(table["left"]) and not _has_using(table["right"])
    found = []
    for item in items:
        if item["class"] != "STAR":
            found.append(item)
            continue
        if not is_one or any(item.get(part) for part in ("relation_name", "exclude_list", "replace_list", "expr")):
            _refuse("* behind a join by columns of one name", "the names of the columns")
        keys = [
            {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "query_location": 0, "column_names": [name]}
            for name in names
        ]
        found += [*keys, {**item, "exclude_list": list(names)}]
    return found


def _has_using(table: Node) -> bool:
    if table["type"] != "JOIN":
        return False
    is_own = bool(table.get("using_columns")) or table.get("ref_type") == "NATURAL"
    return is_own or _has_using(table["left"]) or _has_using(table["right"])


def _bare_names(value: Any) -> set[str]:
    """Of columns that no table's name stands before."""
    if isinstance(value, list):
        return set().union(*map(_bare_names, value))
    if not isinstance(value, dict) or value.get("class") == "SUBQUERY":
        return set()
    if value.get("class") == "COLUMN_REF":
        return {value["column_names"][0].lower()} if len(value["column_names"]) == 1 else set()
    return set().union(*map(_bare_names, value.values()))


def _is_column(node: Node) -> bool:
    return bool(node["class"] == "COLUMN_REF")


def _unnamed(node: Node) -> Node:
    return node if not node["alias"] else {**node, "alias": ""}


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    if not isinstance(value, dict):
        return 0
    return ("class" in value) + sum(map(_size, value.values()))


def _text_of(node: Node) -> str | None:
    if node["class"] != "CONSTANT" or node["value"].get("is_null") or node["value"]["type"]["id"] != "VARCHAR":
        return None
    return str(node["value"]["value"])


def _is_neutral(node: Node, texts: bool) -> bool:
    if node["class"] == "CONSTANT" and node["value"].get("is_null"):
        return True
    text = _text_of(node)
    return texts and text is not None and _PLAIN.fullmatch(text) is not None


def _bare(node: Any) -> Any:
    """Without its value and place, for a constant: what counts is its type."""
    return {"type": node["value"]["type"]} if node["class"] == "CONSTANT" else node


def _refuse(what: str, instead: str | None = None) -> NoReturn:
    raise UnsupportedExpression(
        f"Without Spark a query must mean the same to DuckDB, and {what} does not",
        hint=f"Use {instead}, or give spark=…" if instead else HINT,
    )
