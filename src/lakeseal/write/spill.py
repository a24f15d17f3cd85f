"""Rows that wait on local disk, by partition.

A task that meets more partitions than it can keep files open for puts pieces of them here, run by run, and takes all
pieces of a partition back when its input has ended. Each run is one Arrow file, each piece one batch in it; only the
piece that is asked for is read. The files are gone when the spill is closed, whatever happened.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NoReturn

import pyarrow as pa

from lakeseal.errors import OutOfSpace, StorageError


class Spill:
    def __init__(self, directory: str | None = None) -> None:
        """`directory` is where to put the files; by default where the system puts temporary ones."""
        self._parent = directory
        self._directory: str | None = None
        self._runs: list[pa.ipc.RecordBatchFileReader] = []
        self._files: list[pa.NativeFile] = []
        self._places: dict[str, list[tuple[int, int]]] = {}

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def partitions(self) -> list[str]:
        return list(self._places)

    def add_run(self, pieces: Sequence[tuple[str, pa.RecordBatch]]) -> None:
        try:
            if self._directory is None:
                self._directory = tempfile.mkdtemp(prefix="lakeseal-spill-", dir=self._parent)
            path = os.path.join(self._directory, f"{len(self._runs)}.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, pieces[0][1].schema) as writer:
                for place, (partition, piece) in enumerate(pieces):
                    writer.write_batch(piece)
                    self._places.setdefault(partition, []).append((len(self._runs), place))
            file = pa.OSFile(path, "rb")
            self._files.append(file)
            self._runs.append(pa.ipc.open_file(file))
        except OSError as error:
            _raise(error, self._directory or self._parent or tempfile.gettempdir())

    def take(self, partition: str) -> Iterator[pa.RecordBatch]:
        """The pieces of a partition in the order in which they came; each is read when it is asked for."""
        for run, place in self._places.pop(partition, ()):
            yield self._runs[run].get_batch(place)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files, self._runs, self._places = [], [], {}
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def _raise(error: OSError, directory: str) -> NoReturn:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise OutOfSpace(
            f"There is no space left in {directory}, where a task keeps rows of many partitions",
            hint="Free space there, point TMPDIR elsewhere, or repartition the data by the partition columns first",
        ) from error
    raise StorageError(f"A task could not keep rows in {directory}: {error}", hint="Check that directory") from error
