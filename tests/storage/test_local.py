"""Local disk: durability, crashes, full and forbidden disks, links."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakeseal.errors import (
    InvalidArgument,
    LakesealError,
    ObjectNotFound,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    StorageUnavailable,
    UnsafePath,
)
from lakeseal.storage import LocalStore, NewObject, open_store, put_together
from lakeseal.storage.local import files as local_files_module

Start = Callable[[str, object], subprocess.Popen[bytes]]


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def unnamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls to the operating system that make a file durable and visible, in order."""
    seen: list[tuple[str, str]] = []

    def record(name: str, describe: Callable[..., str]) -> None:
        real = getattr(os, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            seen.append((name, describe(*args)))
            return result

        monkeypatch.setattr(os, name, wrapper)

    def of_descriptor(descriptor: int) -> str:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        return "file"

    record("fsync", of_descriptor)
    record("link", lambda _source, target: target)
    record("rename", lambda _source, target: target)
    return seen


@pytest.fixture
def proc() -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this machine has no /proc to tell which directory a descriptor is")


@pytest.mark.usefixtures("proc")
def test_put_if_absent_makes_file_then_name_then_directory_durable_before_it_returns(
    tmp_path: Path, unnamed: bool, calls: list[tuple[str, str]]
) -> None:
    (tmp_path / "root").mkdir()
    store = LocalStore(str(tmp_path / "root"), unnamed=unnamed)
    store.put_if_absent("first", b"")
    calls.clear()
    assert store.put_if_absent("k", b"data")
    assert calls == [("fsync", "file"), ("link", "k"), ("fsync", "root")]


@pytest.mark.usefixtures("proc")
def test_a_lost_put_if_absent_costs_no_fsync(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    store = LocalStore(str(tmp_path))
    store.put("k", b"")
    calls.clear()
    assert not store.put_if_absent("k", b"data")
    assert calls == []


@pytest.mark.usefixtures("proc")
@pytest.mark.parametrize("how", ["put", "open_write"])
def test_an_overwrite_makes_file_then_name_then_directory_durable(
    tmp_path: Path, unnamed: bool, calls: list[tuple[str, str]], how: str
) -> None:
    (tmp_path / "root").mkdir()
    store = LocalStore(str(tmp_path / "root"), unnamed=unnamed)
    store.put("k", b"old")
    calls.clear()
    if how == "put":
        store.put("k", b"new")
    else:
        with store.open_write("k") as stream:
            stream.write(b"new")
    assert calls[0] == ("fsync", "file")
    assert calls[-2:] == [("rename", "k"), ("fsync", "root")]
    assert files_below(tmp_path) == ["root/k"]


@pytest.mark.usefixtures("proc")
def test_new_directories_are_durable_up_to_the_one_that_was_there(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    store = LocalStore(str(tmp_path / "new" / "root"))
    assert store.put_if_absent("a/b/k", b"data")
    synced = [where for what, where in calls if what == "fsync"]
    assert synced == [tmp_path.name, "new", "root", "a", "file", "b"]
    calls.clear()
    assert store.put_if_absent("a/b/k2", b"data")
    assert [where for what, where in calls if what == "fsync"] == ["file", "b"]


@pytest.mark.usefixtures("proc")
def test_a_delete_is_durable_with_one_fsync_per_directory(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    store = LocalStore(str(tmp_path))
    for key in ["a/1", "a/2", "b/1"]:
        store.put(key, b"")
    calls.clear()
    store.delete(["a/1", "a/2", "b/1", "c/absent"])
    assert sorted(calls) == [("fsync", "a"), ("fsync", "b")]


def test_a_directory_removed_behind_our_back_is_made_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("a/k", b"1")
    store.delete(["a/k"])
    (tmp_path / "root" / "a").rmdir()
    (tmp_path / "root").rmdir()
    assert store.list_keys("a/") == []
    assert store.put_if_absent("a/k", b"2")
    assert store.get("a/k") == b"2"


def test_files_are_made_with_the_users_umask(tmp_path: Path, unnamed: bool) -> None:
    before = os.umask(0o027)
    try:
        store = LocalStore(str(tmp_path / "root"), unnamed=unnamed)
        store.put("d/a", b"")
        store.put_if_absent("d/b", b"")
        with store.open_write("d/c"):
            pass
    finally:
        os.umask(before)
    for name in "abc":
        assert stat.S_IMODE((tmp_path / "root" / "d" / name).stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "root" / "d").stat().st_mode) == 0o750


def test_a_repeated_link_request_that_meets_its_own_first_try_has_won(
    tmp_path: Path, unnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path), unnamed=unnamed)
    store.put("warm", b"")
    real = os.link

    def link_twice(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        real(*args, **kwargs)

    monkeypatch.setattr(os, "link", link_twice)
    assert store.put_if_absent("k", b"mine")
    assert store.get("k") == b"mine"


def test_a_file_system_without_hard_links_is_refused_with_a_clear_word_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(local_files_module, "_unnamed_by_device", {})
    store = open_store(tmp_path)
    with pytest.raises(StorageError, match="no hard links") as caught:
        store.put_if_absent("k", b"data")
    assert type(caught.value) is StorageError
    assert caught.value.file == "k"
    assert files_below(tmp_path) == []
    store.put("k", b"whole")
    assert store.get("k") == b"whole"


def test_a_directory_that_cannot_be_synced_leaves_the_outcome_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    real = os.fsync

    def fail_on_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_directories)
    with pytest.raises(StorageUnavailable) as caught:
        store.put_if_absent("k", b"data")
    assert caught.value.file == "k"


def test_a_file_that_cannot_be_synced_never_becomes_visible(
    tmp_path: Path, unnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path), unnamed=unnamed)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("k", b"data")
    assert not isinstance(caught.value, StorageUnavailable)
    with pytest.raises(StorageError), store.open_write("k") as stream:
        stream.write(b"data")
    assert files_below(tmp_path) == []


WRITER = """
import pickle, sys, threading
from lakeseal.storage import LocalStore
root, unnamed = pickle.load(sys.stdin.buffer)
store = LocalStore(root, unnamed=unnamed)
def content(number, size):
    return (b"%019d," % number) * (size // 20)
def run(me):
    number = me
    while True:
        data = content(number, 400_000)
        store.put_if_absent(f"absent/{number:08}", data)
        store.put(f"replaced/{me}", data)
        with store.open_write(f"stream/{number:08}") as stream:
            stream.write(data)
            stream.write(data)
        number += 4
store.put("absent/first", content(0, 400_000))
for me in range(4):
    threading.Thread(target=run, args=(me,), daemon=True).start()
print("ready", flush=True)
sys.stdin.buffer.readline()
"""


@pytest.mark.parametrize("trial", range(4))
def test_after_kill_9_in_the_middle_of_many_writes_every_key_is_whole_or_absent(
    tmp_path: Path, unnamed: bool, start: Start, trial: int
) -> None:
    process = start(WRITER, (str(tmp_path), unnamed))
    time.sleep(random.Random(trial).uniform(0.05, 0.3))
    process.kill()
    process.wait()
    store = open_store(tmp_path)
    listed = [meta.key for meta in store.list(recursive=True)]
    assert "absent/first" in listed
    for key in listed:
        data = store.get(key)
        assert len(data) == (800_000 if key.startswith("stream/") else 400_000)
        assert data == data[:20] * (len(data) // 20)
    hidden = set(files_below(tmp_path)) - set(listed)
    assert all(Path(name).name.startswith(".lakeseal-") for name in hidden)
    if unnamed:
        # Only the instant between naming and renaming in an overwrite can leave a name behind.
        assert all(name.startswith("replaced/") for name in hidden)


HANGING_WRITER = """
import pickle, sys
from lakeseal.storage import LocalStore
root, unnamed = pickle.load(sys.stdin.buffer)
stream = LocalStore(root, unnamed=unnamed).open_write("d/k")
stream.write(b"x" * 1_000_000)
print("ready", flush=True)
sys.stdin.buffer.readline()
"""


def test_a_killed_stream_leaves_no_file_or_one_that_no_listing_shows(
    tmp_path: Path, unnamed: bool, start: Start
) -> None:
    process = start(HANGING_WRITER, (str(tmp_path), unnamed))
    process.kill()
    process.wait()
    assert len(files_below(tmp_path)) == (0 if unnamed else 1)
    store = open_store(tmp_path)
    assert list(store.list(recursive=True)) == []
    assert list(store.list("d/")) == []
    assert store.list_keys("d/") == []
    assert store.put_if_absent("d/k", b"later")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a full or read-only disk needs the right to mount one, which this user lacks")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_out_of_space_and_nothing_of_it_is_seen(tiny_disk: Path, unnamed: bool) -> None:
    store = LocalStore(str(tiny_disk), unnamed=unnamed)
    assert store.put_if_absent("small", b"x" * 10_000)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(OutOfSpace) as caught:
            write("d/large", b"x" * 1_000_000)
        assert caught.value.file == "d/large"
    stream = store.open_write("d/large")
    with pytest.raises(OutOfSpace):
        stream.write(b"x" * 1_000_000)
    with store.open_write("d/large") as stream, pytest.raises(OutOfSpace):
        list(map(stream.write, [b"x" * 10_000] * 100))
    assert files_below(tiny_disk) == ["small"]
    assert store.put_if_absent("d/large", b"x" * 10_000)


def test_a_read_only_disk_is_permission_denied_for_writers_and_readable(tiny_disk: Path, unnamed: bool) -> None:
    store = LocalStore(str(tiny_disk), unnamed=unnamed)
    store.put("d/k", b"data")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    writes: list[Callable[[], object]] = [
        lambda: store.put("d/k", b"2"),
        lambda: store.put_if_absent("d/new", b"2"),
        lambda: store.put_if_absent("new/new", b"2"),
        lambda: store.open_write("d/new"),
        lambda: store.delete(["d/k"]),
    ]
    for write in writes:
        with pytest.raises(PermissionDenied):
            write()
    assert store.get("d/k") == b"data"
    assert not store.put_if_absent("d/k", b"2")


@contextmanager
def unprivileged_owner(folder: str) -> Iterator[None]:
    """Nothing is forbidden to the superuser, so be nobody for a while, and own the folder."""
    before = os.geteuid()
    if before == 0:
        os.chown(folder, 65_534, -1)
        os.seteuid(65_534)
    try:
        yield
    finally:
        if before == 0:
            os.seteuid(before)


def test_a_forbidden_directory_is_permission_denied_for_every_call(unnamed: bool) -> None:
    # Not pytest's folder: nobody but its owner may pass through that.
    with tempfile.TemporaryDirectory() as folder, unprivileged_owner(folder):
        store = LocalStore(folder, unnamed=unnamed)
        store.put("d/k", b"data")
        (Path(folder) / "d").chmod(0)
        calls: list[Callable[[], object]] = [
            lambda: store.get("d/k"),
            lambda: store.head("d/k"),
            lambda: store.open_read("d/k"),
            lambda: store.list_keys("d/"),
            lambda: list(store.list(recursive=True)),
            lambda: store.put("d/new", b""),
            lambda: store.put_if_absent("d/new", b""),
            lambda: store.open_write("d/new"),
            lambda: store.delete(["d/k"]),
        ]
        for call in calls:
            with pytest.raises(PermissionDenied):
                call()
        (Path(folder) / "d").chmod(0o700)
        assert store.get("d/k") == b"data"


def test_a_link_to_a_directory_outside_of_the_root_is_refused_by_every_call(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "real" / "deep").symlink_to("../../outside")
    (root / "chain").symlink_to("link")
    store = open_store(root)
    for directory in ["link", "real/deep", "chain"]:
        key = f"{directory}/secret"
        calls: list[Callable[[], object]] = [
            lambda key=key: store.get(key),  # type: ignore[misc]
            lambda key=key: store.get_range(key, 0, 1),  # type: ignore[misc]
            lambda key=key: store.get_many([key]),  # type: ignore[misc]
            lambda key=key: store.head(key),  # type: ignore[misc]
            lambda key=key: store.open_read(key),  # type: ignore[misc]
            lambda key=key: store.put(key, b""),  # type: ignore[misc]
            lambda key=key: store.put_if_absent(key + "2", b""),  # type: ignore[misc]
            lambda key=key: store.open_write(key),  # type: ignore[misc]
            lambda key=key: store.delete([key]),  # type: ignore[misc]
            lambda directory=directory: store.list_keys(directory + "/"),  # type: ignore[misc]
            lambda directory=directory: store.list(directory + "/", recursive=True),  # type: ignore[misc]
        ]
        for _ in range(2):
            for call in calls:
                with pytest.raises(UnsafePath):
                    call()
    assert files_below(outside) == ["secret"]
    assert list(store.list(recursive=True)) == []


def test_a_link_to_a_file_outside_of_the_root_is_refused_and_can_be_deleted_or_replaced(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    root.mkdir()
    for name in ["a", "b"]:
        (root / name).symlink_to(tmp_path / "secret")
    store = open_store(root)
    for call in (store.get, store.head, store.open_read, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(UnsafePath):
            call("a")
    assert not store.put_if_absent("a", b"mine")
    store.put("a", b"mine")
    store.delete(["b"])
    assert store.get("a") == b"mine"
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_links_that_stay_inside_work_and_the_root_may_be_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "data").mkdir(parents=True)
    (real / "data" / "k").write_bytes(b"data")
    (real / "alias").symlink_to("data")
    (real / "file").symlink_to("data/k")
    (real / "loop").symlink_to("loop")
    (real / "dangling").symlink_to("nowhere")
    (tmp_path / "root").symlink_to(real)
    store = open_store(tmp_path / "root")
    for key in ["data/k", "alias/k", "file"]:
        assert store.get(key) == b"data"
        assert store.head(key).size == 4
        assert store.open_read(key).read() == b"data"
    with pytest.raises(ObjectNotFound):
        store.get("dangling")
    for key in ["loop", "loop/k"]:
        with pytest.raises(StorageError):
            store.get(key)
    assert [meta.key for meta in store.list(recursive=True)] == ["data/k", "file"]
    assert store.list_keys() == ["file"]
    assert store.put_if_absent("alias/new", b"")
    assert store.list_keys("alias/") == ["alias/k", "alias/new"]


def test_names_that_cannot_be_keys_are_passed_over_when_listing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("good", b"")
    (tmp_path / "line\nbreak").write_bytes(b"")
    (tmp_path / "dir\x7f").mkdir()
    (tmp_path / "dir\x7f" / "k").write_bytes(b"")
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb"):
        pass
    os.mkfifo(tmp_path / "pipe")
    assert store.list_keys() == ["good"]
    assert [meta.key for meta in store.list(recursive=True)] == ["good"]
    for call in (store.get, store.head, store.open_read):
        with pytest.raises(ObjectNotFound):
            call("pipe")


def test_a_name_that_is_too_long_is_the_callers_mistake(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.put_if_absent("n" * 255, b"")
    with pytest.raises(InvalidArgument, match="too long"):
        store.put("n" * 256, b"")


def test_a_file_where_a_directory_is_wanted_is_a_storage_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("a", b"")
    store.put("d/k", b"")
    for call in (store.put, store.put_if_absent):
        with pytest.raises(StorageError):
            call("a/b", b"")
    with pytest.raises(StorageError):
        store.put("d", b"")
    assert files_below(tmp_path) == ["a", "d/k"]


def test_the_path_of_a_key_is_where_its_file_is(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a b/%3A", b"x")
    assert Path(store.path("a b/%3A")).read_bytes() == b"x"


def objects(*wanted: tuple[str, bytes]) -> list[NewObject]:
    return [NewObject(key=key, data=data) for key, data in wanted]


def test_a_new_object_has_the_time_that_it_is_given(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert put_together([(store, [NewObject(key="log/1", data=b"a", modified_ms=12_345)])]) == [1]
    assert store.head("log/1").modified_ms == 12_345


def test_objects_are_put_in_order_up_to_a_name_that_is_taken(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("log/2", b"somebody else")
    assert put_together([(store, objects(("log/1", b"a"), ("log/2", b"b"), ("log/3", b"c")))]) == [1]
    assert (store.get("log/1"), store.get("log/2")) == (b"a", b"somebody else")
    assert store.list_keys("log/") == ["log/1", "log/2"]


def test_more_objects_than_a_process_may_open_are_put_all_the_same(tmp_path: Path) -> None:
    stores = [LocalStore(str(tmp_path / name)) for name in "ab"]
    wanted = [(f"log/{number:04d}", b"%d" % number) for number in range(700)]
    assert put_together([(store, objects(*wanted)) for store in stores]) == [700, 700]
    assert all(store.get_many([key for key, _ in wanted]) == [data for _, data in wanted] for store in stores)


@pytest.fixture
def syncs(calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """`calls`, with those that sync a whole disk."""
    real = local_files_module._syncfs
    if real is None:
        pytest.skip("files are synced one by one here: syncfs reports errors on Linux 5.8 and newer only")
    monkeypatch.setattr(local_files_module, "_syncfs", lambda fd: (calls.append(("syncfs", "")), real(fd))[1])
    return calls


@pytest.mark.usefixtures("proc")
def test_many_files_are_made_durable_together_before_the_first_has_its_name(
    tmp_path: Path, syncs: list[tuple[str, str]]
) -> None:
    (tmp_path / "root/log").mkdir(parents=True)
    store = LocalStore(str(tmp_path / "root"))
    store.put("log/0", b"")
    syncs.clear()
    assert put_together([(store, objects(*((f"log/{number}", b"x") for number in (1, 2, 3))))]) == [3]
    assert [name for name, _ in syncs] == ["fsync"] * 3 + ["link"] * 3 + ["fsync"]
    syncs.clear()
    assert put_together([(store, objects(*((f"log/1{number}", b"x") for number in range(5))))]) == [5]
    assert [name for name, _ in syncs] == ["syncfs"] + ["link"] * 5 + ["fsync"]


@pytest.mark.usefixtures("proc")
def test_files_of_several_stores_are_made_durable_together(tmp_path: Path, syncs: list[tuple[str, str]]) -> None:
    stores = [LocalStore(str(tmp_path / name)) for name in "abcde"]
    for store in stores:
        store.put("log/0", b"")
    stores[4].put("log/2", b"somebody else")
    syncs.clear()
    wanted = objects(("log/1", b"1"), ("log/2", b"2"))
    found = put_together([(store, wanted) for store in stores])
    assert found == [2, 2, 2, 2, 1]
    assert [name for name, _ in syncs] == ["syncfs"] + ["link"] * 9 + ["syncfs"]
    assert all(store.list_keys("log/") == ["log/0", "log/1", "log/2"] for store in stores)


@pytest.mark.usefixtures("proc")
def test_what_somebody_else_put_can_be_made_durable(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    store = LocalStore(str(tmp_path))
    store.put("log/1", b"x")
    calls.clear()
    store.sync("log/1")
    assert [(name, Path(path).name) for name, path in calls] == [("fsync", "file"), ("fsync", "log")]
    with pytest.raises(ObjectNotFound):
        store.sync("log/2")


def test_a_store_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    stores = [LocalStore(str(tmp_path / name)) for name in "ab"]
    (tmp_path / "a").write_bytes(b"no directory")
    failed, put = put_together([(store, objects(("log/1", b"1"))) for store in stores])
    assert isinstance(failed, LakesealError)
    assert put == 1


def test_a_disk_that_cannot_make_files_durable_shows_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    store = LocalStore(str(tmp_path))
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(local_files_module, "_syncfs", failing)
    (failed,) = put_together([(store, objects(*((f"log/{number}", b"x") for number in range(5))))])
    assert isinstance(failed, StorageError)
    assert files_below(tmp_path) == []
