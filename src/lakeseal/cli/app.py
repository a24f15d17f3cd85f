"""The commands put together, and what happens to errors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from lakeseal.cli import branch, change, demo, doctor, ingest, owner, read, serve, steps, upkeep, write
from lakeseal.cli.output import Output
from lakeseal.errors import LakesealError

app = typer.Typer(
    name="lakeseal",
    help="Atomic, exactly-once publishing of what Spark writes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (demo, read, write, change, upkeep, branch, owner, ingest, steps, serve, doctor):
    app.add_typer(group.commands)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    out = Output()
    try:
        app(args=arguments, obj=out, prog_name="lakeseal")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except LakesealError as error:
        if os.environ.get("LAKESEAL_DEBUG"):
            raise
        out.error(error)
        return 1
    except Exception as error:
        if os.environ.get("LAKESEAL_DEBUG"):
            raise
        out.error(
            LakesealError(
                f"Unexpected {type(error).__name__}: {error}",
                hint="This is a bug in Lakeseal: run it again with LAKESEAL_DEBUG=1 and report what it shows",
            )
        )
        return 1
    return 0
