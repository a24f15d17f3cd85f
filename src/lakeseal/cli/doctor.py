"""`lakeseal doctor`: whether this machine and one table are well, and what to do where they are not."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import msgspec
import typer

from lakeseal.cli import checks
from lakeseal.cli.options import AsJson, StoreOptions, parse_store_options
from lakeseal.cli.output import Output

commands = typer.Typer()


@commands.command()
def doctor(
    ctx: typer.Context,
    uri: Annotated[str | None, typer.Argument(help="A table to look at as well.", show_default=False)] = None,
    files: Annotated[bool, typer.Option("--files", help="Look for every data file of the table, too.")] = False,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Look at this machine and, if one is named, at a table. Exit code 1 if something has failed."""
    out: Output = ctx.obj
    of_table = checks.table(uri, parse_store_options(option), look_for_files=files) if uri is not None else ()
    found = list(chain(checks.machine(), of_table))
    out.rows((msgspec.to_builtins(check) for check in found), ["check", "status", "detail"])
    if any(check.status == "failed" for check in found):
        raise typer.Exit(1)
