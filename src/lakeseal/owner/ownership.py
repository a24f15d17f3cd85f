"""Who may commit to a table: the state machine, as pure functions of one value.

    none ──promise──► pending ──settle: the file is there, with a promised id──► active
     ▲  ◄──withdraw, settle: the file is another's──┘                              │ begin_release
     └───────────────finish_release: everything backfilled, epoch + 1────────── releasing

Each function takes the ledger's row of a table and what was seen in the files, and gives the row afterwards (the same
one where nothing changes) or a `StepRefusal` that says why not. A step of the protocol is one such function inside one
ledger transaction, or one file operation; `tests/owner/test_exploration.py` walks through all interleavings of them.

A promise binds the owner until the version that it was made for is taken: by the promised id (then the table is owned
here, and that is never refused), or by another commit (then the promise is void). So several take-overs of one version
can be promised at once, nobody has to wait for a client that died, and no clock decides anything.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class State(StrEnum):
    NONE = "none"
    PENDING = "pending"
    ACTIVE = "active"
    RELEASING = "releasing"


class StepRefusal(StrEnum):
    """Why a step was not taken."""

    TAKEN = "the version is ratified already"
    GAP = "the version before it is not there"
    BACKWARDS = "its timestamp is not after that of the version before it"
    UNSETTLED = "a take-over is pending and must be settled first"
    RELEASING = "the table is being released"
    NOT_OWNED = "the table is not owned here"
    OWNED = "the table is owned here already"
    OTHER_EPOCH = "the table was released and taken over again since it was opened"
    OTHER_VERSION = "a take-over of another version is pending"
    MANY_PROMISES = "too many take-overs of the table are promised and did not come"
    NOT_BACKFILLED = "not everything is backfilled"


MOST_PROMISES = 64
"""Of a table: whoever could make as many as they like could make its row as large as they like."""


class Ownership(Struct, frozen=True, kw_only=True):
    """What the ledger knows of a table, apart from its commits."""

    state: State = State.NONE
    epoch: int = 0
    """Grows with each release."""
    promises: tuple[str, ...] = ()
    """Pending: the ids of the take-overs that may land. Releasing: the id of the release."""
    bound: tuple[tuple[str, str], ...] = ()
    """Of promises that were made for certain bytes: the id, and the SHA-256 of these bytes."""
    change_version: int | None = None
    """The version that the take-over or the release wants."""
    latest: int = -1
    latest_timestamp: int | None = None
    backfilled: int = -1

    @property
    def is_owned(self) -> bool:
        return self.state in (State.ACTIVE, State.RELEASING)


class FoundCommit(Struct, frozen=True, kw_only=True):
    """What is in the log at a version. Its absence is None."""

    txn_id: str | None
    timestamp: int | None = None
    sha256: str | None = None


def promise(
    row: Ownership, takeover_id: str, version: int, *, sha256: str | None = None, epoch: int | None = None
) -> Ownership | StepRefusal:
    """The owner will own the table if the take-over's commit becomes `version`, and has the bytes of `sha256`. `epoch`
    is that in which the take-over began: asked for once more after the table was released, its commit would be found
    in the log, and take the owner back to that version."""
    if epoch not in (None, row.epoch):
        return StepRefusal.OTHER_EPOCH
    bound = () if sha256 is None else ((takeover_id, sha256),)
    match row.state:
        case State.NONE:
            return replace(row, state=State.PENDING, promises=(takeover_id,), bound=bound, change_version=version)
        case State.PENDING if takeover_id in row.promises and row.change_version == version:
            return row
        case State.PENDING if row.change_version == version and len(row.promises) >= MOST_PROMISES:
            return StepRefusal.MANY_PROMISES
        case State.PENDING if row.change_version == version:
            return replace(row, promises=(*row.promises, takeover_id), bound=(*row.bound, *bound))
        case State.PENDING:
            return StepRefusal.OTHER_VERSION
        case State.RELEASING:
            return StepRefusal.RELEASING
        case State.ACTIVE:
            return StepRefusal.OWNED


def withdraw(row: Ownership, takeover_id: str) -> Ownership:
    """For the client of the take-over alone, once its commit can no longer land."""
    if row.state is not State.PENDING or takeover_id not in row.promises:
        return row
    left = tuple(promised for promised in row.promises if promised != takeover_id)
    bound = tuple(one for one in row.bound if one[0] != takeover_id)
    return replace(row, promises=left, bound=bound) if left else _none(row)


def settle(row: Ownership, found: FoundCommit | None) -> Ownership:
    """`found` is the commit at `change_version`: the commit point of a take-over is in the files, so they decide."""
    if row.state is not State.PENDING or found is None:
        return row
    if found.txn_id not in row.promises or dict(row.bound).get(found.txn_id, found.sha256) != found.sha256:
        return _none(row)
    assert row.change_version is not None
    return replace(
        row,
        state=State.ACTIVE,
        promises=(),
        bound=(),
        change_version=None,
        latest=row.change_version,
        latest_timestamp=found.timestamp,
        backfilled=row.change_version,
    )


def ratify(row: Ownership, version: int, *, epoch: int, timestamp: int) -> Ownership | StepRefusal:
    """For a transaction that has no version yet: whoever asks again is answered from its row, before this."""
    if version <= row.latest:
        return StepRefusal.TAKEN
    match row.state:
        case State.NONE:
            return StepRefusal.NOT_OWNED
        case State.PENDING:
            return StepRefusal.UNSETTLED
        case State.RELEASING:
            return StepRefusal.RELEASING
        case State.ACTIVE if row.epoch != epoch:
            return StepRefusal.OTHER_EPOCH
    if version > row.latest + 1:
        return StepRefusal.GAP
    if row.latest_timestamp is not None and timestamp <= row.latest_timestamp:
        return StepRefusal.BACKWARDS
    return replace(row, latest=version, latest_timestamp=timestamp)


def mark_backfilled(row: Ownership, version: int, *, epoch: int) -> Ownership:
    """After every version up to `version` is durable in the log under its own name."""
    if not row.is_owned or row.epoch != epoch or not row.backfilled < version <= row.latest:
        return row
    return replace(row, backfilled=version)


def begin_release(row: Ownership, release_id: str, *, epoch: int | None = None) -> Ownership | StepRefusal:
    """From here on nothing is ratified. A release that is under way is joined. Of a table that was released and taken
    over again since `epoch`, nobody has asked for a release."""
    if epoch not in (None, row.epoch):
        return StepRefusal.OTHER_EPOCH
    match row.state:
        case State.ACTIVE:
            return replace(row, state=State.RELEASING, promises=(release_id,), change_version=row.latest + 1)
        case State.RELEASING:
            return row
        case State.PENDING:
            return StepRefusal.UNSETTLED
        case State.NONE:
            return StepRefusal.NOT_OWNED


def finish_release(row: Ownership, found: FoundCommit | None) -> Ownership | StepRefusal:
    """`found` is the commit at `change_version`; the release is over once that is the release's own."""
    if row.state is not State.RELEASING or found is None:
        return row
    if row.backfilled < row.latest:
        return StepRefusal.NOT_BACKFILLED
    if found.txn_id not in row.promises:
        return StepRefusal.TAKEN
    assert row.change_version is not None
    return replace(
        _none(row),
        epoch=row.epoch + 1,
        latest=row.change_version,
        latest_timestamp=found.timestamp,
        backfilled=row.change_version,
    )


def drop(row: Ownership) -> Ownership | StepRefusal:
    """Only when the table's log is certainly gone: whoever deleted the table took its versions along. What was ratified
    and never was in the log, nobody can have deleted."""
    if row.is_owned and row.backfilled < row.latest:
        return StepRefusal.NOT_BACKFILLED
    return row if row == Ownership(epoch=row.epoch) else Ownership(epoch=row.epoch + 1)


def _none(row: Ownership) -> Ownership:
    return replace(row, state=State.NONE, promises=(), bound=(), change_version=None)
