"""`CommitSequence`: the steps that publish one dataset's next piece, in order, as one record.

    sequence = (
        CommitSequence.builder("clicks", "urn:events", epoch=turn.epoch)
        .add(FsRenameCommitStep(...))
        .add(HighWatermarkCommitStep(...))
        .then_remove("s3://lake/task-output", "run-7/events/")
        .build()
    )
    sequence.commit(store, context)

- `commit` records the sequence, whole, before its first step runs, and then does what `finish` does.
- `finish` is for a sequence that is recorded: it verifies each step in order and executes what has not been done; then
  removes the task output; then, last, the record. Anybody may finish a sequence, at any time, several at once.
- Both look first whether all of it is in the pipeline's own places, where the context says which these are.
- If they raise, the record is there (or was never accepted: `AlreadyExists`, `Fenced`), and recovery goes on from it.
  Nothing is undone.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from lakeseal import typed_json
from lakeseal.clock import now_ms
from lakeseal.errors import BrokenSequence, Fenced, InvalidArgument
from lakeseal.steps import step as step_codec
from lakeseal.steps.step import CommitStep, Joinable
from lakeseal.storage import HasDirectories

if TYPE_CHECKING:
    from lakeseal.steps.context import StepContext
    from lakeseal.steps.store import CommitStepStore

_DELETE_AT_ONCE = 1000


class Leftover(Struct, frozen=True, kw_only=True):
    """What is removed once all steps are done: every object below `prefix` in the store at `uri`."""

    uri: str
    prefix: str

    def __post_init__(self) -> None:
        if not self.prefix.strip("/") or not self.prefix.endswith("/"):
            raise InvalidArgument(
                f"{self.prefix!r} can't be removed from {self.uri}", hint="Name a directory below it, ending in '/'"
            )

    def remove(self, context: StepContext) -> None:
        store = context.store(self.uri)
        keys = [entry.key for entry in store.list(self.prefix, recursive=True)]
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            store.delete(keys[start : start + _DELETE_AT_ONCE])
        if isinstance(store, HasDirectories):
            store.prune(self.prefix)


class Replayed(Struct, frozen=True, kw_only=True):
    """What committing a sequence took."""

    verified: int
    """Steps that had been done before."""
    executed: int


class CommitSequence(Struct, frozen=True, kw_only=True):
    """See the module. Made by `builder`, or read from a store."""

    store: str
    dataset: str
    epoch: int
    """Of the run that made it."""
    sequence_id: str
    created_ms: int
    steps: tuple[CommitStep, ...]
    leftovers: tuple[Leftover, ...] = ()
    checksum: str = ""
    """Of the record that it was read from; a sequence that was built has none yet."""

    @staticmethod
    def builder(store: str, dataset: str, *, epoch: int = 0) -> SequenceBuilder:
        return SequenceBuilder(store, dataset, epoch)

    def commit(self, store: CommitStepStore, context: StepContext) -> Replayed:
        context.check_places(self)
        store.put(self)
        return self.finish(store, context)

    def finish(self, store: CommitStepStore, context: StepContext) -> Replayed:
        """Under the context's turn, which may be later than the sequence's. `Fenced` if it is not recorded any more:
        others have finished or aborted it."""
        # Not the checksum of what would be written now: a later version may write the same steps in other words.
        checksum = self.checksum or self.record().checksum
        status = store.status(self.store, self.dataset)
        if status is None or status.checksum != checksum:
            raise Fenced(f"The sequence of {self.dataset!r} is not recorded in {self.store!r} any more")
        replayed = self.replay(context)
        for leftover in self.leftovers:
            leftover.remove(context)
        epoch = self.epoch if context.turn is None else context.turn.epoch
        store.remove(self.store, self.dataset, checksum=checksum, epoch=epoch)
        return replayed

    def replay(self, context: StepContext) -> Replayed:
        """The steps only: verify each, execute what is missing."""
        context.check_places(self)
        executed = 0
        for step in self.steps:
            if not step.verify(context):
                step.execute(context)
                executed += 1
        return Replayed(verified=len(self.steps) - executed, executed=executed)

    def record(self) -> SequenceRecord:
        return SequenceRecord.of(self)


class SequenceBuilder:
    def __init__(self, store: str, dataset: str, epoch: int) -> None:
        self._store = store
        self._dataset = dataset
        self._epoch = epoch
        self._steps: list[CommitStep] = []
        self._leftovers: list[Leftover] = []

    def add(self, *steps: CommitStep) -> SequenceBuilder:
        """Steps that can be done together become one."""
        self._steps += steps
        return self

    def then_remove(self, uri: str, prefix: str) -> SequenceBuilder:
        """Task output to remove after the last step."""
        self._leftovers.append(Leftover(uri=uri, prefix=prefix))
        return self

    def build(self) -> CommitSequence:
        if not self._steps:
            raise InvalidArgument(f"The sequence of {self._dataset!r} has no steps", hint="Record only what is to do")
        return CommitSequence(
            store=self._store,
            dataset=self._dataset,
            epoch=self._epoch,
            sequence_id=str(uuid.uuid4()),
            created_ms=now_ms(),
            steps=tuple(_joined(self._steps)),
            leftovers=tuple(self._leftovers),
        )


def _joined(steps: Iterable[CommitStep]) -> Iterator[CommitStep]:
    def place(step: CommitStep) -> Hashable:
        return (type(step), step.place) if isinstance(step, Joinable) else id(step)

    for _, group in groupby(steps, key=place):
        first, *rest = group
        yield first.joined([first, *rest]) if rest and isinstance(first, Joinable) else first


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sequence as it is written. Steps are decoded one by one, by their kinds."""

    version: int
    store: str
    dataset: str
    epoch: int
    sequence_id: str
    created_ms: int
    steps: tuple[msgspec.Raw, ...]
    leftovers: tuple[Leftover, ...]


