from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import typer

from lakeseal.cli.app import HOMES
from lakeseal.cli.options import parse_store_options
from lakeseal.errors import LakesealError

Run = Callable[..., Any]


@pytest.mark.parametrize(
    "arguments",
    [["no-such-command"], ["read"], ["read", "t", "--version", "x"], ["read", "t", "--option", "=secret"]],
)
def test_a_wrong_call_is_exit_code_2_and_says_why(arguments: list[str], lakeseal: Run) -> None:
    ended = lakeseal(*arguments)

    assert ended.code == 2
    assert ended.out == ""
    assert ended.err
    assert "secret" not in ended.err


def test_help_and_version_are_exit_code_0(lakeseal: Run) -> None:
    assert lakeseal("--help").code == 0
    assert lakeseal("--version").out.startswith("lakeseal ")


def test_debug_shows_the_traceback(lakeseal: Run, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESEAL_DEBUG", "1")
    with pytest.raises(LakesealError):
        lakeseal("read", str(tmp_path))


def test_a_reader_of_the_output_may_leave_early(sales: str) -> None:
    command = f"{sys.executable} -m lakeseal read {sales} --json | head -n 1"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

    assert ended.stdout.startswith("{")
    assert ended.stderr == ""


def test_output_that_has_no_room_is_told_as_that(sales: str) -> None:
    command = f"{sys.executable} -m lakeseal read {sales} --json > /dev/full"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "There is no room" in ended.stderr
    assert "bug" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_store_options_are_split_at_the_first_equals_sign() -> None:
    assert parse_store_options(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    assert parse_store_options(None) is None


def test_every_command_of_a_module_is_found_and_no_other_module_is_loaded_for_it() -> None:
    for module, commands in HOMES.items():
        there = typer.main.get_group(import_module(f"lakeseal.cli.{module}").commands).commands
        assert tuple(there) == commands
    asked = "import sys; from lakeseal.cli import main; main(['read', '--help']); print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert "lakeseal.cli.read" in loaded
    assert {"lakeseal.cli.ingest", "lakeseal.ingest", "pandas", "pyspark", "sqlalchemy"}.isdisjoint(loaded)


def test_a_command_that_is_mistyped_is_told_what_it_may_mean(lakeseal: Run) -> None:
    assert "history" in lakeseal("histor").err
