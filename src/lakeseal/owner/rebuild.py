"""A ledger that was lost, or came back from an old backup: its tables' rows again, from their logs and `_commits`.

`examine` looks and changes nothing; `carry_out` does what it found. For each table that names this owner:

- The log tells how far the table is for certain. A ledger that knows less is brought there; one that knows more, of
  commits that are not in the log yet, keeps them.
- A file in `_commits` for the version that comes next was ratified, or its client lost the race or died before it was
  told. If there is one such file, it is taken as ratified: to bring back a commit that nobody was told of is allowed,
  to lose one that was acknowledged is not. If there are several, only a person can choose. (Small commits have no
  file: what was not published of them is lost with the ledger.)
- The table's epoch is a new one, so that whoever has the table open has to open it again.

What the files cannot tell is said (`Finding.unknown`). A ledger that has no tables yet takes the identity that the
tables name; otherwise a table of another ledger is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct

from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.ledger import Tx
from lakeseal.ledger.schema import IDENTITY, facts
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.ratified_commit import digest
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner import enablement, rows
from lakeseal.owner.backfill import look
from lakeseal.owner.content import Content
from lakeseal.owner.kinds import Kind, kind_of, staged_key, staged_name
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import CommitRequest
from lakeseal.owner.ownership import Ownership, State
from lakeseal.owner.rows import Mark, TableRow
from lakeseal.protocol.codec import decode
from lakeseal.protocol.paths import LogFileKind, parse
from lakeseal.storage.base import Store

ALWAYS_UNKNOWN = (
    "commits that were acknowledged and are neither in the log nor in _commits: small ones that were not published yet",
    "tokens, watermarks, sequences, leases, runs and branches: only a backup of the ledger brings them back",
)


class Finding(Struct, frozen=True, kw_only=True):
    """What is to be done about one table."""

    table: str
    does: str
    """`nothing`, `adds` (the ledger does not know the table), `catches up`, `releases`, or `refuses`."""
    reason: str = ""
    identity: str | None = None
    """Of the ledger that the table names."""
    in_ledger: int = -1
    in_log: int = -1
    latest: int = -1
    """As the ledger will have it."""
    staged: tuple[CommitRequest, ...] = ()
    """Taken from `_commits`."""
    unknown: tuple[str, ...] = ()
    row: TableRow | None = None
    """As it will be; None if it stays."""
    before: Ownership = Ownership()


def examine(owner: LedgerOwner, stores: Sequence[Store], *, chosen: Collection[str] = ()) -> list[Finding]:
    """`chosen` are names of files in `_commits` that a person says were ratified."""
    found = [_examined(owner, store, frozenset(chosen)) for store in stores]
    return _with_identity(owner, found)


def carry_out(owner: LedgerOwner, findings: Sequence[Finding], *, now: int) -> None:
    """All of it in one transaction. `InvalidArgument` if a table has changed since it was examined."""
    named = {one.identity for one in findings if one.row is not None and one.identity is not None}

    def do(tx: Tx) -> None:
        if named and not rows.table_names(tx):
            tx.put(facts, name=IDENTITY, value=named.copy().pop())
        for one in findings:
            if one.row is not None:
                _write(tx, one, one.row, now)

    owner.ledger.write(do)
    owner.forget_identity()


def _write(tx: Tx, one: Finding, row: TableRow, now: int) -> None:
    there = rows.read_table(tx, one.table)
    before = Ownership() if there is None else there.ownership
    if before != one.before:
        raise InvalidArgument("The table has changed since it was examined", table=one.table, hint="Examine it again")
    rows.write_table(tx, one.table, row, now=now)
    if before.backfilled < one.in_log:
        rows.mark(tx, [Mark(table=one.table, above=before.backfilled, up_to=one.in_log)], now=now)
    for request in one.staged:
        rows.insert_commit(tx, request, now=now)


def _with_identity(owner: LedgerOwner, found: list[Finding]) -> list[Finding]:
    """Tables of another ledger are refused, unless this one is empty and all of them name the same."""
    is_empty = not owner.ledger.read(rows.table_names)
    ours = None if is_empty else owner.identity()
    named = {one.identity for one in found if one.row is not None and one.identity is not None}
    if ours is None and len(named) <= 1:
        return found
    return [
        one
        if one.row is None or one.identity in (None, ours)
        else _refused(one.table, f"it names the ledger {one.identity}, which is another one than this, {ours}")
        for one in found
    ]


def _refused(table: str, reason: str) -> Finding:
    return Finding(table=table, does="refuses", reason=reason)


def _examined(owner: LedgerOwner, store: Store, chosen: frozenset[str]) -> Finding:
    table = owner.attach(store)
    try:
        snapshot = DeltaLog(store).update()
        if snapshot is None:
            return _refused(table, "there is no table here")
        return _compared(owner, store, snapshot, owner.book.row(table), chosen)
    except LakesealError as error:
        return _refused(table, error.message)


def _compared(
    owner: LedgerOwner, store: Store, snapshot: Snapshot, before: Ownership, chosen: frozenset[str]
) -> Finding:
    metadata, table, logged = snapshot.metadata, snapshot.table, snapshot.version
    base = Finding(
        table=table,
        does="nothing",
        identity=enablement.ledger_id(metadata),
        in_ledger=before.latest,
        in_log=logged,
        latest=before.latest,
        before=before,
    )
    name = enablement.owner_name(metadata)
    if name is None:
        if not before.is_owned or before.latest > logged:
            return msgspec.structs.replace(base, does="refuses", reason="the table has no owner")
        released = Ownership(epoch=before.epoch + 1, latest=logged, backfilled=logged)
        return msgspec.structs.replace(base, does="releases", row=TableRow(ownership=released, batch_size=1))
    if name != owner.name:
        return msgspec.structs.replace(base, does="refuses", reason=f"its owner is {name!r}, not {owner.name!r}")
    different = _differs(owner, store, before, logged)
    if different is not None:
        return msgspec.structs.replace(base, does="refuses", reason=different)
    start, timestamp = logged, snapshot.in_commit_timestamp
    if before.is_owned and before.latest >= logged:
        start, timestamp = before.latest, before.latest_timestamp
    kind = kind_of(metadata) or Kind.MANAGED
    staged, unknown = _staged(store, table, start, timestamp, chosen, kind)
    if before.is_owned and before.latest >= logged and not staged:
        return msgspec.structs.replace(base, unknown=unknown)
    after = Ownership(
        state=State.ACTIVE,
        epoch=before.epoch + 1 if before.epoch or before.is_owned else _EPOCH,
        latest=staged[-1].version if staged else start,
        latest_timestamp=staged[-1].in_commit_timestamp if staged else timestamp,
        backfilled=max(logged, before.backfilled),
    )
    return msgspec.structs.replace(
        base,
        does="catches up" if before.is_owned else "adds",
        latest=after.latest,
        staged=tuple(msgspec.structs.replace(one, epoch=after.epoch) for one in staged),
        unknown=(*unknown, *ALWAYS_UNKNOWN),
        row=TableRow(
            ownership=after,
            batch_size=enablement.batch_size(metadata, owner.batch_size),
            kind=kind,
            metadata_version=after.latest,
        ),
    )


_EPOCH = 1_000_000
"""Of a table whose epochs nobody remembers: above any that it can have had."""


def _differs(owner: LedgerOwner, store: Store, before: Ownership, logged: int) -> str | None:
    """Where the ledger's commits and the log part: then nobody but a person can say which is right."""
    for one in owner.book.stored(store.uri, before.backfilled + 1, limit=10_000):
        commit = one.commit
        there = look(store, commit.version) if commit.version <= logged else None
        if there is not None and there.found.txn_id not in (None, commit.txn_id):
            return f"version {commit.version} is another commit in the log than in the ledger"
    return None


