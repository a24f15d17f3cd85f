"""Bytes at keys in memory, S3, GCS and Azure, through obstore.

`put_if_absent` sends its request once, on a client that does not retry: a store that took the first try and lost the
reply would answer a second one with "already exists", and a winner would believe that it lost. So a lost reply, a
timeout and a 5xx all become `StorageUnavailable`, and who proposed must read back. Every other request is retried.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, NoReturn, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from lakeseal.backoff import Backoff
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    LakesealError,
    ObjectNotFound,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    StorageUnavailable,
)
from lakeseal.storage.base import ObjectMeta, Store
from lakeseal.storage.keys import check_key, check_prefix, check_range, is_key
from lakeseal.storage.location import Location
from lakeseal.storage.object.clients import connect, lists_from_offset, lists_in_order, refuse_after_fork, scrub
from lakeseal.storage.object.files import TAIL, ObjectReader, ObjectWriteStream
from lakeseal.storage.streams import WriteStream

T = TypeVar("T")

_SIDE_BY_SIDE = 16
_LIST_CHUNK = 1000
_PART = 8 << 20
_LAST_CHARACTER = "\U0010ffff"
_CONFLICT = Backoff(first_s=0.02, longest_s=1.0)
_CONFLICT_TRIES = 7
_status = re.compile(r"status code: (\d{3})")
_code = re.compile(r"<Code>(\w+)</Code>")


class ObjectStore:
    def __init__(self, location: Location, options: Mapping[str, str]) -> None:
        self._location = location
        self._options = options
        self._prefix = location.path + "/" if location.path else ""
        self._client, self._conditional = connect(location, options)
        self._in_order = lists_in_order(location, options)

    @property
    def uri(self) -> str:
        return self._location.uri

    def __repr__(self) -> str:
        return f"ObjectStore({self.uri!r})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument("A store cannot be pickled", hint="Send a StoreSpec, and open it where it is used")

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with self._reporting(key):
            return obstore.get(self._client, path).bytes().to_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        path = self._path(key)
        if length > 0:
            try:
                with self._reporting(key):
                    return obstore.get_range(self._client, path, start=start, length=length).to_bytes()
            except StorageError:
                # Stores disagree on how to refuse a range that starts beyond the end.
                if self.head(key).size > start:
                    raise
                return b""
        self.head(key)
        return b""

    def get_ranges(self, key: str, spans: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return self._side_by_side(lambda span: self.get_range(key, *span), spans)

    def get_many(self, keys: Sequence[str]) -> builtins.list[bytes]:
        return self._side_by_side(self.get, keys)

    def head(self, key: str) -> ObjectMeta:
        path = self._path(key)
        with self._reporting(key):
            return self._meta(obstore.head(self._client, path))

    def list(self, prefix: str = "", *, after: str | None = None, recursive: bool = False) -> Iterator[ObjectMeta]:
        entries = self._entries(check_prefix(prefix), after, recursive)
        if not self._in_order:
            entries = iter(sorted(entries, key=lambda entry: str(entry["path"])))
        return map(self._meta, entries)

    def list_keys(self, prefix: str = "", *, after: str | None = None) -> builtins.list[str]:
        start = len(self._prefix)
        return sorted(entry["path"][start:] for entry in self._entries(check_prefix(prefix), after, recursive=False))

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._reporting(key, bucket=True):
            obstore.put(self._client, path, data, chunk_size=_PART)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        for _ in _CONFLICT.tries(most=_CONFLICT_TRIES):
            try:
                with self._reporting(key, bucket=True):
                    obstore.put(self._conditional, path, data, mode="create")
                    return True
            except AlreadyExists:
                pass
            except StorageUnavailable as error:
                error.hint = "It may or may not have been written: read it back to know"
                raise
            # S3 also refuses when two requests are under way at once, even if the other one fails in the end.
            if self._exists(key):
                return False
        raise StorageUnavailable(f"{self.uri} keeps refusing the object, though there is none", file=key)

    def delete(self, keys: Iterable[str]) -> None:
        paths = [self._path(key) for key in keys]
        if not paths:
            return
        try:
            with self._reporting(""):
                obstore.delete(self._client, paths)
        except ObjectNotFound:
            # GCS and Azure stop at an absent key.
            with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(paths)), thread_name_prefix="lakeseal-delete") as pool:
                builtins.list(pool.map(self._delete_one, paths))

    def move(self, pairs: Sequence[tuple[str, str]], to: Store) -> builtins.list[tuple[str, str]]:
        """By copies that the store makes itself, in one bucket, and then deletes."""
        if not isinstance(to, ObjectStore) or not self._is_beside(to):
            return builtins.list(pairs)
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="lakeseal-copy") as pool:
            builtins.list(pool.map(lambda pair: self._copy(pair[0], to._path(pair[1])), pairs))
        self.delete([source for source, _ in pairs])
        return []

    def open_read(self, key: str) -> pa.NativeFile:
        path = self._path(key)
        tail = b""
        try:
            with self._reporting(key):
                answer = obstore.get(self._client, path, options={"range": {"suffix": TAIL}})
                meta, tail = answer.meta, answer.bytes().to_bytes()
        except StorageError:
            # Azure cannot ask for a tail, and S3 refuses one of an empty object.
            with self._reporting(key):
                meta = obstore.head(self._client, path)
        version = meta["e_tag"]

        def fetch(start: int, length: int) -> bytes:
            with self._reporting(key):
                wanted = (start, start + length)
                answer = obstore.get(self._client, path, options={"range": wanted, "if_match": version})
                return answer.bytes().to_bytes()

        return pa.PythonFile(ObjectReader(fetch, meta["size"], tail), mode="r")

    def open_write(self, key: str) -> WriteStream:
        path = self._path(key)
        with self._reporting(key, bucket=True):
            writer = obstore.open_writer(self._client, path, buffer_size=_PART, max_concurrency=4)
        return ObjectWriteStream(key, writer, lambda error: self._error(error, key, bucket=True))

    def _side_by_side(self, get: Callable[[T], bytes], wanted: Sequence[T]) -> builtins.list[bytes]:
        if len(wanted) < 2 or self._location.kind == "memory":
            return [get(one) for one in wanted]
        pool = ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(wanted)), thread_name_prefix="lakeseal-get")
        try:
            return builtins.list(pool.map(get, wanted))
        finally:
            pool.shutdown(cancel_futures=True)

    def _is_beside(self, other: ObjectStore) -> bool:
        mine, others = self._location, other._location
        places = [(one.kind, one.bucket, one.host) for one in (mine, others)]
        return places[0] == places[1] and self._options == other._options

    def _copy(self, key: str, path: str) -> None:
        with self._reporting(key):
            obstore.copy(self._client, self._path(key), path)

    def _path(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _meta(self, entry: Any) -> ObjectMeta:
        modified = int(entry["last_modified"].timestamp() * 1000)
        return ObjectMeta(key=entry["path"][len(self._prefix) :], size=entry["size"], modified_ms=modified)

    def _exists(self, key: str) -> bool:
        try:
            self.head(key)
        except ObjectNotFound:
            return False
        return True

    def _delete_one(self, path: str) -> None:
        try:
            with self._reporting(path):
                obstore.delete(self._client, path)
        except ObjectNotFound:
            pass

    def _entries(self, prefix: str, after: str | None, recursive: bool) -> Iterator[Any]:
        directory = self._prefix + prefix
        with self._reporting(prefix, bucket=True):
            found: Iterable[Any]
            offset = self._prefix + (after or "")
            if recursive:
                found = self._below(directory, offset)
            elif after is not None:
                found = self._beside(directory, offset)
            else:
                found = obstore.list_with_delimiter(self._client, directory or None)["objects"]
            for entry in found:
                path = entry["path"]
                if path > offset and path.startswith(directory) and (entry["size"] or not self._is_marker(path)):
                    yield entry

    def _below(self, directory: str, offset: str) -> Iterator[Any]:
        # The client wants a key here, and any text may be asked for: start no later, and leave the rest to the caller.
        start = offset.rstrip("/")
        start = start if is_key(start) else directory.rstrip("/")
        stream = obstore.list(self._client, directory or None, offset=start or None, chunk_size=_LIST_CHUNK)
        return chain.from_iterable(stream)

    def _beside(self, directory: str, offset: str) -> Iterator[Any]:
        """Only what lies in the directory itself: no store lists so with an offset, so what lies deeper is left out
        here, and a subdirectory that goes on for long is jumped over."""
        passed = 0
        for entry in self._below(directory, offset):
            name, slash, _ = entry["path"][len(directory) :].partition("/")
            if not slash:
                passed = 0
                yield entry
                continue
            passed += 1
            if passed >= _LIST_CHUNK and lists_from_offset(self._location):
                yield from self._beside(directory, f"{directory}{name}/{_LAST_CHARACTER}")
                return

    def _is_marker(self, path: str) -> bool:
        """A folder's marker, the object "d/", is listed as an empty "d"; only asking tells the two apart."""
        if self._location.kind == "memory":
            return False
        try:
            obstore.head(self._client, path)
        except FileNotFoundError:
            return True
        return False

    @contextmanager
    def _reporting(self, key: str, *, bucket: bool = False) -> Iterator[None]:
        """Our errors for obstore's; with `bucket`, what was not found can only be the bucket."""
        refuse_after_fork(self._location)
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            # The chain is cut: obstore's errors print requests, and those may hold signatures.
            raise self._error(error, key, bucket=bucket) from None

    def _error(self, error: Exception, key: str, *, bucket: bool = False) -> LakesealError:
        if isinstance(error, LakesealError):
            return error
        file = key or None
        text = str(error)
        found = _status.search(text)
        # Listing and uploading in parts report a status only in their text.
        status = int(found[1]) if found else 0
        if isinstance(error, FileNotFoundError) or status == 404:
            if bucket:
                return ObjectNotFound(
                    f"There is no bucket for {self.uri}", file=file, hint="Create it, or check the URI"
                )
            return ObjectNotFound(f"There is no such object in {self.uri}", file=file)
        code = _code.search(text)
        reason = scrub(text.partition("\n")[0].partition(": <?xml")[0], self._options)
        why = f"{reason} ({code[1]})" if code else reason
        if isinstance(error, AlreadyExistsError):
            return AlreadyExists(why, file=file)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
            return PermissionDenied(why, file=file)
        if isinstance(error, PreconditionError):
            return StorageError(why, file=file, hint="The object was replaced while it was read: read it again")
        if isinstance(error, InvalidPathError):
            return StorageError(why, file=file, hint="Remove or rename the object whose name is no key")
        if isinstance(error, NotSupportedError | ValueError):
            return StorageError(why, file=file, hint="Check the storage options")
        if "169.254.169.254" in text:
            return PermissionDenied(f"No credentials were found for {self.uri}", file=file)
        if "BadScheme" in text:
            return StorageError(why, file=file, hint="Set the storage option allow_http to true to use plain HTTP")
        if status == 507:
            return OutOfSpace(why, file=file)
        if 400 <= status < 500 and status not in (408, 429):
            return StorageError(why, file=file, hint="Check the request against what this store supports")
        return StorageUnavailable(why, file=file)
