"""`FsRenameCommitStep`: files of the task output get their names in the job output.

One step holds any number of files between two stores, as rows of four in its record, so a sequence of 100,000 renames
is one step and one record. Each file is known by its size and by a checksum of its content:

- It has been renamed when the target is there with that content. A target with another content, such as half a copy,
  is not it, and is replaced in one step.
- A source is moved only if it has that content. Where neither has it, the step can't be done and says so.
- Where the store can't move an object by itself (another device, bucket or kind of store), the bytes are copied, the
  target appears whole, and the source is deleted afterwards.

Targets are the step's own: their names must not be used by anything else, so a job gives every file a unique name.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from msgspec import Struct

from lakeseal.errors import InvalidArgument, ObjectNotFound, StepImpossible
from lakeseal.steps.context import StepContext
from lakeseal.steps.places import Reach
from lakeseal.steps.step import CommitStep, register
from lakeseal.storage import MovesObjects, Store, StoreSpec

_PIECE = 8 << 20
_CHUNK = 500
_SMALL = 64 << 10
_WORTH_A_LISTING = 32
_CHECKSUM_DIGITS = 32

T = TypeVar("T")
R = TypeVar("R")

# Who looks at small files on a disk does little but Python. Threads that do so at once spend most of their time in
# handing the interpreter to each other: four times the time of one thread, for files that are in memory.
_one_at_a_time = threading.Lock()


class Rename(Struct, frozen=True, array_like=True):
    source: str
    """A key in the step's source."""
    target: str
    """A key in the step's target."""
    size: int
    checksum: str
    """As `checksum_of` makes it."""


@register
class FsRenameCommitStep(CommitStep, frozen=True, kw_only=True, tag="fs-rename"):
    source: str
    """The URI of the store that the sources are in."""
    target: str
    files: tuple[Rename, ...]

    def __post_init__(self) -> None:
        if len({file.target for file in self.files}) != len(self.files):
            raise InvalidArgument("Two files of a step would get the same name", hint="Give every file its own name")

    @classmethod
    def of(cls, source: str, target: str, files: Iterable[Rename]) -> FsRenameCommitStep:
        """With URIs that mean the same in other processes."""
        return cls(source=StoreSpec(uri=source).uri, target=StoreSpec(uri=target).uri, files=tuple(files))

    @property
    def place(self) -> tuple[str, str]:
        return self.source, self.target

    @classmethod
    def joined(cls, steps: Sequence[FsRenameCommitStep]) -> FsRenameCommitStep:
        source, target = steps[0].place
        return cls(source=source, target=target, files=tuple(file for step in steps for file in step.files))

    def verify(self, context: StepContext) -> bool:
        store = context.store(self.target)
        # The first few tell, nearly always, that nothing has been done yet.
        head, rest = self.files[:8], self.files[8:]
        if not all(_is_there(store, file.target, file) for file in head):
            return False
        return all(_looked_at(store, lambda file: _is_there(store, file.target, file), rest, context.threads))

    def execute(self, context: StepContext) -> None:
        source, target = context.store(self.source), context.store(self.target)
        absent = _absent(target, [file.target for file in self.files])

        def is_to_move(file: Rename) -> bool:
            if file.target not in absent and _is_there(target, file.target, file):
                return False
            if _is_there(source, file.source, file):
                return True
            # Another process may have moved it between the two looks.
            if _is_there(target, file.target, file):
                return False
            raise StepImpossible(
                f"Neither {source.uri}/{file.source} nor {target.uri}/{file.target} holds the {file.size} bytes that "
                "this file was recorded with",
                file=file.target,
                hint="Restore one of them, or abort the sequence to have its data extracted again",
            )

        while True:
            to_move = _looked_at(source, is_to_move, self.files, context.threads)
            pairs = [(file.source, file.target) for file, wanted in zip(self.files, to_move, strict=True) if wanted]
            try:
                move(source, target, pairs, context.threads)
            except ObjectNotFound:
                # Moved by another process meanwhile, which may still be at the others; or gone, as the next look tells.
                absent.clear()
            else:
                return

    def undo(self, context: StepContext) -> None:
        """Deletes targets that are this step's. Sources that are left stay."""
        store = context.store(self.target)
        ours = _looked_at(store, lambda file: _is_there(store, file.target, file), self.files, context.threads)
        store.delete([file.target for file, is_ours in zip(self.files, ours, strict=True) if is_ours])

    def reaches(self) -> Reach:
        return Reach(
            directories=tuple((self.target, key) for key in _directories(file.target for file in self.files)),
            staging=tuple((self.source, key) for key in _directories(file.source for file in self.files)),
        )

    def describe(self) -> str:
        total = sum(file.size for file in self.files)
        return f"rename {len(self.files)} files ({total} bytes) from {self.source} to {self.target}"


