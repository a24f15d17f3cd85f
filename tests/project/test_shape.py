"""One name for one thing, one place for each, in the whole tree."""

from __future__ import annotations

import ast
import re
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from lakeseal.service.app import create_app
from lakeseal.service.observed import Observed
from lakeseal.service.settings import ServiceSettings

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lakeseal"
LOOKED_AT = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call, ast.Import, ast.ImportFrom)


@cache
def nodes(room: str = "") -> tuple[tuple[str, ast.AST], ...]:
    """What stands in each module, and in which."""
    if room:
        return tuple((file, node) for file, node in nodes() if file.startswith(f"{room}/"))
    found: list[tuple[str, ast.AST]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        found += ((file, node) for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, LOOKED_AT))
    return tuple(found)


def returned(file: str, function: str) -> list[str]:
    """What a function returns, up to the arguments."""
    [found] = [n for f, n in nodes() if f == file and isinstance(n, ast.FunctionDef) and n.name == function]
    returns = [one.value for one in ast.walk(found) if isinstance(one, ast.Return) and one.value is not None]
    return [ast.unparse(one).partition("(")[0] for one in returns]


def test_no_public_class_name_stands_for_two_things() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file, node in nodes():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found[node.name].append(file)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_the_app_is_routes_of_starlette_and_one_middleware_of_ours() -> None:
    app = create_app(ServiceSettings(ledger="sqlite://"))
    assert type(app) is Starlette
    assert {type(route) for route in app.routes} == {Route}
    assert [one.cls for one in app.user_middleware] == [Observed]


def test_what_is_served_is_that_app_and_nothing_else_speaks_asgi() -> None:
    served, entries = [], set()
    for file, node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("uvicorn.Config", "uvicorn.run"):
            served.append((file, ast.unparse(node.args[0]).partition("(")[0]))
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and {"receive", "send"} <= {one.arg for one in node.args.args}:
            entries.add(f"{file} {node.name}")
    # The console of one user on one machine has an app of its own; tests run the service's without its processes.
    apps = [("service/local_console.py", "app"), ("service/server.py", "AppFactory"), ("testing/service.py", "app")]
    assert sorted(served) == apps
    assert returned("service/app.py", "__call__") == ["create_app"]
    # The outermost layer, and what a route leads to.
    assert entries == {"service/observed.py __call__", "service/call_routes.py __call__"}


def test_one_module_writes_answers_below_the_app() -> None:
    found = {
        file
        for file, node in nodes("service")
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("transport.write", "transport.writelines"))
    }
    assert found == {"service/connections.py"}, "what is no request that an app could be asked about"


@pytest.mark.parametrize(
    ("library", "readers"),
    [
        ("pyarrow.csv", {"files/csv_records.py"}),
        # Rows of users, and the statistics in a log, below everything that knows of rows.
        ("pyarrow.json", {"files/json_records.py", "protocol/stats.py"}),
    ],
)
def test_text_of_users_is_read_in_one_module_for_each_format(library: str, readers: set[str]) -> None:
    package, _, name = library.rpartition(".")
    found = set()
    for file, node in nodes():
        if isinstance(node, ast.Import) and any(one.name == library for one in node.names):
            found.add(file)
        if isinstance(node, ast.ImportFrom) and (
            node.module == library or (node.module == package and any(one.name == name for one in node.names))
        ):
            found.add(file)
    assert found == readers


@pytest.mark.parametrize("option", ["--owner", "--catalog", "--storage-option", "--json"])
def test_options_that_commands_share_are_declared_among_the_options_only(option: str) -> None:
    found = {
        file
        for file, node in nodes("cli")
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("Option")
        and any(isinstance(one, ast.Constant) and one.value == option for one in node.args)
    }
    assert found == {"cli/options.py"}


def test_each_room_has_its_tests_under_its_own_name() -> None:
    rooms = {file.parent.name for file in PACKAGE.glob("*/__init__.py")} - {"testing"}
    assert len(rooms) >= 20
    assert {room for room in rooms if not list((ROOT / "tests" / room).rglob("test_*.py"))} == set()


def test_a_managed_write_over_http_visits_at_most_20_modules_and_the_design_note_lists_them() -> None:
    traced = runpy.run_path(str(ROOT / "scripts" / "visits.py"))
    found = traced["visited"]()
    assert traced["VALUES"] <= set(found), "nothing stands among the values that is not visited"
    places = [one for one in found if one not in traced["VALUES"]]
    assert len(places) <= 20, places
    note = (ROOT / "docs" / "design" / "018-one-way.md").read_text("utf-8")
    listed = re.findall(r"^\d+\. `([a-z_/]+)`", note.partition("### After")[2].partition("\n#")[0], re.MULTILINE)
    assert listed == places
