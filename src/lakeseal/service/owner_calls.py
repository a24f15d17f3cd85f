"""The calls of `OwnerEndpoint`, in its words. What each promises is told there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from lakeseal.catalog.name_records import place_of_record
from lakeseal.errors import InvalidArgument, NotAllowed, VersionNotFound
from lakeseal.owner.backfill import look
from lakeseal.owner.ledger_owner import Run
from lakeseal.owner.messages import MAX_INT, Batch, BatchAnswer, CommitRequest, Number, TableCommits, TableName
from lakeseal.service.access import Caller, Role
from lakeseal.service.call import OwnerCall, calls_of

if TYPE_CHECKING:
    from lakeseal.service.service import Service

Version = Annotated[int, Meta(ge=0, le=MAX_INT)]
_FEW_TABLES = 10
_MUCH_BYTES = 2**20
"""Of commits, whose actions are all looked at. What a file has must be the size that is told of it."""
ChangeId = Annotated[str, Meta(min_length=1, max_length=255)]


class Ratify(Batch, OwnerCall[BatchAnswer], frozen=True, kw_only=True):
    """Make a version part of each of several tables, or of none."""

    @classmethod
    def of(cls, batch: Batch) -> Ratify:
        return cls(commits=batch.commits, guards=batch.guards, records=batch.records)

    def about(self) -> Sequence[str]:
        return [request.table for request in self.commits] + [guard.table for guard in self.guards]

    def is_much_work(self) -> bool:
        return sum(request.size for request in self.commits) > _MUCH_BYTES

    def check(self, service: Service, caller: Caller) -> None:
        super().check(service, caller)
        for record in self.records:
            place = place_of_record(record)
            if place is not None:
                service.places.check_name(place)
                caller.check(Role.WRITER, [place])
                service.places.check(place)
            elif not caller.may_everywhere(Role.WRITER):
                raise NotAllowed(
                    "Rows of the ledger belong to no table, so that they need the role writer for all tables",
                    hint="Ask for a token whose role has no prefix",
                )
        self._check_content()

    def _check_content(self) -> None:
        for request in self.commits:
            _check_numbers(request.version, request.size, request.in_commit_timestamp, request.epoch)
        for guard in self.guards:
            _check_numbers(guard.version, guard.epoch)

    async def perform_in_turn(self, service: Service, caller: Caller, run: Run) -> BatchAnswer:
        """As `Service.perform`, for the event loop."""
        admitted: Batch | BatchAnswer | None = self._admit_at_once(service, caller)
        if admitted is None:
            with service.owner.turn_kept(self):
                admitted = await run(self._admit, service, caller)
        return await service.owner.decide_in_turn(admitted, run) if isinstance(admitted, Batch) else admitted

    def _admit_at_once(self, service: Service, caller: Caller) -> Batch | None:
        if self.records or not all(map(service.places.was_checked, self.about())):
            return None
        caller.check(self.role, self.about())
        self._check_content()
        return service.owner.admit_at_once(self, principal=caller.principal)

    def _admit(self, service: Service, caller: Caller) -> Batch | BatchAnswer:
        self.check(service, caller)
        return service.owner.admit(self, principal=caller.principal)

    def perform(self, service: Service, caller: Caller) -> BatchAnswer:
        return service.owner.ratify(self, principal=caller.principal)


class _OfOneTable(OwnerCall[TableCommits], frozen=True, kw_only=True):
    table: TableName

    def about(self) -> Sequence[str]:
        return (self.table,)


class GetCommits(_OfOneTable, frozen=True, kw_only=True):
    """The state of a table, and its commits that are not backfilled yet."""

    role: ClassVar[Role] = Role.READER
    decides: ClassVar[bool] = False
    start_version: Version = 0
    takes_data: bool = False
    """Whether the caller takes bytes of commits in the answer. Who does not is told of a commit once it is a file."""

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        if self.takes_data:
            return service.owner.get_commits(self.table, self.start_version)
        return service.owner.get_files_of((self.table,), self.start_version)[0]


class GetCommitsOf(OwnerCall[tuple[TableCommits, ...]], frozen=True, kw_only=True):
    """The same of several tables, at one moment."""

    role: ClassVar[Role] = Role.READER
    decides: ClassVar[bool] = False
    tables: Annotated[tuple[TableName, ...], Meta(max_length=1000)]
    takes_data: bool = False

    def about(self) -> Sequence[str]:
        return self.tables

    def is_much_work(self) -> bool:
        return len(self.tables) > _FEW_TABLES

    def perform(self, service: Service, caller: Caller) -> tuple[TableCommits, ...]:
        owner = service.owner
        return owner.get_commits_of(self.tables) if self.takes_data else owner.get_files_of(self.tables)


class Backfill(_OfOneTable, frozen=True, kw_only=True):
    """Put versions into the log under their own names."""

    version: Version | None = None

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        return service.owner.backfill(self.table, self.version)


class BeginTakeover(_OfOneTable, frozen=True, kw_only=True):
    """Promise to own a table that is created or taken over."""

    takeover_id: ChangeId
    version: Version
    commit: CommitRequest | None = None
    """The one that creates the table, where version is 0."""
    epoch: Number | None = None
    """The table's when the take-over began: in another one the message comes too late, and nothing is promised."""

    def needed(self) -> Role:
        return Role.WRITER if self.version == 0 else Role.ADMIN

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        if self.version > 0 and look(service.owner.store(self.table), self.version - 1) is None:
            # A promise for a version that cannot come next would stand in everybody's way.
            raise VersionNotFound(
                f"Version {self.version} cannot come next, because version {self.version - 1} is not there",
                table=self.table,
                version=self.version - 1,
                hint="Open the table again",
            )
        if (commit := self.commit) is not None:
            _check_numbers(commit.size, commit.in_commit_timestamp, commit.epoch)
        return service.owner.begin_takeover(
            self.table, self.takeover_id, self.version, self.commit, epoch=self.epoch, principal=caller.principal
        )


class ConfirmTakeover(_OfOneTable, frozen=True, kw_only=True):
    """Have the owner look whether the take-over is in the log."""

    role: ClassVar[Role] = Role.READER
    takeover_id: ChangeId

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        return service.owner.confirm_takeover(self.table, self.takeover_id)


class WithdrawTakeover(_OfOneTable, frozen=True, kw_only=True):
    """Say that the take-over's commit can no longer land."""

    takeover_id: ChangeId

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        return service.owner.withdraw_takeover(self.table, self.takeover_id)


class BeginRelease(_OfOneTable, frozen=True, kw_only=True):
    """Stop ratifying, to give the table back to the file system."""

    role: ClassVar[Role] = Role.ADMIN
    release_id: ChangeId
    epoch: Number | None = None
    """The table's when the release was asked for: one that comes in another is not meant."""

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        return service.owner.begin_release(self.table, self.release_id, epoch=self.epoch, principal=caller.principal)


class FinishRelease(_OfOneTable, frozen=True, kw_only=True):
    """Have the owner look whether the release is in the log."""

    role: ClassVar[Role] = Role.READER

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        return service.owner.finish_release(self.table)


class Drop(_OfOneTable, frozen=True, kw_only=True):
    """Forget a table that was deleted."""

    role: ClassVar[Role] = Role.ADMIN

    def perform(self, service: Service, caller: Caller) -> TableCommits:
        return service.owner.drop(self.table)


OWNER_CALLS = calls_of(__name__)


def _check_numbers(*numbers: int) -> None:
    if not all(0 <= number <= MAX_INT for number in numbers):
        raise InvalidArgument("A version, a size, an epoch or a timestamp is negative or too large")
