"""What is said to a commit owner and what it answers: frozen values that travel as JSON.

`from_json` reads every type here; bytes travel as base64. Errors are not part of the
answers: an owner raises them, and `LakesealError.to_json` and `error_from_json` carry them over a wire.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from lakeseal import errors, typed_json
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.log.ratified_commit import RatifiedCommit, Told
from lakeseal.owner.kinds import Kind, staged_key, staged_name
from lakeseal.owner.ownership import State
from lakeseal.protocol.paths import LogFileKind, commit_path, parse, staged_commit_path

T = TypeVar("T")

MAX_INT = 2**63 - 1
NO_COMMITS = 2**62
"""A version from which there are none, for those who ask for the state of a table alone."""
MOST_NAME_BYTES = 4096
"""Of a table's name."""

# Every text that somebody sends has a bound, which is looked at when it is decoded.
TableName = Annotated[
    str, Meta(min_length=1, max_length=MOST_NAME_BYTES, description="The URI of the table, in its normal form")
]
TxnId = Annotated[str, Meta(max_length=255)]
FileName = Annotated[str, Meta(max_length=255)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Column = Annotated[str, Meta(max_length=255)]
Columns = Annotated[dict[Column, Any], Meta(max_length=255)]
Number = Annotated[int, Meta(ge=-MAX_INT - 1, le=MAX_INT)]


class TrackedCommit(Struct, frozen=True, kw_only=True):
    """A ratified commit that is not backfilled yet: its bytes, or the name of the file that holds them."""

    version: int
    txn_id: str
    size: int
    in_commit_timestamp: int
    data: bytes | None = None
    """Of a small commit, as the ledger has it."""
    file: str | None = None
    """Its name, where the bytes are not told; see `CommitRequest.file`."""
    sha256: str | None = None
    """Of its bytes, in hexadecimal; None where it was ratified before ledgers kept it."""

    @property
    def key(self) -> str:
        """As `CommitRequest.key`."""
        return _key(self.version, self.file)

    def ratified(self) -> RatifiedCommit:
        return RatifiedCommit(
            version=self.version,
            key=self.key,
            txn_id=self.txn_id,
            in_commit_timestamp=self.in_commit_timestamp,
            sha256=self.sha256,
            data=self.data,
        )


class TableCommits(Struct, frozen=True, kw_only=True):
    """What an owner knows of a table at one moment."""

    table: str
    state: State = State.NONE
    epoch: int = 0
    latest: int = -1
    backfilled: int = -1
    commits: tuple[TrackedCommit, ...] = ()
    """Contiguous, ascending, from the version asked for or the first that is not backfilled."""
    change_id: str | None = None
    """Of the release, while there is one."""
    change_version: int | None = None
    """The version that it, or a pending take-over, is to be."""
    batch_size: int = 1
    kind: Kind = Kind.MANAGED
    metadata_version: int = -1
    """The latest that changed the table's metadata or protocol, since it has this owner; -1 where that is not known."""

    latest_timestamp: int | None = None

    @property
    def is_owned(self) -> bool:
        """Whether the owner decides on the table now."""
        return self.state in (State.ACTIVE, State.RELEASING)

    @property
    def up_to(self) -> int | None:
        """Above this version nothing is part of the table, whatever is in its log; None where the log has a say. While
        a catalog releases a table, the release that is in the log may have been followed by others already."""
        return self.latest if self.kind is Kind.CATALOG and self.state is State.ACTIVE else None

    def told(self) -> Told:
        return Told(commits={one.version: one.ratified() for one in self.commits}, up_to=self.up_to)

    @property
    def first_with_data(self) -> int | None:
        """The first version that is told by its bytes and not by a file."""
        return next((commit.version for commit in self.commits if commit.data is not None), None)

    def up_to_data(self) -> TableCommits:
        """As it was right before that version."""
        first = self.first_with_data
        if first is None:
            return self
        return replace(self, latest=first - 1, commits=tuple(one for one in self.commits if one.version < first))


class CommitRequest(Struct, frozen=True, kw_only=True):
    """Ratify this as `version` of the table. A small commit comes with its bytes; a large one is in a file, durable,
    before it is asked for."""

    table: TableName
    version: Number
    txn_id: TxnId
    size: Number
    in_commit_timestamp: Number
    epoch: Number
    data: Annotated[bytes, Meta(max_length=2**24)] | None = None
    file: FileName | None = None
    """A large commit's name in `_commits`: `<version>.<uuid>.json`; in a table that is a catalog's, with the directory
    before it: `_staged_commits/<version>.<uuid>.json`."""
    sha256: Sha256 | None = None
    """Of the commit's bytes, as its client says. An owner that sees the bytes does not ask."""
    changes_metadata: bool = False
    """Whether it holds metadata or a protocol, as its client says; likewise."""

    def __post_init__(self) -> None:
        if (self.data is None) == (self.file is None):
            raise InvalidArgument(
                "A commit has either its bytes with it or a file that holds them",
                table=self.table,
                version=self.version,
            )
        if self.file is not None:
            found = parse(staged_key(self.file))
            if found is None or found.kind is not LogFileKind.STAGED_COMMIT or found.version != self.version:
                raise InvalidArgument(
                    f"{self.file!r} does not name a commit file of version {self.version}",
                    hint="The name is <version, 20 digits>.<uuid>.json",
                    table=self.table,
                )
        if self.data is not None and len(self.data) != self.size:
            raise InvalidArgument("A commit's size is not that of its data", table=self.table, version=self.version)
        if not self.txn_id:
            raise InvalidArgument("A commit needs a txnId", table=self.table, version=self.version)

    @property
    def key(self) -> str:
        """Of the file that holds it: that of a small one is the one in the log, once it is published."""
        return _key(self.version, self.file)


def _key(version: int, file: str | None) -> str:
    return commit_path(version) if file is None else staged_key(file)


def file_name(version: int, uuid: str, kind: Kind = Kind.MANAGED) -> str:
    return staged_name(staged_commit_path(version, uuid, kind.staging))


class Guard(Struct, frozen=True, kw_only=True):
    """A table that was read and is not written: it must still be at this version when the others are ratified."""

    table: TableName
    version: Number
    epoch: Number


class LedgerRecord(Struct, frozen=True, kw_only=True):
    """A row that joins the same ledger transaction, such as a watermark.

    With `expected` it is set only if the row is there and has these values, with `insert` only if there is none, with
    `delete` it is deleted, if it is there with what is expected; otherwise nothing at all is ratified."""

    table: Column
    key: Columns
    values: Columns
    expected: Columns | None = None
    insert: bool = False
    delete: bool = False


class Batch(Struct, frozen=True, kw_only=True):
    """All of it is ratified, or nothing is."""

    commits: Annotated[tuple[CommitRequest, ...], Meta(max_length=1000)]
    guards: Annotated[tuple[Guard, ...], Meta(max_length=1000)] = ()
    records: Annotated[tuple[LedgerRecord, ...], Meta(max_length=10_000)] = ()


class Ratified(Struct, frozen=True, kw_only=True, tag="ratified"):
    table: str
    version: int
    key: str
    """Of the file that holds the commit, from the table's root."""
    in_commit_timestamp: int | None = None


class Taken(Struct, frozen=True, kw_only=True, tag="taken"):
    """Another transaction has this version, or the table that was to be guarded has gone on to it."""

    table: str
    version: int
    is_next: bool = False
    """The next version is kept for whoever asked, for a moment: it had better ask for that at once."""


class Undecided(Struct, frozen=True, kw_only=True, tag="undecided"):
    """It could have been ratified, and was not because another of its batch could not."""

    table: str
    version: int


Answer = Ratified | Taken | Undecided


class BatchAnswer(Struct, frozen=True, kw_only=True):
    commits: tuple[Answer, ...]
    """In the order of the requests."""
    guards: tuple[Taken, ...] = ()
    """Those that did not hold."""


def from_json(data: bytes, cls: type[T]) -> T:
    try:
        return typed_json.decode(data, cls)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"This is no {cls.__name__}: {error}") from None


_BY_KIND: dict[str, type[LakesealError]] = {
    cls.kind: cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, LakesealError)
}


def error_from_json(value: dict[str, Any]) -> LakesealError:
    """The error that `LakesealError.to_json` told of; an unknown kind becomes the root of the tree."""
    known = {name: value[name] for name in ("hint", "table", "version", "file", "column") if name in value}
    error = _BY_KIND.get(str(value.get("kind")), LakesealError)(str(value.get("message", "")), **known)
    if isinstance(error, errors.PolicyRefused):
        error.policy = str(value.get("policy", ""))
    if isinstance(error, errors.InvalidCommit) and isinstance(value.get("line"), int):
        error.line = value["line"]
    if isinstance(error, errors.CommitOutcomeUnknown) and "txnId" in value:
        error.txn_id = str(value["txnId"])
    return error
