from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contracts.branch_contract import content, run_job
from lakeseal import ledger
from lakeseal.branches import embedded
from lakeseal.branches.checks import MaxRemoved, rule_to_json
from lakeseal.branches.embedded.store import EmbeddedBranchStore
from lakeseal.branches.store import MergeProposal
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.values import ENTRIES, Changes, Commit, Entry, MergeResult, Protection, entry_table
from lakeseal.errors import (
    AlreadyExists,
    BranchProtected,
    BrokenTree,
    CheckRefused,
    InvalidArgument,
    InvalidPath,
    RefNotFound,
    RepositoryNotFound,
    StorageUnavailable,
    UnknownOutcome,
    Unsupported,
)
from lakeseal.ledger import Ledger, Tx
from lakeseal.storage import open_store
from lakeseal.testing.faults import Fault, FaultyStore, How

Keep = Callable[[EmbeddedBranchStore], EmbeddedBranchStore]


# Making and opening


def test_a_repository_is_made_once(tmp_path: Path, opened: Keep) -> None:
    opened(embedded.create(tmp_path / "repo")).put("main", "a", b"1")

    with pytest.raises(AlreadyExists):
        embedded.create(tmp_path / "repo")
    assert content(opened(embedded.open(tmp_path / "repo")), "main") == {"a": b"1"}


def test_heads_are_in_one_ledger_and_no_other_is_taken_for_it(tmp_path: Path, opened: Keep) -> None:
    opened(embedded.create(tmp_path / "repo", ledger=f"sqlite:///{tmp_path}/right.db"))
    wrong = f"sqlite:///{tmp_path}/wrong.db"

    with pytest.raises(AlreadyExists, match=r"right\.db"):
        embedded.create(tmp_path / "repo", ledger=wrong)
    with pytest.raises(RepositoryNotFound, match=r"right\.db"):
        embedded.open(tmp_path / "repo", ledger=wrong)


def test_nothing_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFound):
        embedded.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(InvalidArgument, match="ledger"):
        embedded.create(f"memory://{uuid.uuid4().hex}")


