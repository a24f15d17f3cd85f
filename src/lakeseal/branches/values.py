"""What branch stores speak of: entries, changes, commits, refs, conflicts, jobs. Values only, no I/O.

- A *path* is a file's name on a branch: `/`-separated, any Unicode, without empty, `.` or `..` segments and without
  control characters. Paths sort by their UTF-8 bytes.
- A *directory* is "" (everything) or a path; `out` and `out/` both mean what is below `out/`, never `out2/…`.
- The *identity* of an entry is (size, checksum). Two entries with one identity have the same content, wherever it is
  stored. Diffs and merges compare (path, identity), never the identity alone, and never addresses.
- Tables of entries have the schema `ENTRIES`, tables of changes `CHANGES`; both are sorted by path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec import Struct

ENTRIES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("checksum", pa.string(), nullable=False),
        pa.field("metadata", pa.string()),
    ]
)
"""`metadata` is JSON text of an object with sorted keys, or null where there is none."""

CHANGES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        *(
            pa.field(f"{side}_{name}", ENTRIES.field(name).type)
            for side in ("before", "after")
            for name in ENTRIES.names[1:]
        ),
    ]
)
"""`kind` is added, changed or removed; the columns of the side where there is no entry are null."""

Strategy = Literal["source-wins", "dest-wins"]


class ChangeKind(Enum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class Entry(Struct, frozen=True, kw_only=True):
    """A file on a branch."""

    path: str
    address: str
    """Where the immutable object is: a key in the repository's own store, or the absolute URI of an object elsewhere,
    which is never deleted by the repository."""
    size: int
    checksum: str
    """Any text that differs when the content differs, such as `sha256:…`; never empty. Entries of one repository should
    use one kind of checksum: others never compare equal."""
    metadata: dict[str, str] = {}

    @property
    def identity(self) -> tuple[int, str]:
        return self.size, self.checksum


class Changes(Struct, frozen=True, kw_only=True):
    """What one commit does to a branch: first `directories` are emptied, then `deletes` go, then `puts` come.

    `directories` are first-class (tombstones of prefixes): where the commit is a job's, they also remove at the merge
    what other jobs have put there meanwhile (see `BranchStore.merge`). A path may be put once; a path that is deleted
    and not there is fine."""

    puts: tuple[Entry, ...] | pa.Table = ()
    """Entries in any order, or a table with the schema `ENTRIES` where there are many."""
    deletes: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """One path that differs between two trees."""

    path: str
    kind: ChangeKind
    before: Entry | None = None
    after: Entry | None = None


Counts = tuple[int, int, int]


class Commit(Struct, frozen=True, kw_only=True):
    """An immutable node of history."""

    id: str
    parents: tuple[str, ...]
    """The first is what the branch pointed to; a merge's second is the source's head."""
    tree: str
    message: str
    metadata: dict[str, str] = {}
    time_ms: int
    """Never less than the parents'."""
    generation: int
    """1 without parents, else one more than the largest of the parents'."""
    job: str = ""
    """The id of the job that this is the work of: its commit on the job branch, and the merge of that."""
    directories: tuple[str, ...] = ()
    """Directories that this commit emptied before it put its entries."""
    entries: int | None = None
    """How many files the tree holds; None where the store does not count them."""
    counts: Counts | None = None
    """Files added, changed and removed since the first parent; None where the store does not count them."""


RefKind = Literal["branch", "job", "tag", "commit"]


class Protection(Struct, frozen=True, kw_only=True):
    """A protected branch changes by merges only: it is not committed to, reset or deleted."""

    protected: bool = False
    rules: tuple[dict[str, Any], ...] = ()
    """Rules that every merge into the branch must pass, as `checks.rule_to_json` writes them."""


class Ref(Struct, frozen=True, kw_only=True):
    """A name and the commit that it stood for when it was looked up."""

    name: str
    kind: RefKind
    commit: str
    protection: Protection = Protection()
    created_ms: int = 0
    updated_ms: int = 0


