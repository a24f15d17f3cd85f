from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from contracts.branch_contract import checksum, content, run_job, write
from lakeseal.branches import embedded
from lakeseal.branches.embedded import collector
from lakeseal.branches.embedded.store import EmbeddedBranchStore
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.branches.values import Changes, Commit, Entry
from lakeseal.errors import Collected, HistoryExpired, InvalidArgument, RefNotFound, UnsafePath
from lakeseal.ledger import Ledger
from lakeseal.storage import open_store
from support.crashes import CrashingStore, Effects

T = TypeVar("T")

TINY = TreeShape(cut=3, longest=5, node_cut=2, node_longest=2)


def keys(repo: EmbeddedBranchStore, prefix: str) -> set[str]:
    return {meta.key for meta in repo.objects.open().list(prefix, recursive=True)}


def whole(repo: EmbeddedBranchStore) -> None:
    """All that branches, tags, jobs and their histories lead to can be read."""
    for ref in [*repo.branches(), *repo.tags(), *(repo.resolve(job.branch) for job in repo.jobs())]:
        for commit in repo.log(ref.commit):
            content(repo, commit.id)


@contextmanager
def embedded_again(repo: EmbeddedBranchStore) -> Iterator[EmbeddedBranchStore]:
    """With nothing remembered."""
    yield embedded.open(repo.uri, ledger=repo.ledger)


def test_objects_of_a_job_in_flight_stay_until_it_commits(repo: EmbeddedBranchStore) -> None:
    job = repo.begin_job("j", dest="main", path="out")
    puts = write(repo, job, {"out/a": b"1", "out/b": b"2"})

    report = repo.gc()
    assert (report.objects, report.kept_for_jobs) == (0, 2)
    repo.commit(job.branch, Changes(puts=puts), job=job.id)
    repo.gc()
    repo.merge(job.branch, "main")
    repo.end_job(job)
    repo.gc()

    assert content(repo, "main") == {"out/a": b"1", "out/b": b"2"}


def test_a_job_past_its_grace_is_removed_with_its_files_and_can_not_commit_any_more(repo: EmbeddedBranchStore) -> None:
    job = run_job(repo, "j", "out", {"a": b"1"}, overwrite=True)
    late = write(repo, repo.begin_job("late", dest="main", path="out"), {"out/b": b"2"})

    report = repo.gc(job_grace_ms=0)

    assert set(report.job_branches) == {job.branch, "_jobs/out/late"}
    assert report.objects == 2
    assert keys(repo, "data/") == set()
    with pytest.raises(RefNotFound):
        repo.commit("_jobs/out/late", Changes(puts=late), job="late")
    with pytest.raises(RefNotFound):
        repo.merge(job.branch, "main")
    whole(repo)


def test_what_only_a_deleted_branch_had_goes_and_nothing_else(repo: EmbeddedBranchStore) -> None:
    for n in range(20):
        repo.put("main", f"kept/{n}", b"%d" % n)
    before = {prefix: keys(repo, prefix) for prefix in ("data/", "_lakeseal/")}
    repo.create_branch("exp")
    for n in range(5):
        repo.put("exp", f"gone/{n}", b"%d" % n)
    repo.create_tag("v", "exp~2")
    repo.delete_branch("exp")

    seen = repo.gc(dry_run=True)
    assert keys(repo, "data/") > before["data/"]
    done = repo.gc()

    assert (seen.objects, seen.commits, seen.trees) == (done.objects, done.commits, done.trees)
    assert (done.objects, done.commits) == (2, 2)
    assert done.object_bytes == 2
    assert content(repo, "v") == {f"kept/{n}": b"%d" % n for n in range(20)} | {
        f"gone/{n}": b"%d" % n for n in range(3)
    }
    repo.delete_tag("v")
    repo.gc()
    assert {prefix: keys(repo, prefix) for prefix in before} == before
    whole(repo)
    assert repo.gc() == repo.gc(dry_run=False)


