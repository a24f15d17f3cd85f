"""How much of what happens at the same time a transaction may ignore.

- `Serializable`: as if transactions ran one after the other in the order of their versions.
- `WriteSerializable`: the same, but what others append without having read anything counts as coming after us,
  although its version is before ours.
- `SnapshotIsolation`: what others add is never a conflict; two transactions that touch the same file still are.

Whatever the level, a transaction reads all of its tables as they were at one moment, and a commit that changes metadata
by what it read in the table (a new constraint, a new schema for rows that it replaces) counts whatever others add.
"""

from __future__ import annotations

from enum import StrEnum

from lakeseal.errors import InvalidArgument


class IsolationLevel(StrEnum):
    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT_ISOLATION = "SnapshotIsolation"

    @classmethod
    def parse(cls, name: str) -> IsolationLevel:
        for level in cls:
            if level.value.lower() == name.strip().lower():
                return level
        raise InvalidArgument(
            f"{name!r} is not an isolation level", hint=f"Choose one of {', '.join(level.value for level in cls)}"
        )

    @property
    def strictness(self) -> int:
        """The higher, the less is ignored."""
        return (
            IsolationLevel.SNAPSHOT_ISOLATION,
            IsolationLevel.WRITE_SERIALIZABLE,
            IsolationLevel.SERIALIZABLE,
        ).index(self)


def choose(*, asked: IsolationLevel | None, table: IsolationLevel | None, changes_data: bool) -> IsolationLevel:
    """The caller's word, else the table's, else `WriteSerializable`.

    A commit that only rearranges rows (all its files say `dataChange=false`) cannot make anybody's read wrong, so
    unless the caller asked for more it does not wait for appends.
    """
    if asked is not None:
        return asked
    if not changes_data:
        return IsolationLevel.SNAPSHOT_ISOLATION
    return table or IsolationLevel.WRITE_SERIALIZABLE
