"""`Creation`: how another engine makes a table of the catalog.

The engine asks for a place (`stage`), writes version 0 there itself, and says that it did (`create`). What a caller may
rely on:

- Version 0 is looked at like any other commit, and must say what was required: the protocol, the table's id, the owner.
  What does not is refused; nothing is promised then, and the engine may put it right and ask again.
- The table is the owner's before it has its name, by the same steps as any table that is created: a promise that is
  bound to the very bytes that were looked at, and a look at the log. So a crash between any two steps leaves what
  asking again ends, and so does a lost reply.
- Of several who make a table of one name, the first that is named has it. What the others made is among the unfinished.
"""

from __future__ import annotations

import uuid

from lakeseal.catalog.names import CommitKind, NameBook, NamedTable, StagedTable
from lakeseal.catalog.table_name import TableName
from lakeseal.errors import AlreadyExists, InvalidCommit, LakesealError, ObjectNotFound, TableNotFound, located
from lakeseal.owner import enablement
from lakeseal.owner.content import Content
from lakeseal.owner.endpoint import owner_conf
from lakeseal.owner.kinds import Kind as OwnedKind
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import MAX_INT, CommitRequest, TableCommits
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.features import (
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    enable,
    reader_features,
    required_features,
    writer_features,
)
from lakeseal.protocol.paths import LAST_CHECKPOINT, LOG_DIR, LogFileKind, commit_path, parse
from lakeseal.protocol.properties import TableProperties
from lakeseal.storage.base import Store

_MOST_BYTES = 2**24
_TABLE_ID = TableProperties.catalog_table_id.key
_CONF = TableProperties.catalog_owner_conf.key
_NOTHING = Protocol(
    min_reader_version=MAX_READER_VERSION,
    min_writer_version=MAX_WRITER_VERSION,
    reader_features=(),
    writer_features=(),
)


class Creation:
    """For any thread."""

    def __init__(self, owner: LedgerOwner, names: NameBook) -> None:
        self._owner = owner
        self._names = names

    def place(self) -> tuple[str, str]:
        """An id for a new table, and where it is to be."""
        table_id = str(uuid.uuid4())
        return table_id, self._names.place_for(table_id)

    def stage(self, name: TableName, table_id: str) -> StagedTable:
        """`SchemaNotFound`, or `AlreadyExists` where the name is taken."""
        self._names.schema(name.in_schema)
        return self._names.stage(name, None, CommitKind.CATALOG, table_id=table_id)

    def required(self, table_id: str) -> tuple[Protocol, dict[str, str]]:
        """What version 0 of the table has to say: at least this protocol, and these properties."""
        metadata = enablement.managed(
            Metadata(id=table_id),
            owner=self._owner.name,
            conf=owner_conf(self._owner),
            kind=OwnedKind.CATALOG,
            table_id=table_id,
        )
        said = {key: text for key, text in metadata.configuration.items() if text is not None}
        return enable(_NOTHING, *required_features(metadata)), said

    def create(self, name: TableName, uri: str, *, principal: str | None) -> NamedTable:
        """The table that an engine has written at `uri`, which was staged for this name."""
        try:
            found = self._names.resolve(name)
        except TableNotFound:
            pass
        else:
            if found.uri == uri and found.kind is CommitKind.CATALOG:
                return found
            raise AlreadyExists(f"There is a table named {name} already", hint="Choose another name")
        store = self._owner.store(uri)
        with located(table=uri, version=0, file=commit_path(0)):
            data = _version_0(store)
            content = _content(data)
            staged = self._staged(content, name, uri)
            told = self._owner.get_commits(uri, MAX_INT)
            if not told.is_owned:
                told = self._owned(store, data, content, principal)
            if not told.is_owned or told.kind is not OwnedKind.CATALOG:
                raise InvalidCommit("Version 0 is no longer what was looked at", hint="Stage another table")
        return self._names.register(name, uri, CommitKind.CATALOG, table_id=staged.table_id, make_schema=False)

    def _staged(self, content: Content, name: TableName, uri: str) -> StagedTable:
        """What was begun, which version 0 must be of."""
        protocol, metadata = content.protocol, content.metadata
        if protocol is None or metadata is None:
            raise InvalidCommit("Version 0 of a table has a protocol and metadata")
        table_id = metadata.configuration.get(_TABLE_ID) or ""
        begun = [one for one in self._names.staged(table_id) if one.uri == uri and one.name.folded == name.folded]
        if not begun or begun[0].kind is not CommitKind.CATALOG:
            raise InvalidCommit(
                f"No table of this id is being made here under the name {name}",
                hint=f"Write {_TABLE_ID} as the staging table was told, at its location",
            )
        needed, properties = self.required(begun[0].table_id)
        # How many commits there are between backfills may have been set anew since.
        del properties[_CONF]
        wrong = sorted(key for key, text in properties.items() if metadata.configuration.get(key) != text)
        if enablement.ledger_id(metadata) != self._owner.identity():
            wrong.append(_CONF)
        unread = reader_features(needed) - reader_features(protocol)
        lacking = sorted(unread | (writer_features(needed) - writer_features(protocol)))
        if wrong or lacking:
            raise InvalidCommit(
                f"Version 0 does not say what is required: {', '.join([*lacking, *wrong])}",
                hint="See required-protocol and required-properties of the staging table",
            )
        enablement.check(protocol, metadata)
        return begun[0]

    def _owned(self, store: Store, data: bytes, content: Content, principal: str | None) -> TableCommits:
        more = [key for key in store.list_keys(LOG_DIR) if _is_more(key)]
        if more:
            raise InvalidCommit(f"There is more than version 0: {more[0]}", hint="What follows is committed here")
        info = content.info
        if info is None or not info.txn_id or info.in_commit_timestamp is None:
            raise InvalidCommit("There is no commitInfo with a txnId and an inCommitTimestamp")
        table = store.uri
        request = CommitRequest(
            table=table,
            version=0,
            txn_id=info.txn_id,
            size=len(data),
            in_commit_timestamp=info.in_commit_timestamp,
            epoch=0,
            data=data,
        )
        self._owner.begin_takeover(table, info.txn_id, 0, request, principal=principal)
        return self._owner.settle(table)


def _version_0(store: Store) -> bytes:
    key = commit_path(0)
    try:
        if store.head(key).size > _MOST_BYTES:
            raise InvalidCommit(f"Version 0 may have {_MOST_BYTES:,} bytes", hint="Create the table, and write then")
        return store.get(key)
    except ObjectNotFound:
        raise InvalidCommit("Version 0 is not there", hint="It is written before the table is created") from None


def _content(data: bytes) -> Content:
    """As the bytes are the client's, what is wrong with them is a wrong request, whatever it would be in a table."""
    try:
        return Content.of(data)
    except LakesealError as error:
        raise InvalidCommit(error.message, hint=error.hint) from None


def _is_more(key: str) -> bool:
    """Than version 0 and what is beside it, which nobody reads a table from."""
    found = parse(key)
    if found is None:
        return key == LAST_CHECKPOINT
    return found.kind not in (LogFileKind.STAGED_COMMIT, LogFileKind.CHECKSUM) and key != commit_path(0)
