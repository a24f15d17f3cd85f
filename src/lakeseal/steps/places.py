"""Which places a sequence may reach: the targets of its own pipeline, and the staging below them.

A record is data that others may have written, and whoever finishes it does so with their own rights. So each built-in
kind of step tells what it `reaches`, and `StepPlaces` compares that with what the pipeline is known to own: when a
sequence is recorded, and again before it is finished, aborted or looked at. What is not the pipeline's raises
`NotAllowed`, and nothing is done.

- Files are renamed from staging into a directory, commits go to a table, merges into a repository, leftovers are
  removed from staging, and watermarks are those of the sequence's own pipeline. No place is taken for another's kind.
- What is at or below a place, `storage.places` says: segment by segment, in the same store, by real paths.
- A table's commit may name only files in the table.

Kinds that users registered are their own code: what they reach is up to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from lakeseal.errors import NotAllowed, UnsafePath
from lakeseal.protocol.data_paths import resolve_data_path
from lakeseal.storage.places import Place, is_in_any

if TYPE_CHECKING:
    from lakeseal.steps.sequence import CommitSequence

JOBS = "_lakeseal_jobs"
STAGING = "_lakeseal_staging"
"""Below a target: where tasks write. Names that begin with `_` are hidden from readers of tables and directories."""


class Reach(Struct, frozen=True, kw_only=True):
    """What a step touches."""

    directories: tuple[Place, ...] = ()
    """In which it makes files."""
    staging: tuple[Place, ...] = ()
    """From which it takes files away."""
    tables: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    table_files: tuple[tuple[str, str], ...] = ()
    """(Table, path) of the files that it makes part of a table."""


class StepPlaces(Struct, frozen=True, kw_only=True):
    """What a pipeline owns, as URIs. Everything at or below them counts."""

    directories: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    staging: tuple[str, ...] = ()

    @classmethod
    def anything_below(cls, uris: Iterable[str], staging: Iterable[str] = ()) -> StepPlaces:
        """Where a person says that these are a pipeline's, whatever is in them."""
        targets = tuple(uris)
        return cls(
            directories=targets,
            tables=targets,
            repositories=targets,
            staging=(*staging, *(place for uri in targets for place in staging_below(uri))),
        )

    def check(self, sequence: CommitSequence) -> None:
        for step in sequence.steps:
            self._check(sequence, step.reaches())
        for leftover in sequence.leftovers:
            self._check_below("removes", (leftover.uri, leftover.prefix), self.staging, sequence)

    def _check(self, sequence: CommitSequence, reach: Reach) -> None:
        for what, found, allowed in (
            ("writes to", reach.directories, self.directories),
            ("takes files from", reach.staging, self.staging),
            ("commits to", [(uri, "") for uri in reach.tables], self.tables),
            ("merges into", [(uri, "") for uri in reach.repositories], self.repositories),
        ):
            for place in found:
                self._check_below(what, place, allowed, sequence)
        for uri, key in reach.directories:
            # What tables and tasks keep for themselves is published by nobody.
            if any(segment.startswith("_") and "=" not in segment for segment in key.split("/")):
                raise _not_allowed(sequence, f"writes to {uri.rstrip('/')}/{key}")
        for pipeline in reach.pipelines:
            if pipeline != sequence.store:
                raise _not_allowed(sequence, f"moves watermarks of {pipeline!r}")
        for table, path in reach.table_files:
            try:
                resolve_data_path(table, path)
            except UnsafePath as error:
                raise _not_allowed(sequence, f"adds a file that is not in {table}: {path}") from error

    def _check_below(self, what: str, place: Place, allowed: tuple[str, ...], sequence: CommitSequence) -> None:
        if not is_in_any(place, allowed):
            raise _not_allowed(sequence, f"{what} {place[0].rstrip('/')}/{place[1]}".rstrip("/"))


def staging_below(target: str) -> tuple[str, ...]:
    return tuple(f"{target.rstrip('/')}/{name}" for name in (JOBS, STAGING))


def _not_allowed(sequence: CommitSequence, does: str) -> NotAllowed:
    return NotAllowed(
        f"The sequence of {sequence.dataset!r} in {sequence.store!r} {does}, which is not a place of this pipeline",
        hint="Look who recorded it (lakeseal steps show), then drop it: lakeseal steps abort --broken. Where the place "
        "is the pipeline's after all, name it: --pipeline, or --place and --staging",
    )
