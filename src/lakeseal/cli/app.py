"""The commands put together, and what happens to errors. A command's module is loaded when the command is asked for."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import TyperGroup

from lakeseal import traces
from lakeseal.cli.examples import EXAMPLES
from lakeseal.cli.output import Output
from lakeseal.display import visible
from lakeseal.errors import LakesealError, StorageUnavailable

HOMES = {
    "demo": ("demo",),
    "read": ("read", "history", "files", "schema", "describe"),
    "write": ("create", "write", "convert"),
    "change": ("delete", "update", "changes"),
    "merge": ("merge",),
    "alter": ("properties", "constraint", "column"),
    "sql": ("sql",),
    "upkeep": ("optimize", "vacuum", "restore", "clone"),
    "branch": ("branch",),
    "owner": ("owner",),
    "catalog": ("catalog",),
    "ingest": ("ingest",),
    "steps": ("steps",),
    "serve": ("serve",),
    "ui": ("ui",),
    "doctor": ("doctor",),
    "completion": ("completion",),
}
"""Module → its commands, in the order in which the help shows them."""

_COMPLETES = "_LAKESEAL_COMPLETE"
"""Set by the scripts of `lakeseal completion` when a shell asks."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where there is no room."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [command for commands in HOMES.values() for command in commands]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _mend_help("", self, ctx)
        super().format_help(ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        home = next((module for module, commands in HOMES.items() if cmd_name in commands), None)
        if home is not None:
            loaded = typer.main.get_group(import_module(f"lakeseal.cli.{home}").commands).commands
            for name, command in loaded.items():
                _mend_help(name, command, ctx)
            self.commands.update(loaded)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.list_commands(ctx):
            for name in self.list_commands(ctx):
                self.get_command(ctx, name)  # what was meant may be among them
        return super().resolve_command(ctx, args)


def _mend_help(path: str, command: Any, ctx: Any) -> None:
    """Examples at the end, and no type beside what takes no value."""
    for parameter in command.get_params(ctx):  # with --help, which every command keeps one of
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    lines = EXAMPLES.get(path)
    if lines is not None:
        command.epilog = "\n\n".join(("Examples:", *(f"$ {escape(line)}" for line in lines)))
    for name, inner in getattr(command, "commands", {}).items():
        _mend_help(f"{path} {name}", inner, ctx)


app = typer.Typer(
    name="lakeseal",
    cls=_Commands,
    help="Atomic, exactly-once publishing of what Spark writes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakeseal {version('lakeseal')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Atomic, exactly-once publishing of what Spark writes."""


_NAME_OWNER = (
    "Name its owner: --owner sqlite:///ledger.db; or for all commands "
    'LAKESEAL_OWNERS=\'{"NAME": "sqlite:///ledger.db"}\''
)
_FLAGS = {
    "pass enforce_retention_duration=False": "say --insist",
    "with merge_schema=True": "with --merge-schema",
    "Leave partition_by out": "Leave --partition-by out",
    "overwrite with overwrite_schema=True": "overwrite it from Python, with overwrite_schema=True",
    "Open the table with its owner: lakeseal.Table(uri, owner=…)": _NAME_OWNER,
    "The table names a commit owner: open it with that owner configured": _NAME_OWNER,
    "give spark=…": "give --spark",
    "Give spark=…": "Give --spark",
    "Give it the name: Catalog.register(": "Give it the name with lakeseal catalog register: (",
    "or give catalog=…": "or name its catalog with --catalog",
    "give the name together with its catalog": "give the name between backticks",
    "Open it with lakeseal.Table(uri)": "Look at it with lakeseal describe, or add to it with lakeseal write",
}
"""How a hint that names an argument of a Python function is said to somebody at a terminal."""


def in_flags(error: LakesealError) -> LakesealError:
    error.hint = _flagged(error.hint)
    return error


def _flagged(text: str) -> str:
    for argument, flag in _FLAGS.items():
        text = text.replace(argument, flag)
    return text


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Without the line of code that they come from, which is ours."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {visible(_flagged(str(message)))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    out = Output()
    if _COMPLETES in os.environ:
        completion_init()
    try:
        if "serve" not in (arguments or sys.argv[1:])[:1]:  # its workers do it themselves
            traces.export()
        with _warnings_in_a_line():
            app(args=arguments, obj=out, prog_name="lakeseal")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except LakesealError as error:
        if os.environ.get("LAKESEAL_DEBUG"):
            raise
        out.error(in_flags(error))
        return 1
    except Exception as error:
        if os.environ.get("LAKESEAL_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in _FULL:
            no_room = f"There is no room for what was to be written: {error.strerror}"
            out.error(StorageUnavailable(no_room, hint="Make room, and run it again"))
            return 1
        out.error(
            LakesealError(
                f"Unexpected {type(error).__name__}: {error}",
                hint="This is a bug in Lakeseal: run it again with LAKESEAL_DEBUG=1 and report what it shows",
            )
        )
        return 1
    return 0
