"""Functions of the product that change something outside of their process, found by reading its source.

A writer is a function with a call that changes a disk, an object store, a ledger or a service. Calls are told by their
names, and those with everyday names by what they are called on; a name that is new here is one that this module has to
learn.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "lakeseal"

_OF_OS = {
    "link",
    "rename",
    "replace",
    "unlink",
    "remove",
    "rmdir",
    "mkdir",
    "makedirs",
    "fsync",
    "write",
    "utime",
    "chmod",
}
_OF_OBSTORE = {"put", "delete", "copy", "open_writer"}
_OF_STORES = {"put", "put_if_absent", "delete", "move", "open_write", "sync", "set_time", "prune"}
_OF_TRANSACTIONS = {
    "insert",
    "insert_many",
    "update_many",
    "insert_and_update",
    "put",
    "update",
    "compare_and_set",
    "delete",
    "run",
    "run_many",
}
_OF_PATHS = {"mkdir", "write_text", "write_bytes", "unlink", "touch"}
_STORE = re.compile(r"(^|[._])(store|source|target|root)(\.store)?$")
_LEDGER = re.compile(r"(^|[._])ledger$")
_FREE = {"put_together", "put_files_together"}


class Writer(NamedTuple):
    file: str
    function: str
    lines: tuple[tuple[int, int], ...]
    """First and last line of each call."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.function}"


def writers() -> Iterator[Writer]:
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        yield from _in(file, ast.parse(path.read_text()), "")


def _in(file: str, node: ast.AST, within: str) -> Iterator[Writer]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}" if within else child.name
            if not isinstance(child, ast.ClassDef):
                lines = tuple((call.lineno, call.end_lineno or call.lineno) for call in _calls(child) if writes(call))
                if lines:
                    yield Writer(file, name, lines)
            yield from _in(file, child, name)
        else:
            yield from _in(file, child, within)


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """Without those of functions inside it, but with those of its lambdas."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def writes(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in _FREE
    if not isinstance(call.func, ast.Attribute):
        return False
    name, on = call.func.attr, ast.unparse(call.func.value)
    if on == "os":
        return name in _OF_OS or (name == "open" and "O_CREAT" in ast.unparse(call))
    if on == "obstore":
        return name in _OF_OBSTORE
    if on in ("tx", "self._tx"):
        return name in _OF_TRANSACTIONS
    if _LEDGER.search(on):
        return name == "write"
    if _STORE.search(on):
        return name in _OF_STORES
    return name in ("put_if_absent", "open_write", "set_time", "write_text", "write_bytes") or (
        name in _OF_PATHS and ("path" in on.lower() or "folder" in on.lower())
    )
