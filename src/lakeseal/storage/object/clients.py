"""Clients of object stores, made from a location and the user's storage options.

Option names are obstore's, in any case and with or without the vendor's prefix (`aws_access_key_id`, `ACCESS_KEY_ID`,
`endpoint`, `allow_http`, `timeout`, ...), and beside them `max_retries` and `retry_timeout` (`30s`). A name that is not
known raises `InvalidArgument` and is named in it. What is not given comes from the environment, as obstore reads it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lakeseal.durations import seconds_of
from lakeseal.errors import InvalidArgument, StorageError
from lakeseal.storage.location import Location

if TYPE_CHECKING:
    from obstore.store import RetryConfig

Client = AzureStore | GCSStore | MemoryStore | S3Store

_HTTP_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_prefixes = {"s3": "aws_", "gs": "google_", "az": "azure_"}
_secret_option = re.compile(r"key|secret|token|sas|password|credential|proxy_url", re.IGNORECASE)

# obstore's threads do not survive a fork: in the child every request would wait for ever.
_connected = False
_orphaned = False


def _after_fork() -> None:
    global _orphaned
    _orphaned = _connected


os.register_at_fork(after_in_child=_after_fork)

_memory: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


class Clients(NamedTuple):
    plain: Client
    conditional: Client
    """Sends each request once. A repeated conditional put would meet its own first try and be told that it lost."""


def connect(location: Location, options: Mapping[str, str]) -> Clients:
    if location.kind == "memory":
        refuse_options(location, options)
        return _memory_clients(location.bucket)
    config: dict[str, str] = {}
    http: dict[str, str] = {}
    retry: RetryConfig = {}
    for name, value in options.items():
        short = name.lower().removeprefix(_prefixes[location.kind])
        if short == "max_retries":
            retry["max_retries"] = _count(name, value)
        elif short == "retry_timeout":
            retry["retry_timeout"] = _seconds(name, value)
        elif short in _HTTP_OPTIONS:
            http[short] = _text(name, value)
        else:
            config[name.lower()] = _text(name, value)
    global _connected
    _connected = True
    once: RetryConfig = {**retry, "max_retries": 0}
    try:
        return Clients(_client(location, config, http, retry), _client(location, config, http, once))
    except UnknownConfigurationKeyError as error:
        named = re.search(r"Configuration key: '(.*?)'", str(error))
        raise _unknown(named[1] if named else ", ".join(config), location) from None
    except (BaseError, ValueError) as error:
        reason = scrub(str(error).partition("\n")[0], options)
        raise InvalidArgument(
            f"The storage options for {location.uri} do not work: {reason}",
            hint="Check storage_options and the environment",
        ) from None


def refuse_after_fork(location: Location) -> None:
    if _orphaned and location.kind != "memory":
        raise StorageError(
            f"{location.uri} cannot be reached from a process forked after an object store was opened",
            hint="Start worker processes with multiprocessing's 'spawn' or 'forkserver'",
        )


def refuse_options(location: Location, options: Mapping[str, str]) -> None:
    """For stores that have no options."""
    for name in options:
        raise _unknown(name, location)


def lists_from_offset(location: Location) -> bool:
    """Whether the store itself starts a listing at a key; elsewhere the client lists all and drops the beginning."""
    return location.kind == "gs" or (location.kind == "s3" and not location.bucket.endswith("--x-s3"))


def lists_in_order(location: Location, options: Mapping[str, str]) -> bool:
    """Whether the vendor promises listings in the order of UTF-8 bytes; imitations and directory buckets do not."""
    if not lists_from_offset(location):
        return False
    if any("endpoint" in name.lower() or "base_url" in name.lower() for name in options):
        return False
    if location.kind == "s3":
        return not any(name.startswith("AWS_ENDPOINT") for name in os.environ)
    return "GOOGLE_BASE_URL" not in os.environ


def scrub(text: str, options: Mapping[str, str]) -> str:
    """The text without any secret of the options and without signatures."""
    for name, value in options.items():
        if len(str(value)) > 2 and _secret_option.search(name) is not None:
            text = text.replace(str(value), "***")
    return re.sub(r"(?i)\b(sig|signature|token|credential)=[^&\s\"']+", r"\1=***", text)


def _client(location: Location, config: dict[str, str], http: dict[str, str], retry: RetryConfig) -> Client:
    # obstore checks names and values when it runs; its types are for those who write them down in code.
    settings: dict[str, Any] = {"config": config, "client_options": http or None, "retry_config": retry or None}
    if location.kind == "s3":
        return S3Store(location.bucket, **settings)
    if location.kind == "gs":
        return GCSStore(location.bucket, **settings)
    if location.host:
        return AzureStore.from_url(f"abfss://{location.bucket}@{location.host}", **settings)
    return AzureStore(location.bucket, **settings)


def _memory_clients(name: str) -> Clients:
    with _memory_lock:
        store = _memory.setdefault(name, MemoryStore())
    return Clients(store, store)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidArgument(f"The storage option {name!r} is not text", hint="Give storage options as strings")


def _count(name: str, value: object) -> int:
    text = _text(name, value)
    if not text.isdecimal():
        raise InvalidArgument(f"The storage option {name!r} is not a whole number", hint="For instance 3")
    return int(text)


def _seconds(name: str, value: object) -> timedelta:
    text = _text(name, value)
    seconds = seconds_of(text)
    if seconds is None:
        seconds = seconds_of(f"{text}s")
    if seconds is None:
        raise InvalidArgument(f"The storage option {name!r} is not a duration", hint="For instance 30s")
    return timedelta(seconds=seconds)


def _unknown(name: str, location: Location) -> InvalidArgument:
    return InvalidArgument(
        f"The storage option {name!r} is not known for {location.kind}: stores",
        hint="Check its spelling, or leave it out",
    )
