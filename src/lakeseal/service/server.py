"""Running a service: the socket, the worker processes, and stopping them.

On SIGTERM or SIGINT no new requests are taken, those under way are finished, the publisher ends after its table, and
the ledger is closed. What a harder end interrupts is taken up at the next start.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from lakeseal import ledger
from lakeseal.errors import InvalidArgument, StorageUnavailable
from lakeseal.owner import policies
from lakeseal.service import logs
from lakeseal.service.app import AppFactory
from lakeseal.service.connections import ConnectionFactory, raise_file_limit, tls_context
from lakeseal.service.credentials import Credentials
from lakeseal.service.finished_calls import shared_folder
from lakeseal.service.places import ServedPlaces
from lakeseal.service.service import OpenOwner, open_owner
from lakeseal.service.settings import ServiceSettings, is_loopback

_log = logging.getLogger(__name__)

_GRACE_S = 30
# When SIGHUP replaces workers one by one, each has to be ready so soon.
_READY_S = 60


def serve(
    settings: ServiceSettings,
    *,
    listening: Callable[[str], None] = lambda url: None,
    make_owner: OpenOwner = open_owner,
) -> None:
    """Returns when the service has been stopped. `listening` is told the address once it can be connected to."""
    _check(settings)
    with _bound(settings) as bound:
        logs.configure(settings.log_level)
        raise_file_limit()
        url = _url(settings, bound)
        if not settings.roots:
            _log.warning("without --root, tables are served in any place that this process can reach")
        if settings.tls_certificate is None and not is_loopback(bound.getsockname()[0]):
            _log.warning("without TLS, tokens travel in the clear: put a proxy with TLS in front")
        listening(url)
        _log.info("listening", extra={"url": url, "workers": settings.workers, "insecure": settings.insecure})
        if settings.workers == 1:
            _run_alone(_config(settings, make_owner), bound)
            return
        with shared_folder():
            workers = Workers(_config(settings, make_owner), sockets=[bound])
            workers.run()
        if any(one.exitcode == STARTUP_FAILURE for one in workers.processes):
            raise StorageUnavailable("A worker could not start", hint="The log says why")


class Workers(Multiprocess):
    """A worker that has died is replaced, and a signal is heard within half a second.

    uvicorn's own way is to ask each worker for an answer, and to look at signals when it has come. A worker that starts
    does not answer for seconds, and one that is killed while it is asked never does."""

    def keep_subprocess_alive(self) -> None:
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set() or worker.process.is_alive():
                continue
            worker.kill()  # closes its pipes
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                self.should_exit.set()
                return
            _log.warning("a worker died and is replaced", extra={"pid": worker.pid, "exitcode": worker.exitcode})
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()


def _run_alone(config: uvicorn.Config, bound: socket.socket) -> None:
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        """Before uvicorn listens to signals, this is heard at its first look. It raises the signal again when it has
        stopped, for those who wait for it; we are done then."""
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[bound])
    except SystemExit as ended:
        if ended.code == STARTUP_FAILURE:
            raise StorageUnavailable("The service could not start", hint="The log says why") from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _config(settings: ServiceSettings, make_owner: OpenOwner) -> uvicorn.Config:
    return uvicorn.Config(
        AppFactory(settings, make_owner),
        factory=True,
        interface="asgi3",
        http=cast(Any, ConnectionFactory(settings)),
        lifespan="on",
        ws="none",
        workers=settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        # `proxies` decides whom to believe.
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_worker_healthcheck=_READY_S,
    )


def _check(settings: ServiceSettings) -> None:
    """What would fail in each worker fails here, once, with an error that says why."""
    ServedPlaces(settings.roots)
    tls_context(settings)
    policies.from_json(settings.policies)
    Credentials(settings.credentials)
    if ledger.parse(settings.ledger).kind != "memory":
        ledger.open(settings.ledger).close()


def _bound(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        bound = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise StorageUnavailable(
            f"The service cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            hint="Choose another address with --listen",
        ) from None
    if settings.insecure and not is_loopback(bound.getsockname()[0]):
        # A name may mean anything.
        bound.close()
        raise InvalidArgument(f"{settings.host} is not on loopback, so that --insecure is not possible")
    # Connections inherit it. asyncio sets it only where a socket says its protocol, which this one does not, and a
    # reply that is sent in two parts would wait 40 ms for the client's kernel to acknowledge the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _url(settings: ServiceSettings, bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
