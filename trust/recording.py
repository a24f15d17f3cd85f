"""What a process did to a disk, call by call, and the states that a power cut may leave of it.

The model of a disk, which promises no more than POSIX and journaled file systems do:

- What was written to a file is there after an fsync of that file, or a syncfs. Before that, any part of it may be:
  nothing, some bytes of the beginning, the length with zeros for bytes, later writes without earlier ones.
- A name is there, or gone, after an fsync of its directory, or a syncfs; an fsync of the file says nothing of its name.
  Before that, names of one directory may appear and go in any order.
- A rename within a directory happens whole or not at all. One between directories may leave both names, never none.
- A directory that is lost takes along what was in it, however well that was synced.
- A ledger keeps what was committed (SQLite syncs its own files, which are outside of what is recorded).
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.engine.default import DefaultDialect

from lakeseal.storage.local import files

_LEDGER = (".db", ".db-wal", ".db-shm", ".db-journal")
_HIDDEN = ".lakeseal-"


class Write(NamedTuple):
    file: int
    at: int
    data: bytes


class Truncate(NamedTuple):
    file: int
    size: int


class Name(NamedTuple):
    """A directory's entry has changed; `node` is None if it is gone."""

    directory: int
    name: str
    node: int | None
    is_directory: bool = False
    moved_from: tuple[int, str] | None = None
    moved: int | None = None
    """What has another name instead, somewhere else."""


class Sync(NamedTuple):
    node: int | None
    """None: all there is."""


class Committed(NamedTuple):
    path: str
    """Of the ledger, below the root."""
    content: bytes


class Done(NamedTuple):
    """A step was acknowledged."""


Event = Write | Truncate | Name | Sync | Committed | Done


