"""`ManagedOwner`: a commit owner's side in the client, for one table. A `CommitOwner` over an `OwnerEndpoint`.

A small commit travels in the request, and lives in the owner's ledger until it is published; of a large one the file
is durable in `_commits` before ratification is asked for. Version 0 is different: it creates the table, so it goes
straight into the log by put-if-absent, with the owner's promise before and its confirmation after.

It is bound to the table as it was when it was first asked for: if the table has been released since, and even if it was
taken over again, commits are refused with `OwnedElsewhere`, and the table has to be opened anew.
"""

from __future__ import annotations

import logging
import uuid

from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.owner import Commits, Committed, Conflict, Outcome, Unresolved
from lakeseal.errors import LakesealError, OwnedElsewhere, PolicyRefused, Refused, ReleaseUnderway, UnknownOutcome
from lakeseal.log.ratified_commit import RatifiedCommit, digest
from lakeseal.owner import enablement
from lakeseal.owner.backfill import check_log_is_there
from lakeseal.owner.content import Content
from lakeseal.owner.endpoint import OwnerEndpoint, owner_conf
from lakeseal.owner.handover import finish_release
from lakeseal.owner.kinds import NEW_TABLE, NewTable
from lakeseal.owner.messages import (
    NO_COMMITS,
    Answer,
    Batch,
    CommitRequest,
    Ratified,
    TableCommits,
    Taken,
    file_name,
)
from lakeseal.owner.ownership import State
from lakeseal.protocol.actions import Metadata
from lakeseal.storage.base import Store

_log = logging.getLogger(__name__)


