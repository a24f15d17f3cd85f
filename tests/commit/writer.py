"""A process that appends: `python writer.py <uri> <name> <commits> [<crash call> <crash key> <nth> before|after]`.

Prints one line `<txnId> <version>` per acknowledged commit, after it was acknowledged.
"""

from __future__ import annotations

import sys

from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.actions import AddFile
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore, How


def main(uri: str, name: str, commits: str, *crash: str) -> None:
    store: Store = open_store(uri)
    if crash:
        call, key, nth, when = crash
        how = How.CRASH_BEFORE if when == "before" else How.CRASH_AFTER
        store = FaultyStore(store, [Fault(call, key, how, nth=int(nth))])
    log, owner = DeltaLog(store), FilesystemOwner(store)
    for number in range(int(commits)):
        txn = OptimisticTransaction.begin(log, owner)
        path = f"{name}-{number}.parquet"
        add = AddFile(path=path, partition_values={}, size=1, modification_time=0, data_change=True)
        result = txn.commit([add], Operation(name="WRITE"))
        print(result.txn_id, result.version, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
