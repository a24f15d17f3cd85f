"""What a transaction wants to commit, as one frozen value.

A proposal knows nothing of the version that it will get: `rendering` turns it into the bytes of one attempt. Its
`txn_id` is the transaction's name in the log, the same in all its attempts; at most one of them is ever ratified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from lakeseal import typed_json
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.read_set import ReadSet
from lakeseal.errors import InvalidArgument, UnsupportedFeature
from lakeseal.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from lakeseal.protocol.data_paths import canonical_path

SEVERAL = "TRANSACTION"
"""The operation that the history shows for more than one."""


class Operation(Struct, frozen=True, kw_only=True):
    """What the history shows: `WRITE`, `DELETE`, `MERGE`, …, with its parameters and what it did."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int | str] = field(default_factory=dict)
    user_metadata: str | None = None

    def parameters_json(self) -> dict[str, str]:
        """Other clients read a map of strings, in which everything that is not a string is JSON."""
        return {name: _text(value) for name, value in self.parameters.items() if value is not None}

    def metrics_json(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.metrics.items()}


class Proposal(Struct, frozen=True, kw_only=True):
    txn_id: str
    read_version: int
    """-1 if there was no table."""
    operation: Operation
    isolation: IsolationLevel
    reads: ReadSet = field(default_factory=ReadSet)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    cdc: tuple[AddCDCFile, ...] = ()
    brings_back: bool = False
    """Files that it adds were removed from the table before, so that a vacuum may be deleting them."""
    follows_from_others: bool = False
    """Another table of the same transaction was read or lost rows, so what this one adds may follow from that."""

    @property
    def is_blind_append(self) -> bool:
        alone = not self.removes and not self.cdc and not self.reads.depends_on_data
        return alone and not self.follows_from_others


class _Counted(Struct, rename="camel"):
    num_records: int | None = None


def num_records(add: AddFile) -> int | None:
    """As the file's statistics say; None where they do not."""
    try:
        return typed_json.decode(add.stats or "{}", _Counted).num_records
    except (msgspec.DecodeError, UnicodeError):
        return None


class FileActions(Struct, frozen=True, kw_only=True):
    """What a caller hands over, in any order."""

    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    cdc: tuple[AddCDCFile, ...] = ()

    @classmethod
    def of(cls, actions: Iterable[Action]) -> FileActions:
        adds: list[AddFile] = []
        removes: list[RemoveFile] = []
        cdc: list[AddCDCFile] = []
        for action in actions:
            match action:
                case AddFile():
                    adds.append(action)
                case RemoveFile():
                    removes.append(action)
                case AddCDCFile():
                    cdc.append(action)
                case _:
                    raise InvalidArgument(
                        f"Only file actions are handed to commit, not a {type(action).__name__}",
                        hint="Set metadata, protocol, transactions and domains on the transaction",
                    )
        return cls(adds=tuple(adds), removes=tuple(removes), cdc=tuple(cdc))

    @property
    def changes_data(self) -> bool:
        """False only where all say so; a commit without files may change anything else."""
        flags = [add.data_change for add in self.adds] + [remove.data_change for remove in self.removes]
        return not flags or any(flags)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def combined(first: Proposal, then: Proposal, known: frozenset[str], *, has_feed: bool) -> Proposal:
    """Two changes to one table as one. A file that the first adds and the second removes is never part of the table;
    everything else adds up, as the second was decided on the table as the first left it. `known` are the paths of the
    table's files before both; `has_feed`: whether it has a change feed."""
    if has_feed and (first.cdc or then.cdc):
        raise UnsupportedFeature(
            "The change feed tells of one change that updates or rewrites rows per commit, and this transaction makes "
            "another one to the same table",
            hint="Do it in one merge, or in two transactions",
        )
    added = {_file_key(add): add for add in first.adds}
    removes = [*first.removes, *(remove for remove in then.removes if added.pop(_file_key(remove), None) is None)]
    for add in then.adds:
        if _file_key(add) in added:
            raise InvalidArgument("One commit cannot add the same file twice", file=add.path)
        added[_file_key(add)] = add if canonical_path(add.path) in known else _unnumbered(add)
    return msgspec.structs.replace(
        then,
        adds=tuple(added.values()),
        removes=tuple(removes),
        cdc=first.cdc + then.cdc,
        operation=_combined_operation(first.operation, then.operation),
        brings_back=first.brings_back or then.brings_back,
    )


def _unnumbered(add: AddFile) -> AddFile:
    """A file of the transaction's own gets its row ids when it is committed."""
    return msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)


def _file_key(file: AddFile | RemoveFile) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return canonical_path(file.path), None if vector is None else vector.unique_id


def _combined_operation(first: Operation, then: Operation) -> Operation:
    before = first.parameters["operations"] if first.name == SEVERAL else [first.name]
    return Operation(
        name=SEVERAL,
        parameters={"operations": [*before, then.name]},
        user_metadata=then.user_metadata or first.user_metadata,
    )
