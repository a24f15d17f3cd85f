"""From what a user configures to an owner that can be asked.

    connect("sqlite:///ledger.db")                      the ledger in a file, used in this process
    connect("postgresql://user@host/database")          the ledger of a team, used in this process
    connect("memory://name")                            for tests: lives as long as this process
    connect("https://owner.example.com", token="…")     a service
    connect("team")                                     by the name of an owner in LAKESEAL_OWNERS

`LAKESEAL_OWNERS` is a JSON object from names to URLs, or to the fields of `OwnerConfig`. A service that is configured
without a token is sent that of `LAKESEAL_TOKEN`; where `LAKESEAL_OWNERS` has such services on several hosts, none of
them is, since the token is the secret of one. Nothing that stands in a table
is ever part of a connection: a table only names its owner, and the name is looked up among those configured here.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from lakeseal import typed_json
from lakeseal.commit import post_commit
from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.owner import policies
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.storage import StoreSpec

if TYPE_CHECKING:
    from lakeseal.owner.ledger_owner import LedgerOwner

_log = logging.getLogger(__name__)

OWNERS_VARIABLE = "LAKESEAL_OWNERS"
TOKEN_VARIABLE = "LAKESEAL_TOKEN"  # noqa: S105  its name, not its value
# Not even that of the environment.
_NO_TOKEN = ""
# Rooms above this one, which register themselves when they are imported.
_PROVIDERS = {"http": "lakeseal.service.client", "https": "lakeseal.service.client"}
_EXIT_TIMEOUT_S = 60.0
_LEDGERS = ("sqlite", "postgresql", "postgres", "postgresql+psycopg")


Connector = Callable[[OwnerConfig], OwnerEndpoint]

_connectors: dict[str, Connector] = {}
_lock = threading.Lock()
_memory: dict[str, LedgerOwner] = {}
_open: weakref.WeakValueDictionary[bytes, LedgerOwner] = weakref.WeakValueDictionary()


def is_service(url: str) -> bool:
    """Whether this is the address of a service, and not of a ledger."""
    return url.partition("://")[0].lower() in _PROVIDERS


def connect(owner: str | OwnerConfig | OwnerEndpoint, **options: Any) -> OwnerEndpoint:
    """`options` are further fields of `OwnerConfig`. An owner that is connected already is returned as it is."""
    if not isinstance(owner, str | OwnerConfig):
        if options:
            raise InvalidArgument("An owner that is connected takes no further options")
        return owner
    config = _config(owner, options)
    if config.scheme == "memory":
        with _lock:
            if config.url not in _memory:
                _memory[config.url] = _ledger_owner(config, "sqlite://")
            return _memory[config.url]
    if config.scheme in _LEDGERS:
        config = _absolute(config)
        key = msgspec.json.encode(config, order="deterministic")
        with _lock:
            found = _open.get(key)
            if found is None:
                found = _open[key] = _ledger_owner(config, config.url)
            return found
    if config.scheme in _PROVIDERS and config.scheme not in _connectors:
        _load(_PROVIDERS[config.scheme])
    if config.scheme in _connectors:
        return _connectors[config.scheme](config)
    if config.scheme in _PROVIDERS:
        raise Unsupported(
            "An owner behind a service cannot be reached: its client is not installed",
            hint="pip install 'lakeseal[server]', or use the ledger's own URL",
        )
    raise InvalidArgument(
        f"An owner cannot be reached by {config.scheme!r}",
        hint="Use sqlite:///…, postgresql://…, https://…, memory://… or a name from " + OWNERS_VARIABLE,
    )


def _absolute(config: OwnerConfig) -> OwnerConfig:
    """A relative path is that of now, wherever this process goes later; and it is told, as it means another file in
    every folder."""
    from lakeseal.ledger import parse  # as below

    url = parse(config.url)
    if url.kind != "sqlite" or url.connect == config.url:
        return config
    if not config.url.startswith("sqlite:////"):
        _log.log(
            logging.INFO if os.path.exists(url.path) else logging.WARNING,
            "the owner's ledger %s is %s%s",
            config.url,
            url.path,
            "" if os.path.exists(url.path) else ", which is not there yet",
        )
    return msgspec.structs.replace(config, url=url.connect)


def _load(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return  # a package of an extra that is not installed


def register(scheme: str, connector: Connector) -> None:
    """Another way to reach owners."""
    _connectors[scheme] = connector


class Owners(Mapping[str, OwnerEndpoint]):
    """The owners that a user configured, by name; each is connected when it is first needed."""

    def __init__(self, *configured: str | OwnerConfig | OwnerEndpoint) -> None:
        """These, and those of `LAKESEAL_OWNERS`."""
        self._configs = dict(_from_environment())
        self._connected: dict[str, OwnerEndpoint] = {}
        for one in configured:
            if isinstance(one, str | OwnerConfig):
                config = _config(one, {})
                self._configs[config.name] = config
            else:
                self._connected[one.name] = one

    def __getitem__(self, name: str) -> OwnerEndpoint:
        if name not in self._connected:
            self._connected[name] = connect(self._configs[name])
        return self._connected[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs.keys() | self._connected.keys())

    def __len__(self) -> int:
        return len(self._configs.keys() | self._connected.keys())


def _config(owner: str | OwnerConfig, options: Mapping[str, Any]) -> OwnerConfig:
    if isinstance(owner, str) and "://" not in owner:
        named = _from_environment()
        if owner not in named:
            known = ", ".join(sorted(named)) or "none"
            raise InvalidArgument(
                f"There is no owner {owner!r}", hint=f"Give its URL, or name it in {OWNERS_VARIABLE}, which has {known}"
            )
        owner = named[owner]
    fields = {"url": owner} if isinstance(owner, str) else msgspec.structs.asdict(owner)
    try:
        return _with_token(typed_json.convert({**fields, **options}, OwnerConfig))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"This is no configuration of an owner: {error}") from None


def _with_token(config: OwnerConfig) -> OwnerConfig:
    if config.token is not None or not is_service(config.url):
        return config
    return msgspec.structs.replace(config, token=os.environ.get(TOKEN_VARIABLE))


def _from_environment() -> dict[str, OwnerConfig]:
    text = os.environ.get(OWNERS_VARIABLE)
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text, type=dict[str, str | dict[str, Any]])
        configs = {
            name: typed_json.convert({**({"url": one} if isinstance(one, str) else one), "name": name}, OwnerConfig)
            for name, one in found.items()
        }
    except msgspec.MsgspecError as error:
        # Not the text itself, which may hold passwords.
        raise InvalidArgument(f"{OWNERS_VARIABLE} is not a JSON object of owners: {error}") from None
    return {**configs, **_without_token(configs)}


def _without_token(configs: Mapping[str, OwnerConfig]) -> dict[str, OwnerConfig]:
    """Those that the environment's token is not for, because nobody can tell for which of them it is."""
    asking = {name: one for name, one in configs.items() if is_service(one.url) and one.token is None}
    if len({urlsplit(one.url).netloc.lower() for one in asking.values()}) < 2:
        return {}
    if os.environ.get(TOKEN_VARIABLE):
        _log.warning(
            "%s names services on several hosts, so that %s is sent to none of them: give each its own token",
            OWNERS_VARIABLE,
            TOKEN_VARIABLE,
        )
    return {name: msgspec.structs.replace(one, token=_NO_TOKEN) for name, one in asking.items()}