class Job(Struct, frozen=True, kw_only=True):
    """A job in flight: its branch and, as hints for people, who writes where since when. As long as it is there, no
    object below `data_prefix` is collected."""

    id: str
    branch: str
    """Predictable: `job_branch(path, id)`."""
    dest: str
    path: str
    """The output directory."""
    base: str
    """The destination's head when the job began."""
    data_prefix: str
    """Where the job's tasks put objects: their addresses are `data_prefix` + "/" + a name that no attempt has twice."""
    who: str = ""
    since_ms: int = 0
    head: str = ""
    """Where the job branch stands; equal to `base` until the job commits."""


ConflictKind = Literal["both-changed", "changed-and-removed", "removed-and-changed", "foreign-write"]


class PathConflict(Struct, frozen=True, kw_only=True):
    """A path that a merge can't decide. `foreign-write`: in a directory that the source emptied, changed on the
    destination by what a job may not replace. Of `base`, in other conflicts, only the identity is known."""

    path: str
    kind: ConflictKind
    base: Entry | None = None
    source: Entry | None = None
    dest: Entry | None = None


class MergeResult(Struct, frozen=True, kw_only=True):
    """A merge that happened."""

    commit: str
    """The destination's head after it. Where the destination had everything already, its head before."""
    base: str
    """The common ancestor, "" if there is none."""
    added: int = 0
    changed: int = 0
    removed: int = 0
    """What the merge did to the destination, `replaced` included."""
    replaced: int = 0
    """Files that others had put or changed meanwhile in directories that the source overwrites, and that went."""
    conflicts_decided: int = 0
    """Conflicts that the strategy decided."""
    nothing_to_do: bool = False


class HeadMoved(Struct, frozen=True, kw_only=True):
    """The outcome of a conditional move that did not happen: the branch is elsewhere. Nothing changed."""

    branch: str
    expected: str
    actual: str


class GcReport(Struct, frozen=True, kw_only=True):
    """What was, or with `dry_run` would be, removed."""

    dry_run: bool
    objects: int = 0
    object_bytes: int = 0
    commits: int = 0
    trees: int = 0
    """Of commits that stay in the log."""
    packs: int = 0
    """Further files of large commits."""
    job_branches: tuple[str, ...] = ()
    kept_objects: int = 0
    kept_for_jobs: int = 0
    """Objects that no commit refers to, kept because their job is in flight."""
    sample: tuple[str, ...] = ()
    """Some of the keys, for people."""


def job_branch(path: str, job_id: str) -> str:
    """The name of a job's branch, which retried and differently numbered tasks can work out by themselves."""
    return f"_jobs/{path.strip('/') or '.'}/{job_id}"


def entries_of(table: pa.Table) -> Iterator[Entry]:
    """Python values for the rows of a table with the schema `ENTRIES`: for small results."""
    for batch in table.to_batches():
        for row in batch.to_pylist():
            yield _entry(row["path"], row["address"], row["size"], row["checksum"], row["metadata"])


def changes_of(table: pa.Table) -> Iterator[Change]:
    """Python values for the rows of a table with the schema `CHANGES`."""
    for batch in table.to_batches():
        for row in batch.to_pylist():
            path = row["path"]
            sides = [
                _entry(path, *(row[f"{side}_{name}"] for name in ENTRIES.names[1:])) if row[f"{side}_address"] else None
                for side in ("before", "after")
            ]
            yield Change(path=path, kind=ChangeKind(row["kind"]), before=sides[0], after=sides[1])


def entry_table(entries: Iterable[Entry]) -> pa.Table:
    """A table with the schema `ENTRIES`, in the order given."""
    rows = list(entries)
    columns: list[list[Any]] = [
        [entry.path for entry in rows],
        [entry.address for entry in rows],
        [entry.size for entry in rows],
        [entry.checksum for entry in rows],
        [_json.encode(entry.metadata).decode() if entry.metadata else None for entry in rows],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ENTRIES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ENTRIES)


_json = msgspec.json.Encoder(order="deterministic")
_metadata = msgspec.json.Decoder(dict[str, str])


def _entry(path: str, address: str, size: int, checksum: str, metadata: str | None) -> Entry:
    return Entry(
        path=path,
        address=address,
        size=size,
        checksum=checksum,
        metadata=_metadata.decode(metadata) if metadata else {},
    )