class SequenceRecord(Struct, frozen=True, kw_only=True):
    """The durable form of a sequence: bytes, with the count and the checksum that prove them whole."""

    payload: bytes
    count: int
    checksum: Annotated[str, Meta(max_length=128)]

    @classmethod
    def of(cls, sequence: CommitSequence) -> SequenceRecord:
        record = _Record(
            version=1,
            store=sequence.store,
            dataset=sequence.dataset,
            epoch=sequence.epoch,
            sequence_id=sequence.sequence_id,
            created_ms=sequence.created_ms,
            steps=tuple(msgspec.Raw(step_codec.encode(step)) for step in sequence.steps),
            leftovers=sequence.leftovers,
        )
        try:
            payload = msgspec.json.encode(record)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise InvalidArgument(f"The sequence of {sequence.dataset!r} can't be written as JSON: {error}") from None
        return cls(payload=payload, count=len(sequence.steps), checksum=checksum(payload))

    def check(self, store: str, dataset: str) -> int:
        """Its epoch. `BrokenSequence` unless this is, whole, the record of that dataset; what its steps are is not
        looked at."""
        return self._read(store, dataset).epoch

    def _read(self, store: str, dataset: str) -> _Record:
        if checksum(self.payload) != self.checksum:
            raise BrokenSequence(
                f"The record of {dataset!r} in {store!r} is not what was written: its checksum differs"
            )
        try:
            record = typed_json.decode(self.payload, _Record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BrokenSequence(f"The record of {dataset!r} in {store!r} is malformed: {error}") from None
        if record.version != 1 or (record.store, record.dataset) != (store, dataset):
            raise BrokenSequence(f"The record of {dataset!r} in {store!r} is of something else")
        if len(record.steps) != self.count:
            raise BrokenSequence(
                f"The record of {dataset!r} in {store!r} has {len(record.steps)} steps of {self.count}"
            )
        return record

    def sequence(self, store: str, dataset: str) -> CommitSequence:
        """`BrokenSequence` as `check`; `UnknownStep` for a kind that is not known here."""
        record = self._read(store, dataset)
        return CommitSequence(
            store=store,
            dataset=dataset,
            epoch=record.epoch,
            sequence_id=record.sequence_id,
            created_ms=record.created_ms,
            steps=_decoded(record.steps),
            leftovers=record.leftovers,
            checksum=self.checksum,
        )


def checksum(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def _decoded(steps: Iterable[msgspec.Raw]) -> tuple[CommitStep, ...]:
    return tuple(step_codec.decode(step) for step in steps)
