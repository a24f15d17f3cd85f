"""A real lakeFS server for tests, from a binary that the caller has.

`lakefs_server(binary, home)` starts one on loopback that keeps everything below `home`, yields storage options for
`Repository.create("lakefs://…")`, and stops it at the end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeseal.backoff import Backoff
from lakeseal.errors import StorageUnavailable
from lakeseal.testing.s3 import S3Server

ACCESS_KEY_ID = "AKIALAKESEALTESTING1"
SECRET_ACCESS_KEY = "testing-secret-of-lakeseal-for-a-server-on-loopback"  # noqa: S105
_STARTUP_SECONDS = 60


@contextmanager
def lakefs_server(
    binary: Path, home: Path, *, hooks: bool = True, s3: S3Server | None = None
) -> Iterator[dict[str, str]]:
    """`hooks` is the server's `actions.enabled`; objects are on its own disk, or in `s3`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = home / "lakefs.json"
    config.write_text(json.dumps(_config(home, port, hooks, s3)), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEFS_")}
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(  # noqa: S603
            [binary, "--config", config, "run"], stdout=log, stderr=log, cwd=home, env=environment
        )
        try:
            _wait_until_ready(server, port, home / "log")
            yield {
                **({} if s3 is None else s3.storage_options),
                "lakefs_endpoint": f"http://127.0.0.1:{port}",
                "lakefs_access_key_id": ACCESS_KEY_ID,
                "lakefs_secret_access_key": SECRET_ACCESS_KEY,
            }
        finally:
            server.terminate()
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _config(home: Path, port: int, hooks: bool, s3: S3Server | None) -> dict[str, object]:
    # JSON is YAML. What the server accepted need not reach the disk here.
    return {
        "listen_address": f"127.0.0.1:{port}",
        "logging": {"level": "WARN"},
        "stats": {"enabled": False},
        "security": {"check_latest_version": False},
        "actions": {"enabled": hooks},
        "database": {"type": "local", "local": {"path": str(home / "kv"), "sync_writes": False}},
        "blockstore": {"signing": {"secret_key": "testing"}, **_blockstore(home, s3)},
        "auth": {"encrypt": {"secret_key": "testing"}},
        "installation": {
            "user_name": "testing",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        },
    }


def _blockstore(home: Path, s3: S3Server | None) -> dict[str, object]:
    if s3 is None:
        return {"type": "local", "local": {"path": str(home / "objects")}}
    options = s3.storage_options
    keys = {name: options[f"aws_{name}"] for name in ("access_key_id", "secret_access_key")}
    return {
        "type": "s3",
        "s3": {
            "endpoint": s3.endpoint,
            "region": options["aws_region"],
            "force_path_style": True,
            "discover_bucket_region": False,
            "credentials": keys,
        },
    }


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in Backoff(first_s=0.02, longest_s=0.2).tries(within_s=_STARTUP_SECONDS):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/setup_lakefs", timeout=5) as answer:
                if json.load(answer).get("state") == "initialized":
                    return
        except (urllib.error.URLError, OSError):
            pass
        if server.poll() is not None:
            break
    raise StorageUnavailable(f"lakeFS did not start: {log.read_text(errors='replace')[-2000:]}", hint="")
