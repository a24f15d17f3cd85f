"""Bytes at keys: local disk, memory, S3, GCS, Azure."""

from __future__ import annotations

from lakeseal.storage.base import HasDirectories, MovesObjects, ObjectMeta, PlacesObjects, Store
from lakeseal.storage.local import LocalStore
from lakeseal.storage.object import ObjectStore
from lakeseal.storage.streams import WriteStream
from lakeseal.storage.uri import StoreSpec, identity, key_in, open_store, real_uri, resolve

__all__ = [
    "HasDirectories",
    "LocalStore",
    "MovesObjects",
    "ObjectMeta",
    "ObjectStore",
    "PlacesObjects",
    "Store",
    "StoreSpec",
    "WriteStream",
    "identity",
    "key_in",
    "open_store",
    "real_uri",
    "resolve",
]
