"""The calls of `OwnerEndpoint` as a service takes them: what each is sent, who may ask for it, what it does.

Everything about a request is checked before anything is done: its form, the role of its caller for every table that it
names, the tables' names and places, and for a commit that the table is owned here and its version is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from lakeseal.errors import InvalidArgument, NotAllowed, OwnedElsewhere, VersionNotFound
from lakeseal.owner.backfill import look
from lakeseal.owner.group import Admitted, Begun
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import Batch, BatchAnswer, CommitRequest, Ratified, TableCommits, Taken, Undecided
from lakeseal.owner.ownership import State
from lakeseal.service import wire
from lakeseal.service.access import Caller, Role
from lakeseal.service.places import Places

_MOST_REMEMBERED = 100_000


class Call(Struct, frozen=True, kw_only=True):
    name: str
    """As in `OwnerEndpoint`."""
    request: type[Any]
    reply: Any
    decides: bool
    """Whether it may change something, so that a lost answer leaves its outcome unknown."""
    summary: str
    needs: Callable[[Any], Role] = lambda _: Role.WRITER
    """The role for each of the tables."""
    tables: Callable[[Any], Iterable[str]] = lambda request: (request.table,)

    @property
    def path(self) -> str:
        return wire.path_of(self.name)


def _reader(_: Any) -> Role:
    return Role.READER


def _admin(_: Any) -> Role:
    return Role.ADMIN


def _tables_of(batch: Batch) -> list[str]:
    return [request.table for request in batch.commits] + [guard.table for guard in batch.guards]


RATIFY = Call(
    name="ratify",
    request=Batch,
    reply=BatchAnswer,
    decides=True,
    summary="Make a version part of each of several tables, or of none",
    tables=_tables_of,
)
CALLS = (
    Call(
        name="get_commits",
        request=wire.GetCommits,
        reply=TableCommits,
        decides=False,
        summary="The state of a table, and its commits that are not backfilled yet",
        needs=_reader,
    ),
    Call(
        name="get_commits_of",
        request=wire.GetCommitsOf,
        reply=tuple[TableCommits, ...],
        decides=False,
        summary="The same of several tables, at one moment",
        needs=_reader,
        tables=lambda request: request.tables,
    ),
    RATIFY,
    Call(
        name="backfill",
        request=wire.Backfill,
        reply=TableCommits,
        decides=True,
        summary="Put versions into the log under their own names",
    ),
    Call(
        name="begin_takeover",
        request=wire.BeginTakeover,
        reply=TableCommits,
        decides=True,
        summary="Promise to own a table that is created or taken over",
        needs=lambda request: Role.WRITER if request.version == 0 else Role.ADMIN,
    ),
    Call(
        name="confirm_takeover",
        request=wire.TakeoverStep,
        reply=TableCommits,
        decides=True,
        summary="Have the owner look whether the take-over is in the log",
        needs=_reader,
    ),
    Call(
        name="withdraw_takeover",
        request=wire.TakeoverStep,
        reply=TableCommits,
        decides=True,
        summary="Say that the take-over's commit can no longer land",
    ),
    Call(
        name="begin_release",
        request=wire.BeginRelease,
        reply=TableCommits,
        decides=True,
        summary="Stop ratifying, to give the table back to the file system",
        needs=_admin,
    ),
    Call(
        name="finish_release",
        request=wire.OneTable,
        reply=TableCommits,
        decides=True,
        summary="Have the owner look whether the release is in the log",
    ),
    Call(
        name="drop",
        request=wire.OneTable,
        reply=TableCommits,
        decides=True,
        summary="Forget a table that was deleted",
        needs=_admin,
    ),
)


class Served:
    """The calls, done on an owner. `perform` is for any thread."""

    def __init__(self, owner: LedgerOwner, places: Places) -> None:
        self._owner = owner
        self._places = places
        self._latest: dict[str, int] = {}

    def perform(self, call: Call, request: Any, caller: Caller) -> Any:
        self._check(call, request, caller)
        do: Callable[[Any, Caller], Any] = getattr(self, call.name)
        return do(request, caller)

    def admits_at_once(self, batch: Batch) -> bool:
        """Whether `admit` is done in no time, as far as one can know."""
        return len(batch.commits) != 1 or self._owner.admits_at_once(batch.commits[0])

    def admit(self, batch: Batch, caller: Caller) -> Admitted | None:
        """The one commit of a batch that may be ratified together with others; None if it has to be by itself."""
        if len(batch.commits) != 1 or batch.guards or batch.records:
            return None
        self._check(RATIFY, batch, caller)
        request = batch.commits[0]
        _check_numbers(request.version, request.size, request.in_commit_timestamp, request.epoch)
        return self._owner.admit(request, principal=caller.principal)

    def ratify_together(self, admitted: Sequence[Admitted]) -> list[BatchAnswer | None]:
        """None where the request has to be done by itself."""
        return self._answers(self._owner.ratify_together(admitted))

    def begin_together(self, admitted: Sequence[Admitted]) -> Begun[list[BatchAnswer | None]] | None:
        """As `ratify_together`, without waiting for anything; None where that cannot be."""
        begun = self._owner.begin_together(admitted)
        return None if begun is None else begun.then(self._answers)

    def _answers(self, answers: Sequence[Ratified | Taken | None]) -> list[BatchAnswer | None]:
        for answer in answers:
            if answer is not None:
                self._remember(answer.table, answer.version)
        return [None if answer is None else BatchAnswer(commits=(answer,)) for answer in answers]

    def get_commits(self, request: wire.GetCommits, caller: Caller) -> TableCommits:
        return self._owner.get_commits(request.table, request.start_version)

    def get_commits_of(self, request: wire.GetCommitsOf, caller: Caller) -> tuple[TableCommits, ...]:
        return self._owner.get_commits_of(request.tables)

    def ratify(self, batch: Batch, caller: Caller) -> BatchAnswer:
        if batch.records and not caller.may_everywhere(Role.WRITER):
            raise NotAllowed(
                "Rows of the ledger belong to no table, so that they need the role writer for all tables",
                hint="Ask for a token whose role has no prefix",
            )
        for request in batch.commits:
            _check_numbers(request.version, request.size, request.in_commit_timestamp, request.epoch)
        for guard in batch.guards:
            _check_numbers(guard.version, guard.epoch)
        for request in batch.commits:
            self._check_turn(request)
        answer = self._owner.ratify(batch, principal=caller.principal)
        for one in answer.commits:
            if not isinstance(one, Undecided):
                self._remember(one.table, one.version)
        return answer

    def backfill(self, request: wire.Backfill, caller: Caller) -> TableCommits:
        return self._owner.backfill(request.table, request.version)

    def begin_takeover(self, request: wire.BeginTakeover, caller: Caller) -> TableCommits:
        if request.version > 0 and look(self._owner.store(request.table), request.version - 1) is None:
            # A promise for a version that cannot come next would stand in everybody's way.
            raise _gap(request.table, request.version)
        if (commit := request.commit) is not None:
            _check_numbers(commit.size, commit.in_commit_timestamp, commit.epoch)
        return self._owner.begin_takeover(
            request.table, request.takeover_id, request.version, request.commit, principal=caller.principal
        )

    def confirm_takeover(self, request: wire.TakeoverStep, caller: Caller) -> TableCommits:
        return self._owner.confirm_takeover(request.table, request.takeover_id)

    def withdraw_takeover(self, request: wire.TakeoverStep, caller: Caller) -> TableCommits:
        return self._owner.withdraw_takeover(request.table, request.takeover_id)

    def begin_release(self, request: wire.BeginRelease, caller: Caller) -> TableCommits:
        return self._owner.begin_release(request.table, request.release_id, principal=caller.principal)

    def finish_release(self, request: wire.OneTable, caller: Caller) -> TableCommits:
        return self._owner.finish_release(request.table)

    def drop(self, request: wire.OneTable, caller: Caller) -> TableCommits:
        return self._owner.drop(request.table)

    def _check(self, call: Call, request: Any, caller: Caller) -> None:
        named = tuple(call.tables(request))
        for table in named:
            self._places.check_name(table)
        caller.check(call.needs(request), named)
        for table in named:
            self._places.check(table)

    def _check_turn(self, request: CommitRequest) -> None:
        """Before the owner writes a file that the caller sent: nobody shall have files put where no table is."""
        if request.data is None or request.version <= self._latest.get(request.table, -2) + 1:
            return
        told = self._owner.get_commits(request.table, wire.MAX_INT)
        if told.state is State.PENDING:
            told = self._owner.settle(request.table)
        is_owned = told.state in (State.ACTIVE, State.RELEASING)
        if is_owned:
            self._remember(request.table, told.latest)
        if request.version <= told.latest + is_owned:
            return
        if is_owned or (request.version > 0 and look(self._owner.store(request.table), request.version - 1) is None):
            raise _gap(request.table, request.version)
        raise OwnedElsewhere(
            f"The owner {self._owner.name!r} does not decide on commits to this table",
            table=request.table,
            version=request.version,
            hint="Open the table again: its log tells who does",
        )

    def _remember(self, table: str, latest: int) -> None:
        if len(self._latest) > _MOST_REMEMBERED:
            self._latest.clear()
        self._latest[table] = max(latest, self._latest.get(table, -1))


def _check_numbers(*numbers: int) -> None:
    if not all(0 <= number <= wire.MAX_INT for number in numbers):
        raise InvalidArgument("A version, a size, an epoch or a timestamp is negative or too large")


def _gap(table: str, version: int) -> VersionNotFound:
    return VersionNotFound(
        f"Version {version} cannot come next, because version {version - 1} is not there",
        table=table,
        version=version - 1,
        hint="Open the table again",
    )
