"""A directory of a commit laid out as plain files, for tools that know nothing of refs.

The manifest `_manifest.json` is written last: it names the commit and every file with its size and checksum, so whoever
reads by it sees one commit and nothing else. What the manifest before it names and this one does not is deleted after
that; what neither names is not ours and stays. Files that are there already with the same content are not copied again.

Before anything is copied, `_manifest.copying.json` says what is going to be, and what to go. An export that fails takes
its files away again, so that whoever reads the directory without the manifest finds the commit before it; where it
could not (it was killed), the next export does, whichever commit it is of. A file that it was to replace is copied
again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches.store import BranchStore, Entry, entries_of
from lakeseal.errors import BrokenDataFile, CorruptTable, InvalidArgument, LakesealError, ObjectNotFound, located
from lakeseal.files.shape import DIRECTORY
from lakeseal.storage import Store

MANIFEST = "_manifest.json"
COPYING = "_manifest.copying.json"
_THREADS = 8
_BLOCK = 4 * 2**20


class ExportedFile(Struct, frozen=True, kw_only=True):
    path: str
    size: int
    checksum: str


class Manifest(Struct, frozen=True, kw_only=True):
    """What `_manifest.json` holds."""

    repository: str
    ref: str
    commit: str
    path: str
    files: tuple[ExportedFile, ...]


class ExportReport(Struct, frozen=True, kw_only=True):
    commit: str
    files: int
    copied: int
    copied_bytes: int
    kept: int
    """Files that were there with the same content."""
    deleted: int


def export(store: BranchStore, ref: str, path: str, target: Store) -> ExportReport:
    place = f"{path.strip('/')}/".removeprefix("/")
    if f"{target.uri.rstrip('/')}/".startswith(f"{store.uri.rstrip('/')}/"):
        raise InvalidArgument(
            "The repository's own directory cannot be exported to", hint="Choose a directory outside of it"
        )
    with located(table=store.uri):
        commit = store.head(ref)
        entries = {entry.path[len(place) :]: entry for entry in _entries(store, commit, path)}
        if not entries:
            raise ObjectNotFound("There are no files to export", file=path or "/", hint="Check the path and the ref")
        before = _manifest(target, MANIFEST)
        left = _manifest(target, COPYING)
        known = {file.path: file for file in before.files} if before is not None else {}
        # Whatever an export that did not end was to write may be half of it, or of another commit than the manifest's.
        doubtful = {file.path for file in left.files} if left is not None else set()
        present = {meta.key: meta.size for meta in target.list(recursive=True)}
        missing = {
            name: entry
            for name, entry in entries.items()
            if name in doubtful or not _is_there(entry, known.get(name), present.get(name))
        }
        manifest = Manifest(
            repository=store.uri, ref=ref, commit=commit, path=path.strip("/"), files=tuple(map(_told, entries.items()))
        )
        gone = [name for name in {**known, **dict.fromkeys(doubtful)} if name not in entries and name in present]
        if missing or gone:
            # What is to go is named too: whoever is killed behind the manifest leaves nobody else who knows it.
            ours = {**dict.fromkeys((*doubtful, *gone)), **missing}
            copying = tuple(
                ExportedFile(path=name, size=0, checksum="") if entry is None else _told((name, entry))
                for name, entry in ours.items()
            )
            target.put(COPYING, _encoded(msgspec.structs.replace(manifest, files=copying)))
            try:
                _copy_all(store, missing, target)
            except BaseException:
                _take_away(target, [name for name in ours if name not in known])
                raise
        target.put(MANIFEST, _encoded(manifest))
        target.delete(gone)
        target.delete([COPYING])
    return ExportReport(
        commit=commit,
        files=len(entries),
        copied=len(missing),
        copied_bytes=sum(entry.size for entry in missing.values()),
        kept=len(entries) - len(missing),
        deleted=len(gone),
    )


def _told(named: tuple[str, Entry]) -> ExportedFile:
    name, entry = named
    return ExportedFile(path=name, size=entry.size, checksum=entry.checksum)


def _encoded(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def _copy_all(store: BranchStore, missing: Mapping[str, Entry], target: Store) -> None:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-export") as pool:
        for done in pool.map(lambda item: _copy(store, item[1], target, item[0]), missing.items()):
            assert done is None


def _take_away(target: Store, names: list[str]) -> None:
    # What cannot be done now is told by the file that stays, and done by the next export.
    with contextlib.suppress(LakesealError, OSError):
        target.delete(names)


def _entries(store: BranchStore, commit: str, path: str) -> Iterator[Entry]:
    for table in store.entry_tables(commit, path.strip("/")):
        for entry in entries_of(table):
            if f"/{DIRECTORY}/" not in f"/{entry.path}":
                yield entry


def _is_there(entry: Entry, known: ExportedFile | None, size: int | None) -> bool:
    return known is not None and (known.size, known.checksum) == entry.identity and size == entry.size


def _manifest(target: Store, name: str) -> Manifest | None:
    try:
        return typed_json.decode(target.get(name), Manifest)
    except ObjectNotFound:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptTable(
            f"The manifest of an earlier export is malformed: {error}",
            table=target.uri,
            file=name,
            hint="Delete it, or export to another directory",
        ) from error


def _copy(store: BranchStore, entry: Entry, target: Store, name: str) -> None:
    found, size = hashlib.sha256(), 0
    with store.open_entry(entry) as source, target.open_write(name) as sink:
        while block := source.read(_BLOCK):
            found.update(block)
            size += len(block)
            sink.write(block)
        is_known = entry.checksum.startswith("sha256:")
        if size != entry.size or (is_known and entry.checksum != f"sha256:{found.hexdigest()}"):
            raise BrokenDataFile(
                "An object is not what was committed", file=entry.path, hint="Restore it from a backup, or revert"
            )
