"""A process that appends through a service: `python writer.py <url> <uri> <name> <seconds> <go>`.

Says `ready`, waits for the file `go`, and appends for so many seconds. Then prints one line of JSON per commit that was
acknowledged: its txnId, its version, and when it began and ended by the machine's one monotonic clock.
"""

from __future__ import annotations

import json
import os
import sys
import time

from lakeseal.service.client import HttpOwner
from lakeseal.storage import open_store
from lakeseal.testing.managed_tables import append, managed_log, newest


def main(url: str, uri: str, name: str, seconds: str, go: str) -> None:
    owner, store = HttpOwner(url), open_store(uri)
    log, managed = managed_log(owner, store)
    assert log.update() is not None
    print("ready", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    end = time.monotonic() + float(seconds)
    done = []
    while (begin := time.monotonic()) < end:
        result = append(log, managed, f"{name}-{len(done)}")
        done.append((result.txn_id, result.version, begin, time.monotonic()))
        if len(done) % 10 == 0:
            assert newest(store, owner) >= result.version, "B5: whoever reads after an acknowledgement sees the commit"
    for txn_id, version, began, ended in done:
        print(json.dumps({"txnId": txn_id, "version": version, "begin": began, "end": ended}))


if __name__ == "__main__":
    main(*sys.argv[1:])
