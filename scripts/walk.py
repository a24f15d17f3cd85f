"""What a managed write over HTTP visits: the modules of Lakeseal that a commit goes through, in their order.

python scripts/walk.py

`ManagedOwner.commit` of one small file, until it is answered: client and service in one process, with a token, on
SQLite, the tables' first commits done before. Calls of functions are noted in all threads. Modules that hold only
values, or functions of one, are told apart (`VALUES`): whoever follows a commit need not open them. See
docs/design/018-one-way.md.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import pyarrow as pa

from lakeseal.clock import now_ms
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.protocol.actions import AddFile, CommitInfo
from lakeseal.protocol.codec import encode
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.storage import open_store
from lakeseal.table import create
from lakeseal.testing.service import service_inside

PACKAGE = Path(sys.modules["lakeseal"].__file__ or "").parent


class Visits:
    """Of the modules of the package, while it is told to look."""

    def __init__(self) -> None:
        self.modules: dict[str, None] = {}
        self.looks = False

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if self.looks and event == "call":
            name = frame.f_code.co_filename
            if name.startswith(str(PACKAGE)):
                self.modules[Path(name).relative_to(PACKAGE).with_suffix("").as_posix()] = None


def visited() -> list[str]:
    """All of them, values too."""
    visits = Visits()
    with tempfile.TemporaryDirectory(prefix="lakeseal-walk-") as folder:
        # Threads that begin later have it: those of the service.
        threading.setprofile(visits.note)
        try:
            with service_inside(ledger=f"sqlite:///{folder}/ledger.db", publish_every_s=3600.0) as (url, service):
                token, _ = tokens.create(service.ledger, "walker", (Grant.from_text("admin"),), now=now_ms())
                owner = HttpOwner(url, token=token)
                store = open_store(f"{folder}/table")
                create(store.uri, pa.schema({"id": pa.int64()}), owner=owner)
                managed = ManagedOwner(owner, store)
                commit(managed, 1)
                sys.setprofile(visits.note)
                visits.looks = True
                commit(managed, 2)
                visits.looks = False
                sys.setprofile(None)
                owner.close()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return list(visits.modules)


def commit(managed: ManagedOwner, version: int) -> None:
    at, txn_id = now_ms() + 60_000 + version, f"walk-{version}"
    add = AddFile(path=f"{txn_id}.parquet", partition_values={}, size=1, modification_time=0, data_change=True)
    data = encode([CommitInfo(operation="WRITE", txn_id=txn_id, in_commit_timestamp=at), add])
    managed.commit(version, data, txn_id=txn_id, in_commit_timestamp=at)


if __name__ == "__main__":
    for number, module in enumerate(visited(), 1):
        print(number, module)
