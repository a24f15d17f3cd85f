"""New files on local disk: invisible while they are written, then durable and visible in one step.

A `NewFile` has no name where the file system allows it (O_TMPFILE), so a crash leaves nothing behind; elsewhere it has
a hidden name that no listing shows. `publish` fsyncs the file, gives it its name, and fsyncs the directory:

- `replace=False` uses link(), which fails if the name is taken: one winner, with no moment in between.
- `replace=True` uses rename() where the name is taken.

So at no time, and after no crash, does a final name stand for half a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from lakeseal.errors import StorageError, StorageUnavailable
from lakeseal.storage.keys import temporary_name

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}

_WORTH_SYNCING_ALL = 4
_REPORTS_ERRORS = (5, 8)
"""Linux before it told of errors only who synced the file itself."""

_unnamed_by_device: dict[int, bool] = {}


class NewFile:
    """`publish` or `discard` ends it; a `discard` after that does nothing."""

    def __init__(self, directory: str, *, unnamed: bool = True) -> None:
        self._directory = open_directory(directory)
        self._name: str | None = None
        self._ended = False
        try:
            if unnamed and _allows_unnamed(self._directory):
                self.fd = _open_unnamed(self._directory)
            else:
                self._name = temporary_name(uuid.uuid4().hex)
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                self.fd = os.open(self._name, flags, 0o666, dir_fd=self._directory)
        except BaseException:
            os.close(self._directory)
            raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        written = os.write(self.fd, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(self.fd, rest) :]

    def publish(self, name: str, *, replace: bool, durable: bool = True) -> bool:
        """False if the name is taken (never with `replace`). An error after the file became visible is
        `StorageUnavailable`: it is there, and may or may not survive a crash. Without `durable` it is only visible."""
        try:
            if durable:
                os.fsync(self.fd)
            visible = self._replace(name) if replace else self._link(name)
            if visible and durable:
                try:
                    os.fsync(self._directory)
                except OSError as error:
                    raise StorageUnavailable(
                        f"The file is there, but making it durable failed: {error.strerror}",
                        file=name,
                        hint="Check the disk, then look whether the file is there",
                    ) from error
            return visible
        finally:
            self.discard()

    def discard(self) -> None:
        if self._ended:
            return
        self._ended = True
        # After `publish` the outcome is settled, and what is left behind here is invisible: no error may change it.
        with contextlib.suppress(OSError):
            os.close(self.fd)
        if self._name is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._directory)
        with contextlib.suppress(OSError):
            os.close(self._directory)

    def _link(self, name: str) -> bool:
        try:
            self._link_to(name)
        except FileExistsError:
            # A network file system may answer a repeated request: the name is taken, by this very file.
            return self._is_at(name)
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise StorageError(
                    "The file system has no hard links, so two writers could not be told apart",
                    file=name,
                    hint="Keep the table on another file system or in an object store",
                ) from error
            raise
        return True

    def _replace(self, name: str) -> bool:
        if self._name is None:
            try:
                self._link_to(name)
            except FileExistsError:
                hidden = temporary_name(uuid.uuid4().hex)
                self._link_to(hidden)
                self._name = hidden
            else:
                return True
        os.rename(self._name, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._name = None
        return True

    def _link_to(self, name: str) -> None:
        source = f"/proc/self/fd/{self.fd}" if self._name is None else self._name
        # Giving directory descriptors makes Python call linkat(), which alone follows /proc's link to the file.
        os.link(
            source, name, src_dir_fd=self._directory, dst_dir_fd=self._directory, follow_symlinks=self._name is None
        )

    def _is_at(self, name: str) -> bool:
        try:
            found = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self.fd))


def open_directory(path: str) -> int:
    """A descriptor of the directory, which is made, durably, with its parents if need be."""
    try:
        return os.open(path, _OPEN_DIRECTORY)
    except FileNotFoundError:
        for parent in make_directories(path.rstrip("/")):
            sync_directory(parent)
        return os.open(path, _OPEN_DIRECTORY)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, _OPEN_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_open(descriptors: Sequence[int]) -> None:
    """Files that are open; see `sync_together`."""
    by_device: dict[int, list[int]] = {}
    for descriptor in descriptors:
        by_device.setdefault(os.fstat(descriptor).st_dev, []).append(descriptor)
    for ours in by_device.values():
        if _syncfs is None or len(ours) < _WORTH_SYNCING_ALL:
            for descriptor in ours:
                os.fsync(descriptor)
        elif _syncfs(ours[0]) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def sync_together(paths: Iterable[str]) -> None:
    """Files, and directories, which end with a slash. Where many are on one disk, it is asked once for all of them: to
    wait for it once for each would keep it from whoever else waits for it, such as a database."""
    by_device: dict[int, list[str]] = {}
    devices: dict[str, int] = {}
    for path in paths:
        directory = os.path.dirname(path)
        if directory not in devices:
            devices[directory] = os.stat(directory).st_dev
        by_device.setdefault(devices[directory], []).append(path)
    for ours in by_device.values():
        if _syncfs is None or len(ours) < _WORTH_SYNCING_ALL:
            for path in ours:
                with _opened(path, follow=True) as descriptor:
                    os.fsync(descriptor)
        else:
            with _opened(ours[0], follow=True) as descriptor:
                if _syncfs(descriptor) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), ours[0])


@contextlib.contextmanager
def _opened(path: str, *, follow: bool = False) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _find_syncfs() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if release is None or (int(release[1]), int(release[2])) < _REPORTS_ERRORS:
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


_syncfs = _find_syncfs()


def make_directories(path: str) -> list[str]:
    """Makes a directory with its parents. Those returned are to be made durable, in this order.

    Also where another process made one just now: it may not have come to its own fsync yet."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(directory).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory) from None
    return [os.path.dirname(directory) for directory in reversed(missing)]


def _open_unnamed(directory: int) -> int:
    return os.open(".", _UNNAMED, 0o666, dir_fd=directory)


def _allows_unnamed(directory: int) -> bool:
    device = os.fstat(directory).st_dev
    allowed = _unnamed_by_device.get(device)
    if allowed is None:
        allowed = _unnamed_by_device[device] = _try_unnamed(directory)
    return allowed


def _try_unnamed(directory: int) -> bool:
    """Tried once per device: some file systems open such a file and then cannot name it, or /proc is not there."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        descriptor = _open_unnamed(directory)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS):
            return False
        raise
    name = temporary_name(uuid.uuid4().hex)
    try:
        os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=True)
        os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
