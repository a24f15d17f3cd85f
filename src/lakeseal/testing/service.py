"""A service on a thread of this process, on a free port of loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from lakeseal.extras import brought

with brought(__name__):
    import uvicorn

    from lakeseal.service.app import create_app
    from lakeseal.service.connections import ConnectionFactory
    from lakeseal.service.service import Service
    from lakeseal.service.settings import ServiceSettings


@contextmanager
def service_inside(**settings: Any) -> Iterator[tuple[str, Service]]:
    """Its address, and the service itself. Its ledger is in memory unless `ledger` is given. What keeps it from
    starting is raised."""
    chosen = ServiceSettings(**{"ledger": "sqlite://", **settings})
    app, http = create_app(chosen), cast(Any, ConnectionFactory(chosen))
    options: dict[str, Any] = {"ws": "none", "proxy_headers": False, "log_config": None, "access_log": False}
    server = uvicorn.Server(uvicorn.Config(app, interface="asgi3", http=http, lifespan="on", **options))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=_run, args=(server, bound))
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise app.state.failed  # that of its ledger, where that can't be opened
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}", app.state.service
        finally:
            server.should_exit = True
            thread.join()


def _run(server: uvicorn.Server, bound: socket.socket) -> None:
    with suppress(SystemExit):  # where it does not start, which is found out by whoever waits for it
        server.run([bound])
