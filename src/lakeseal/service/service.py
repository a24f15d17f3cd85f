"""`Service`: what one worker process has. Opened and closed by the app; it knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from lakeseal import ledger
from lakeseal.catalog.names import MOST_OF_A_PAGE, NameBook, NamedTable, TablePage
from lakeseal.catalog.table_name import SchemaName, fold
from lakeseal.catalog.unity.creation import Creation
from lakeseal.catalog.unity.server import UnityTables
from lakeseal.clock import now_ms
from lakeseal.errors import LakesealError
from lakeseal.ledger import Ledger
from lakeseal.ledger.schema import facts
from lakeseal.owner import policies
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.publisher import Publisher, recover
from lakeseal.service import status
from lakeseal.service.access import Caller, Role
from lakeseal.service.authentication import Authenticator, Buckets
from lakeseal.service.bodies import UploadRoom
from lakeseal.service.book_calls import BOOK_CALLS
from lakeseal.service.call import Reply, ServiceCall
from lakeseal.service.credentials import Credentials
from lakeseal.service.finished_calls import FinishedCalls
from lakeseal.service.name_calls import NAME_CALLS
from lakeseal.service.owner_calls import OWNER_CALLS
from lakeseal.service.places import ServedPlaces
from lakeseal.service.prompt_loop import LargeWork
from lakeseal.service.proxies import TrustedProxies
from lakeseal.service.settings import ServiceSettings
from lakeseal.service.unity_calls import UNITY_CALLS
from lakeseal.service.wire import TableList
from lakeseal.steps.books import LedgerBooks
from lakeseal.steps.places import StepPlaces
from lakeseal.storage import is_below

_log = logging.getLogger(__name__)

GOOD_S = 2.0
BAD_S = 0.25
PATIENCE_S = 5.0
SILENT = {"ready": False, "ledger": "does not answer"}
REFUSES = {"ready": False, "ledger": "takes no commits"}


class Readiness:
    """For the event loop; `look` runs in a thread."""

    def __init__(self, look: Callable[[], dict[str, Any]]) -> None:
        """`look` raises where it is not."""
        self._look = look
        self._looking: asyncio.Task[dict[str, Any]] | None = None
        self._told: dict[str, Any] = SILENT
        self._until = float("-inf")

    async def told(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until:
            if self._looking is None:
                self._looking = loop.create_task(asyncio.to_thread(self._found))
            looking = self._looking
            done, _ = await asyncio.wait({looking}, timeout=PATIENCE_S)
            if self._looking is looking:
                # One that hangs stays, so that no second one hangs beside it.
                self._looking = None if done else looking
                self._told = looking.result() if done else SILENT
                self._until = loop.time() + (GOOD_S if self._told["ready"] else BAD_S)
        return self._told

    def _found(self) -> dict[str, Any]:
        try:
            return self._look()
        except LakesealError as error:
            _log.warning("not ready: %s", error)
            return REFUSES
        except Exception:
            _log.exception("not ready")
            return SILENT


OTHER_CALLS = ("owner", "tables", "page", "health", "ready", "metrics", "other")
_PUBLISHER = "lakeseal-publisher"
_READY = "last ready"
CALLS = (*OWNER_CALLS, *BOOK_CALLS, *NAME_CALLS)
"""All that can be asked for. Commits come most often, and are looked for first."""

OpenOwner = Callable[[Ledger, ServiceSettings, ServedPlaces], LedgerOwner]


def open_owner(opened: Ledger, settings: ServiceSettings, places: ServedPlaces) -> LedgerOwner:
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
        self.places = ServedPlaces(settings.roots, settings.storage_options)
        self.owner = make_owner(self.ledger, settings, self.places)
        self.identity = self.owner.identity()
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self.authenticator = Authenticator(self.ledger, insecure=settings.insecure)
        self.readiness = Readiness(self._look)
        self.buckets = Buckets(settings.rate, 2 * settings.rate)
        self.uploads = UploadRoom(settings.max_body, settings.max_upload)
        self.large = LargeWork()
        self.finished = FinishedCalls((*(call.name for call in (*CALLS, *UNITY_CALLS)), *OTHER_CALLS))
        self.books = LedgerBooks(self.ledger)
        self.names = NameBook(self.ledger, root=next(iter(self.places.roots), None))
        self.unity = UnityTables(self.owner)
        self.credentials = Credentials(settings.credentials)
        self.creation = Creation(self.owner, self.names)
        self.step_places = StepPlaces.anything_below(settings.roots, settings.roots) if settings.roots else None
        self._publisher = Publisher(self.owner, every_s=settings.publish_every_s)
        self.owner.when_full = self._publisher.notify
        self.unity.when_published = self._publisher.notify
        self._recovery = threading.Thread(target=self._recover, name="lakeseal-recovery", daemon=True)
        self._is_stopping = False

    def start(self) -> None:
        """What works by itself."""
        self._recovery.start()

    def stop(self) -> None:
        """The publisher ends after the table that is under way."""
        self._is_stopping = True
        self._recovery.join()
        self._publisher.stop()
        self.ledger.close()

    def perform(self, call: ServiceCall[Reply], caller: Caller) -> Reply:
        """For any thread."""
        call.check(self, caller)
        return call.perform(self, caller)

    def tables(self, caller: Caller, *, prefix: str = "", after: str = "", limit: int) -> TableList:
        """Those that the caller may read."""
        found = [
            one
            for one in status.of_tables(self.ledger, now=now_ms(), after=after)
            if is_below(one.table, prefix) and caller.may(Role.READER, one.table)
        ]
        return TableList(tables=tuple(found[:limit]), more=len(found) > limit)

    def names_in(self, schema: SchemaName, caller: Caller, *, token: str | None, limit: int) -> TablePage:
        """A page of the tables of a schema that the caller may read. Its token is the name of the last of them, never
        of one that the caller may not know."""
        found: list[NamedTable] = []
        after = token
        while True:
            page = self.names.tables(schema, token=after, limit=min(limit + 1, MOST_OF_A_PAGE))
            found += (one for one in page.tables if caller.may(Role.READER, one.uri))
            if len(found) > limit:
                return TablePage(tables=tuple(found[:limit]), next_token=fold(found[limit - 1].name.table))
            if page.next_token is None:
                return TablePage(tables=tuple(found))
            after = page.next_token

    def _look(self) -> dict[str, Any]:
        """Raises where the ledger takes no commit: only one that it takes shows that it does."""
        self.ledger.write(lambda tx: tx.put(facts, name=_READY, value=now_ms()))
        waiting = self.backlog()
        publishes = self._recovery.is_alive() or any(
            thread.name == _PUBLISHER and thread.is_alive() for thread in threading.enumerate()
        )
        return {
            "ready": publishes and not self._is_stopping,
            "ledger": "takes commits",
            "publisher": "runs" if publishes else "has stopped",
            "unbackfilled": waiting.unbackfilled,
            "lag_seconds": waiting.lag_ms / 1000,
        }

    def backlog(self) -> status.Backlog:
        found = status.backlog(self.ledger, now=now_ms())
        self.finished.behind(found.lag_ms)
        return found

    def metrics_text(self) -> bytes:
        waiting = self.backlog()
        return self.finished.text(
            {
                "lakeseal_tables": waiting.tables,
                "lakeseal_unbackfilled_commits": waiting.unbackfilled,
                "lakeseal_unbackfilled_commits_max": waiting.most_of_a_table,
                "lakeseal_backfill_lag_seconds": waiting.lag_ms / 1000,
            }
        )

    def _recover(self) -> None:
        if self.finished.is_first:
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
