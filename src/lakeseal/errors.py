"""The one tree of errors.

Every error that leaves Lakeseal derives from `LakesealError`, carries a stable `kind` (for programs), says what
happened and to which table, version, file or column, and ends with a `hint` of what to do next (for people).

Groups say what a handler would do, so catch a group rather than a leaf:

    LakesealError
    ├── InvalidInput            the call is wrong: mend it and call again
    │   ├── InvalidUri · InvalidExpression · InvalidArgument · SchemaMismatch · ConstraintViolation
    │   ├── RequestTooLarge         for the service that it was sent to
    │   ├── InvalidPath             a path on a branch that could leave its tree
    │   ├── AmbiguousMerge          several source rows would change the same row
    │   ├── UnsupportedExpression   understood, but not evaluated outside Spark
    │   ├── EvaluationError         an expression failed on a value: overflow, division by zero, a cast
    │   ├── BadRecord · QualityFailed   an ingest's input is not what its pipeline says that it must be
    │   └── SourceChanged           a source changed in a way that its reader does not follow by itself
    ├── NotFound                what was named is not there
    │   ├── TableNotFound · VersionNotFound · ObjectNotFound · SourceNotFound
    │   ├── SchemaNotFound          of a catalog
    │   └── RepositoryNotFound · RefNotFound · HistoryExpired
    ├── AlreadyExists           what was to be made is there already
    ├── Unsupported             a newer or other client is needed
    │   ├── UnsupportedFeature · UnsupportedType · NewerLedger · UnknownStep
    │   └── MissingOnExecutors      the Python of Spark's executors lacks a package
    ├── CorruptTable            the stored bytes break the format: repair or restore
    │   ├── EmptyLog · LogGap · BrokenCommit · BrokenCheckpoint · ChecksumMismatch · BackfillMismatch
    │   ├── TamperedCommit          a ratified commit's file was changed before it was published
    │   ├── MissingProtocol · MissingMetadata · InvalidMetadata
    │   ├── UnsafePath · BrokenDeletionVector · BrokenDataFile · DataFileMissing · BrokenLedger
    │   ├── DecodedTooLarge         a file would unfold to more than a reader's limit
    │   └── BrokenSequence · StepImpossible     a recorded sequence, or what it was to publish, is damaged
    │   └── BrokenTree              of a repository
    ├── ConcurrentModification  another writer won: read again and retry
    │   ├── MergeConflict · HeadChanged · Collected      of branches
    │   ├── WatermarkMoved          a watermark is not where it was expected
    │   └── (Delta's names, one leaf each, at the bottom of this module)
    ├── Refused                 an owner, a policy or a permission said no
    │   ├── AppendOnlyTable · PolicyRefused · NotBackfilled
    │   ├── InvalidCommit           an owner looked into a commit and found what no reader should meet
    │   ├── BranchProtected · BranchDirty · CheckRefused
    │   ├── RunFailed               datasets of an ingest were not published; each one's error says why
    │   ├── Fenced · LeaseHeld      a later run has taken over, or another runs now
    │   ├── NotAuthenticated · NotAllowed        a service: who you are, or what you may do
    │   ├── WrongLedger             the ledger that was configured is not the one that has the table
    │   └── OwnedElsewhere · ReleaseUnderway     others decide on its commits now: open the table again
    └── StorageError            the store did not do it: check access, space, network
        ├── PermissionDenied · OutOfSpace · StorageUnavailable
        ├── TableVanished       an owner knows the table, and its log is not there: absent is not deleted
        ├── SourceUnavailable · SourceTimeout    an ingest's source did not answer: run it again
        ├── OwnerBusy           too much is waiting to be backfilled: wait a moment
        ├── UnknownOutcome      the ledger was asked to commit, no answer: ask again with the same id
        └── CommitOutcomeUnknown    it may or may not have been committed: look for its txnId
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class LakesealError(Exception):
    """Root of the tree. `str(error)` is the whole sentence; the parts are attributes."""

    kind: ClassVar[str] = "lakeseal"
    default_hint: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        table: str | None = None,
        version: int | None = None,
        file: str | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.table = table
        self.version = version
        self.file = file
        self.column = column

    def __str__(self) -> str:
        where = ", ".join(
            f"{name} {value}"
            for name, value in (
                ("table", self.table),
                ("version", self.version),
                ("file", self.file),
                ("column", self.column),
            )
            if value is not None
        )
        text = f"{self.message} ({where})" if where else self.message
        return f"{text}. {self.hint}" if self.hint else text

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the user's own lines and the sentence; all of it with LAKESEAL_DEBUG=1."""
        if os.environ.get("LAKESEAL_DEBUG"):
            return traceback.format_exception(self)
        here = os.path.dirname(__file__)
        frames = [one for one in traceback.extract_tb(self.__traceback__) if not _is_of_a_package(one.filename, here)]
        return [*traceback.format_list(frames[-3:]), f"{type(self).__name__}: {self}"]

    def at(
        self,
        *,
        table: str | None = None,
        version: int | None = None,
        file: str | None = None,
        column: str | None = None,
    ) -> LakesealError:
        """Fill in places that were not known where the error arose; never overwrites one that was."""
        self.table = self.table if self.table is not None else table
        self.version = self.version if self.version is not None else version
        self.file = self.file if self.file is not None else file
        self.column = self.column if self.column is not None else column
        return self

    def to_json(self) -> dict[str, object]:
        parts = {
            "kind": self.kind,
            "message": self.message,
            "hint": self.hint,
            "table": self.table,
            "version": self.version,
            "file": self.file,
            "column": self.column,
        }
        return {name: value for name, value in parts.items() if value not in (None, "")}

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark tasks, worker pools); keyword-only parts would be lost by default.
        return (_rebuild, (type(self), self.__dict__))


