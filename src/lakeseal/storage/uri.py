"""From a URI to a store, and back to a description that can travel.

`open_store` takes what users write, `resolve` what stands in a table's log, and `StoreSpec` what crosses processes.
`location` tells which URIs there are, `object/clients` which storage options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from lakeseal.errors import InvalidArgument, InvalidUri, UnsafePath
from lakeseal.storage.base import Store
from lakeseal.storage.local.store import LocalStore
from lakeseal.storage.location import Location, parse
from lakeseal.storage.object.clients import refuse_options
from lakeseal.storage.object.store import ObjectStore


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """The store rooted at `uri`. Nothing is contacted or created yet.

    `memory://name` is the same store wherever this process opens it."""
    return _open(parse(uri), storage_options or {})


def resolve(uri: str, storage_options: Mapping[str, str] | None = None) -> tuple[Store, str]:
    """The store and the key of an absolute URI as a table's log writes it, percent-encoded: `file:/d/a%20b.parquet`.

    The store is rooted at the bucket, or at `/`, so what may be read is for the caller to decide. Stores are kept and
    shared, so resolving many files of a bucket opens one client."""
    location = parse(_absolute(uri), encoded=True)
    key = location.path.removeprefix("/") if location.kind == "file" else location.path
    if not key or uri.endswith("/"):
        raise InvalidUri(f"{uri!r} names a directory, not an object")
    root = replace(location, path="/" if location.kind == "file" else "")
    return _root(StoreSpec(uri=root.uri, storage_options=storage_options or {})), key


def identity(store: Store) -> str:
    """The one name of a store's place: on local disk a path may be one of many, by links, and this is none of them."""
    return store.real_uri if isinstance(store, LocalStore) else store.uri


def key_in(store: Store, uri: str) -> str | None:
    """The key of a file that a log names by an absolute URI, if it is one of this store after all: by another path."""
    if not isinstance(store, LocalStore) or not (uri.startswith("/") or uri[:5].lower() == "file:"):
        return None
    return store.key_of(parse(uri, encoded=True).path)


class StoreSpec(Struct, frozen=True, kw_only=True):
    """A store's description, for tasks and worker processes: pickled where the store itself cannot be.

    The URI is normalised, so a relative path means the same everywhere. `repr` shows names of options, never values."""

    uri: str
    storage_options: Mapping[str, str] = {}
    process: int = 0
    """For `memory://`, the process that the store lives in; elsewhere 0."""

    def __post_init__(self) -> None:
        location = parse(self.uri)
        force_setattr(self, "uri", location.uri)
        force_setattr(self, "storage_options", dict(self.storage_options))
        if location.kind == "memory" and not self.process:
            force_setattr(self, "process", os.getpid())

    def open(self) -> Store:
        if self.process not in (0, os.getpid()):
            raise InvalidArgument(
                f"{self.uri} lives in another process", hint="Use a local path or an object store to share data"
            )
        return open_store(self.uri, self.storage_options)

    def __hash__(self) -> int:
        return hash((self.uri, frozenset(self.storage_options.items())))

    def __repr__(self) -> str:
        return f"StoreSpec(uri={self.uri!r}, storage_options=<{', '.join(sorted(self.storage_options))}>)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("uri", self.uri), ("storage_options", sorted(self.storage_options))]


def _open(location: Location, options: Mapping[str, str]) -> Store:
    if location.kind == "file":
        refuse_options(location, options)
        return LocalStore(location.path)
    return ObjectStore(location, dict(options))


@lru_cache(maxsize=32)
def _root(spec: StoreSpec) -> Store:
    return spec.open()


def _absolute(uri: str) -> str:
    if ":/" not in uri and not uri.startswith("/"):
        raise InvalidUri(f"{uri!r} is not absolute")
    # By text `a/..` is nothing, but a link `a` may lead anywhere; no writer of logs needs it.
    if any(part in (".", "..") for part in uri.lower().replace("%2e", ".").replace("%2f", "/").split("/")):
        raise UnsafePath("An absolute URI in a log has '.' or '..' in it", file=uri)
    return uri
