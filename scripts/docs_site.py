"""Hooks of MkDocs for `make docs`: pages made from the code, and links that lead out of docs/.

The site has the README, the changelog and CONTRIBUTING as pages; a link to any other file of the repository becomes its
path as text, because the site is read without the repository. The references of the command line and of pipelines are
made from the code when the site is built, so they cannot be older than it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

from lakeseal.cli.app import app
from lakeseal.cli.examples import EXAMPLES
from lakeseal.ingest.pipeline_schema import pipeline_schema

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
    schema = pipeline_schema()
    parts = schema["$defs"]
    groups = {
        "A pipeline": ["RawPipeline"],
        "A dataset": ["RawDataset"],
        "Sources": [name for name in parts if name.endswith("Source")],
        "Targets": [name for name in parts if name.endswith("Target")],
    }
    told = {name for names in groups.values() for name in names}
    groups["What is inside of these"] = [name for name in parts if name not in told]
    page = [
        "# Pipelines in YAML\n\nEvery field of a pipeline's file. [Ingest](../ingest.md) says what they are for; "
        "`lakeseal ingest schema` prints all of\nit as JSON Schema, for editors that complete and check while one "
        "types.\n"
    ]
    for heading, names in groups.items():
        is_one = len(names) == 1
        page.append(f"## {heading}" + (f" {{#{names[0].lower()}}}\n" if is_one else "\n"))
        for name in names:
            if not is_one:
                page.append(f"### {_part_name(parts[name])} {{#{name.lower()}}}\n")
            if words := parts[name].get("description"):
                page.append(f"{words}\n")
            page.append(_fields(parts, name))
    return "\n".join(page)


def _part_name(part: dict[str, Any]) -> str:
    kind = part.get("properties", {}).get("type", {}).get("enum")
    return f"type: {kind[0]}" if kind else str(part["title"])


def _fields(parts: dict[str, Any], name: str) -> str:
    rows = ["| field | value | unless given | |", "| --- | --- | --- | --- |"]
    for field, told in parts[name]["properties"].items():
        if field == "type" and name.endswith(("Source", "Target")):
            continue
        needed = "**needed**" if field in parts[name].get("required", ()) else _unless_given(told.get("default"))
        words = told.get("description", "").replace("|", "\\|")
        rows.append(f"| `{field}` | {_value(parts, told)} | {needed} | {words} |")
    return "\n".join(rows) + "\n"


def _unless_given(default: Any) -> str:
    if (not default and not isinstance(default, bool | int | float)) or isinstance(default, dict):
        return ""
    if isinstance(default, list | tuple):
        return ", ".join(f"`{one}`" for one in default)
    return f"`{default:g}`" if isinstance(default, float) else f"`{str(default).lower()}`"


def _value(parts: dict[str, Any], told: dict[str, Any]) -> str:
    """A type of JSON Schema, in a few words."""
    if ref := told.get("$ref"):
        name = ref.rpartition("/")[2]
        return f"[{_part_name(parts[name])}](#{name.lower()})"
    if choices := told.get("enum"):
        return ", ".join(f"`{one}`" for one in choices)
    if several := told.get("anyOf") or told.get("oneOf"):
        return " or ".join(dict.fromkeys(_value(parts, one) for one in several if one != {"type": "null"}))
    match told.get("type"):
        case "array" if told.get("prefixItems"):
            return "two of " + _value(parts, told["prefixItems"][0])
        case "array":
            return "list of " + _value(parts, told["items"])
        case "object":
            return "map"
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number":
            return "number"
        case _:
            return "text"


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
