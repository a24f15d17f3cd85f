"""Several changes to one table as one: what a transaction states bit by bit. Pure.

A file that an earlier change added and a later one removes is never part of the table. Everything else adds up: the
later change was decided on the table as the earlier one left it.
"""

from __future__ import annotations

import msgspec

from lakeseal.commit.proposal import Operation, Proposal
from lakeseal.errors import InvalidArgument, UnsupportedFeature
from lakeseal.protocol.actions import AddFile, RemoveFile
from lakeseal.protocol.data_paths import canonical_path

SEVERAL = "TRANSACTION"
"""The operation that the history shows for more than one."""


def combined(first: Proposal, then: Proposal, known: frozenset[str], *, has_feed: bool) -> Proposal:
    """`known` are the paths of the table's files before both; `has_feed`: whether it has a change feed."""
    if has_feed and (first.cdc or then.cdc):
        raise UnsupportedFeature(
            "The change feed tells of one change that updates or rewrites rows per commit, and this transaction makes "
            "another one to the same table",
            hint="Do it in one merge, or in two transactions",
        )
    added = {_key(add): add for add in first.adds}
    removes = [*first.removes, *(remove for remove in then.removes if added.pop(_key(remove), None) is None)]
    for add in then.adds:
        if _key(add) in added:
            raise InvalidArgument("One commit cannot add the same file twice", file=add.path)
        added[_key(add)] = add if canonical_path(add.path) in known else _unnumbered(add)
    return msgspec.structs.replace(
        then,
        adds=tuple(added.values()),
        removes=tuple(removes),
        cdc=first.cdc + then.cdc,
        operation=_operation(first.operation, then.operation),
        brings_back=first.brings_back or then.brings_back,
    )


def _unnumbered(add: AddFile) -> AddFile:
    """A file of the transaction's own gets its row ids when it is committed."""
    return msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)


def _key(file: AddFile | RemoveFile) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return canonical_path(file.path), None if vector is None else vector.unique_id


def _operation(first: Operation, then: Operation) -> Operation:
    before = first.parameters["operations"] if first.name == SEVERAL else [first.name]
    return Operation(
        name=SEVERAL,
        parameters={"operations": [*before, then.name]},
        user_metadata=then.user_metadata or first.user_metadata,
    )
