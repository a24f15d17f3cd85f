"""A plain model of a log: actions replayed one by one into dictionaries. Slow, and obviously right.

`replayed(commits)` and `described(state)` say the same of the same version, in the same words, so a test compares the
two. What a checkpoint need not keep is left out of the words: `dataChange`, statistics of removed files, and how the
text of statistics is laid out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lakeseal.log.files import add_actions, remove_actions
from lakeseal.log.replay import TableState
from lakeseal.protocol.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from lakeseal.protocol.data_paths import canonical_path

Words = dict[str, Any]


def replayed(commits: Iterable[Sequence[Action]]) -> Words:
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, SetTransaction] = {}
    domains: dict[str, DomainMetadata] = {}
    files: dict[str, AddFile] = {}
    removes: dict[str, RemoveFile] = {}
    for actions in commits:
        for action in actions:
            match action:
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
                case SetTransaction():
                    txns[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
                case AddFile():
                    files[key(action)] = action
                    removes.pop(key(action), None)
                case RemoveFile():
                    removes[key(action)] = action
                    files.pop(key(action), None)
    live = {name: domain for name, domain in domains.items() if not domain.removed}
    return _words(protocol, metadata, txns, live, files.values(), removes.values())


def described(state: TableState) -> Words:
    """Tombstones are among the words only if `state` was read with them."""
    removes = None if state.removes is None else remove_actions(state.removes)
    return _words(
        state.protocol, state.metadata, dict(state.txns), dict(state.domains), add_actions(state.files), removes
    )


def without_removes(words: Words) -> Words:
    return {name: said for name, said in words.items() if name != "removes"}


def key(action: AddFile | RemoveFile) -> str:
    vector: DeletionVectorDescriptor | None = action.deletion_vector
    return f"{canonical_path(action.path)} {'' if vector is None else vector.unique_id}"


def _words(
    protocol: Protocol | None,
    metadata: Metadata | None,
    txns: dict[str, SetTransaction],
    domains: dict[str, DomainMetadata],
    files: Iterable[AddFile],
    removes: Iterable[RemoveFile] | None,
) -> Words:
    said: Words = {
        "protocol": protocol,
        "metadata": metadata,
        "txns": txns,
        "domains": domains,
        "files": _by_key({**f.to_json(), "stats": _stats(f.stats)} | {"key": key(f)} for f in files),
    }
    if removes is not None:
        said["removes"] = _by_key({**r.to_json(), "stats": None} | {"key": key(r)} for r in removes)
    return said


def _by_key(rows: Iterable[Words]) -> Words:
    found: Words = {}
    for row in rows:
        assert row["key"] not in found, f"{row['key']} is there twice"
        found[row["key"]] = {name: said for name, said in row.items() if name != "dataChange" and said is not None}
    return found


def _stats(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
