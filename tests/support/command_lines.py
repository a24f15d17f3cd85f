"""Command lines of the docs and of files for machines: whether the program would take them."""

from __future__ import annotations

from typing import Any

import typer

from lakeseal.cli.app import app


def check(words: list[str]) -> None:
    """Raises what the program would complain of; nothing is run."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("lakeseal", list(words))
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, list(words), parent=context)
    assert context.args == []
