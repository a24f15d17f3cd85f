"""Jobs: a branch each, and merges of what they overwrite."""

from __future__ import annotations

import threading

import pytest

from contracts.branch_contract.contents import content, run_job, write
from lakeseal.branches.store import BranchStore
from lakeseal.branches.values import Changes, HeadMoved, Job, MergeResult, Strategy
from lakeseal.errors import MergeConflict, RefNotFound


class JobsContract:
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

    @pytest.mark.field_bug(31)
    def test_overwriters_whose_files_have_equal_content_leave_those_of_one(self, repo: BranchStore) -> None:
        repo.put("main", "out/old", b"same")
        one = run_job(repo, "one", "out", {"a": b"same", "b": b"same"}, overwrite=True)
        two = run_job(repo, "two", "out", {"c": b"same", "d": b"same"}, overwrite=True)
        repo.merge(one.branch, "main")
        repo.merge(two.branch, "main")
        assert content(repo, "main") == {"out/c": b"same", "out/d": b"same"}

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

    @pytest.mark.field_bug(31)
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
