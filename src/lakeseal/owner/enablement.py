"""What makes a table managed, as values: a feature in its protocol, properties in its metadata, never one half of it.

- `managed` gives the metadata of a table that an owner has; the protocol follows from it.
- `released` gives protocol and metadata without the owner. In-commit timestamps stay: versions that have them do.
- `check` raises `InvalidMetadata` that names the missing half.
- `check_commit` keeps ordinary commits from changing the owner: that is what a take-over and a release are for. Who has
  a commit that changes neither protocol nor metadata (`Content.changes_metadata`) need not ask it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

import msgspec

from lakeseal.errors import InvalidMetadata, OwnedElsewhere, PolicyRefused
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.content import Content
from lakeseal.owner.kinds import Kind, kind_of
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.features import check_writable, disable, supports
from lakeseal.protocol.properties import OWNER_KEYS, TableProperties

OWNERSHIP_POLICY = "ownership"
BATCH_SIZE = "batchSize"
LEDGER_ID = "ledgerId"

_NAME = TableProperties.managed_commit_owner_name.key
_CONF = TableProperties.managed_commit_owner_conf.key
_CATALOG_NAME = TableProperties.catalog_owner_name.key
_CATALOG_CONF = TableProperties.catalog_owner_conf.key
_TABLE_ID = TableProperties.catalog_table_id.key
_COORDINATOR = TableProperties.commit_coordinator.key
_COORDINATOR_CONF = TableProperties.commit_coordinator_conf.key
_COORDINATED_TABLE = TableProperties.coordinated_table_conf.key
_TIMESTAMPS = TableProperties.in_commit_timestamps.key
_PREPARED = ("inCommitTimestamp",)


def managed(
    metadata: Metadata, *, owner: str, conf: Mapping[str, str], kind: Kind = Kind.MANAGED, table_id: str | None = None
) -> Metadata:
    """`table_id` is what a catalog calls the table, whatever its name is; a new one where it has none yet."""
    said = _json(conf)
    match kind:
        case Kind.MANAGED:
            owned = {_NAME: owner, _CONF: said}
        case _:
            owned = {_CATALOG_NAME: owner, _CATALOG_CONF: said, _TABLE_ID: table_id or str(uuid.uuid4())}
    if kind is Kind.COORDINATED:
        owned |= {
            _COORDINATOR: "unity-catalog",
            _COORDINATOR_CONF: _json({"ucMetastoreId": conf.get(LEDGER_ID, owner)}),
            _COORDINATED_TABLE: _json({_TABLE_ID: owned[_TABLE_ID]}),
        }
    return with_properties(metadata, {**owned, _TIMESTAMPS: "true"})


def with_properties(metadata: Metadata, properties: Mapping[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, **properties})


def _json(conf: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(conf), order="sorted").decode()


def with_owner_of(metadata: Metadata, before: Metadata) -> Metadata:
    """`metadata` with the owner that the table has, whatever it says itself: a restore to a version before the
    take-over brings back columns and properties, not the old authority."""
    keys = (*OWNER_KEYS, _TIMESTAMPS)
    owned = {key: value for key in keys if (value := before.configuration.get(key)) is not None}
    rest = {key: value for key, value in metadata.configuration.items() if key not in OWNER_KEYS}
    return msgspec.structs.replace(metadata, configuration={**rest, **owned})


def released(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
    configuration = {key: value for key, value in metadata.configuration.items() if key not in OWNER_KEYS}
    for kind in Kind:
        protocol = disable(protocol, kind.feature)
    return protocol, msgspec.structs.replace(metadata, configuration=configuration)


def owner_name(metadata: Metadata) -> str | None:
    return TableProperties.of(metadata).owner_name


def batch_size(metadata: Metadata, default: int) -> int:
    """As the table's conf says; a conf that says nothing sensible leaves the default."""
    try:
        text = TableProperties.of(metadata).owner_conf.get(BATCH_SIZE, "")
    except InvalidMetadata:
        return default
    return int(text) if text.isascii() and text.isdecimal() and 0 < int(text) <= 1_000_000 else default