def _directories(keys: Iterable[str]) -> list[str]:
    return sorted({key[: key.rfind("/") + 1] for key in keys})


def checksum_of(store: Store, key: str) -> str:
    """The first 128 bits of the content's SHA-256, in hexadecimal."""
    digest = hashlib.sha256()
    with store.open_read(key) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()[:_CHECKSUM_DIGITS]


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_CHECKSUM_DIGITS]


def recorded_checksum(whole: str) -> str:
    """From a whole SHA-256 as writers of files give it, `sha256:…`."""
    name, _, digits = whole.partition(":")
    if name != "sha256" or len(digits) < _CHECKSUM_DIGITS:
        raise InvalidArgument(f"{whole!r} is no SHA-256 of a file")
    return digits[:_CHECKSUM_DIGITS]


def move(source: Store, target: Store, pairs: Sequence[tuple[str, str]], threads: int) -> None:
    """By the store itself where it can, else by copying. Sources are deleted after all copies are durable."""
    if not pairs:
        return
    left = source.move(pairs, target) if isinstance(source, MovesObjects) else list(pairs)
    if left:
        _side_by_side(lambda pair: _copy(source, target, *pair), left, threads)
        source.delete([key for key, _ in left])


def _copy(source: Store, target: Store, key: str, new: str) -> None:
    if source.head(key).size <= _PIECE:
        target.put(new, source.get(key))
        return
    with source.open_read(key) as file, target.open_write(new) as stream:
        while piece := file.read(_PIECE):
            stream.write(piece)


def _is_there(store: Store, key: str, file: Rename) -> bool:
    try:
        if file.size <= _PIECE:
            # Reading a small file is no dearer than asking for its size first, and most are there.
            return checksum(store.get_range(key, 0, file.size + 1)) == file.checksum
        return store.head(key).size == file.size and checksum_of(store, key) == file.checksum
    except ObjectNotFound:
        return False


def _looked_at(store: Store, look: Callable[[Rename], bool], files: Sequence[Rename], threads: int) -> list[bool]:
    if not store.uri.startswith("file:") or any(file.size > _SMALL for file in files):
        return _side_by_side(look, files, threads)
    found: list[bool] = []
    for start in range(0, len(files), _CHUNK):
        with _one_at_a_time:
            found += [look(file) for file in files[start : start + _CHUNK]]
    return found


def _absent(store: Store, keys: Sequence[str]) -> set[str]:
    """Those that a listing shows not to be there; asked only where it spares many single questions."""
    by_directory: dict[str, list[str]] = {}
    for key in keys:
        by_directory.setdefault(key[: key.rfind("/") + 1], []).append(key)
    absent: set[str] = set()
    for directory, ours in by_directory.items():
        if len(ours) >= _WORTH_A_LISTING:
            absent |= set(ours).difference(store.list_keys(directory))
    return absent


def _side_by_side(do: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """In chunks: most files are small, and handing over each one would cost more than the work."""
    if len(items) < 2 or threads < 2:
        return [do(item) for item in items]
    size = min(_CHUNK, -(-len(items) // threads))
    chunks = [items[start : start + size] for start in range(0, len(items), size)]
    with ThreadPoolExecutor(min(threads, len(chunks)), thread_name_prefix="lakeseal-step") as pool:
        return [result for part in pool.map(lambda chunk: [do(item) for item in chunk], chunks) for result in part]
