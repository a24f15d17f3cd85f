"""What every `CommitOwner` must do, as tests: one suite for all owners, those of users included.

Derive a class whose name starts with `Test` and give it a fixture `owned`, an `OwnedTable` with no commits:

    class TestMyOwner(CommitOwnerContract):
        @pytest.fixture
        def owned(self): ...
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from lakeseal.commit.owner import CommitOwner, Committed, Conflict, Outcome
from lakeseal.errors import VersionNotFound
from lakeseal.protocol.actions import CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import commit_path
from lakeseal.storage.base import Store


class OwnedTable(Struct, frozen=True):
    owner: CommitOwner
    store: Store


_moments = itertools.count(1)


class Candidate(Struct, frozen=True):
    """A commit that says nothing but whose it is, and when: each is later than those before it."""

    txn_id: str
    timestamp: int
    data: bytes

    @classmethod
    def new(cls) -> Candidate:
        txn_id, timestamp = str(uuid.uuid4()), next(_moments)
        info = CommitInfo(operation="TEST", txn_id=txn_id, in_commit_timestamp=timestamp)
        return cls(txn_id, timestamp, encode([info]))

    def ask(self, owner: CommitOwner, version: int) -> Outcome:
        return owner.commit(version, self.data, txn_id=self.txn_id, in_commit_timestamp=self.timestamp)


def fill(owned: OwnedTable, versions: int) -> list[Candidate]:
    candidates = [Candidate.new() for _ in range(versions)]
    for version, candidate in enumerate(candidates):
        assert isinstance(candidate.ask(owned.owner, version), Committed), f"version {version} is free"
    return candidates


def lost(outcome: Outcome) -> int:
    """The version that another has. What else an owner says to the loser is not part of its answer."""
    assert isinstance(outcome, Conflict), outcome
    return outcome.version


class CommitOwnerContract:
    def test_versions_are_committed_one_after_the_other(self, owned: OwnedTable) -> None:
        candidates = fill(owned, 4)
        commits = owned.owner.get_commits(0)
        assert commits.latest == 3
        for commit in commits.commits:
            assert commit.read(owned.store) == candidates[commit.version].data
            assert commit.txn_id in (None, candidates[commit.version].txn_id)

    def test_a_version_that_is_taken_is_a_conflict_and_stays_what_it_was(self, owned: OwnedTable) -> None:
        winner = fill(owned, 2)[1]
        loser = Candidate.new()
        assert lost(loser.ask(owned.owner, 1)) == 1
        owned.owner.backfill_to_version(1)
        assert owned.store.get(commit_path(1)) == winner.data

    def test_asking_again_gives_the_first_answer_to_winner_and_loser(self, owned: OwnedTable) -> None:
        winner = fill(owned, 2)[1]
        loser = Candidate.new()
        loser.ask(owned.owner, 1)
        for _ in range(2):
            assert isinstance(winner.ask(owned.owner, 1), Committed)
            assert lost(loser.ask(owned.owner, 1)) == 1
        assert owned.owner.get_commits(0).latest == 1

    def test_asking_again_for_an_old_version_gives_the_first_answer(self, owned: OwnedTable) -> None:
        candidates = fill(owned, 4)
        owned.owner.backfill_to_version(3)
        assert isinstance(candidates[1].ask(owned.owner, 1), Committed)
        assert lost(Candidate.new().ask(owned.owner, 1)) == 1

    def test_the_loser_of_one_version_can_have_the_next(self, owned: OwnedTable) -> None:
        fill(owned, 2)
        loser = Candidate.new()
        assert lost(loser.ask(owned.owner, 1)) == 1
        assert isinstance(loser.ask(owned.owner, 2), Committed)

    def test_a_version_without_the_one_before_it_is_refused_and_leaves_nothing(self, owned: OwnedTable) -> None:
        for latest, asked in ((-1, 1), (-1, 7), (0, 2), (1, 3)):
            if latest > owned.owner.get_commits(0).latest:
                Candidate.new().ask(owned.owner, latest)
            assert _raises_not_found(partial(Candidate.new().ask, owned.owner, asked)) == asked - 1
            assert owned.owner.get_commits(0).latest == latest

    def test_of_many_who_want_one_version_exactly_one_gets_it(self, owned: OwnedTable) -> None:
        fill(owned, 1)
        candidates = [Candidate.new() for _ in range(8)]
        outcomes: dict[str, Outcome] = {}
        start = threading.Barrier(len(candidates))

        def race(candidate: Candidate) -> None:
            start.wait()
            outcomes[candidate.txn_id] = candidate.ask(owned.owner, 1)

        threads = [threading.Thread(target=race, args=(candidate,)) for candidate in candidates]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [txn_id for txn_id, outcome in outcomes.items() if isinstance(outcome, Committed)]
        assert len(winners) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes.values()) == len(candidates) - 1
        owned.owner.backfill_to_version(1)
        assert winners[0].encode() in owned.store.get(commit_path(1))

    def test_get_commits_is_contiguous_ascending_and_knows_the_latest(self, owned: OwnedTable) -> None:
        assert owned.owner.get_commits(0).latest == -1
        fill(owned, 5)
        for start in range(7):
            commits = owned.owner.get_commits(start)
            versions = [commit.version for commit in commits.commits]
            assert commits.latest == 4
            assert versions == list(range(5))[len(range(5)) - len(versions) :]
            assert all(version >= start for version in versions)

    def test_backfill_puts_versions_under_their_own_names_byte_for_byte(self, owned: OwnedTable) -> None:
        candidates = fill(owned, 3)
        for _ in range(2):
            owned.owner.backfill_to_version(2)
            assert [owned.store.get(commit_path(v)) for v in range(3)] == [c.data for c in candidates]

    def test_backfill_of_what_is_not_ratified_says_so(self, owned: OwnedTable) -> None:
        fill(owned, 2)
        assert _raises_not_found(lambda: owned.owner.backfill_to_version(2)) == 2


def _raises_not_found(call: Callable[[], object]) -> int | None:
    """The version that is missing; not by pytest, which users of an owner need not have."""
    try:
        outcome = call()
    except VersionNotFound as error:
        return error.version
    raise AssertionError(f"Nothing was raised; the answer was {outcome}")
