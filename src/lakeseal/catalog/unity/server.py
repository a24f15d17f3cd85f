"""`UnityTables`: an owner as a catalog for other engines: tables by name, told and committed to by files.

What a client may rely on (and clients do):

- A table is told at one moment: metadata, the latest version, and the commits that are not published yet. What only the
  ledger has is published before it is told, because such clients read files.
- A commit is a staged file. It is read, bound to its SHA-256, checked and ratified as any other (one way to ratify);
  when it is answered, it is part of the table. The same file for the same version, or the same txnId for the same
  version in another file, gets the same answer however often. A txnId that has another version already is told which:
  to rebase it would write it twice.
- Reports of what clients have published are hints: the publisher is told, and looks at the files itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from lakeseal.catalog.names import NamedTable
from lakeseal.catalog.unity.messages import ColumnInfo, LoadedTable, Requirement, StagedCommit, TableInfo, UpdateTable
from lakeseal.catalog.unity.table_view import EXTERNAL, MANAGED, TableView, TableViews
from lakeseal.errors import (
    AlreadyExists,
    CommitOutcomeUnknown,
    ConcurrentWriteException,
    InvalidArgument,
    InvalidCommit,
    LakesealError,
    MetadataChangedException,
    ObjectNotFound,
    OwnedElsewhere,
    located,
)
from lakeseal.log.delta_log import commit_info_in
from lakeseal.owner import rows
from lakeseal.owner.kinds import Kind, staged_name
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import MAX_INT, Batch, CommitRequest, Ratified, TableCommits, TrackedCommit
from lakeseal.owner.ownership import State
from lakeseal.protocol.paths import LogFileKind, parse
from lakeseal.storage.base import HasDirectories, Store

_FIRST_LINE = 2**20
_MOST_BYTES = 2**30
ADD_COMMIT = "add-commit"
PUBLISHED = "set-latest-backfilled-version"
# What a commit's file says anyway.
_DERIVED = frozenset(
    {
        "set-columns",
        "set-properties",
        "remove-properties",
        "set-protocol",
        "set-partition-columns",
        "set-table-comment",
        "set-domain-metadata",
        "remove-domain-metadata",
    }
)


class UnityTables:
    """For any thread."""

    def __init__(self, owner: LedgerOwner) -> None:
        self._owner = owner
        self.views = TableViews(owner)
        self.when_published: Callable[[str], None] = lambda _: None
        """Told of a table that has published commits which the ledger does not know of, as a client says."""

    def load(self, named: NamedTable) -> LoadedTable:
        (told,) = self._owner.get_files_of((named.uri,))
        told = self._settled(told)
        if told.kind.speaks_to_all and told.is_owned:
            _make_staging(self._owner.store(named.uri), told.kind)
        return self._loaded(named, told)

    def info(self, named: NamedTable) -> TableInfo:
        """As lists show it; one whose files cannot be read is shown without columns."""
        columns: tuple[ColumnInfo, ...] = ()
        properties: dict[str, str] = {}
        kind = EXTERNAL
        with suppress(LakesealError):
            told = self._settled(self._owner.get_commits(named.uri, MAX_INT))
            if told.is_owned and not told.kind.speaks_to_all and told.backfilled < told.latest:
                # Engines read it by its path, without asking again.
                with suppress(LakesealError):
                    self._owner.publish(named.uri)
            view = self.views.of(named, told)
            columns, properties, kind = view.columns, view.properties, view.table_type
        return TableInfo(
            name=named.name.table,
            catalog_name=named.name.catalog,
            schema_name=named.name.schema,
            table_type=kind,
            storage_location=named.uri,
            table_id=named.table_id,
            columns=columns,
            properties=properties,
            created_at=named.created_ms,
            updated_at=named.updated_ms,
        )

    def is_called(self, named: NamedTable, table_id: str) -> bool:
        """Whether a table has this UUID: in the catalog, or by its log, if it was taken over by its place."""
        if table_id == named.table_id:
            return True
        return self.views.of(named, self._settled(self._owner.get_commits(named.uri, MAX_INT))).table_uuid == table_id

    def update(self, named: NamedTable, asked: UpdateTable, *, principal: str | None) -> LoadedTable:
        staged = commit_of(asked)
        if staged is None:
            (told,) = self._owner.get_files_of((named.uri,))
            self._check(named, told, asked.requirements)
        else:
            self.commit(named, staged, asked.requirements, principal=principal)
        said = [one.latest_published_version for one in asked.updates if one.action == PUBLISHED]
        return self._heard(named, self.load(named), said[0] if said else None)

    def published(self, named: NamedTable, version: int) -> None:
        """A client says that all versions up to this one are published."""
        self._heard(named, self.load(named), version)

    def _heard(self, named: NamedTable, loaded: LoadedTable, published: int | None) -> LoadedTable:
        if published is not None and any(one.version <= published for one in loaded.commits):
            self.when_published(named.uri)
        return loaded

    def commit(
        self,
        named: NamedTable,
        staged: StagedCommit,
        requirements: Sequence[Requirement] = (),
        *,
        principal: str | None,
    ) -> None:
        told = self._settled(self._owner.get_commits(named.uri, staged.version))
        with located(table=named.uri, version=staged.version, file=staged.file_name):
            if not told.kind.speaks_to_all or not told.is_owned:
                raise OwnedElsewhere(
                    "Commits to this table are not made through the catalog",
                    hint="Let it be taken over: Table.take_over(owner, kind='catalog')",
                )
            key = _key(staged, told.kind)
            if staged.version > told.latest:
                # What is there already is answered, whatever has changed since.
                self._check(named, told, requirements)
            request = self._request(named, staged, key, told)
            if request is not None:
                self._ratify(request, principal)

    def _ratify(self, request: CommitRequest, principal: str | None) -> None:
        try:
            (answer,) = self._owner.ratify(Batch(commits=(request,)), principal=principal).commits
        except AlreadyExists as error:
            raise InvalidCommit(error.message, hint=error.hint) from None
        if isinstance(answer, Ratified):
            return
        before = self._owner.ledger.read(lambda tx: rows.commit_of(tx, request.table, request.txn_id))
        if before is not None:
            raise InvalidCommit(
                f"The transaction {request.txn_id} is version {before.commit.version} already",
                hint="It is part of the table: do not write it again",
            )
        raise ConcurrentWriteException(f"Version {request.version} is another commit's")

    def _request(self, named: NamedTable, staged: StagedCommit, key: str, told: TableCommits) -> CommitRequest | None:
        """None if this very file is that version already."""
        store = self._owner.store(named.uri)
        try:
            txn_id, timestamp, size = _first_line(store, key)
        except ObjectNotFound:
            if staged.version > told.latest:
                raise InvalidCommit(
                    "The commit's file is not there", hint="It is put there before it is asked for"
                ) from None
            # Published and tidied up since.
            known = self._owner.ledger.read(lambda tx: rows.commit_at(tx, named.uri, staged.version))
            if known is not None and known.commit.file == staged_name(key):
                return None
            if known is not None:
                raise ConcurrentWriteException(f"Version {staged.version} is another commit's") from None
            raise CommitOutcomeUnknown("The version is so old that nobody can tell whose it is") from None
        if size != staged.file_size:
            raise InvalidCommit(f"The commit's file has {size:,} bytes, not {staged.file_size:,}")
        if timestamp != staged.timestamp:
            raise InvalidCommit(f"The commit's inCommitTimestamp is {timestamp}, not {staged.timestamp}")
        return CommitRequest(
            table=named.uri,
            version=staged.version,
            txn_id=txn_id,
            size=size,
            in_commit_timestamp=timestamp,
            epoch=told.epoch,
            file=staged_name(key),
        )

    def _check(self, named: NamedTable, told: TableCommits, requirements: Sequence[Requirement]) -> None:
        if not requirements:
            return
        view = self.views.of(named, told)
        for one in requirements:
            match one.type:
                case "assert-table-uuid":
                    met, what = one.uuid == view.table_uuid, f"The table's UUID is {view.table_uuid}, not {one.uuid}"
                case "assert-etag":
                    met, what = one.etag == view.etag, "The table's metadata has changed"
                case _:
                    raise InvalidArgument(f"There is no requirement {one.type!r}")
            if not met:
                raise MetadataChangedException(what, table=named.uri, hint="Load the table again")

    def _settled(self, told: TableCommits) -> TableCommits:
        return self._owner.settle(told.table) if told.state is State.PENDING else told

    def _loaded(self, named: NamedTable, told: TableCommits) -> LoadedTable:
        view = self.views.of(named, told)
        if view.table_type != MANAGED:
            return _told(named, view, view.version, view.timestamp_ms, ())
        commits = tuple(_staged(one) for one in reversed(told.commits) if one.version > 0)
        timestamp = commits[0].timestamp if commits else (told.latest_timestamp or view.timestamp_ms)
        return _told(named, view, told.latest, timestamp, commits)


def _make_staging(store: Store, kind: Kind) -> None:
    """Delta Spark puts files only into a directory that is there, where a store has directories."""
    if isinstance(store, HasDirectories) and not store.has_directory(kind.staging):
        marker = kind.staging + ".made"
        store.put(marker, b"")
        store.delete([marker])


def _told(
    named: NamedTable, view: TableView, version: int, timestamp: int, commits: tuple[StagedCommit, ...]
) -> LoadedTable:
    metadata = view.metadata(named, version=version, timestamp_ms=timestamp)
    return LoadedTable(metadata=metadata, commits=commits, latest_table_version=version)


def commit_of(asked: UpdateTable) -> StagedCommit | None:
    """What a request asks for; None for one that only reports what is published."""
    actions = [one.action for one in asked.updates]
    unknown = sorted(set(actions) - {ADD_COMMIT, PUBLISHED} - _DERIVED)
    if unknown:
        raise InvalidArgument(f"There is no update {unknown[0]!r}")
    if not actions or len(set(actions)) != len(actions):
        raise InvalidArgument("A request has at least one update, and at most one of each kind")
    found = [one for one in asked.updates if one.action == ADD_COMMIT]
    if found and found[0].commit is None:
        raise InvalidArgument("An update add-commit names a commit")
    if not found and set(actions) != {PUBLISHED}:
        raise InvalidArgument("A table's metadata changes by a commit", hint="Send it with the commit that says so")
    return found[0].commit if found else None


def _key(staged: StagedCommit, kind: Kind) -> str:
    """Of a file in the table's staging directory, and of no other."""
    key = kind.staging + staged.file_name
    found = parse(key)
    if "/" in staged.file_name or found is None or found.kind is not LogFileKind.STAGED_COMMIT:
        raise InvalidCommit("This names no staged commit", hint="The name is <version, 20 digits>.<uuid>.json")
    if found.version != staged.version:
        raise InvalidCommit(f"The file is one of version {found.version}, and is never another")
    return key


def _first_line(store: Store, key: str) -> tuple[str, int, int]:
    """The txnId and the in-commit timestamp that a staged commit says, and how many bytes it has."""
    size = store.head(key).size
    if size > _MOST_BYTES:
        raise InvalidCommit(f"A commit's file may have {_MOST_BYTES:,} bytes")
    first = store.get_range(key, 0, min(size, _FIRST_LINE)).partition(b"\n")[0]
    info = commit_info_in(first) if len(first) < _FIRST_LINE else None
    if info is None or info.txn_id is None or info.in_commit_timestamp is None:
        raise InvalidCommit(
            "The commit's first line is no commitInfo with a txnId and an inCommitTimestamp",
            hint="Tables of a catalog need both",
        )
    return info.txn_id, info.in_commit_timestamp, size


def _staged(commit: TrackedCommit) -> StagedCommit:
    return StagedCommit(
        version=commit.version,
        timestamp=commit.in_commit_timestamp,
        file_name=(commit.file or "").rpartition("/")[2],
        file_size=commit.size,
        file_modification_timestamp=commit.in_commit_timestamp,
    )
