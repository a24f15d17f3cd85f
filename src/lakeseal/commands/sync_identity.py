"""ALTER COLUMN … SYNC IDENTITY: an identity column goes on behind the values that writers have brought themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct

from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commit.proposal import Operation
from lakeseal.errors import InvalidArgument, TableNotFound
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.identity import IdentityColumn, identity_of, with_marks


class SyncIdentityCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    name: str
    farthest: Callable[[Snapshot, IdentityColumn], int | None]
    """The largest value of a column that counts up, or the smallest of one that counts down; None if there is none."""

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, snapshot = context.txn, context.txn.snapshot
        if snapshot is None:
            raise TableNotFound("There is no table here")
        field = snapshot.schema.field(self.name)
        column = None if field is None else identity_of(field)
        if column is None:
            raise InvalidArgument("The table has no identity column of this name", column=self.name)
        txn.read_whole_table()
        found = self.farthest(snapshot, column)
        mark = None if found is None else column.mark_behind(found)
        if mark is not None:
            txn.update_metadata(with_marks(txn.metadata, {column.name: mark}))
        operation = Operation(name="SYNC IDENTITY", parameters={"columnName": column.name})
        nothing = None if mark is not None and column.farther(mark) else "the column is behind all of its values"
        return PlannedChange(finish=lambda _: ([], operation), nothing=nothing)
