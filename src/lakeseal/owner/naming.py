"""Under which name an owner knows the table at a store: that of the place, whatever path it was opened by.

On local disk many paths lead to one place, by symbolic links. Under the name of a path the owner would say that it does
not know the table, and whoever asked would read what is backfilled, without a word. A table that was given to an owner
under the name of a link, before names were those of places, keeps it for those who come by that link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakeseal.owner.messages import TableCommits
from lakeseal.owner.ownership import State
from lakeseal.storage import identity
from lakeseal.storage.base import Store


def name_of(store: Store, told: Callable[[Sequence[str]], Sequence[TableCommits]]) -> str:
    """`told` asks the owner what it knows of tables, by name; it is asked only where a link leads to the place."""
    place = identity(store)
    if place == store.uri:
        return place
    of_place, of_path = told([place, store.uri])
    return store.uri if of_place.state is State.NONE and of_path.state is not State.NONE else place
