"""The same histories on a lakeFS server and in the embedded store, side by side.

Few paths and fewer contents, so that equal contents turn up under different names all the time: which is where the
server's own three-way merge loses files.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import lakefs_sdk
import msgspec
import pytest

from lakeseal.branches import embedded, lakefs
from lakeseal.branches.lakefs.store import LakeFSBranchStore
from lakeseal.branches.store import BranchStore, Changes, Entry
from lakeseal.errors import MergeConflict

pytestmark = pytest.mark.peers

DIRECTORIES = ["a", "b", "a/b"]
PATHS = [f"{head}{tail}" for head in ["", "a/", "b/", "a/b/", "ab/"] for tail in "12"]
CASES = 40


@pytest.fixture(scope="module")
def stores(lakefs_server: dict[str, str]) -> Iterator[tuple[BranchStore, BranchStore]]:
    theirs = lakefs.create(f"lakefs://test-{uuid.uuid4().hex[:16]}", storage_options=lakefs_server)
    ours = embedded.create(f"memory://{uuid.uuid4().hex}/repo", ledger="sqlite://")
    yield ours, theirs
    theirs.close()
    ours.close()


@pytest.mark.parametrize("seed", range(CASES))
def test_a_merge_comes_to_the_same(stores: tuple[BranchStore, BranchStore], seed: int) -> None:
    ours, theirs = (_history(store, random.Random(seed)) for store in stores)

    assert theirs == ours


def test_the_servers_own_merge_still_loses_a_file_so_ours_may_not_rest_on_it(
    stores: tuple[BranchStore, LakeFSBranchStore],
) -> None:
    """When this fails, the server was mended, and trials (`lakefs_merging`) can go for servers from then on."""
    repo = stores[1]
    one, two = (f"{side}{uuid.uuid4().hex[:8]}" for side in ("one", "two"))
    base = f"base{uuid.uuid4().hex[:8]}"
    repo.create_branch(base, "main")
    repo.commit(base, Changes(puts=(_entry("z/old", 1),), directories=("",)))
    for branch in (one, two):
        repo.create_branch(branch, base)
        repo.commit(branch, Changes(puts=(_entry(f"from-{branch[:3]}", 1),), deletes=("z/old",)))
    api, name = repo._server.api.refs_api, repo.uri.removeprefix("lakefs://")

    for branch in (one, two):
        api.merge_into_branch(name, branch, base, lakefs_sdk.Merge())

    assert [entry.path for entry in repo.list(base)] == ["from-one"]


def _history(store: BranchStore, dice: random.Random) -> dict[str, Any]:
    """Branches of their own, so that cases do not disturb each other."""
    dest, source = f"dest{uuid.uuid4().hex[:8]}", f"source{uuid.uuid4().hex[:8]}"
    store.create_branch(dest, "main")
    store.commit(dest, Changes(puts=_puts(dice, 6), directories=("",)))
    store.create_branch(source, dest)
    by_job = dice.random() < 0.4
    job = store.begin_job(uuid.uuid4().hex, dest=dest, path="a") if by_job else None
    for _ in range(dice.randint(1, 2)):
        store.commit(job.branch if job else source, _changes(dice, 0.7), job=job.id if job else "")
    for _ in range(dice.randint(0, 2)):
        rival = store.begin_job(uuid.uuid4().hex, dest=dest, path="a")
        is_job = dice.random() < 0.5
        store.commit(rival.branch if is_job else dest, _changes(dice, 0.4), job=rival.id if is_job else "")
        if is_job:
            store.merge(rival.branch, dest, strategy="source-wins")
        store.end_job(rival)
    outcome: dict[str, Any] = {}
    strategy = dice.choice([None, None, "source-wins", "dest-wins"])
    try:
        result = store.merge(job.branch if job else source, dest, strategy=strategy)
        outcome = msgspec.structs.asdict(result)
        del outcome["commit"], outcome["base"]
    except MergeConflict as error:
        outcome["conflicts"] = sorted((one.path, one.kind) for one in error.conflicts)
    outcome["files"] = {entry.path: entry.identity for entry in store.list(dest)}
    if job:
        store.end_job(job)
    return outcome


def _changes(dice: random.Random, empties: float) -> Changes:
    directories = (dice.choice(DIRECTORIES),) if dice.random() < empties else ()
    return Changes(puts=_puts(dice, 3), deletes=tuple(dice.sample(PATHS, dice.randint(0, 3))), directories=directories)


def _puts(dice: random.Random, most: int) -> tuple[Entry, ...]:
    return tuple(_entry(path, dice.randint(0, 2)) for path in dice.sample(PATHS, dice.randint(0, most)))


def _entry(path: str, number: int) -> Entry:
    return Entry(path=path, address=f"data/{number}", size=number, checksum=f"c{number}")