class ManagedOwner:
    def __init__(self, endpoint: OwnerEndpoint, store: Store, *, new: NewTable = NEW_TABLE) -> None:
        """`new` is how a table is that is created through this; one that is there has its own kind."""
        self.endpoint = endpoint
        self.store = store
        self.table = endpoint.attach(store)
        self._epoch: int | None = None
        self._kind, self._new_id = new.kind, new.table_id
        self.is_stranger = False
        """Whether the owner, when it was last asked, did not know the table."""
        self._files: dict[tuple[int, str], str] = {}
        self._begun: dict[str, int] = {}
        """By the transaction that creates the table: the epoch in which it was begun."""

    def __repr__(self) -> str:
        return f"ManagedOwner({self.endpoint!r}, {self.table!r})"

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        if version == 0:
            return self._create(data, txn_id, in_commit_timestamp)
        try:
            request = self.request(version, data, txn_id=txn_id, in_commit_timestamp=in_commit_timestamp)
            answer = self.endpoint.ratify(Batch(commits=(request,))).commits[0]
        except UnknownOutcome as error:
            return Unresolved(version=version, reason=str(error))
        except ReleaseUnderway:
            raise self.released() from None
        except Refused:
            self.answered(version, txn_id)
            raise
        self.answered(version, txn_id)
        return _outcome(answer, txn_id, in_commit_timestamp)

    def get_commits(self, start_version: int) -> Commits:
        told = self.endpoint.get_commits(self.table, start_version)
        self._learn(told)
        commits = tuple(commit.ratified() for commit in told.commits)
        return Commits(commits=commits, latest=told.latest, up_to=told.up_to)

    def backfill_to_version(self, version: int) -> None:
        self.endpoint.backfill(self.table, version)

    def claim(self, metadata: Metadata, before: Metadata | None) -> Metadata:
        """A new table's metadata names this owner; that of an owned table keeps whom it names."""
        if before is None:
            conf = owner_conf(self.endpoint)
            name, table_id = self.endpoint.name, self._new_id
            return enablement.managed(metadata, owner=name, conf=conf, kind=self._kind, table_id=table_id)
        return enablement.with_owner_of(metadata, before) if enablement.owner_name(before) is not None else metadata

    def request(
        self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None
    ) -> CommitRequest:
        """What to ask the owner for. The file of a large commit is durable when this returns; asked for the same again,
        it is the same file."""
        content = Content.of(data)
        epoch = self.epoch()
        if content.changes_metadata:
            enablement.check_commit(
                content, owner=self.endpoint.name, table=self.table, version=version, kind=lambda: self._kind
            )
        if in_commit_timestamp is None and content.info is not None:
            in_commit_timestamp = content.info.in_commit_timestamp
        if in_commit_timestamp is None:
            error = PolicyRefused(
                "A managed commit needs an inCommitTimestamp in its commitInfo", table=self.table, version=version
            )
            error.policy = enablement.OWNERSHIP_POLICY
            raise error
        is_small = len(data) <= self.endpoint.inline_bytes
        request = CommitRequest(
            table=self.table,
            version=version,
            txn_id=txn_id,
            size=len(data),
            in_commit_timestamp=in_commit_timestamp,
            epoch=epoch,
            data=data if is_small else None,
            file=None if is_small else self._file(version, txn_id),
            sha256=digest(data),
            changes_metadata=content.changes_metadata,
        )
        if not is_small:
            if version > 0:
                check_log_is_there(self.store)
            # False says that it is there: a name is used for one content only, so it is this one.
            self.store.put_if_absent(request.key, data)
        return request

    def _file(self, version: int, txn_id: str) -> str:
        return self._files.setdefault((version, txn_id), file_name(version, str(uuid.uuid4()), self._kind))

    def answered(self, version: int, txn_id: str) -> None:
        """The outcome is known, and nobody will ask for the same again."""
        self._files.pop((version, txn_id), None)

    def epoch(self) -> int:
        if self._epoch is None:
            told = self.endpoint.get_commits(self.table, NO_COMMITS)
            self._learn(told)
            return told.epoch
        return self._epoch

    def released(self) -> OwnedElsewhere:
        """Helps a release that is under way, and says what the caller has to do."""
        finish_release(self.endpoint, self.store)
        return OwnedElsewhere(
            f"The owner {self.endpoint.name!r} has released this table",
            table=self.table,
            hint="Open the table again: commits go to its log now",
        )

    def _learn(self, told: TableCommits) -> None:
        self.is_stranger = told.state is State.NONE
        if told.state in (State.ACTIVE, State.RELEASING) and self._epoch in (None, told.epoch):
            self._epoch, self._kind = told.epoch, told.kind

    def _create(self, data: bytes, txn_id: str, in_commit_timestamp: int | None) -> Outcome:
        try:
            if txn_id not in self._begun:
                self._begun[txn_id] = self.endpoint.get_commits(self.table, NO_COMMITS).epoch
            request = self.request(0, data, txn_id=txn_id, in_commit_timestamp=in_commit_timestamp)
            told = self.endpoint.begin_takeover(self.table, txn_id, 0, request, epoch=self._begun[txn_id])
        except UnknownOutcome as error:
            return Unresolved(version=0, reason=str(error))
        except ReleaseUnderway:
            self._shown(request)
            raise
        except OwnedElsewhere:
            # Since an earlier try: what came of that, the log tells.
            return FilesystemOwner(self.store).outcome(0, txn_id)
        except Refused:
            self._shown(request)
            raise
        outcome = FilesystemOwner(self.store).commit(0, data, txn_id=txn_id, in_commit_timestamp=in_commit_timestamp)
        if told.state is State.PENDING:
            self._settle_creation(txn_id, outcome)
        if not isinstance(outcome, Unresolved):
            self._shown(request)
        return outcome

    def _shown(self, request: CommitRequest) -> None:
        """The owner has seen the commit that creates a table; where that was in a file, nobody needs it any more."""
        self.answered(request.version, request.txn_id)
        if request.file is not None:
            self.store.delete([request.key])

    def _settle_creation(self, txn_id: str, outcome: Outcome) -> None:
        try:
            match outcome:
                case Committed():
                    self.endpoint.confirm_takeover(self.table, txn_id)
                case Conflict():
                    self.endpoint.withdraw_takeover(self.table, txn_id)
        except LakesealError as error:
            # The log has decided, and the first commit that reaches the owner makes it look there.
            _log.warning("the owner of %s could not be told how its creation went: %s", self.table, error)


def _outcome(answer: Answer, txn_id: str, in_commit_timestamp: int | None) -> Outcome:
    if not isinstance(answer, Ratified):
        return Conflict(version=answer.version, is_next=isinstance(answer, Taken) and answer.is_next)
    return Committed(
        commit=RatifiedCommit(
            version=answer.version,
            key=answer.key,
            txn_id=txn_id,
            in_commit_timestamp=answer.in_commit_timestamp or in_commit_timestamp,
        )
    )
