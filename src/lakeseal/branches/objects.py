"""The content of entries: objects in a repository's own store, or elsewhere."""

from __future__ import annotations

from urllib.parse import quote

import pyarrow as pa

from lakeseal.branches.values import Entry
from lakeseal.errors import ObjectNotFound, UnsafePath
from lakeseal.storage import Store, StoreSpec, resolve
from lakeseal.storage.location import parse


def open_object(store: Store, spec: StoreSpec, entry: Entry) -> pa.NativeFile:
    """`spec` is that of the store."""
    try:
        if "://" not in entry.address:
            return store.open_read(entry.address)
        # A repository in a bucket must not make its readers open files of their own machine.
        if parse(entry.address).kind != parse(spec.uri).kind:
            raise UnsafePath("an entry's object is on another kind of store", file=entry.address)
        elsewhere, key = resolve(quote(entry.address, safe="/:@"), spec.storage_options)
        return elsewhere.open_read(key)
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"the object of {entry.path!r} is gone", file=entry.address, hint="It was collected, or never written"
        ) from error
