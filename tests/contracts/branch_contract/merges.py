"""Merges of branches, their conflicts, and checks of them."""

from __future__ import annotations

import pytest

from contracts.branch_contract.contents import content
from lakeseal.branches.store import BranchStore, MergeProposal
from lakeseal.branches.values import Changes, HeadMoved, MergeResult, Strategy
from lakeseal.errors import CheckRefused, HeadChanged, MergeConflict


class MergesContract:
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

    @pytest.mark.field_bug(31)
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

    @pytest.mark.field_bug(30)
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