def test_old_history_loses_its_files_and_keeps_its_place(repo: EmbeddedBranchStore) -> None:
    first = repo.put("main", "a", b"1")
    repo.create_tag("kept", repo.put("main", "a", b"2").id)
    for n in (3, 4, 5):
        repo.put("main", "a", b"%d" % n)

    assert repo.gc(history_ms=10**9).objects == 0
    last = repo.commit_info("main")
    while repo.put("main", "b", b"").time_ms == last.time_ms:
        pass
    assert repo.gc(history_ms=0).objects > 0

    assert content(repo, "main") == {"a": b"5", "b": b""}
    assert repo.read("kept", "a") == b"2"
    assert first.id in [commit.id for commit in repo.log("main")]
    with embedded_again(repo) as fresh:
        for use in (
            lambda: fresh.read(first.id, "a"),
            lambda: list(fresh.list(first.id)),
            lambda: fresh.diff(first.id, "main"),
        ):
            with pytest.raises(HistoryExpired):
                use()
    for use in (
        lambda: repo.create_branch("x", first.id),
        lambda: repo.create_tag("x", first.id),
        lambda: repo.reset("main", first.id),
        lambda: repo.cherry_pick("main", first.id),
    ):
        with pytest.raises(HistoryExpired):
            use()
    assert repo.create_branch("from tag", "kept").commit == repo.head("kept")


def waited(repo: EmbeddedBranchStore) -> None:
    """Until what was done before is older than what is done next."""
    last = repo.commit_info("main")
    while repo.put("main", "tick", b"").time_ms == last.time_ms:
        pass


def test_the_file_of_a_commit_stays_whole_as_long_as_anything_in_it_is_needed(repo: EmbeddedBranchStore) -> None:
    many = tuple(
        Entry(path=f"many/{n:02}", address=f"data/x/{n}", size=n, checksum=checksum(b"%d" % n)) for n in range(40)
    )
    first = repo.commit("main", Changes(puts=many))
    assert isinstance(first, Commit)
    (file,) = (key for key in keys(repo, "_lakeseal/commits/") if first.id[:32] in key)
    store = repo.objects.open()
    size = store.head(file).size
    repo.put("main", "many/20", b"another")
    waited(repo)

    repo.gc(history_ms=0)
    assert store.head(file).size == size
    with embedded_again(repo) as fresh:
        assert len(list(fresh.list("main", "many"))) == 40
        with pytest.raises(HistoryExpired):
            list(fresh.list(first.id))
    repo.commit("main", Changes(directories=("many",)))
    waited(repo)
    waited(repo)
    assert repo.gc(history_ms=0, dry_run=True).trees > 0
    assert store.head(file).size == size
    assert repo.gc(history_ms=0).trees > 0

    assert store.head(file).size < 500
    assert repo.gc(history_ms=0).trees == 0
    with embedded_again(repo) as fresh:
        assert first in list(fresh.log("main"))
        assert fresh.resolve(first.id[:40]).commit == first.id
        with pytest.raises(HistoryExpired):
            list(fresh.list(first.id))