def _ledger_owner(config: OwnerConfig, url: str) -> LedgerOwner:
    # Most tables have no owner, and their readers need no database's libraries.
    from lakeseal import ledger
    from lakeseal.owner.ledger_owner import LedgerOwner

    # To look at a table makes no ledger.
    opened = ledger.open_unmade(url)
    owner = LedgerOwner(
        opened,
        name=config.name,
        batch_size=config.batch_size,
        stores=lambda table: StoreSpec(uri=table, storage_options=config.storage_options).open(),
        policies=policies.from_json(config.policies),
        principal=config.principal,
        inline_bytes=config.inline_bytes,
        most_unbackfilled=config.most_unbackfilled,
        in_background=True,
    )
    # At the end of the process `_close_all` does it, when nobody needs the ledger any more.
    weakref.finalize(owner, opened.close).atexit = False
    return owner


def _close_all() -> None:
    """At the end of the process: what runs after commits needs the ledgers until it is done."""
    owners = [*_open.values(), *_memory.values()]
    if owners:
        from lakeseal.owner.ledger_owner import flush

        post_commit.flush(timeout=_EXIT_TIMEOUT_S)
        flush(timeout=_EXIT_TIMEOUT_S)
        for owner in owners:
            owner.ledger.close()


atexit.register(_close_all)
