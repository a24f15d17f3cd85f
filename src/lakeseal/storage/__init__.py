"""Bytes at keys: local disk, memory, S3, GCS, Azure."""

from __future__ import annotations

from lakeseal.storage.base import HasDirectories, KeepsTimes, MovesObjects, NewObject, ObjectMeta, Store, SyncsObjects
from lakeseal.storage.local.store import LocalStore, put_together
from lakeseal.storage.object.store import ObjectStore
from lakeseal.storage.streams import WriteStream
from lakeseal.storage.uri import StoreSpec, identity, key_in, open_store, real_uri, resolve

__all__ = [
    "HasDirectories",
    "KeepsTimes",
    "LocalStore",
    "MovesObjects",
    "NewObject",
    "ObjectMeta",
    "ObjectStore",
    "Store",
    "StoreSpec",
    "SyncsObjects",
    "WriteStream",
    "identity",
    "key_in",
    "open_store",
    "put_together",
    "real_uri",
    "resolve",
]
