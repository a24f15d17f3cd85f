"""Files by path, and what differs between two refs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from contracts.branch_contract.contents import content, write
from lakeseal.branches.store import BranchStore
from lakeseal.branches.values import ChangeKind, Changes, Entry
from lakeseal.errors import InvalidPath, ObjectNotFound

UNSAFE = ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a/\0b", "a\nb", "\x7f", "a/\ud800"]
UNICODE = ["é", "e\u0301", "日本/語", "🦭 blank", "%2e%2e", "a=b/c:d", "#?&+", "~", "ﬀ", "'\"", "x" * 200]


class FilesContract:
    def test_files_are_read_as_they_were_written(self, repo: BranchStore) -> None:
        repo.put("main", "dir/a.bin", bytes(range(256)))
        repo.put("main", "dir/empty", b"")

        assert repo.read("main", "dir/a.bin") == bytes(range(256))
        assert repo.read("main", "dir/empty") == b""
        found = repo.stat("main", "dir/a.bin")
        assert (found.size, found.path) == (256, "dir/a.bin")
        with repo.open("main", "dir/a.bin") as file:
            file.seek(250)
            assert file.read() == bytes(range(250, 256))

    def test_any_unicode_is_a_path_and_stands_for_itself(self, repo: BranchStore) -> None:
        job = repo.begin_job("unicode", dest="main", path="u")
        files = {f"u/{name}": name.encode() for name in UNICODE}
        repo.commit(job.branch, Changes(puts=write(repo, job, files)), job=job.id)
        repo.merge(job.branch, "main")

        assert content(repo, "main") == files
        assert [entry.path for entry in repo.list("main")] == sorted(files, key=str.encode)

    def test_a_path_that_could_leave_the_tree_is_refused(self, repo: BranchStore) -> None:
        def puts(path: str) -> Changes:
            return Changes(puts=(Entry(path=path, address="data/x/y", size=1, checksum="c"),))

        head = repo.head("main")
        uses: list[Callable[[str], object]] = [
            lambda path: repo.stat("main", path),
            lambda path: repo.put("main", path, b"x"),
            lambda path: repo.commit("main", puts(path)),
            lambda path: repo.commit("main", Changes(deletes=(path,))),
        ]
        for path, use in product(UNSAFE, uses):
            with pytest.raises(InvalidPath):
                use(path)
        assert repo.head("main") == head

    def test_a_directory_is_not_the_beginning_of_a_name(self, repo: BranchStore) -> None:
        for path in ("t1/a", "t1/b/c", "t10/a", "t1.x", "t1"):
            repo.put("main", path, b"")

        for directory in ("t1", "t1/"):
            assert [entry.path for entry in repo.list("main", directory)] == ["t1/a", "t1/b/c"]
        assert list(repo.list("main", "t")) == []
        assert [change.path for change in repo.diff("main~5", "main", "t1/b")] == ["t1/b/c"]

    def test_an_unknown_path_is_told_as_such(self, repo: BranchStore) -> None:
        repo.put("main", "a/b", b"")
        for path in ("a", "a/b/c", "b"):
            with pytest.raises(ObjectNotFound):
                repo.stat("main", path)

    def test_a_diff_tells_what_was_added_changed_and_removed(self, repo: BranchStore) -> None:
        for path in ("same", "changed", "removed"):
            repo.put("main", path, b"1")
        repo.create_branch("exp")
        repo.put("exp", "changed", b"2")
        repo.put("exp", "added", b"1")
        repo.commit("exp", Changes(deletes=("removed",)))

        found = {change.path: change for change in repo.diff("main", "exp")}

        assert {path: change.kind for path, change in found.items()} == {
            "added": ChangeKind.ADDED,
            "changed": ChangeKind.CHANGED,
            "removed": ChangeKind.REMOVED,
        }
        assert found["added"].before is None
        assert found["removed"].after is None
        before, after = found["changed"].before, found["changed"].after
        assert before is not None
        assert after is not None
        assert (before.checksum, after.checksum) == (
            repo.stat("main", "changed").checksum,
            repo.stat("exp", "changed").checksum,
        )
        assert list(repo.diff("exp", "exp")) == []
