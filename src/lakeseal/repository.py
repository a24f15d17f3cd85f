"""`Repository`: versioned trees of files by their URI. The face that users see; the work is done in the rooms below.

A write is one job: its files are on the branch all at once, in one merge, or not at all. Refs (branches, tags, commits)
are looked up once per call, so what a call reads is one commit.

    repo = lakeseal.Repository.create("s3://bucket/repo", ledger="postgresql://…")
    repo.write(df, "main", "out/orders", mode="overwrite", partition_by=["day"])
    repo.to_spark(spark, "main", "out/orders")
"""

from __future__ import annotations

import builtins
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakeseal.branches import checks as rules
from lakeseal.branches import embedded
from lakeseal.branches.store import (
    DAY_MS,
    DEFAULT_BRANCH,
    BranchStore,
    Change,
    Check,
    Commit,
    Entry,
    GcReport,
    Job,
    MergeResult,
    Protection,
    Ref,
    Strategy,
)
from lakeseal.commands import branch_write
from lakeseal.commands.branch_job import Mode
from lakeseal.commands.branch_write import BranchWriteCommand, metadata_of
from lakeseal.display import Bar, Card, Grid, card, clean
from lakeseal.engines import engine_for, is_spark, overwrites_dynamically
from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.files.file_format import FileFormat
from lakeseal.files.tree_reader import TreeReader
from lakeseal.files.tree_scan import TreeScan, scan
from lakeseal.jobs.branch_commit_protocol import BranchWrite
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.repository_export import ExportReport, export
from lakeseal.storage import StoreSpec
from lakeseal.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_LAKEFS = "lakefs://"
_HOUR_MS = 60 * 60 * 1000
_COMMITS_SHOWN = 20
_STRATEGIES = ("source-wins", "dest-wins")


