"""Write docs/errors.md from the tree of errors: `make docs`. A test keeps the two the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lakeseal import errors

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
HEAD = """# Errors

Every error that leaves Lakeseal is a `lakeseal.LakesealError`. Its text says what happened, to which table, version,
file or column, and what to do next. Programs use its parts: `kind` (stable), `message`, `hint`, `table`, `version`,
`file`, `column`, and `to_json()`, which is also what the command line prints to standard error under `--json`.

Catch a group, since a group says what a handler would do:

```python
import lakeseal

try:
    lakeseal.Table("no/such/table").to_arrow()
except lakeseal.errors.NotFound as error:
    assert error.kind == "table-not-found"
    print(error.hint)
```

This page is made from the code by `make docs`.
"""
TABLE = "| error | `kind` | hint, where the place that raises it has no better one |\n| --- | --- | --- |\n"


def page() -> str:
    parts = [HEAD]
    for group in children(errors.LakesealError):
        parts.append(f"\n## {group.__name__}\n{meaning(group)}\n\n" + TABLE)
        parts += [f"| `{error.__name__}` | `{error.kind}` | {error.default_hint} |\n" for error in walk(group)]
    return "".join(parts)


def meaning(group: type[errors.LakesealError]) -> str:
    """The group's sentence in the tree that the module's docstring draws."""
    found = re.search(rf"── {group.__name__} +(.+)$", errors.__doc__ or "", re.MULTILINE)
    if found is None:
        raise SystemExit(f"the tree in the docstring of lakeseal.errors does not say what {group.__name__} means")
    return found[1][0].upper() + found[1][1:] + "."


def walk(error: type[errors.LakesealError]) -> Iterator[type[errors.LakesealError]]:
    yield error
    for child in children(error):
        yield from walk(child)


def children(error: type[errors.LakesealError]) -> list[type[errors.LakesealError]]:
    own = [cls for cls in error.__subclasses__() if cls.__module__ == errors.__name__]
    return sorted(own, key=lambda cls: list(vars(errors)).index(cls.__name__))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
