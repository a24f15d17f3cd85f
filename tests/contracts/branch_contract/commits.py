"""Commits: one after the other, undone, done again, left behind."""

from __future__ import annotations

from typing import ClassVar

import pytest

from contracts.branch_contract.contents import content, write
from lakeseal.branches.store import BranchStore
from lakeseal.branches.values import Changes, Commit, Entry, HeadMoved
from lakeseal.errors import HeadChanged, InvalidArgument, MergeConflict


class CommitsContract:
    counts_entries: ClassVar[bool] = True
    """Whether `Commit.entries` is known. lakeFS does not count."""

    def test_a_commit_empties_directories_then_deletes_then_puts(self, repo: BranchStore) -> None:
        for path in ("d/a", "d/b", "e/a", "e/b", "f"):
            repo.put("main", path, b"old")
        job = repo.begin_job("j", dest="main", path="d")
        puts = write(repo, job, {"d/b": b"new", "e/a": b"new"})
        changes = Changes(puts=puts, deletes=("e/a", "e/b", "not there"), directories=("d",))
        done = repo.commit("main", changes, message="one", metadata={"rows": "2"})

        assert isinstance(done, Commit)
        assert content(repo, "main") == {"d/b": b"new", "e/a": b"new", "f": b"old"}
        assert (done.message, done.metadata, done.entries) == ("one", {"rows": "2"}, 3 if self.counts_entries else None)
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
