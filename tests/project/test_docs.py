"""Docs are run: every code block of the README and of docs/ is executed, in the order of its page."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakeseal.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STARTING_SPARK = (["ingest", "run"], ["ingest", "backfill"])
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Block:
    language: str
    code: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(language=found[1], code=found[2], line=text.count("\n", 0, found.start()) + 2)


def _page(path: Path) -> Any:
    uses_spark = any("pyspark" in block.code for block in blocks(path) if block.language == "python")
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=[pytest.mark.spark] if uses_spark else [])


@pytest.mark.parametrize("path", [_page(page) for page in PAGES if any(blocks(page))])
def test_every_code_block_of_the_page_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if request.node.get_closest_marker("spark"):
        # A process has one session: a page that asks for one gets the one that all tests share.
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))  # names are not those of whoever runs the tests
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), names)
        elif block.language == "yaml":
            # The first line is a comment with the file's name.
            Path(block.code.splitlines()[0].removeprefix("# ")).write_text(block.code, encoding="utf-8")
        elif block.language in ("sh", "console"):
            for command in block.code.splitlines():
                _run(command.removeprefix("$ "), f"{path.name}:{block.line}")
        else:
            assert block.language in ("", "text", "json"), f"{path.name}:{block.line}: who runs {block.language}?"


def _run(command: str, where: str) -> None:
    words = shlex.split(command, comments=True)
    if not words:
        return
    if words[0] == "lakeseal" and words[1:3] not in STARTING_SPARK:
        # In this process, which has loaded everything; the exit code is what a shell would see.
        assert main(words[1:]) == 0, f"{where}: {command}"
    elif words[0] == "lakeseal":
        ended = subprocess.run(
            [sys.executable, "-m", "lakeseal", *words[1:]], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, f"{where}: {command}\n{ended.stdout}{ended.stderr}"
    elif words[0] == "make":
        # Running them here would run this very test again; that they exist is what can be shown.
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets, f"{where}: {command}"
    else:
        assert words[0] in ("pip", "git", "cd") or (ROOT / words[0]).exists(), f"{where}: {command}"


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?(?:\s+\"[^\"]*\")?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_page_of_errors_is_the_tree_of_errors() -> None:
    page = _script("error_docs").page()
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == page, "run `make docs`"


def test_pages_of_reference_say_what_the_code_says() -> None:
    pages = _script("reference_docs").PAGES
    assert set(pages) >= {"properties", "options", "metrics", "environment"}
    for name, page in pages.items():
        kept = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
        assert kept == page(), "run `make docs`"


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
