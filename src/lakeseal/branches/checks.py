"""Checks before a merge: reasons for which a destination does not take it.

A check is any callable that gets a `MergeProposal` and gives None, or the reason why not. Rules are checks as values:
they are kept with a branch (`Protection.rules`) and so hold for every client. `run` asks one after the other; the first
that says no, or fails, becomes `CheckRefused` with its name, and nothing has changed.

Built in: `MaxRemoved`, `MaxChanges`, `RequiredMetadata`, `AllowedPaths`, `FileNames` and, for what is inside of Parquet
files, `RowsSatisfy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches.paths import directory
from lakeseal.branches.store import Check, MergeProposal
from lakeseal.errors import CheckRefused, InvalidArgument, LakesealError
from lakeseal.expr import bind_predicate, evaluate, parse
from lakeseal.protocol.arrow import from_arrow


class _Rule(Struct, frozen=True, kw_only=True, tag_field="rule", forbid_unknown_fields=True):
    """Holds for what changes below `directory`."""

    directory: str = ""

    def _changed(self, proposal: MergeProposal) -> Iterator[pa.Table]:
        prefix = directory(self.directory)
        for table in proposal.change_tables():
            found = table.filter(pc.starts_with(table["path"], prefix)) if prefix else table
            if len(found):
                yield found


class MaxRemoved(_Rule, frozen=True, kw_only=True, tag="max-removed"):
    """Files that one merge may remove."""

    limit: int
    name = "max-removed"

    def __call__(self, proposal: MergeProposal) -> str | None:
        count = sum(pc.sum(pc.equal(table["kind"], "removed")).as_py() or 0 for table in self._changed(proposal))
        return f"it removes {count} files, and {self.limit} are allowed" if count > self.limit else None


class MaxChanges(_Rule, frozen=True, kw_only=True, tag="max-changes"):
    """Files that one merge may add, change or remove."""

    limit: int
    name = "max-changes"

    def __call__(self, proposal: MergeProposal) -> str | None:
        count = sum(map(len, self._changed(proposal)))
        return f"it changes {count} files, and {self.limit} are allowed" if count > self.limit else None


class RequiredMetadata(_Rule, frozen=True, kw_only=True, tag="required-metadata"):
    """Keys that the source's commit, or the merge's, must have."""

    keys: tuple[str, ...]
    name = "required-metadata"

    def __call__(self, proposal: MergeProposal) -> str | None:
        there = {**proposal.source_commit.metadata, **proposal.metadata}
        missing = [key for key in self.keys if not there.get(key)]
        return f"its metadata lack {', '.join(missing)}" if missing else None


class AllowedPaths(_Rule, frozen=True, kw_only=True, tag="allowed-paths"):
    """Directories outside of which nothing may change."""

    directories: tuple[str, ...]
    name = "allowed-paths"

    def __call__(self, proposal: MergeProposal) -> str | None:
        prefixes = [directory(name) for name in self.directories]
        for table in self._changed(proposal):
            outside = pa.array([True] * len(table))
            for prefix in prefixes:
                outside = pc.and_(outside, pc.invert(pc.starts_with(table["path"], prefix)))
            found = table.filter(outside)
            if len(found):
                return f"it changes {found['path'][0].as_py()}, which is in none of {', '.join(self.directories)}"
        return None


class FileNames(_Rule, frozen=True, kw_only=True, tag="file-names"):
    """Patterns as of a shell, of which the name of each added file must match one."""

    patterns: tuple[str, ...]
    name = "file-names"

    def __call__(self, proposal: MergeProposal) -> str | None:
        for table in self._changed(proposal):
            for path in table.filter(pc.equal(table["kind"], "added"))["path"].to_pylist():
                if not any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in self.patterns):
                    return f"it adds {path}, whose name matches none of {', '.join(self.patterns)}"
        return None


class RowsSatisfy(_Rule, frozen=True, kw_only=True, tag="rows-satisfy"):
    """An SQL condition that must be TRUE for every row of the Parquet files that are added or changed."""

    sql: str
    name = "rows-satisfy"

    def __post_init__(self) -> None:
        parse(self.sql)

    def __call__(self, proposal: MergeProposal) -> str | None:
        for table in self._changed(proposal):
            kept = table.filter(pc.not_equal(table["kind"], "removed"))["path"]
            for path in kept.filter(pc.ends_with(kept, ".parquet")).to_pylist():
                bad = self._bad_rows(proposal, path)
                if bad:
                    return f"{bad} rows of {path} do not satisfy {self.sql}"
        return None

    def _bad_rows(self, proposal: MergeProposal, path: str) -> int:
        expression = parse(self.sql)
        wanted = {column[0].lower() for column in expression.columns}
        with proposal.open(path) as file, pq.ParquetFile(file) as parquet:
            names = [name for name in parquet.schema_arrow.names if name.lower() in wanted]
            schema = pa.schema([parquet.schema_arrow.field(name) for name in names])
            bound = bind_predicate(expression, from_arrow(schema))
            bad = 0
            for batch in parquet.iter_batches(columns=names or None):
                holds = evaluate(bound, batch)
                bad += len(batch) - (pc.sum(pc.fill_null(holds, False)).as_py() or 0)
            return bad


Rule = MaxRemoved | MaxChanges | RequiredMetadata | AllowedPaths | FileNames | RowsSatisfy


def rule_to_json(rule: Rule) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(rule)
    return written


def rules_from_json(rules: Iterable[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Such as `[{"rule": "max-removed", "limit": 1000, "directory": "out"}]`."""
    try:
        return tuple(typed_json.convert(list(rules), list[Rule]))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"these are no rules for merges: {error}") from None


def run(checks: Sequence[Check], proposal: MergeProposal) -> None:
    for check in checks:
        name = getattr(check, "name", None) or getattr(check, "__name__", None) or type(check).__name__
        try:
            reason = check(proposal)
        except CheckRefused as error:
            error.check = error.check or name
            raise
        except Exception as error:
            raise _refused(name, proposal, _words(error)) from error
        if reason is not None and not isinstance(reason, str):
            reason = f"it answered {reason!r}, which is neither None nor a reason"
        if reason is not None:
            raise _refused(name, proposal, reason)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, LakesealError) else f"{type(error).__name__}: {error}"


def _refused(name: str, proposal: MergeProposal, reason: str) -> CheckRefused:
    error = CheckRefused(
        f"the check {name} refuses the merge of {proposal.source.name} into {proposal.dest.name}: {reason}"
    )
    error.check = name
    return error
