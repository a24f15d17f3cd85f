"""A client changes the file of its commit after it was ratified: what is published is what was ratified, or nothing."""

from __future__ import annotations

import logging
import os
import random
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lakeseal.errors import LakesealError, TamperedCommit
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner import handover
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import Batch, CommitRequest, Ratified
from lakeseal.owner.publisher import Publisher, recover
from lakeseal.owner.snapshots import snapshots
from lakeseal.protocol.paths import COMMITS_DIR, commit_path
from lakeseal.storage import Store, open_store
from support.managed_tables import append, create, managed_log, newest

Publish = Callable[[LedgerOwner, Store], object]
PUBLISHERS: dict[str, Publish] = {
    "backfill": lambda owner, store: owner.backfill(store.uri),
    "publisher": lambda owner, store: Publisher(owner, alone=True).run_once(),
    "recover": lambda owner, store: recover(owner),
    "release": handover.release,
    "background": lambda owner, store: owner.backfill_tables([store.uri]),
    "a process that has just started": lambda owner, store: LedgerOwner(owner.ledger).backfill(store.uri),
}


def same_length(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def other_files(data: bytes, dice: random.Random) -> bytes:
    return data.replace(b'"dataChange":true', b'"dataChange":null') if dice.random() < 0.3 else data.replace(b"f", b"g")


TAMPERINGS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a bit": same_length,
    "names of the same length": other_files,
    "more": lambda data, dice: data + b'{"add":{}}\n',
    "less": lambda data, dice: data[: dice.randrange(len(data))],
    "nothing": lambda data, dice: b"",
    "blanks": lambda data, dice: b" " * len(data),
}


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(30, 100))]
)
def test_a_file_that_was_changed_is_never_published(
    open_owner, tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    dice = random.Random(seed)
    kind = dice.choice(["local", "memory"])
    store = open_store(tmp_path / "table" if kind == "local" else f"memory://{uuid.uuid4().hex}/t")
    owner = open_owner(backfills=False, trusting=dice.random() < 0.5, inline_bytes=0)
    log, managed = create(store, owner)
    for number in range(dice.randrange(1, 6)):
        append(log, managed, *(f"f{number}-{file}" for file in range(dice.randrange(1, 5))))
    told = owner.get_commits(store.uri)
    ratified = {commit.version: store.get(commit.key) for commit in told.commits}
    victim = dice.choice(told.commits)
    changed = TAMPERINGS[dice.choice(list(TAMPERINGS))](ratified[victim.version], dice)
    store.put(victim.key, changed)

    name = dice.choice(list(PUBLISHERS))
    errors: list[LakesealError] = []
    try:
        came_to = PUBLISHERS[name](owner, store)
        errors += (came_to if isinstance(came_to, dict) else getattr(came_to, "failed", {})).values()
    except LakesealError as error:
        errors.append(error)
    published = {}
    for version in ratified:
        with suppress(LakesealError):
            published[version] = store.get(commit_path(version))
    assert published == {version: ratified[version] for version in published}, "byte for byte, or not at all"
    if changed != ratified[victim.version]:
        assert victim.version not in published
        assert any(isinstance(error, TamperedCommit) for error in errors), "told"
        assert sorted(published) == list(range(1, victim.version))
    elif name != "release":
        assert sorted(published) == sorted(ratified)
        assert not errors


def test_of_a_small_commit_there_is_nothing_that_its_client_could_still_write_to(open_owner, memory: Store) -> None:
    owner = open_owner(backfills=False)
    log, managed = create(memory, owner)
    append(log, managed, "a")
    assert memory.list_keys(COMMITS_DIR) == []


def test_who_writes_to_a_staged_file_after_it_is_published_changes_nothing_in_the_log(
    open_owner, tmp_path: Path
) -> None:
    store = open_store(tmp_path / "table")
    owner = open_owner(backfills=False, inline_bytes=0)
    log, managed = create(store, owner)
    for name in "abcde":
        append(log, managed, name)
    told = owner.get_commits(store.uri)
    ratified = [store.get(commit.key) for commit in told.commits]
    owner.backfill(store.uri)
    for commit in told.commits:
        log_file = tmp_path / "table" / commit_path(commit.version)
        assert os.stat(log_file).st_nlink == 1, "nobody else has a name for it"
        with open(tmp_path / "table" / commit.key, "r+b") as file:
            file.write(b"{}")
    assert [store.get(commit_path(commit.version)) for commit in told.commits] == ratified


@pytest.mark.parametrize("read", ["new", "open", "together"])
def test_a_reader_that_meets_a_changed_file_is_told(open_owner, memory: Store, read: str) -> None:
    owner = open_owner(backfills=False, inline_bytes=0)
    log, managed = create(memory, owner)
    opened = managed_log(owner, memory)[0]
    opened.update()
    append(log, managed, "a")
    (key,) = memory.list_keys(COMMITS_DIR)
    memory.put(key, memory.get(key).replace(b'"a"', b'"z"'))
    with pytest.raises(TamperedCommit, match="not what was ratified") as raised:
        match read:
            case "new":
                managed_log(owner, memory)[0].update()
            case "open":
                opened.update()
            case "together":
                snapshots(owner, [memory])
    assert raised.value.file == key
    assert newest(memory) == 0


def test_a_client_cannot_have_another_digest_kept_than_that_of_what_was_looked_at(open_owner, memory: Store) -> None:
    owner = open_owner(backfills=False, trusting=False, inline_bytes=0)
    create(memory, owner)
    log, managed = managed_log(owner, memory)
    result = append(log, managed, "a")
    request = managed.request(2, _again(log, result.version), txn_id="t2")
    lying = CommitRequest(**{**_fields(request), "sha256": "0" * 64})
    (answer,) = owner.ratify(Batch(commits=(lying,))).commits
    assert isinstance(answer, Ratified)
    owner.backfill(memory.uri)
    assert newest(memory) == 2


def test_commits_from_before_digests_were_kept_are_published_by_their_size(open_owner, memory: Store) -> None:
    owner = open_owner(backfills=False, inline_bytes=0)
    log, managed = create(memory, owner)
    append(log, managed, "a")
    import sqlalchemy as sa

    from lakeseal.ledger.schema import commits

    owner.ledger.write(lambda tx: tx.run(sa.update(commits).values(sha256=None)))
    owner.backfill(memory.uri)
    assert newest(memory) == 1


def _again(log: DeltaLog, version: int) -> bytes:
    """The same, as the next version."""
    info = log.commit_info(version)
    assert info is not None
    assert info.in_commit_timestamp is not None
    later = str(info.in_commit_timestamp + 1).encode()
    data = log.commit_bytes(version).replace(str(info.in_commit_timestamp).encode(), later)
    return data.replace(str(info.txn_id).encode(), b"t2").replace(b'"a"', b'"b"')


def _fields(request: CommitRequest) -> dict[str, object]:
    return {name: getattr(request, name) for name in request.__struct_fields__}
