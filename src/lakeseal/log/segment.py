"""Which files make up a version: the choice, as a pure function of names.

A segment is at most one complete checkpoint and the commits above it, contiguous up to the version that was asked for.
A compacted range stands in for its commits where it fits. Commits that an owner ratified and that are not backfilled
come in beside the listing; where both have a version, the listing's copy is taken, which is the same bytes. Where the
commits are a catalog's, the one that it told of is taken, and nothing above its latest version.

Checkpoints and compactions only save work, so a broken one can be excluded and the choice made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set

from msgspec import Struct

from lakeseal.errors import EmptyLog, LogGap, VersionNotFound
from lakeseal.log.ratified_commit import NOTHING_TOLD, RatifiedCommit, Told
from lakeseal.protocol.paths import LogFile, LogFileKind, parse

Place = str | RatifiedCommit
"""Of a commit: the key of its file in the log, or what an owner told of it."""


class LogListing(Struct, frozen=True, kw_only=True):
    """The names of a log, sorted out by kind."""

    commits: Mapping[int, Place]
    checkpoints: Mapping[int, tuple[tuple[LogFile, ...], ...]]
    """Per version, the complete checkpoints, best first."""
    incomplete: tuple[LogFile, ...]
    """Parts of multi-part checkpoints whose other parts are missing."""
    compactions: Mapping[int, tuple[LogFile, ...]]
    """Per first version, longest first."""
    checksums: Set[int]

    @property
    def latest(self) -> int:
        return max(max(self.commits, default=-1), max(self.checkpoints, default=-1))

    def is_empty(self) -> bool:
        return not self.commits and not self.checkpoints


class LogSegment(Struct, frozen=True, kw_only=True):
    version: int
    checkpoint_version: int
    """-1 where the segment starts at commit 0."""
    checkpoint: tuple[LogFile, ...]
    commits: tuple[tuple[int, Place], ...]
    """Ascending; a compacted range counts as its last version."""

    @property
    def checkpoint_names(self) -> frozenset[str]:
        return frozenset(file.name for file in self.checkpoint)


def sort_out(names: Iterable[str], told: Told = NOTHING_TOLD) -> LogListing:
    commits: dict[int, Place] = dict(told.commits)
    checkpoints: dict[int, list[LogFile]] = defaultdict(list)
    compactions: dict[int, list[LogFile]] = defaultdict(list)
    checksums: set[int] = set()
    for name in names:
        file = parse(name)
        if file is None or not told.goes_to(file.version if file.end_version is None else file.end_version):
            continue
        match file.kind:
            case LogFileKind.COMMIT if told.up_to is None or file.version not in told.commits:
                commits[file.version] = file.key
            case LogFileKind.COMMIT:
                pass
            case LogFileKind.CHECKSUM:
                checksums.add(file.version)
            case LogFileKind.COMPACTED:
                compactions[file.version].append(file)
            case LogFileKind.STAGED_COMMIT:
                pass  # counts only if its owner says so (M4)
            case _:
                checkpoints[file.version].append(file)
    complete, incomplete = _complete(checkpoints)
    return LogListing(
        commits=commits,
        checkpoints=complete,
        incomplete=incomplete,
        compactions={
            start: tuple(sorted(files, key=lambda f: -(f.end_version or 0))) for start, files in compactions.items()
        },
        checksums=checksums,
    )


def _complete(
    found: Mapping[int, list[LogFile]],
) -> tuple[dict[int, tuple[tuple[LogFile, ...], ...]], tuple[LogFile, ...]]:
    complete: dict[int, tuple[tuple[LogFile, ...], ...]] = {}
    incomplete: list[LogFile] = []
    for version, files in found.items():
        whole: list[tuple[LogFile, ...]] = [(f,) for f in files if f.kind is LogFileKind.CHECKPOINT]
        # Any V2 checkpoint of a version will do; by name, so that every reader takes the same.
        whole += [(f,) for f in sorted(files, key=lambda f: f.name) if f.kind is LogFileKind.V2_CHECKPOINT]
        by_count: dict[int, list[LogFile]] = defaultdict(list)
        for f in files:
            if f.parts is not None:
                by_count[f.parts].append(f)
        for count, parts in sorted(by_count.items()):
            if len(parts) == count:
                whole.append(tuple(sorted(parts, key=lambda f: f.part or 0)))
            else:
                incomplete += parts
        if whole:
            complete[version] = tuple(whole)
    return complete, tuple(incomplete)


def choose(listing: LogListing, version: int | None = None, *, excluded: Set[str] = frozenset()) -> LogSegment:
    """The segment of `version`, or of the newest; `excluded` are names of checkpoints and compactions not to use."""
    if listing.is_empty():
        raise EmptyLog(
            "The log holds no commit and no complete checkpoint",
            hint="Restore the commit files from a backup; a table starts at version 0",
            file=listing.incomplete[0].name if listing.incomplete else None,
        )
    target = listing.latest if version is None else version
    if target > listing.latest:
        raise VersionNotFound(
            f"Version {target} is not there yet", version=target, hint=f"The newest version is {listing.latest}"
        )
    base, checkpoint = _checkpoint_at_or_below(listing, target, excluded)
    commits: list[tuple[int, Place]] = []
    at = base + 1
    while at <= target:
        compacted = next(
            (
                file
                for file in listing.compactions.get(at, ())
                if (file.end_version or 0) <= target and file.name not in excluded
            ),
            None,
        )
        if compacted is not None:
            assert compacted.end_version is not None
            commits.append((compacted.end_version, compacted.key))
            at = compacted.end_version + 1
        elif at in listing.commits:
            commits.append((at, listing.commits[at]))
            at += 1
        else:
            raise _gap(listing, at, target, base)
    return LogSegment(version=target, checkpoint_version=base, checkpoint=checkpoint, commits=tuple(commits))


def _checkpoint_at_or_below(listing: LogListing, target: int, excluded: Set[str]) -> tuple[int, tuple[LogFile, ...]]:
    for version in sorted((v for v in listing.checkpoints if v <= target), reverse=True):
        for files in listing.checkpoints[version]:
            if not any(file.name in excluded for file in files):
                return version, files
    return -1, ()


def _gap(listing: LogListing, missing: int, target: int, base: int) -> LogGap | VersionNotFound:
    earliest = min(listing.checkpoints, default=None)
    if missing == 0 and earliest is not None and target < earliest:
        return VersionNotFound(
            f"Version {target} can no longer be read: the log was cleaned up below it",
            version=target,
            hint=f"The oldest version that can be read is {earliest}",
        )
    hint = None
    if listing.incomplete:
        hint = (
            f"Checkpoint part {listing.incomplete[0].name} is there but others of its parts are missing; restore them"
        )
    if missing == 0:
        first = min(listing.commits, default=target)
        gap = LogGap(f"The log starts at version {first} and has no usable checkpoint", version=target, hint=hint)
    else:
        told = f"Commit {missing} is missing, though the log goes on to {listing.latest}"
        gap = LogGap(told, version=target, hint=hint)
    gap.missing = missing
    return gap
