"""`lakeseal ui`: the same pages for one user, without a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pyarrow as pa

import lakeseal


@contextmanager
def ui(tmp_path: Path, *words: str) -> Iterator[tuple[str, httpx.Client]]:
    """The address that is shown, and a browser."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeseal", "ui", *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "share")},
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            address = json.loads(process.stdout.readline())["url"]
            base, asks = f"http://{urlsplit(address).netloc}", {"Accept": "text/html"}
            with httpx.Client(base_url=base, trust_env=False, timeout=60, headers=asks) as browser:
                yield address, browser
        finally:
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
    assert (process.returncode, said) == (0, "")


def test_the_ui_shows_the_users_tables_to_whoever_has_its_address_only(tmp_path: Path) -> None:
    lakeseal.Table(tmp_path / "orders").write(pa.table({"id": [1, 2]}))
    repo = lakeseal.Repository.create(tmp_path / "repo")
    repo.put("main", "a.txt", b"a", message="hello")
    repo.store.close()
    with ui(tmp_path, str(tmp_path / "orders"), "--repository", str(tmp_path / "repo")) as (address, browser):
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


def test_the_ui_shows_all_that_an_owners_ledger_knows(tmp_path: Path) -> None:
    """Tables that have no name, and pipelines; whatever its commits are, they are read as the owner has them."""
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    lakeseal.Table(tmp_path / "stock", owner=ledger).write(pa.table({"items": [10, 500]}))
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"id": 1}\n')
    (tmp_path / "clicks.yaml").write_text(
        f"""name: clicks
ledger: {ledger}
datasets:
  - name: clicks
    source: {{type: files, path: {tmp_path}/landing, format: json, schema: "id long"}}
    target: {{type: table, uri: {tmp_path}/clicks}}
"""
    )
    assert lakeseal.Pipeline.from_yaml(tmp_path / "clicks.yaml").run().rows == 1
    for said in ("--owner", "--catalog"):
        with ui(tmp_path, said, ledger) as (address, browser):
            assert browser.get(address).status_code == 303
            assert "stock" in browser.get("/").text
            place = f"file://{(tmp_path / 'stock').resolve()}"
            assert "500" in browser.get("/table", params={"uri": place}).text
            assert "clicks" in browser.get("/pipelines").text
