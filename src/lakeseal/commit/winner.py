"""A commit that came between what a transaction read and what it wants to write."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from msgspec import Struct

from lakeseal.log.files import adds_from_actions, removes_from_actions
from lakeseal.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)


class WinningCommit(Struct, frozen=True, kw_only=True):
    version: int
    info: CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    adds: pa.Table
    removes: pa.Table

    @classmethod
    def from_actions(cls, version: int, actions: Iterable[Action]) -> WinningCommit:
        adds: list[AddFile] = []
        removes: list[RemoveFile] = []
        app_ids: set[str] = set()
        domains: set[str] = set()
        info: CommitInfo | None = None
        protocol: Protocol | None = None
        metadata: Metadata | None = None
        for action in actions:
            match action:
                case AddFile():
                    adds.append(action)
                case RemoveFile():
                    removes.append(action)
                case CommitInfo():
                    info = info or action
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
                case SetTransaction():
                    app_ids.add(action.app_id)
                case DomainMetadata():
                    domains.add(action.domain)
        return cls(
            version=version,
            info=info,
            protocol=protocol,
            metadata=metadata,
            app_ids=frozenset(app_ids),
            domains=frozenset(domains),
            adds=adds_from_actions(adds),
            removes=removes_from_actions(removes),
        )

    @property
    def operation(self) -> str:
        said = self.info.operation if self.info is not None else None
        return said if isinstance(said, str) and said else "an unnamed operation"

    @property
    def is_blind_append(self) -> bool:
        """Only its own word counts: that it has only adds does not show that it read nothing."""
        return self.info is not None and self.info.is_blind_append is True and self.removes.num_rows == 0
