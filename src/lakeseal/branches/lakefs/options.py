"""How to reach a lakeFS server: from storage options, or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from lakeseal.errors import InvalidArgument, InvalidUri

SCHEME = "lakefs://"

_NAMES = {
    "endpoint": ("LAKESEAL_LAKEFS_ENDPOINT", "LAKECTL_SERVER_ENDPOINT_URL"),
    "access_key_id": ("LAKESEAL_LAKEFS_ACCESS_KEY_ID", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
    "secret_access_key": ("LAKESEAL_LAKEFS_SECRET_ACCESS_KEY", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
    "local_path": ("LAKESEAL_LAKEFS_LOCAL_PATH",),
    "storage_namespace": (),
    "unguarded": (),
}
_PREFIX = "lakefs_"


class Options(Struct, frozen=True, kw_only=True):
    """How to reach a server, from storage options named `lakefs_…` or from the environment."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    local_path: str = ""
    """Where a server with a `local` block store keeps `local://`, as seen from here."""
    storage_namespace: str = ""
    """Where a new repository's objects go."""
    unguarded: bool = False
    """Go on where the server runs no hooks, and heads may move between a look and a merge."""
    storage: Mapping[str, str] = {}
    """The other options: for the store that the objects are in."""

    @classmethod
    def of(cls, storage_options: Mapping[str, str] | None) -> Options:
        given = dict(storage_options or {})
        mine = {name.removeprefix(_PREFIX): given.pop(name) for name in [*given] if name.startswith(_PREFIX)}
        unknown = sorted(set(mine) - set(_NAMES))
        if unknown:
            raise InvalidArgument(
                f"There is no storage option {_PREFIX}{unknown[0]}",
                hint=f"Known are {', '.join(_PREFIX + name for name in _NAMES)}",
            )
        for name, variables in _NAMES.items():
            found = [os.environ[variable] for variable in variables if os.environ.get(variable)]
            if not mine.get(name) and found:
                mine[name] = found[0]
        for name in ("endpoint", "access_key_id", "secret_access_key"):
            if not mine.get(name):
                raise InvalidArgument(
                    f"The lakeFS server's {name.replace('_', ' ')} is not known",
                    hint=f"Set {_NAMES[name][0]}, or give the storage option {_PREFIX}{name}",
                )
        unguarded = mine.pop("unguarded", "").lower() in ("1", "true", "yes")
        return cls(**mine, unguarded=unguarded, storage=given)

    @property
    def shown(self) -> str:
        """The endpoint without what may be secret in it."""
        parts = urlsplit(self.endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def __repr__(self) -> str:
        return f"Options(endpoint={self.shown!r})"


def repository_of(uri: str) -> str:
    name = uri.removeprefix(SCHEME).removesuffix("/")
    if not uri.startswith(SCHEME) or not name or "/" in name:
        raise InvalidUri(f"{uri!r} names no repository of a lakeFS server", hint="Use lakefs://repository")
    return name