@contextmanager
def located(
    *, table: str | None = None, version: int | None = None, file: str | None = None, column: str | None = None
) -> Iterator[None]:
    """Adds places that are known here to errors that pass through."""
    try:
        yield
    except LakesealError as error:
        error.at(table=table, version=version, file=file, column=column)
        raise


def _rebuild(cls: type[LakesealError], state: dict[str, object]) -> LakesealError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


def _is_of_a_package(file: str, here: str) -> bool:
    return file.startswith(here + os.sep) or f"{os.sep}site-packages{os.sep}" in file


class InvalidInput(LakesealError):
    kind = "invalid-input"


class InvalidArgument(InvalidInput):
    kind = "invalid-argument"


class RequestTooLarge(InvalidInput):
    kind = "request-too-large"


class InvalidUri(InvalidInput):
    kind = "invalid-uri"
    default_hint = "Use a local path, file://, memory://, s3://, gs:// or az://"


class InvalidExpression(InvalidInput):
    kind = "invalid-expression"
    default_hint = "Check the SQL text and the column names against the table's schema"


class InvalidPath(InvalidInput):
    kind = "invalid-path"
    default_hint = "A path on a branch has names between single slashes, no '.' or '..', and no control characters"


class UnsupportedExpression(InvalidInput):
    kind = "unsupported-expression"
    default_hint = "Run it through Spark, or use a simpler expression"


class AmbiguousMerge(InvalidInput):
    kind = "ambiguous-merge"
    default_hint = "Make the source unique by the columns of the condition, or the condition narrower"


class EvaluationError(InvalidInput):
    kind = "evaluation"
    default_hint = "Leave such rows out by a condition, or use try_cast"


class BadRecord(InvalidInput):
    kind = "bad-record"
    default_hint = "Mend the record at its source, or say on_bad_record: error_table to set such records aside"


class QualityFailed(InvalidInput):
    kind = "quality-failed"
    default_hint = "Nothing of the dataset was published: mend its input, or the rule"


