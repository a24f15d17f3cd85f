"""`FileStepStore`: sequences as files in an object store or on a disk. The contract is that of `store`.

    <store>/name.json                       what the store is called
    <store>/<dataset>/name.json             what the dataset is called
    <store>/<dataset>/<number>.entry        what became of the dataset: the highest number is how it is now

`<store>` and `<dataset>` are hashes, so any name will do and no two meet. An entry is one line of JSON, and behind it
the steps where it records a sequence; later entries say in which number the steps are. Each entry is put only if there
is none of its number: that is the compare-and-set, and its one winner decides.

Older entries are removed. So somebody very late may find a low number free; what it puts there counts only if nothing
is above it, which it looks for after putting.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lakeseal import typed_json
from lakeseal.clock import now_ms
from lakeseal.errors import (
    AlreadyExists,
    BrokenSequence,
    ConcurrentWriteException,
    Fenced,
    InvalidArgument,
    ObjectNotFound,
    StorageUnavailable,
)
from lakeseal.ledger import key as hashed
from lakeseal.steps.sequence import CommitSequence, SequenceRecord
from lakeseal.steps.store import SequenceState, SequenceStatus
from lakeseal.storage import Store

_NAME = "name.json"
_DIGITS = 20
_ENDING = ".entry"
_SIDE_BY_SIDE = 16
_ATTEMPTS = 100
_FIRST_LINE = 16384
_LONGEST_REASON = 4000
_REMEMBERED = 32

T = TypeVar("T")


class _Name(Struct, frozen=True):
    name: str


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a dataset stands. `id` tells a writer that lost its reply whether the entry is its own."""

    id: str
    before: tuple[str, ...] = ()
    """The ids of those that it was built on, the last one first; the oldest are left out."""
    store: str
    dataset: str
    state: SequenceState | None
    """None: it has no sequence."""
    epoch: int
    steps: int = 0
    """The number of the entry behind which the steps are."""
    count: int = 0
    checksum: str = ""
    tries: int = 0
    reason: str | None = None
    created_ms: int = 0
    updated_ms: int = 0


class _Found(Struct, frozen=True, kw_only=True):
    number: int
    entry: _Entry


Change = Callable[[_Entry], "_Entry | None"]
"""What is to become of a dataset; None leaves it as it is."""


