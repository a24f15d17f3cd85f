"""Policies: reasons for which an owner refuses a commit. Pure, but for what a callable of the user does.

A policy holds for the tables below a prefix of their URI (all, if it has none; `s3://b/t1` is not below `s3://b/t`).
It looks at one commit and gives None, or the reason why not, which becomes `PolicyRefused` with the policy's name.
A refused commit leaves nothing that anybody could see.

Built in: `AppendOnly`, `AllowedPrincipals`, `SchemaOnlyWidens`, `MaxFiles`, `MaxBytes`, `RequiredUserMetadata`, and
`Callback` for a function. `from_json` builds the first six from a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, PolicyRefused
from lakeseal.owner.enablement import Content
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, Metadata, RemoveFile
from lakeseal.protocol.codec import decode
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

Doing = Literal["commit", "create", "take over", "release"]


class ProposedCommit:
    """A commit as policies see it. What costs time is worked out when it is asked for."""

    def __init__(
        self,
        *,
        table: str,
        version: int,
        principal: str | None,
        data: bytes,
        before: Callable[[], Metadata | None] = lambda: None,
    ) -> None:
        self.table = table
        self.version = version
        self.principal = principal
        self.data = data
        self._before = before

    @cached_property
    def actions(self) -> Sequence[Action]:
        return decode(self.data)

    @cached_property
    def content(self) -> Content:
        return Content.of(self.data)

    @cached_property
    def metadata_before(self) -> Metadata | None:
        """Of the table at the version before; None if this one creates it."""
        return self._before()


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def tables(self) -> str:
        """The prefix of the tables that it holds for; empty for all."""

    def check(self, commit: ProposedCommit) -> str | None: ...


class _Policy(Struct, frozen=True, kw_only=True, tag_field="policy", forbid_unknown_fields=True):
    tables: str = ""


class AppendOnly(_Policy, frozen=True, kw_only=True, tag="append-only"):
    """Rows are only added. Files may be rewritten as long as their rows stay."""

    name = "append-only"

    def check(self, commit: ProposedCommit) -> str | None:
        if b'"remove"' not in commit.data:
            return None
        removed = next((a for a in commit.actions if isinstance(a, RemoveFile) and a.data_change), None)
        return None if removed is None else f"it removes rows, with the file {removed.path}"


class AllowedPrincipals(_Policy, frozen=True, kw_only=True, tag="allowed-principals"):
    """Only these may commit, take over and release."""

    principals: frozenset[str]
    name = "allowed-principals"

    def check(self, commit: ProposedCommit) -> str | None:
        return self.check_principal(commit.principal)

    def check_principal(self, principal: str | None) -> str | None:
        return None if principal in self.principals else f"{principal or 'an unnamed client'} may not do that"


class SchemaOnlyWidens(_Policy, frozen=True, kw_only=True, tag="schema-only-widens"):
    """Columns may be added and become nullable or wider; none may go, change its name or its meaning."""

    name = "schema-only-widens"

    def check(self, commit: ProposedCommit) -> str | None:
        after, before = commit.content.metadata, None
        if after is not None:
            before = commit.metadata_before
        if after is None or before is None or before.schema_string == after.schema_string:
            return None
        if after.partition_columns != before.partition_columns:
            return "it changes the partition columns"
        return _narrowed(_struct(before), _struct(after), "")


class MaxFiles(_Policy, frozen=True, kw_only=True, tag="max-files"):
    """Files that one commit may add or remove."""

    limit: int
    name = "max-files"

    def check(self, commit: ProposedCommit) -> str | None:
        if commit.data.count(b"\n") <= self.limit:
            return None
        files = sum(isinstance(a, AddFile | RemoveFile | AddCDCFile) for a in commit.actions)
        return f"it has {files} files, and {self.limit} are allowed" if files > self.limit else None


class MaxBytes(_Policy, frozen=True, kw_only=True, tag="max-bytes"):
    """Bytes of data files that one commit may add."""

    limit: int
    name = "max-bytes"

    def check(self, commit: ProposedCommit) -> str | None:
        size = sum(a.size for a in commit.actions if isinstance(a, AddFile) and a.data_change)
        return f"it adds {size} bytes, and {self.limit} are allowed" if size > self.limit else None


class RequiredUserMetadata(_Policy, frozen=True, kw_only=True, tag="required-user-metadata"):
    """`userMetadata` must be there and, where keys are named, be a JSON object with all of them."""

    keys: tuple[str, ...] = ()
    name = "required-user-metadata"

    def check(self, commit: ProposedCommit) -> str | None:
        info = commit.content.info
        said = None if info is None else info.user_metadata
        if not isinstance(said, str) or not said.strip():
            return "it has no user metadata"
        if not self.keys:
            return None
        try:
            value = msgspec.json.decode(said)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
        missing = [key for key in self.keys if not isinstance(value, dict) or value.get(key) in (None, "")]
        return f"its user metadata lacks {', '.join(missing)}" if missing else None


class Callback:
    """A function of the user: it gets the commit and gives None, or the reason why not."""

    def __init__(self, name: str, function: Callable[[ProposedCommit], str | None], *, tables: str = "") -> None:
        self.name = name
        self.tables = tables
        self._function = function

    def check(self, commit: ProposedCommit) -> str | None:
        return self._function(commit)


BuiltIn = AppendOnly | AllowedPrincipals | SchemaOnlyWidens | MaxFiles | MaxBytes | RequiredUserMetadata


def from_json(configured: Iterable[Mapping[str, Any]]) -> tuple[Policy, ...]:
    """Such as `[{"policy": "max-files", "limit": 1000, "tables": "s3://bucket/raw"}]`."""
    try:
        return tuple(typed_json.convert(list(configured), list[BuiltIn]))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"This is no configuration of policies: {error}") from None


def is_below(table: str, prefix: str) -> bool:
    stem = prefix.rstrip("/")
    return not stem or table == stem or table.startswith(stem + "/")


def check_commit(policies: Sequence[Policy], commit: ProposedCommit) -> None:
    for policy in policies:
        if is_below(commit.table, policy.tables):
            reason = policy.check(commit)
            if reason is not None:
                raise _refused(policy, "commit", reason, commit.table, commit.version)


def check_principal(policies: Sequence[Policy], *, table: str, principal: str | None, doing: Doing) -> None:
    for policy in policies:
        if isinstance(policy, AllowedPrincipals) and is_below(table, policy.tables):
            reason = policy.check_principal(principal)
            if reason is not None:
                raise _refused(policy, doing, reason, table, None)


def _refused(policy: Policy, doing: Doing, reason: str, table: str, version: int | None) -> PolicyRefused:
    error = PolicyRefused(
        f"The policy {policy.name} refuses this {doing.replace(' ', '-')}: {reason}",
        table=table,
        version=version,
        hint="Nothing was committed. Change the write, or ask whoever set the policy of the table's owner",
    )
    error.policy = policy.name
    return error


def _struct(metadata: Metadata) -> StructType:
    return StructType.from_json(metadata.schema_string or '{"type":"struct","fields":[]}')


# Each type with those that hold all of its values.
_WIDER: dict[str, frozenset[str]] = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}


def _narrowed(before: DataType, after: DataType, where: str) -> str | None:
    """What became narrower; None if nothing did. `where` is the column's dotted path."""
    match before, after:
        case StructType(), StructType():
            return _narrowed_struct(before, after, where)
        case ArrayType(), ArrayType():
            if before.contains_null and not after.contains_null:
                return f"it makes the elements of {where} not nullable"
            return _narrowed(before.element, after.element, f"{where}.element")
        case MapType(), MapType():
            if before.value_contains_null and not after.value_contains_null:
                return f"it makes the values of {where} not nullable"
            return _narrowed(before.key, after.key, f"{where}.key") or _narrowed(
                before.value, after.value, f"{where}.value"
            )
        case PrimitiveType(name=was), PrimitiveType(name=now) if now in _WIDER.get(was, ()):
            return None
        case DecimalType(), DecimalType():
            digits = after.precision - after.scale >= before.precision - before.scale
            if digits and after.scale >= before.scale:
                return None
    return None if before == after else f"it changes the type of {where} from {before} to {after}"


def _narrowed_struct(before: StructType, after: StructType, where: str) -> str | None:
    prefix = f"{where}." if where else ""
    for field in before.fields:
        there = after.field(field.name)
        if there is None:
            return f"it drops the column {prefix}{field.name}"
        if field.nullable and not there.nullable:
            return f"it makes the column {prefix}{field.name} not nullable"
        found = _narrowed(field.type, there.type, prefix + field.name)
        if found is not None:
            return found
    added = next((f for f in after.fields if not f.nullable and before.field(f.name) is None), None)
    return None if added is None else f"it adds the column {prefix}{added.name}, which no row has and which is not null"
