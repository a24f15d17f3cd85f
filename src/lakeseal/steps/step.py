"""`CommitStep`: one thing that must have happened once its sequence is committed.

What an implementer promises, and recovery relies on:

- A step is a frozen value and all of it is in its record; where it runs (stores, ledger, owners, credentials) comes
  from the `StepContext`.
- `verify` says whether the step has been done, by the identity of what it leaves behind (size and checksum, a
  transaction's id, a value), never by existence alone. It changes nothing.
- `execute` does it. It is called when `verify` said no, perhaps after an execution that was cut off anywhere, perhaps
  while another process does the same: doing it twice is the same as doing it once. It raises if it can't be done.
- A step that can take back what it did is `Undoable` too; then a sequence can be aborted after it has run. One that is
  cheaper to do together with its like is `Joinable`.

In a record a step is a JSON object with its `kind`, which is the Struct's tag. Kinds are looked up among those that
were registered, never imported by a name that a record gives.

    @register
    class Notify(CommitStep, frozen=True, kw_only=True, tag="notify"):
        address: str

        def verify(self, context): ...
        def execute(self, context): ...

Records are read in other processes too (the command line, Spark tasks). A package makes its kinds known there by an
entry point in the group `lakeseal.commit_steps`, named after the kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.errors import BrokenSequence, InvalidArgument, UnknownStep
from lakeseal.steps.places import Reach

if TYPE_CHECKING:
    from lakeseal.steps.context import StepContext

ENTRY_POINTS = "lakeseal.commit_steps"


class CommitStep(Struct, frozen=True, kw_only=True, tag_field="kind", tag="step"):
    """See the module."""

    def verify(self, context: StepContext) -> bool:
        raise NotImplementedError

    def execute(self, context: StepContext) -> None:
        raise NotImplementedError

    def reaches(self) -> Reach:
        """What it touches, for `places` to compare with what its pipeline owns; nothing that is known by default."""
        return Reach()

    def describe(self) -> str:
        """One line for people."""
        return kind_of(type(self))


@runtime_checkable
class Undoable(Protocol):
    def undo(self, context: StepContext) -> None:
        """Takes back what this step did, in whole or in part; what others did meanwhile stays as it is."""


@runtime_checkable
class Joinable(Protocol):
    """Steps that can be done together: neighbours of one class and one place are recorded as one."""

    @property
    def place(self) -> Hashable: ...

    @classmethod
    def joined(cls, steps: Sequence[Any]) -> CommitStep: ...


S = TypeVar("S", bound=CommitStep)

_kinds: dict[str, type[CommitStep]] = {}
# Of this package; imported when a record first names one.
_BUILT_IN = {
    "fs-rename": "lakeseal.steps.fs_rename",
    "high-watermark": "lakeseal.steps.high_watermark",
    "table-commit": "lakeseal.steps.table_commit",
    "branch-merge": "lakeseal.steps.branch_merge",
    # Of rooms above: what they need to read and write rows is there.
    "table-merge": "lakeseal.ingest.table_merge_step",
}


class _Kind(Struct):
    kind: str


def kind_of(step: type[CommitStep]) -> str:
    return str(step.__struct_config__.tag)


def register(step: type[S]) -> type[S]:
    """Makes a kind of step known to whoever reads records in this process. A kind belongs to one class."""
    kind = kind_of(step)
    known = _kinds.setdefault(kind, step)
    if known is not step and (known.__module__, known.__qualname__) != (step.__module__, step.__qualname__):
        raise InvalidArgument(f"Steps of the kind {kind!r} are {known.__qualname__}", hint="Choose another tag")
    _kinds[kind] = step
    return step


def encode(step: CommitStep) -> bytes:
    """The step's record. Its kind must be registered, or nobody could read it."""
    if _kinds.get(kind_of(type(step))) is not type(step):
        raise InvalidArgument(
            f"{type(step).__qualname__} is not registered as a step of the kind {kind_of(type(step))!r}",
            hint="Decorate the class with lakeseal.steps.register",
        )
    try:
        return msgspec.json.encode(step)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidArgument(f"The step {type(step).__qualname__} can't be written as JSON: {error}") from None


def decode(record: bytes | msgspec.Raw) -> CommitStep:
    try:
        kind = typed_json.decode(record, _Kind).kind
        return typed_json.decode(record, _class_of(kind))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenSequence(f"The record of a step is malformed: {error}") from None


def _class_of(kind: str) -> type[CommitStep]:
    if kind not in _kinds and kind in _BUILT_IN:
        importlib.import_module(_BUILT_IN[kind])
    if kind not in _kinds:
        for entry in metadata.entry_points(group=ENTRY_POINTS, name=kind):
            register(entry.load())
    if kind not in _kinds:
        raise UnknownStep(
            f"There is no kind of step {kind!r} here",
            hint=f"Import what registers it, or install its package (entry point group {ENTRY_POINTS})",
        )
    return _kinds[kind]
