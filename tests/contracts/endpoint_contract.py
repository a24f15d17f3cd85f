"""What every `OwnerEndpoint` must do, as tests: one suite for all ways to reach an owner.

Derive a class whose name starts with `Test` and give it fixtures `endpoint`, an owner that backfills only when it is
asked to, and `stores`, three empty stores that both the owner and this process can reach:

    class TestMyEndpoint(OwnerEndpointContract):
        @pytest.fixture
        def endpoint(self): ...

        @pytest.fixture
        def stores(self): ...
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence

from lakeseal.clock import now_ms
from lakeseal.commit.filesystem_owner import FilesystemOwner, txn_id_of
from lakeseal.errors import AlreadyExists, InvalidArgument, LakesealError, OwnedElsewhere, VersionNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.handover import release, take_over
from lakeseal.owner.messages import Batch, CommitRequest, Guard, LedgerRecord, Ratified, Taken, Undecided, file_name
from lakeseal.owner.ownership import State
from lakeseal.owner.snapshots import snapshots
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import COMMITS_DIR, commit_path
from lakeseal.storage.base import Store
from models.history import check_history
from support.managed_tables import add, append, create, managed_log, newest


def request(endpoint: OwnerEndpoint, store: Store, version: int, *, small: bool = True) -> CommitRequest:
    """To ratify a commit that adds a file. A large one is in `_commits` already."""
    txn_id, timestamp = str(uuid.uuid4()), now_ms() + 60_000 + version
    info = CommitInfo(operation="TEST", txn_id=txn_id, in_commit_timestamp=timestamp)
    data = encode([info, add(f"{txn_id}.parquet")])
    asked = CommitRequest(
        table=endpoint.attach(store),
        version=version,
        txn_id=txn_id,
        file=None if small else file_name(version, str(uuid.uuid4())),
        size=len(data),
        in_commit_timestamp=timestamp,
        epoch=endpoint.get_commits(store.uri).epoch,
        data=data if small else None,
    )
    if not small:
        store.put(asked.key, data)
    return asked


def raised_by(call: Callable[[], object], kind: type[LakesealError]) -> LakesealError:
    """Not by pytest, which users of an owner need not have."""
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised; the answer was {answer}")


class OwnerEndpointContract:
    def test_a_batch_of_one_is_ratified_in_order_and_told_with_where_its_bytes_are(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        store = stores[0]
        create(store, endpoint)
        for version in (1, 2, 3):
            asked = request(endpoint, store, version, small=version % 2 == 1)
            (answer,) = endpoint.ratify(Batch(commits=(asked,))).commits
            assert isinstance(answer, Ratified)
            assert (answer.version, answer.key) == (version, asked.key)
        told = endpoint.get_commits(store.uri)
        assert all(one.txn_id.encode() in one.ratified().read(store) for one in told.commits)
        assert (told.state, told.latest, told.backfilled) == (State.ACTIVE, 3, 0)
        assert [commit.version for commit in told.commits] == [1, 2, 3]
        assert [commit.version for commit in endpoint.get_commits(store.uri, 3).commits] == [3]

    def test_a_version_has_one_winner_and_everybody_gets_the_first_answer(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        store = stores[0]
        create(store, endpoint)
        rivals = [request(endpoint, store, 1) for _ in range(6)]
        answers: dict[str, object] = {}

        def race(one: CommitRequest) -> None:
            answers[one.txn_id] = endpoint.ratify(Batch(commits=(one,))).commits[0]

        threads = [threading.Thread(target=race, args=(one,)) for one in rivals]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(answer, Ratified) for answer in answers.values()) == 1
        endpoint.backfill(store.uri)
        for one in rivals:
            again = endpoint.ratify(Batch(commits=(one,))).commits[0]
            assert type(again) is type(answers[one.txn_id])

    def test_what_cannot_be_ratified_is_refused_and_nothing_is_left(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        owned, free = stores[0], stores[1]
        create(owned, endpoint)
        create(free)
        gap = request(endpoint, owned, 2)
        assert raised_by(lambda: endpoint.ratify(Batch(commits=(gap,))), VersionNotFound).version == 1
        foreign = request(endpoint, free, 1)
        raised_by(lambda: endpoint.ratify(Batch(commits=(foreign,))), OwnedElsewhere)
        raised_by(lambda: endpoint.ratify(Batch(commits=())), InvalidArgument)
        assert endpoint.get_commits(owned.uri).latest == 0
        assert (newest(owned, endpoint), newest(free)) == (0, 0)

    def test_a_batch_is_ratified_whole_or_not_at_all(self, endpoint: OwnerEndpoint, stores: Sequence[Store]) -> None:
        for store in stores:
            create(store, endpoint)
        taken = Batch(commits=(request(endpoint, stores[1], 1),))
        endpoint.ratify(taken)
        batch = Batch(commits=tuple(request(endpoint, store, 1) for store in stores))
        answer = endpoint.ratify(batch)
        assert [type(one) for one in answer.commits] == [Undecided, Taken, Undecided]
        assert [endpoint.get_commits(store.uri).latest for store in stores] == [0, 1, 0]
        whole = Batch(
            commits=tuple(request(endpoint, store, 2 if n == 1 else 1) for n, store in enumerate(stores)),
            records=(
                LedgerRecord(
                    table="watermarks",
                    key={"pipeline": "p", "dataset": "d", "partition": "0"},
                    values={"value": {"offset": 7}, "epoch": 1, "updated": 1},
                    insert=True,
                ),
            ),
        )
        for _ in range(2):
            answer = endpoint.ratify(whole)
            assert all(isinstance(one, Ratified) for one in answer.commits), "and again, with the same answer"
        told = endpoint.get_commits_of([store.uri for store in stores])
        assert [one.latest for one in told] == [1, 2, 1]
        assert [snapshot.version for snapshot in snapshots(endpoint, stores)] == [1, 2, 1]

    def test_a_guard_holds_the_batch_to_what_was_read(self, endpoint: OwnerEndpoint, stores: Sequence[Store]) -> None:
        for store in stores[:2]:
            create(store, endpoint)
        epoch = endpoint.get_commits(stores[0].uri).epoch
        guard = Guard(table=stores[0].uri, version=0, epoch=epoch)
        endpoint.ratify(Batch(commits=(request(endpoint, stores[0], 1),)))
        asked = request(endpoint, stores[1], 1)
        answer = endpoint.ratify(Batch(commits=(asked,), guards=(guard,)))
        assert answer.guards == (Taken(table=stores[0].uri, version=1),)
        assert endpoint.get_commits(stores[1].uri).latest == 0
        fresh = Guard(table=stores[0].uri, version=1, epoch=epoch)
        answer = endpoint.ratify(Batch(commits=(asked,), guards=(fresh,)))
        assert isinstance(answer.commits[0], Ratified)

    def test_backfill_goes_as_far_as_it_is_asked_to(self, endpoint: OwnerEndpoint, stores: Sequence[Store]) -> None:
        store = stores[0]
        create(store, endpoint)
        asked = [request(endpoint, store, version) for version in (1, 2, 3)]
        for one in asked:
            endpoint.ratify(Batch(commits=(one,)))
        assert endpoint.backfill(store.uri, 2).backfilled == 2
        assert newest(store) == 2
        assert endpoint.backfill(store.uri).backfilled == 3
        assert [store.get(commit_path(one.version)) for one in asked] == [one.data for one in asked]
        assert raised_by(lambda: endpoint.backfill(store.uri, 4), VersionNotFound).version == 4

    def test_a_table_is_taken_over_written_to_and_released(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        store = stores[0]
        create(store)
        assert take_over(endpoint, store) == 1
        raised_by(lambda: take_over(endpoint, store), AlreadyExists)
        log, owner = managed_log(endpoint, store)
        append(log, owner, "a")
        append(log, owner, "b")
        assert (newest(store), newest(store, endpoint)) == (1, 3)
        assert release(endpoint, store) == 4
        assert endpoint.get_commits(store.uri).state is State.NONE
        append(DeltaLog(store), FilesystemOwner(store), "c")
        assert take_over(endpoint, store) == 6
        assert endpoint.get_commits(store.uri).epoch == 1
        check_history(store)

    def test_a_take_over_counts_by_its_file_and_by_its_id(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        store = stores[0]
        create(store)
        table = endpoint.attach(store)
        assert endpoint.begin_takeover(table, "one", 1).state is State.PENDING
        assert endpoint.begin_takeover(table, "two", 1).state is State.PENDING
        assert endpoint.confirm_takeover(table, "one").state is State.PENDING
        assert endpoint.withdraw_takeover(table, "two").state is State.PENDING
        assert endpoint.withdraw_takeover(table, "one").state is State.NONE
        endpoint.begin_takeover(table, "three", 1)
        store.put(commit_path(1), encode([CommitInfo(txn_id="three", in_commit_timestamp=5)]))
        assert endpoint.confirm_takeover(table, "one").state is State.PENDING
        assert endpoint.confirm_takeover(table, "three").state is State.ACTIVE

    def test_a_take_over_that_comes_again_after_the_table_was_released_changes_nothing(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        store = stores[0]
        create(store)
        table = endpoint.attach(store)
        epoch = endpoint.get_commits(table).epoch
        took = take_over(endpoint, store)
        takeover_id = txn_id_of(store.get(commit_path(took))) or ""
        freed = release(endpoint, store)
        raised_by(lambda: endpoint.begin_takeover(table, takeover_id, took, epoch=epoch), OwnedElsewhere)
        told = endpoint.confirm_takeover(table, takeover_id)
        assert (told.state, told.latest) == (State.NONE, freed), "the owner believes no more that it has the table"
        assert take_over(endpoint, store) == freed + 1

    def test_a_release_that_comes_again_after_the_next_take_over_releases_nothing(
        self, endpoint: OwnerEndpoint, stores: Sequence[Store]
    ) -> None:
        store = stores[0]
        create(store, endpoint)
        table = endpoint.attach(store)
        epoch = endpoint.get_commits(table).epoch
        freed = release(endpoint, store)
        release_id = txn_id_of(store.get(commit_path(freed))) or ""
        take_over(endpoint, store)
        raised_by(lambda: endpoint.begin_release(table, release_id, epoch=epoch), OwnedElsewhere)
        assert endpoint.get_commits(table).state is State.ACTIVE

    def test_a_table_that_was_deleted_is_forgotten(self, endpoint: OwnerEndpoint, stores: Sequence[Store]) -> None:
        store = stores[0]
        create(store, endpoint)
        raised_by(lambda: endpoint.drop(store.uri), AlreadyExists)
        store.delete([meta.key for meta in store.list("", recursive=True)])
        assert endpoint.drop(store.uri).latest == -1
        create(store, endpoint)
        assert newest(store, endpoint) == 0

    def test_an_unknown_table_has_no_commits(self, endpoint: OwnerEndpoint, stores: Sequence[Store]) -> None:
        told = endpoint.get_commits(stores[0].uri)
        assert (told.state, told.latest, told.commits) == (State.NONE, -1, ())
        assert stores[0].list_keys(COMMITS_DIR) == []
