"""Bytes of data files on their way to the store.

A `FileSink` is what a file format writes into. It keeps a small file in memory and hands it over in one piece, and
turns into a stream once the file has grown; so thousands of small files cost one request each, and large ones do not
cost memory. `Uploads` runs those requests side by side: an object store answers after milliseconds, a disk after an
fsync, and a task with many partitions would otherwise spend its time waiting. The last one is made by the task itself,
so that a task with one file, which is the shortest way to a commit, needs no thread at all.

Nothing is there before `wait` has returned; after an error, or `cancel`, whatever was not yet started never is.
"""

from __future__ import annotations

import hashlib
import io
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakeseal.storage.base import Store
from lakeseal.storage.streams import WriteStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_THREADS = 8
_MAX_WAITING_BYTES = 64 * 2**20
_STREAM_FROM = 4 * 2**20


class Uploads:
    def __init__(self, store: Store, *, hashed: bool = False) -> None:
        """`hashed` files know their checksum."""
        self.store = store
        self.hashed = hashed
        self._executor: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._waiting_bytes = 0
        self._pending = 0
        self._error: BaseException | None = None
        self._last: tuple[str, bytes] | None = None

    def put(self, key: str, data: bytes) -> None:
        """Returns before it is done; raises what an earlier one raised."""
        last, self._last = self._last, (key, data)
        if last is not None:
            self._submit(*last)

    def _submit(self, key: str, data: bytes) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-upload")
        with self._changed:
            while self._pending and self._waiting_bytes + len(data) > _MAX_WAITING_BYTES and self._error is None:
                self._changed.wait()
            self._raise()
            self._pending += 1
            self._waiting_bytes += len(data)
        self._executor.submit(self.store.put, key, data).add_done_callback(lambda done: self._settle(done, len(data)))

    def wait(self) -> None:
        last, self._last = self._last, None
        try:
            if last is not None:
                self.store.put(*last)
        except BaseException:
            self.cancel()
            raise
        with self._changed:
            while self._pending and self._error is None:
                self._changed.wait()
        if self._error is not None:
            self.cancel()
        elif self._executor is not None:
            self._executor.shutdown()
        self._raise()

    def cancel(self) -> None:
        """Give up what was not started and wait for what was."""
        self._last = None
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _settle(self, done: Future[None], size: int) -> None:
        error = None if done.cancelled() else done.exception()
        with self._changed:
            self._pending -= 1
            self._waiting_bytes -= size
            self._error = self._error or error
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


class FileSink(io.RawIOBase):
    """Ends by `publish` or `abort`, and takes no bytes after that; closing or forgetting it publishes nothing."""

    def __init__(self, uploads: Uploads, key: str) -> None:
        super().__init__()
        self.key = key
        self.size = 0
        self._uploads = uploads
        self._hash = hashlib.sha256() if uploads.hashed else None
        self._held = bytearray()
        self._stream: WriteStream | None = None
        self._ended = False

    @property
    def checksum(self) -> str | None:
        """Of the bytes so far; None where nobody asked for one."""
        return None if self._hash is None else f"sha256:{self._hash.hexdigest()}"

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        if self._ended:
            # Whoever buffers bytes on their way here writes what is left when it is forgotten.
            return len(view)
        if self._stream is None and self.size + len(view) > _STREAM_FROM:
            self._stream = self._uploads.store.open_write(self.key)
            self._stream.write(self._held)
            self._held = bytearray()
        if self._stream is None:
            self._held += view
        else:
            self._stream.write(view)
        if self._hash is not None:
            self._hash.update(view)
        self.size += len(view)
        return len(view)

    def publish(self) -> None:
        self._ended = True
        if self._stream is None:
            self._uploads.put(self.key, bytes(self._held))
        else:
            self._stream.close()
        self._held = bytearray()

    def abort(self) -> None:
        self._ended = True
        self._held = bytearray()
        if self._stream is not None:
            self._stream.abort()
