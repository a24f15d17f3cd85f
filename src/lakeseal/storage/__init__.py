"""Bytes at keys: local disk, memory, S3, GCS, Azure."""

from __future__ import annotations

from lakeseal.storage.base import HasDirectories, KeepsTimes, MovesObjects, NewObject, ObjectMeta, Store, SyncsObjects
from lakeseal.storage.local.store import LocalStore, put_together
from lakeseal.storage.location import is_below, prefix_of, real_uri
from lakeseal.storage.object.store import ObjectStore
from lakeseal.storage.streams import WriteStream
from lakeseal.storage.uri import StoreSpec, identity, key_in, open_store, resolve

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
    "is_below",
    "key_in",
    "open_store",
    "prefix_of",
    "put_together",
    "real_uri",
    "resolve",
]
