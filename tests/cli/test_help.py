"""All commands at once: what each can be asked, what its help shows, what shells complete."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lakeseal.cli.app import app
from lakeseal.cli.examples import EXAMPLES
from support.command_lines import check

Run = Callable[..., Any]
# It looks at the table's files.
_NO_OWNER = {"doctor"}
# What a pipeline has done stands in its ledger, by the pipeline's name.
_OF_LEDGER = {"ingest status", "ingest history", "ingest watermarks"}


def commands() -> Iterator[tuple[str, Any]]:
    def below(command: Any, context: Any, path: str) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "list_commands"):
            yield path, command
            return
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner.hidden:
                continue  # the older name of another
            yield from below(inner, type(context)(inner, info_name=name, parent=context), f"{path} {name}".strip())

    whole: Any = typer.main.get_command(app)
    yield from below(whole, whole.make_context("lakeseal", ["--help"], resilient_parsing=True), "")


def flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


def test_every_command_has_json() -> None:
    assert {path for path, command in commands() if "--json" not in flags(command)} == set()


def test_every_command_that_was_asked_for_is_there() -> None:
    paths = {path for path, _ in commands()}
    assert {"merge", "sql", "properties", "constraint add", "column add", "branch read", "completion"} <= paths
    assert {"ingest init", "ingest check"} <= paths


def test_every_command_about_a_table_takes_owner_catalog_and_storage_options() -> None:
    of_tables = {path: flags(one) for path, one in commands() if any(p.name == "uri" for p in one.params)}
    ours = {path: found for path, found in of_tables.items() if path.split()[0] not in ("branch", "owner", "catalog")}
    ours["sql"] = flags(dict(commands())["sql"])  # whose statements name the tables
    assert len(ours) > 20
    assert {path for path, found in ours.items() if "--owner" not in found} == _NO_OWNER
    assert {path for path, found in ours.items() if "--catalog" not in found} == set()
    assert {path for path, found in of_tables.items() if "--storage-option" not in found} <= {
        "catalog register",
        "owner tables",
    }


def test_every_command_of_an_owner_or_a_pipeline_that_may_get_a_name_takes_a_catalog() -> None:
    found = {path: command for path, command in commands() if path.startswith(("owner ", "ingest "))}
    about = {path for path, one in found.items() if any(p.name in ("uri", "uris", "file") for p in one.params)}
    assert {"owner take-over", "owner rebuild", "ingest run", "ingest backfill"} <= about
    assert {path for path in about if "--catalog" not in flags(found[path])} == _OF_LEDGER


def test_every_command_has_examples() -> None:
    paths = {path for path, _ in commands()}
    assert set(EXAMPLES) <= paths, "an example of a command that there is not"
    assert paths - set(EXAMPLES) == set()


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_a_call_that_is_right(line: str) -> None:
    words = shlex.split(line.split(" > ")[0])
    assert words.pop(0) == "lakeseal"
    check(words)


def test_help_shows_examples_and_no_type_beside_a_flag(lakeseal: Run) -> None:
    told = lakeseal("merge", "--help").out
    assert "$ lakeseal merge orders new.parquet --key id" in told
    assert "<bool>" not in told
    for words in ((), ("column",), ("column", "add"), ("demo",)):
        told = lakeseal(*words, "--help").out
        assert "--help" in told
        assert "<bool>" not in told, words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_those_of_the_shell(shell: str, lakeseal: Run) -> None:
    ended = lakeseal("completion", shell)
    assert ended.code == 0
    assert f"complete_{shell}" in ended.out
    assert lakeseal("completion", shell, "--json").rows[0]["script"] in ended.out
    assert lakeseal("completion", "csh").code == 2


def test_a_shell_is_told_commands_and_options(tmp_path: Path) -> None:
    def asked(words: str, count: int) -> list[str]:
        asks = {"_LAKESEAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
        call = [sys.executable, "-m", "lakeseal"]
        ended = subprocess.run(call, env={**os.environ, **asks}, capture_output=True, text=True, check=True)
        return ended.stdout.split()

    assert asked("lakeseal col", 1) == ["column"]
    assert asked("lakeseal column re", 2) == ["rename"]
    assert "--merge-schema" in asked("lakeseal write --me", 2)
