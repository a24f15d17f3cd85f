"""A directory of a commit laid out as plain files, for tools that know nothing of refs.

The manifest `_manifest.json` is written last: it names the commit and every file with its size and checksum, so whoever
reads by it sees one commit and nothing else. What the manifest before it names and this one does not is deleted after
that; what neither names is not ours and stays. Files that are there already with the same content are not copied again.
A run that was interrupted is simply run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches.store import BranchStore, Entry, entries_of
from lakeseal.errors import BrokenDataFile, CorruptTable, InvalidArgument, ObjectNotFound, located
from lakeseal.formats.shape import DIRECTORY
from lakeseal.storage import Store

MANIFEST = "_manifest.json"
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
        before = _manifest(target)
        known = {file.path: file for file in before.files} if before is not None else {}
        present = {meta.key: meta.size for meta in target.list(recursive=True)}
        missing = {
            name: entry for name, entry in entries.items() if not _is_there(entry, known.get(name), present.get(name))
        }
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakeseal-export") as pool:
            for done in pool.map(lambda item: _copy(store, item[1], target, item[0]), missing.items()):
                assert done is None
        files = tuple(
            ExportedFile(path=name, size=entry.size, checksum=entry.checksum) for name, entry in entries.items()
        )
        manifest = Manifest(repository=store.uri, ref=ref, commit=commit, path=path.strip("/"), files=files)
        target.put(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        gone = [name for name in known if name not in entries and name in present]
        target.delete(gone)
    return ExportReport(
        commit=commit,
        files=len(files),
        copied=len(missing),
        copied_bytes=sum(entry.size for entry in missing.values()),
        kept=len(files) - len(missing),
        deleted=len(gone),
    )


def _entries(store: BranchStore, commit: str, path: str) -> Iterator[Entry]:
    for table in store.entry_tables(commit, path.strip("/")):
        for entry in entries_of(table):
            if f"/{DIRECTORY}/" not in f"/{entry.path}":
                yield entry


def _is_there(entry: Entry, known: ExportedFile | None, size: int | None) -> bool:
    return known is not None and (known.size, known.checksum) == entry.identity and size == entry.size


def _manifest(target: Store) -> Manifest | None:
    try:
        return typed_json.decode(target.get(MANIFEST), Manifest)
    except ObjectNotFound:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptTable(
            f"The manifest of an earlier export is malformed: {error}",
            table=target.uri,
            file=MANIFEST,
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
