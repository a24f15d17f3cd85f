"""Whose turn it is."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Turn(Struct, frozen=True, kw_only=True):
    """Whose turn it is: the name of a lease and the epoch under which it was got.

    Everything that its holder writes names the epoch. It is refused (`Fenced`) once a later epoch has been seen there,
    however the holder came to be late; so safety never rests on a lease's time."""

    name: Annotated[str, Meta(max_length=20_000)]
    epoch: int
