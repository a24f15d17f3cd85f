"""What a MERGE is asked to do: its condition and its clauses, as values.

Clauses of one kind are tried in the order given; the first whose condition holds decides what becomes of a row.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lakeseal import clock
from lakeseal.errors import InvalidArgument

Kind = Literal["matched", "not_matched", "not_matched_by_source"]
Action = Literal["update", "delete", "insert"]


class Clause(Struct, frozen=True, kw_only=True):
    kind: Kind
    action: Action
    condition: str | None = None
    values: Mapping[str, Any] | None = None
    """Columns to SQL text or constants; None means all columns, by name ("*")."""

    @property
    def name(self) -> str:
        return f"when_{self.kind}_{self.action}"

    def to_json(self) -> dict[str, str]:
        """As the history shows it."""
        condition = {} if self.condition is None else {"predicate": self.condition}
        return {**condition, "actionType": self.action}


class MergeCommand(Struct, frozen=True, kw_only=True):
    on: str
    clauses: tuple[Clause, ...]
    merge_schema: bool = False
    """Whether clauses add columns to the table that only the source has."""
    source_names: tuple[str, ...] = ("s", "source")
    target_names: tuple[str, ...] = ("t", "target")
    user_metadata: str | None = None
    now: datetime.datetime = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        if not self.clauses:
            raise InvalidArgument(
                "The merge has no clause", hint="Say what to do: when_matched_update, when_not_matched_insert, …"
            )
        for kind in ("matched", "not_matched", "not_matched_by_source"):
            unconditional = [clause.condition is None for clause in self.of(kind)]
            if any(unconditional[:-1]):
                raise InvalidArgument(
                    f"A when_{kind} clause without a condition leaves nothing to the clauses behind it",
                    hint="Put it last, or give it a condition",
                )
        if {name.lower() for name in self.source_names} & {name.lower() for name in self.target_names}:
            raise InvalidArgument("Source and target need different names")

    def of(self, kind: str) -> tuple[Clause, ...]:
        return tuple(clause for clause in self.clauses if clause.kind == kind)

    def worded(self, read: Callable[[Any], Any]) -> MergeCommand:
        """The same, with what `read` makes of each condition and each clause's values."""
        clauses = [
            msgspec.structs.replace(one, condition=read(one.condition), values=read(one.values)) for one in self.clauses
        ]
        return msgspec.structs.replace(self, on=read(self.on), clauses=tuple(clauses))

    @property
    def may_match_often(self) -> bool:
        """Whether several rows of the source may change one row: only where all that may happen is that it goes."""
        matched = self.of("matched")
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
