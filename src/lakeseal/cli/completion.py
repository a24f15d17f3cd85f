"""`lakeseal completion SHELL`: what a shell reads to complete commands and options."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from lakeseal.cli.options import AsJson
from lakeseal.cli.output import Output

commands = typer.Typer()


@commands.command()
def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell.", show_default=False)],
    json: AsJson = False,
) -> None:
    """Print a script that completes commands and options."""
    out: Output = ctx.obj
    script = get_completion_script(prog_name="lakeseal", complete_var="_LAKESEAL_COMPLETE", shell=shell)
    if out.json:
        out.record({"shell": shell, "script": script})
    else:
        sys.stdout.write(f"{script}\n")
