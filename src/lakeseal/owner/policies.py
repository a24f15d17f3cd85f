"""Policies: reasons for which an owner refuses a commit. Pure, but for what a callable of the user does.

A policy holds for the tables at or below a place (all, if it names none; `s3://b/t1` is not below `s3://b/t`). The
place is a path or a URI in any spelling: `prefix_of` makes it the one that tables are known by.
It looks at one commit and gives None, or the reason why not, which becomes `PolicyRefused` with the policy's name.
A refused commit leaves nothing that anybody could see. The commit that creates a table is looked at like any other.

What a policy sees is decoded: actions, never bytes. And it sees the log, not the data: it trusts what a commit says of
the files that it adds (their size, their number of rows, that they hold what they are said to replace), and it takes
nobody's word for what the table has already.

Built in: `AppendOnly`, `AllowedPrincipals`, `SchemaOnlyWidens`, `MaxFiles`, `MaxBytes`, `RequiredUserMetadata`, and
`Callback` for a function. `from_json` builds the first six from a configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import InvalidArgument, PolicyRefused
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.owner.content import Content
from lakeseal.protocol.actions import Action, AddCDCFile, AddFile, Metadata, RemoveFile
from lakeseal.protocol.data_paths import canonical_path, canonical_paths, is_absolute
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import (
    CHAR_VARCHAR,
    COLUMN_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from lakeseal.protocol.stats import TYPE_CHANGES

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
        actions: Sequence[Action],
        before: Callable[[], Snapshot | None],
    ) -> None:
        self.table = table
        self.version = version
        self.principal = principal
        self.data = data
        self.actions = actions
        self._before = before

    @cached_property
    def content(self) -> Content:
        return Content.of_actions(self.actions)

    @cached_property
    def before(self) -> Snapshot | None:
        """The table at the version before; None if this one creates it."""
        return self._before()

    @property
    def metadata_before(self) -> Metadata | None:
        return None if self.before is None else self.before.metadata


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
    """Rows are only added. Files may be rewritten as long as their rows stay, as `dataChange: false` says: what takes
    their place has as many rows at least, by its statistics, as the table knows of those that go. What the table knows
    of a file that stays, nobody changes: by that, rows would go in two commits, or not be found."""

    name = "append-only"

    def check(self, commit: ProposedCommit) -> str | None:
        if commit.before is None:
            return None
        changed = {_key(action): action for action in commit.actions if isinstance(action, AddFile | RemoveFile)}
        there = _live(commit.before, {path for path, _ in changed})
        live = {_key(old) for old in there}
        odd = next((one.path for key, one in changed.items() if key not in live and _takes_detour(one)), None)
        if odd is not None:
            return f"it removes {odd}, which some readers take for another file"
        gone = 0
        for old in there:
            new = changed.get(_key(old))
            if new is None:
                continue
            if isinstance(new, AddFile):
                if new.partition_values != old.partition_values:
                    return f"it changes the partition of the rows in the file {old.path}"
                if new.size != old.size or _known_of(new) != _known_of(old):
                    return f"it changes what is known of the rows in the file {old.path}"
                continue
            if new.data_change:
                return f"it removes rows, with the file {old.path}"
            rows = _rows(old)
            if rows is None:
                return f"it removes the file {old.path}, of which the table does not know how many rows it has"
            gone += rows
        if not gone:
            return None
        counts = {canonical_path(old.path): _count(old) for old in there}
        come = sum(
            _rows(new, counts.get(path)) or 0
            for (path, _), new in changed.items()
            if isinstance(new, AddFile) and not new.data_change
        )
        return None if come >= gone else f"it removes {gone} rows, and what takes their place has {come}"


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
        after = commit.content.metadata
        before = None if after is None else commit.metadata_before
        if after is None or before is None:
            return None
        if after.partition_columns != before.partition_columns:
            return "it changes the partition columns"
        modes = [TableProperties.of(metadata).column_mapping_mode for metadata in (before, after)]
        if modes[0] != modes[1] and modes != ["none", "name"]:
            return f"it changes how columns are found in files, from {modes[0]} to {modes[1]}"
        return _narrowed(_struct(before), _struct(after), "")


class MaxFiles(_Policy, frozen=True, kw_only=True, tag="max-files"):
    """Files that one commit may add or remove."""

    limit: int
    name = "max-files"

    def check(self, commit: ProposedCommit) -> str | None:
        files = sum(isinstance(a, AddFile | RemoveFile | AddCDCFile) for a in commit.actions)
        return f"it has {files} files, and {self.limit} are allowed" if files > self.limit else None


class MaxBytes(_Policy, frozen=True, kw_only=True, tag="max-bytes"):
    """Bytes of data files that one commit may add, by the sizes that it says; rewritten files count like others."""

    limit: int
    name = "max-bytes"

    def check(self, commit: ProposedCommit) -> str | None:
        size = sum(a.size for a in commit.actions if isinstance(a, AddFile | AddCDCFile))
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


def check_commit(policies: Sequence[Policy], commit: ProposedCommit) -> None:
    """All of them, whatever tables they hold for."""
    for policy in policies:
        reason = policy.check(commit)
        if reason is not None:
            raise _refused(policy, "commit", reason, commit.table, commit.version)


def check_principal(policies: Sequence[Policy], *, table: str, principal: str | None, doing: Doing) -> None:
    for policy in policies:
        if isinstance(policy, AllowedPrincipals):
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
    return metadata.schema if metadata.schema_string else StructType()


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


def _other_meaning(before: StructField, after: StructField) -> str | None:
    """What the column's metadata says that decides on its values, and now says otherwise."""
    if before.physical_name != after.physical_name:
        return f"the name in files, from {before.physical_name} to {after.physical_name},"
    was, now = before.metadata, after.metadata
    for name in sorted(was.keys() | now.keys()):
        decides = (name.startswith("delta.") and name != TYPE_CHANGES) or name in (CHAR_VARCHAR, _EXISTS_DEFAULT)
        if not decides or was.get(name) == now.get(name):
            continue
        if name in _MAY_COME and name not in was:
            continue
        if name == CHAR_VARCHAR and _length(now.get(name)) >= _length(was.get(name)):
            continue
        return name
    return None