class SourceChanged(InvalidInput):
    kind = "source-changed"
    default_hint = "Start a query again with a new checkpoint; of a pipeline, say where to go on: lakeseal ingest reset"


class SchemaMismatch(InvalidInput):
    kind = "schema-mismatch"


class ConstraintViolation(InvalidInput):
    kind = "constraint-violation"


class NotFound(LakesealError):
    kind = "not-found"


class TableNotFound(NotFound):
    kind = "table-not-found"
    default_hint = "Check the location; lakeseal.create() or a first write makes a table"


class SchemaNotFound(NotFound):
    kind = "schema-not-found"
    default_hint = "Check its name, or make it: lakeseal.Catalog(…).create_schema()"


class VersionNotFound(NotFound):
    kind = "version-not-found"


class ObjectNotFound(NotFound):
    kind = "object-not-found"


class RepositoryNotFound(NotFound):
    kind = "repository-not-found"
    default_hint = "Check the location; lakeseal.Repository.create() makes a repository"


class RefNotFound(NotFound):
    kind = "ref-not-found"
    default_hint = "Name a branch, a tag or a commit's id; `lakeseal branch list` shows what there is"


class HistoryExpired(NotFound):
    kind = "history-expired"
    default_hint = "Files of commits this old were collected; only their place in the log is left"


class SourceNotFound(NotFound):
    kind = "source-not-found"
    default_hint = "Check the source's name; if it is gone for good, take its dataset out of the pipeline"


class AlreadyExists(LakesealError):
    kind = "already-exists"


class Unsupported(LakesealError):
    kind = "unsupported"


class UnsupportedFeature(Unsupported):
    kind = "unsupported-feature"


class UnsupportedType(Unsupported):
    kind = "unsupported-type"


class NewerLedger(Unsupported):
    kind = "newer-ledger"
    default_hint = "A newer Lakeseal wrote this ledger: upgrade Lakeseal on this machine"


class MissingOnExecutors(Unsupported):
    kind = "missing-on-executors"
    default_hint = (
        "Tasks run in the executors' Python: name one that has Lakeseal (spark.pyspark.python, or PYSPARK_PYTHON, "
        "before the session is made), install it there (pip install 'lakeseal[spark]'), or ship an environment with "
        "the job (spark.archives; over Connect spark.addArtifacts(…, archive=True))"
    )


class UnknownStep(Unsupported):
    kind = "unknown-step"


class CorruptTable(LakesealError):
    kind = "corrupt-table"


class EmptyLog(CorruptTable):
    kind = "empty-log"


class LogGap(CorruptTable):
    kind = "log-gap"
    default_hint = "A commit file is missing: restore it from a backup, or read a version at or above a checkpoint"
    missing: int | None = None
    """The version whose commit is not there."""


class BrokenCommit(CorruptTable):
    kind = "broken-commit"
    default_hint = "The commit file does not hold valid actions: restore it from a backup"


class BrokenCheckpoint(CorruptTable):
    kind = "broken-checkpoint"
    default_hint = "Delete the broken checkpoint if the JSON commits before it are still there"


class ChecksumMismatch(CorruptTable):
    kind = "checksum-mismatch"


class BackfillMismatch(CorruptTable):
    kind = "backfill-mismatch"
    default_hint = (
        "Somebody wrote to the log past the table's owner. Nothing further is backfilled: compare the two files, keep "
        "the ratified one under the version's own name, and find out who wrote the other"
    )


class TamperedCommit(CorruptTable):
    kind = "tampered-commit"
    default_hint = (
        "Nothing of it is published. Find out who can write to the table's _commits, and put the file back as it was"
    )


class MissingProtocol(CorruptTable):
    kind = "missing-protocol"
    default_hint = "The log never states a protocol; it was not written by a complete Delta client"


class MissingMetadata(CorruptTable):
    kind = "missing-metadata"
    default_hint = "The log never states the table's metadata; it was not written by a complete Delta client"


