"""What every `BranchStore` must do, as tests: one suite for the embedded store, for lakeFS, and for those of users.

Derive a class whose name starts with `Test` and give it a fixture `repo`, a store with a branch `main` without files:

    class TestMyStore(BranchStoreContract):
        @pytest.fixture
        def repo(self): ...

What a store is allowed not to do, it says by the class variables.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from typing import ClassVar

import pytest

from lakeseal.branches.store import BranchStore, MergeProposal
from lakeseal.branches.values import ChangeKind, Changes, Commit, Entry, HeadMoved, Job, MergeResult, Strategy
from lakeseal.errors import (
    AlreadyExists,
    CheckRefused,
    HeadChanged,
    InvalidArgument,
    InvalidPath,
    MergeConflict,
    ObjectNotFound,
    RefNotFound,
)

UNSAFE = ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a/\0b", "a\nb", "\x7f", "a/\ud800"]
UNICODE = ["é", "e\u0301", "日本/語", "🦭 blank", "%2e%2e", "a=b/c:d", "#?&+", "~", "ﬀ", "'\"", "x" * 200]


def checksum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write(repo: BranchStore, job: Job, files: Mapping[str, bytes]) -> tuple[Entry, ...]:
    """Objects of a job's task, and the entries for them."""
    store = repo.objects.open()
    entries = []
    for number, (path, data) in enumerate(files.items()):
        address = f"{job.data_prefix}/{number}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
        store.put(address, data)
        entries.append(Entry(path=path, address=address, size=len(data), checksum=checksum(data)))
    return tuple(entries)


def run_job(
    repo: BranchStore,
    job_id: str,
    path: str,
    files: Mapping[str, bytes],
    *,
    overwrite: bool,
    dest: str = "main",
) -> Job:
    """A job up to its merge, which is left to the caller."""
    job = repo.begin_job(job_id, dest=dest, path=path, who=job_id)
    puts = write(repo, job, {f"{path}/{name}": data for name, data in files.items()})
    directories = (path,) if overwrite else ()
    done = repo.commit(job.branch, Changes(puts=puts, directories=directories), message=job_id, job=job_id)
    assert isinstance(done, Commit)
    return job


def content(repo: BranchStore, ref: str, directory: str = "") -> dict[str, bytes]:
    return {entry.path: repo.read(ref, entry.path) for entry in repo.list(ref, directory)}


