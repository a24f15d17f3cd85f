"""What clients of a simulation were told, held against what the logs say in the end."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from lakeseal.protocol.actions import Action, AddFile, CommitInfo, Metadata, RemoveFile
from lakeseal.protocol.paths import commit_path
from models.history import check_history
from models.strict_order import NEVER, Done, check_one_order
from simulated.scheduler import Scheduler
from simulated.store import SimulatedStore

Seen = tuple[int, frozenset[str]]
"""A version, and the files that were in it."""


class Attempted:
    def __init__(self, story: Story, who: str, start: int) -> None:
        self._story, self.who, self.start = story, who, start
        self.end = NEVER
        self.txns: dict[str, str] = {}
        """Of each table the transaction's id there."""
        self.is_failed = False
        self.made: dict[str, int] = {}
        self.seen: dict[str, Seen] = {}

    def landed(self, made: dict[str, int], saw: Mapping[str, Seen] | None = None) -> None:
        self.end, self.made, self.seen = self._story.now, made, dict(saw or {})

    def failed(self) -> None:
        """It was said for certain that nothing of it is there, nor ever will be."""
        self.end, self.is_failed = self._story.now, True

    def saw(self, seen: Mapping[str, Seen]) -> None:
        self.end, self.seen = self._story.now, dict(seen)

    def joined(self, uri: str, version: int) -> None:
        """The version was there by now, whoever made it."""
        ends = self._story.there_by
        ends[uri, version] = min(ends.get((uri, version), NEVER), self._story.now)


class Story:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.done: list[Attempted] = []
        self.there_by: dict[tuple[str, int], int] = {}
        self._numbers: dict[tuple[str, int], bool] = {}

    @property
    def now(self) -> int:
        return self._scheduler.steps

    def begins(self, who: str) -> Attempted:
        attempt = Attempted(self, who, self.now)
        self.done.append(attempt)
        return attempt

    def numbered(self, who: str, number: int) -> None:
        self._numbers.setdefault((who, number), False)

    def is_there(self, who: str, number: int) -> None:
        self._numbers[who, number] = True

    def latest(self, store: SimulatedStore) -> int:
        return sum(key.startswith("_delta_log/") and key.count("/") == 1 for key in store.objects) - 1

    def digest(self, stores: Mapping[str, SimulatedStore]) -> int:
        found = zlib.crc32(str(self.now).encode())
        for uri, store in sorted(stores.items()):
            for version in range(self.latest(store) + 1):
                found = zlib.crc32(store.objects[commit_path(version)][0], zlib.crc32(uri.encode(), found))
        return found

    def check(self, stores: Mapping[str, SimulatedStore]) -> None:
        logs = {uri: self._checked_log(uri, store) for uri, store in stores.items()}
        by_txn = {
            (uri, info.txn_id): version
            for uri, commits in logs.items()
            for version, actions in enumerate(commits)
            if (info := _info(actions)) is not None and info.txn_id is not None
        }
        known: set[tuple[str, int]] = set()
        order: list[Done] = []
        for attempt in self.done:
            made = attempt.made or self._found(attempt, by_txn)
            known |= set(made.items())
            for uri, (version, files) in attempt.seen.items():
                wanted = _files(logs[uri][: version + 1])
                assert files == wanted, f"F5: {attempt.who} saw {files} in version {version}, which has {wanted}"
            if made or attempt.seen:
                saw = {uri: version for uri, (version, _) in attempt.seen.items()}
                order.append(Done(name=attempt.who, start=attempt.start, end=attempt.end, saw=saw, made=made))
        # Whoever took over or released and was killed, or joined a release, has told nobody.
        for uri, commits in logs.items():
            for version in range(len(commits)):
                if (uri, version) not in known:
                    end = self.there_by.get((uri, version), NEVER)
                    order.append(Done(name="somebody", start=0, end=end, made={uri: version}))
        check_one_order(order)
        self._check_numbers(logs)

    def _checked_log(self, uri: str, store: SimulatedStore) -> list[list[Action]]:
        landed = {one.txns[uri]: one.made[uri] for one in self.done if uri in one.made and uri in one.txns}
        failed = [one.txns[uri] for one in self.done if one.is_failed and uri in one.txns]
        commits = check_history(store, landed, failed=failed)
        _check_counts(commits)
        return commits

    def _found(self, attempt: Attempted, by_txn: Mapping[tuple[str, str], int]) -> dict[str, int]:
        """Of one that nobody knows of: all of it or nothing."""
        found = {uri: by_txn[uri, txn] for uri, txn in attempt.txns.items() if (uri, txn) in by_txn}
        assert len(found) in (0, len(attempt.txns)), f"T1: of {attempt.txns} only {found} is there"
        return found

    def _check_numbers(self, logs: Mapping[str, list[list[Action]]]) -> None:
        times: dict[tuple[str, str], int] = {}
        for commits in logs.values():
            for actions in commits:
                for action in actions:
                    if isinstance(action, AddFile) and action.path.startswith("numbered-"):
                        _, who, number, _ = action.path.split("-", 3)
                        times[who, number] = times.get((who, number), 0) + 1
        for (client, count), is_there in self._numbers.items():
            found = times.get((client[-1], str(count)), 0)
            assert found <= 1, f"F2: write {count} of {client} is there {found} times"
            assert found == 1 or not is_there, f"F2: write {count} of {client} was acknowledged and is not there"


def _info(actions: list[Action]) -> CommitInfo | None:
    return next((action for action in actions if isinstance(action, CommitInfo)), None)


def _files(commits: list[list[Action]]) -> frozenset[str]:
    there: set[str] = set()
    for actions in commits:
        there -= {action.path for action in actions if isinstance(action, RemoveFile)}
        there |= {action.path for action in actions if isinstance(action, AddFile)}
    return frozenset(there)


def _check_counts(commits: list[list[Action]]) -> None:
    """Whoever counts takes one count away and puts the next there, and each change of the property is behind another:
    a number that is there twice is an update that was lost."""
    counted = was_set = 0
    for version, actions in enumerate(commits):
        for action in actions:
            if isinstance(action, AddFile) and action.path.startswith("counter-"):
                count = int(action.path.split("-")[1])
                assert count == counted + 1, f"version {version} counts {count} behind {counted}"
                counted = count
            elif isinstance(action, Metadata):
                count = int(action.configuration.get("set") or 0)
                assert count in (was_set, was_set + 1), f"version {version} sets {count} behind {was_set}"
                was_set = count
