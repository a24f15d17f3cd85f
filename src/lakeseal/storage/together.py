"""Objects of several stores, put together where that is cheaper: on local disk two syncs are enough for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeseal.errors import LakesealError
from lakeseal.storage.base import NewObject, Store
from lakeseal.storage.local import store as local
from lakeseal.storage.local.store import LocalStore


def put_together(asked: Sequence[tuple[Store, Iterable[NewObject]]]) -> list[int | LakesealError]:
    """As `put_if_absent` for the objects of each of the stores, one after the other up to a key that is taken; how many
    that were, or what the first failed by. A store in which nothing is gained by it is left as it is: 0 of them."""
    came_to: list[int | LakesealError] = [0] * len(asked)
    of_disk = [(place, store, objects) for place, (store, objects) in enumerate(asked) if isinstance(store, LocalStore)]
    done = local.put_together([(store, objects) for _, store, objects in of_disk])
    for (place, _, _), count in zip(of_disk, done, strict=True):
        came_to[place] = count
    return came_to