class InvalidMetadata(CorruptTable):
    kind = "invalid-metadata"
    default_hint = (
        "Restore the table to a version before the commit that stated it, or mend it with the client that did"
    )


class UnsafePath(CorruptTable):
    kind = "unsafe-path"
    default_hint = "The log points outside of the table; refuse it unless you trust whoever wrote the log"


class BrokenDeletionVector(CorruptTable):
    kind = "broken-deletion-vector"
    default_hint = "Restore the deletion vector's file from a backup, or restore the table to an earlier version"


class BrokenDataFile(CorruptTable):
    kind = "broken-data-file"
    default_hint = "Restore the file from a backup, or restore the table to an earlier version"


class DecodedTooLarge(CorruptTable):
    kind = "decoded-too-large"


class DataFileMissing(CorruptTable):
    kind = "data-file-missing"
    default_hint = "The file was vacuumed or deleted: read a newer version, or restore the file from a backup"


class BrokenLedger(CorruptTable):
    kind = "broken-ledger"
    default_hint = "Restore the ledger's database from a backup"


class BrokenSequence(CorruptTable):
    kind = "broken-sequence"
    default_hint = "Compare what was published with the watermarks, then drop the record: lakeseal steps abort --broken"


class BrokenTree(CorruptTable):
    kind = "broken-tree"
    default_hint = "A file below _lakeseal/ of the repository is damaged or missing: restore it from a backup"


class StepImpossible(CorruptTable):
    kind = "step-impossible"


class Refused(LakesealError):
    kind = "refused"


class AppendOnlyTable(Refused):
    kind = "append-only-table"
    default_hint = "Rows cannot be changed or removed while the table's property delta.appendOnly is true"


class OwnedElsewhere(Refused):
    kind = "owned-elsewhere"
    default_hint = "The table names a commit owner: open it with that owner configured"


class NotBackfilled(Refused):
    kind = "not-backfilled"
    default_hint = "Ask the table's owner to backfill the version first"


class ReleaseUnderway(OwnedElsewhere):
    kind = "release-underway"
    default_hint = "The table's owner is giving it up: open the table again when that is done"


class WrongLedger(Refused):
    kind = "wrong-ledger"
    default_hint = (
        "Configure the ledger that has the table, by an absolute path. If that one is lost: lakeseal owner rebuild"
    )


class PolicyRefused(Refused):
    kind = "policy-refused"
    policy: str = ""
    """The name of the policy that said no."""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **({"policy": self.policy} if self.policy else {})}


class InvalidCommit(Refused):
    kind = "invalid-commit"
    default_hint = "Nothing was committed. Mend the client that made this commit"
    line: int | None = None
    """Of the commit file, counted from 1; None where it is about all of it."""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **({"line": self.line} if self.line is not None else {})}


class BranchProtected(Refused):
    kind = "branch-protected"
    default_hint = "Commit to another branch and merge it, or unprotect this one"


class BranchDirty(Refused):
    kind = "branch-dirty"
    default_hint = (
        "Somebody has written to it without committing: commit or reset these changes in lakeFS, and try again"
    )


class CheckRefused(Refused):
    kind = "check-refused"
    default_hint = "Nothing was changed. Mend what the check found on the source branch, and merge again"
    check: str = ""
    """The name of the check that said no."""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **({"check": self.check} if self.check else {})}


class NotAuthenticated(Refused):
    kind = "not-authenticated"
    default_hint = (
        "Give a token that is valid, to commands and jobs by LAKESEAL_TOKEN: lakeseal owner token create makes one"
    )


class NotAllowed(Refused):
    kind = "not-allowed"
    default_hint = "Ask whoever runs the service for a token with a role on this table"


class Fenced(Refused):
    """Whoever gets this has lost its turn: it must stop, and clean up nothing that others may be using."""

    kind = "fenced"
    default_hint = "A later run has taken over; what this one recorded is finished by that one"


class LeaseHeld(Refused):
    kind = "lease-held"


