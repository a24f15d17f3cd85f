"""Deletion vectors fetched from where they are: the log itself, the table, or an absolute path."""

from __future__ import annotations

from collections.abc import Callable

from lakeseal.errors import BrokenDeletionVector, DataFileMissing, LakesealError, ObjectNotFound
from lakeseal.log.decoded_size import DecodedSize
from lakeseal.protocol.actions import DeletionVectorDescriptor
from lakeseal.protocol.deletion_vectors import (
    ABSOLUTE,
    INLINE,
    RELATIVE,
    Positions,
    decode,
    framed_range,
    inline_positions,
    relative_path,
    unframe,
)
from lakeseal.storage.base import Store

_POSITION = 8
Locate = Callable[[str], tuple[Store, str]]
"""From the `path` of an action to a store and a key; refuses what may not be read."""


def read_deletion_vector(
    descriptor: DeletionVectorDescriptor, store: Store, locate: Locate, *, limit: int, data_size: int
) -> Positions:
    """The positions of rows that are gone, ascending. One request, of the vector's own bytes only.

    A few bytes can hide any number of rows; as many as a data file of `data_size` bytes may have, by the reader's limit
    on what files unfold to, are laid out in memory."""
    where = None
    try:
        DecodedSize(limit, data_size + max(0, descriptor.size_in_bytes)).add(_POSITION * descriptor.cardinality)
        if descriptor.storage_type == INLINE:
            return inline_positions(descriptor)
        if descriptor.storage_type == RELATIVE:
            source, where = store, relative_path(descriptor)
        elif descriptor.storage_type == ABSOLUTE:
            source, where = locate(descriptor.path_or_inline_dv)
        else:
            raise BrokenDeletionVector(
                f"A deletion vector is stored as {descriptor.storage_type!r}, which is no way that is known",
                hint="Read the table with a newer client",
            )
        framed = source.get_range(where, *framed_range(descriptor))
        return decode(unframe(framed, descriptor), descriptor.cardinality)
    except ObjectNotFound as error:
        raise DataFileMissing("A deletion vector's file is not there", table=store.uri, file=where) from error
    except LakesealError as error:
        raise error.at(table=store.uri, file=where) from error.__cause__