class Recording:
    """Of everything below `root`, which is as it is when the recording begins. For good in this process."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._lock = threading.RLock()
        self._ids: dict[int, int] = {}
        self._next = 0
        self._sizes: dict[int, int] = {}
        self.events: list[Event] = []
        self.disk = Disk()
        self._begin(self._root, self.disk.root)

    def install(self) -> None:
        original = {name: getattr(os, name) for name in _WATCHED}
        for name in _WATCHED:
            setattr(os, name, self._watched(name, original[name], getattr(self, f"_{name}")))
        whole = files._syncfs
        assert whole is not None

        def syncfs(descriptor: int) -> int:
            if not self._is_ours(_of(descriptor)):
                return whole(descriptor)
            with self._lock:
                answer = whole(descriptor)
                self.events.append(Sync(None))
                return answer

        files._syncfs = syncfs
        commit = DefaultDialect.do_commit

        def committed(dialect: Any, connection: Any) -> None:
            path = ""
            if dialect.name == "sqlite":
                path = connection.execute("PRAGMA database_list").fetchone()[2]
            with self._lock:
                commit(dialect, connection)
                if path.startswith(self._root):
                    self.events.append(Committed(path[len(self._root) + 1 :], _content(path)))

        DefaultDialect.do_commit = committed  # type: ignore[method-assign]

    def done(self) -> None:
        with self._lock:
            self.events.append(Done())

    def _begin(self, path: str, node: int) -> None:
        self._ids[os.stat(path).st_ino] = node
        self._next = max(self._next, node + 1)
        for entry in os.scandir(path):
            if entry.name.endswith(_LEDGER):
                if entry.name.endswith(".db"):
                    self.disk.ledgers[entry.path[len(self._root) + 1 :]] = _content(entry.path)
                continue
            child = self._next
            self._next += 1
            self.disk.names[node][entry.name] = child
            if entry.is_dir(follow_symlinks=False):
                self.disk.names[child] = {}
                self._begin(entry.path, child)
            else:
                self._ids[entry.stat().st_ino] = child
                self.disk.contents[child] = Path(entry.path).read_bytes()
                self.disk.times[child] = entry.stat().st_mtime_ns
                self._sizes[child] = len(self.disk.contents[child])

    def _watched(self, name: str, original: Callable[..., Any], note: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            with self._lock:
                return note(original, *given, **named)

        return call

    def _is_ours(self, path: str) -> bool:
        return path.startswith(self._root) and not path.endswith(_LEDGER)

    def _place(self, path: Any, directory: int | None) -> str:
        name = os.fsdecode(path)
        return name if directory is None or name.startswith("/") else f"{_of(directory)}/{name}"

    def _entry(self, path: str) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        return self._ids[os.stat(parent).st_ino], name

    def _new(self, inode: int) -> int:
        node = self._ids[inode] = self._next
        self._next += 1
        self._sizes[node] = 0
        return node

    # What the calls come to

    def _open(self, call: Any, path: Any, flags: int, *rest: Any, dir_fd: int | None = None, **named: Any) -> int:
        unnamed = flags & os.O_TMPFILE == os.O_TMPFILE
        place = self._place(path, dir_fd)
        if not self._is_ours(place) or not (unnamed or flags & (os.O_CREAT | os.O_TRUNC)):
            return int(call(path, flags, *rest, dir_fd=dir_fd, **named))
        was_there = os.path.lexists(place) and not unnamed
        descriptor = int(call(path, flags, *rest, dir_fd=dir_fd, **named))
        inode = os.fstat(descriptor).st_ino
        if was_there:
            if flags & os.O_TRUNC:
                self._sizes[self._ids[inode]] = 0
                self.events.append(Truncate(self._ids[inode], 0))
            return descriptor
        node = self._new(inode)
        if not unnamed:
            self.events.append(Name(*self._entry(place), node))
        return descriptor

    def _write(self, call: Any, descriptor: int, data: Any) -> int:
        if not self._is_ours(_of(descriptor)):
            return int(call(descriptor, data))
        appends = os.O_APPEND & _flags(descriptor)
        node = self._ids[os.fstat(descriptor).st_ino]
        at = self._sizes[node] if appends else os.lseek(descriptor, 0, os.SEEK_CUR)
        written = int(call(descriptor, data))
        self.events.append(Write(node, at, bytes(memoryview(data).cast("B")[:written])))
        self._sizes[node] = max(self._sizes[node], at + written)
        return written

    def _fsync(self, call: Any, descriptor: int) -> None:
        call(descriptor)
        if self._is_ours(_of(descriptor)):
            self.events.append(Sync(self._ids[os.fstat(descriptor).st_ino]))

    _fdatasync = _fsync

    def _link(self, call: Any, source: Any, target: Any, **named: Any) -> None:
        call(source, target, **named)
        place = self._place(target, named.get("dst_dir_fd"))
        if self._is_ours(place):
            self.events.append(Name(*self._entry(place), self._ids[os.stat(place).st_ino]))

    def _rename(self, call: Any, source: Any, target: Any, **named: Any) -> None:
        before = self._place(source, named.get("src_dir_fd"))
        after = self._place(target, named.get("dst_dir_fd"))
        ours = self._is_ours(after)
        moved_from = self._entry(before) if ours else None
        call(source, target, **named)
        if ours:
            node = self._ids[os.stat(after).st_ino]
            self.events.append(Name(*self._entry(after), node, os.path.isdir(after), moved_from))

    _replace = _rename

    def _unlink(self, call: Any, path: Any, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        call(path, dir_fd=dir_fd)
        if self._is_ours(place):
            self.events.append(Name(*self._entry(place), None))

    _remove = _unlink
    _rmdir = _unlink

    def _mkdir(self, call: Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        call(path, mode, dir_fd=dir_fd)
        if self._is_ours(place):
            node = self._new(os.stat(place).st_ino)
            self.events.append(Name(*self._entry(place), node, True))


_WATCHED = ("open", "write", "fsync", "fdatasync", "link", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")


class Disk:
    """What is on it for good, and what only seems to be."""

    def __init__(self) -> None:
        self.root = 0
        self.names: dict[int, dict[str, int]] = {0: {}}
        """The durable ones, by directory."""
        self.contents: dict[int, bytes] = {}
        """What is durable of files."""
        self.ledgers: dict[str, bytes] = {}
        self.times: dict[int, int] = {}
        """When files were changed that were there in the beginning, in nanoseconds."""
        self.written: dict[int, list[Write | Truncate]] = {}
        """To files, since they were synced."""
        self.changed: list[Name] = []
        """Names whose directories were not synced since."""
        self.done = 0

    def happen(self, event: Event) -> None:
        match event:
            case Write() | Truncate():
                self.written.setdefault(event.file, []).append(event)
            case Name():
                if event.is_directory and event.node is not None:
                    self.names.setdefault(event.node, {})
                self.changed.append(event)
            case Sync(node=None):
                for file in list(self.written):
                    self._settle(file)
                for change in self.changed:
                    _apply(self.names, change)
                self.changed = []
            case Sync(node=node) if node in self.names:
                left = []
                for change in self.changed:
                    if change.directory == node:
                        _apply(self.names, change._replace(moved_from=None))
                        if change.moved_from is not None and change.moved_from[0] == node:
                            self.names[node].pop(change.moved_from[1], None)
                        elif change.moved_from is not None:
                            left.append(Name(*change.moved_from, None, moved=change.node))
                    else:
                        left.append(change)
                self.changed = left
            case Sync(node=node) if node is not None:
                self._settle(node)
            case Committed():
                self.ledgers[event.path] = event.content
            case Done():
                self.done += 1

    def _reached(self, names: dict[int, dict[str, int]]) -> set[int]:
        found, left = {self.root}, [self.root]
        while left:
            for child in names.get(left.pop(), {}).values():
                if child not in found:
                    found.add(child)
                    left.append(child)
        return found

    def _settle(self, file: int) -> None:
        content = bytearray(self.contents.get(file, b""))
        for one in self.written.pop(file, []):
            _write(content, one)
        self.contents[file] = bytes(content)

    def left(self, dice: random.Random | None, *, everything: bool = False) -> Left:
        """One state that a power cut may leave: with nothing that was not synced, with `everything`, or as dice say."""
        names = {node: dict(entries) for node, entries in self.names.items()}
        likely = 1.0 if everything else 0.0 if dice is None else dice.choice((0.2, 0.5, 0.8, 1.0))
        taken: list[tuple[int, str, int]] = []
        """Names that went since there is another one."""
        for change in self.changed:
            if not everything and (dice is None or dice.random() >= likely):
                continue
            between = change.moved_from is not None and change.moved_from[0] != change.directory
            if between and not everything and dice is not None and dice.random() < 0.5:
                change = change._replace(moved_from=None)
            if change.moved is not None and names[change.directory].get(change.name) == change.moved:
                taken.append((change.directory, change.name, change.moved))
            if between and change.moved_from is not None and change.node is not None:
                taken.append((*change.moved_from, change.node))
            _apply(names, change)
        there = self._reached(names)
        for directory, name, node in taken:
            if node not in there:
                names[directory].setdefault(name, node)
        contents: dict[str, bytes] = {}
        torn: list[str] = []
        directories: list[str] = []
        times: dict[str, int] = {}

        def walk(node: int, place: str) -> None:
            for name, child in names[node].items():
                path = f"{place}{name}"
                if child in names:
                    directories.append(path)
                    walk(child, f"{path}/")
                    continue
                pending = self.written.get(child, [])
                content = bytearray(self.contents.get(child, b""))
                whole = bytearray(content)
                for one in pending:
                    _write(whole, one)
                if pending:
                    content = whole if everything else _partly(content, pending, dice)
                if content != whole and _HIDDEN not in path:
                    torn.append(path)
                contents[path] = bytes(content)
                if child in self.times:
                    times[path] = self.times[child]

        walk(self.root, "")
        return Left(contents, directories, dict(self.ledgers), torn, self.done, times)


class Left(NamedTuple):
    """What is there after a power cut."""

    contents: dict[str, bytes]
    directories: list[str]
    ledgers: dict[str, bytes]
    torn: list[str]
    """Files under their final names that are not whole."""
    done: int
    """Steps that were acknowledged before."""
    times: dict[str, int]

    def lay_out(self, root: Path) -> None:
        for directory in self.directories:
            (root / directory).mkdir(parents=True, exist_ok=True)
        for name, content in {**self.contents, **self.ledgers}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        for name, time in self.times.items():
            os.utime(root / name, ns=(time, time))


def states(disk: Disk, events: list[Event], seeds: int, salt: str) -> Iterator[Left]:
    """At each moment: with nothing that was not synced, and some by dice; no two that are the same."""
    seen: set[int] = set()
    for number, event in enumerate([None, *events]):
        if event is not None:
            disk.happen(event)
        for seed in range(seeds + 1):
            dice = random.Random(f"{salt} {number} {seed}") if seed else None
            left = disk.left(dice)
            same = hash((frozenset(left.contents.items()), frozenset(left.directories), left.done))
            same ^= hash(frozenset(left.ledgers.items()))
            if same not in seen:
                seen.add(same)
                yield left


def _apply(names: dict[int, dict[str, int]], change: Name) -> None:
    if change.moved_from is not None:
        names[change.moved_from[0]].pop(change.moved_from[1], None)
    if change.node is None:
        names[change.directory].pop(change.name, None)
    else:
        names[change.directory][change.name] = change.node


def _write(content: bytearray, one: Write | Truncate) -> None:
    if isinstance(one, Truncate):
        del content[one.size :]
        return
    if len(content) < one.at:
        content += bytes(one.at - len(content))
    content[one.at : one.at + len(one.data)] = one.data


def _partly(content: bytearray, pending: list[Write | Truncate], dice: random.Random | None) -> bytearray:
    """Some of what was written and not synced."""
    partly = bytearray(content)
    if dice is None:
        return partly
    for one in pending:
        match dice.choice(("all", "none", "beginning", "zeros")), one:
            case "all", _:
                _write(partly, one)
            case "beginning", Write():
                _write(partly, one._replace(data=one.data[: dice.randrange(len(one.data) + 1)]))
            case "zeros", Write():
                _write(partly, one._replace(data=bytes(len(one.data))))
    return partly


def _content(path: str) -> bytes:
    """Of a SQLite file, with everything that is committed."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        copy = sqlite3.connect(":memory:")
        connection.backup(copy)
        data = bytearray(copy.serialize())
        copy.close()
        data[18:20] = b"\x02\x02"  # in WAL mode, as it was
        return bytes(data)
    finally:
        connection.close()


def _of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
    except OSError:
        return ""


def _flags(descriptor: int) -> int:
    with open(f"/proc/self/fdinfo/{descriptor}") as about:
        return int(next(line for line in about if line.startswith("flags:")).split()[1], 8)
