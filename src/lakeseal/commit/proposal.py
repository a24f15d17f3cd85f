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
from lakeseal.errors import InvalidArgument
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
