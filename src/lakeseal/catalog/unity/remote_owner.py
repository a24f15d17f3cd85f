"""`RemoteOwner`: a catalog of others as the `CommitOwner` of one of its tables.

A commit's file is durable in `_staged_commits` before the catalog is asked to make it a version. A version that is
taken is always looked at before it is called a conflict, because the reply to an earlier request may have been lost: it
is ours if the catalog names our file for it, or if what is published under it has our txnId.

What was committed is then published, up to that version and in order, and the catalog hears of it with the next commit;
it is other clients who read faster for it, so a commit does not fail by it. Where a catalog takes no more commits until
some are published (429), that is done, and said, first.

The table is the one with this UUID: if its name means another by now, or nothing, everything raises `OwnedElsewhere`.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from lakeseal.catalog.names import NamedTable
from lakeseal.catalog.unity.answers import TheirStagingTable, TheirTable
from lakeseal.catalog.unity.messages import StagedCommit
from lakeseal.catalog.unity.metadata_updates import updates_of
from lakeseal.catalog.unity.remote import Remote, table_path
from lakeseal.commit.filesystem_owner import FilesystemOwner, txn_id_of
from lakeseal.commit.owner import Commits, Committed, Conflict, Outcome, Unresolved
from lakeseal.errors import (
    ConcurrentModification,
    InvalidCommit,
    InvalidMetadata,
    LakesealError,
    ObjectNotFound,
    OwnedElsewhere,
    OwnerBusy,
    TableNotFound,
    UnknownOutcome,
    VersionNotFound,
    located,
)
from lakeseal.log.ratified_commit import RatifiedCommit
from lakeseal.owner import enablement
from lakeseal.owner.content import Content
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.actions import Protocol as TableProtocol
from lakeseal.protocol.features import reader_features, writer_features
from lakeseal.protocol.paths import STAGED_COMMITS_DIR, LogFileKind, commit_path, parse, staged_commit_path
from lakeseal.protocol.properties import TableProperties
from lakeseal.storage.base import Store

_log = logging.getLogger(__name__)


class RemoteOwner:
    """A `CommitOwner`. For any thread, as far as its store is."""

    def __init__(self, remote: Remote, table: NamedTable, store: Store) -> None:
        self.store = store
        self._remote = remote
        self._table = table
        self._published = -1
        self._reported = -1
        self._staged: dict[tuple[int, str], str] = {}

    def __repr__(self) -> str:
        return f"RemoteOwner({self._remote!r}, {str(self._table.name)!r})"

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        with located(table=self.store.uri, version=version):
            content = Content.of(data)
            timestamp = in_commit_timestamp
            if timestamp is None and content.info is not None:
                timestamp = content.info.in_commit_timestamp
            if timestamp is None:
                raise InvalidCommit("A commit to a catalog's table needs an inCommitTimestamp in its commitInfo")
            key = self._staged.setdefault(
                (version, txn_id), staged_commit_path(version, str(uuid.uuid4()), STAGED_COMMITS_DIR)
            )
            # False says that it is there: a name is used for one content only, so it is this one.
            self.store.put_if_absent(key, data)
            staged = StagedCommit(
                version=version,
                timestamp=timestamp,
                file_name=key.removeprefix(STAGED_COMMITS_DIR),
                file_size=len(data),
                file_modification_timestamp=timestamp,
            )
            outcome = self._decide(staged, self._updates(data, content), txn_id)
        if isinstance(outcome, Committed):
            self._staged.pop((version, txn_id), None)
            self._publish_quietly(version)
        return outcome

    def get_commits(self, start_version: int) -> Commits:
        told = self._load()
        commits = tuple(self._ratified(one) for one in reversed(told.commits or ()) if one.version >= start_version)
        latest = told.latest_table_version
        return Commits(commits=commits, latest=-1 if latest is None else latest, up_to=latest)

    def backfill_to_version(self, version: int) -> None:
        told = self._load()
        if told.latest_table_version is not None and version > told.latest_table_version:
            raise VersionNotFound(f"Version {version} is not committed", table=self.store.uri, version=version)
        self._publish(told, version)
        if self._published > self._reported:
            self._send(self._report())

    def claim(self, metadata: Metadata, before: Metadata | None) -> Metadata:
        """Whose the table is, no commit changes."""
        return metadata if before is None else enablement.with_owner_of(metadata, before)

    def _decide(self, staged: StagedCommit, updates: list[Any], txn_id: str) -> Outcome:
        try:
            self._send([{"action": "add-commit", "commit": staged}, *updates, *self._report()])
        except OwnerBusy:
            # It waits for commits to be published, and clients do that.
            try:
                self.backfill_to_version(staged.version - 1)
                self._send([{"action": "add-commit", "commit": staged}, *updates, *self._report()])
            except UnknownOutcome as error:
                return Unresolved(version=staged.version, reason=str(error))
            except ConcurrentModification:
                return self._looked_up(staged, txn_id)
        except UnknownOutcome as error:
            return Unresolved(version=staged.version, reason=str(error))
        except ConcurrentModification:
            return self._looked_up(staged, txn_id)
        return self._committed(staged, txn_id)

    def _looked_up(self, staged: StagedCommit, txn_id: str) -> Outcome:
        """Whose the version is."""
        told = self._load()
        named = next((one for one in told.commits or () if one.version == staged.version), None)
        if named is not None:
            is_ours = named.file_name == staged.file_name
            return self._committed(staged, txn_id) if is_ours else Conflict(version=staged.version)
        if told.latest_table_version is None or told.latest_table_version < staged.version:
            return Unresolved(
                version=staged.version, reason="the catalog answers with a conflict, and has no such version"
            )
        try:
            there = self.store.get(commit_path(staged.version))
        except ObjectNotFound:
            return Unresolved(version=staged.version, reason="the version is so old that nobody can tell whose it is")
        is_ours = txn_id_of(there) == txn_id
        return self._committed(staged, txn_id) if is_ours else Conflict(version=staged.version)

    def _committed(self, staged: StagedCommit, txn_id: str) -> Committed:
        key = STAGED_COMMITS_DIR + staged.file_name
        return Committed(
            commit=RatifiedCommit(version=staged.version, key=key, txn_id=txn_id, in_commit_timestamp=staged.timestamp)
        )

    def _updates(self, data: bytes, content: Content) -> list[Any]:
        if not content.changes_metadata and b"domainMetadata" not in data:
            return []
        known = self._load().metadata
        return updates_of(data, content, known.properties or {}, known.partition_columns or ())

    def _load(self) -> TheirTable:
        try:
            found = self._remote.ask(table_path(self._table.name), TheirTable)
        except TableNotFound:
            # What has no name any more is not a place for a new table.
            raise OwnedElsewhere(
                f"The catalog has no table {self._table.name} any more",
                table=self.store.uri,
                hint="It was dropped or renamed: lakeseal catalog list shows what there is",
            ) from None
        if found.metadata.table_uuid.lower() != self._table.table_id:
            raise OwnedElsewhere(
                f"The name {self._table.name} means another table by now: {found.metadata.table_uuid}, and not "
                f"{self._table.table_id}",
                table=self.store.uri,
                hint="Open it again by its name",
            )
        versions = [one.version for one in found.commits or ()]
        latest = found.latest_table_version
        expected = [] if latest is None else list(range(latest, latest - len(versions), -1))
        if versions != expected:
            raise InvalidMetadata(
                f"The catalog tells of the commits {versions[:5]}…, and of the latest version {latest}: they must be "
                "all from one version on to the latest, newest first",
                table=self.store.uri,
                hint="Ask whoever runs the catalog",
            )
        return found

    def _ratified(self, told: StagedCommit) -> RatifiedCommit:
        key = STAGED_COMMITS_DIR + told.file_name
        found = parse(key)
        if found is None or found.kind is not LogFileKind.STAGED_COMMIT or found.version != told.version:
            raise InvalidMetadata(
                f"The catalog names {told.file_name!r} as the file of version {told.version}, which is no such name",
                table=self.store.uri,
                version=told.version,
                hint="Ask whoever runs the catalog",
            )
        return RatifiedCommit(version=told.version, key=key, in_commit_timestamp=told.timestamp)

    def _send(self, updates: list[Any]) -> None:
        requirement = {"type": "assert-table-uuid", "uuid": self._table.table_id}
        body = {"requirements": [requirement], "updates": updates}
        self._remote.change("POST", table_path(self._table.name), TheirTable, body)
        reported = [one["latest-published-version"] for one in updates if "latest-published-version" in one]
        self._reported = max([self._reported, *reported])

    def _report(self) -> list[Any]:
        if self._published <= self._reported:
            return []
        return [{"action": "set-latest-backfilled-version", "latest-published-version": self._published}]

    def _publish_quietly(self, version: int) -> None:
        try:
            self._publish(self._load(), version)
        except LakesealError as error:
            _log.warning("version %d of %s stands, and was not published: %s", version, self.store.uri, error)

    def _publish(self, told: TheirTable, version: int) -> None:
        """All that is told up to a version, one after the other, under their own names."""
        for one in reversed(told.commits or ()):
            if one.version > version:
                break
            with located(table=self.store.uri, version=one.version):
                key = commit_path(one.version)
                try:
                    self.store.put_if_absent(key, self._ratified(one).read(self.store))
                except ObjectNotFound:
                    self.store.head(key)  # published, and tidied up since
            self._published = max(self._published, one.version)


class NewRemoteTable(RemoteOwner):
    """Of a table that was staged, and is about to be made: its version 0 is a file in the log. The catalog hears of it
    when the table gets its name."""

    def __init__(self, remote: Remote, table: NamedTable, store: Store, staging: TheirStagingTable) -> None:
        super().__init__(remote, table, store)
        self._staging = staging

    def commit(self, version: int, data: bytes, *, txn_id: str, in_commit_timestamp: int | None = None) -> Outcome:
        if version != 0:
            raise TableNotFound("The table has no name in its catalog yet", table=self.store.uri)
        files = FilesystemOwner(self.store)
        return files.commit(0, data, txn_id=txn_id, in_commit_timestamp=in_commit_timestamp)

    def get_commits(self, start_version: int) -> Commits:
        return FilesystemOwner(self.store).get_commits(start_version)

    def claim(self, metadata: Metadata, before: Metadata | None) -> Metadata:
        wanted = {key: text for key, text in (self._staging.required_properties or {}).items() if text is not None}
        wanted |= {TableProperties.catalog_table_id.key: self._staging.table_id}
        wanted |= {TableProperties.in_commit_timestamps.key: "true"}
        return enablement.with_properties(metadata, wanted)

    @property
    def features(self) -> tuple[str, ...]:
        """Those that the catalog requires."""
        needed = self._staging.required_protocol
        protocol = TableProtocol(
            min_reader_version=max(needed.min_reader_version, 1),
            min_writer_version=max(needed.min_writer_version, 1),
            reader_features=needed.reader_features,
            writer_features=needed.writer_features,
        )
        return ("catalogManaged", *sorted(reader_features(protocol) | writer_features(protocol)))
