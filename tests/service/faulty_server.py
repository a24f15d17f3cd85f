"""`lakeseal …`, with a service that ends at once, as by SIGKILL, when it gets to a certain point.

`python faulty_server.py <point> serve …`, where the point is `ratified` (the ledger has it, the reply is not sent),
`<call of the store>/<pattern of keys>/before|after`, or `write/<number>/before|inside|after`: any write to a store or
to the ledger.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

from lakeseal.cli import main
from lakeseal.ledger import Ledger
from lakeseal.owner.ledger_owner import LedgerOwner, Run
from lakeseal.owner.messages import Batch, BatchAnswer
from lakeseal.service import server
from lakeseal.service.places import ServedPlaces
from lakeseal.service.settings import ServiceSettings
from lakeseal.storage import Store
from lakeseal.testing.faults import Fault, FaultyStore, How
from support.crashes import CrashingLedger, CrashingStore, Effects, When


class DiesAfterRatifying(LedgerOwner):
    async def decide_in_turn(self, batch: Batch, run: Run) -> BatchAnswer:
        await super().decide_in_turn(batch, run)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def make_owner(point: str, opened: Ledger, settings: ServiceSettings, places: ServedPlaces) -> LedgerOwner:
    options = {"name": settings.name, "batch_size": settings.batch_size, "backfills": False, "trusting": False}
    if point == "ratified":
        return DiesAfterRatifying(opened, stores=places.open, **options)  # type: ignore[arg-type]
    call, _, rest = point.partition("/")
    if call == "write":
        number, when = rest.split("/")
        effects = Effects(int(number), When[when.upper()])
        crashing = CrashingLedger(opened, effects)
        return LedgerOwner(crashing, stores=lambda table: CrashingStore(places.open(table), effects), **options)  # type: ignore[arg-type]
    pattern, _, when = rest.rpartition("/")
    fault = Fault(call, pattern, How.CRASH_BEFORE if when == "before" else How.CRASH_AFTER)

    def open_faulty(table: str) -> Store:
        return FaultyStore(places.open(table), [fault])

    return LedgerOwner(opened, stores=open_faulty, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    server.serve = partial(server.serve, make_owner=partial(make_owner, sys.argv[1]))  # type: ignore[assignment]
    sys.exit(main(sys.argv[2:]))
