"""The publisher: what an owner does by itself. It backfills, settles take-overs, finishes releases, and tidies up.

Everything that it does can be done twice, by two publishers at once, or be cut off at any point: the next round goes on
from the ledger. A table that fails is left alone for a while, longer each time, and the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from msgspec import Struct

from lakeseal.backoff import Backoff
from lakeseal.errors import LakesealError
from lakeseal.ledger import Tx
from lakeseal.ledger.schema import leases
from lakeseal.owner.handover import finish_release
from lakeseal.owner.ledger_owner import GRACE_MS, LedgerOwner
from lakeseal.owner.ownership import State
from lakeseal.owner.rows import TableRow

_log = logging.getLogger(__name__)

_LEASE = "owner/publisher"
_LONGEST_PAUSE_S = 60.0
_WORKERS = 4
_PAUSE = 4
_MOMENT_S = 0.1


class Round(Struct, frozen=True, kw_only=True):
    """What one round came to."""

    tables: int = 0
    failed: dict[str, LakesealError] = {}
    tidied: int = 0


def recover(owner: LedgerOwner) -> Round:
    """At the start of an owner: everything that was interrupted is taken up."""
    tables = list(owner.book.open_work())
    failed: dict[str, LakesealError] = {}
    for table in tables:
        try:
            advance(owner, table)
        except LakesealError as error:
            failed[table] = error
    return Round(tables=len(tables), failed=failed)


def advance(owner: LedgerOwner, table: str) -> None:
    """One table as far as it goes."""
    state = owner.book.row(table).state
    if state is State.PENDING:
        state = owner.settle(table).state
    if state is State.RELEASING:
        finish_release(owner, owner.store(table))
    elif state is State.ACTIVE:
        owner.publish(table)


class Publisher:
    """Rounds of the above on a thread of its own. Several processes may run one; by a lease, one works at a time.

    Every `every_s` seconds there is a round over all tables. When it is notified in between, only tables whose batch is
    full have their turn: a round that publishes a commit or two of each costs the ledger as much as a full batch."""

    def __init__(
        self,
        owner: LedgerOwner,
        *,
        every_s: float = 1.0,
        tidy_every_s: float = 60.0,
        grace_ms: int = GRACE_MS,
        alone: bool = False,
    ) -> None:
        """`alone`: no other process publishes for this ledger, so that there is no need for the lease."""
        self._owner = owner
        self._every_s = every_s
        self._tidy_every_s = tidy_every_s
        self._grace_ms = grace_ms
        self._alone = alone
        self._holder = uuid.uuid4().hex
        self._wake = threading.Event()
        self._asked: set[str] = set()
        """Tables whose turn it is in the next round."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._backoff = Backoff(first_s=every_s, longest_s=_LONGEST_PAUSE_S, least=1.0)
        self._pauses: dict[str, tuple[float, int]] = {}
        """Until when a table is left alone, and how often it failed."""
        self._tidied_at = 0.0
        self._term_s = 10 * every_s + 5
        self._holds = alone
        self._asks_at = 0.0

    def notify(self, table: str | None = None) -> None:
        """A batch is full somewhere, or this table is to have its turn whatever it has: do not wait for the next
        round."""
        if table is not None:
            self._asked.add(table)
        self._wake.set()

    def run_once(self, *, only_full: bool = False) -> Round:
        """`only_full`: batches that are not full yet wait for a later round."""
        now = time.monotonic()
        asked, self._asked = self._asked, set()
        rows = {
            table: row
            for table, row in self._owner.book.open_work().items()
            if self._pauses.get(table, (0.0, 0))[0] <= now and (_is_full(row) or table in asked or not only_full)
        }
        active = [table for table, row in rows.items() if row.ownership.state is State.ACTIVE]
        on_disk = [table for table in active if table.startswith("file:")]
        elsewhere = [table for table in active if not table.startswith("file:")]
        # A disk answers so soon that several threads would mostly wait for the interpreter, and keep it from requests.
        failed = self._owner.publish_all(on_disk)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="lakeseal-publisher") as pool:
            failed |= self._owner.publish_all(elsewhere, each=pool.map)
        for table in rows.keys() - set(active):
            try:
                advance(self._owner, table)
            except LakesealError as error:
                failed[table] = error
        for table in rows:
            self._note(table, failed.get(table), now)
        return Round(tables=len(rows), failed=failed, tidied=self._tidy(now))

    def start(self) -> Self:
        assert self._thread is None, "a publisher runs once"
        self._thread = threading.Thread(target=self._run, name="lakeseal-publisher", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends after the table that is under way."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        next_round = time.monotonic()
        while not self._stopping.is_set():
            start = time.monotonic()
            is_due = start >= next_round
            try:
                if self._alone or self._holds_lease():
                    self.run_once(only_full=not is_due)
                else:
                    self._asked.clear()
            except LakesealError as error:
                _log.warning("a round of the publisher failed, the next one follows: %s", error)
            if is_due:
                # Where there is much to do, batches fill up in the meantime, and most of the time is left for commits.
                next_round = start + max(self._every_s, _PAUSE * (time.monotonic() - start))
            # A round looks at all tables, however few of them have a full batch: in a moment there are more.
            self._stopping.wait(min(self._every_s, max(_MOMENT_S, _PAUSE * (time.monotonic() - start))))
            self._wake.wait(max(0.0, next_round - time.monotonic()))
            self._wake.clear()

    def _holds_lease(self) -> bool:
        """As the ledger said when it was last asked, which is not at every round: that would be a write each time."""
        now = time.monotonic()
        if now >= self._asks_at:
            self._holds = self._has_lease()
            self._asks_at = now + (self._term_s / 3 if self._holds else self._every_s)
        return self._holds

    def _has_lease(self) -> bool:
        """Spares useless work, nothing more: without it two publishers would do the same twice."""
        term_ms = int(self._term_s * 1000)

        def do(tx: Tx) -> bool:
            now = tx.now()
            found = tx.get(leases, name=_LEASE)
            if found is None:
                values = {"holder": self._holder, "epoch": 1, "expires": now + term_ms, "info": {}}
                return tx.insert(leases, name=_LEASE, **values)
            if found.holder != self._holder and found.expires > now:
                return False
            epoch = found.epoch + (found.holder != self._holder)
            values = {"holder": self._holder, "epoch": epoch, "expires": now + term_ms}
            return tx.update(leases, {"name": _LEASE}, values)

        return self._owner.ledger.write(do, idempotent=True)

    def _note(self, table: str, error: LakesealError | None, now: float) -> None:
        if error is None:
            self._pauses.pop(table, None)
            return
        tries = self._pauses.get(table, (0.0, 0))[1] + 1
        pause = self._backoff.pause_s(tries)
        self._pauses[table] = (now + pause, tries)
        _log.warning("publishing %s failed, next try in %.0f s: %s", table, pause, error)

    def _tidy(self, now: float) -> int:
        if now - self._tidied_at < self._tidy_every_s:
            return 0
        self._tidied_at = now
        tidied = 0
        for table in self._owner.book.forgettable(grace_ms=self._grace_ms):
            try:
                tidied += self._owner.forget(table, grace_ms=self._grace_ms)
            except LakesealError as error:
                _log.warning("tidying up %s failed: %s", table, error)
        return tidied


def _is_full(row: TableRow) -> bool:
    own = row.ownership
    return own.state is not State.ACTIVE or own.latest - own.backfilled >= row.batch_size
