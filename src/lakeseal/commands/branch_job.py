"""`BranchJob`: what the driver of a job does with branches. Begin, commit, merge; or give up.

1. `begin` makes the job's branch at the destination's head, and says in the log who else is writing there. Modes
   `error` and `ignore` look at the path first.
2. `commit` puts all files into one commit on the job's branch, then merges that into the destination if its head is
   still where it was looked at; otherwise looks again, and tries again after a moment. No lock is held: whoever loses a
   race lost it to somebody who got through (G5). An overwrite empties its directories in the same merge, and also
   removes what other jobs have put there meanwhile, so that one job's files are there afterwards (G3). What others have
   put there without a job is not ours to remove: the merge is refused as a conflict that names the files.
3. `abort` drops the branch of a job that has not committed. One that has is left for inspection until it is collected.

The number of calls does not depend on the number of files. `commit` may be called again after any failure, by this
process or another with the same job id: what was done is found, and the rest is done.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import pyarrow as pa
from msgspec import Struct

from lakeseal.backoff import Backoff
from lakeseal.branches.store import (
    ENTRIES,
    BranchStore,
    Changes,
    Check,
    Commit,
    Entry,
    Job,
    MergeResult,
    entry_table,
)
from lakeseal.errors import (
    AlreadyExists,
    BrokenDataFile,
    CheckRefused,
    HeadChanged,
    InvalidArgument,
    LakesealError,
    MergeConflict,
    ObjectNotFound,
    SchemaMismatch,
    located,
)
from lakeseal.files.partition_directories import of_partitions
from lakeseal.files.shape import DIRECTORY, Shape
from lakeseal.files.tree_scan import scan
from lakeseal.jobs.branch_commit_protocol import BranchWrite, Link

Mode = Literal["append", "overwrite", "error", "ignore"]
MODES: tuple[str, ...] = get_args(Mode)

_BACKOFF = Backoff(first_s=0.01, longest_s=0.5, least=0.0)
_REMEMBERED_COMMITS = 1_000

logger = logging.getLogger("lakeseal.write.BranchCommitProtocol")


class JobPlan(Struct, frozen=True, kw_only=True):
    """What a job is to do."""

    id: str
    dest: str
    path: str
    mode: Mode = "append"
    dynamic: bool = False
    """Overwrite only the partitions that the job has files for."""
    resumes: bool = False
    """The id is the caller's own, who may have used it before: a job that the destination's log has is done."""
    who: str = ""
    message: str = ""
    metadata: dict[str, str] = {}
    shape: Shape | None = None
    mixed_types: bool = False
    """Append files whose columns have other types than those that are there."""


class BranchJob:
    def __init__(self, store: BranchStore, plan: JobPlan, *, checks: Sequence[Check] = ()) -> None:
        self._store = store
        self._plan = plan
        self._checks = checks
        self._checked_head: str | None = None
        self._job: Job | None = None
        self._committed = False
        self._result: BranchWrite | None = None

    @property
    def job(self) -> Job:
        if self._job is None:
            raise InvalidArgument("The job was not begun", hint="Call setup_job first")
        return self._job

    def begin(self) -> BranchWrite | None:
        """What became of the job, if it has nothing to do."""
        plan = self._plan
        with located(table=self._store.uri):
            head = self._store.head(plan.dest)
            if plan.resumes and self._is_in_log(head):
                self._result = self._skipped(head, "the job's files are there already")
            else:
                self._result = self._unwanted(head)
            if self._result is None:
                self._tell_of_others()
                self._job = self._store.begin_job(plan.id, dest=plan.dest, path=plan.path, who=plan.who)
                # Another process may have begun it, and have come further.
                self._committed = self._job.head != self._job.base
        return self._result

    def commit(self, links: Sequence[Link]) -> BranchWrite:
        if self._result is not None:
            return self._result
        with located(table=self._store.uri):
            job, totals = self.job, _Totals.of(links)
            metadata = {**self._plan.metadata, **totals.metadata}
            message = self._plan.message or f"{self._plan.mode} {totals.files} files: {job.path}"
            commit, again = self._commit(links, message, metadata)
            self._committed = True
            self._result = self._merge(commit, message, metadata, totals, again=again)
            self._end()
        return self._result

    def stage(self, links: Sequence[Link]) -> Commit:
        """All files in one commit on the job's branch, for whoever merges it; the branch keeps it until then."""
        with located(table=self._store.uri):
            metadata = {**self._plan.metadata, **_Totals.of(links).metadata}
            message = self._plan.message or f"{self._plan.mode} {len(links)} files: {self.job.path}"
            return self._commit(links, message, metadata)[0]

    def abort(self) -> None:
        """Never raises for what is gone already."""
        if self._job is None or self._result is not None:
            return
        if self._committed:
            logger.warning("The job %s did not merge; its files are kept on %s", self.job.id, self.job.branch)
        else:
            self._end()

    def _unwanted(self, head: str) -> BranchWrite | None:
        """The result, if the mode lets what is there stand. Also asked right at the merge, for somebody may have
        written meanwhile."""
        mode, path = self._plan.mode, self._plan.path
        if self._plan.shape is not None and not self._plan.mixed_types and (mode == "append" or self._plan.dynamic):
            self._check_types(head, self._plan.shape)
        if mode not in ("error", "ignore") or next(iter(self._store.list(head, path)), None) is None:
            return None
        if mode == "error":
            raise AlreadyExists(
                f"There are files on {self._plan.dest} already",
                file=path,
                hint="Write elsewhere, or use mode 'append' or 'overwrite'",
            )
        return self._skipped(head, "there are files already")

    def _check_types(self, head: str, ours: Shape) -> None:
        """Whoever reads the directory needs one type for each column; files that stay have theirs."""
        if head == self._checked_head:
            return
        self._checked_head = head
        path = self._plan.path
        directory = f"{path}/{DIRECTORY}" if path else DIRECTORY
        entries = [e for e in self._store.list(head, directory) if e.path.rpartition("/")[2].startswith("shape-")]
        others = (entry for entry in entries if not entry.path.endswith(ours.path))
        described = [Shape.from_json(self._store.read(head, entry.path), file=entry.path) for entry in others]
        if entries and _contradiction(ours, described) is None:
            return
        try:
            found = scan(self._store, head, path)
        except (ObjectNotFound, InvalidArgument, SchemaMismatch, BrokenDataFile):
            return  # there is nothing yet, or nothing that says what it is
        column = _contradiction(ours, found.spec.shapes)
        if column is not None:
            raise SchemaMismatch(
                f"The files that are there have another type in this column than those to be written: {column[1]}",
                file=path,
                column=column[0],
                hint="Cast the column, overwrite the directory, or write with mixed_types=True and read with schema=",
            )

    def _commit(self, links: Sequence[Link], message: str, metadata: Mapping[str, str]) -> tuple[Commit, bool]:
        """The commit on the job's branch, and whether it was there before."""
        job = self.job
        outcome = self._store.commit(
            job.branch,
            Changes(puts=self._entries(links), directories=self._emptied(links)),
            message=message,
            metadata=metadata,
            expected_head=job.base,
            job=job.id,
        )
        if isinstance(outcome, Commit):
            return outcome, False
        found = self._store.commit_info(job.branch)
        if found.job != job.id or found.parents != (job.base,):
            raise HeadChanged(
                f"Somebody else has committed to the job's branch {job.branch}",
                hint="Look at the branch, delete it, and run the job again",
            )
        return found, True

    def _merge(
        self, commit: Commit, message: str, metadata: dict[str, str], totals: _Totals, *, again: bool
    ) -> BranchWrite:
        plan, job = self._plan, self.job
        head = self._store.head(plan.dest)
        for attempts in _BACKOFF.tries():
            is_there = again and self._store.merge_base(commit.id, head) == commit.id
            unwanted = None if is_there else self._unwanted(head)
            if unwanted is not None:
                return unwanted
            try:
                outcome = self._store.merge_if(
                    job.branch, plan.dest, head, message=message, metadata=metadata, checks=self._checks
                )
            except (MergeConflict, CheckRefused) as error:
                error.hint = f"{error.hint}. The job's files are kept on the branch {job.branch} until it is collected"
                raise
            if isinstance(outcome, MergeResult):
                return BranchWrite(
                    job=job.id,
                    branch=plan.dest,
                    path=job.path,
                    commit=outcome.commit,
                    files=totals.files,
                    rows=totals.rows,
                    bytes=totals.bytes,
                    removed=outcome.removed,
                    replaced=outcome.replaced,
                    attempts=attempts,
                )
            logger.info("The job %s lost a race for %s; trying again", job.id, plan.dest)
            head = outcome.actual
        raise AssertionError("there is always another try")

    def _end(self) -> None:
        try:
            self._store.end_job(self.job)
        except LakesealError as error:
            # What the job did is not affected; the branch goes with the next collection.
            logger.warning("The branch %s could not be removed: %s", self.job.branch, error)

    def _skipped(self, head: str, reason: str) -> BranchWrite:
        plan = self._plan
        logger.info("The job %s writes nothing to %s: %s", plan.id, plan.path, reason)
        return BranchWrite(job=plan.id, branch=plan.dest, path=plan.path, commit=head, skipped=reason)

    def _is_in_log(self, head: str) -> bool:
        return any(
            commit.job == self._plan.id
            for commit in self._store.log(head, limit=_REMEMBERED_COMMITS, first_parent=True)
        )

    def _tell_of_others(self) -> None:
        for other in self._store.jobs(dest=self._plan.dest, path=self._plan.path):
            if other.id != self._plan.id:
                logger.warning("%s", hint(other))

    def _entries(self, links: Sequence[Link]) -> pa.Table:
        job, shape = self.job, self._plan.shape
        place = f"{job.path.strip('/')}/".removeprefix("/")
        noted = "}" if shape is None else f',"shape":"{shape.id}"}}'
        columns: list[list[Any]] = [
            [place + link.path for link in links],
            [f"{job.data_prefix}/{link.object}" for link in links],
            [link.size for link in links],
            [link.checksum for link in links],
            [f'{{"rows":"{link.rows}"{noted}' for link in links],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ENTRIES, strict=True)]
        files = pa.Table.from_arrays(arrays, schema=ENTRIES)
        return files if shape is None else pa.concat_tables([files, entry_table([self._placed(shape, place)])])

    def _placed(self, shape: Shape, place: str) -> Entry:
        """Its entry: with the object that an earlier job wrote, or with a new one."""
        data, path = shape.to_json(), place + shape.path
        checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
        with suppress(ObjectNotFound):
            there = self._store.stat(self.job.base, path)
            if there.identity == (len(data), checksum):
                return there
        address = f"{self.job.data_prefix}/shape-{shape.id}.json"
        self._store.objects.open().put(address, data)
        return Entry(path=path, address=address, size=len(data), checksum=checksum)

    def _emptied(self, links: Sequence[Link]) -> tuple[str, ...]:
        if self._plan.mode != "overwrite":
            return ()
        path = self.job.path.strip("/")
        if not self._plan.dynamic:
            return (path,)
        below = {link.path.rpartition("/")[0] for link in links}
        return tuple(sorted(f"{path}/{directory}".strip("/") for directory in below | self._spelt_otherwise(below)))

    def _spelt_otherwise(self, directories: Collection[str]) -> frozenset[str]:
        """Directories that are there and hold rows of the same partitions."""
        shape, path = self._plan.shape, self.job.path.strip("/")
        if shape is None or not directories:
            return frozenset()
        names = {name.lower() for name in shape.partition_columns}
        columns = [field for field in shape.columns.fields if field.name.lower() in names]
        if len(columns) < len(names):
            return frozenset()  # one has no type, so that all of its rows are null
        there = {
            name[len(path) + 1 if path else 0 :].rpartition("/")[0]
            for table in self._store.entry_tables(self.job.base, path)
            for name in table["path"].to_pylist()
        }
        return of_partitions(there, directories, columns)


class _Totals(Struct, frozen=True, kw_only=True):
    files: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, links: Sequence[Link]) -> _Totals:
        return cls(files=len(links), rows=sum(link.rows for link in links), bytes=sum(link.size for link in links))

    @property
    def metadata(self) -> dict[str, str]:
        return {
            "lakeseal.files": str(self.files),
            "lakeseal.rows": str(self.rows),
            "lakeseal.bytes": str(self.bytes),
        }


def hint(job: Job) -> str:
    """One line for people about another job."""
    since = datetime.fromtimestamp(job.since_ms / 1000, UTC).isoformat(timespec="seconds")
    return f"{job.who or 'somebody'} is writing to {job.path or '/'} on {job.dest} since {since} (job {job.id})"


def _contradiction(ours: Shape, others: Iterable[Shape]) -> tuple[str, str] | None:
    """A column that has two types, and which; texts say nothing of themselves, so those of other shapes count too."""
    own = {field.name.lower(): field for field in ours.columns.fields}
    for shape in others:
        for field in shape.columns.fields:
            mine = own.get(field.name.lower())
            if mine is not None and mine.type != field.type:
                return mine.name, f"{field.type} there, {mine.type} here"
    return None
