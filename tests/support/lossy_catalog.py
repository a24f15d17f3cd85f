"""A service in a process of its own that is killed and started again, and a proxy before it that loses a tenth of all
replies: what writers of several engines have to come through with one history."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeseal.clock import now_ms
from lakeseal.commit.filesystem_owner import txn_id_of
from lakeseal.ledger import open as open_ledger
from lakeseal.protocol.paths import commit_path
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.storage import open_store
from lakeseal.testing.proxy import ProxyFault, Request, faulty_proxy


class LosesATenth:
    """Of the replies; and now and then a request."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self.asked = self.lost = 0

    def __call__(self, request: Request) -> ProxyFault | None:
        with self._lock:
            draw = self._dice.random()
            self.asked += 1
            self.lost += draw < 0.1
        return ProxyFault.LOSE_REPLY if draw < 0.1 else ProxyFault.LOSE_REQUEST if draw < 0.12 else None


class MortalService:
    def __init__(self, folder: Path, *options: str, ledger: str | None = None) -> None:
        self._folder = folder
        self._options = options
        self.ledger = ledger or f"sqlite:///{folder}/ledger.db"
        self.kills = 0
        self._listen = "127.0.0.1:0"
        self._start()
        self._listen = self.url.removeprefix("http://")

    def token(self) -> str:
        with open_ledger(self.ledger) as opened:
            return tokens.create(opened, "writer", (Grant.from_text("admin"),), now=now_ms())[0]

    def kill(self) -> None:
        """Without a word, and started again at the same address."""
        self._process.kill()
        self._end()
        self.kills += 1
        self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._end()

    def _start(self) -> None:
        command = [sys.executable, "-m", "lakeseal", "serve", "--ledger", self.ledger, "--listen", self._listen]
        log = self._folder / f"service-{self.kills}.log"
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, "--rate", "0", "--json", *self._options], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, log.read_text()
        self.url: str = json.loads(line)["url"]

    def _end(self) -> None:
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()


class LossyCatalog:
    def __init__(self, service: MortalService, url: str, loses: LosesATenth) -> None:
        self.service = service
        self.token = service.token()
        self.url = url
        """That of the proxy."""
        self.loses = loses


@contextmanager
def lossy_catalog(folder: Path, *, seed: int = 10) -> Iterator[LossyCatalog]:
    service = MortalService(folder)
    loses = LosesATenth(seed)
    try:
        with faulty_proxy(service.url, loses) as proxy:
            yield LossyCatalog(service, proxy.endpoint, loses)
    finally:
        service.stop()


def published_txn_ids(folder: Path, latest: int, *, first: int = 0) -> list[str]:
    """Of the versions of a table from `first` on, which must all be in its log; each is another's."""
    store = open_store(folder)
    found = [txn_id_of(store.get(commit_path(version))) for version in range(first, latest + 1)]
    assert all(found), "every commit says whose it is"
    return [one for one in found if one is not None]
