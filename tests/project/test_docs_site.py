"""The site of the docs: it is built with every link right, and is read without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="the site needs pip install 'lakeseal[docs]'")
    place = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    asks = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(call, cwd=ROOT, env=asks, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return place


def test_every_page_and_every_public_name_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in ("Table.merge", "Catalog.grant", "Repository.write", "Pipeline.run", "transaction", "sql"):
        assert f".{name}" in python, name
    assert "lakeseal branch read" in (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert "on_fail" in (site / "reference" / "pipeline-yaml.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = [
        f"{page.name}: {found[0]}"
        for page in site.rglob("*.html")
        for found in [LOADED.search(page.read_text())]
        if found
    ]
    assert loaded == []
