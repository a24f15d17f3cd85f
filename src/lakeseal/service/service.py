"""`Service`: what one worker process has. Opened and closed by the app; it knows nothing of HTTP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lakeseal import ledger
from lakeseal.commit.transaction import now_ms
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.ledger import Ledger
from lakeseal.owner import policies, rows
from lakeseal.owner.group import Admitted
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import Batch, BatchAnswer, Ratified, Taken, from_json
from lakeseal.owner.publisher import Publisher, recover
from lakeseal.service import status
from lakeseal.service.access import Caller, Role
from lakeseal.service.authentication import Authenticator
from lakeseal.service.book_calls import BOOK_CALLS, ServedBooks
from lakeseal.service.calls import CALLS, Call, Served
from lakeseal.service.lane import Lane
from lakeseal.service.limits import Buckets
from lakeseal.service.metrics import Metrics
from lakeseal.service.places import Places
from lakeseal.service.settings import ServiceSettings
from lakeseal.service.wire import TableList

_log = logging.getLogger(__name__)

OTHER_CALLS = ("owner", "tables", "page", "health", "ready", "metrics", "other")
_PUBLISHER = "lakeseal-publisher"
_OF_BOOKS = frozenset(call.name for call in BOOK_CALLS)

Done = tuple[bytes, Any]
"""A reply as JSON, and as what it is."""

OpenOwner = Callable[[Ledger, ServiceSettings, Places], LedgerOwner]


def open_owner(opened: Ledger, settings: ServiceSettings, places: Places) -> LedgerOwner:
    """The owner of a service: it trusts no client, and leaves backfilling to the publisher."""
    return LedgerOwner(
        opened,
        name=settings.name,
        batch_size=settings.batch_size,
        stores=places.open,
        policies=policies.from_json(settings.policies),
        most_unbackfilled=settings.most_unbackfilled,
        backfills=False,
        trusting=False,
    )


class Service:
    def __init__(self, settings: ServiceSettings, make_owner: OpenOwner = open_owner) -> None:
        self.settings = settings
        self.ledger = ledger.open(settings.ledger)
        self.places = Places(settings.roots, settings.storage_options)
        self.owner = make_owner(self.ledger, settings, self.places)
        self.identity = self.owner.identity()
        self.authenticator = Authenticator(self.ledger, insecure=settings.insecure)
        self.buckets = Buckets(settings.rate, 2 * settings.rate)
        names = (*(call.name for call in (*CALLS, *BOOK_CALLS)), *OTHER_CALLS)
        self.metrics = Metrics(names, path=settings.metrics_file, rows=settings.rows)
        self._served = Served(self.owner, self.places)
        self._books = ServedBooks(self.ledger, roots=settings.roots)
        self.courier = self.owner.ledger.courier()
        self.lane = Lane(
            self.admit,
            self.ratify_together,
            at_once=lambda asked: self._served.admits_at_once(asked[0]),
            decide_soon=self.ratify_soon,
        )
        self._publisher = Publisher(self.owner, every_s=settings.publish_every_s, pace=self.lane.pace)
        self.owner.when_full = self._publisher.notify
        self._recovery = threading.Thread(target=self._recover, name="lakeseal-recovery", daemon=True)
        self._is_stopping = False

    def start(self) -> None:
        """What works by itself. (Its lane is started and stopped on the event loop.)"""
        self._recovery.start()

    def stop(self) -> None:
        """The publisher ends after the table that is under way."""
        self._is_stopping = True
        self._recovery.join()
        self._publisher.stop()
        self.ledger.close()

    def perform(self, call: Call, body: bytes, caller: Caller) -> Done:
        served = self._books if call.name in _OF_BOOKS else self._served
        reply = served.perform(call, from_json(body, call.request), caller)
        return msgspec.json.encode(reply), reply

    def admit(self, asked: tuple[Batch, Caller]) -> Admitted | None:
        """See `Served.admit`."""
        return self._served.admit(*asked)

    def ratify_together(self, admitted: Sequence[Admitted]) -> list[Done | None]:
        """As `perform`, for commits that came at the same time; None for those that have to be done by themselves."""
        return _done(self._served.ratify_together(admitted))

    def ratify_soon(self, admitted: Sequence[Admitted], tell: Callable[[Sequence[Done | None]], None]) -> bool:
        """As `ratify_together`, for the event loop, by a courier; False, and nothing happened, where that cannot be."""
        if self.courier is None or not self.courier.is_ready():
            return False
        begun = self._served.begin_together(admitted)
        if begun is None or not begun.advances:
            return False
        concluded = begun.then(_done)

        def told(moved: Mapping[str, int] | None) -> None:
            done: Sequence[Done | None]
            try:
                done = concluded.conclude(moved)
            except Exception:
                _log.exception("a group failed unexpectedly, and its requests are done one by one")
                done = [None] * len(admitted)
            tell(done)

        try:
            rows.carry(self.courier, begun.advances, told)
        except InvalidArgument:
            return False
        return True

    def count(self, reply: Any) -> None:
        """What was ratified, and what came too late."""
        if isinstance(reply, BatchAnswer):
            for one in reply.commits:
                if isinstance(one, Ratified):
                    self.metrics.ratified()
                elif isinstance(one, Taken):
                    self.metrics.conflicted()

    def tables(self, caller: Caller, *, prefix: str = "", after: str = "", limit: int) -> TableList:
        """Those that the caller may read."""
        found = [
            one
            for one in status.of_tables(self.ledger, now=now_ms(), after=after)
            if policies.is_below(one.table, prefix) and caller.may(Role.READER, one.table)
        ]
        return TableList(tables=tuple(found[:limit]), more=len(found) > limit)

    def readiness(self) -> dict[str, Any]:
        """Raises where the ledger does not answer."""
        waiting = status.backlog(self.ledger, now=now_ms())
        publishes = self._recovery.is_alive() or any(
            thread.name == _PUBLISHER and thread.is_alive() for thread in threading.enumerate()
        )
        return {
            "ready": publishes and not self._is_stopping,
            "ledger": "answers",
            "publisher": "runs" if publishes else "has stopped",
            "unbackfilled": waiting.unbackfilled,
            "lag_seconds": waiting.lag_ms / 1000,
        }

    def metrics_text(self) -> str:
        waiting = status.backlog(self.ledger, now=now_ms())
        return self.metrics.text(
            {
                "lakeseal_tables": ("Tables that are owned.", waiting.tables),
                "lakeseal_unbackfilled_commits": ("Commits that wait for their backfill.", waiting.unbackfilled),
                "lakeseal_unbackfilled_commits_max": ("The most of them in one table.", waiting.most_of_a_table),
                "lakeseal_backfill_lag_seconds": ("How long the oldest has been waiting.", waiting.lag_ms / 1000),
            }
        )

    def _recover(self) -> None:
        if self.metrics.row == 0:
            # One worker is enough. Commits need not wait for it.
            try:
                self.owner.tell_of_idle_policies()
                done = recover(self.owner)
            except LakesealError as error:
                _log.warning("looking for interrupted work failed; the publisher goes on with it: %s", error)
            else:
                for table, reason in done.failed.items():
                    _log.warning("%s could not be taken up: %s", table, reason)
        if not self._is_stopping:
            self._publisher.start()


def _done(answers: Sequence[BatchAnswer | None]) -> list[Done | None]:
    return [None if answer is None else (msgspec.json.encode(answer), answer) for answer in answers]
