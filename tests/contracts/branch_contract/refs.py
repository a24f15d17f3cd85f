"""Branches, tags, and other names of commits."""

from __future__ import annotations

import pytest

from contracts.branch_contract.contents import content
from lakeseal.branches.store import BranchStore
from lakeseal.errors import AlreadyExists, HeadChanged, RefNotFound


class RefsContract:
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

    def test_an_unknown_ref_is_told_as_such(self, repo: BranchStore) -> None:
        for ref in ("", "nothing", "main~99", "0" * 64, "deadbeef99", "main~x", "é"):
            for use in (repo.resolve, lambda ref: repo.diff("main", ref), lambda ref: repo.merge(ref, "main")):
                with pytest.raises(RefNotFound):
                    use(ref)
