"""What a managed write over HTTP visits: the modules of Lakeseal that a commit goes through, in their order.

python scripts/visits.py

`ManagedOwner.commit` of one small file, until it is answered: client and service in one process, with a token, on
SQLite, the tables' first commits done before. Calls of functions are noted in all threads. Modules that hold only
values, or functions of one, are told apart (`VALUES`): whoever follows a commit need not open them. See
docs/design/018-one-way.md.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

import pyarrow as pa

import lakeseal
from lakeseal.clock import now_ms
from lakeseal.commit.owner import Committed
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.protocol.actions import AddFile, CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.storage import open_store
from lakeseal.table import create
from lakeseal.testing.service import service_inside

PACKAGE = Path(lakeseal.__file__).parent
VALUES = frozenset(
    {
        # Of everything: errors, time, JSON, spans that are off.
        *("errors", "clock", "backoff", "traces", "typed_json", "stepwise_json"),
        # Of the format and of places.
        *("protocol/actions", "protocol/codec", "protocol/paths", "protocol/data_paths"),
        *("log/ratified_commit", "storage/location", "ledger/types"),
        # What is said to an owner, what it looks at of a commit, the state machine of a table's row; roles, tokens.
        *("owner/messages", "owner/content", "owner/ownership", "service/access", "service/tokens"),
    }
)
"""Modules of values, and of functions of one."""
_BESIDE = ("lakeseal-publisher", "lakeseal-recovery")
"""Threads that work by themselves."""


class Visits:
    """Of the modules of the package, while it is told to look."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.looks = False

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.looks or event != "call" or threading.current_thread().name in _BESIDE:
            return
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            self.modules[file.relative_to(PACKAGE).with_suffix("").as_posix()] = None


def visited() -> list[str]:
    """In the order of the first visits, values too."""
    visits = Visits()
    with tempfile.TemporaryDirectory(prefix="lakeseal-visits-") as folder:
        # Threads that begin later have it: those of the service.
        threading.setprofile(visits.note)
        try:
            with service_inside(ledger=f"sqlite:///{folder}/ledger.db", publish_every_s=3600.0) as (url, service):
                token, _ = tokens.create(service.ledger, "visitor", (Grant.from_text("admin"),), now=now_ms())
                owner = HttpOwner(url, token=token)
                store = open_store(f"{folder}/table")
                create(store.uri, pa.schema({"id": pa.int64()}), owner=owner)
                managed = ManagedOwner(owner, store)
                commit(managed, 1)
                sys.setprofile(visits.note)
                visits.looks = True
                commit(managed, 2)
                sys.setprofile(None)
                while len(service.finished.last()) < 2:
                    time.sleep(0.001)  # the answer comes before the service is done with it
                visits.looks = False
                owner.close()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return list(visits.modules)


def commit(managed: ManagedOwner, version: int) -> None:
    at, txn_id = now_ms() + 60_000 + version, f"walk-{version}"
    add = AddFile(path=f"{txn_id}.parquet", partition_values={}, size=1, modification_time=0, data_change=True)
    data = encode([CommitInfo(operation="WRITE", txn_id=txn_id, in_commit_timestamp=at), add])
    outcome = managed.commit(version, data, txn_id=txn_id, in_commit_timestamp=at)
    assert isinstance(outcome, Committed), outcome


if __name__ == "__main__":
    found = visited()
    for number, module in enumerate((one for one in found if one not in VALUES), 1):
        print(f"{number}. `{module}`")
    print("values:", ", ".join(one for one in found if one in VALUES))
