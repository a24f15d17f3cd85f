"""The branch store on a real lakeFS server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lakefs_sdk
import pyarrow as pa
import pytest
from lakefs_sdk.client import LakeFSClient

from contracts.branch_contract import BranchStoreContract, content, run_job, write
from lakeseal import Repository
from lakeseal.branches import lakefs
from lakeseal.branches.checks import MaxRemoved, rule_to_json
from lakeseal.branches.lakefs.options import Options
from lakeseal.branches.lakefs.store import LakeFSBranchStore
from lakeseal.branches.store import BranchStore, Changes, Commit, HeadMoved, MergeResult, Protection
from lakeseal.cli import main
from lakeseal.errors import (
    AlreadyExists,
    BranchDirty,
    BranchProtected,
    CheckRefused,
    HeadChanged,
    InvalidArgument,
    NotAuthenticated,
    ObjectNotFound,
    RepositoryNotFound,
    Unsupported,
)
from lakeseal.testing.proxy import ProxyFault, Request, faulty_proxy

pytestmark = pytest.mark.peers

ORDERS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


@pytest.fixture
def uri() -> str:
    return f"lakefs://test-{uuid.uuid4().hex[:16]}"


@pytest.fixture
def repo(uri: str, lakefs_server: dict[str, str]) -> Iterator[LakeFSBranchStore]:
    made = lakefs.create(uri, storage_options=lakefs_server)
    yield made
    made.close()


@pytest.fixture
def other(lakefs_server: dict[str, str]) -> LakeFSClient:
    """Somebody who knows nothing of Lakeseal."""
    return _client(lakefs_server)


class TestLakeFS(BranchStoreContract):
    counts_entries = False


# The guard


def test_a_branch_that_moves_between_the_look_and_the_merge_refuses_it(
    repo: LakeFSBranchStore, other: LakeFSClient, lakefs_server: dict[str, str]
) -> None:
    job = run_job(repo, "job", "out", {"a": b"job"}, overwrite=True)
    expected = repo.head("main")

    with _slow_to_merge(lakefs_server, lambda: _by_hand(repo, other, "elsewhere")) as (options, moved):
        late = lakefs.open(repo.uri, storage_options=options)
        outcome = late.merge_if(job.branch, "main", expected)
        late.close()

    assert outcome == HeadMoved(branch="main", expected=expected, actual=moved[0])
    assert repo.head("main") == moved[0]
    assert content(repo, "main") == {"elsewhere": b"by hand"}


def test_a_merge_whose_reply_is_lost_is_found_and_happens_once(
    repo: LakeFSBranchStore, lakefs_server: dict[str, str]
) -> None:
    repo.create_branch("exp")
    repo.put("exp", "a", b"1")
    head, faults = repo.head("main"), [ProxyFault.LOSE_REPLY, ProxyFault.LOSE_REQUEST]

    def fault(request: Request) -> ProxyFault | None:
        return faults.pop() if faults and _is_merge_into_main(request) else None

    with faulty_proxy(Options.of(lakefs_server).endpoint, fault) as proxy:
        far = lakefs.open(repo.uri, storage_options={**lakefs_server, "lakefs_endpoint": proxy.endpoint})
        outcome = far.merge_if("exp", "main", head)
        far.close()

    assert faults == []
    assert isinstance(outcome, MergeResult)
    assert outcome.commit == repo.head("main")
    assert [commit.id for commit in repo.log("main", first_parent=True)][:2] == [outcome.commit, head]


def test_the_server_itself_refuses_a_merge_at_another_head(repo: LakeFSBranchStore) -> None:
    """Straight to the server, so that no look of ours comes first."""
    repo.put("main", "a", b"1")
    old = repo.head("main")
    repo.create_branch("exp")
    repo.put("exp", "b", b"2")
    head = repo.put("main", "c", b"3").id
    merge = lakefs_sdk.Merge(metadata={"::lakeseal::expected-head": old}, allow_empty=True)
    api, name = repo._server.api.refs_api, repo.uri.removeprefix("lakefs://")

    with pytest.raises(lakefs_sdk.ApiException) as caught:
        api.merge_into_branch(name, "exp", "main", merge)

    assert caught.value.status == 412
    assert repo.head("main") == head
    merge.metadata = {"::lakeseal::expected-head": head}
    api.merge_into_branch(name, "exp", "main", merge)
    assert content(repo, "main") == {"a": b"1", "b": b"2", "c": b"3"}


def test_commits_with_an_expected_head_have_one_winner(repo: LakeFSBranchStore) -> None:
    head = repo.head("main")
    outcomes: list[Commit | HeadMoved] = []

    def one(number: int) -> None:
        job = repo.begin_job(f"j{number}", dest="main", path=f"p{number}")
        puts = write(repo, job, {f"p{number}/x": b"%d" % number})
        outcomes.append(repo.commit("main", Changes(puts=puts), expected_head=head))

    _at_once([lambda number=number: one(number) for number in range(6)])

    won = [one for one in outcomes if isinstance(one, Commit)]
    assert len(outcomes) == 6
    assert len(won) == 1
    assert won[0].parents == (head,)
    assert len(content(repo, "main")) == 1


def test_a_server_that_runs_no_hooks_is_refused_unless_the_window_is_accepted(
    uri: str, lakefs_without_hooks: dict[str, str]
) -> None:
    repo = lakefs.create(uri, storage_options=lakefs_without_hooks)
    head = repo.head("main")

    with pytest.raises(Unsupported, match="runs no hooks"):
        repo.put("main", "a", b"1")

    assert repo.head("main") == head
    repo.close()
    repo = lakefs.open(uri, storage_options={**lakefs_without_hooks, "lakefs_unguarded": "true"})
    repo.put("main", "a", b"1")
    repo.create_branch("exp")
    repo.put("exp", "b", b"2")
    repo.put("main", "c", b"3")
    assert isinstance(repo.merge_if("exp", "main", repo.head("main")), MergeResult)
    assert content(repo, "main") == {"a": b"1", "b": b"2", "c": b"3"}
    repo.close()


def test_without_hooks_a_merge_that_landed_elsewhere_is_told(uri: str, lakefs_without_hooks: dict[str, str]) -> None:
    accepted = {**lakefs_without_hooks, "lakefs_unguarded": "true"}
    repo = lakefs.create(uri, storage_options=accepted)
    repo.put("main", "a", b"1")
    repo.create_branch("exp")
    repo.put("exp", "b", b"2")

    with _slow_to_merge(accepted, lambda: _by_hand(repo, _client(accepted), "c")) as (options, moved):
        late = lakefs.open(repo.uri, storage_options=options)
        with pytest.raises(HeadChanged, match="happened, but onto"):
            late.merge_if("exp", "main", repo.head("main"))
        late.close()

    assert repo.commit_info("main").parents[0] == moved[0]
    assert content(repo, "main") == {"a": b"1", "b": b"2", "c": b"by hand"}
    repo.close()


# Beside others


def test_what_others_write_through_the_server_is_read_and_merged(repo: LakeFSBranchStore, other: LakeFSClient) -> None:
    _by_hand(repo, other, "theirs")
    repo.put("main", "ours", b"1")

    assert content(repo, "main") == {"ours": b"1", "theirs": b"by hand"}
    assert [change.path for change in repo.diff("main~2", "main")] == ["ours", "theirs"]


def test_a_repository_that_lakeseal_did_not_make_is_guarded_from_its_first_write(
    uri: str, lakefs_server: dict[str, str], other: LakeFSClient
) -> None:
    made = lakefs.create(uri, storage_options=lakefs_server)  # only a repository: nothing is committed to it
    _by_hand(made, other, "old")
    made.close()
    repo = lakefs.open(uri, storage_options=lakefs_server)
    name = uri.removeprefix("lakefs://")
    other.branches_api.create_branch(name, lakefs_sdk.BranchCreation(name="theirs", source="main"))
    _by_hand(repo, other, "new", branch="theirs")

    assert isinstance(repo.merge_if("theirs", "main", repo.head("main")), MergeResult)

    assert content(repo, "main") == {"new": b"by hand", "old": b"by hand"}
    assert repo.merge("theirs", "main").nothing_to_do
    repo.close()


def test_a_branch_with_changes_that_nobody_committed_is_left_alone(
    repo: LakeFSBranchStore, other: LakeFSClient
) -> None:
    name = repo.uri.removeprefix("lakefs://")
    other.objects_api.upload_object(name, "main", "half", content=b"done")

    with pytest.raises(BranchDirty):
        repo.put("main", "a", b"1")

    with pytest.raises(ObjectNotFound):
        repo.stat("main", "half")
    other.branches_api.reset_branch(name, "main", lakefs_sdk.ResetCreation(type="reset"))
    repo.put("main", "a", b"1")
    assert content(repo, "main") == {"a": b"1"}


def test_a_hook_of_the_server_that_refuses_is_a_check_that_refuses(
    repo: LakeFSBranchStore, other: LakeFSClient
) -> None:
    action = b"name: never\non:\n  pre-merge:\n    branches: [main]\nhooks:\n  - id: never\n    type: lua\n"
    action += b"    properties:\n      script: error('not today')\n"
    repo.create_branch("exp")
    repo.put("exp", "_lakefs_actions/never.yaml", action)
    head = repo.head("main")

    with pytest.raises(CheckRefused, match="not today"):
        repo.merge("exp", "main")

    assert repo.head("main") == head


def test_a_protected_branch_is_protected_for_everybody_and_takes_merges(
    repo: LakeFSBranchStore, other: LakeFSClient
) -> None:
    repo.put("main", "a", b"1")
    repo.create_branch("exp")
    repo.commit("exp", Changes(deletes=("a",)))
    rule = rule_to_json(MaxRemoved(limit=0))
    assert repo.protect("main", Protection(protected=True, rules=(rule,))).protection.protected

    for use in (
        lambda: repo.put("main", "b", b"2"),
        lambda: repo.revert("main", "main"),
        lambda: repo.reset("main", "main~1"),
    ):
        with pytest.raises(BranchProtected):
            use()
    rules = other.repositories_api.get_branch_protection_rules(repo.uri.removeprefix("lakefs://"))
    assert [rule.pattern for rule in rules] == ["main"]
    with pytest.raises(CheckRefused, match="removes 1 files"):
        repo.merge("exp", "main")
    assert content(repo, "main") == {"a": b"1"}
    repo.protect("main", Protection(protected=True))
    repo.merge("exp", "main")
    assert content(repo, "main") == {}
    assert repo.resolve("main").protection == Protection(protected=True)
    assert not repo.protect("main", Protection()).protection.protected
    repo.put("main", "b", b"2")


# Asking wrongly


def test_wrong_keys_and_missing_repositories_are_told_without_secrets(uri: str, lakefs_server: dict[str, str]) -> None:
    wrong = {**lakefs_server, "lakefs_secret_access_key": "not-the-secret"}
    with pytest.raises(NotAuthenticated) as caught:
        lakefs.open(uri, storage_options=wrong)
    assert "not-the-secret" not in f"{caught.value}{caught.value.__cause__}{caught.value.to_json()}"
    with pytest.raises(RepositoryNotFound):
        Repository.open(uri, storage_options=lakefs_server)


def test_a_repository_is_made_once(repo: LakeFSBranchStore, lakefs_server: dict[str, str]) -> None:
    with pytest.raises(AlreadyExists):
        Repository.create(repo.uri, storage_options=lakefs_server)


@pytest.mark.parametrize("name", ["a/b", "é", "a.b", "-a", "lakeseal-job-x", "0" * 64])
def test_names_that_lakefs_does_not_allow_are_refused(repo: LakeFSBranchStore, name: str) -> None:
    with pytest.raises(InvalidArgument):
        repo.create_branch(name)


def test_old_jobs_are_collected_and_history_is_the_servers(repo: LakeFSBranchStore) -> None:
    job = repo.begin_job("old", dest="main", path="out")
    crashed = repo._moves.scratch(repo.head("main"))
    left = crashed.__enter__()

    assert repo.gc().job_branches == ()
    assert set(repo.gc(job_grace_ms=-1, dry_run=True).job_branches) == {job.branch, left}
    assert set(repo.gc(job_grace_ms=-1).job_branches) == {job.branch, left}
    assert repo.jobs() == []
    with pytest.raises(Unsupported):
        repo.gc(history_ms=1)


# Jobs


def test_rows_are_appended_and_overwritten_by_jobs(repo: LakeFSBranchStore, lakefs_server: dict[str, str]) -> None:
    tables = Repository.open(repo.uri, storage_options=lakefs_server)
    first = tables.write(ORDERS, "main", "shop/orders", partition_by=["day"])
    tables.write(ORDERS, "main", "shop/orders", partition_by=["day"])
    assert tables.to_arrow("main", "shop/orders").num_rows == 6

    done = tables.write(ORDERS.slice(0, 1), "main", "shop/orders", mode="overwrite", partition_by=["day"])

    assert tables.to_arrow("main", "shop/orders").to_pydict() == {"id": [1], "day": ["a"]}
    assert tables.to_arrow(first.commit, "shop/orders").num_rows == 3
    assert (done.removed, tables.jobs()) == (4, [])
    assert tables.log("main", limit=1)[0].metadata["lakeseal.rows"] == "1"
    assert tables.write(ORDERS, "main", "shop/orders", mode="ignore").skipped
    with pytest.raises(AlreadyExists):
        tables.write(ORDERS, "main", "shop/orders", mode="error")
    again = [tables.write(ORDERS, "main", "again", job_id="mine") for _ in range(2)]
    assert again[1].skipped
    tables.store.close()


def test_the_log_shows_no_number_of_files_for_the_server_does_not_count(
    repo: LakeFSBranchStore, lakefs_server: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    repo.put("main", "a", b"1")
    options = [word for name, value in lakefs_server.items() for word in ("--option", f"{name}={value}")]

    assert main(["branch", "log", repo.uri, "main", "--limit", "1", "--json", *options]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert (shown["message"], shown["files"]) == ("Put a", None)


def test_of_racing_overwriters_one_jobs_rows_are_left_and_every_job_is_in_the_log(
    repo: LakeFSBranchStore, lakefs_server: dict[str, str]
) -> None:
    tables = [Repository.open(repo.uri, storage_options=lakefs_server) for _ in range(4)]
    for round_ in range(3):
        done: list[Any] = []

        def overwrite(number: int, done: list[Any] = done) -> None:
            rows = pa.table({"writer": [number] * 4, "part": [0, 1, 2, 3]})
            done.append(tables[number].write(rows, "main", "out", mode="overwrite", partition_by=["part"]))

        _at_once([lambda number=number: overwrite(number) for number in range(4)])

        left = tables[0].to_arrow("main", "out")
        assert left.num_rows == 4
        assert len(set(left["writer"].to_pylist())) == 1
        assert len(done) == 4
        logged = {commit.job for commit in tables[0].log("main")}
        assert {one.job for one in done} <= logged, round_
    for one in tables:
        one.store.close()


def test_a_job_that_is_killed_before_its_merge_changed_nothing_and_is_finished_by_the_next(
    repo: LakeFSBranchStore, lakefs_server: dict[str, str]
) -> None:
    tables = Repository.open(repo.uri, storage_options=lakefs_server)
    tables.write(ORDERS, "main", "out")
    head = repo.head("main")
    code = f"""
