"""Log compaction: a range of commits as one file, `<start>.<end>.compacted.json`.

It holds what is left of the range when its actions are reconciled: the last add or remove per file, the last
transaction per appId, the last word on each domain (that it was removed, too), the last protocol and metadata. Reading
a version through it equals reading it without (F5), so no tombstone may be left out, however old: it may be what takes
away a file that was added before the range. What the writers recorded (`commitInfo`) and change files are left out, for
they are about single commits. Actions that Lakeseal does not know are kept as they are.

Only commits that are in the log under their own names are compacted (B4). The file is written whole and never replaced.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakeseal.errors import InvalidArgument, NotBackfilled, VersionNotFound, located
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.files import add_actions, remove_actions
from lakeseal.log.replay import TableState, replay
from lakeseal.protocol import codec
from lakeseal.protocol.actions import Action
from lakeseal.protocol.paths import commit_path, compacted_path


def compact(log: DeltaLog, start: int, end: int) -> str | None:
    """Writes the range `start` to `end`, both included, unless it is there already. The key of the file, or None where
    nothing is left of the range."""
    with located(table=log.table):
        if not 0 <= start < end:
            raise InvalidArgument(f"{start} to {end} is not a range of versions", hint="It has at least two versions")
        _check_backfilled(log, start, end)
        data = codec.encode(_reconciled(replay(None, log.commits(start, end), with_removes=True)))
        if not data:
            return None
        key = compacted_path(start, end)
        log.store.put_if_absent(key, data)
        return key


def _reconciled(state: TableState) -> Iterator[Action]:
    if state.protocol is not None:
        yield state.protocol
    if state.metadata is not None:
        yield state.metadata
    for _, txn in sorted(state.txns.items()):
        yield txn
    for _, domain in sorted([*state.domains.items(), *state.removed_domains.items()]):
        yield domain
    yield from remove_actions(state.removes)
    yield from add_actions(state.files)
    yield from state.unknown_actions


def _check_backfilled(log: DeltaLog, start: int, end: int) -> None:
    commits = log.listing().commits
    for version in range(start, end + 1):
        if version not in commits:
            raise VersionNotFound(f"There is no commit {version}", version=version, hint="Compact what is there")
        if commits[version] != commit_path(version):
            raise NotBackfilled("The version is committed, but not in the log under its own name yet", version=version)