_EXISTS_DEFAULT = "EXISTS_DEFAULT"
_MAY_COME = (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS)
"""When columns begin to be mapped."""


def _length(text: object) -> float:
    """Of a char(n) or varchar(n); a plain string has any."""
    found = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    return float("inf") if found is None else int(found[1])


_LENGTH = re.compile(r"(?:var)?char\((\d{1,9})\)")


def _key(action: AddFile | RemoveFile) -> tuple[str, str | None]:
    """As the log knows the file."""
    vector = action.deletion_vector
    return canonical_path(action.path), None if vector is None else vector.unique_id


def _takes_detour(action: AddFile | RemoveFile) -> bool:
    """Spark's path of `./a` is that of `a`."""
    if not isinstance(action, RemoveFile) or is_absolute(action.path):
        return False
    return any(segment in ("", ".", "..") for segment in unquote(action.path).split("/"))


def _known_of(add: AddFile) -> Any:
    """By its statistics, however they are written."""
    try:
        said = msgspec.json.decode(add.stats or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return add.stats
    return {name: said.get(name) for name in _ROWS_SAID} if isinstance(said, dict) else said


_ROWS_SAID = ("numRecords", "minValues", "maxValues", "nullCount")


def _live(before: Snapshot, paths: Collection[str]) -> list[AddFile]:
    """The table's files at these paths."""
    if not paths:
        return []
    named = pa.array(sorted(paths), pa.string())
    return [*add_actions(before.files.filter(pc.is_in(canonical_paths(before.files["path"]), value_set=named)))]


def _rows(add: AddFile, count: int | None = None) -> int | None:
    """How many the file has, of `count` where that is known, without those that its deletion vector takes."""
    count = _count(add) if count is None else count
    if count is None:
        return None
    return max(0, count - (0 if add.deletion_vector is None else add.deletion_vector.cardinality))


def _count(add: AddFile) -> int | None:
    try:
        return typed_json.decode(add.stats or "{}", _Count).num_records
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


class _Count(Struct, rename="camel"):
    num_records: int | None = None


def _narrowed_struct(before: StructType, after: StructType, where: str) -> str | None:
    prefix = f"{where}." if where else ""
    names = [field.physical_name for field in after.fields]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        return f"it has two columns that are {doubled} in files"
    for field in before.fields:
        there = after.field(field.name)
        if there is None or there.name != field.name:
            return f"it drops the column {prefix}{field.name}"
        told = _other_meaning(field, there)
        if told is not None:
            return f"it changes {told} of the column {prefix}{field.name}"
        if field.nullable and not there.nullable:
            return f"it makes the column {prefix}{field.name} not nullable"
        found = _narrowed(field.type, there.type, prefix + field.name)
        if found is not None:
            return found
    added = next((f for f in after.fields if not f.nullable and before.field(f.name) is None), None)
    return None if added is None else f"it adds the column {prefix}{added.name}, which no row has and which is not null"