import time, pyarrow as pa
from lakeseal import Repository

def stop(merge):
    print("committed, not merged", flush=True)
    time.sleep(600)

tables = Repository.open({repo.uri!r}, storage_options={lakefs_server!r})
tables.write(pa.table({{"id": [9]}}), "main", "out", mode="overwrite", job_id="nightly", checks=[stop])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "committed, not merged\n"
        process.kill()

    assert repo.head("main") == head
    assert [job.id for job in tables.jobs()] == ["nightly"]
    tables.write(pa.table({"id": [9]}), "main", "out", mode="overwrite", job_id="nightly")
    assert tables.to_arrow("main", "out")["id"].to_pylist() == [9]
    assert tables.jobs() == []
    left = {name for name, _ in repo._server.branch_names("lakeseal-", hidden=True)}
    assert set(repo.gc(job_grace_ms=-1).job_branches) == left
    tables.store.close()


def test_tasks_write_to_the_servers_bucket_themselves(uri: str, lakefs_on_s3: dict[str, str]) -> None:
    bucket = lakefs_on_s3.pop("bucket")
    with pytest.raises(InvalidArgument, match="where shall the objects"):
        Repository.create(uri, storage_options=lakefs_on_s3)
    tables = Repository.create(uri, storage_options={**lakefs_on_s3, "lakefs_storage_namespace": f"{bucket}/tables"})
    for mode in ("append", "append", "overwrite"):
        tables.write(ORDERS, "main", "shop/orders", mode=mode, partition_by=["day"])

    assert tables.to_arrow("main", "shop/orders").num_rows == 3
    assert tables.to_arrow("main~1", "shop/orders").num_rows == 6
    assert all("://" not in entry.address for entry in tables.list("main"))
    tables.store.close()


