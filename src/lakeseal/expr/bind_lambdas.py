"""How functions bind that call a lambda for each element of an array or a map: `transform`, `exists` and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never

from msgspec import Struct

from lakeseal.expr import coercion
from lakeseal.expr import syntax as sql
from lakeseal.expr.bound import DAY_TIME, Bound
from lakeseal.protocol.schema import BOOLEAN, INTEGER, VOID, ArrayType, DataType, MapType

if TYPE_CHECKING:
    from lakeseal.expr.bind import Binder


class _Call(Struct, frozen=True):
    binder: Binder
    node: sql.Call

    def unsupported(self, what: str) -> Never:
        self.binder.unsupported(f"{self.node.name} {what}", self.node.position)

    def arguments(self, kinds: str) -> list[Any]:
        """Values, bound, and lambdas as they are: `kinds` says which is which, by `v` and `l`."""
        args = self.node.args
        if len(args) != len(kinds) or any(
            isinstance(arg, sql.Lambda) != (kind == "l") for arg, kind in zip(args, kinds, strict=True)
        ):
            self.unsupported("with such arguments")
        return [arg if isinstance(arg, sql.Lambda) else self.binder.bind(arg) for arg in args]

    def array(self, value: Bound) -> ArrayType:
        if not isinstance(value.type, ArrayType):
            self.unsupported(f"of {value.type}")
        return value.type

    def body(self, written: sql.Lambda, *types: DataType, optional: int = 0) -> tuple[Bound, tuple[int, ...]]:
        """The body for parameters of these types, of which the last ones may be left out."""
        if not len(types) - optional <= len(written.parameters) <= len(types):
            self.unsupported(f"with a lambda of {len(written.parameters)} parameters")
        body, keys = self.binder.lambda_body(written, types[: len(written.parameters)])
        if body.type in (VOID, DAY_TIME):
            self.unsupported(f"with a lambda that gives {body.type}")
        return body, keys

    def condition(self, written: sql.Lambda, *types: DataType, optional: int = 0) -> tuple[Bound, tuple[int, ...]]:
        body, keys = self.body(written, *types, optional=optional)
        if body.type != BOOLEAN:
            self.unsupported(f"with a lambda that gives {body.type}")
        return body, keys

    def make(self, gives: DataType, *args: Bound, keys: tuple[int, ...], raises: bool = False) -> Bound:
        raises = raises or any(arg.raises for arg in args)
        op = "aggregate" if self.node.name == "reduce" else self.node.name
        return Bound(op, gives, args, nullable=True, raises=raises, option=keys)


def _transform(call: _Call) -> Bound:
    value, written = call.arguments("vl")
    body, keys = call.body(written, call.array(value).element, INTEGER, optional=1)
    return call.make(ArrayType(body.type), value, body, keys=keys)


def _filter(call: _Call) -> Bound:
    value, written = call.arguments("vl")
    array = call.array(value)
    body, keys = call.condition(written, array.element, INTEGER, optional=1)
    return call.make(ArrayType(array.element), value, body, keys=keys)


def _quantified(call: _Call) -> Bound:
    value, written = call.arguments("vl")
    body, keys = call.condition(written, call.array(value).element)
    return call.make(BOOLEAN, value, body, keys=keys)


def _aggregate(call: _Call) -> Bound:
    value, zero, written, *finish = call.arguments("vvl" if len(call.node.args) == 3 else "vvll")
    if zero.type in (VOID, DAY_TIME):
        call.unsupported(f"that begins with {zero.type}")
    merge, keys = call.body(written, zero.type, call.array(value).element)
    if merge.type != zero.type:
        call.unsupported(f"that begins with {zero.type} and goes on with {merge.type}")
    if not finish:
        finish = [sql.Lambda(("whole",), sql.Variable("whole"))]
    last, of_last = call.body(finish[0], zero.type)
    return call.make(last.type, value, zero, merge, last, keys=(*keys, *of_last))


def _zip_with(call: _Call) -> Bound:
    left, right, written = call.arguments("vvl")
    body, keys = call.body(written, call.array(left).element, call.array(right).element)
    return call.make(ArrayType(body.type), left, right, body, keys=keys)


def _of_map(call: _Call) -> Bound:
    value, written = call.arguments("vl")
    found = value.type
    if not isinstance(found, MapType):
        call.unsupported(f"of {found}")
    name = call.node.name
    by = call.condition if name == "map_filter" else call.body
    body, keys = by(written, found.key, found.value)
    if name == "map_filter":
        return call.make(MapType(found.key, found.value), value, body, keys=keys)
    if name == "transform_values":
        return call.make(MapType(found.key, body.type), value, body, keys=keys)
    if not coercion.is_atomic(body.type):
        call.unsupported(f"with keys of type {body.type}")
    return call.make(MapType(body.type, found.value), value, body, keys=keys, raises=True)


_BY_NAME: dict[str, Callable[[_Call], Bound]] = {
    "transform": _transform,
    "filter": _filter,
    **dict.fromkeys(("exists", "forall"), _quantified),
    **dict.fromkeys(("aggregate", "reduce"), _aggregate),
    "zip_with": _zip_with,
    **dict.fromkeys(("map_filter", "transform_keys", "transform_values"), _of_map),
}
LAMBDA_FUNCTIONS = frozenset(_BY_NAME)


def bind_with_lambdas(binder: Binder, node: sql.Call) -> Bound:
    call = _Call(binder, node)
    bind = _BY_NAME.get(node.name)
    if bind is None:
        call.unsupported("with a lambda")
    return bind(call)