class RunFailed(Refused):
    kind = "run-failed"
    default_hint = "Mend what is said of each dataset and run it again; what the others published stays"


class StorageError(LakesealError):
    kind = "storage"


class PermissionDenied(StorageError):
    kind = "permission-denied"
    default_hint = "Check the credentials and the permissions on this location"


class OutOfSpace(StorageError):
    kind = "out-of-space"
    default_hint = "Free space and run it again; nothing that was committed is affected"


class StorageUnavailable(StorageError):
    kind = "storage-unavailable"
    default_hint = "Check the network and the store, then run it again"


class TableVanished(StorageError):
    kind = "table-vanished"
    default_hint = (
        "Absent is not deleted: look whether its disk is mounted, and whether somebody moved it. If it was deleted for "
        "good, an admin says so: lakeseal owner drop"
    )


class SourceUnavailable(StorageUnavailable):
    kind = "source-unavailable"
    default_hint = "Check the source and the way to it, then run it again"


class SourceTimeout(SourceUnavailable):
    kind = "source-timeout"
    default_hint = "Check whether the source hangs; the dataset's timeout says how long to wait"


class OwnerBusy(StorageUnavailable):
    kind = "owner-busy"
    default_hint = "Run it again in a moment; if it stays so, look why commits are not backfilled"
    retry_after_s: float | None = None
    """How long to wait, where the owner said so."""


class CommitOutcomeUnknown(StorageError):
    """The last word on a transaction: it was asked about again until there was no more time, or nobody can tell any
    more. To run it again might commit it twice, so somebody has to look."""

    kind = "commit-outcome-unknown"
    txn_id: str | None = None
    """The transaction's name in the log, to look for."""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **({"txnId": self.txn_id} if self.txn_id else {})}


class UnknownOutcome(StorageError):
    """The answer to one step was lost: it happened, or it did not. Never undo anything because of this error, and ask
    the same again: by its id the step is known, so that it is done once. Commits do so by themselves."""

    kind = "unknown-outcome"
    default_hint = (
        "Run it again with the same transaction id: what was already done is found and answered, not repeated"
    )


class ConcurrentModification(LakesealError):
    kind = "concurrent-modification"
    default_hint = "Another writer committed first: read the table again and retry"


class WatermarkMoved(ConcurrentModification):
    kind = "watermark-moved"
    default_hint = "Somebody else moved or reset it: compare it with what was published before anything is run again"


class MergeConflict(ConcurrentModification):
    kind = "merge-conflict"
    default_hint = (
        "Nothing was changed. Merge the other way round first and settle the paths there, or merge with "
        "source-wins or dest-wins"
    )
    conflicts: tuple[Any, ...] = ()
    """All of them, by path: `lakeseal.branches.values.Conflict`."""

    def to_json(self) -> dict[str, object]:
        paths = [conflict.path for conflict in self.conflicts[:1000]]
        return {**super().to_json(), **({"conflicts": paths} if paths else {})}


class HeadChanged(ConcurrentModification):
    kind = "head-changed"
    default_hint = "Another writer moved the branch: look at its new head and try again"


class Collected(ConcurrentModification):
    kind = "collected"
    default_hint = "A garbage collection ran since the files were written: write them again, or write them as a job"


class ProtocolChangedException(ConcurrentModification):
    kind = "protocol-changed"


class MetadataChangedException(ConcurrentModification):
    kind = "metadata-changed"


class ConcurrentTransactionException(ConcurrentModification):
    kind = "concurrent-transaction"


class ConcurrentAppendException(ConcurrentModification):
    kind = "concurrent-append"


class ConcurrentDeleteReadException(ConcurrentModification):
    kind = "concurrent-delete-read"


class ConcurrentDeleteDeleteException(ConcurrentModification):
    kind = "concurrent-delete-delete"


class ConcurrentWriteException(ConcurrentModification):
    kind = "concurrent-write"


__all__ = sorted(
    [name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, LakesealError)]
    + ["located"]
)