@pytest.mark.spark
def test_spark_writes_and_reads_a_branch_on_lakefs(
    spark: Any, repo: LakeFSBranchStore, lakefs_server: dict[str, str]
) -> None:
    tables = Repository.open(repo.uri, storage_options=lakefs_server)
    frame = spark.range(100).selectExpr("id", "id % 4 AS part")
    for mode in ("append", "append", "overwrite"):
        tables.write(frame, "main", "numbers", mode=mode, partition_by=["part"])

    found = tables.to_spark(spark, "main", "numbers")

    assert found.count() == 100
    assert found.agg({"id": "sum"}).collect()[0][0] == 4950
    tables.store.close()


def _client(server: dict[str, str]) -> LakeFSClient:
    options = Options.of(server)
    return LakeFSClient(
        lakefs_sdk.Configuration(
            host=options.endpoint, username=options.access_key_id, password=options.secret_access_key
        )
    )


@contextmanager
def _slow_to_merge(server: dict[str, str], meanwhile: Callable[[], str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Something else happens while a merge into main is on its way to the server."""
    happened: list[str] = []

    def fault(request: Request) -> None:
        if _is_merge_into_main(request) and not happened:
            happened.append(meanwhile())

    with faulty_proxy(Options.of(server).endpoint, fault) as proxy:
        yield {**server, "lakefs_endpoint": proxy.endpoint}, happened


def _is_merge_into_main(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/merge/main")


def _by_hand(repo: BranchStore, other: LakeFSClient, path: str, *, branch: str = "main") -> str:
    name = repo.uri.removeprefix("lakefs://")
    other.objects_api.upload_object(name, branch, path, content=b"by hand")
    return str(other.commits_api.commit(name, branch, lakefs_sdk.CommitCreation(message="by hand")).id)


def _at_once(work: list[Callable[[], object]]) -> None:
    failures: list[BaseException] = []

    def guarded(one: Callable[[], object]) -> None:
        try:
            one()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