def test_another_format_and_a_broken_description_are_told(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in (1, 3):
        store.put("_lakeseal/repository.json", b'{"format":%d,"id":"x","ledger":"y"}' % number)
        with pytest.raises(Unsupported, match=f"has format {number}"):
            embedded.open(tmp_path)
    store.put("_lakeseal/repository.json", b"{")
    with pytest.raises(BrokenTree):
        embedded.open(tmp_path)


def test_two_repositories_share_a_ledger_and_nothing_else(tmp_path: Path) -> None:
    with ledger.open("sqlite://") as book:
        one, two = (embedded.create(tmp_path / name, ledger=book) for name in ("one", "two"))
        one.put("main", "a", b"1")
        one.create_branch("x")
        one.begin_job("j", dest="main", path="p")

        assert content(two, "main") == {}
        assert [ref.name for ref in two.branches()] == ["main"]
        assert two.jobs() == []
        two.gc(job_grace_ms=0)
        assert content(one, "main") == {"a": b"1"}
        assert len(one.jobs()) == 1


# Names


@pytest.mark.parametrize("name", ["", " x", "x ", "a\nb", "a~1", "a^", "f" * 64, "_jobs/mine", "é" * 300, "\ud800"])
def test_names_that_would_mean_something_else_are_refused(repo: EmbeddedBranchStore, name: str) -> None:
    with pytest.raises(InvalidArgument):
        repo.create_branch(name)
    with pytest.raises(InvalidArgument):
        repo.create_tag(name, "main")


@pytest.mark.parametrize("name", ["é", "e\u0301", "日本語", "a b", "feature/x", "🦭", "%2F", "'; --", "MAIN"])
def test_any_other_text_is_a_name(repo: EmbeddedBranchStore, name: str) -> None:
    repo.create_branch(name)
    repo.put(name, "a", b"1")

    assert content(repo, name) == {"a": b"1"}
    assert {ref.name for ref in repo.branches()} == {"main", name}


def test_main_can_not_be_deleted(repo: EmbeddedBranchStore) -> None:
    with pytest.raises(InvalidArgument):
        repo.delete_branch("main")


@pytest.mark.parametrize(
    "address", ["", "/etc/passwd", "../x", "data/../../x", "_lakeseal/commits/x", "a\nb", "data//x"]
)
def test_an_address_that_leaves_the_repository_is_refused(repo: EmbeddedBranchStore, address: str) -> None:
    with pytest.raises(InvalidPath):
        repo.commit("main", Changes(puts=(Entry(path="a", address=address, size=1, checksum="c"),)))


def test_many_entries_come_as_a_table(repo: EmbeddedBranchStore) -> None:
    table = pa.table(
        {
            "path": [f"d/{n:03}" for n in reversed(range(300))],
            "address": [f"data/x/{n}" for n in range(300)],
            "size": pa.array(range(300), pa.int64()),
            "checksum": ["c"] * 300,
            "metadata": ["{}"] * 150 + ['{"rows":"1"}'] * 150,
        }
    )
    done = repo.commit("main", Changes(puts=table))

    assert isinstance(done, Commit)
    assert done.entries == 300
    listed = list(repo.list("main"))
    assert [entry.path for entry in listed] == [f"d/{n:03}" for n in range(300)]
    assert (listed[0].metadata, listed[299].metadata) == ({"rows": "1"}, {})
    assert pa.concat_tables(repo.entry_tables("main")).schema == ENTRIES
    for wrong in (table.drop_columns(["size"]), table.set_column(2, "size", pa.array(["x"] * 300))):
        with pytest.raises(InvalidArgument):
            repo.commit("main", Changes(puts=wrong))


def test_the_same_content_at_another_address_is_no_change(repo: EmbeddedBranchStore) -> None:
    entry = Entry(path="a", address="data/x/1", size=1, checksum="c")
    repo.commit("main", Changes(puts=(entry,)))
    repo.create_branch("exp")
    again = Entry(path="a", address="data/x/2", size=1, checksum="c", metadata={"k": "v"})
    repo.commit("exp", Changes(puts=(again,)))

    assert list(repo.diff("main", "exp")) == []
    assert repo.stat("exp", "a") == again
    result = repo.merge("exp", "main")
    assert (result.added, result.changed, result.removed) == (0, 0, 0)


# Protection


def test_a_protected_branch_changes_by_merges_only(repo: EmbeddedBranchStore) -> None:
    first = repo.put("main", "a", b"1")
    repo.create_branch("exp")
    repo.put("exp", "b", b"2")
    assert repo.protect("main", Protection(protected=True)).protection.protected

    for use in (
        lambda: repo.put("main", "c", b""),
        lambda: repo.commit("main", Changes(deletes=("a",))),
        lambda: repo.reset("main", "exp"),
        lambda: repo.revert("main", first.id),
        lambda: repo.cherry_pick("main", "exp"),
    ):
        with pytest.raises(BranchProtected):
            use()
    assert repo.head("main") == first.id
    repo.merge("exp", "main")
    assert content(repo, "main") == {"a": b"1", "b": b"2"}
    repo.protect("exp", Protection(protected=True))
    with pytest.raises(BranchProtected):
        repo.delete_branch("exp")
    repo.protect("exp", Protection())
    repo.delete_branch("exp")


def test_rules_of_a_branch_hold_for_every_client(tmp_path: Path, opened: Keep) -> None:
    repo = opened(embedded.create(tmp_path / "repo"))
    repo.put("main", "a", b"1")
    repo.create_branch("exp")
    repo.commit("exp", Changes(deletes=("a",)))
    repo.protect("main", Protection(rules=(rule_to_json(MaxRemoved(limit=0)),)))
    head = repo.head("main")

    with pytest.raises(CheckRefused, match="removes 1 files") as caught:
        opened(embedded.open(tmp_path / "repo")).merge("exp", "main")
    assert caught.value.check == "max-removed"
    assert repo.head("main") == head
    with pytest.raises(InvalidArgument):
        repo.protect("main", Protection(rules=({"rule": "unheard of"},)))
    with pytest.raises(RefNotFound):
        repo.protect("nothing", Protection())


def test_a_rule_that_comes_while_a_merge_is_checked_still_counts(repo: EmbeddedBranchStore) -> None:
    repo.put("main", "a", b"1")
    repo.create_branch("exp")
    repo.commit("exp", Changes(deletes=("a",)))

    def slow(proposal: MergeProposal) -> str | None:
        repo.protect("main", Protection(rules=(rule_to_json(MaxRemoved(limit=0)),)))
        return None

    with pytest.raises(CheckRefused, match="max-removed"):
        repo.merge("exp", "main", checks=[slow])
    assert content(repo, "main") == {"a": b"1"}


# What breaks


@pytest.mark.parametrize("how", ["other bytes", "nothing", "half", "another's", "another range", "another root"])
def test_damage_is_noticed_and_never_read_as_something_else(tmp_path: Path, opened: Keep, how: str) -> None:
    repo = opened(embedded.create(tmp_path / "repo"))
    repo.put("main", "a", b"1")
    store = open_store(tmp_path / "repo")
    others = set(store.list_keys("_lakeseal/commits/"))
    repo.put("main", "b", b"2")
    (new,) = set(store.list_keys("_lakeseal/commits/")) - others
    data = store.get(new)
    match how:
        case "other bytes":
            store.put(new, bytes(byte ^ 1 for byte in data))
        case "nothing":
            store.put(new, b"")
        case "half":
            store.put(new, data[: len(data) // 2])
        case "another's":
            store.put(new, store.get(sorted(others)[0]))
        case "another range":
            store.put(new, bytes(byte ^ 1 for byte in data[:500]) + data[500:])
        case "another root":
            assert data.count(b'[["a","b",') == 1
            store.put(new, data.replace(b'[["a","b",', b'[["a","c",'))

    fresh = opened(embedded.open(tmp_path / "repo"))
    with pytest.raises(BrokenTree):
        content(fresh, "main")
    with pytest.raises(BrokenTree):
        fresh.put("main", "c", b"3")


def test_a_missing_file_of_a_tree_is_told(tmp_path: Path, opened: Keep) -> None:
    repo = opened(embedded.create(tmp_path / "repo"))
    repo.create_branch("exp")
    wrote_it = repo.put("exp", "a", b"1").id
    repo.merge("exp", "main")
    store = open_store(tmp_path / "repo")
    store.delete(key for key in store.list_keys("_lakeseal/commits/") if wrote_it[:32] in key)

    fresh = opened(embedded.open(tmp_path / "repo"))
    with pytest.raises(BrokenTree, match="missing"):
        content(fresh, "main")
    with pytest.raises(RefNotFound):
        content(fresh, "exp")


@pytest.mark.parametrize("key", ["data/*", "_lakeseal/commits/*"])
@pytest.mark.parametrize("how", [How.FAIL, How.LOSE_REPLY])
def test_a_store_that_fails_leaves_the_branch_as_it_was(repo: EmbeddedBranchStore, key: str, how: How) -> None:
    repo.put("main", "a", b"1")
    head = repo.head("main")
    store: Any = FaultyStore(repo.objects.open(), [Fault("put", key, how)])
    faulty = embedded.open(repo.uri, ledger=repo.ledger, store=store)

    with pytest.raises(StorageUnavailable):
        faulty.put("main", "b", b"2")
    assert repo.head("main") == head
    faulty.put("main", "b", b"2")
    repo.gc()
    assert content(repo, "main") == {"a": b"1", "b": b"2"}


class Lossy:
    """A ledger that asks again after a lost reply, as the real one does; `between` happens before the second time."""

    def __init__(self, book: Ledger) -> None:
        self._book = book
        self.between: Callable[[], object] | None = None

    def write(self, do: Callable[[Tx], Any], *, idempotent: bool = False) -> Any:
        assert idempotent
        answer = self._book.write(do)
        if self.between is not None:
            between, self.between = self.between, None
            between()
            answer = self._book.write(do)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)


def test_a_lost_reply_of_the_ledger_is_settled_whatever_happened_since(repo: EmbeddedBranchStore) -> None:
    book: Any = Lossy(repo.ledger)
    lossy = embedded.open(repo.uri, ledger=book)

    for between in (
        lambda: None,
        lambda: repo.put("main", "other", b"x"),
        repo.gc,
        lambda: (repo.put("main", "other", b"y"), repo.gc(), repo.put("main", "other", b"z")),
    ):
        before = len(list(repo.log("main")))
        book.between = between
        done = lossy.put("main", "mine", uuid.uuid4().bytes)
        log = [commit.id for commit in repo.log("main")]
        assert log.count(done.id) == 1
        assert sum(commit.message == "Put mine" for commit in repo.log("main", limit=len(log) - before)) == 1

    repo.create_branch("exp")
    repo.put("exp", "merged", b"1")
    book.between = lambda: repo.put("main", "other", b"after")
    result = lossy.merge("exp", "main")
    assert isinstance(result, MergeResult)
    assert [commit.id for commit in repo.log("main")].count(result.commit) == 1
    book.between = lambda: None
    assert lossy.create_branch("new").name == "new"
    book.between = lambda: None
    assert lossy.create_tag("tag", "main").name == "tag"
    book.between = lambda: None
    lossy.delete_branch("new")
    book.between = lambda: None
    lossy.delete_tag("tag")
    book.between = lambda: repo.put("main", "other", b"moved")
    job = lossy.begin_job("j", dest="main", path="p")
    assert repo.job("j", "p") == job
    book.between = lambda: None
    lossy.end_job(job)


def test_a_branch_that_vanishes_around_a_lost_reply_leaves_the_outcome_unknown(repo: EmbeddedBranchStore) -> None:
    repo.create_branch("x")
    book: Any = Lossy(repo.ledger)
    lossy = embedded.open(repo.uri, ledger=book)
    book.between = lambda: repo.delete_branch("x")

    with pytest.raises(UnknownOutcome):
        lossy.put("x", "a", b"1")


# Cost


def requests(store: FaultyStore) -> list[str]:
    """What was asked of a store, each key and each part of an object by itself."""
    return [f"{call.name} {key}" for call in store.calls for key in call.keys]


class Counting:
    def __init__(self, book: Ledger) -> None:
        self._book = book
        self.calls = 0

    def write(self, do: Callable[[Tx], Any], *, idempotent: bool = False) -> Any:
        self.calls += 1
        return self._book.write(do, idempotent=idempotent)

    def read(self, do: Callable[[Tx], Any]) -> Any:
        self.calls += 1
        return self._book.read(do)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)


def test_a_job_of_thousands_of_files_costs_as_many_calls_as_one_of_a_few() -> None:
    counted = []
    for files in (3, 4000):
        uri = f"memory://{uuid.uuid4().hex}/repo"
        with ledger.open("sqlite://") as book:
            embedded.create(uri, ledger=book).put("main", "beside", b"")
            counting: Any = Counting(book)
            store: Any = FaultyStore(open_store(uri))
            repo = embedded.open(uri, ledger=counting, store=store)
            store.calls.clear()
            counting.calls = 0
            job = repo.begin_job("j", dest="main", path="out")
            entries = [
                Entry(path=f"out/p={n}/f", address=f"{job.data_prefix}/{n}", size=n, checksum=f"c{n}")
                for n in range(files)
            ]
            repo.commit(job.branch, Changes(puts=entry_table(entries), directories=("out",)), job=job.id)
            assert isinstance(repo.merge_if(job.branch, "main", job.base), MergeResult)
            repo.end_job(job)
            counted.append((len(store.calls), counting.calls))

    (_, ledger_calls), (store_calls, same_ledger_calls) = counted
    assert store_calls <= 10
    assert ledger_calls == same_ledger_calls <= 8


def test_a_merge_reads_and_writes_the_ranges_that_changed_and_no_others(repo: EmbeddedBranchStore) -> None:
    entries = [Entry(path=f"d/{n:04}", address=f"data/x/{n}", size=n, checksum="c") for n in range(2000)]
    repo.commit("main", Changes(puts=tuple(entries)))
    repo.create_branch("exp")
    repo.commit("exp", Changes(puts=(Entry(path="d/1000", address="data/x/new", size=1, checksum="new"),)))
    repo.commit("main", Changes(puts=(Entry(path="d/0003", address="data/x/new", size=1, checksum="new"),)))
    store: Any = FaultyStore(repo.objects.open())
    fresh = embedded.open(repo.uri, ledger=repo.ledger, store=store)

    fresh.merge("exp", "main")

    assert len(requests(store)) <= 8, requests(store)


def test_a_merge_of_changes_all_over_makes_no_more_calls_in_a_large_tree_nor_for_many_ranges(
    memory_ledger: Ledger,
) -> None:
    shape = TreeShape(cut=16, longest=80, node_cut=8, node_longest=32)
    for files, changed in ((300, 10), (6_000, 10), (6_000, 400)):
        uri = f"memory://{uuid.uuid4().hex}/repo"
        repo = embedded.create(uri, ledger=memory_ledger, shape=shape)
        entries = [Entry(path=f"d/{n:05}", address=f"data/x/{n}", size=n, checksum="c") for n in range(files)]
        repo.commit("main", Changes(puts=entry_table(entries)))
        repo.create_branch("exp")
        some = [Entry(path=f"{one.path}+", address="data/x/new", size=1, checksum="new") for one in entries]
        repo.commit("exp", Changes(puts=entry_table(some[:: files // changed])))
        repo.put("main", f"d/{files // 2:05}!", b"")
        store: Any = FaultyStore(repo.objects.open())
        fresh = embedded.open(uri, ledger=memory_ledger, store=store)

        assert fresh.merge("exp", "main").added == changed
        assert len(requests(store)) <= 9, requests(store)
        assert len(list(repo.list("main"))) == files + changed + 1


def test_jobs_with_one_id_on_two_paths_are_two_jobs(repo: EmbeddedBranchStore) -> None:
    one = run_job(repo, "same", "out one", {"f": b"1"}, overwrite=True)
    two = run_job(repo, "same", "out  one", {"f": b"2"}, overwrite=True)
    repo.merge(one.branch, "main")
    repo.merge(two.branch, "main")

    assert content(repo, "main") == {"out one/f": b"1", "out  one/f": b"2"}
    with pytest.raises(InvalidArgument):
        repo.create_branch("other")
        repo.begin_job("same", dest="other", path="out one")
