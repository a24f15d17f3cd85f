"""One call of a function, while it is bound: what those who bind functions by their names work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never

from msgspec import Struct

from lakeseal.expr.bound import Bound
from lakeseal.expr.coercion import INTEGRAL
from lakeseal.expr.row_functions import ROW, ROW_WITH_NULLS
from lakeseal.protocol.schema import LONG, STRING, VOID, DataType

if TYPE_CHECKING:
    from lakeseal.expr.bind import Binder


class BoundCall(Struct, frozen=True):
    binder: Binder
    name: str
    args: list[Bound]
    position: int

    def string(self, index: int) -> Bound:
        return self.expect(index, STRING)

    def expect(self, index: int, target: DataType) -> Bound:
        return self.binder.expect(self.args[index], target, self.position)

    def exact(self, index: int, target: DataType) -> Bound:
        """An argument that Spark does not cast to what the function takes, but for a whole number to a long one."""
        found = self.args[index].type
        if found not in (target, VOID) and not (target == LONG and found in INTEGRAL):
            self.unsupported(f"{self.name} of {found}")
        return self.expect(index, target)

    def constant(self, index: int, target: DataType) -> Any:
        """The value of an argument that must be constant; None if it is NULL."""
        arg = self.expect(index, target)
        if not arg.is_literal:
            self.unsupported(f"{self.name} with an argument {index + 1} that is not constant")
        return arg.value

    def make(self, op: str, data_type: DataType, *args: Bound, **kwargs: Any) -> Bound:
        return self.binder.make(op, data_type, args, **kwargs)

    def row(
        self,
        gives: DataType,
        compute: str | Callable[..., Any],
        *args: Bound,
        raises: bool = False,
        with_nulls: bool = False,
    ) -> Bound:
        """One row at a time, by the function of that name or by a function that can be pickled."""
        op = ROW_WITH_NULLS if with_nulls else ROW
        return self.make(op, gives, *args, nullable=True, raises=raises, option=compute)

    def null(self, data_type: DataType) -> Bound:
        return self.binder.null(data_type)

    def unsupported(self, what: str) -> Never:
        self.binder.unsupported(what, self.position)


class Function(Struct, frozen=True):
    bind: Callable[[BoundCall], Bound]
    least: int
    most: int | None

    @classmethod
    def table(cls, *rows: tuple[str, Callable[[BoundCall], Bound], int, int | None]) -> dict[str, Function]:
        return {name: cls(bind, least, most) for names, bind, least, most in rows for name in names.split()}