class FileStepStore:
    """May be shared by threads."""

    def __init__(self, root: Store) -> None:
        self._root = root
        self._created: set[str] = set()

    def create(self, store: str) -> bool:
        if store in self._created:
            return False
        is_new = self._root.put_if_absent(f"{hashed(store)}/{_NAME}", msgspec.json.encode(_Name(store)))
        self._created.add(store)
        return is_new

    def stores(self) -> list[str]:
        keys = [meta.key for meta in self._root.list(recursive=True)]
        named = [key for key in keys if key.endswith("/" + _NAME) and key.count("/") == 1]
        return sorted(_decoded(data, _Name).name for data in self._root.get_many(named))

    def exists(self, store: str, dataset: str | None = None) -> bool:
        if dataset is not None:
            return self.status(store, dataset) is not None
        return _get(self._root, f"{hashed(store)}/{_NAME}") is not None

    def statuses(self, store: str) -> list[SequenceStatus]:
        newest: dict[str, str] = {}
        for meta in self._root.list(f"{hashed(store)}/", recursive=True):
            directory, _, name = meta.key.rpartition("/")
            if _number(name) is not None:
                newest[directory] = meta.key  # ascending, so the last one stands
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="lakeseal-get") as pool:
            entries = list(pool.map(self._entry, newest.values()))
        found = [_status(entry) for entry in entries if entry is not None and entry.state is not None]
        return sorted(found, key=lambda status: status.dataset)

    def status(self, store: str, dataset: str) -> SequenceStatus | None:
        entry = self._now(store, dataset).entry
        return None if entry.state is None else _status(entry)

    def claim(self, store: str, datasets: Iterable[str], epoch: int) -> None:
        self.create(store)

        def claimed(entry: _Entry) -> _Entry | None:
            _check_epoch(entry, epoch)
            return replace(entry, epoch=epoch) if entry.epoch < epoch else None

        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="lakeseal-claim") as pool:
            list(pool.map(lambda dataset: self._change(store, dataset, claimed), sorted(set(datasets))))

    def put(self, sequence: CommitSequence) -> None:
        record = sequence.record()
        store, dataset = sequence.store, sequence.dataset
        self.create(store)

        def recorded(entry: _Entry) -> _Entry | None:
            if entry.checksum == record.checksum:
                return None
            _check_epoch(entry, sequence.epoch)
            if entry.state is not None:
                raise AlreadyExists(
                    f"{dataset!r} has a sequence in {store!r} already, which is {entry.state.value.replace('_', ' ')}",
                    hint="Finish it first: recovery does, or lakeseal steps retry | abort",
                )
            return replace(
                entry,
                state=SequenceState.OPEN,
                epoch=sequence.epoch,
                count=record.count,
                checksum=record.checksum,
                tries=0,
                reason=None,
                created_ms=now_ms(),
            )

        self._change(store, dataset, recorded, payload=record.payload)

    def get_commit_sequence(self, store: str, dataset: str) -> CommitSequence | None:
        for _ in range(_ATTEMPTS):
            found = self._now(store, dataset)
            entry = found.entry
            if entry.state is None:
                return None
            data = _get(self._root, _key(store, dataset, entry.steps)) if entry.steps else None
            if data is not None:
                payload = data.partition(b"\n")[2]
                record = SequenceRecord(payload=payload, count=entry.count, checksum=entry.checksum)
                return record.sequence(store, dataset)
            if self._now(store, dataset).number == found.number:  # else it was finished while we looked
                break
        raise BrokenSequence(entry.reason or f"The record of {dataset!r} in {store!r} is broken: its steps are missing")

    def note(
        self,
        store: str,
        dataset: str,
        *,
        checksum: str,
        epoch: int,
        state: SequenceState = SequenceState.OPEN,
        tries: int = 0,
        reason: str | None = None,
    ) -> bool:
        def noted(entry: _Entry) -> _Entry | None:
            if entry.state is None or entry.checksum != checksum:
                return None
            _check_epoch(entry, epoch)
            why = None if reason is None else reason[:_LONGEST_REASON]
            return replace(entry, state=state, epoch=epoch, tries=tries, reason=why)

        return self._change(store, dataset, noted)

    def remove(self, store: str, dataset: str, *, checksum: str, epoch: int) -> bool:
        def removed(entry: _Entry) -> _Entry | None:
            if entry.state is None or entry.checksum != checksum:
                return None
            _check_epoch(entry, epoch)
            return replace(entry, state=None, epoch=epoch, steps=0, count=0, checksum="", tries=0, reason=None)

        return self._change(store, dataset, removed)

    def remove_store(self, store: str) -> bool:
        if self.statuses(store):
            raise AlreadyExists(f"{store!r} holds sequences", hint="Finish or abort them first")
        keys = [meta.key for meta in self._root.list(f"{hashed(store)}/", recursive=True)]
        self._created.discard(store)
        self._root.delete(keys)
        return bool(keys)

    def _change(self, store: str, dataset: str, change: Change, payload: bytes = b"") -> bool:
        """Whether it was changed. Decides again from the start whenever somebody else was faster."""
        for _ in range(_ATTEMPTS):
            now = self._now(store, dataset)
            wanted = change(now.entry)
            if wanted is None:
                return False
            number = now.number + 1
            if number == 1:
                self._root.put_if_absent(f"{_directory(store, dataset)}/{_NAME}", msgspec.json.encode(_Name(dataset)))
            entry = replace(
                wanted,
                id=uuid.uuid4().hex,
                before=(now.entry.id, *now.entry.before)[:_REMEMBERED],
                steps=number if payload else wanted.steps,
                updated_ms=now_ms(),
            )
            if self._put(number, entry, payload):
                return True
        raise _restless(store, dataset)

    def _put(self, number: int, entry: _Entry, payload: bytes) -> bool:
        store, dataset = entry.store, entry.dataset
        key = _key(store, dataset, number)
        if not self._won(key, entry, payload):
            return False
        for _ in range(_ATTEMPTS):
            numbers = self._numbers(store, dataset)
            if not numbers or numbers[-1] <= number:
                self._root.delete([_key(store, dataset, one) for one in numbers if one < number and one != entry.steps])
                return True
            newest = self._entry(_key(store, dataset, numbers[-1]))
            if newest is None:
                continue  # there is a newer one by now
            if entry.id in newest.before:
                return True  # others have built on it already
            # We came very late, and this number had been free again.
            self._root.delete([key])
            return False
        raise _restless(store, dataset)

    def _won(self, key: str, entry: _Entry, payload: bytes) -> bool:
        """Put-if-absent; a lost reply is settled by looking whose entry is there."""
        try:
            return self._root.put_if_absent(key, msgspec.json.encode(entry) + b"\n" + payload)
        except StorageUnavailable:
            found = self._entry(key)
            if found is None:
                raise
            return found.id == entry.id

    def _now(self, store: str, dataset: str) -> _Found:
        for _ in range(_ATTEMPTS):
            numbers = self._numbers(store, dataset)
            if not numbers:
                nothing = _Entry(id="", store=store, dataset=dataset, state=None, epoch=0)
                return _Found(number=0, entry=nothing)
            entry = self._entry(_key(store, dataset, numbers[-1]), dataset)
            if entry is not None:  # else there is a newer one by now
                return _Found(number=numbers[-1], entry=entry)
        raise _restless(store, dataset)

    def _entry(self, key: str, dataset: str | None = None) -> _Entry | None:
        """None if there is none. A broken one reads as a sequence that is set aside for being broken."""
        try:
            line, newline, _ = self._root.get_range(key, 0, _FIRST_LINE).partition(b"\n")
            if not newline:
                line, newline, _ = self._root.get(key).partition(b"\n")
        except ObjectNotFound:
            return None
        try:
            entry = _decoded(line, _Entry)
            if newline and _directory(entry.store, entry.dataset) == key.rpartition("/")[0]:
                return entry
            why = "it is cut off" if not newline else "it is of another dataset"
        except BrokenSequence as error:
            why = error.message
        directory = key.rpartition("/")[0]
        return _Entry(
            id="",
            store=self._name(directory.partition("/")[0]),
            dataset=self._name(directory) if dataset is None else dataset,
            state=SequenceState.SET_ASIDE,
            epoch=0,
            reason=f"The record {key} in {self._root.uri} is broken: {why}",
        )

    def _name(self, directory: str) -> str:
        try:
            return _decoded(self._root.get(f"{directory}/{_NAME}"), _Name).name
        except (ObjectNotFound, BrokenSequence):
            return directory.rpartition("/")[2]

    def _numbers(self, store: str, dataset: str) -> list[int]:
        keys = self._root.list_keys(_directory(store, dataset) + "/")
        return [number for key in keys if (number := _number(key.rpartition("/")[2])) is not None]