def test_what_comes_right_before_recent_commits_can_still_be_read_and_reverted(
    repo: EmbeddedBranchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.put("main", "a", b"1")
    waited(repo)
    before = repo.put("main", "a", b"2")
    while (last := repo.put("main", "a", b"3")).time_ms == before.time_ms:
        before = last
    monkeypatch.setattr(collector, "now_ms", lambda: last.time_ms)
    repo.gc(history_ms=0)

    with embedded_again(repo) as fresh:
        assert fresh.read(before.id, "a") in (b"2", b"3")
        assert len(list(fresh.diff(before.id, "main"))) <= 1
        fresh.revert("main", "main")
        assert content(fresh, "main") == content(fresh, before.id)
        with pytest.raises(HistoryExpired):
            fresh.read(f"{before.id}~1", "a")


def test_further_files_of_large_commits_go_when_nothing_needs_them(
    repo: EmbeddedBranchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TreeWriter, "largest", 4_000)
    repo.create_branch("exp")
    for branch in ("main", "exp"):
        repo.commit(
            branch,
            Changes(
                puts=tuple(Entry(path=f"{branch}/{n}", address=f"data/x/{n}", size=n, checksum="c") for n in range(60))
            ),
        )
    packs = keys(repo, "_lakeseal/packs/")
    assert len(packs) > 6
    assert repo.gc().packs == 0
    repo.delete_branch("exp")

    assert 0 < repo.gc().packs < len(packs)
    assert keys(repo, "_lakeseal/packs/") < packs
    with embedded_again(repo) as fresh:
        assert len(list(fresh.list("main"))) == 60


def test_a_branch_from_before_what_was_kept_of_history_still_merges(repo: EmbeddedBranchStore) -> None:
    repo.put("main", "a", b"1")
    base = repo.put("main", "b", b"1")
    repo.create_branch("old")
    repo.put("old", "a", b"old")
    repo.create_branch("older", "main~1")
    repo.put("older", "c", b"older")
    while repo.put("main", "b", b"main").time_ms == base.time_ms:
        pass
    repo.put("main", "b", b"later")

    assert repo.gc(history_ms=0).trees > 0
    with embedded_again(repo) as fresh:
        fresh.merge("old", "main")
        fresh.merge("older", "main")
        assert content(fresh, "main") == {"a": b"old", "b": b"later", "c": b"older"}


def test_branches_and_jobs_from_before_what_was_kept_of_history_still_merge(repo: EmbeddedBranchStore) -> None:
    repo.put("main", "a", b"1")
    repo.create_branch("old")
    repo.put("old", "b", b"2")
    over = run_job(repo, "over", "out", {"x": b"over"}, overwrite=True)
    other = run_job(repo, "other", "out", {"y": b"other"}, overwrite=True)
    for n in range(5):
        repo.put("main", f"many/{n}", b"")
    repo.merge(other.branch, "main")
    last = repo.commit_info("main")
    while repo.put("main", "last", b"").time_ms == last.time_ms:
        pass
    repo.gc(history_ms=0)
    with embedded_again(repo) as fresh:
        fresh.merge("old", "main")
        fresh.merge(over.branch, "main")

    expected = {"a": b"1", "b": b"2", "last": b"", "out/x": b"over"} | {f"many/{n}": b"" for n in range(5)}
    assert content(repo, "main") == expected
    repo.end_job(over)
    repo.end_job(other)
    while repo.put("main", "last", b"").time_ms == last.time_ms:
        pass
    done = repo.gc(history_ms=0)
    assert done.trees > 0
    assert content(repo, "main") == expected
    with embedded_again(repo) as fresh:
        fresh.put("old", "c", b"3")
        fresh.merge("old", "main")
        assert fresh.read("main", "c") == b"3"


def test_a_commit_that_no_branch_leads_to_is_no_start_for_anything(repo: EmbeddedBranchStore) -> None:
    repo.create_branch("exp")
    lost = repo.put("exp", "a", b"1").id
    repo.delete_branch("exp")

    for use in (
        lambda: repo.create_branch("x", lost),
        lambda: repo.merge(lost, "main"),
        lambda: repo.reset("main", lost),
    ):
        with pytest.raises(RefNotFound):
            use()


def test_a_fence_tells_that_files_may_have_been_collected(repo: EmbeddedBranchStore) -> None:
    fence = repo.fence()
    repo.objects.open().put("data/mine/x", b"x")
    entry = Entry(path="x", address="data/mine/x", size=1, checksum=checksum(b"x"))
    repo.gc()

    with pytest.raises(Collected):
        repo.commit("main", Changes(puts=(entry,)), fence=fence)
    assert content(repo, "main") == {}
    with pytest.raises(InvalidArgument):
        repo.commit("main", Changes(puts=(entry,)), fence="no fence")


def test_objects_elsewhere_are_linked_and_never_collected(
    repo: EmbeddedBranchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = open_store(f"memory://{uuid.uuid4().hex}/raw files")
    monkeypatch.setenv("LAKESEAL_PLACES", json.dumps([elsewhere.uri]))
    elsewhere.put("a b.csv", b"1,2")
    own = repo.objects.open()
    own.put("landing/c.csv", b"3")
    puts = (
        Entry(path="in/a.csv", address=f"{elsewhere.uri}/a b.csv", size=3, checksum=checksum(b"1,2")),
        Entry(path="in/c.csv", address="landing/c.csv", size=1, checksum=checksum(b"3")),
    )
    repo.commit("main", Changes(puts=puts))

    assert content(repo, "main") == {"in/a.csv": b"1,2", "in/c.csv": b"3"}
    repo.commit("main", Changes(directories=("in",)))
    repo.gc(history_ms=0)
    assert elsewhere.get("a b.csv") == b"1,2"
    assert own.get("landing/c.csv") == b"3"


def test_a_link_does_not_lead_to_another_kind_of_store(repo: EmbeddedBranchStore) -> None:
    repo.commit("main", Changes(puts=(Entry(path="x", address="file:///etc/hostname", size=1, checksum="c"),)))

    with pytest.raises(UnsafePath):
        repo.read("main", "x")


class Interrupting(Effects):
    """Does something after the nth write to a store."""

    def __init__(self, after: int, do: Callable[[], object]) -> None:
        super().__init__()
        self._nth = after
        self._do = do

    def around(self, effect: Callable[[], T]) -> T:
        result = effect()
        self.count += 1
        if self.count == self._nth:
            self._do()
        return result


def do_everything(repo: EmbeddedBranchStore) -> None:
    repo.put("main", "a", b"1")
    job = run_job(repo, "one", "out", {str(n): b"one" for n in range(6)}, overwrite=True)
    repo.put("main", "b", b"2")
    repo.merge(job.branch, "main")
    repo.end_job(job)
    repo.create_branch("exp", "main~1")
    repo.put("exp", "c", b"3")
    repo.put("main", "a", b"4")
    repo.merge("exp", "main")
    repo.delete_branch("exp")
    repo.revert("main", "main~1")


def test_a_collection_in_the_middle_of_anything_harms_nothing(
    memory_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each single write, somebody else collects all that looks like garbage."""
    monkeypatch.setattr(TreeWriter, "largest", 2_000)  # so that commits have further files
    expected = {"a": b"1", "b": b"2", "c": b"3"} | {f"out/{n}": b"one" for n in range(6)}
    at, reached = 0, True
    while reached:
        at += 1
        uri = f"memory://{uuid.uuid4().hex}/repo"
        other = embedded.create(uri, ledger=memory_ledger, shape=TINY)
        effects = Interrupting(at, other.gc)
        store: Any = CrashingStore(open_store(uri), effects)
        do_everything(embedded.open(uri, ledger=memory_ledger, store=store))
        whole(other)
        assert content(other, "main") == expected, at
        other.gc(job_grace_ms=0)
        whole(other)
        reached = effects.count >= at
    assert at > 14


def test_collections_may_run_side_by_side(repo: EmbeddedBranchStore) -> None:
    def use(n: int) -> None:
        for m in range(4):
            repo.put("main", f"{n}/{m}", b"x")

    failures: list[BaseException] = []

    def guarded(do: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                do()
            except BaseException as error:
                failures.append(error)

        return run

    threads = [threading.Thread(target=guarded(lambda n=n: use(n))) for n in range(3)]  # type: ignore[misc]
    threads += [threading.Thread(target=guarded(lambda: [repo.gc() for _ in range(5)])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert content(repo, "main") == {f"{n}/{m}": b"x" for n in range(3) for m in range(4)}
    repo.gc()
    whole(repo)


def test_times_to_keep_things_are_not_negative(repo: EmbeddedBranchStore) -> None:
    for arguments in ({"job_grace_ms": -1}, {"history_ms": -1}):
        with pytest.raises(InvalidArgument):
            repo.gc(**arguments)  # type: ignore[arg-type]
