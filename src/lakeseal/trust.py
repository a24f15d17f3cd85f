"""How far a reader trusts what others wrote: how much a file may unfold to, whether a checksum has the last word, and
which places beyond a table its log may name.

One frozen `Trust` per reader. What is not said is taken from the environment, so that a command, a service and the
workers of a cluster can be told too:

    LAKESEAL_MAX_DECODED_BYTES     what a small file, or one line of text, may take when it is decoded (128 MiB)
    LAKESEAL_INSIST_ON_CHECKSUMS   1: a version checksum that does not fit its log stops the reader
    LAKESEAL_PLACES                URIs, separated by blanks or as a list in JSON: files below them may be read
                                   wherever a log, or a branch, names them
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from lakeseal.errors import InvalidArgument

MAX_DECODED_BYTES = "LAKESEAL_MAX_DECODED_BYTES"
INSIST_ON_CHECKSUMS = "LAKESEAL_INSIST_ON_CHECKSUMS"
PLACES = "LAKESEAL_PLACES"

DEFAULT_MAX_DECODED_BYTES = 128 * 2**20


def _max_decoded_bytes(environment: Mapping[str, str] = os.environ) -> int:
    text = environment.get(MAX_DECODED_BYTES, "").strip()
    if not text:
        return DEFAULT_MAX_DECODED_BYTES
    if not text.isdecimal() or len(text) > 18 or not int(text):
        raise InvalidArgument(f"{MAX_DECODED_BYTES} must be a number of bytes, not {text[:100]!r}")
    return int(text)


def _insist_on_checksums(environment: Mapping[str, str] = os.environ) -> bool:
    text = environment.get(INSIST_ON_CHECKSUMS, "").strip().lower()
    if text not in ("", "0", "1", "true", "false"):
        raise InvalidArgument(f"{INSIST_ON_CHECKSUMS} must be 1 or 0, not {text[:100]!r}")
    return text in ("1", "true")


def _places(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    text = environment.get(PLACES, "").strip()
    if not text.startswith("["):
        return tuple(text.split())
    try:
        return tuple(msgspec.json.decode(text, type=list[str]))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{PLACES} is no list of texts: {error}") from None


class Trust(Struct, frozen=True, kw_only=True):
    max_decoded_bytes: int = field(default_factory=_max_decoded_bytes)
    """More than this, and more than ten thousand times its own size, no file may unfold to; nor may one line of text
    be longer."""
    insist_on_checksums: bool = field(default_factory=_insist_on_checksums)
    places: tuple[str, ...] = field(default_factory=_places)

    def __post_init__(self) -> None:
        if self.max_decoded_bytes < 1:
            raise InvalidArgument("max_decoded_bytes must be a number of bytes")
        if isinstance(self.places, str):
            raise InvalidArgument("places are several URIs, not one text", hint="Give a tuple: places=(uri,)")
