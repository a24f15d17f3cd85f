"""Every bug of docs/design/017-field-bugs.md has a test that shows that it cannot happen here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "design" / "017-field-bugs.md"
NAMED = re.compile(r"(?:^|_)bug_(s?\d+)(?:_|$)")
ELSEWHERE = {"stress", "peers"}
"""Marks of tests that `make test` leaves out."""
CODE_FROM_DATA = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}


def named_in(source: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each test with the numbers that it names, and the names of its marks."""
    tree = ast.parse(source)
    of_all = {name for node in tree.body if _is_pytestmark(node) for name, _ in _marks(ast.walk(node))}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = list(_marks(part for decorator in node.decorator_list for part in ast.walk(decorator)))
            numbers = {number for name, given in marks if name == "field_bug" for number in given}
            numbers |= {found.upper() for found in NAMED.findall(node.name)}
            yield node.name, numbers, {name for name, _ in marks} | of_all


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)


def _marks(nodes: Iterator[ast.AST]) -> Iterator[tuple[str, tuple[str, ...]]]:
    given: dict[int, tuple[str, ...]] = {}
    for node in nodes:
        if isinstance(node, ast.Call):
            given[id(node.func)] = tuple(str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark":
            yield node.attr, given.get(id(node), ())


def in_the_tests() -> dict[str, set[str]]:
    """Numbers, with the tests of `make test` that name them."""
    found: dict[str, set[str]] = {}
    folders = [ROOT / "tests", ROOT / "src" / "lakeseal" / "testing"]  # contract suites are in the package
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        for name, numbers, marks in named_in(file.read_text()):
            for number in numbers:
                found.setdefault(number, set())
                if not marks & ELSEWHERE:
                    found[number].add(f"{file.relative_to(ROOT)}::{name}")
    return found


def on_the_page() -> list[str]:
    return re.findall(r"^\| (S?\d+) \| \S.*\. \|$", PAGE.read_text(), re.MULTILINE)


def test_the_page_has_every_number_once() -> None:
    assert on_the_page() == [str(n) for n in range(1, 45)] + [f"S{n}" for n in range(1, 9)]


def test_every_bug_has_a_test_and_no_test_names_another() -> None:
    found = in_the_tests()
    assert sorted(number for number in on_the_page() if not found.get(number)) == [], "without a test"
    assert sorted(set(found) - set(on_the_page())) == [], "of no bug"


def test_the_list_of_the_design_has_the_same_numbers() -> None:
    design = ROOT.parent / "shared" / "design" / "FIELD_BUGS.md"
    if not design.is_file():
        pytest.skip("the folder ../shared/design is not here")
    numbers = re.findall(r"(?:^|[ *])(S?\d{1,2}) (?=[A-Za-z`])", re.sub(r"\([^)]*\)", "", design.read_text()))
    expected = on_the_page()
    position = 0
    for number in numbers:
        if position < len(expected) and number == expected[position]:
            position += 1
    assert position == len(expected), f"{expected[position:]} are not in the list of the design"
    assert set(re.findall(r"\bS\d+\b", design.read_text())) == {one for one in expected if one.startswith("S")}


@pytest.mark.parametrize(
    ("source", "numbers", "marks"),
    [
        ("def test_field_bug_s3_x(): pass", {"S3"}, set()),
        ("@pytest.mark.field_bug(3, 'S4')\n@pytest.mark.stress\ndef test_x(): pass", {"3", "S4"}, {"stress"}),
        ("pytestmark = [pytest.mark.peers]\nclass T:\n  def test_bug_12(self): pass", {"12"}, {"peers"}),
        ("def test_debug_3_x(): pass", set(), set()),
    ],
)
def test_numbers_are_found_in_names_and_marks(source: str, numbers: set[str], marks: set[str]) -> None:
    [(_, found, others)] = named_in(source)
    assert (found, others - {"field_bug"}) == (numbers, marks)


def makes_objects(node: ast.AST) -> bool:
    match node:
        case ast.Import():
            return any(alias.name.split(".")[0] in CODE_FROM_DATA for alias in node.names)
        case ast.ImportFrom():
            return (node.module or "").split(".")[0] in CODE_FROM_DATA
        case ast.Call():
            called = ast.unparse(node.func)
            if called in ("yaml.load", "yaml.load_all"):
                loaders = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "Loader")]
                return not any("Safe" in ast.unparse(loader) for loader in loaders)
            return called in ("eval", "exec", "__import__", "yaml.unsafe_load", "yaml.full_load")
    return False


@pytest.mark.field_bug("S6")
def test_no_module_makes_objects_or_code_of_data() -> None:
    """Spark pickles what it sends to its own tasks; Lakeseal itself never unpickles, and runs no text as Python."""
    found = [
        f"{file.relative_to(ROOT)}:{ast.unparse(node)}"
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if makes_objects(node)
    ]
    assert found == []
    for text in ("import pickle", "from cloudpickle import loads", "eval(x)", "yaml.load(x)"):
        assert any(map(makes_objects, ast.walk(ast.parse(text))))
