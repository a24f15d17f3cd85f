from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lakeseal.errors import InvalidArgument, StepImpossible, StorageUnavailable
from lakeseal.steps import StepContext, step
from lakeseal.steps.fs_rename import FsRenameCommitStep, Rename, checksum, checksum_of
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How
from lakeseal.testing.s3 import S3Server

KEYS = ["a.txt", "day=2026-01-01/b c#%2F.txt", "名前/😀.txt"]


class Disk:
    """Two stores, files in one of them, and the step that moves them to the other."""

    def __init__(self, source: Store, target: Store, context: StepContext) -> None:
        self.source, self.target, self.context = source, target, context
        self.content = {key: f"content of {key}".encode() * 9 for key in KEYS}
        for key, data in self.content.items():
            source.put(f"out/{key}", data)
        self.step = FsRenameCommitStep(
            source=source.uri,
            target=target.uri,
            files=tuple(
                Rename(f"out/{key}", f"in/{key}", len(data), checksum(data)) for key, data in self.content.items()
            ),
        )

    def check(self) -> None:
        assert {key: self.target.get(f"in/{key}") for key in KEYS} == self.content
        assert list(self.source.list("out/", recursive=True)) == []
        assert self.step.verify(self.context)


@pytest.fixture(params=["disk", "disk to disk", "memory", "s3", "memory to disk", "s3 to disk"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    names = request.param.split(" to ")
    options: dict[str, str] = {}
    uris = []
    for number, name in enumerate(names):
        match name:
            case "disk":
                uris.append(str(tmp_path / str(number)))
            case "memory":
                uris.append(f"memory://{uuid.uuid4().hex}/{number}")
            case "s3":
                server: S3Server = request.getfixturevalue("s3")
                options = server.storage_options
                uris.append(server.uri(f"{uuid.uuid4().hex}/{number}"))
    context = StepContext(storage_options=options, owners={})
    stores = [context.store(uri) for uri in uris]
    return Disk(stores[0], stores[-1], context)


def test_files_get_their_names_and_are_known_by_their_content(disk: Disk) -> None:
    assert not disk.step.verify(disk.context)

    disk.step.execute(disk.context)

    disk.check()


def test_w2_doing_it_again_changes_nothing(disk: Disk) -> None:
    disk.step.execute(disk.context)
    disk.step.execute(disk.context)

    disk.check()


def test_bug_33_half_a_copy_at_the_target_is_not_taken_for_done(disk: Disk) -> None:
    key = KEYS[1]
    disk.target.put(f"in/{key}", disk.content[key][:10])

    assert not disk.step.verify(disk.context)
    disk.step.execute(disk.context)

    disk.check()


def test_bug_33_another_content_of_the_same_size_is_not_taken_for_done(disk: Disk) -> None:
    for key in KEYS:
        disk.target.put(f"in/{key}", b"x" * len(disk.content[key]))

    assert not disk.step.verify(disk.context)
    disk.step.execute(disk.context)

    disk.check()


def test_a_copy_whose_source_was_not_deleted_is_done(disk: Disk) -> None:
    for key in KEYS:
        disk.target.put(f"in/{key}", disk.content[key])

    assert disk.step.verify(disk.context)


def test_the_rest_is_done_after_a_part_was(disk: Disk) -> None:
    key = KEYS[0]
    disk.target.put(f"in/{key}", disk.content[key])
    disk.source.delete([f"out/{key}"])

    disk.step.execute(disk.context)

    disk.check()


@pytest.mark.parametrize("damage", [None, b"", b"other"])
def test_what_is_nowhere_is_not_published_and_nothing_else_either(disk: Disk, damage: bytes | None) -> None:
    key = f"out/{KEYS[2]}"
    disk.source.delete([key])
    if damage is not None:
        disk.source.put(key, damage)

    with pytest.raises(StepImpossible, match="Neither"):
        disk.step.execute(disk.context)

    assert list(disk.target.list("in/", recursive=True)) == []


def test_a_source_with_another_content_of_the_same_size_is_not_published(disk: Disk) -> None:
    key = KEYS[0]
    disk.source.put(f"out/{key}", b"x" * len(disk.content[key]))

    with pytest.raises(StepImpossible):
        disk.step.execute(disk.context)


def test_undoing_removes_only_what_is_the_steps_own(disk: Disk) -> None:
    disk.step.execute(disk.context)
    disk.target.put(f"in/{KEYS[0]}", b"somebody else's")

    disk.step.undo(disk.context)
    disk.step.undo(disk.context)

    assert [meta.key for meta in disk.target.list("in/", recursive=True)] == [f"in/{KEYS[0]}"]


def test_a_move_whose_reply_was_lost_is_found_done(tmp_path: Path) -> None:
    faulty = FaultyStore(open_store(tmp_path), [Fault("move", how=How.LOSE_REPLY)])
    context = StepContext(owners={}, open_store=lambda _: faulty)
    disk = Disk(faulty, faulty, context)

    with pytest.raises(StorageUnavailable):
        disk.step.execute(context)

    assert disk.step.verify(context)
    disk.step.execute(context)
    disk.check()


def test_a_record_of_many_files_is_rows_of_four(disk: Disk) -> None:
    record = step.encode(disk.step)

    assert b'["out/a.txt","in/a.txt",' in record
    assert step.decode(record) == disk.step


def test_many_files_are_moved_side_by_side(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    context = StepContext(owners={}, threads=3)
    files = []
    for number in range(2000):
        data = str(number).encode()
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / f"out/{number}").write_bytes(data)
        files.append(Rename(f"out/{number}", f"in/{number % 7}/{number}", len(data), checksum(data)))
    moves = FsRenameCommitStep.of(str(tmp_path), str(tmp_path), files)

    assert not moves.verify(context)
    moves.execute(context)

    assert moves.verify(context)
    assert len(list(store.list("in/", recursive=True))) == 2000
    (tmp_path / "in/3/1998").unlink(missing_ok=True)
    (tmp_path / f"in/{1999 % 7}/1999").write_bytes(b"999x")
    assert not moves.verify(context)


def test_a_large_file_is_copied_and_known_in_pieces(tmp_path: Path) -> None:
    data = bytes(range(256)) * (9 << 12)
    source, target = open_store(tmp_path), open_store("memory://large")
    source.put("big", data)
    context = StepContext(owners={}, open_store=lambda uri: source if uri == source.uri else target)
    moves = FsRenameCommitStep(
        source=source.uri, target=target.uri, files=(Rename("big", "big", len(data), checksum(data)),)
    )

    moves.execute(context)

    assert target.get("big") == data
    assert checksum_of(target, "big") == checksum(data)
    assert moves.verify(context)


def test_two_files_cannot_get_the_same_name() -> None:
    with pytest.raises(InvalidArgument, match="the same name"):
        FsRenameCommitStep.of("/a", "/b", [Rename("x", "z", 1, ""), Rename("y", "z", 1, "")])
