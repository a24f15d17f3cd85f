"""Replay: the state of a table from a base state and the commits above it.

Pure but for the bytes that the caller feeds. Commits are decoded in one C call per chunk into bare structs that forbid
unknown fields; a chunk that has some, or is broken, goes through the exact codec, which keeps them or says which line
is wrong. Structs live only until the next flush into columns, so memory follows the columns, not Python objects.

The last action per file key, per appId and per domain wins; protocol and metadata are the last ones seen (F5). In a
compacted file it is the first: such a file is to hold one action per key, but there are writers that only put commits
together, newest first, because that is how others read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw, Struct

from lakeseal import typed_json
from lakeseal.errors import BrokenCommit, located
from lakeseal.log.files import ADDS, NO_ADDS, NO_REMOVES, REMOVES, concat, unknown_text, without_keys
from lakeseal.log.live_files import FileRows, LiveFiles, Tail
from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Int,
    Long,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
)

_FLUSH_ROWS = 100_000
_CHUNK_BYTES = 16 << 20


class TableState(Struct, frozen=True, kw_only=True):
    """What the log says at a version. `removes` and `removed_domains` are the tombstones of files and of domains, kept
    only where they were asked for, and then also the actions of the commits that this module does not know."""

    version: int
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Mapping[str, SetTransaction] = msgspec.field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = msgspec.field(default_factory=dict)
    live_files: LiveFiles = msgspec.field(default_factory=lambda: LiveFiles(NO_ADDS))
    removes: Any = None
    removed_domains: Mapping[str, DomainMetadata] = msgspec.field(default_factory=dict)
    unknown_actions: tuple[UnknownAction, ...] = ()
    commit_info: CommitInfo | None = None
    """Of the last commit, where it was among those replayed."""

    @property
    def files(self) -> pa.Table:
        return self.live_files.table


class LogCommit(Struct, frozen=True, kw_only=True):
    """Bytes of a commit, or of a compacted range that ends at `version`."""

    version: int
    file: str
    data: bytes

    def is_compacted(self) -> bool:
        return self.file.endswith(".compacted.json")


class _Vector(Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Int
    cardinality: Long
    offset: Int | None = None


class _Add(Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    path: str
    partition_values: dict[str, str | None]
    size: Long
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: _Vector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None


class _Remove(Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: _Vector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


_ABSENT = Raw()
_NULL = Raw(b"null")
_OTHERS = {
    "cdc": b"cdc",
    "commit_info": b"commitInfo",
    "txn": b"txn",
    "meta_data": b"metaData",
    "protocol": b"protocol",
    "domain_metadata": b"domainMetadata",
}


class _Line(Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    add: _Add | None = None
    remove: _Remove | None = None
    cdc: Raw = _ABSENT
    commit_info: Raw = _ABSENT
    txn: Raw = _ABSENT
    meta_data: Raw = _ABSENT
    protocol: Raw = _ABSENT
    domain_metadata: Raw = _ABSENT

    def is_one_file_action(self) -> bool:
        return (
            (self.add is None) != (self.remove is None)
            and self.cdc is _ABSENT
            and self.commit_info is _ABSENT
            and self.txn is _ABSENT
            and self.meta_data is _ABSENT
            and self.protocol is _ABSENT
            and self.domain_metadata is _ABSENT
        )

    def other_action(self) -> Action | None:
        """The action of a line that is about no file of the table; None for change files, no part of its state."""
        found = [(name, raw) for name in _OTHERS if (raw := getattr(self, name))]
        if len(found) != 1 or found[0][1] == _NULL:
            raise msgspec.ValidationError("a line holds no action, or two")
        name, raw = found[0]
        return None if name == "cdc" else codec.decode_line(b'{"%b":%b}' % (_OTHERS[name], raw))[0]


_decoder = typed_json.decoder(_Line)


def replay(base: TableState | None, commits: Iterable[LogCommit], *, with_removes: bool = False) -> TableState:
    """`base` with `commits`, ascending and without a gap, on top."""
    replayer = _Replayer(base or TableState(version=-1))
    for commit in commits:
        with located(version=commit.version, file=commit.file):
            replayer.feed(commit)
    return replayer.finish(with_removes=with_removes)


class _Replayer:
    def __init__(self, base: TableState) -> None:
        self._base = base
        self._version = base.version
        self._protocol, self._metadata = base.protocol, base.metadata
        self._txns, self._domains = dict(base.txns), {**base.domains, **base.removed_domains}
        self._commit_info: CommitInfo | None = base.commit_info
        self._unknown: list[UnknownAction] = []
        self._tail = Tail()

    def feed(self, commit: LogCommit) -> None:
        self._version, self._commit_info = commit.version, None
        data, line, step = commit.data, 1, 1
        if commit.is_compacted():
            lines = data.split(b"\n")
            data, line, step = b"\n".join(reversed(lines)), len(lines), -1
        for chunk in _chunks(data):
            try:
                self._feed_fast(chunk)
            except (BrokenCommit, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                self._feed_exact(chunk, line, step)
            line += step * chunk.count(b"\n")
            if len(self._tail.adds.actions) + len(self._tail.removes.actions) >= _FLUSH_ROWS:
                self._tail.flush()

    def _feed_fast(self, chunk: bytes) -> None:
        lines = _decoder.decode_lines(chunk)
        adds = [n for n, line in enumerate(lines) if line.add is not None]
        removes = [n for n, line in enumerate(lines) if line.remove is not None]
        rest = [line for line in lines if line.add is None and line.remove is None]
        if not all(line.is_one_file_action() for line in lines if line.add is not None or line.remove is not None):
            raise msgspec.ValidationError("a line holds two actions")
        actions = [action for line in rest if (action := line.other_action()) is not None]
        # Nothing has changed up to here, so whatever is wrong can be looked at again line by line.
        self._tail.adds.actions += [lines[n].add for n in adds]
        self._tail.adds.places += [self._tail.lines + n for n in adds]
        self._tail.removes.actions += [lines[n].remove for n in removes]
        self._tail.removes.places += [self._tail.lines + n for n in removes]
        self._tail.lines += len(lines)
        for action in actions:
            self._note(action)

    def _feed_exact(self, chunk: bytes, first_line: int, step: int) -> None:
        for number, line in zip(count(first_line, step), chunk.split(b"\n"), strict=False):
            if line.strip(codec.BLANKS):
                for action in codec.decode_line(line, number):
                    self._note(action)
                self._tail.lines += 1

    def _note(self, action: Action) -> None:
        match action:
            case AddFile():
                self._keep(self._tail.adds, action)
            case RemoveFile():
                self._keep(self._tail.removes, action)
            case Protocol():
                self._protocol = action
            case Metadata():
                self._metadata = action
            case SetTransaction():
                self._txns[action.app_id] = action
            case DomainMetadata():
                self._domains[action.domain] = action
            case CommitInfo():
                self._commit_info = action
            case UnknownAction():
                self._unknown.append(action)

    def _keep(self, rows: FileRows, action: AddFile | RemoveFile) -> None:
        text = unknown_text(action)
        if text is not None:
            rows.unknown[len(rows.actions)] = text
        rows.actions.append(action)
        rows.places.append(self._tail.lines)

    def finish(self, *, with_removes: bool) -> TableState:
        removes = None
        if with_removes:
            live, removed, named = self._tail.reconciled()
            kept = self._base.removes if self._base.removes is not None else NO_REMOVES
            removes = concat([without_keys(kept, named), removed], REMOVES)
            files = LiveFiles(concat([without_keys(self._base.files, named), live], ADDS))
        else:
            files = self._base.live_files.after(self._tail)
        return TableState(
            version=self._version,
            protocol=self._protocol,
            metadata=self._metadata,
            txns=self._txns,
            domains={name: d for name, d in self._domains.items() if not d.removed},
            live_files=files,
            removes=removes,
            removed_domains={n: d for n, d in self._domains.items() if d.removed} if with_removes else {},
            unknown_actions=tuple(self._unknown) if with_removes else (),
            commit_info=self._commit_info,
        )


def _chunks(data: bytes) -> Iterator[bytes]:
    """Whole lines, a bounded number of bytes at a time."""
    start = 0
    while len(data) - start > _CHUNK_BYTES:
        end = data.find(b"\n", start + _CHUNK_BYTES) + 1
        if end == 0:
            break
        yield data[start:end]
        start = end
    yield data[start:] if start else data
