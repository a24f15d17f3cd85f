"""The shape of the code in numbers: modules, lines, modules that one other imports, protocols, names that stand twice.

python scripts/shape.py [SRC [ROOM]]

SRC is a package's folder; that of this checkout unless it is given. ROOM is one of its folders, to count that alone;
importers are those of the whole package.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main(package: Path, room: str = "") -> None:
    files = sorted(package.rglob("*.py"))
    names = {_name(package, file): file for file in files}
    importers: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, set[str]] = defaultdict(set)
    prefix = ".".join([package.name, *room.split("/")]) if room else package.name
    mine = {name for name in names if name == prefix or name.startswith(f"{prefix}.")}
    protocols = lines = 0
    for name, file in names.items():
        text = file.read_text()
        lines += text.count("\n") * (name in mine)
        tree = ast.parse(text)
        for node in ast.walk(tree):
            for imported in _imported(node):
                # `from a import b` may name a module or what is in one.
                for known in (imported, imported.rpartition(".")[0]):
                    if known in names and known != name:
                        importers[known].add(name)
                        break
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                is_protocol = any(ast.unparse(base).partition("[")[0].endswith("Protocol") for base in node.bases)
                protocols += is_protocol and name in mine
                if not node.name.startswith("_"):
                    classes[node.name].add(name)
    single = [name for name in mine if len(importers[name]) == 1 and not name.endswith("__init__")]
    twice = {name: where for name, where in classes.items() if len(where) > 1 and where & mine}
    print(f"modules {len(mine)}, lines {lines}, with one importer {len(single)}, protocols {protocols},", end=" ")
    print(f"public class names that stand twice {len(twice)}")
    for name, where in sorted(twice.items()):
        print(f"  {name}: {', '.join(sorted(where))}")


def _name(package: Path, file: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "src/lakeseal", *sys.argv[2:3])
