"""The invariants of a file-system log, checked on what is really there.

`check_history(store, acknowledged)` reads every commit from version 0 on and raises an `AssertionError` that names the
invariant (F1–F4, F6, F7) that is broken. `acknowledged` maps the txnId of every commit that was reported as a success
to its version; `failed` are those that were reported as certainly not committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakeseal.protocol.actions import Action, AddFile, CommitInfo, DeletionVectorDescriptor, RemoveFile
from lakeseal.protocol.codec import decode
from lakeseal.protocol.data_paths import canonical_path
from lakeseal.protocol.paths import LOG_DIR, LogFileKind, commit_path, parse
from lakeseal.storage.base import Store


def check_history(
    store: Store, acknowledged: Mapping[str, int] | None = None, *, failed: Collection[str] = ()
) -> list[list[Action]]:
    """The actions of every version, if all is well."""
    files = [file for key in store.list_keys(LOG_DIR) if (file := parse(key)) and file.kind is LogFileKind.COMMIT]
    versions = [file.version for file in files]
    assert versions == list(range(len(versions))), f"F3: there are gaps in {versions}"
    commits = []
    for version in versions:
        data = store.get(commit_path(version))
        assert data.endswith(b"\n"), f"F4: version {version} is torn"
        commits.append(decode(data))
    infos = [_info(actions) for actions in commits]
    by_txn: dict[str, int] = {}
    for version, info in enumerate(infos):
        if info.txn_id is not None:
            assert info.txn_id not in by_txn, f"F2: versions {by_txn[info.txn_id]} and {version} are one transaction"
            by_txn[info.txn_id] = version
    for txn_id, version in (acknowledged or {}).items():
        found = by_txn.get(txn_id)
        assert found == version, f"F1, F2: {txn_id} was acknowledged as version {version} and is at {found}"
    for txn_id in failed:
        assert txn_id not in by_txn, f"F2: {txn_id} was reported as failed and is version {by_txn[txn_id]}"
    _check_timestamps(infos)
    _check_files(commits)
    return commits


def _info(actions: list[Action]) -> CommitInfo:
    return next((action for action in actions if isinstance(action, CommitInfo)), CommitInfo())


def _check_timestamps(infos: list[CommitInfo]) -> None:
    last: tuple[int, int] | None = None
    for version, info in enumerate(infos):
        stamp = info.in_commit_timestamp
        if stamp is not None:
            assert last is None or stamp > last[1], f"F6: version {version} has {stamp}, version {last} came before"
            last = (version, stamp)


def _check_files(commits: list[list[Action]]) -> None:
    for version, actions in enumerate(commits):
        added = [_key(a.path, a.deletion_vector) for a in actions if isinstance(a, AddFile)]
        removed = [_key(a.path, a.deletion_vector) for a in actions if isinstance(a, RemoveFile)]
        both = set(added) & set(removed)
        assert not both, f"F7: version {version} adds and removes {min(both)}"
        assert len(set(added)) == len(added), f"F7: version {version} adds a file twice"


def _key(path: str, vector: DeletionVectorDescriptor | None) -> tuple[str, str]:
    return canonical_path(path), "" if vector is None else vector.unique_id
