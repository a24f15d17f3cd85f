"""The content of entries: objects in a repository's own store, or elsewhere."""

from __future__ import annotations

from urllib.parse import quote

import pyarrow as pa

from lakeseal.branches.values import Entry
from lakeseal.errors import ObjectNotFound, UnsafePath
from lakeseal.storage import Store, StoreSpec, resolve
from lakeseal.storage.places import is_in_any
from lakeseal.trust import PLACES, Trust


def open_object(store: Store, spec: StoreSpec, entry: Entry, trust: Trust) -> pa.NativeFile:
    """`spec` is that of the store, and `trust` says which other places may be read."""
    try:
        if "://" not in entry.address:
            return store.open_read(entry.address)
        # Whoever may commit may name any address: a repository must not make its readers open files of their own.
        elsewhere, key = resolve(quote(entry.address, safe="/:@"), spec.storage_options)
        if not is_in_any((elsewhere.uri, key), (spec.uri, *trust.places)):
            raise UnsafePath(
                f"The object of {entry.path!r} is in a place that is not the repository's",
                file=entry.address,
                hint=f"If you trust whoever committed it, allow the place: {PLACES}, or Trust(places=…)",
            )
        return elsewhere.open_read(key)
    except ObjectNotFound as error:
        raise ObjectNotFound(
            f"the object of {entry.path!r} is gone", file=entry.address, hint="It was collected, or never written"
        ) from error
