"""Rows that wait on local disk, by partition.

A task that meets more partitions than it can keep files open for puts pieces of them here, and takes all pieces of a
partition back when its input has ended. All pieces are batches of one Arrow file; only those that are asked for are
read. The file is gone when the spill is closed, whatever happened.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from lakeseal.errors import InvalidArgument, OutOfSpace, StorageError


class Spill:
    """First `add`, then `take`, at last `close`."""

    def __init__(self, directory: str | None) -> None:
        """`directory` is where to put the file; by default where the system puts temporary ones."""
        self._parent = directory or tempfile.gettempdir()
        self._directory: str | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._file: pa.NativeFile | None = None
        self._places: dict[str, list[int]] = {}
        self._count = 0

    @property
    def partitions(self) -> list[str]:
        return list(self._places)

    def add(self, pieces: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        with _typed_errors(self._parent):
            for partition, piece in pieces:
                if self._writer is None:
                    self._directory = tempfile.mkdtemp(prefix="lakeseal-spill-", dir=self._parent)
                    self._file = pa.OSFile(self._path, "wb")
                    self._writer = pa.ipc.new_file(self._file, piece.schema)
                self._writer.write_batch(piece)
                self._places.setdefault(partition, []).append(self._count)
                self._count += 1

    def take(self, partition: str) -> Iterator[pa.RecordBatch]:
        """The pieces of a partition in the order in which they came; each is read when it is asked for."""
        for place in self._places.pop(partition, ()):
            with _typed_errors(self._parent):
                if self._reader is None:
                    self._reader = self._reopened()
                piece = self._reader.get_batch(place)
            yield piece

    def close(self) -> None:
        self._places = {}
        self._reader = None
        if self._file is not None:
            # The writer is left unfinished where it is so: what it would add has no reader.
            self._file.close()
            self._file = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def _path(self) -> str:
        assert self._directory is not None
        return os.path.join(self._directory, "rows.arrow")

    def _reopened(self) -> pa.ipc.RecordBatchFileReader:
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        self._file.close()
        self._file = pa.OSFile(self._path, "rb")
        return pa.ipc.open_file(self._file)


@contextmanager
def _typed_errors(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(
                f"There is no space left in {directory}, where a task keeps rows of many partitions",
                hint="Free space there, name another spill_directory, or sort the data by the partition columns first",
            ) from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise InvalidArgument(f"The spill directory {directory} is not there", hint="Create it") from error
        raise StorageError(
            f"A task could not keep rows in {directory}: {error}", hint="Check that directory, or name another"
        ) from error
