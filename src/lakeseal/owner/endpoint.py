"""The seam of commit owners that serve many tables: everything that can be asked of one, over whatever wire.

Arguments and results are the values of `messages`, strings and numbers, so each call can travel as JSON. A table is
named by its store's URI. What a caller may rely on:

- `ratify` decides on a whole batch in one step: all of it becomes part of its tables, or nothing does. Asked again with
  the same txnIds, it gives the first answer, however late. When it answers `Ratified`, the file is durable.
- `get_commits` tells the state of a table at one moment; `get_commits_of` that of several tables at the same moment.
- Each of the others is one step of `ownership`, done at most once however often it is asked for, and gives the state
  of the table afterwards. What the files decide, the owner looks up in the files; it believes nobody's word for it.
- What raises decided nothing, except `UnknownOutcome`: ask the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lakeseal.errors import TableVanished
from lakeseal.owner.enablement import BATCH_SIZE, LEDGER_ID
from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, TableCommits
from lakeseal.owner.ownership import State
from lakeseal.storage import identity
from lakeseal.storage.base import Store


class OwnerEndpoint(Protocol):
    @property
    def name(self) -> str:
        """What tables call it in `delta.managedCommitOwnerName`."""

    @property
    def batch_size(self) -> int:
        """For new tables: how many commits may wait for their backfill."""

    @property
    def inline_bytes(self) -> int:
        """Commits up to this size travel in the request, and the owner writes their files."""

    def identity(self, *, make: bool = False) -> str | None:
        """Of the owner's ledger; None where that is not there yet and is not to be made."""

    def attach(self, store: Store) -> str:
        """The name of the store's table (see `naming`). An owner in this process uses the store for its own work on the
        files; one elsewhere has its own way to them."""

    def get_commits(self, table: str, start_version: int = 0) -> TableCommits: ...

    def get_commits_of(self, tables: Sequence[str]) -> tuple[TableCommits, ...]:
        """In the order of `tables`."""

    def ratify(self, batch: Batch) -> BatchAnswer: ...

    def backfill(self, table: str, version: int | None = None) -> TableCommits:
        """Every version up to `version`, or all, is then in the log under its own name. `VersionNotFound` if it is
        not ratified."""

    def begin_takeover(
        self,
        table: str,
        takeover_id: str,
        version: int,
        commit: CommitRequest | None = None,
        *,
        epoch: int | None = None,
    ) -> TableCommits:
        """Pending: the promise is made. Active: the table is owned here already. `commit` is the one that creates a
        table, as version 0: it is looked at like any other, and the promise holds for its very bytes. `epoch` is the
        table's when the take-over began: a message that comes late, or twice, changes nothing in another one."""

    def confirm_takeover(self, table: str, takeover_id: str) -> TableCommits: ...

    def withdraw_takeover(self, table: str, takeover_id: str) -> TableCommits: ...

    def begin_release(self, table: str, release_id: str, *, epoch: int | None = None) -> TableCommits:
        """Releasing, with `change_id`: that of whoever began it first. `epoch`: as of a take-over."""

    def finish_release(self, table: str) -> TableCommits:
        """None, if the release's commit is in the log; still releasing otherwise."""

    def drop(self, table: str) -> TableCommits:
        """Forgets a table that was deleted. `AlreadyExists` if its log is there, `TableVanished` if its place is not
        there either, `NotBackfilled` if it has commits that never were in its log."""


def owner_conf(endpoint: OwnerEndpoint) -> dict[str, str]:
    """What a table that the owner gets keeps of it: nothing that anybody is reached by."""
    identity = endpoint.identity(make=True)
    return {BATCH_SIZE: str(endpoint.batch_size), **({} if identity is None else {LEDGER_ID: identity})}


def vanished(table: str, owner: str, latest: int) -> TableVanished:
    return TableVanished(
        f"The owner {owner!r} knows this table up to version {latest}, and its log is not there", table=table
    )


def name_of(store: Store, told: Callable[[Sequence[str]], Sequence[TableCommits]]) -> str:
    """Under which name an owner knows the table at a store: that of the place, whatever path it was opened by.

    On local disk many paths lead to one place, by symbolic links. Under the name of a path the owner would say that it
    does not know the table, and whoever asked would read what is backfilled, without a word. A table that was given to
    an owner under the name of a link, before names were those of places, keeps it for those who come by that link.

    `told` asks the owner what it knows of tables, by name; it is asked only where a link leads to the place."""
    place = identity(store)
    if place == store.uri:
        return place
    of_place, of_path = told([place, store.uri])
    return store.uri if of_place.state is State.NONE and of_path.state is not State.NONE else place