class BranchStoreContract:
    counts_entries: ClassVar[bool] = True
    """Whether `Commit.entries` is known. lakeFS does not count."""

    # Refs

    def test_a_new_repository_has_main_and_no_files(self, repo: BranchStore) -> None:
        assert [ref.name for ref in repo.branches()] == ["main"]
        assert list(repo.list("main")) == []
        assert repo.tags() == []

    def test_a_branch_starts_as_its_source_and_goes_its_own_way(self, repo: BranchStore) -> None:
        repo.put("main", "a", b"1")
        made = repo.create_branch("exp", "main")
        repo.put("exp", "b", b"2")
        repo.put("main", "c", b"3")

        assert made.commit == repo.merge_base("main", "exp")
        assert content(repo, "exp") == {"a": b"1", "b": b"2"}
        assert content(repo, "main") == {"a": b"1", "c": b"3"}

    def test_a_name_is_given_once_to_a_branch_or_a_tag(self, repo: BranchStore) -> None:
        repo.create_branch("x")
        repo.create_tag("y", "main")

        for taken in ("main", "x", "y"):
            with pytest.raises(AlreadyExists):
                repo.create_branch(taken)
        for taken in ("main", "x", "y"):
            with pytest.raises(AlreadyExists):
                repo.create_tag(taken, "main")

    def test_a_deleted_branch_is_gone_and_its_name_is_free(self, repo: BranchStore) -> None:
        repo.create_branch("x")
        repo.put("x", "a", b"1")
        repo.delete_branch("x")

        for use in (repo.head, repo.commit_info, lambda ref: list(repo.list(ref)), lambda ref: repo.put(ref, "a", b"")):
            with pytest.raises(RefNotFound):
                use("x")
        with pytest.raises(RefNotFound):
            repo.delete_branch("x")
        assert repo.create_branch("x").commit == repo.head("main")

    def test_a_branch_is_deleted_only_where_it_was_expected(self, repo: BranchStore) -> None:
        before = repo.create_branch("x").commit
        repo.put("x", "a", b"1")

        with pytest.raises(HeadChanged):
            repo.delete_branch("x", if_head=before)
        assert content(repo, "x") == {"a": b"1"}

    def test_a_tag_stays_where_it_is(self, repo: BranchStore) -> None:
        repo.put("main", "a", b"1")
        tag = repo.create_tag("v1", "main")
        repo.put("main", "a", b"2")

        assert repo.read("v1", "a") == b"1"
        assert repo.head("v1") == tag.commit
        assert [ref.name for ref in repo.tags()] == ["v1"]
        with pytest.raises(RefNotFound):
            repo.put("v1", "a", b"3")
        repo.delete_tag("v1")
        with pytest.raises(RefNotFound):
            repo.head("v1")

    def test_a_commit_has_a_name_by_its_id_and_by_steps_back(self, repo: BranchStore) -> None:
        first = repo.put("main", "a", b"1")
        second = repo.put("main", "a", b"2")

        assert repo.read(first.id, "a") == b"1"
        assert repo.resolve(second.id[:12]).commit == second.id
        assert repo.resolve("main~1").commit == first.id
        assert repo.resolve("main~0").commit == second.id

    @pytest.mark.parametrize("ref", ["", "nothing", "main~99", "0" * 64, "deadbeef99", "main~x", "é"])
    def test_an_unknown_ref_is_told_as_such(self, repo: BranchStore, ref: str) -> None:
        for use in (repo.resolve, lambda ref: repo.diff("main", ref), lambda ref: repo.merge(ref, "main")):
            with pytest.raises(RefNotFound):
                use(ref)

    # Files

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

    @pytest.mark.parametrize("path", UNSAFE)
    def test_a_path_that_could_leave_the_tree_is_refused(self, repo: BranchStore, path: str) -> None:
        entry = Entry(path=path, address="data/x/y", size=1, checksum="c")
        head = repo.head("main")
        for use in (
            lambda: repo.stat("main", path),
            lambda: repo.put("main", path, b"x"),
            lambda: repo.commit("main", Changes(puts=(entry,))),
            lambda: repo.commit("main", Changes(deletes=(path,))),
        ):
            with pytest.raises(InvalidPath):
                use()
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

    # Commits

    def test_a_commit_empties_directories_then_deletes_then_puts(self, repo: BranchStore) -> None:
        for path in ("d/a", "d/b", "e/a", "e/b", "f"):
            repo.put("main", path, b"old")
        job = repo.begin_job("j", dest="main", path="d")
        puts = write(repo, job, {"d/b": b"new", "e/a": b"new"})
        changes = Changes(puts=puts, deletes=("e/a", "e/b", "not there"), directories=("d",))
        done = repo.commit("main", changes, message="one", metadata={"rows": "2"})

        assert isinstance(done, Commit)
        assert content(repo, "main") == {"d/b": b"new", "e/a": b"new", "f": b"old"}
        assert (done.message, done.metadata, done.entries) == ("one", {"rows": "2"}, 3 if self.counts_entries else 0)
        assert next(iter(repo.log("main"))) == done

    def test_a_commit_that_expects_another_head_does_nothing(self, repo: BranchStore) -> None:
        old = repo.head("main")
        repo.put("main", "a", b"1")
        new = repo.head("main")

        outcome = repo.commit("main", Changes(deletes=("a",)), expected_head=old)

        assert outcome == HeadMoved(branch="main", expected=old, actual=new)
        assert repo.head("main") == new
        assert isinstance(repo.commit("main", Changes(deletes=("a",)), expected_head=new), Commit)
        assert content(repo, "main") == {}

    @pytest.mark.parametrize(
        "puts",
        [
            (
                Entry(path="a", address="data/x", size=1, checksum="c"),
                Entry(path="a", address="data/y", size=2, checksum="d"),
            ),
            (Entry(path="a", address="data/x", size=-1, checksum="c"),),
            (Entry(path="a", address="data/x", size=1, checksum=""),),
        ],
        ids=["twice", "negative", "no checksum"],
    )
    def test_entries_that_mean_nothing_are_refused(self, repo: BranchStore, puts: tuple[Entry, ...]) -> None:
        with pytest.raises(InvalidArgument):
            repo.commit("main", Changes(puts=puts))
        assert list(repo.list("main")) == []

    def test_messages_and_metadata_are_text(self, repo: BranchStore) -> None:
        head = repo.head("main")
        for wrong in ({"rows": 1}, {1: "x"}, {"x": "\ud800"}):
            with pytest.raises(InvalidArgument):
                repo.commit("main", Changes(), metadata=wrong)  # type: ignore[arg-type]
        assert repo.head("main") == head
        done = repo.commit("main", Changes(), message="é 🦭\n", metadata={"": "", "é": "\t"})
        assert isinstance(done, Commit)
        assert repo.commit_info("main").metadata == {"": "", "é": "\t"}

    def test_the_log_goes_from_children_to_parents(self, repo: BranchStore) -> None:
        repo.create_branch("exp")
        on_main = repo.put("main", "a", b"1")
        on_exp = repo.put("exp", "b", b"1")
        merged = repo.merge("exp", "main").commit

        log = [commit.id for commit in repo.log("main")]
        assert log[0] == merged
        assert set(log[1:3]) == {on_main.id, on_exp.id}
        assert [commit.id for commit in repo.log("main", first_parent=True)][:2] == [merged, on_main.id]
        assert len(list(repo.log("main", limit=2))) == 2

    # Diff

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

    # Merges

    def test_a_merge_brings_what_the_source_changed_and_keeps_what_the_destination_changed(
        self, repo: BranchStore
    ) -> None:
        for path in ("a", "b", "c", "d"):
            repo.put("main", path, b"0")
        repo.create_branch("exp")
        repo.put("exp", "a", b"source")
        repo.commit("exp", Changes(deletes=("b",)))
        repo.put("exp", "new", b"source")
        repo.put("main", "c", b"dest")
        repo.commit("main", Changes(deletes=("d",)))
        head = repo.head("main")

        result = repo.merge("exp", "main", message="merged", metadata={"by": "me"})

        assert content(repo, "main") == {"a": b"source", "c": b"dest", "new": b"source"}
        assert (result.added, result.changed, result.removed) == (1, 1, 1)
        commit = repo.commit_info("main")
        assert commit.id == result.commit
        assert commit.parents == (head, repo.head("exp"))
        assert (commit.message, commit.metadata["by"]) == ("merged", "me")

    def test_merging_again_has_nothing_to_do(self, repo: BranchStore) -> None:
        repo.create_branch("exp")
        repo.put("exp", "a", b"1")
        repo.merge("exp", "main")
        head = repo.head("main")

        result = repo.merge("exp", "main")

        assert result.nothing_to_do
        assert (result.commit, repo.head("main")) == (head, head)

    def test_both_sides_doing_the_same_is_no_conflict(self, repo: BranchStore) -> None:
        repo.put("main", "gone", b"0")
        repo.create_branch("exp")
        for branch in ("main", "exp"):
            repo.put(branch, "a", b"same")
            repo.commit(branch, Changes(deletes=("gone",)))

        repo.merge("exp", "main")

        assert content(repo, "main") == {"a": b"same"}

    def test_a_conflict_is_told_with_all_paths_and_changes_nothing(self, repo: BranchStore) -> None:
        _diverged(repo)
        heads = repo.head("main"), repo.head("exp")

        with pytest.raises(MergeConflict) as caught:
            repo.merge("exp", "main")

        assert {(one.path, one.kind) for one in caught.value.conflicts} == {
            ("both", "both-changed"),
            ("dropped", "removed-and-changed"),
            ("kept", "changed-and-removed"),
            ("twice", "both-changed"),
        }
        assert (repo.head("main"), repo.head("exp")) == heads

    @pytest.mark.parametrize(
        ("strategy", "expected"),
        [
            ("source-wins", {"both": b"source", "kept": b"source", "twice": b"source"}),
            ("dest-wins", {"both": b"dest", "dropped": b"dest", "twice": b"dest"}),
        ],
    )
    def test_a_strategy_decides_conflicts(
        self, repo: BranchStore, strategy: Strategy, expected: dict[str, bytes]
    ) -> None:
        _diverged(repo)

        repo.merge("exp", "main", strategy=strategy)

        assert content(repo, "main") == {"free": b"source", **expected}

    def test_merge_if_does_nothing_when_the_head_has_moved(self, repo: BranchStore) -> None:
        repo.create_branch("exp")
        repo.put("exp", "a", b"1")
        old = repo.head("main")
        repo.put("main", "b", b"1")
        new = repo.head("main")

        assert repo.merge_if("exp", "main", old) == HeadMoved(branch="main", expected=old, actual=new)
        with pytest.raises(HeadChanged):
            repo.merge("exp", "main", if_head=old)
        assert repo.head("main") == new
        assert isinstance(repo.merge_if("exp", "main", new), MergeResult)
        assert content(repo, "main") == {"a": b"1", "b": b"1"}

    def test_equal_content_under_other_paths_is_never_lost(self, repo: BranchStore) -> None:
        """Two that delete the same file and each add the same content under a name of their own."""
        repo.put("main", "old", b"same")
        repo.create_branch("one")
        repo.create_branch("two")
        for branch in ("one", "two"):
            repo.commit(branch, Changes(deletes=("old",)))
            repo.put(branch, f"from-{branch}", b"same")

        repo.merge("one", "main")
        repo.merge("two", "main")

        assert content(repo, "main") == {"from-one": b"same", "from-two": b"same"}

    def test_deleting_what_is_not_there_hides_nothing_that_comes_later(self, repo: BranchStore) -> None:
        repo.create_branch("exp")
        repo.commit("exp", Changes(deletes=("a", "d/b"), directories=("d",)))
        repo.put("exp", "x", b"1")
        repo.put("main", "a", b"main")

        repo.merge("exp", "main")
        repo.put("main", "d/b", b"main")
        repo.merge("main", "exp")

        assert content(repo, "main") == {"a": b"main", "d/b": b"main", "x": b"1"}
        assert content(repo, "exp") == {"a": b"main", "d/b": b"main", "x": b"1"}

    def test_a_check_sees_the_outcome_and_its_refusal_changes_nothing(self, repo: BranchStore) -> None:
        repo.put("main", "a", b"1")
        repo.create_branch("exp")
        repo.put("exp", "b", b"2")
        head = repo.head("main")
        seen: list[object] = []

        def no_b(proposal: MergeProposal) -> str | None:
            with proposal.open("b") as file:
                seen.append(([change.path for change in proposal.changes()], file.read()))
            return "b is not welcome"

        def broken(proposal: MergeProposal) -> str | None:
            raise ZeroDivisionError

        with pytest.raises(CheckRefused, match="b is not welcome") as caught:
            repo.merge("exp", "main", checks=[no_b])
        assert caught.value.check == "no_b"
        with pytest.raises(CheckRefused, match="broken"):
            repo.merge("exp", "main", checks=[lambda proposal: None, broken])
        assert seen == [(["b"], b"2")]
        assert repo.head("main") == head
        repo.merge("exp", "main", checks=[lambda proposal: None])
        assert content(repo, "main") == {"a": b"1", "b": b"2"}

    def test_a_revert_undoes_one_commit_and_leaves_the_others(self, repo: BranchStore) -> None:
        repo.put("main", "a", b"1")
        wrong = repo.put("main", "a", b"wrong")
        repo.put("main", "b", b"2")

        repo.revert("main", wrong.id)

        assert content(repo, "main") == {"a": b"1", "b": b"2"}
        repo.put("main", "a", b"later")
        with pytest.raises(MergeConflict):
            repo.revert("main", wrong.id)
        assert content(repo, "main") == {"a": b"later", "b": b"2"}

    def test_a_cherry_pick_does_one_commit_again(self, repo: BranchStore) -> None:
        repo.create_branch("exp")
        repo.put("exp", "a", b"1")
        picked = repo.put("exp", "b", b"2")

        repo.cherry_pick("main", picked.id)

        assert content(repo, "main") == {"b": b"2"}

    def test_a_reset_points_a_branch_elsewhere(self, repo: BranchStore) -> None:
        first = repo.put("main", "a", b"1")
        second = repo.put("main", "a", b"2")

        with pytest.raises(HeadChanged):
            repo.reset("main", first.id, if_head=first.id)
        repo.reset("main", first.id, if_head=second.id)

        assert content(repo, "main") == {"a": b"1"}

    # Jobs

    def test_a_job_has_one_branch_however_often_it_is_asked_for(self, repo: BranchStore) -> None:
        job = repo.begin_job("job 1/é", dest="main", path="out/path", who="tests")
        repo.put("main", "moved", b"")

        assert repo.begin_job("job 1/é", dest="main", path="out/path/") == job
        assert repo.job("job 1/é", "out/path") == job
        assert repo.head(job.branch) == job.base
        assert [ref.name for ref in repo.branches()] == ["main"]
        other = repo.begin_job("job 1/é", dest="main", path="out/path2")
        assert other.branch != job.branch
        assert not other.data_prefix.startswith(job.data_prefix)

    def test_jobs_see_who_else_writes_where(self, repo: BranchStore) -> None:
        one = repo.begin_job("1", dest="main", path="out", who="anna")
        two = repo.begin_job("2", dest="main", path="out/part", who="ben")
        repo.begin_job("3", dest="main", path="out2", who="cleo")

        assert [(job.who, job.path) for job in repo.jobs(path="out/part")] == [("anna", "out"), ("ben", "out/part")]
        assert {job.id for job in repo.jobs()} == {"1", "2", "3"}
        repo.end_job(one)
        repo.end_job(one)
        assert [job.id for job in repo.jobs(dest="main", path="out")] == ["2"]
        with pytest.raises(RefNotFound):
            repo.job("1", "out")
        with pytest.raises(RefNotFound):
            repo.commit(one.branch, Changes(), job="1")
        repo.end_job(two)

    def test_an_overwriter_that_loses_the_race_removes_what_the_winner_added(self, repo: BranchStore) -> None:
        repo.put("main", "out/old", b"0")
        repo.put("main", "beside", b"0")
        one = run_job(repo, "one", "out", {"a": b"one", "same": b"x"}, overwrite=True)
        two = run_job(repo, "two", "out", {"b": b"two", "same": b"x"}, overwrite=True)

        head = repo.head("main")
        assert isinstance(repo.merge_if(one.branch, "main", head), MergeResult)
        moved = repo.merge_if(two.branch, "main", head)
        assert isinstance(moved, HeadMoved)
        result = repo.merge_if(two.branch, "main", moved.actual)

        assert isinstance(result, MergeResult)
        assert content(repo, "main") == {"beside": b"0", "out/b": b"two", "out/same": b"x"}
        assert sorted(commit.job for commit in repo.log("main") if commit.job) == ["one", "one", "two", "two"]

    def test_a_job_may_overwrite_everything(self, repo: BranchStore) -> None:
        repo.put("main", "a", b"1")
        job = repo.begin_job("all", dest="main", path="")
        other = run_job(repo, "other", "out", {"b": b"2"}, overwrite=True)
        repo.commit(job.branch, Changes(puts=write(repo, job, {"c": b"3"}), directories=("",)), job="all")

        repo.merge(other.branch, "main")
        repo.merge(job.branch, "main")

        assert content(repo, "main") == {"c": b"3"}

    def test_an_append_after_an_overwrite_stays_and_before_it_goes(self, repo: BranchStore) -> None:
        early = run_job(repo, "early", "out", {"early": b"1"}, overwrite=False)
        over = run_job(repo, "over", "out", {"over": b"2"}, overwrite=True)
        late = run_job(repo, "late", "out", {"late": b"3"}, overwrite=False)

        for job in (early, over, late):
            repo.merge(job.branch, "main")

        assert content(repo, "main") == {"out/over": b"2", "out/late": b"3"}

    def test_all_conflicts_are_told_those_of_overwritten_directories_and_the_others(self, repo: BranchStore) -> None:
        repo.put("main", "notes", b"1")
        job = run_job(repo, "job", "out", {"a": b"job"}, overwrite=True)
        repo.put(job.branch, "notes", b"job's")
        repo.put("main", "notes", b"2")
        repo.put("main", "out/by-hand", b"precious")

        with pytest.raises(MergeConflict) as caught:
            repo.merge(job.branch, "main")

        told = [(one.path, one.kind) for one in caught.value.conflicts]
        assert told == [("notes", "both-changed"), ("out/by-hand", "foreign-write")]

    def test_an_overwriter_does_not_silently_drop_what_came_past_the_jobs(self, repo: BranchStore) -> None:
        job = run_job(repo, "job", "out", {"a": b"job"}, overwrite=True)
        repo.put("main", "out/by-hand", b"precious")
        repo.put("main", "elsewhere", b"")
        head = repo.head("main")

        with pytest.raises(MergeConflict) as caught:
            repo.merge(job.branch, "main")

        assert [(one.path, one.kind) for one in caught.value.conflicts] == [("out/by-hand", "foreign-write")]
        assert repo.head("main") == head
        repo.merge(job.branch, "main", strategy="source-wins")
        assert content(repo, "main") == {"elsewhere": b"", "out/a": b"job"}

    @pytest.mark.parametrize(
        ("strategy", "expected"), [("source-wins", {"out/a": b"audited"}), ("dest-wins", {"out/b": b"nightly"})]
    )
    def test_two_branches_that_overwrote_a_directory_are_never_mixed(
        self, repo: BranchStore, strategy: Strategy, expected: dict[str, bytes]
    ) -> None:
        repo.create_branch("exp")
        audited = run_job(repo, "audited", "out", {"a": b"audited"}, overwrite=True, dest="exp")
        repo.merge(audited.branch, "exp")
        nightly = run_job(repo, "nightly", "out", {"b": b"nightly"}, overwrite=True)
        repo.merge(nightly.branch, "main")

        with pytest.raises(MergeConflict):
            repo.merge("exp", "main")
        repo.merge("exp", "main", strategy=strategy)

        assert content(repo, "main") == expected

    def test_jobs_side_by_side_do_not_touch_each_others_directories(self, repo: BranchStore) -> None:
        jobs = [run_job(repo, f"job{n}", f"out/p={n}", {"f": b"%d" % n}, overwrite=True) for n in range(3)]
        near = run_job(repo, "near", "out/p=1x", {"f": b"x"}, overwrite=True)
        for job in (*jobs, near):
            repo.merge(job.branch, "main")

        assert content(repo, "main") == {"out/p=0/f": b"0", "out/p=1/f": b"1", "out/p=1x/f": b"x", "out/p=2/f": b"2"}

    def test_of_many_overwriters_at_once_one_is_left_and_all_are_in_the_log(self, repo: BranchStore) -> None:
        jobs = [
            run_job(repo, f"job{n}", "out", {f"{n}-{part}": b"%d" % n for part in range(3)}, overwrite=True)
            for n in range(6)
        ]
        failures: list[BaseException] = []

        def publish(job: Job) -> None:
            try:
                expected = repo.head("main")
                while isinstance(outcome := repo.merge_if(job.branch, "main", expected), HeadMoved):
                    expected = outcome.actual
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []
        left = content(repo, "main", "out")
        assert len(left) == 3
        assert len({path.split("/")[1].split("-")[0] for path in left}) == 1
        assert {commit.job for commit in repo.log("main") if commit.job} == {job.id for job in jobs}


def _diverged(repo: BranchStore) -> None:
    for path in ("both", "dropped", "kept"):
        repo.put("main", path, b"base")
    repo.create_branch("exp")
    for branch, data, removed, changed in (
        ("exp", b"source", "dropped", "kept"),
        ("main", b"dest", "kept", "dropped"),
    ):
        repo.put(branch, "both", data)
        repo.put(branch, "twice", data)
        repo.put(branch, changed, data)
        repo.commit(branch, Changes(deletes=(removed,)))
    repo.put("exp", "free", b"source")