class Repository:
    def __init__(self, store: BranchStore) -> None:
        """Use `create` or `open`, or bring a branch store of your own."""
        self.store = store

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        ledger: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        trust: Trust | None = None,
    ) -> Repository:
        """A new repository with an empty branch `main`. On local disk the ledger may be left out: it is then a file in
        the repository. `trust` says which places beyond it may be read where entries name them.

        >>> lakeseal.Repository.create("another").branches()[0].name
        'main'
        """
        where = os.fspath(uri)
        if where.startswith(_LAKEFS):
            made = cls(_lakefs().create(where, storage_options=storage_options, trust=trust))
        else:
            made = cls(embedded.create(where, ledger=ledger, storage_options=storage_options, trust=trust))
        _log.info("%s is a new repository", made.uri)
        return made

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        ledger: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        trust: Trust | None = None,
    ) -> Repository:
        """One that is there; arguments as of `create`.

        >>> lakeseal.Repository.open("repo").uri == repo.uri
        True
        """
        where = os.fspath(uri)
        if where.startswith(_LAKEFS):
            return cls(_lakefs().open(where, storage_options=storage_options, trust=trust))
        return cls(embedded.open(where, ledger=ledger, storage_options=storage_options, trust=trust))

    @property
    def uri(self) -> str:
        """Where it is.

        >>> repo.uri.endswith("/repo")
        True
        """
        return self.store.uri

    def __repr__(self) -> str:
        return f"Repository({self.uri!r})"

    def _repr_html_(self) -> str:
        """For notebooks: branches, and the last commits of `main`."""
        return card("Repository", self.uri, self._card)

    def _card(self) -> Card:
        branches, tags = self.branches(), self.tags()
        commits = self.log(DEFAULT_BRANCH, _COMMITS_SHOWN) if any(b.name == DEFAULT_BRANCH for b in branches) else []
        refs = [
            (ref.name, ref.kind, ref.commit[:12], "protected" if ref.protection.protected else "")
            for ref in (*branches, *tags)
        ]
        rows = [
            (
                c.id[:12],
                _moment(c.time_ms),
                c.message,
                _counted(c),
            )
            for c in commits
        ]
        return Card(
            kind="Repository",
            title=self.uri,
            facts=[("branches", len(branches)), ("tags", len(tags))],
            grids=[
                Grid(headings=("name", "kind", "commit", ""), rows=refs),
                Grid(headings=("commit", "when", "message", "files"), rows=rows),
            ],
            bars=[
                Bar(amount=sum(c.counts or ()), told=f"{c.id[:12]}, {_moment(c.time_ms)}: {c.message}")
                for c in reversed(commits)
            ],
            bars_told="Files that each of the last commits of main changed",
        )

    # Rows

    def write(
        self,
        data: Any,
        branch: str,
        path: str,
        format: str = "parquet",
        mode: Mode = "append",
        partition_by: Sequence[str] | str = (),
        *,
        partition_overwrite: Literal["static", "dynamic"] | None = None,
        compression: str | None = None,
        header: bool = False,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        inputs: Iterable[str | tuple[str, str]] = (),
        checks: Sequence[Check] = (),
        job_id: str | None = None,
        max_records_per_file: int | None = None,
        target_file_size: int | None = None,
        mixed_types: bool = False,
    ) -> BranchWrite:
        """Writes a Spark DataFrame, or anything that Arrow can read, as files below `path`.

        `inputs` are refs that the data was made of, or (ref, path), which the commit's lineage keeps as commits.
        `checks` see the merge before it counts. With a `job_id` of your own, a write that is tried again happens once.
        An append whose columns have other types than the files that are there is refused, unless `mixed_types`.

        >>> done = repo.write(pa.table({"id": [1, 2]}), "main", "out/more", mode="overwrite")
        >>> done.files, done.rows
        (1, 2)
        """
        partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if mode == "overwrite" and partitions and partition_overwrite is None and overwrites_dynamically(data):
            partition_overwrite = "dynamic"
        command = BranchWriteCommand(
            branch=branch,
            path=path,
            mode=mode,
            format=FileFormat(name=format, compression=compression, header=header),
            partition_by=partitions,
            partition_overwrite=partition_overwrite,
            message=message,
            metadata=metadata_of(metadata),
            inputs=tuple(self._input(one) for one in inputs),
            application=_application(data),
            job_id=job_id,
            max_records_per_file=max_records_per_file,
            target_file_size=target_file_size,
            mixed_types=mixed_types,
        )
        done = branch_write.run(self.store, command, data, engine=engine_for(data), checks=checks)
        if done.skipped:
            self._tell("a write to %s changed nothing of %s: %s", path, branch, done.skipped)
        else:
            counted = f"{done.files} files, {done.rows} rows, {done.removed} files removed"
            self._tell("a write to %s is commit %s of %s: %s", path, done.commit[:12], branch, counted)
        return done

    def to_arrow(
        self,
        ref: str,
        path: str,
        columns: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
        format: str | None = None,
        header: bool = False,
    ) -> pa.Table:
        """The rows of the files below a path, all in memory. `schema`, `format` and `header` are for files that were
        not written by a job and do not say by themselves what they hold.

        >>> repo.to_arrow("main", "out/orders", columns=["id"]).num_rows
        3
        """
        return self.to_batches(ref, path, columns, schema=schema, format=format, header=header).read_all()

    def to_batches(
        self,
        ref: str,
        path: str,
        columns: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
        format: str | None = None,
        header: bool = False,
    ) -> pa.RecordBatchReader:
        """The same as a stream that needs memory for a few batches only.

        >>> sum(batch.num_rows for batch in repo.to_batches("main", "out/orders"))
        3
        """
        found = self._scan(ref, path, schema, format, header).select(columns)
        reader = TreeReader(found.store, found.spec)
        return pa.RecordBatchReader.from_batches(reader.schema, reader.read(found.files))

    def to_spark(
        self,
        spark: SparkSession,
        ref: str,
        path: str,
        columns: Sequence[str] | None = None,
        *,
        schema: Any = None,
        format: str | None = None,
        header: bool = False,
    ) -> DataFrame:
        """The same as a DataFrame of the commit that the ref stands for now.

        >>> repo.to_spark(spark, "main", "out/orders").count()
        3
        """
        from lakeseal.spark import tree_scan  # pyspark is an extra

        found = self._scan(ref, path, schema, format, header).select(columns)
        return tree_scan.to_spark(spark, found)

    # Files

    def list(self, ref: str, path: str = "") -> builtins.list[Entry]:
        """The files below a path, in the order of their paths.

        >>> [one.path for one in repo.list("main", "notes")]
        ['notes/a.txt']
        """
        return [*self.store.list(ref, path)]

    def stat(self, ref: str, path: str) -> Entry:
        """One file: its size, identity and place.

        >>> repo.stat("main", "notes/a.txt").size
        2
        """
        return self.store.stat(ref, path)

    def read(self, ref: str, path: str) -> bytes:
        """The bytes of one file.

        >>> repo.read("main", "notes/a.txt")
        b'hi'
        """
        return self.store.read(ref, path)

    def put(self, branch: str, path: str, data: bytes, message: str = "") -> Commit:
        """One file in one commit; for rows there is `write`.

        >>> repo.put("main", "notes/b.txt", b"hello", "a note").message
        'a note'
        """
        return self._committed(branch, f"{path} put there", self.store.put(branch, path, data, message=message))

    def export(
        self, ref: str, path: str, directory: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> ExportReport:
        """Lays the files below a path out in a directory or bucket, with a manifest that is written last. Run again, it
        copies what is new and removes what is gone.

        >>> repo.export("main", "out/orders", "plain").copied
        1
        """
        target = StoreSpec(uri=os.fspath(directory), storage_options=storage_options or {})
        report = export(self.store, ref, path, target.open())
        counted = f"{report.copied} files copied, {report.kept} kept, {report.deleted} deleted"
        self._tell("%s of %s was exported to %s: %s", path or "all", ref, target.uri, counted)
        return report

    # Refs

    def branches(self) -> builtins.list[Ref]:
        """All branches, with the commit that each stands at.

        >>> [one.name for one in repo.branches()]
        ['main', 'try']
        """
        return self.store.branches()

    def create_branch(self, name: str, source: str = DEFAULT_BRANCH) -> Ref:
        """A new branch at a ref; nothing is copied.

        >>> repo.create_branch("audit", "main").name
        'audit'
        """
        made = self.store.create_branch(name, source)
        self._tell("%s is a new branch at commit %s", name, made.commit[:12])
        return made

    def delete_branch(self, name: str) -> None:
        """Its commits stay as long as `gc` keeps them.

        >>> repo.delete_branch("try")
        """
        self.store.delete_branch(name)
        self._tell("the branch %s was deleted", name)

    def protect(self, branch: str, protected: bool = True, rules: Sequence[Any] = ()) -> Ref:
        """A protected branch changes by merges only, and every merge must pass its rules (`lakeseal.branches.checks`).
        Replaces what was set before.

        >>> repo.protect("main").protection.protected
        True
        """
        changed = self.store.protect(branch, Protection(protected=protected, rules=_stored(rules)))
        self._tell("%s is %s, with %s rules", branch, "protected" if protected else "not protected", len(rules))
        return changed

    def tags(self) -> builtins.list[Ref]:
        """All tags, with their commits.

        >>> [one.name for one in repo.tags()]
        ['v1']
        """
        return self.store.tags()

    def tag(self, name: str, ref: str) -> Ref:
        """A name for a commit, which stays.

        >>> repo.tag("march", "main").kind
        'tag'
        """
        made = self.store.create_tag(name, ref)
        self._tell("%s is a new tag of commit %s", name, made.commit[:12])
        return made

    def delete_tag(self, name: str) -> None:
        """The commit stays as long as `gc` keeps it.

        >>> repo.delete_tag("v1")
        """
        self.store.delete_tag(name)
        self._tell("the tag %s was deleted", name)

    # History

    def log(self, ref: str = DEFAULT_BRANCH, limit: int | None = None) -> builtins.list[Commit]:
        """Newest first.

        >>> repo.log("main", 1)[0].message
        'a first note'
        """
        return [*self.store.log(ref, limit=limit)]

    def diff(self, a: str, b: str, path: str = "") -> builtins.list[Change]:
        """What has to change in `a` to make it `b`.

        >>> [one.path for one in repo.diff("main", "try")]
        ['notes/c.txt']
        """
        return [*self.store.diff(a, b, path)]

    def merge(
        self,
        source: str,
        dest: str,
        strategy: Strategy | None = None,
        if_head: str | None = None,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        checks: Sequence[Check] = (),
    ) -> MergeResult:
        """Brings what `source` has to the branch `dest`, all of it at once. `if_head`: only if the branch is still
        there. A check gets the merge as it would be, and refuses it by giving a reason.

        >>> done = repo.merge("try", "main", message="looked at")
        >>> repo.read("main", "notes/c.txt")
        b'new'
        """
        if strategy is not None and strategy not in _STRATEGIES:
            raise InvalidArgument(
                f"There is no merge strategy {strategy!r}", hint=f"Choose {' or '.join(_STRATEGIES)}, or none"
            )
        done = self.store.merge(
            source,
            dest,
            strategy=strategy,
            if_head=if_head,
            message=message,
            metadata=metadata_of(metadata),
            checks=checks,
        )
        if done.nothing_to_do:
            self._tell("%s has nothing that %s has not", source, dest)
        else:
            counted = f"{done.added} files added, {done.changed} changed, {done.removed} removed"
            self._tell("%s was merged as commit %s of %s: %s", source, done.commit[:12], dest, counted)
        return done

    def revert(self, branch: str, commit: str, parent: int = 1) -> Commit:
        """Undoes one commit of the branch, by a new commit; `parent` says against which of a merge.

        >>> done = repo.revert("main", "main")
        >>> repo.list("main", "notes")
        []
        """
        return self._committed(branch, f"{commit} undone", self.store.revert(branch, commit, parent=parent))

    def cherry_pick(self, branch: str, commit: str, parent: int = 1) -> Commit:
        """Does one commit again on the branch, as a new commit.

        >>> done = repo.cherry_pick("main", "try")
        >>> repo.read("main", "notes/c.txt")
        b'new'
        """
        return self._committed(branch, f"{commit} done again", self.store.cherry_pick(branch, commit, parent=parent))

    def reset(self, branch: str, ref: str, if_head: str | None = None) -> Ref:
        """Points a branch elsewhere; `if_head`: only if it is still there.

        >>> repo.reset("try", "main").commit == repo.log("main", 1)[0].id
        True
        """
        moved = self.store.reset(branch, ref, if_head=if_head)
        self._tell("%s was set to commit %s", branch, moved.commit[:12])
        return moved

    # Jobs and upkeep

    def jobs(self, branch: str | None = None, path: str | None = None) -> builtins.list[Job]:
        """Who is writing where, since when.

        >>> repo.jobs("main")
        []
        """
        return self.store.jobs(dest=branch, path=path)

    def gc(self, job_grace_hours: float = 168, history_days: float | None = None, dry_run: bool = False) -> GcReport:
        """Removes what no branch, tag or job in flight needs.

        >>> done = repo.gc(dry_run=True)
        """
        if job_grace_hours < 0 or (history_days is not None and history_days < 0):
            raise InvalidArgument("A time to keep things for cannot be negative")
        report = self.store.gc(
            job_grace_ms=int(job_grace_hours * _HOUR_MS),
            history_ms=None if history_days is None else int(history_days * DAY_MS),
            dry_run=dry_run,
        )
        did = "would remove" if dry_run else "removed"
        self._tell("gc %s %s objects, %s bytes, %s commits", did, report.objects, report.object_bytes, report.commits)
        return report

    def _committed(self, branch: str, what: str, commit: Commit) -> Commit:
        self._tell("%s is commit %s of %s", what, commit.id[:12], branch)
        return commit

    def _tell(self, did: str, *about: object) -> None:
        """What was done, for a log that people read; names and messages are others'."""
        _log.info(f"%s: {did}", self.uri, *(clean(one, 500) for one in about))

    def _scan(self, ref: str, path: str, schema: Any, format: str | None, header: bool) -> TreeScan:
        return scan(self.store, ref, path, schema=_columns(schema), format=format, header=header)

    def _input(self, given: str | tuple[str, str]) -> str:
        ref, path = (given, "") if isinstance(given, str) else given
        return f"{self.store.head(ref)}:{path}" if path else self.store.head(ref)


def _moment(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _counted(commit: Commit) -> str:
    return "" if commit.counts is None else "{} added, {} changed, {} removed".format(*commit.counts)


def _application(data: Any) -> str:
    """The id of the Spark application that the data is of; empty if it is of none."""
    return data.sparkSession.conf.get("spark.app.id", "") or "" if is_spark(data) else ""


def _columns(schema: Any) -> StructType | None:
    if schema is None or isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return from_arrow(schema)
    if is_spark(schema):
        from lakeseal.spark.schema import data_schema  # pyspark is an extra

        return data_schema(schema)
    raise InvalidArgument(f"A {type(schema).__name__} is no schema", hint="Give one of pyarrow or of Spark")


def _stored(given: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    return tuple(rule if isinstance(rule, dict) else rules.rule_to_json(rule) for rule in given)


def _lakefs() -> Any:
    try:
        return import_module("lakeseal.branches.lakefs.store")
    except ModuleNotFoundError as error:
        raise Unsupported(
            "This Lakeseal cannot speak to a lakeFS server",
            hint="Install lakeseal[lakefs], or use a repository without a server",
        ) from error
