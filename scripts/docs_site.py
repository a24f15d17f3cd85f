"""Hooks of MkDocs for `make docs`: pages made from the code, and links that lead out of docs/.

The site has the README, the changelog and CONTRIBUTING as pages; a link to any other file of the repository becomes its
path as text, because the site is read without the repository. The references of the command line and of pipelines are
made from the code when the site is built, so they cannot be older than it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

from lakeseal.cli.app import app
from lakeseal.cli.examples import EXAMPLES
from lakeseal.ingest.yaml_file import pipeline_schema

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
LINK_OR_PICTURE = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    for name, page in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_from_root(text)))
    files.append(File.generated(config, "reference/command-line.md", content=command_line()))
    files.append(File.generated(config, "reference/pipeline-yaml.md", content=pipeline_yaml()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def mended(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        if "://" in target or target.startswith("#"):
            return found[0]
        file, hash_, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join("docs", folder, file))
        if place.startswith("docs/"):
            return found[0]
        if place in OUTSIDE:
            return f"[{text}]({posixpath.relpath(OUTSIDE[place], folder or '.')}{hash_}{anchor})"
        return f"{text} (`{place}`)" if text.strip("`") != place else f"`{place}`"

    return LINK.sub(mended, markdown)


def _from_root(text: str) -> str:
    """As if it lay in docs/."""

    def moved(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("#"):
            return found[0]
        return f"[{found[1]}]({target.removeprefix('docs/') if target.startswith('docs/') else '../' + target})"

    return LINK_OR_PICTURE.sub(moved, text)


def command_line() -> str:
    parts = ["# The command line\n\nEvery command; `--help` says the same at a terminal.\n"]
    for path, command in _commands():
        parts.append(f"## lakeseal {path}\n\n{(command.help or '').strip()}\n")
        rows = []
        for parameter in command.params:
            flags = ", ".join(f"`{flag}`" for flag in parameter.opts) if parameter.param_type_name == "option" else ""
            told = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
            rows.append(f"| {flags or f'`{parameter.name.upper()}`'} | {told} |")
        if rows:
            parts.append("| | |\n| --- | --- |\n" + "\n".join(rows) + "\n")
        if path in EXAMPLES:
            parts.append("```text\n" + "\n".join(EXAMPLES[path]) + "\n```\n")
    return "\n".join(parts)


def pipeline_yaml() -> str:
    text = json.dumps(pipeline_schema(), indent=1)
    return (
        "# Pipelines in YAML\n\nWhat a pipeline's file may say, as JSON Schema; `lakeseal ingest schema` prints it "
        f"too, for editors. [Ingest](../ingest.md) says what it means.\n\n```json\n{text}\n```\n"
    )


def _commands() -> Iterator[tuple[str, Any]]:
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