def _get(root: Store, key: str) -> bytes | None:
    try:
        return root.get(key)
    except ObjectNotFound:
        return None


def _decoded(data: bytes, cls: type[T]) -> T:
    try:
        return typed_json.decode(data, cls)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenSequence(str(error) if data else "it is empty") from None


def _directory(store: str, dataset: str) -> str:
    return f"{hashed(store)}/{hashed(dataset)}"


def _key(store: str, dataset: str, number: int) -> str:
    return f"{_directory(store, dataset)}/{number:0{_DIGITS}}{_ENDING}"


def _number(name: str) -> int | None:
    stem = name.removesuffix(_ENDING)
    return int(stem) if stem != name and len(stem) == _DIGITS and stem.isdecimal() else None


def _check_epoch(entry: _Entry, epoch: int) -> None:
    if entry.epoch > epoch:
        raise Fenced(
            f"{entry.dataset!r} in {entry.store!r} has been claimed under epoch {entry.epoch}, and this run has epoch "
            f"{epoch}"
        )


def _status(entry: _Entry) -> SequenceStatus:
    if entry.state is None:
        raise InvalidArgument(f"{entry.dataset!r} has no sequence in {entry.store!r}")
    return SequenceStatus(
        store=entry.store,
        dataset=entry.dataset,
        state=entry.state,
        epoch=entry.epoch,
        count=entry.count,
        checksum=entry.checksum,
        tries=entry.tries,
        reason=entry.reason,
        created_ms=entry.created_ms,
        updated_ms=entry.updated_ms,
    )


def _restless(store: str, dataset: str) -> ConcurrentWriteException:
    return ConcurrentWriteException(f"Others kept changing {dataset!r} in {store!r}", hint="Run it again")
