"""A stream that becomes an object when it is closed, and not before.

Closing publishes what was written, durably. Everything else leaves no object: `abort()`, leaving the `with` block by an
exception, an error in `write`, and forgetting the stream (garbage collection does not publish).
"""

from __future__ import annotations

import contextlib
import io
from abc import abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from lakeseal.errors import InvalidArgument

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class WriteStream(io.BufferedIOBase, BinaryIO):
    """Implementations give `_append`, `_publish` and `_discard`; each of the last two is called at most once."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self._written = 0
        self._over = False

    @abstractmethod
    def _append(self, data: memoryview) -> None: ...

    @abstractmethod
    def _publish(self) -> None: ...

    @abstractmethod
    def _discard(self) -> None:
        """Also called when `_publish` failed."""

    def write(self, data: ReadableBuffer, /) -> int:
        if self._over:
            raise InvalidArgument("The stream is closed or was aborted", file=self.key)
        view = memoryview(data).cast("B")
        try:
            self._append(view)
        except BaseException:
            self.abort()
            raise
        self._written += len(view)
        return len(view)

    def close(self) -> None:
        if self._over:
            return
        self._over = True
        try:
            self._publish()
        except BaseException:
            # The first error is the one that says why; a failing clean-up must not hide it.
            with contextlib.suppress(Exception):
                self._discard()
            raise
        finally:
            super().close()

    def abort(self) -> None:
        """Give up: no object appears. Does nothing after `close` or another `abort`."""
        if self._over:
            return
        self._over = True
        try:
            self._discard()
        finally:
            super().close()

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def __enter__(self) -> WriteStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # io's own finalizer would close, and so publish a part.
        with contextlib.suppress(Exception):
            self.abort()
