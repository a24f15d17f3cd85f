"""A repository's description, `_lakeseal/repository.json`: its id, its format, and which ledger it was made with.

The ledger's name is for people, and for `create` to see whose repository it finds; nobody connects to it because it is
written here.
"""

from __future__ import annotations

import os
import uuid

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches.paths import META
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.errors import BrokenTree, InvalidArgument, ObjectNotFound, RepositoryNotFound, Unsupported
from lakeseal.ledger import Ledger
from lakeseal.ledger import open as open_ledger
from lakeseal.storage import LocalStore, Store, StoreSpec

KEY = f"{META}repository.json"
FORMAT = 2


class Config(Struct, frozen=True, kw_only=True):
    format: int
    id: str
    ledger: str
    shape: TreeShape = TreeShape()


def read(store: Store) -> Config:
    try:
        data = store.get(KEY)
    except ObjectNotFound as error:
        raise RepositoryNotFound(f"there is no repository at {store.uri}") from error
    try:
        config = typed_json.decode(data, Config)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BrokenTree(f"the repository's description can't be read: {error}", file=KEY) from error
    if config.format != FORMAT:
        newer = config.format > FORMAT
        raise Unsupported(
            f"the repository {store.uri} has format {config.format}, and this Lakeseal reads format {FORMAT}",
            hint="A newer Lakeseal made it: upgrade Lakeseal" if newer else "Make it again: no release wrote it",
        )
    return config


def make(store: Store, ledger: Ledger, shape: TreeShape) -> Config:
    """The description that is there in the end: ours, or that of whoever was before us."""
    config = Config(format=FORMAT, id=uuid.uuid4().hex, ledger=ledger.url.public, shape=shape)
    store.put_if_absent(KEY, msgspec.json.format(msgspec.json.encode(config), indent=1))
    return read(store)


def ledger_for(spec: StoreSpec, ledger: str | Ledger | None, *, create: bool) -> Ledger:
    """The one that is given; where none is, a file in a repository on local disk."""
    if isinstance(ledger, str):
        return open_ledger(ledger, create=create)
    if ledger is not None:
        return ledger
    if not spec.uri.startswith("file://"):
        raise InvalidArgument(
            f"a repository at {spec.uri} needs a ledger", hint="Pass ledger=, such as postgresql://host/db"
        )
    store = spec.open()
    assert isinstance(store, LocalStore)
    if not create:
        read(store)
    file = store.path(f"{META}ledger.db")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    return open_ledger(f"sqlite:///{file}", create=create)
