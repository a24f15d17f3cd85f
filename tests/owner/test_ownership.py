"""The state machine by itself: whatever happens in whatever order, its invariants hold."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lakeseal import ledger
from lakeseal.owner import ownership, rows
from lakeseal.owner.ownership import FoundCommit, Ownership, State, StepRefusal
from lakeseal.owner.rows import TableRow

IDS = st.sampled_from(["a", "b", "c"])
NEAR = st.integers(-2, 3)


class OwnershipMachine(RuleBasedStateMachine):
    """The row beside a plain model of what was promised, ratified and copied."""

    def __init__(self) -> None:
        super().__init__()
        self.row = Ownership()
        self.log: dict[int, str] = {0: "x"}
        self.ratified: list[int] = []
        self.epochs = [0]

    def _next(self) -> int:
        return max(self.log) + 1

    def _take(self, decision: Ownership | StepRefusal) -> bool:
        if isinstance(decision, StepRefusal):
            return False
        changed = decision != self.row
        self.row = decision
        self.epochs.append(decision.epoch)
        return changed

    @rule(takeover_id=IDS, near=NEAR)
    def promise(self, takeover_id: str, near: int) -> None:
        before = self.row
        version = max(0, self._next() + near)
        if self._take(ownership.promise(before, takeover_id, version)):
            assert before.state in (State.NONE, State.PENDING)
            assert takeover_id in self.row.promises
            assert set(before.promises) <= set(self.row.promises) or before.state is State.NONE

    @rule(takeover_id=IDS)
    def withdraw(self, takeover_id: str) -> None:
        before = self.row
        self._take(ownership.withdraw(before, takeover_id))
        if before.state is not State.PENDING:
            assert self.row == before
        elif before.promises == (takeover_id,):
            assert self.row.state is State.NONE

    @rule(who=st.sampled_from(["a", "b", "c", "somebody"]))
    def somebody_writes_the_file(self, who: str) -> None:
        in_office = self.row.is_owned
        if not in_office:
            self.log[self._next()] = who

    @rule()
    def settle(self) -> None:
        before = self.row
        content = self.log.get(before.change_version) if before.change_version is not None else None
        found = None if content is None else FoundCommit(txn_id=content, timestamp=before.change_version)
        self._take(ownership.settle(before, found))
        if before.state is State.PENDING and found is not None:
            assert (self.row.state is State.ACTIVE) == (found.txn_id in before.promises)
        else:
            assert self.row == before

    @rule(near=NEAR, epoch=st.integers(-1, 0), late=st.integers(-1, 1))
    def ratify(self, near: int, epoch: int, late: int) -> None:
        before = self.row
        version = before.latest + near
        stamp = (before.latest_timestamp or 0) + late
        if self._take(ownership.ratify(before, version, epoch=before.epoch + epoch, timestamp=stamp)):
            assert before.state is State.ACTIVE
            assert (version, epoch) == (before.latest + 1, 0)
            assert before.latest_timestamp is None or stamp > before.latest_timestamp
            self.ratified.append(version)

    @rule(near=NEAR, epoch=st.integers(-1, 0))
    def mark(self, near: int, epoch: int) -> None:
        before = self.row
        self._take(ownership.mark_backfilled(before, before.backfilled + near, epoch=before.epoch + epoch))
        if self.row != before:
            assert epoch == 0
            assert before.is_owned
            for version in range(before.backfilled + 1, self.row.backfilled + 1):
                self.log[version] = f"owned{version}"

    @rule(release_id=IDS)
    def begin_release(self, release_id: str) -> None:
        before = self.row
        if self._take(ownership.begin_release(before, release_id)):
            assert before.state is State.ACTIVE
            assert self.row.change_version == before.latest + 1

    @rule(landed=st.booleans())
    def finish_release(self, landed: bool) -> None:
        before = self.row
        found = FoundCommit(txn_id=before.promises[0] if before.promises else None, timestamp=9) if landed else None
        if self._take(ownership.finish_release(before, found)):
            assert before.backfilled == before.latest
            assert self.row.epoch == before.epoch + 1
            assert before.change_version is not None
            self.log[before.change_version] = "free"

    @invariant()
    def the_row_is_sound(self) -> None:
        row = self.row
        assert row.backfilled <= row.latest
        assert self.epochs == sorted(self.epochs)
        assert bool(row.promises) == (row.state in (State.PENDING, State.RELEASING))
        assert (row.change_version is not None) == bool(row.promises)
        if row.state is State.RELEASING:
            assert row.change_version == row.latest + 1
            assert isinstance(ownership.ratify(row, row.latest + 1, epoch=row.epoch, timestamp=10**9), StepRefusal)

    @invariant()
    def the_ledger_keeps_it(self) -> None:
        with_size = TableRow(ownership=self.row, batch_size=7)

        class Stored:
            def __init__(self, values: dict[str, Any]) -> None:
                self.__dict__.update(values)

        assert TableRow.from_row(Stored(with_size.to_row())) == with_size  # type: ignore[arg-type]


TestOwnership = OwnershipMachine.TestCase


def test_a_row_survives_the_ledger(any_url: str) -> None:
    row = TableRow(
        ownership=Ownership(state=State.PENDING, epoch=3, promises=("a", "b", "c" * 200), change_version=0),
        batch_size=2,
    )
    with ledger.open(any_url) as opened:
        opened.write(lambda tx: rows.write_table(tx, "s3://b/t", row, now=1))
        assert opened.read(lambda tx: rows.read_table(tx, "s3://b/t")) == row
