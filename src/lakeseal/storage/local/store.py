"""Bytes at keys on local disk, written by hand so that what is acknowledged survives a crash of the machine.

Keys are file names below the root, as they are. How new files appear is told in `files`. Beyond the seam:

- The root may be a symbolic link, and symbolic links inside it may point to places inside it. A link that leads out of
  the root raises `UnsafePath`, for reading, writing and deleting. A directory is looked at when it is first used and
  then remembered, and a file's last step is opened without following links, so the check costs nothing per read. It
  guards against a table whose files or log were made to point elsewhere; it is no guard against someone who can
  exchange directories of the root while it is open.
- Listing does not descend into linked directories, and passes over names that cannot be keys.
- Directories are made as needed, and removed by `prune` only.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

import pyarrow as pa

from lakeseal.errors import (
    InvalidArgument,
    LakesealError,
    ObjectNotFound,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    UnsafePath,
)
from lakeseal.storage.base import NewObject, ObjectMeta, Store
from lakeseal.storage.keys import check_key, check_prefix, check_range, listable, parent
from lakeseal.storage.local.files import (
    NewFile,
    make_directories,
    sync_directory,
    sync_open,
    sync_together,
)
from lakeseal.storage.location import file_uri
from lakeseal.storage.streams import WriteStream

# O_NONBLOCK: a named pipe in the tree must not hang its reader.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_LINK = {errno.ELOOP, errno.EMLINK}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_KNOWN_DIRECTORIES = 65_536
_FILES_AT_ONCE = 200
_WRITE_BUFFER = 1 << 18
_rare_names = re.compile("[\x00-\x1f\x7f\ud800-\udfff]|\\.lakeseal-")


class LocalStore:
    def __init__(self, root: str, *, unnamed: bool = True) -> None:
        """`unnamed=False` writes under hidden names even where the file system allows files without a name."""
        self._root = os.path.abspath(root)
        self._base = self._root if self._root.endswith("/") else self._root + "/"
        self._unnamed = unnamed
        self._known: set[str] = {""}
        self._uri = file_uri(self._root)

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def real_uri(self) -> str:
        """Of the place itself, whatever links lead to it."""
        return file_uri(os.path.realpath(self._root))

    def key_of(self, path: str) -> str | None:
        """The key of a file, by whatever path it is named; None if it does not lie below the root."""
        root, real = os.path.realpath(self._root), os.path.realpath(path)
        return os.path.relpath(real, root) if real.startswith(root.rstrip("/") + "/") else None

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument("A store cannot be pickled", hint="Send a StoreSpec, and open it where it is used")

    def is_there(self) -> bool:
        """Whether the root is a directory, in one that is there."""
        return os.path.isdir(self._root) and os.path.isdir(os.path.dirname(self._root))

    def has_directory(self, prefix: str) -> bool:
        return os.path.isdir(self._base + prefix)

    def has_files(self, prefix: str) -> bool:
        """Whether there is a file in the directory itself."""
        try:
            with os.scandir(self._base + prefix) as entries:
                return any(entry.is_file() for entry in entries)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise self._error(error, prefix) from error

    def path(self, key: str) -> str:
        """The file's path on this machine, for readers that want one; `UnsafePath` as for reading."""
        directory = parent(check_key(key))
        if directory not in self._known:
            self._look_at(directory)
        return self._base + key

    def get(self, key: str) -> bytes:
        descriptor, size = self._open(key)
        try:
            return _read(descriptor, size)
        except OSError as error:
            raise self._error(error, key) from error
        finally:
            os.close(descriptor)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, spans: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        for start, length in spans:
            check_range(start, length)
        descriptor, size = self._open(key)
        found = []
        try:
            for start, length in spans:
                os.lseek(descriptor, start, os.SEEK_SET)
                found.append(_read(descriptor, min(length, max(size - start, 0))))
        except OSError as error:
            raise self._error(error, key) from error
        finally:
            os.close(descriptor)
        return found

    def get_many(self, keys: Sequence[str]) -> builtins.list[bytes]:
        # One after the other: the page cache answers faster than threads can be switched.
        return [self.get(key) for key in keys]

    def head(self, key: str) -> ObjectMeta:
        try:
            status = os.stat(self._file(key))
        except OSError as error:
            raise self._error(error, key) from error
        if not stat.S_ISREG(status.st_mode):
            raise self._absent(key)
        return ObjectMeta(key=key, size=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)

    def list(self, prefix: str = "", *, after: str | None = None, recursive: bool = False) -> Iterator[ObjectMeta]:
        self._look_at(check_prefix(prefix))
        return self._walk(prefix, after or "", recursive)

    def list_keys(self, prefix: str = "", *, after: str | None = None) -> builtins.list[str]:
        self._look_at(check_prefix(prefix))
        last = ""
        if after is not None and after.startswith(prefix):
            last = after[len(prefix) :]
        elif after is not None and after > prefix:
            return []
        try:
            with os.scandir(self._base + prefix) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if entry.name > last and (entry.is_file(follow_symlinks=False) or _links_to_file(entry))
                ]
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise self._error(error, prefix) from error
        if _rare_names.search("/".join(names)) is not None:
            names = [name for name in names if listable(name)]
        # Python orders text by code point, and so does UTF-8 by bytes.
        names.sort()
        return [prefix + name for name in names]

    def put(self, key: str, data: bytes) -> None:
        self._publish(key, data, replace=True)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self.path(key)
        if os.path.lexists(path):
            return False
        return self._publish(key, data, replace=False)

    def set_time(self, key: str, modified_ms: int) -> None:
        """Says when the object was made, where that is not when it was written here."""
        try:
            os.utime(self._file(key), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise self._error(error, key) from error

    def sync(self, key: str) -> None:
        path = self._file(key)
        try:
            sync_together([path, os.path.dirname(path) + "/"])
        except OSError as error:
            raise self._error(error, key) from error

    def delete(self, keys: Iterable[str]) -> None:
        touched: set[str] = set()
        for key in keys:
            try:
                os.unlink(self.path(key))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise self._error(error, key) from error
            else:
                touched.add(self._base + parent(key))
        self._sync(touched)

    def move(self, pairs: Sequence[tuple[str, str]], to: Store) -> builtins.list[tuple[str, str]]:
        """By renaming, on one device; each directory is made durable once."""
        if not isinstance(to, LocalStore):
            return builtins.list(pairs)
        left: builtins.list[tuple[str, str]] = []
        # In order, as a directory must not be durable before the one that it is in; and each once.
        touched: dict[str, None] = {}
        for source, target in pairs:
            if to._rename_here(self, source, target, touched):
                touched[os.path.dirname(to._base + target)] = None
            else:
                left.append((source, target))
        to._sync(touched)
        return left

    def prune(self, prefix: str) -> None:
        self._look_at(check_prefix(prefix))
        top = (self._base + prefix).rstrip("/")
        left = [os.path.dirname(top)]
        for directory, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:  # something is in it, or it is gone
                left.append(directory)
        # What was moved out of a directory must not be back after a power cut: nobody would know of it.
        self._sync(left)

    def open_read(self, key: str) -> pa.NativeFile:
        try:
            path = self._file(key)
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise self._absent(key)
            return pa.OSFile(path, "rb")
        except OSError as error:
            raise self._error(error, key) from error

    def open_write(self, key: str) -> WriteStream:
        return _LocalWriteStream(self, key, self._new_file(key))

    def _rename_here(self, store: LocalStore, source: str, target: str, touched: dict[str, None]) -> bool:
        path, new = store.path(source), self.path(target)
        try:
            try:
                os.rename(path, new)
            except FileNotFoundError:
                if not os.path.lexists(path):
                    raise store._absent(source) from None
                touched.update(dict.fromkeys(make_directories(os.path.dirname(new))))
                os.rename(path, new)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            if error.errno == errno.ENOENT:
                raise store._absent(source) from None
            raise self._error(error, target, writing=True) from error
        return True

    def _sync(self, directories: Iterable[str]) -> None:
        for directory in directories:
            try:
                sync_directory(directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._error(error, directory.removeprefix(self._base)) from error

    def _open(self, key: str) -> tuple[int, int]:
        try:
            try:
                descriptor = os.open(self.path(key), _READ)
            except OSError as error:
                if error.errno not in _LINK:
                    raise
                descriptor = os.open(self._file(key), _READ)
        except OSError as error:
            raise self._error(error, key) from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise self._absent(key)
        return descriptor, status.st_size

    def _file(self, key: str) -> str:
        """The path of the file itself, with a link as its last step followed."""
        path = self.path(key)
        return self._target(path, key) if os.path.islink(path) else path

    def _look_at(self, directory: str) -> None:
        """Refuse a directory that lies outside of the root; remember one that lies inside."""
        end = 0
        while (end := directory.find("/", end) + 1) > 0:
            part = directory[:end]
            if part in self._known:
                continue
            try:
                status = os.lstat(self._base + part[:-1])
            except OSError as error:
                if error.errno in _ABSENT:
                    return
                raise self._error(error, part) from error
            if stat.S_ISLNK(status.st_mode):
                self._target(self._base + part[:-1], part)
            elif not stat.S_ISDIR(status.st_mode):
                return
            if len(self._known) >= _KNOWN_DIRECTORIES:
                self._known = {""}
            self._known.add(part)

    def _target(self, link: str, key: str) -> str:
        root = os.path.realpath(self._root)
        target = os.path.realpath(link)
        if root != "/" and target != root and not target.startswith(root + "/"):
            raise UnsafePath(f"A symbolic link leads out of {self._uri}", file=key)
        return target

    def _walk(self, prefix: str, after: str, recursive: bool) -> Iterator[ObjectMeta]:
        found: builtins.list[tuple[str, os.DirEntry[str]]] = []
        try:
            with os.scandir(self._base + prefix) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        # With its "/" a directory sorts where its keys do: after `a-b`, before `a0`.
                        below = f"{prefix}{entry.name}/"
                        if recursive and (below > after or after.startswith(below)):
                            found.append((below, entry))
                    elif (key := prefix + entry.name) > after and (
                        entry.is_file(follow_symlinks=False) or _links_to_file(entry)
                    ):
                        found.append((key, entry))
        except OSError as error:
            if error.errno in _ABSENT:
                return
            raise self._error(error, prefix) from error
        found.sort(key=lambda pair: pair[0])
        for key, entry in found:
            if not listable(entry.name):
                continue
            if key.endswith("/"):
                yield from self._walk(key, after, recursive)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._error(error, key) from error
            yield ObjectMeta(key=key, size=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)

    def _publish(self, key: str, data: bytes, *, replace: bool) -> bool:
        file = self._new_file(key)
        try:
            file.write(data)
        except OSError as error:
            file.discard()
            raise self._error(error, key) from error
        except BaseException:
            file.discard()
            raise
        return self._finish(file, key, replace=replace)

    def _new_file(self, key: str) -> NewFile:
        directory = os.path.dirname(self.path(key))
        try:
            return NewFile(directory, unnamed=self._unnamed)
        except OSError as error:
            raise self._error(error, key, writing=True) from error

    def _finish(self, file: NewFile, key: str, *, replace: bool, durable: bool = True) -> bool:
        try:
            return file.publish(key.rpartition("/")[2], replace=replace, durable=durable)
        except StorageError as error:
            error.file = key
            raise
        except OSError as error:
            raise self._error(error, key, writing=True) from error

    def _absent(self, key: str) -> ObjectNotFound:
        return ObjectNotFound(f"There is no such object in {self._uri}", file=key)

    def _error(self, error: OSError, key: str, *, writing: bool = False) -> LakesealError:
        why = f"{error.strerror or error} in {self._uri}"
        file = key or None
        if error.errno in _NO_SPACE:
            return OutOfSpace(why, file=file)
        if error.errno in _DENIED:
            return PermissionDenied(why, file=file)
        if error.errno == errno.ENAMETOOLONG:
            return InvalidArgument(why, file=file, hint="Use a shorter name")
        if error.errno in _ABSENT and not writing:
            return self._absent(key)
        return StorageError(why, file=file, hint="Check the disk and the directory")


class _LocalWriteStream(WriteStream):
    def __init__(self, store: LocalStore, key: str, file: NewFile) -> None:
        super().__init__(key)
        self._store = store
        self._file = file
        self._buffer = bytearray()

    def _append(self, data: memoryview) -> None:
        if len(self._buffer) + len(data) <= _WRITE_BUFFER:
            self._buffer += data
            return
        self._drain()
        try:
            self._file.write(data)
        except OSError as error:
            raise self._store._error(error, self.key, writing=True) from error

    def _drain(self) -> None:
        try:
            self._file.write(self._buffer)
        except OSError as error:
            raise self._store._error(error, self.key, writing=True) from error
        self._buffer = bytearray()

    def _publish(self) -> None:
        self._drain()
        self._store._finish(self._file, self.key, replace=True)

    def _discard(self) -> None:
        self._file.discard()


def put_together(asked: Sequence[tuple[Store, Iterable[NewObject]]]) -> list[int | LakesealError]:
    """As `put_if_absent` for the objects of each of several stores, one after the other up to a key that is taken; how
    many that were, or what the first failed by. All files are made durable together, before the first has its name,
    and so are all directories; a few hundred files at a time. A store that is not on local disk gains nothing by it and
    is left as it is: 0 of them."""
    came_to: list[int | LakesealError] = [0] * len(asked)
    over: set[int] = set()
    stores = {place: store for place, (store, _) in enumerate(asked) if isinstance(store, LocalStore)}
    wanted = [(place, one) for place, (_, objects) in enumerate(asked) if place in stores for one in objects]
    for start in range(0, len(wanted), _FILES_AT_ONCE):
        some = [one for one in wanted[start : start + _FILES_AT_ONCE] if one[0] not in over]
        _put_some(stores, some, came_to, over)
    return came_to


def _put_some(
    stores: Mapping[int, LocalStore],
    wanted: Sequence[tuple[int, NewObject]],
    came_to: builtins.list[int | LakesealError],
    over: set[int],
) -> None:
    """`over` are the stores that got no further."""

    def fail(place: int, error: LakesealError) -> None:
        over.add(place)
        if came_to[place] == 0:
            # Otherwise those before it count; whoever asks for this one again is told.
            came_to[place] = error

    made: builtins.list[tuple[int, str, NewFile]] = []
    with contextlib.ExitStack() as opened:
        for place, one in wanted:
            key = one.key
            if place in over:
                continue
            try:
                if os.path.lexists(stores[place].path(key)):
                    over.add(place)
                    continue
                file = stores[place]._new_file(key)
                opened.callback(file.discard)
                file.write(one.data)
                if one.modified_ms is not None:
                    os.utime(file.fd, ns=(one.modified_ms * 1_000_000, one.modified_ms * 1_000_000))
                made.append((place, key, file))
            except OSError as error:
                fail(place, stores[place]._error(error, key, writing=True))
            except LakesealError as error:
                fail(place, error)
        touched: dict[str, None] = {}
        counts: dict[int, int] = {}
        try:
            sync_open([file.fd for _, _, file in made])
            stuck: set[int] = set()
            for place, key, file in made:
                if place in stuck:
                    continue
                try:
                    if not stores[place]._finish(file, key, replace=False, durable=False):
                        stuck.add(place)
                        continue
                except LakesealError as error:
                    stuck.add(place)
                    fail(place, error)
                    continue
                touched[os.path.dirname(stores[place]._base + key) + "/"] = None
                counts[place] = counts.get(place, 0) + 1
            over |= stuck
            sync_together(touched)
        except OSError as error:
            for place in {place for place, _, _ in made}:
                over.add(place)
                came_to[place] = stores[place]._error(error, "", writing=True)
            return
    for place, count in counts.items():
        before = came_to[place]
        came_to[place] = count + (before if isinstance(before, int) else 0)


def _links_to_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink() and entry.is_file()
    except OSError:
        # A link in a circle must not spoil the listing of its neighbours.
        return False


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    parts = [data]
    left = size - len(data)
    while left and (data := os.read(descriptor, left)):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)
