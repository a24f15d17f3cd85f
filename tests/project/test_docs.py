"""Docs are run: every code block of the README and of docs/ is executed, in the order of its page.

Blocks of `text` are what cannot be run here, for it needs a server or is one: whether Lakeseal would take their lines
and their YAML is looked at.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import lakeseal
from lakeseal.cli import main
from support.command_lines import check

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
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


@pytest.mark.parametrize(
    ("path", "block"),
    [
        pytest.param(page, block, id=f"{page.relative_to(ROOT)}:{block.line}")
        for page in PAGES
        for block in blocks(page)
        if block.language == "text"
    ],
)
def test_what_a_block_of_text_says_would_be_taken(
    path: Path, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if OF_YAML.match(block.code):
        for name in re.findall(r"\$\{(\w+)", block.code):
            monkeypatch.setenv(name, "postgresql://somebody@host/database")
        (tmp_path / "pipeline.yaml").write_text(json.dumps(_whole(yaml.safe_load(block.code))), encoding="utf-8")
        lakeseal.Pipeline.from_yaml(tmp_path / "pipeline.yaml")
    elif OF_PYTHON.match(block.code):
        ast.parse(block.code)
    else:
        for line in block.code.splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "export":
                for word in words[1:]:
                    monkeypatch.setenv(*word.split("=", 1))
            else:
                _taken(words, path)


OF_YAML = re.compile(r"(source|target|ledger):")
OF_PYTHON = re.compile(r"(lakeseal|spark|df)\.")


def _whole(part: dict[str, Any]) -> dict[str, Any]:
    """A pipeline with this part."""
    dataset = {
        "name": "one",
        "source": {"type": "files", "path": "in", "format": "json", "schema": "id long"},
        "target": {"type": "table", "uri": "out"},
    }
    dataset |= {name: part.pop(name) for name in ("source", "target") if name in part}
    return {"name": "pipeline", "ledger": "sqlite:///ledger.db", "datasets": [dataset], **part}


def _taken(words: list[str], page: Path) -> None:
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    match words:
        case ["lakeseal", *rest]:
            check(rest)
        case ["python", "-m", *_] | ["sqlite3" | "pg_dump", *_]:
            pass
        case ["python", script, *_]:
            assert (page.parent / script).exists() or (ROOT / script).exists(), script
        case ["make", *_]:
            _run(shlex.join(words), page.name)
        case _:
            raise AssertionError(f"{page.name}: who would take {shlex.join(words)}?")


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?(?:\s+\"[^\"]*\")?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def _rows_and_bullets(page: Path) -> Iterator[str]:
    """Of the page of what was wrong: those that say what shows that it is mended."""
    found = ""
    for line in page.read_text(encoding="utf-8").partition("## How far")[0].splitlines():
        if found and not line.startswith("  "):
            yield found
            found = ""
        if line.startswith("- **") or re.match(r"\| \d", line) or found:
            found += f" {line}"
    if found:
        yield found


def test_what_was_wrong_is_shown_by_tests_that_are_there() -> None:
    told = list(_rows_and_bullets(ROOT / "docs" / "right.md"))
    assert len(told) > 50
    for text in told:
        tests: list[str] = []
        named = re.findall(r"\[what must not happen\]|tests/[\w/]+\.py|`test_\w+…?`", text)
        assert named, f"nothing shows it: {text}"
        for name in named:
            if name.startswith("tests/"):
                tests = re.findall(r"def (test_\w+)", (ROOT / name).read_text(encoding="utf-8"))
            elif name.startswith("`"):
                begins = name.strip("`…")
                fits = [test for test in tests if test == begins or (name.endswith("…`") and test.startswith(begins))]
                assert len(fits) == 1, f"{name} is {fits or 'no test of its file'}: {text}"
        if text.startswith(" | "):
            assert any(name.startswith("`") for name in named), f"names files alone: {text}"


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