def ledger_id(metadata: Metadata) -> str | None:
    """The identity of the ledger that has the table; None for tables that were taken over before ledgers had one."""
    try:
        return TableProperties.of(metadata).owner_conf.get(LEDGER_ID)
    except InvalidMetadata:
        return None


def check(protocol: Protocol, metadata: Metadata, *, table: str | None = None, version: int | None = None) -> None:
    """Of a table that is managed, or that one half says is."""
    check_writable(protocol, metadata, table=table, version=version)
    if owner_name(metadata) is None:
        return
    missing = None
    if not supports(protocol, "inCommitTimestamp"):
        missing = "its protocol lacks inCommitTimestamp"
    elif not TableProperties.of(metadata).in_commit_timestamps:
        missing = f"its property {_TIMESTAMPS} is not true"
    if missing is not None:
        raise InvalidMetadata(
            f"The table's commits are managed but {missing}",
            hint="Managed commits need in-commit timestamps: restore the table to a version before this one",
            table=table,
            version=version,
        )


def is_managed(protocol: Protocol, metadata: Metadata) -> bool:
    """Both halves are there."""
    kind = kind_of(metadata)
    return kind is not None and supports(protocol, kind.feature)


def check_path_is_enough(snapshot: Snapshot) -> None:
    """`OwnedElsewhere` where a catalog decides what is part of the table, and it was not asked."""
    if not supports(snapshot.protocol, "catalogManaged"):
        return
    name, table_id = snapshot.properties.owner_name, snapshot.properties.catalog_table_id
    raise OwnedElsewhere(
        "What this table consists of, only its catalog knows"
        + (f", which calls it {table_id}" if table_id else "")
        + (f" and is the owner {name!r}" if name else ""),
        table=snapshot.table,
        version=snapshot.version,
        hint="Open the table with that owner: lakeseal.Table(uri, owner=…)"
        if name
        else "Open it by its name in that catalog: lakeseal.Catalog(url, kind='unity').table(name)",
    )


def _table_id(metadata: Metadata) -> str | None:
    return TableProperties.of(metadata).catalog_table_id


def check_commit(
    content: Content,
    *,
    owner: str,
    table: str,
    version: int,
    kind: Callable[[], Kind] = lambda: Kind.MANAGED,
    table_id: Callable[[], str | None] = lambda: None,
    ledger: Callable[[], str | None] = lambda: None,
) -> None:
    """A commit between take-over and release leaves the owner as it is. `ledger` tells the identity of the owner's
    ledger, and `table_id` what a catalog calls the table, where that is to be looked at."""
    wrong = None
    if content.metadata is not None and owner_name(content.metadata) != owner:
        wrong = f"its metadata names {owner_name(content.metadata) or 'no owner'!r} and the table's owner is {owner!r}"
    elif content.metadata is not None and ledger_id(content.metadata) not in (None, ledger()) and ledger() is not None:
        wrong = "its metadata names another ledger than the one that has the table"
    elif content.metadata is not None and not TableProperties.of(content.metadata).in_commit_timestamps:
        wrong = f"its metadata switches {_TIMESTAMPS} off, which managed commits need"
    elif content.metadata is not None and kind_of(content.metadata) is not kind():
        wrong = f"its metadata says that the table is {kind_of(content.metadata)}, and it is {kind()}"
    elif content.metadata is not None and (known := table_id()) not in (None, _table_id(content.metadata)):
        wrong = f"its metadata calls the table {_table_id(content.metadata)}, and the catalog calls it {known}"
    if wrong is None and content.protocol is not None:
        missing = [name for name in (kind().feature, *_PREPARED) if not supports(content.protocol, name)]
        wrong = f"its protocol drops {' and '.join(missing)}" if missing else None
        others = [one.feature for one in Kind if one is not kind() and supports(content.protocol, one.feature)]
        wrong = wrong or (f"its protocol has {' and '.join(others)}, and the table is {kind()}" if others else None)
    if wrong is not None:
        error = PolicyRefused(
            f"The commit would change who owns the table: {wrong}",
            table=table,
            version=version,
            hint="Use take_over and release to change a table's owner",
        )
        error.policy = OWNERSHIP_POLICY
        raise error
