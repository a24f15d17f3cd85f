"""From what a user configures to a catalog that can be asked.

    open_catalog()                               that of LAKESEAL_CATALOG, or else the embedded one in the user's folder
    open_catalog("sqlite:///lake.db")            in a file
    open_catalog("postgresql://user@host/db")    of a team
    open_catalog("https://lake.example.com")     a Lakeseal service
    open_catalog("team")                         by the name of an owner in LAKESEAL_OWNERS
    open_catalog("unity+https://…")              somebody else's, that speaks UC Delta API v1; the same as kind="unity"

The ledger that has the names also decides on the commits of their tables. To look at names makes no ledger, not even
the embedded one: that comes into being, with its folder, when the first name is given.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from lakeseal.catalog.endpoint import HasCatalog, Names, OpenCatalog
from lakeseal.catalog.names import NameBook
from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.ledger import Ledger, Tx
from lakeseal.owner.connect import connect, is_service
from lakeseal.storage.location import file_uri
from lakeseal.storage.location import parse as parse_location

if TYPE_CHECKING:
    from lakeseal.owner.endpoint import OwnerEndpoint

T = TypeVar("T")

CATALOG_VARIABLE = "LAKESEAL_CATALOG"
ROOT_VARIABLE = "LAKESEAL_CATALOG_ROOT"
OURS = "lakeseal"
UNITY = "unity"

CatalogLike = str | OpenCatalog | HasCatalog
"""A catalog: its URL, its name in LAKESEAL_OWNERS, or itself."""

Opener = Callable[[str, str | None, str | None], OpenCatalog]
"""From an address without the kind, a token and a root."""

_openers: dict[str, Opener] = {}
# Rooms above this one, which register themselves when they are imported.
_PROVIDERS = {UNITY: "lakeseal.service.unity_client"}


class _EmbeddedBook(NameBook):
    """In a folder that is made with the first name."""

    def __init__(self, ledger: Ledger, *, root: str | None, folder: Path) -> None:
        super().__init__(ledger, root=root)
        self._folder = folder

    def _write(self, do: Callable[[Tx], T]) -> T:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return super()._write(do)


@runtime_checkable
class HasNames(Protocol):
    """An owner elsewhere, which lets its clients use the names in its ledger."""

    def names(self, *, root: str | None = None) -> Names: ...


def register(kind: str, opener: Opener) -> None:
    """Another kind of catalog."""
    _openers[kind] = opener


def open_catalog(
    catalog: CatalogLike | None = None, *, token: str | None = None, kind: str | None = None, root: str | None = None
) -> OpenCatalog:
    """`root` is where tables go that are created without a location; that of LAKESEAL_CATALOG_ROOT if it is not given,
    and beside a ledger in a file otherwise."""
    if isinstance(catalog, OpenCatalog):
        return catalog
    if isinstance(catalog, HasCatalog):
        return catalog.opened
    given = root or os.environ.get(ROOT_VARIABLE) or None
    place = None if given is None else parse_location(given).uri
    url = catalog or os.environ.get(CATALOG_VARIABLE)
    if not url:
        if kind not in (None, OURS) or token is not None:
            raise InvalidArgument(
                "A kind or a token is for a catalog elsewhere, and none is named",
                hint=f"Give its URL, or name it in {CATALOG_VARIABLE}",
            )
        return _embedded(place)
    prefix, plus, rest = url.partition("+")
    if plus and "://" not in prefix and "://" in rest and prefix != "postgresql":
        kind, url = prefix, rest
    if kind not in (None, OURS):
        return _opener(kind)(url, token, place)
    if token is not None and "://" in url and not is_service(url):
        raise InvalidArgument("A token is for a service, and this catalog is a ledger", hint="Leave the token out")
    owner = connect(url) if token is None else connect(url, token=token)
    return _of(owner, url, place)


def _opener(kind: str) -> Opener:
    if kind in _PROVIDERS and kind not in _openers:
        try:
            importlib.import_module(_PROVIDERS[kind])
        except ModuleNotFoundError:
            raise Unsupported(
                f"A catalog of the kind {kind!r} cannot be reached: its client is not installed",
                hint="pip install 'lakeseal[server]'",
            ) from None
    found = _openers.get(kind)
    if found is None:
        known = ", ".join(sorted({OURS, *_PROVIDERS, *_openers}))
        raise InvalidArgument(f"There is no kind of catalog {kind!r}", hint=f"There are {known}")
    return found


def _embedded(root: str | None) -> OpenCatalog:
    folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "lakeseal"
    if not folder.is_absolute():
        raise InvalidArgument(
            f"XDG_DATA_HOME is {str(folder.parent)!r}, which is not absolute", hint="Mend or unset it"
        )
    url = f"sqlite:///{folder}/catalog.db"
    return _of(connect(url), url, root, folder=folder)


def _of(owner: OwnerEndpoint, url: str, root: str | None, *, folder: Path | None = None) -> OpenCatalog:
    ledger = getattr(owner, "ledger", None)
    if isinstance(ledger, Ledger):
        where = ledger.url
        if root is None and where.kind == "sqlite":
            root = file_uri(os.path.join(os.path.dirname(os.path.abspath(where.path)), "tables"))
        url = url if where.kind == "memory" else where.connect
        book = NameBook(ledger, root=root) if folder is None else _EmbeddedBook(ledger, root=root, folder=folder)
        return OpenCatalog(url=url, names=book, owner=owner)
    if isinstance(owner, HasNames):
        return OpenCatalog(url=url, names=owner.names(root=root), owner=owner)
    raise InvalidArgument(f"The owner {owner.name!r} keeps no names", hint="Use a ledger, or a service")