def _staged(
    store: Store, table: str, start: int, timestamp: int | None, chosen: frozenset[str], kind: Kind
) -> tuple[list[CommitRequest], tuple[str, ...]]:
    """The commits that follow, as far as staged files tell; and what they do not tell."""
    by_version: dict[int, list[str]] = {}
    for key in store.list_keys(kind.staging):
        file = parse(key)
        if file is not None and file.kind is LogFileKind.STAGED_COMMIT and file.version > start:
            by_version.setdefault(file.version, []).append(staged_name(key))
    taken: list[CommitRequest] = []
    unknown: list[str] = []
    version = start + 1
    while version in by_version:
        files = [one for one in by_version[version] if one in chosen] or by_version[version]
        read = [_read(store, table, version, file, timestamp) for file in sorted(files)]
        candidates = [one for one in read if one is not None]
        if len(candidates) != 1:
            names = ", ".join(sorted(files))
            unknown.append(
                f"which of the files for version {version} was ratified, if any was: {names}"
                if candidates
                else f"what version {version} was: {names} cannot be one"
            )
            break
        (one,) = candidates
        if one.file not in chosen:
            unknown.append(f"whether {one.file} was ratified as version {version}: it is taken as if it was")
        taken.append(one)
        timestamp = one.in_commit_timestamp
        version += 1
    beyond = sorted(later for later in by_version if later > version)
    if beyond:
        unknown.append(f"what became of the files for versions {', '.join(map(str, beyond))}: they follow from nothing")
    return taken, tuple(unknown)


def _read(store: Store, table: str, version: int, file: str, after: int | None) -> CommitRequest | None:
    """None if the file cannot have been ratified."""
    data = store.get(staged_key(file))
    try:
        info = Content.of_actions(decode(data)).info
    except LakesealError:
        return None
    if info is None or info.txn_id is None or info.in_commit_timestamp is None:
        return None
    if after is not None and info.in_commit_timestamp <= after:
        return None
    return CommitRequest(
        table=table,
        version=version,
        txn_id=info.txn_id,
        file=file,
        size=len(data),
        in_commit_timestamp=info.in_commit_timestamp,
        epoch=0,
        sha256=digest(data),
    )
