"""`lakeseal ui`: the same pages for one user, without a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

import lakeseal


def test_the_ui_shows_the_users_tables_to_whoever_has_its_address_only(tmp_path: Path) -> None:
    lakeseal.Table(tmp_path / "orders").write(pa.table({"id": [1, 2]}))
    repo = lakeseal.Repository.create(tmp_path / "repo")
    repo.put("main", "a.txt", b"a", message="hello")
    repo.store.close()
    words = ["ui", str(tmp_path / "orders"), "--repository", str(tmp_path / "repo"), "--json"]
    ui = subprocess.Popen(
        [sys.executable, "-m", "lakeseal", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "share")},
    )
    assert ui.stdout is not None
    try:
        address = json.loads(ui.stdout.readline())["url"]
        host = urlsplit(address).netloc
        asks = {"Accept": "text/html"}
        with httpx.Client(base_url=f"http://{host}", trust_env=False, timeout=60, headers=asks) as browser:
            assert browser.get("/").headers["location"].startswith("/sign-in")
            assert browser.get("/sign-in?token=wrong").status_code == 401
            assert browser.get(address).status_code == 303
            page = browser.get("/")
            assert "orders" in page.text
            place = f"file://{(tmp_path / 'orders').resolve()}"
            assert "bigint" in browser.get("/table", params={"uri": place}).text
            assert "hello" in browser.get("/repository", params={"uri": f"file://{(tmp_path / 'repo').resolve()}"}).text
            for path in ("/catalog", "/pipelines", "/audit", "/branches"):
                assert browser.get(path).status_code == 200, path
            assert browser.get("/", headers={"Host": "evil.example"}).status_code == 403
        assert not (tmp_path / "share").exists(), "to look makes no catalog"
    finally:
        ui.send_signal(signal.SIGINT)
        ui.wait(60)
        ui.stdout.close()
    assert ui.returncode == 0
